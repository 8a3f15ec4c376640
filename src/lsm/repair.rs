//! Files that are not open: checking one, and saving what a damaged one still has.

use std::sync::Arc;

use parking_lot::Mutex;

use super::LevelFile;
use super::cache::FileCache;
use super::sst;
use super::sst::{Checked, Salvage, Sst, Writer};
use super::values::ValueSalvage;
use super::version::LsmVersion;
use crate::Result;
use crate::pm::Dir;
use crate::table::recovery::scan::LOST_KEYS_MAX;

/// Key and sequence number of an entry.
pub(crate) type LostEntry = (Vec<u8>, u64);

/// What was saved of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repaired {
    /// What the catalog must say of it from now on; `None` if nothing was saved, and it must no longer
    /// speak of it.
    pub file: Option<LevelFile>,
    /// Entries that were saved.
    pub kept: u64,
    /// Entries that were not; `None` if nothing says how many there were.
    pub lost: Option<u64>,
    /// The keys and sequence numbers of those whose values alone are not whole, as many as are kept.
    pub lost_keys: Vec<LostEntry>,
}

/// Files of a directory that are checked, each by itself and then what they say of each other.
pub(crate) struct Checks {
    cache: Arc<FileCache>,
    store_id: [u64; 2],
    /// Those that could be opened, and their levels.
    opened: Mutex<Vec<(u32, Arc<Sst>)>>,
}

impl Checks {
    /// Those of a store's directory.
    pub fn new(dir: &Dir, store_id: [u64; 2]) -> Self {
        Self {
            cache: Arc::new(FileCache::without_blocks(dir.clone())),
            store_id,
            opened: Mutex::default(),
        }
    }

    /// Checks a file as [`Spill::verify`](super::Spill::verify) does. `progress` is told the bytes of each block.
    ///
    /// # Errors
    /// Those of [`Spill::open`](super::Spill::open).
    pub fn check(&self, file: &LevelFile, progress: &(dyn Fn(u64) + Sync)) -> Result<Checked> {
        let sst = Arc::new(Sst::open(&self.cache, self.store_id, file)?);
        self.opened.lock().push((file.level, Arc::clone(&sst)));
        sst.check(progress)
    }

    /// Checks what those files that could be opened say of each other, as [`Spill::open`](super::Spill::open) does:
    /// on a level below 0 no two of them share a key.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) of the directory.
    pub fn check_levels(self) -> Result<()> {
        let dir = self.cache.dir().path();
        LsmVersion::new(self.store_id, dir, self.opened.into_inner()).map(|_| ())
    }
}

/// Writes a file anew from its data blocks that are whole, in its own place: atomically and durably. An entry whose
/// value is not whole in its value file is lost, too. Of a file that is not there nothing is saved. What levels below have of the keys that are lost comes to light
/// again. Others must not have the file open.
///
/// # Errors
/// What the operating system answers; the file is what it was.
pub(crate) fn repair(dir: &Dir, file: &LevelFile, store_id: [u64; 2]) -> Result<Repaired> {
    if !dir.has(&sst::name(file.number))? {
        return Ok(Repaired {
            file: None,
            kept: 0,
            lost: None,
            lost_keys: Vec::new(),
        });
    }
    let cache = Arc::new(FileCache::without_blocks(dir.clone()));
    let salvage = Salvage::open(&cache, store_id, file.number)?;
    let values = ValueSalvage::new(dir, store_id);
    let name = sst::next_name(file.number);
    let mut writer = Writer::create(dir, name, store_id, file.number, 0)?;
    let (mut kept, mut lost_keys) = (0, Vec::new());
    let mut last: Option<Vec<u8>> = None;
    for block in salvage.blocks() {
        let block = block?;
        for entry in (0..block.count()).map(|nth| block.entry(nth)) {
            // A block that has been forged may have keys of others.
            if last.as_deref() >= Some(entry.key) {
                continue;
            }
            if values.has_value_of(&entry)? {
                writer.add(&entry)?;
                kept += 1;
                last = Some(entry.key.to_vec());
            } else if lost_keys.len() < LOST_KEYS_MAX {
                lost_keys.push((entry.key.to_vec(), entry.sequence));
            }
        }
    }
    let lost = salvage
        .entries()
        .map(|entries| entries.saturating_sub(kept));
    if kept == 0 {
        return Ok(Repaired {
            file: None,
            kept,
            lost,
            lost_keys,
        });
    }
    let len = writer.finish()?;
    let mut repaired = dir.open_file(&sst::next_name(file.number), false)?;
    repaired.rename(&sst::name(file.number))?;
    repaired.sync_dir()?;
    let file = Some(LevelFile { len, ..*file });
    Ok(Repaired {
        file,
        kept,
        lost,
        lost_keys,
    })
}
