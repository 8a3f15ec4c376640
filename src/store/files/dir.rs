//! The directory of a store: which files it has, who may use it, and what they hold together.
//!
//! ```text
//!  LOCK        empty; its advisory lock keeps the store from being open twice
//!  MANIFEST    what the store is and which files count; MANIFEST.2 is the same
//!  RESERVE     room that is given back to a full disk
//!  index.gph   the index, with `index.gph.journal` beside it while it is open
//!  wal/        segments of the log, 000000000001.log and so on
//!  sst/        sorted files of what has left the table, 000000000001.sst and so on
//!  partition-001/ and so on: the partitions of the store beside the first one, each with all of the above
//! ```

use std::io;
use std::ops::RangeFrom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::identity::{Identity, Names, PartitionCount, partition_name};
use super::manifest;
use super::manifest::{Copies, FILES_MAX, Manifest};
use super::reserve::{Purpose, Reserve, Shares};
use super::unopened::{check_mark, inspect, mark, missing_index};
use crate::layout::{Mark, PAGE};
use crate::lsm::{Catalog, LevelFile, NUMBERS_MAX};
use crate::pm::{Dir, Entry, Faults, PmFile};
use crate::pool::parallel;
use crate::store::files::segment;
use crate::{Error, Result};

pub const LOCK: &str = "LOCK";

pub const MANIFEST: &str = manifest::NAMES[0];
pub const INDEX: &str = "index.gph";
pub const INDEX_JOURNAL: &str = "index.gph.journal";
const INDEX_UNPUBLISHED: &str = ".index.gph.making";
pub const LOG: &str = "wal";
pub const SPILL: &str = "sst";

/// An open directory; closing it gives up its lock.
#[derive(Debug)]
pub struct StoreDir {
    root: Dir,
    log: Dir,
    spill: Dir,
    manifest: Mutex<Manifest>,
    /// The copy that the next edit makes first. Held by whoever holds the manifest.
    first_copy: Mutex<usize>,
    /// A copy of the manifest that is not the same, and what is wrong with it.
    other: Mutex<Option<(&'static str, Error)>>,
    /// Of the last edit that was tried.
    generation: AtomicU64,
    /// Those of all partitions that are durable; 0 for one that is not open yet.
    generations: Arc<[AtomicU64]>,
    /// Segments that no longer count and whose files the log may use again.
    spares: Mutex<Vec<u64>>,
    reserve: Reserve,
    /// Held alone while something of the reserve is given back that is not for sorted files: an attempt to hold more
    /// takes all that is free for a moment.
    giving: RwLock<()>,
    lock: PmFile,
    /// Syncs take long.
    is_on_disk: bool,
    /// Sorted files stay as they are: an index that may be older is to be compared with them first.
    keeps_files: AtomicBool,
}

/// Says in the error for a directory of something else what a new store needs.
fn for_new_store(error: Error) -> Error {
    match error {
        Error::ForeignDirectory { path, found } => Error::ForeignDirectory {
            path,
            found: found + "; a new store needs a directory that is empty or does not exist",
        },
        error => error,
    }
}

/// What of the reserve is given back to the disk first.
const GIVEN_AT_ONCE: u64 = 64 << 10;

impl StoreDir {
    /// Opens and locks the directory of a store, or begins one: then the manifest is not yet
    /// `complete`, and there is neither index nor log. The store must have been made with these `names`;
    /// `None` lets all pass.
    ///
    /// # Errors
    /// [`Error::ForeignDirectory`], [`Error::Missing`], [`Error::InUse`],
    /// [`Error::OptionMismatch`], what [`Manifest::read`] says, or what the operating system
    /// answers. What is there is untouched.
    pub fn open(
        path: &Path,
        names: Option<Names>,
        partitions: PartitionCount,
        faults: Option<Arc<dyn Faults>>,
    ) -> Result<Self> {
        let root = Dir::at(path.to_path_buf(), faults);
        Self::open_as(root, names, &Identity::First(partitions))
    }

    /// Opens the directory of another partition of the store whose first partition this is, as
    /// [`open`](Self::open) does. It may be missing, or not `complete`, only if this one is not `complete`.
    ///
    /// # Errors
    /// As there; [`Error::Damaged`] if it is another partition, or one of another store.
    pub fn open_partition(&self, number: u32, names: Option<Names>) -> Result<Self> {
        let root = self.root.within(&partition_name(number));
        Self::open_as(
            root,
            names,
            &Identity::Other(
                Box::new(self.manifest()),
                number,
                Arc::clone(&self.generations),
                Arc::clone(self.reserve.shares()),
            ),
        )
    }

