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
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::manifest;
use super::manifest::{Copies, FILES_MAX, Manifest};
use super::reserve::{Purpose, Reserve, Shares};
use crate::layout::mark::{MARKS, MARKS_LEN};
use crate::layout::{Mark, PAGE};
use crate::lsm::{Catalog, LevelFile};
use crate::pm::{Dir, Entry, Faults, PmFile};
use crate::store::files::segment;
use crate::{Error, Result};

pub const LOCK: &str = "LOCK";
const LOST_AND_FOUND: &str = "lost+found";
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
}

/// How many partitions a store is to have.
#[derive(Debug, Clone, Copy)]
pub struct PartitionCount {
    /// The number that the caller has asked for.
    pub wanted: Option<u32>,
    /// That of a new store, if he has asked for none.
    pub default: u32,
}

impl PartitionCount {
    /// Any; a new store has one.
    pub const ANY: Self = Self {
        wanted: None,
        default: 1,
    };
}

/// The names of what a store is opened with; empty for none.
#[derive(Debug, Clone, Copy)]
pub struct Names<'n> {
    pub merge_operator: &'n str,
    pub partitioner: &'n str,
}

impl Names<'_> {
    /// Whether a store was made with these.
    fn check(self, root: &Dir, manifest: &Manifest) -> Result<()> {
        if manifest.unnamed {
            return Ok(());
        }
        for (option, found, expected) in [
            (
                "merge_operator",
                &manifest.merge_operator,
                self.merge_operator,
            ),
            ("partitioner", &manifest.partitioner, self.partitioner),
        ] {
            if found != expected {
                return Err(Error::OptionMismatch {
                    path: root.join(MANIFEST),
                    option,
                    found: format!("{found:?}"),
                    expected: format!("{expected:?}"),
                });
            }
        }
        Ok(())
    }
}

/// Which directory of a store is opened.
enum Identity {
    /// The store's own.
    First(PartitionCount),
    /// That of the partition of this number; the first one has this manifest.
    Other(Box<Manifest>, u32, Arc<[AtomicU64]>, Arc<Shares>),
}

impl Identity {
    /// Whether a directory is what it should be, which has this manifest if it has one.
    fn check(&self, root: &Dir, found: Option<&Manifest>) -> Result<()> {
        match (self, found) {
            (Self::First(_), Some(found)) if found.partition != 0 => check_first(root, found),
            (
                Self::First(PartitionCount {
                    wanted: Some(wanted),
                    ..
                }),
                Some(found),
            ) if found.complete && found.partitions != *wanted => Err(Error::OptionMismatch {
                path: root.join(MANIFEST),
                option: "partitions",
                found: found.partitions.to_string(),
                expected: wanted.to_string(),
            }),
            (Self::Other(first, ..), None) if first.complete => Err(Error::Missing {
                path: root.path().to_path_buf(),
                advice: "a partition of the store; put it back: no other one has its keys",
            }),
            (Self::Other(first, number, ..), Some(found)) => {
                check_partition(root, (first, *number), found)
            }
            _ => Ok(()),
        }
    }

    /// The store's name, how many partitions it has, and which this is, where there is none yet.
    fn new_identity(&self) -> ([u64; 2], u32, u32) {
        match self {
            Self::First(count) => (rand::random(), count.wanted.unwrap_or(count.default), 0),
            Self::Other(first, number, ..) => {
                let store_id = id_of_partition(first.store_id, *number);
                (store_id, first.partitions, *number)
            }
        }
    }
}

/// Says whether a manifest is that of the first partition of a store, whose directory is the store's.
///
/// # Errors
/// [`Error::Damaged`].
pub fn check_first(root: &Dir, found: &Manifest) -> Result<()> {
    match found.partition {
        0 => Ok(()),
        number => {
            let found =
                format!("partition {number} of the store in the directory above; open that");
            Err(damaged(root.join(MANIFEST), "partition", 12, found))
        }
    }
}

/// The id that the files of a partition have, of that of the store: no partition takes those of another one for its
/// own.
pub fn id_of_partition(store_id: [u64; 2], number: u32) -> [u64; 2] {
    [store_id[0], store_id[1] ^ u64::from(number)]
}

