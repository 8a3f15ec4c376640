//! Opening a store: its directory, its index, and what the log holds beyond it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;
use parking_lot::Mutex;

use crate::engine::DeviceBudget;
use crate::index::bytes::BytesIndex;
use crate::lsm::{Catalog, LsmVersion, Spill};
use crate::pool::changed::Changed;
use crate::pool::parallel;
use crate::pool::threads::Threads;
use crate::pool::worker::Worker;
use crate::store::commit::group::SHORT_GROUPS;
use crate::store::commit::sorter::Sorter;
use crate::store::files::dir::{INDEX_JOURNAL, Room, StoreDir, is_full};
use crate::store::files::identity::Names;
use crate::store::files::manifest::Manifest;
use crate::store::files::reserve;
use crate::store::files::reserve::Purpose;
use crate::store::files::unopened::older_copies;
use crate::store::inner::{Applying, StoreInner};
use crate::store::lifecycle::eviction::Eviction;
use crate::store::lifecycle::groups::{decide, takes_older};
use crate::store::mvcc::published::Published;
use crate::store::mvcc::spill_file::VersionSpill;
use crate::store::options::{Durability, StoreOptions};
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::TieredItems;
use crate::store::shared::Shared;
use crate::store::wal::Log;
use crate::store::wal::record::Entry;
use crate::store::wal::replay::{CHANGES_PER_THREAD, Replay};
use crate::table::item::Mutation;
use crate::table::room::Need;
use crate::{Domain, Result};

/// Changes that are made at a time on a full disk.
const SMALL_PART: usize = 64;

/// Bytes of logs that are worth threads of their own.
const SHARED_REPLAY_BYTES_MIN: u64 = 8 << 20;

/// Opens the store at `path`, or makes it; gives the state of each partition.
pub fn open(path: &Path, options: &StoreOptions) -> Result<Vec<StoreInner>> {
    options.check()?;
    // Before anything is made.
    let budget = DeviceBudget::new(options.device_memory_budget);
    let sorter = Sorter::new(options.engine, &budget)?;
    let names = options.names_to_check();
    let faults = options.faults.clone();
    let first = StoreDir::open(path, names, options.partition_count(), faults)?;
    let dirs = partition_dirs(first, names)?;
    let shared = Shared::new(dirs.len(), options, (sorter, budget));
    let told = |done, all| {
        if let Some(on_replay) = &options.on_replay {
            on_replay(done, all);
        }
    };
    open_all(dirs, shared, options, (&told, &|_| ()))
}

/// The directories of all partitions of the store whose first partition is in `first`.
pub fn partition_dirs(first: StoreDir, names: Option<Names>) -> Result<Vec<Arc<StoreDir>>> {
    let partitions = first.manifest().partitions;
    let open = |number| first.open_partition(number, names);
    let others = first.each_partition(1..partitions, open).into_iter();
    let others: Vec<StoreDir> = others.collect::<Result<_>>()?;
    Ok([first].into_iter().chain(others).map(Arc::new).collect())
}