    fn open_as(root: Dir, names: Option<Names>, identity: &Identity) -> Result<Self> {
        let log = root.within(LOG);
        let spill = root.within(SPILL);
        // Nothing is made in a directory that is not ours, not even the lock.
        let known = inspect(&root).map_err(for_new_store)?;
        identity.check(&root, known.as_ref().map(|known| &known.manifest))?;
        if let (Some(known), Some(names)) = (&known, names) {
            names.check(&root, &known.manifest)?;
        }
        root.create()?;
        let lock = root.open_or_create_file(LOCK)?;
        lock.lock()?;
        let mut other = None;
        // Another process may have been at work until now.
        let mut manifest = match inspect(&root)? {
            Some(Copies {
                manifest,
                other: broken,
                ..
            }) => {
                other = broken;
                manifest
            }
            None => {
                if let Identity::First(_) = identity {
                    // Whoever made it may have died before.
                    root.sync_name()?;
                }
                let (store_id, partitions, partition) = identity.new_identity();
                let manifest = Manifest {
                    store_id,
                    partitions,
                    partition,
                    complete: false,
                    marked: false,
                    unnamed: false,
                    salvaged: false,
                    generation: 1,
                    next_file: 1,
                    first_segment: 1,
                    last_segment: 1,
                    sequence: 0,
                    merge_operator: names.map_or("", |names| names.merge_operator).into(),
                    partitioner: names.map_or("", |names| names.partitioner).into(),
                    files: Vec::new(),
                    others: vec![0; manifest::others(partitions, partition)],
                };
                manifest.write(&root)?;
                manifest
            }
        };
        identity.check(&root, Some(&manifest))?;
        let partitions = match identity {
            Identity::First(count) => count.wanted.unwrap_or(manifest.partitions),
            Identity::Other(first, ..) => first.partitions,
        };
        if manifest.partitions != partitions {
            // A creation with another number was cut short.
            manifest.partitions = partitions;
            manifest.others = vec![0; manifest::others(partitions, manifest.partition)];
            manifest.generation += 1;
            manifest.write(&root)?;
            other = None;
        }
        if let Some(names) = names {
            names.check(&root, &manifest)?;
        }
        let (generations, shares) = match identity {
            Identity::First(_) => {
                let generations = (0..partitions).map(|_| AtomicU64::new(0)).collect();
                (generations, Shares::new(partitions))
            }
            Identity::Other(_, _, generations, shares) => {
                (Arc::clone(generations), Arc::clone(shares))
            }
        };
        generations[manifest.partition as usize].store(manifest.generation, Ordering::Relaxed);
        let reserve = Reserve::find(&root, manifest.partition, shares)?;
        let store_dir = Self {
            root,
            log,
            spill,
            generation: AtomicU64::new(manifest.generation),
            generations,
            other: Mutex::new(other),
            manifest: Mutex::new(manifest),
            first_copy: Mutex::new(0),
            spares: Mutex::default(),
            reserve,
            giving: RwLock::new(()),
            is_on_disk: !lock.is_in_memory(),
            lock,
            keeps_files: AtomicBool::new(false),
        };
        if !store_dir.manifest().complete {
            store_dir.repair_copies()?;
            store_dir.clear()?;
        }
        Ok(store_dir)
    }

    /// Has no sorted file compacted, or no longer so.
    pub fn keep_files(&self, keeps: bool) {
        self.keeps_files.store(keeps, Ordering::Relaxed);
    }

    /// Whether nothing says what it was made with.
    pub fn is_unnamed(&self) -> bool {
        self.manifest.lock().unnamed
    }

    /// Takes these for the names that it was made with, if nothing says them. The next edit of the manifest has them.
    pub fn adopt(&self, names: Names) {
        let mut manifest = self.manifest.lock();
        if manifest.unnamed {
            manifest.merge_operator = names.merge_operator.into();
            manifest.partitioner = names.partitioner.into();
            manifest.unnamed = false;
        }
    }

    /// Makes the copies of the manifest equal, before anything is done that relies on the one that holds.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn repair_copies(&self) -> Result<()> {
        let mut other = self.other.lock();
        if let Some((name, error)) = &*other {
            tracing::warn!(%error, "a copy of the manifest is made anew");
            self.with_room(Room::ALL, || self.manifest().write_copy(&self.root, name))?;
        }
        *other = None;
        Ok(())
    }