/// The name of the directory of a partition that is not the first one.
pub fn partition_name(number: u32) -> String {
    format!("partition-{number:03}")
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
        let known = inspect(&root)?;
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
            }) => {
                other = broken;
                manifest
            }
            None => {
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
            lock,
        };
        if !store_dir.manifest().complete {
            store_dir.repair_copies()?;
            store_dir.clear()?;
        }
        Ok(store_dir)
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
        !self.is_tight()
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
        let files = self.manifest().files.len() + added.len();
        if files > FILES_MAX {
            return Err(Error::Limit {
                path: self.manifest_path(),
                what: "files below the table",
                needed: files as u64,
                limit: FILES_MAX as u64,
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

/// Keeps the directory of a store from being opened while someone reads its files.
///
/// # Errors
/// [`Error::InUse`], or what the operating system answers.
pub fn lock_shared(root: &Dir) -> Result<Option<PmFile>> {
    if !root.has(LOCK)? {
        // The files have locks of their own.
        return Ok(None);
    }
    let lock = root.open_file(LOCK, false)?;
    lock.lock_shared()?;
    Ok(Some(lock))
}

/// The mark of the index in a directory, if it has one.
///
/// # Errors
/// [`Error::Damaged`], and what the operating system answers.
pub fn mark(root: &Dir) -> Result<Option<Mark>> {
    if !root.has(INDEX)? {
        return Ok(None);
    }
    let mut bytes = vec![0; MARKS_LEN];
    let read = root.open_file(INDEX, false)?.read(&mut bytes, MARKS)?;
    Mark::find(&bytes[..read]).map_err(|found| damaged(root.join(INDEX), "mark", MARKS, found))
}

/// Says whether a directory is that of this partition of the store whose first partition has the manifest `first`.
///
/// # Errors
/// [`Error::Damaged`] if it is another partition, or one of another store.
pub fn check_partition(
    root: &Dir,
    (first, number): (&Manifest, u32),
    found: &Manifest,
) -> Result<()> {
    let store_id = id_of_partition(first.store_id, number);
    let is_it = found.store_id == store_id
        && found.partition == number
        && (!first.complete || found.complete && found.partitions == first.partitions);
    match is_it {
        true => Ok(()),
        false => Err(damaged(
            root.join(MANIFEST),
            "partition",
            12,
            format!(
                "partition {} of {} of store {:x?}, {}; expected partition {number} of {} of \
                 store {:x?}",
                found.partition,
                found.partitions,
                found.store_id,
                if found.complete {
                    "whole"
                } else {
                    "never finished"
                },
                first.partitions,
                store_id
            ),
        )),
    }
}

/// See [`StoreDir::check_index`].
///
/// # Errors
/// As there.
pub fn check_mark(root: &Dir, manifest: &Manifest, next: u64) -> Result<()> {
    let index = |found| Err(damaged(root.join(INDEX), "mark", MARKS, found));
    let Some(mark) = mark(root)? else {
        // That it is not there is said elsewhere.
        return match manifest.marked && root.has(INDEX)? {
            true => index("none, though the manifest knows of one".into()),
            false => Ok(()),
        };
    };
    if mark.store_id != manifest.store_id {
        return index(format!("the index of another store, {:x?}", mark.store_id));
    }
    if mark.sequence < manifest.sequence {
        return index(format!(
            "an older copy of the index, of request {}; the manifest says that it has all up to {}",
            mark.sequence, manifest.sequence
        ));
    }
    if mark.generation > manifest.generation {
        return Err(damaged(
            root.join(MANIFEST),
            "manifest",
            64,
            format!(
                "an older copy, of generation {}; the index has known {}",
                manifest.generation, mark.generation
            ),
        ));
    }
    if mark.sequence >= next {
        return Err(damaged(
            root.join(LOG),
            "log",
            0,
            format!(
                "it ends before request {next}; the index has all up to {}",
                mark.sequence
            ),
        ));
    }
    Ok(())
}

/// Which of the partitions of a store, in their order, are older copies, as far as their manifests tell.
pub fn older_copies(parts: &[(&Dir, &Manifest)]) -> Vec<(usize, Error)> {
    let (_, first) = parts[0];
    if !first.complete {
        return Vec::new();
    }
    let older = |number: usize, known: u64, by: usize| {
        let (root, manifest) = parts[number];
        let is_older = manifest.generation < known;
        is_older.then(|| {
            let found = format!(
                "an older copy, of generation {}; partition {by} has known {known}",
                manifest.generation
            );
            (number, damaged(root.join(MANIFEST), "manifest", 64, found))
        })
    };
    let (firsts, others) = (parts.iter().skip(1), first.others.iter());
    let first = firsts
        .enumerate()
        .find_map(|(nth, (_, other))| older(0, *other.others.first()?, nth + 1));
    let others = others.zip(1..parts.len());
    let others = others.filter_map(|(known, number)| older(number, *known, 0));
    first.into_iter().chain(others).collect()
}

fn damaged(path: PathBuf, what: &'static str, at: u64, found: String) -> Error {
    Error::Damaged {
        path,
        what,
        at,
        found,
    }
}

/// The error for a directory that has no manifest, and never had one.
pub fn no_store(root: &Dir) -> Error {
    Error::Missing {
        path: root.join(MANIFEST),
        advice: "a directory without it is not a store",
    }
}

/// The error for an index that should be at `path`.
pub fn missing_index(path: PathBuf) -> Error {
    Error::Missing {
        path,
        advice: "put it back; the log holds only what was written since its last checkpoint",
    }
}

/// The manifests of the directory, or `None` if there can be a new store.
///
/// # Errors
/// As [`StoreDir::open`].
pub fn inspect(root: &Dir) -> Result<Option<Copies>> {
    let names = root.names()?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if manifest::NAMES.into_iter().any(has) {
        return Manifest::find(root).map(Some);
    }
    if has(INDEX) || has(LOG) || has(SPILL) {
        return Err(Error::Missing {
            path: root.join(MANIFEST),
            advice: "put it back, or run gphash-recover --salvage: without it nothing says which \
                     files of the log and of sst/ count",
        });
    }
    // What `mkfs` leaves in the root of a file system is nobody's.
    let ours = [LOST_AND_FOUND, LOCK, manifest::NEXT_NAME];
    match names.iter().find(|name| !ours.contains(&name.as_str())) {
        Some(name) => Err(Error::ForeignDirectory {
            path: root.path().to_path_buf(),
            found: format!("{name:?} and no {MANIFEST}"),
        }),
        None => Ok(None),
    }
}
