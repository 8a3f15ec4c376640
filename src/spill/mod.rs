//! What the table has no room for: sorted files in levels, each of which is newer than those below.
//!
//! The files of level 0 are as they were added; those of a deeper level have no key in common.
//! Files never change. Which ones count is said by a [`Catalog`], so everything happens with its
//! atomic edits: until an edit, new files mean nothing; after it, old ones do not.

mod cursor;
mod merge;
mod sst;
#[cfg(all(test, not(loom)))]
mod tests;
mod version;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rayon::prelude::*;

use crate::Result;
use crate::pm::Folder;
use sst::{Sst, Writer};
pub(crate) use version::Version;

/// A key's newest value below the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub key: &'a [u8],
    pub sequence: u64,
    /// `None` for a tombstone.
    pub value: Option<&'a [u8]>,
}

/// A key with the newest that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub key: Vec<u8>,
    pub sequence: u64,
    /// `None` for a tombstone.
    pub value: Option<Vec<u8>>,
}

/// A part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub items: Vec<Item>,
    /// Nothing of the range is left behind them.
    pub is_last: bool,
}

/// What the manifest says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelFile {
    pub number: u64,
    pub level: u32,
    /// Its length in bytes.
    pub len: u64,
}

/// Where the list of the files that count is kept.
pub(crate) trait Catalog: Send + Sync {
    /// Atomically and durably takes files out of the list, and then others into it: a number in both
    /// changes its level.
    ///
    /// # Errors
    /// What the operating system answers. A crash may then leave the list changed or not, until
    /// another edit succeeds.
    fn edit(&self, added: &[LevelFile], removed: &[u64]) -> Result<()>;
}

/// How a spill works.
#[derive(Debug, Clone)]
pub(crate) struct SpillOptions {
    /// Bytes of data blocks that are kept in memory.
    pub cache_bytes: u64,
    /// Bytes after which a file ends and the next one begins.
    pub file_bytes: u64,
    /// Bytes of level 1 from which on it is too large; each deeper level may have ten times more.
    pub level_bytes: u64,
    /// Threads that compact.
    pub threads: usize,
    pub store_id: [u64; 2],
}

/// An open spill.
pub(crate) struct Spill {
    folder: Folder,
    catalog: Arc<dyn Catalog>,
    options: SpillOptions,
    current: RwLock<Arc<Version>>,
    next_number: AtomicU64,
    /// Held by the one who adds.
    adding: Mutex<()>,
    /// Files that an edit which failed may have taken into the list; they stay until another one
    /// succeeds.
    doubtful: Mutex<Vec<Arc<Sst>>>,
}

impl Spill {
    /// Opens the files that count, and removes others from the folder, which is made if need be.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing), [`Error::Truncated`](crate::Error::Truncated),
    /// [`Error::Foreign`](crate::Error::Foreign), [`Error::NewerFormat`](crate::Error::NewerFormat) or
    /// [`Error::Damaged`](crate::Error::Damaged) for one of them, or what the operating system answers.
    pub fn open(
        folder: Folder,
        files: &[LevelFile],
        catalog: Arc<dyn Catalog>,
        options: SpillOptions,
    ) -> Result<Self> {
        folder.create()?;
        let names = folder.names()?;
        let there: Vec<u64> = names.iter().filter_map(|name| sst::number(name)).collect();
        let opened = files
            .par_iter()
            .map(|file| {
                let sst = Sst::open(&folder, options.store_id, file)?;
                Ok((file.level, Arc::new(sst)))
            })
            .collect::<Result<Vec<_>>>()?;
        let version = Version::new(options.store_id, folder.path(), opened)?;
        let counts = |number: &u64| files.iter().any(|file| file.number == *number);
        let old: Vec<u64> = there.iter().copied().filter(|n| !counts(n)).collect();
        if !old.is_empty() {
            // The list may not be durable yet: a power cut could bring one back that has them.
            catalog.edit(&[], &[])?;
            for number in old {
                if let Err(error) = folder.remove_file(&sst::name(number)) {
                    tracing::warn!(%error, "an obsolete SST stays");
                }
            }
        }
        let numbers = there
            .iter()
            .copied()
            .chain(files.iter().map(|file| file.number));
        Ok(Self {
            current: RwLock::new(Arc::new(version)),
            next_number: AtomicU64::new(numbers.max().unwrap_or(0) + 1),
            folder,
            catalog,
            options,
            adding: Mutex::new(()),
            doubtful: Mutex::new(Vec::new()),
        })
    }