    /// Takes away what a creation that was cut short has left.
    fn clear(&self) -> Result<()> {
        // Its process may have died before the manifest's name was durable, and nothing else may be here
        // without that.
        self.lock.sync_dir()?;
        for name in [INDEX_JOURNAL, INDEX, INDEX_UNPUBLISHED] {
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
    pub fn index(&self) -> Result<Entry> {
        match self.manifest().complete && !self.root.has(INDEX)? {
            true => Err(missing_index(self.root.join(INDEX))),
            false => Ok(self.root.entry(INDEX)),
        }
    }

    /// Says whether the index in the directory and the manifest belong together, and neither of them is an
    /// older copy. `next` is the first sequence number that the log does not have.
    ///
    /// # Errors
    /// [`Error::Damaged`] of the one that is older, or of another store, and what the operating system
    /// answers.
    pub fn check_index(&self, next: u64) -> Result<()> {
        check_mark(&self.root, &self.manifest(), next)
    }

    /// What the index in the directory says of the store.
    ///
    /// # Errors
    /// [`Error::Damaged`], and what the operating system answers.
    pub fn marked(&self) -> Result<Option<Mark>> {
        mark(&self.root)
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// The directory itself.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// The directory of the log.
    pub fn log(&self) -> &Dir {
        &self.log
    }

    /// The directory of the files below the table.
    pub fn spill(&self) -> &Dir {
        &self.spill
    }

    /// What the manifest says.
    pub fn manifest(&self) -> Manifest {
        self.manifest.lock().clone()
    }

    /// Where the manifest is.
    pub fn manifest_path(&self) -> PathBuf {
        self.root.join(MANIFEST)
    }

    /// Says whether a copy of the manifest on the disk is whole, and the one that was written last or a
    /// later one.
    ///
    /// # Errors
    /// Those of [`Manifest::read`], and [`Error::Damaged`] if it is another one.
    pub fn check_manifest(&self, name: &str) -> Result<()> {
        let manifest = self.manifest.lock();
        let found = Manifest::read(&self.root, name)?;
        // An edit that failed may have got there.
        let is_it = found.generation >= manifest.generation
            && found.first_segment >= manifest.first_segment
            && found.last_segment >= manifest.last_segment
            && found.store_id == manifest.store_id
            && found.merge_operator == manifest.merge_operator
            && found.partitioner == manifest.partitioner;
        if is_it {
            return Ok(());
        }
        Err(Error::Damaged {
            path: self.root.join(name),
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
    pub fn edit(&self, change: impl Fn(&mut Manifest)) -> Result<()> {
        self.with_room(Room::ALL, || {
            let mut manifest = self.manifest.lock();
            let mut next = manifest.clone();
            change(&mut next);
            next.generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
            let numbers = next.files.iter().map(|file| file.number + 1);
            next.next_file = numbers.fold(next.next_file, u64::max);
            next.others = self.others(next.partition);
            next.rewrite(&self.root, &mut self.first_copy.lock())?;
            let own = &self.generations[next.partition as usize];
            own.store(next.generation, Ordering::Relaxed);
            *manifest = next;
            Ok(())
        })
    }

    /// Says in the manifest that a salvage has begun that gives something up, before it does.
    ///
    /// # Errors
    /// Those of [`edit`](Self::edit).
    pub fn begin_salvage(&self) -> Result<()> {
        self.repair_copies()?;
        match self.manifest().salvaged {
            true => Ok(()),
            false => self.edit(|manifest| manifest.salvaged = true),
        }
    }

    /// The generations of other partitions that the manifest of this one tells.
    fn others(&self, partition: u32) -> Vec<u64> {
        let others = match partition {
            0 => &self.generations[1..],
            _ => &self.generations[..1],
        };
        let durable = |generation: &AtomicU64| generation.load(Ordering::Relaxed);
        others.iter().map(durable).collect()
    }

    /// Writes down the generations of other partitions, if they are not what the manifest tells.
    ///
    /// # Errors
    /// Those of [`edit`](Self::edit).
    pub fn note_others(&self) -> Result<()> {
        let manifest = self.manifest();
        match manifest.others == self.others(manifest.partition) {
            true => Ok(()),
            false => self.edit(|_| ()),
        }
    }

    /// Does what wants room on the disk; again if there is none and some can be given back to it.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_room<T>(&self, room: Room, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut done = work();
        if is_full(&done) && self.remove_spares() {
            done = work();
        }
        let Room::Reserve { keep } = room else {
            return done;
        };
        if !is_full(&done) {
            return done;
        }
        // Nobody may be quicker to take what is given back.
        self.reserve.set_tight();
        let _alone = self.giving.write();
        let reserve = self.reserve.give();
        // Others, who have ended, may have taken all that is free for a moment.
        done = work();
        let mut given = GIVEN_AT_ONCE;
        while is_full(&done) {
            let left = self.reserve.held().saturating_sub(given);
            if !reserve.shrink(left.max(keep)) {
                break;
            }
            done = work();
            given *= 2;
        }
        done
    }

    /// Sees to it that the reserve holds so many bytes.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and the like.
    pub fn hold(&self, bytes: u64, purpose: Purpose) -> Result<()> {
        if self.reserve.is_held(bytes, purpose) {
            return Ok(());
        }
        self.with_room(Room::Spares, || {
            // Who refills it waits there, for all partitions.
            let _not_given = (purpose != Purpose::Refill).then(|| self.giving.read());
            self.reserve.hold(bytes, purpose)
        })
    }

    /// Whether the disk had no room when something was last to be added to the store, whatever the partition. Sorted
    /// files are neither written nor compacted then.
    pub fn is_tight(&self) -> bool {
        self.reserve.is_tight()
    }

    /// What `work` makes of each partition of the store, which waits for the disk. A disk makes durable together what waits
    /// side by side. On a full one they go one after the other: what one frees, the next one has.
    pub fn each_partition<T: Send, R: Send>(
        &self,
        partitions: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        match self.is_on_disk && !self.is_tight() {
            true => parallel::map_waiting(partitions, work),
            false => partitions.into_iter().map(work).collect(),
        }
    }

    /// The room that is held for a full disk.
    pub fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// Gives the files back that the log could use again; `false` if there are none.
    fn remove_spares(&self) -> bool {
        let spares = std::mem::take(&mut *self.spares.lock());
        let remove = |spare: &u64| self.log.remove_file(&segment::name(*spare));
        spares.iter().map(remove).filter(Result::is_ok).count() > 0
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
            let len = self.log.len_of(&name).unwrap_or(u64::MAX);
            if len <= keep.saturating_sub(kept) {
                kept += len;
                spares.push(number);
            } else if let Err(error) = self.log.remove_file(&name) {
                tracing::warn!(%error, "an old log segment stays");
            }
        }
    }

    /// Removes segments that do not count. One that stays might be taken for a later one of its number.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn remove_segments(&self, numbers: RangeFrom<u64>) -> Result<()> {
        for name in self.log.names()? {
            if segment::number(&name).is_some_and(|number| numbers.contains(&number)) {
                self.log.remove_file(&name)?;
            }
        }
        Ok(())
    }

    /// The file of a segment that no longer counts, under the name of segment `number`, if there is one.
    /// What stands in it is what stood there.
    pub fn take_spare(&self, number: u64) -> Option<PmFile> {
        let mut spares = self.spares.lock();
        let rename = |spare| {
            let mut file = self.log.open_file(&segment::name(spare), true)?;
            file.rename(&segment::name(number))?;
            Ok(file)
        };
        let renamed: Result<PmFile> = rename(spares.pop()?);
        renamed
            .inspect_err(|error| tracing::warn!(%error, "an old log segment is not used again"))
            .ok()
    }
}

/// What may be given back to a full disk for a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Old segments of the log.
    Spares,
    /// These, and what the reserve holds beyond so many bytes.
    Reserve { keep: u64 },
}

impl Room {
    /// All that there is: for what is soon done, and makes room.
    pub const ALL: Self = Self::Reserve { keep: 0 };
}

/// Whether there was no room on the disk.
pub fn is_full<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Error::NoSpace { .. }))
}

impl Catalog for StoreDir {
    fn may_compact(&self) -> bool {
        !self.is_tight() && !self.keeps_files.load(Ordering::Relaxed)
    }

    fn write(&self, write: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _not_given = self.giving.read();
        match self.is_tight() {
            true => Err(Error::NoSpace {
                path: self.spill.path().to_path_buf(),
                needed: PAGE,
                source: Arc::new(io::ErrorKind::StorageFull.into()),
            }),
            false => write(),
        }
    }

    fn edit(&self, added: &[LevelFile], removed: &[u64]) -> Result<()> {
        let stays = |file: &&LevelFile| !removed.contains(&file.number);
        let files = self.manifest().files.iter().filter(stays).count() + added.len();
        if files > FILES_MAX {
            return Err(Error::Limit {
                path: self.manifest_path(),
                what: "files below the table",
                needed: files as u64,
                limit: FILES_MAX as u64,
            });
        }
        if let Some(file) = added.iter().find(|file| file.number >= NUMBERS_MAX) {
            return Err(Error::Limit {
                path: self.manifest_path(),
                what: "numbers of files below the table",
                needed: file.number,
                limit: NUMBERS_MAX - 1,
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