/// Hears how many bytes of the log were read, and of how many.
type Progress<'p> = &'p (dyn Fn(u64, u64) + Sync + 'p);

/// Hears of a key that the log has.
type Seen<'p> = &'p (dyn Fn(&[u8]) + Sync + 'p);

/// Replays what the log has beyond the index.
struct Replayer<'o> {
    store_dir: &'o StoreDir,
    tiers: &'o TieredItems,
    replay: &'o Replay,
    /// How items leave the table, if it has a budget.
    eviction: Option<Eviction<'o>>,
    /// The log may be older than the index, which was put back from another time, or was cut.
    may_be_older: bool,
    /// The index has all requests up to this one, whatever a log has that was cut.
    reached: u64,
    progress: Progress<'o>,
    seen: Seen<'o>,
}

impl Replayer<'_> {
    fn replay(&self) -> Result<()> {
        if self.replay.records == 0 {
            return Ok(());
        }
        let wanted = self.tiers.to_keep_free(&Need::default(), 0);
        let held = self.tiers.hold(self.store_dir, wanted, Purpose::Deletion);
        let done = held.and_then(|()| {
            self.replay.run(
                self.store_dir,
                self.progress,
                || {
                    self.keep_within_budget();
                    self.tiers.spill.version()
                },
                |version, entry, sequence| self.change(version, (entry, sequence), false),
                |changes| self.apply_parts(changes),
            )
        });
        if done.is_ok() {
            self.keep_within_budget();
        }
        if is_full(&done) {
            // Others may have it until this one's turn comes again.
            self.tiers.table.trim();
        }
        self.cut_reserve();
        done
    }

    /// Gives back what was held for parts of the log.
    fn cut_reserve(&self) {
        let wanted = self.tiers.to_keep_free(&Need::default(), 0);
        self.store_dir.reserve().cut(wanted);
    }

    /// Lets items leave the table, as they would have left it. The files that they leave for are not those by which
    /// changes were made of entries, so nothing of these may be left to apply.
    fn keep_within_budget(&self) {
        let Some(eviction) = &self.eviction else {
            return;
        };
        let remove = |leaving| self.apply(&self.tiers.removals(&leaving)?);
        if let Err(error) = eviction.make_room(false, || (), remove) {
            tracing::warn!(%error, "the index goes beyond its budget");
        }
        self.tiers.note_leaving(Need::default());
    }

    fn change<'e>(
        &self,
        version: &LsmVersion,
        (entry, sequence): (Entry<'e>, u64),
        precisely: bool,
    ) -> Option<Mutation<'e>> {
        let is_there = self.may_be_older && self.tiers.has_newer(entry.key, sequence, self.reached);
        (!is_there).then(|| {
            (self.seen)(entry.key);
            self.tiers
                .change(version, &entry, sequence, (false, precisely))
        })
    }

    /// [`apply`](Self::apply), of parts that may be too short by themselves for several threads.
    fn apply_parts(&self, parts: &[Vec<Mutation>]) -> Result<()> {
        if parallel::threads() == 1 {
            return parts.iter().try_for_each(|part| self.apply(part));
        }
        self.apply(&parts.concat())
    }

    /// Makes changes, on several threads if they are many.
    fn apply(&self, changes: &[Mutation]) -> Result<()> {
        let together = CHANGES_PER_THREAD * parallel::threads();
        changes.chunks(together).try_for_each(|part| {
            let applied = self.apply_together(part);
            match is_full(&applied) {
                // Fewer need less room.
                true if part.len() > CHANGES_PER_THREAD => part
                    .chunks(CHANGES_PER_THREAD)
                    .try_for_each(|part| self.apply_together(part)),
                _ => applied,
            }
        })
    }

    fn apply_together(&self, changes: &[Mutation]) -> Result<()> {
        let (journal, _) = self.tiers.table.room_for(&self.tiers.need_of(changes));
        let keep = journal + reserve::ROOM_AFTER_DELETION_BYTES;
        self.tiers.hold(self.store_dir, keep, Purpose::Deletion)?;
        self.tiers.table.apply(changes).map(|_| ())
    }

    /// Makes the last change of each key alone, and deletions first: so nothing needs room that was gone
    /// again later. Checkpoints in between keep the journal short; the log stays.
    fn replay_on_full_disk(&self) -> Result<()> {
        tracing::warn!("the disk is full; the log is replayed a little at a time");
        self.store_dir.reserve().set_tight();
        self.store_dir.retire_old_segments(0);
        self.tiers.table.trim();
        let last = Mutex::new(HashMap::<Vec<u8>, u64>::new());
        let note = |key: &[u8], sequence: u64| {
            let mut last = last.lock();
            match last.get_mut(key) {
                Some(noted) => *noted = sequence.max(*noted),
                None => drop(last.insert(key.to_vec(), sequence)),
            }
        };
        self.replay.run(
            self.store_dir,
            &|_, _| (),
            || (),
            |(), entry, sequence| {
                note(entry.key, sequence);
                None
            },
            |_| Ok(()),
        )?;
        let last = last.into_inner();
        for are_deleted in [true, false] {
            self.replay.run(
                self.store_dir,
                self.progress,
                || self.tiers.spill.version(),
                |version, entry, sequence| {
                    let is_due = entry.value.is_none() == are_deleted
                        && last.get(entry.key) == Some(&sequence);
                    let change = || self.change(version, (entry, sequence), true);
                    is_due.then(change).flatten()
                },
                |changes| {
                    let mut parts = changes.iter().flat_map(|part| part.chunks(SMALL_PART));
                    parts.try_for_each(|part| self.apply_on_full_disk(part))
                },
            )?;
        }
        Ok(())
    }

    fn apply_on_full_disk(&self, changes: &[Mutation]) -> Result<()> {
        let table = &self.tiers.table;
        let need = self.tiers.need_of(changes);
        let room_for = |need| {
            let (journal, growth) = table.room_for(need);
            journal + growth + reserve::ROOM_AFTER_DELETION_BYTES
        };
        let held = self
            .tiers
            .hold(self.store_dir, room_for(&need), Purpose::Deletion);
        if is_full(&held) {
            let synced = self.store_dir.with_room(Room::ALL, || table.sync());
            if !is_full(&synced) {
                synced?;
            }
        } else {
            held?;
        }
        let keep = table.room_for(&Need::default()).0 + reserve::ROOM_AFTER_GROWTH_BYTES;
        self.store_dir.with_room(Room::Reserve { keep }, || {
            let applied = table.apply(changes);
            if !is_full(&applied) {
                return applied.map(|_| ());
            }
            table.trim();
            table.apply(changes).map(|_| ())
        })
    }
}

