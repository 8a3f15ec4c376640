//! The directory of a store: which files it has, who may use it, and what they hold together.
//!
//! ```text
//!  LOCK        empty; its advisory lock keeps the store from being open twice
//!  MANIFEST    what the store is and which log segments count
//!  index.gph   the index, with `index.gph.journal` beside it while it takes a checkpoint
//!  wal/        segments of the log, 000000000001.log and so on
//!  sst/        sorted files of what has left the table, 000000000001.sst and so on
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::manifest::{self, MOST_FILES, Manifest};
use super::wal::segment;
use crate::pm::{Faults, Folder, PmFile};
use crate::spill::{Catalog, LevelFile};
use crate::{Error, Result};

const LOCK: &str = "LOCK";
pub const MANIFEST: &str = manifest::NAME;
pub const INDEX: &str = "index.gph";
const INDEX_JOURNAL: &str = "index.gph.journal";
pub const LOG: &str = "wal";
pub const SPILL: &str = "sst";

/// An open directory; closing it gives up its lock.
#[derive(Debug)]
pub struct Directory {
    root: Folder,
    log: Folder,
    spill: Folder,
    manifest: Mutex<Manifest>,
    /// Segments that no longer count and whose files the log may use again.
    spares: Mutex<Vec<u64>>,
    lock: PmFile,
}

impl Directory {
    /// Opens and locks the directory of a store, or begins one: then the manifest is not yet
    /// `complete`, and there is neither index nor log. `merge_operator` is the name that the store
    /// must have been made with; `None` lets every one pass.
    ///
    /// # Errors
    /// [`Error::ForeignDirectory`], [`Error::Missing`], [`Error::InUse`],
    /// [`Error::OptionMismatch`], what [`Manifest::read`] says, or what the operating system
    /// answers. What is there is untouched.
    pub fn open(
        path: &Path,
        merge_operator: Option<&str>,
        faults: Option<Arc<dyn Faults>>,
    ) -> Result<Self> {
        let root = Folder::at(path.to_path_buf(), faults.clone());
        let log = Folder::at(root.join(LOG), faults.clone());
        let spill = Folder::at(root.join(SPILL), faults);
        // Nothing is made in a directory that is not ours, not even the lock.
        let known = inspect(&root)?;
        if let (Some(manifest), Some(name)) = (&known, merge_operator) {
            check_options(&root, manifest, name)?;
        }
        root.create()?;
        let lock = match root.has(LOCK)? {
            true => root.open_file(LOCK, true)?,
            false => root.create_file(LOCK)?,
        };
        lock.lock()?;
        // Another process may have been at work until now.
        let manifest = match inspect(&root)? {
            Some(manifest) => manifest,
            None => {
                let manifest = Manifest {
                    store_id: rand::random(),
                    complete: false,
                    first_segment: 1,
                    last_segment: 1,
                    sequence: 0,
                    merge_operator: merge_operator.unwrap_or_default().into(),
                    files: Vec::new(),
                };
                manifest.write(&root)?;
                manifest
            }
        };
        if let Some(name) = merge_operator {
            check_options(&root, &manifest, name)?;
        }
        let directory = Self {
            root,
            log,
            spill,
            manifest: Mutex::new(manifest),
            spares: Mutex::default(),
            lock,
        };
        if !directory.manifest().complete {
            directory.clear()?;
        }
        Ok(directory)
    }

    /// Takes away what a creation that was cut short has left.
    fn clear(&self) -> Result<()> {
        // Its process may have died before the manifest's name was durable, and nothing else may be here
        // without that.
        self.lock.sync_folder()?;
        for name in [INDEX_JOURNAL, INDEX] {
            if self.root.has(name)? {
                self.root.remove_file(name)?;
            }
        }
        self.log.create()
    }