    /// What it holds at this moment.
    pub fn version(&self) -> Arc<Version> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Writes entries in ascending order of their keys, no key twice, as new files of level 0: durable
    /// and visible when it returns, and newer than all before. A tombstone of a key that is not here is
    /// left out.
    ///
    /// # Errors
    /// What the operating system answers. Then none of the entries is visible; if the process or the
    /// machine stops before the next call succeeds, all of them may be there.
    pub fn add<'a>(&self, entries: impl Iterator<Item = Entry<'a>>) -> Result<()> {
        let _alone = lock(&self.adding);
        let version = self.version();
        let mut output = Output::new(self, 0);
        for entry in entries {
            if entry.value.is_some() || version.may_have(entry.key) {
                output.add(&entry)?;
            }
        }
        let files = output.finish()?;
        match files.is_empty() {
            true => Ok(()),
            false => self.edit(&files, 0, &[]),
        }
    }

    /// Takes files out of the version and others into it, on a level.
    fn edit(&self, added: &[Arc<Sst>], level: u32, removed: &[u64]) -> Result<()> {
        let mut doubtful = lock(&self.doubtful);
        let current = self.version();
        let stay = current
            .files()
            .filter(|(_, sst)| !removed.contains(&sst.number()))
            .map(|(level, sst)| (level, Arc::clone(sst)));
        let come = added.iter().map(|sst| (level, Arc::clone(sst)));
        let next = Version::new(self.options.store_id, self.folder.path(), stay.chain(come))?;
        let listed: Vec<LevelFile> = added
            .iter()
            .map(|sst| LevelFile {
                number: sst.number(),
                level,
                len: sst.len(),
            })
            .collect();
        if let Err(error) = self.catalog.edit(&listed, removed) {
            doubtful.extend(added.iter().cloned());
            return Err(error);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        for sst in doubtful.drain(..) {
            sst.set_obsolete();
        }
        for (_, sst) in current.files() {
            let is_added = added.iter().any(|added| added.number() == sst.number());
            if removed.contains(&sst.number()) && !is_added {
                sst.set_obsolete();
            }
        }
        Ok(())
    }
}

/// Files that are being written, one after the other.
struct Output<'s> {
    spill: &'s Spill,
    writer: Option<(u64, Writer)>,
    level: u32,
    files: Vec<Arc<Sst>>,
}

impl<'s> Output<'s> {
    fn new(spill: &'s Spill, level: u32) -> Self {
        Self {
            spill,
            writer: None,
            level,
            files: Vec::new(),
        }
    }

    fn add(&mut self, entry: &Entry) -> Result<()> {
        if self.writer.is_none() {
            let number = self.spill.next_number.fetch_add(1, Ordering::Relaxed);
            let store_id = self.spill.options.store_id;
            let writer = Writer::create(&self.spill.folder, store_id, number)?;
            self.writer = Some((number, writer));
        }
        let Some((_, writer)) = &mut self.writer else {
            unreachable!("it was made if there was none");
        };
        writer.add(entry)?;
        if writer.len() >= self.spill.options.file_bytes {
            self.end_file()?;
        }
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        let Some((number, writer)) = self.writer.take() else {
            return Ok(());
        };
        let file = LevelFile {
            number,
            level: self.level,
            len: writer.finish()?,
        };
        let spill = self.spill;
        let sst = Sst::open(&spill.folder, spill.options.store_id, &file)?;
        self.files.push(Arc::new(sst));
        Ok(())
    }

    /// The files, durable with their names, of which the catalog does not speak yet.
    fn finish(mut self) -> Result<Vec<Arc<Sst>>> {
        self.end_file()?;
        if let Some(sst) = self.files.first() {
            sst.sync_names()?;
        }
        Ok(std::mem::take(&mut self.files))
    }
}

impl Drop for Output<'_> {
    /// Files of which nobody has heard are of no use.
    fn drop(&mut self) {
        for sst in &self.files {
            sst.set_obsolete();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