/// Opens the store whose partitions are in these directories; `progress` gets the bytes of the logs that were read,
/// and all bytes, and `seen` each key that a log has.
pub fn open_all(
    dirs: Vec<Arc<StoreDir>>,
    shared: Shared,
    options: &StoreOptions,
    (progress, seen): (Progress, Seen),
) -> Result<Vec<StoreInner>> {
    let manifests: Vec<Manifest> = dirs.iter().map(|dir| dir.manifest()).collect();
    let inspect = |nth: usize| match manifests[nth].complete {
        // A memory budget has no room for what several logs keep, and after damage one is replayed after the other.
        true => {
            let keeps = options.memory_budget.is_none() && !options.salvage;
            Replay::inspect(&dirs[nth], options.salvage, keeps)
        }
        false => Ok(Replay::empty()),
    };
    let logs = parallel::collect(dirs.len(), 1, inspect).into_iter();
    let mut logs: Vec<Replay> = logs.collect::<Result<_>>()?;
    let parts = dirs.iter().map(|dir| dir.root()).zip(&manifests);
    for (_, error) in older_copies(&parts.collect::<Vec<_>>()) {
        if !takes_older(&manifests, options) {
            return Err(error);
        }
        tracing::warn!(%error, "parts of the store do not belong together");
    }
    decide(&mut logs, &manifests, options)?;
    for ((dir, manifest), log) in dirs.iter().zip(&manifests).zip(&logs) {
        check_index(dir, manifest, log, options)?;
    }
    // From here on files may change. What one partition makes durable in its index may be part of a group of which
    // others have the rest in their logs.
    dirs.iter().try_for_each(|dir| dir.repair_copies())?;
    let all = logs.iter().map(Replay::len).sum::<u64>();
    let are_long = all >= SHARED_REPLAY_BYTES_MIN;
    let parts = dirs.iter().zip(&logs);
    let make_durable = |(dir, log): (&Arc<StoreDir>, &Replay)| log.make_durable(dir);
    let durable = match are_long {
        true => parallel::map_on_threads(parts, make_durable),
        false => dirs[0].each_partition(parts, make_durable),
    };
    durable.into_iter().collect::<Result<()>>()?;
    let gives_up = takes_older(&manifests, options) || logs.iter().any(|log| log.is_cut);
    if gives_up && dirs.len() > 1 {
        // Whoever comes after a salvage that is cut short decides as it does.
        dirs[0].begin_salvage()?;
    }
    let shared = Arc::new(shared);
    let mut options = options.of_partition(manifests[0].partitions);
    options.takes_older = gives_up;
    let read = Mutex::new(vec![0; dirs.len()]);
    let tell = |number: usize, done| {
        let mut read = read.lock();
        read[number] = done;
        progress(read.iter().sum(), all);
    };
    let replay = |(number, (dir, log))| {
        let told = |done, _| tell(number, done);
        Replayed::open(dir, log, (&shared, number), &options, (&told, seen))
    };
    let finish = |replayed: Result<Replayed>| {
        let replayed = replayed?;
        let number = replayed.number;
        let told = |done, _| tell(number, done);
        replayed.finish(&shared, &options, (&told, seen))
    };
    // The first one last: once its log is gone, nothing decides for the others any more, and once its directory is
    // complete, so is the store.
    let first_dir = Arc::clone(&dirs[0]);
    let mut parts = dirs.into_iter().zip(logs).enumerate().rev();
    // Side by side if that saves time. A memory budget has no room for segments of several logs, and what a salvage gives
    // up is gone before the next log needs room.
    let is_shared = are_long && !gives_up && options.memory_budget.is_none();
    let mut states = Vec::with_capacity(manifests.len());
    if !manifests[0].complete {
        let others = parts.by_ref().take(manifests.len() - 1);
        let made = first_dir.each_partition(others, |part| finish(replay(part)));
        states = made.into_iter().collect::<Result<_>>()?;
    }
    let replayed: Box<dyn Iterator<Item = Result<Replayed>>> = match is_shared {
        true => Box::new(parallel::map_on_threads(parts, replay).into_iter()),
        false => Box::new(parts.map(replay)),
    };
    for replayed in replayed {
        states.push(finish(replayed)?);
    }
    states.reverse();
    let logs = states.iter().map(|state| Arc::clone(&state.log)).collect();
    // Nobody has opened them before.
    let _ = shared.logs.set(logs);
    Ok(states)
}