    /// Where the index is.
    ///
    /// # Errors
    /// [`Error::Missing`] if it should be there and is not.
    pub fn index(&self) -> Result<PathBuf> {
        let path = self.root.join(INDEX);
        match self.manifest().complete && !self.root.has(INDEX)? {
            true => Err(missing_index(path)),
            false => Ok(path),
        }
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// The folder of the log.
    pub fn log(&self) -> &Folder {
        &self.log
    }

    /// The folder of the files below the table.
    pub fn spill(&self) -> &Folder {
        &self.spill
    }

    /// What the manifest says.
    pub fn manifest(&self) -> Manifest {
        self.manifest.lock().clone()
    }

    /// Where the manifest is.
    pub fn manifest_path(&self) -> PathBuf {
        self.root.join(manifest::NAME)
    }

    /// Says whether the manifest on the disk is whole, and the one that was written last or a later
    /// one.
    ///
    /// # Errors
    /// Those of [`Manifest::read`], and [`Error::Damaged`] if it is another one.
    pub fn check_manifest(&self) -> Result<()> {
        let manifest = self.manifest.lock();
        let found = Manifest::read(&self.root)?;
        // An edit that failed may have got there.
        let is_it = found.first_segment >= manifest.first_segment
            && found.last_segment >= manifest.last_segment
            && (found.store_id, &found.merge_operator)
                == (manifest.store_id, &manifest.merge_operator);
        if is_it {
            return Ok(());
        }
        Err(Error::Damaged {
            path: self.manifest_path(),
            what: "manifest",
            at: 0,
            found: format!("{found:?}; the last one written is {manifest:?}"),
        })
    }

    /// Changes the manifest, atomically and durably.
    ///
    /// # Errors
    /// What the operating system answers. A crash then may leave it changed or not; until then
    /// [`manifest`](Self::manifest) has not changed.
    pub fn edit(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut next = manifest.clone();
        change(&mut next);
        next.write(&self.root)?;
        *manifest = next;
        Ok(())
    }

    /// Removes the segments before those that count, but for `keep` bytes of files that the log may use
    /// again. Those that cannot be removed are left to the next time: they mean nothing. One behind them
    /// may be the log's next, which comes to count meanwhile.
    pub fn retire_old_segments(&self, keep: u64) {
        let mut spares = self.spares.lock();
        spares.clear();
        let first = self.manifest().first_segment;
        let mut names = self.log.names().unwrap_or_default();
        names.sort_unstable();
        let mut kept = 0;
        for name in names {
            let Some(number) = segment::number(&name).filter(|number| *number < first) else {
                continue;
            };
            let len = std::fs::metadata(self.log.join(&name)).map_or(u64::MAX, |file| file.len());
            if len <= keep.saturating_sub(kept) {
                kept += len;
                spares.push(number);
            } else if let Err(error) = self.log.remove_file(&name) {
                tracing::warn!(%error, "an old log segment stays");
            }
        }
    }

    /// The file of a segment that no longer counts, under the name of segment `number`, if there is one.
    /// What stands in it is what stood there.
    pub fn take_spare(&self, number: u64) -> Option<PmFile> {
        let mut spares = self.spares.lock();
        let rename = |spare| {
            let mut file = self.log.open_file(&segment::name(spare), true)?;
            file.rename(&self.log.join(&segment::name(number)))?;
            Ok(file)
        };
        let renamed: Result<PmFile> = rename(spares.pop()?);
        renamed
            .inspect_err(|error| tracing::warn!(%error, "an old log segment is not used again"))
            .ok()
    }
}

impl Catalog for Directory {
    fn edit(&self, added: &[LevelFile], removed: &[u64]) -> Result<()> {
        let files = self.manifest().files.len() + added.len();
        if files > MOST_FILES {
            return Err(Error::Limit {
                path: self.manifest_path(),
                what: "files below the table",
                needed: files as u64,
                limit: MOST_FILES as u64,
            });
        }
        self.edit(|manifest| {
            manifest
                .files
                .retain(|file| !removed.contains(&file.number));
            manifest.files.extend(added);
        })
    }
}

/// Keeps the directory of a store from being opened while someone looks at it.
///
/// # Errors
/// [`Error::InUse`], or what the operating system answers.
pub fn look(root: &Folder) -> Result<Option<PmFile>> {
    if !root.has(LOCK)? {
        // The files have locks of their own.
        return Ok(None);
    }
    let lock = root.open_file(LOCK, false)?;
    lock.lock_shared()?;
    Ok(Some(lock))
}

/// The error for an index that should be at `path`.
pub fn missing_index(path: PathBuf) -> Error {
    Error::Missing {
        path,
        advice: "put it back; the log holds only what was written since its last checkpoint",
    }
}

/// The manifest of the directory, or `None` if there can be a new store.
///
/// # Errors
/// As [`Directory::open`].
pub fn inspect(root: &Folder) -> Result<Option<Manifest>> {
    let names = root.names()?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has(manifest::NAME) {
        return Manifest::read(root).map(Some);
    }
    if has(INDEX) || has(LOG) || has(SPILL) {
        return Err(Error::Missing {
            path: root.join(manifest::NAME),
            advice: "put it back: without it nothing says which files of the log and of sst/ count",
        });
    }
    let ours = [LOCK, manifest::NEXT_NAME];
    match names.iter().find(|name| !ours.contains(&name.as_str())) {
        Some(name) => Err(Error::ForeignDirectory {
            path: root.path().to_path_buf(),
            found: format!("{name:?} and no {}", manifest::NAME),
        }),
        None => Ok(None),
    }
}

fn check_options(root: &Folder, manifest: &Manifest, merge_operator: &str) -> Result<()> {
    if manifest.merge_operator == merge_operator {
        return Ok(());
    }
    Err(Error::OptionMismatch {
        path: root.join(manifest::NAME),
        option: "merge_operator",
        found: format!("{:?}", manifest.merge_operator),
        expected: format!("{merge_operator:?}"),
    })
}