/// Says whether index and log of a partition belong together.
fn check_index(
    store_dir: &StoreDir,
    manifest: &Manifest,
    log: &Replay,
    options: &StoreOptions,
) -> Result<()> {
    store_dir.index()?;
    if !manifest.complete {
        return Ok(());
    }
    // A log that was cut may end before what the index has.
    let next = if log.is_cut { u64::MAX } else { log.next };
    match store_dir.check_index(next) {
        Err(error) if options.takes_older && !error.is_refusal() => {
            tracing::warn!(%error, "parts of the store do not belong together");
            Ok(())
        }
        checked => checked,
    }
}

/// A partition whose index has what its log has, unless the disk was full.
struct Replayed {
    number: usize,
    store_dir: Arc<StoreDir>,
    manifest: Manifest,
    replay: Replay,
    tiers: TieredItems,
    budget: Option<Budget>,
    /// The index has all requests up to this one, whatever the log has.
    reached: u64,
    /// Its index was cleanly closed.
    was_clean: bool,
    /// Disk space that was held for it, and its journal.
    found: u64,
    /// The disk had no room in the middle of the replay.
    is_full: bool,
}

impl Replayed {
    /// Opens a partition, whose log is durable, and brings what that has into the index.
    fn open(
        store_dir: Arc<StoreDir>,
        replay: Replay,
        (shared, number): (&Arc<Shared>, usize),
        options: &StoreOptions,
        hears: (Progress, Seen),
    ) -> Result<Self> {
        let manifest = store_dir.manifest();
        // A journal that is not whole goes, and a replay may want the same again.
        let journal = store_dir.root().len_of(INDEX_JOURNAL).unwrap_or(0);
        let found = store_dir.reserve().held() + journal;
        let index = store_dir.index()?;
        let (table, recovery) = BytesIndex::open_or_create(&index, &options.index)?;
        // A tombstone that is compacted away could not tell any more that an item is older.
        store_dir.keep_files(options.takes_older);
        let catalog: Arc<dyn Catalog> = Arc::clone(&store_dir) as _;
        let spill = Spill::open(
            store_dir.spill().clone(),
            &manifest.files,
            catalog,
            options.spill(&manifest, shared),
        )?;
        let keeper = Worker::new("gphash-store-table");
        let tiers = TieredItems::new(table, spill, options.table_budget(), keeper.clone());
        let demands = shared.demands.as_ref();
        let budget = demands.map(|demands| Budget::new(Arc::clone(demands), number, keeper));
        let reached = match store_dir.marked() {
            // What the log has no longer, index and files may have; no number is given twice.
            Ok(Some(mark)) if replay.is_cut || options.takes_older => mark.sequence,
            _ => 0,
        };
        let mut replayed = Self {
            number,
            store_dir,
            manifest,
            replay,
            tiers,
            budget,
            reached,
            was_clean: recovery.clean,
            found,
            is_full: false,
        };
        let done = replayed.replayer(shared, options, hears).replay();
        replayed.is_full = is_full(&done);
        if replayed.is_full {
            return Ok(replayed);
        }
        replayed.replay.forget();
        done.map(|()| replayed)
    }

    fn replayer<'r>(
        &'r self,
        shared: &'r Shared,
        options: &StoreOptions,
        (progress, seen): (Progress<'r>, Seen<'r>),
    ) -> Replayer<'r> {
        // What such a log has may be older than what the table has, which is what tells.
        let may_be_older = self.replay.is_cut || options.takes_older;
        let evicting = self.budget.as_ref().filter(|_| !may_be_older);
        Replayer {
            store_dir: &self.store_dir,
            tiers: &self.tiers,
            replay: &self.replay,
            eviction: evicting.map(|budget| Eviction {
                tiers: &self.tiers,
                budget,
                store_dir: &self.store_dir,
                shared,
            }),
            may_be_older,
            // Items that are damaged come back from a log that is whole.
            reached: if self.replay.is_cut { self.reached } else { 0 },
            progress,
            seen,
        }
    }

    /// Makes what was replayed the state of the partition, and the log go on behind it.
    fn finish(
        self,
        shared: &Arc<Shared>,
        options: &StoreOptions,
        hears: (Progress, Seen),
    ) -> Result<StoreInner> {
        let replayer = self.replayer(shared, options, hears);
        if self.is_full {
            let replayed = replayer.replay_on_full_disk();
            replayer.cut_reserve();
            replayed?;
        }
        if options.takes_older {
            // Before the table counts as it is.
            let older = self.tiers.older_than_files()?;
            let deletions = older.iter().map(|key| Mutation::Delete { key });
            let deletions: Vec<Mutation> = deletions.collect();
            let mut applied = replayer.apply(&deletions);
            if is_full(&applied) {
                let mut parts = deletions.chunks(SMALL_PART);
                applied = parts.try_for_each(|part| replayer.apply_on_full_disk(part));
            }
            applied?;
            self.store_dir.keep_files(false);
        }
        let Self {
            number,
            store_dir,
            manifest,
            mut replay,
            tiers,
            budget,
            reached,
            was_clean,
            found,
            is_full: _,
        } = self;
        let version = tiers.spill.version();
        if replay.is_cut || options.takes_older {
            replay.next = replay
                .next
                .max(reached + 1)
                .max(version.newest_sequence() + 1);
        }
        let log = Arc::new(log_after(&store_dir, &manifest, &tiers, &replay, options)?);
        store_dir.retire_old_segments(0);
        if tiers.table.len() > 0 || !version.is_empty() {
            let wanted = tiers.to_keep_free(&Need::default(), 0);
            store_dir.reserve().need(wanted.min(found + replay.len()));
        }
        let domain = tiers.table.stats().domain;
        let state = StoreInner {
            tiers,
            version_spill: options
                .memory_budget
                .map(|bytes| VersionSpill::new(store_dir.root().clone(), bytes)),
            budget,
            log,
            store_dir,
            operator: options.merge_operator.clone(),
            threads: Threads::new(options.index.threads, &options.affinity),
            shared: Arc::clone(shared),
            // What is durable in the index must be so in the log.
            durably: options.durability == Durability::Always || domain == Domain::Dax,
            published: Published::new(Arc::clone(&shared.clock), number).into(),
            old_versions: ShardedLock::default(),
            evicting: Mutex::default(),
            applying: CachePadded::new(Mutex::new(Applying {
                changed: Changed::new(options.table_budget()),
                is_evicting: false,
            })),
            finished: AtomicU64::new(0).into(),
            was_full: AtomicBool::new(false),
            is_unsaved: AtomicBool::new(false),
            has_old_versions: AtomicBool::new(false),
            has_many_old_versions: AtomicBool::new(false),
            newest_kept: AtomicU64::new(0),
            swept_for: Mutex::default(),
            freed_bytes: AtomicU64::new(0),
            // The mark of an index that was put back from another time is not what the manifest says.
            has_changed: AtomicBool::new(!was_clean || replay.records > 0 || options.takes_older),
            broken: OnceLock::new(),
            begun: Mutex::new(None),
            steps: CachePadded::default(),
            short_groups: AtomicU32::new(SHORT_GROUPS / 2).into(),
            replayed_records: replay.records,
        };
        Ok(state)
    }
}

/// The log behind what was replayed. Where the store is new, or the log was cut, the index takes the place of the
/// log before, durably.
fn log_after(
    store_dir: &Arc<StoreDir>,
    manifest: &Manifest,
    tiers: &TieredItems,
    replay: &Replay,
    options: &StoreOptions,
) -> Result<Log> {
    let (last, bytes) = match manifest.complete {
        // A gap, so that nobody finds the next segment, which may begin before what stands behind the end, until the
        // manifest names it.
        true if replay.has_tail => (replay.last + 1, 0),
        true if replay.is_cut => (replay.last, 0),
        true => (replay.last, replay.bytes),
        false => (manifest.last_segment - 1, 0),
    };
    store_dir.remove_segments(replay.last.min(last) + 1..)?;
    let log = Log::after(
        Arc::clone(store_dir),
        last,
        replay.next,
        bytes,
        (options.segment_bytes, options.unsynced_bytes_max()),
    );
    // Else nothing is written: the disk may be full, and to make the index durable takes longer than to
    // replay the log, which may as well be replayed again. The next checkpoint takes its place.
    if !manifest.complete || replay.is_cut || replay.has_tail {
        let sequence = Some(replay.next - 1);
        tiers.mark(store_dir, sequence);
        store_dir.with_room(Room::ALL, || tiers.table.sync())?;
        log.begin_segment(|manifest| {
            manifest.complete = true;
            manifest.marked = true;
            manifest.salvaged = false;
            manifest.first_segment = manifest.last_segment;
            manifest.sequence = replay.next - 1;
        })?;
    }
    Ok(log)
}
