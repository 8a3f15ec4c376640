//! What `gphash-recover` does to a store's directory, without the program that owns it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::checkpoint::close_all;
use super::open::{open_all, partition_dirs};
use super::rebuild;
use super::rebuild::Note;
use super::report::{FileReport, StoreFile, StoreReport, tell};
use crate::engine::DeviceBudget;
use crate::index::repair::recover_with as recover_index;
use crate::lsm::{Catalog, LevelFile, repair};
use crate::pm::{Dir, Faults, MapOptions};
use crate::pool::parallel;
use crate::store::Store;
use crate::store::commit::sorter::Sorter;
use crate::store::files::dir::StoreDir;
use crate::store::files::identity::PartitionCount;
use crate::store::files::manifest;
use crate::store::files::manifest::{Copies, Manifest};
use crate::store::files::{dir, identity, unopened};
use crate::store::inner::StoreInner;
use crate::store::options::StoreOptions;
use crate::store::shared::Shared;
use crate::store::wal::inspect::{Extent, inspect};
use crate::table::recovery::scan::{DAMAGES_MAX, LOST_KEYS_MAX};
use crate::{Engine, Error, Progress, Recovery, Repair, Report, ReportState, Result};

/// Checks every file of the store in the directory `path`, and as far as `repair` allows repairs it and closes
/// it cleanly. The merge operator is not needed: the log holds what became of merges.
///
/// - [`Repair::Recover`] does what an opening does after a crash: it loses nothing. A store of which a file is
///   damaged stays as it is, byte for byte.
/// - [`Repair::Salvage`] keeps what is whole. Items of the index whose records are damaged are
///   dropped, and come back as far as the log has them. A damaged log is used up to the damage, and
///   of damaged sorted files what is whole. A manifest of which no copy is whole is made anew from
///   the other files. So is an index that is missing or cannot be read at all. What was there is
///   kept under another name, with `.damaged` behind it. An index whose journal is missing or
///   damaged is used without it, and the log replayed over it. What an older sorted file has of a
///   lost key, an older value or one that was deleted since, comes to light again. The report
///   counts what is lost and what has reverted, and names the keys that are known.
///
/// With [`Repair::Check`] every file stays as it is, byte for byte, and others may check it at the same time. The
/// report says of each file how it was; files that were repaired are [`Recovered`](ReportState::Recovered). A log that
/// stays, as a full disk had no room for a checkpoint, still is [`NeedsRecovery`](ReportState::NeedsRecovery). It reads
/// all of the index and of the log, one segment in memory at a time. `progress` is called now and then, from any
/// thread.
///
/// # Examples
/// ```
/// use gphash::store::{Repair, Store, StoreOptions, recover};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("names");
/// # let store = Store::open(&path, &StoreOptions::new())?;
/// # store.put(b"ada", b"lovelace")?;
/// # store.close()?;
/// let report = recover(&path, Repair::Recover, &|_| {})?;
/// for file in &report.files {
///     println!("{}: {:?}", file.name, file.state);
/// }
/// assert_eq!((report.items, report.items_lost), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// - [`Error::ForeignDirectory`], also if there is no directory, or nothing in it; [`Error::InUse`].
/// - [`Error::Missing`] without a manifest, and what is wrong with it, unless a salvage can make it anew.
/// - [`Error::Damaged`] for the directory of a partition: a store is recovered as a whole.
/// - Errors of the operating system, also where a file cannot be read: nothing was given up then, and the call can be
///   repeated.
///
/// Damage of the other files is reported, not an error.
pub fn recover(
    path: impl AsRef<Path>,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<StoreReport> {
    recover_with(path.as_ref(), repair, progress, None)
}

/// Gives back room of the store in the directory `path`, as [`Store::compact`] does, without the program that owns it: of
/// its merge operator and its partitioner nothing is asked. The store must not be open.
///
/// # Examples
/// ```
/// use gphash::store::compact;
///
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// # store.close()?;
/// compact(dir.path(), &|_| {})?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of [`Store::open`] and [`Store::compact`], and [`Error::Missing`] if there is no store.
pub fn compact(path: impl AsRef<Path>, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
    let root = Dir::at(path.as_ref().to_path_buf(), None);
    if unopened::inspect(&root)?.is_none() {
        return Err(unopened::no_store(&root));
    }
    let options = StoreOptions {
        any_names: true,
        ..StoreOptions::new()
    };
    let store = Store::open(path, &options)?;
    store.compact(progress)?;
    store.close()
}

/// As [`recover`], with `faults` between the store and the operating system.
pub(in crate::store) fn recover_with(
    path: &Path,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
    faults: Option<Arc<dyn Faults>>,
) -> Result<StoreReport> {
    let started = Instant::now();
    let root = Dir::at(path.to_path_buf(), faults.clone());
    match unopened::inspect(&root) {
        Ok(Some(copies)) => {
            identity::check_first(&root, &copies.manifest)?;
            // One that was salvaged elsewhere as a store of its own says that it is one.
            identity::check_name(&root)?;
        }
        Ok(None) => {
            identity::check_name(&root)?;
            return Err(unopened::foreign(&root, "nothing of a store"));
        }
        Err(error) if error.is_no_damage() => return Err(error),
        // A salvage may make it anew, for a store.
        Err(_) => identity::check_name(&root)?,
    }
    let notes = match repair {
        Repair::Salvage => {
            let identity = rebuild::Identity {
                partitions: None,
                partition: 0,
                store_id: None,
            };
            rebuild::prepare(&root, &identity, progress)?
        }
        Repair::Check | Repair::Recover => Vec::new(),
    };
    let copies = unopened::inspect(&root)?.ok_or_else(|| unopened::no_store(&root))?;
    let partitions = copies.manifest.partitions;
    let mut parts = vec![StorePart {
        root,
        copies,
        notes,
    }];
    for number in 1..partitions {
        let root = parts[0].root.within(&identity::partition_name(number));
        let first = &parts[0].copies.manifest;
        let identity = rebuild::Identity {
            partitions: Some(partitions),
            partition: number,
            store_id: Some(identity::id_of_partition(first.store_id, number)),
        };
        let notes = match repair {
            Repair::Salvage if first.complete => rebuild::prepare(&root, &identity, progress)?,
            Repair::Salvage | Repair::Check | Repair::Recover => Vec::new(),
        };
        let copies = match unopened::inspect(&root)? {
            Some(copies) => copies,
            // A creation was cut short before.
            None if !first.complete => continue,
            None => return Err(identity::missing_partition(&root)),
        };
        identity::check_partition(&root, (first, number), &copies.manifest)?;
        parts.push(StorePart {
            root,
            copies,
            notes,
        });
    }
    let check_all = || -> Result<StoreReport> {
        let check = |part: &StorePart| check_part(part, progress);
        let mut reports: Vec<StoreReport> = parts.iter().map(check).collect::<Result<_>>()?;
        // An opening lets them pass while a salvage has not ended.
        let older = older_parts(&parts).into_iter();
        let is_due = repair == Repair::Salvage || !is_salvaged(&parts);
        for (number, error) in older.filter(|_| is_due) {
            reports[number].files[0].complain(error);
        }
        Ok(joined(reports, &parts))
    };
    // None is changed before it is known whether another one is damaged.
    let checked = match repair {
        Repair::Check => Some(check_all()?),
        Repair::Recover | Repair::Salvage if partitions > 1 => Some(check_all()?),
        Repair::Recover | Repair::Salvage => None,
    };
    let is_damaged = |checked: &StoreReport| checked.state == ReportState::Damaged;
    let is_damaged = checked.as_ref().is_some_and(is_damaged);
    let report = match (checked, repair) {
        (Some(checked), Repair::Check) => checked,
        (Some(checked), Repair::Recover) if is_damaged => checked,
        _ => {
            let first = StoreDir::open(path, None, PartitionCount::ANY, faults)?;
            let dirs = partition_dirs(first, None)?;
            if is_damaged {
                // Whoever comes after one that is cut short finds less damage, and must decide as this one does.
                dirs[0].begin_salvage()?;
            }
            repair_store(&parts, dirs, repair, progress)?
        }
    };
    Ok(StoreReport {
        elapsed: started.elapsed(),
        ..report
    })
}

/// The directory of a partition, and what was found there.
struct StorePart {
    root: Dir,
    copies: Copies,
    notes: Vec<Note>,
}

/// Whether a salvage has not ended.
fn is_salvaged(parts: &[StorePart]) -> bool {
    parts.iter().any(|part| part.copies.manifest.salvaged)
}

/// Which of them are older copies.
fn older_parts(parts: &[StorePart]) -> Vec<(usize, Error)> {
    let roots = parts.iter().map(|part| &part.root);
    let manifests = parts.iter().map(|part| &part.copies.manifest);
    unopened::older_copies(&roots.zip(manifests).collect::<Vec<_>>())
}

fn check_part(part: &StorePart, progress: &(dyn Fn(Progress) + Sync)) -> Result<StoreReport> {
    let root = &part.root;
    let _lock = unopened::lock_shared(root)?;
    let manifest = &part.copies.manifest;
    let mut files = check_manifest(root, &part.copies);
    let (log, next) = check_log(root, manifest, progress)?;
    files.extend(log);
    files.extend(check_spill(root, manifest, progress)?);
    check_index(root, (manifest, next), files, progress)
}

/// The report of a store, of those of its partitions.
fn joined(reports: Vec<StoreReport>, parts: &[StorePart]) -> StoreReport {
    let home = parts[0].root.path();
    let named = reports.into_iter().zip(parts).map(|(mut report, part)| {
        let within = part.root.path().strip_prefix(home).unwrap_or(home);
        for file in &mut report.files {
            file.name = within.join(&file.name).to_string_lossy().into_owned();
        }
        report
    });
    let joined = named.reduce(|mut all, other| {
        all.items += other.items;
        all.log_records += other.log_records;
        all.files.extend(other.files);
        all.items_lost += other.items_lost;
        all.keys_lost.extend(other.keys_lost);
        all.items_reverted += other.items_reverted;
        all.keys_reverted.extend(other.keys_reverted);
        all.was_repaired &= other.was_repaired;
        all.index = match (all.index, other.index) {
            (Some(index), Some(other)) => Some(add_index(index, &other)),
            _ => None,
        };
        all
    });
    let mut all = joined.expect("a store has a partition");
    let of_index = all.index.as_mut().map(|index| &mut index.recovery);
    let of_index = of_index.map(|recovery| {
        recovery.damage.truncate(DAMAGES_MAX);
        &mut recovery.keys_lost
    });
    for keys in [&mut all.keys_lost, &mut all.keys_reverted]
        .into_iter()
        .chain(of_index)
    {
        keys.sort_unstable();
        keys.truncate(LOST_KEYS_MAX);
    }
    all.judge();
    all
}

/// What two indexes are together.
fn add_index(mut all: Report, other: &Report) -> Report {
    let filled = all.load_factor * all.capacity as f64 + other.load_factor * other.capacity as f64;
    all.state = all.state.max(other.state);
    all.levels = all.levels.max(other.levels);
    all.capacity += other.capacity;
    all.load_factor = filled / all.capacity as f64;
    all.was_repaired |= other.was_repaired;
    let (recovery, other) = (&mut all.recovery, &other.recovery);
    recovery.items += other.items;
    recovery.slots_scanned += other.slots_scanned;
    recovery.slots_cleared += other.slots_cleared;
    recovery.duplicates_removed += other.duplicates_removed;
    recovery.records_reclaimed += other.records_reclaimed;
    recovery.resize_resumed |= other.resize_resumed;
    recovery.clean &= other.clean;
    recovery.damage.extend(other.damage.iter().cloned());
    recovery.items_lost += other.items_lost;
    recovery.keys_lost.extend(other.keys_lost.iter().cloned());
    all
}

/// Checks the manifest. What is wrong with one copy an opening makes good from the other.
fn check_manifest(root: &Dir, copies: &Copies) -> Vec<FileReport> {
    let check = |name| {
        let mut own = FileReport::new(root, &root.join(name), StoreFile::Manifest);
        own.checked = 1;
        if !copies.manifest.complete {
            // A creation was cut short: nothing was ever stored.
            own.state = ReportState::NeedsRecovery;
        }
        if let Some((_, error)) = copies.other.as_ref().filter(|(other, _)| *other == name) {
            if !copies.is_behind {
                own.complain(error);
            }
            own.state = ReportState::NeedsRecovery;
        }
        own
    };
    manifest::NAMES.map(check).into()
}

/// Checks the log; gives the first sequence number that it does not have, too.
fn check_log(
    root: &Dir,
    manifest: &Manifest,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Vec<FileReport>, u64)> {
    if !manifest.complete {
        return Ok((Vec::new(), u64::MAX));
    }
    let log = root.within(dir::LOG);
    let told = |done, total| tell(progress, "log", done, total);
    let (segments, next) = inspect(&log, manifest, Extent::Torn, &|_| true, &told)?;
    let mut errors = segments.iter().filter_map(|found| found.error.as_ref());
    if let Some(error) = errors.find(|error| error.is_no_damage()) {
        return Err(error.clone());
    }
    let segment = |found| FileReport::segment(root, found, ReportState::NeedsRecovery);
    let files = segments.iter().map(segment).collect();
    Ok((files, next.unwrap_or(u64::MAX)))
}

/// Checks the sorted files, in the manifest's order, and then at their levels.
fn check_spill(
    root: &Dir,
    manifest: &Manifest,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<FileReport>> {
    let dir = root.within(dir::SPILL);
    let total = manifest.files.iter().map(|file| file.len).sum();
    let done = AtomicU64::new(0);
    let told = |bytes| {
        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        tell(progress, "sorted files", done, total);
    };
    let checks = repair::Checks::new(&dir, manifest.store_id);
    let check = |file: &LevelFile| {
        match checks.check(file, &told) {
            // A salvage would save nothing of another format.
            Err(error) if error.is_no_damage() => Err(error),
            checked => Ok(FileReport::sst(root, &file.path(&dir), &checked)),
        }
    };
    let files = parallel::map(&manifest.files, check).into_iter();
    let mut files: Vec<FileReport> = files.collect::<Result<_>>()?;
    if let Err(error) = checks.check_levels() {
        let mut levels = FileReport::new(root, dir.path(), StoreFile::Sst);
        levels.complain(error);
        files.push(levels);
    }
    Ok(files)
}

/// Saves what damaged sorted files have; `files` are the reports of all, in the manifest's order. Gives how
/// many entries were lost, as far as anything says so, and keys and sequence numbers of those that are known.
fn repair_spill(
    store_dir: &StoreDir,
    files: &mut [FileReport],
) -> Result<(u64, Vec<repair::LostEntry>)> {
    let manifest = store_dir.manifest();
    let (mut lost, mut lost_keys) = (0, Vec::new());
    for (file, report) in manifest.files.iter().zip(files) {
        if report.state != ReportState::Damaged {
            continue;
        }
        // Whoever comes after a salvage that is cut short must compare the index with the files as this one does.
        store_dir.begin_salvage()?;
        let repaired = repair::repair(store_dir.spill(), file, manifest.store_id)?;
        Catalog::edit(store_dir, repaired.file.as_slice(), &[file.number])?;
        // What a forged file says of itself may be too little.
        lost += repaired
            .lost
            .unwrap_or(0)
            .max(repaired.lost_keys.len() as u64);
        lost_keys.extend(repaired.lost_keys);
        lost_keys.truncate(LOST_KEYS_MAX);
        report.damage.push(match repaired.lost {
            Some(lost) => format!(
                "{lost} of its entries are lost, {} were saved",
                repaired.kept
            ),
            None => format!(
                "{} entries were saved; nothing says how many are lost",
                repaired.kept
            ),
        });
    }
    Ok((lost, lost_keys))
}

/// Checks the index, too.
fn check_index(
    root: &Dir,
    known: (&Manifest, u64),
    mut files: Vec<FileReport>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<StoreReport> {
    let index = match known.0.complete {
        true => index(root, known, Repair::Check, &mut files, progress)?,
        false => None,
    };
    Ok(StoreReport::of_index(files, index))
}

/// Checks the index or repairs it, and puts its report behind those of the manifest.
fn index(
    root: &Dir,
    (manifest, next): (&Manifest, u64),
    repair: Repair,
    files: &mut Vec<FileReport>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Option<Report>> {
    let path = root.join(dir::INDEX);
    let mut file = FileReport::new(root, &path, StoreFile::Index);
    let marked = unopened::check_mark(root, manifest, next);
    let repair = match (&marked, repair) {
        (Err(_), Repair::Recover) => Repair::Check,
        (_, repair) => repair,
    };
    let outcome = match root.has(dir::INDEX)? {
        true => {
            let options = MapOptions {
                faults: root.faults(),
                ..MapOptions::default()
            };
            recover_index(&root.entry(dir::INDEX), repair, progress, &options)
        }
        false => Err(unopened::missing_index(path)),
    };
    let index = match outcome {
        Ok(index) if index.key_size != 0 => {
            file.complain("an index of keys and values of fixed size");
            None
        }
        Ok(index) => {
            file.state = index.state;
            file.checked = index.recovery.items;
            file.damage.clone_from(&index.recovery.damage);
            if let Err(error) = marked {
                if error.is_refusal() {
                    return Err(error);
                }
                file.complain(error);
            }
            Some(index)
        }
        Err(error) if error.is_no_damage() || matches!(error, Error::InUse { .. }) => {
            return Err(error);
        }
        Err(error) => {
            file.complain(error);
            None
        }
    };
    files.insert(manifest::NAMES.len(), file);
    Ok(index)
}

/// Puts what was rebuilt into the reports of the files that it was.
fn add_notes(root: &Dir, notes: &[Note], files: &mut Vec<FileReport>) {
    for Note { kind, text } in notes {
        let is_it = |file: &&mut FileReport| file.kind == *kind;
        match files.iter_mut().find(is_it) {
            Some(file) => file.complain(text),
            None => {
                let mut file = FileReport::new(root, root.path(), *kind);
                file.complain(text);
                files.push(file);
            }
        }
    }
}

/// What was done to the files of a partition before its log is replayed.
struct RepairedFiles {
    files: Vec<FileReport>,
    index: Option<Report>,
    entries_lost: u64,
    entry_keys_lost: Vec<repair::LostEntry>,
    /// The partition can be opened.
    is_whole: bool,
}

/// Repairs the files of a partition whose directory is open.
fn repair_files(
    StorePart {
        root,
        copies,
        notes,
    }: &StorePart,
    store_dir: &StoreDir,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<RepairedFiles> {
    let manifest = store_dir.manifest();
    let salvage = repair == Repair::Salvage;
    let mut files = check_manifest(root, copies);
    let (log, next) = check_log(root, &manifest, progress)?;
    files.extend(log);
    let mut spilled = check_spill(root, &manifest, progress)?;
    let is_damaged = |file: &FileReport| file.state == ReportState::Damaged;
    let stays = |mut files: Vec<FileReport>, spilled, index| {
        files.extend::<Vec<FileReport>>(spilled);
        RepairedFiles {
            files,
            index,
            entries_lost: 0,
            entry_keys_lost: Vec::new(),
            is_whole: false,
        }
    };
    if !salvage && files.iter().chain(&spilled).any(is_damaged) {
        let checked = match manifest.complete {
            true => index(root, (&manifest, next), Repair::Check, &mut files, progress)?,
            false => None,
        };
        return Ok(stays(files, spilled, checked));
    }
    let mut repaired = None;
    if manifest.complete {
        repaired = index(root, (&manifest, next), repair, &mut files, progress)?;
        if repaired.is_none() || !salvage && files.iter().any(is_damaged) {
            return Ok(stays(files, spilled, repaired));
        }
    }
    store_dir.repair_copies()?;
    let (entries_lost, entry_keys_lost) = repair_spill(store_dir, &mut spilled)?;
    files.extend(spilled);
    add_notes(root, notes, &mut files);
    Ok(RepairedFiles {
        files,
        index: repaired,
        entries_lost,
        entry_keys_lost,
        is_whole: true,
    })
}

/// Repairs a store, the directories of whose partitions are open.
fn repair_store(
    parts: &[StorePart],
    dirs: Vec<Arc<StoreDir>>,
    repair: Repair,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<StoreReport> {
    let salvage = repair == Repair::Salvage;
    let repaired = parts.iter().zip(&dirs);
    let repaired = repaired.map(|(part, dir)| repair_files(part, dir, repair, progress));
    let mut repaired: Vec<RepairedFiles> = repaired.collect::<Result<_>>()?;
    for (number, error) in older_parts(parts) {
        repaired[number].files[0].complain(error);
    }
    if repaired.iter().any(|files| !files.is_whole) {
        let report = |files: RepairedFiles| StoreReport::of_index(files.files, files.index);
        return Ok(joined(repaired.into_iter().map(report).collect(), parts));
    }
    let mut options = StoreOptions::new().salvage(salvage);
    if let Some(faults) = parts[0].root.faults() {
        options = options.faults(faults);
    }
    let is_damaged = |file: &FileReport| file.state == ReportState::Damaged;
    // Of a store of which nothing is damaged a salvage makes what an opening does.
    options.takes_older = salvage
        && (repaired
            .iter()
            .flat_map(|files| &files.files)
            .any(is_damaged)
            || dirs.iter().any(|dir| dir.manifest().salvaged));
    let told = |done, total| tell(progress, "log", done, total);
    let indexes = || repaired.iter().filter_map(|files| files.index.as_ref());
    let of_entries = repaired.iter().flat_map(|files| &files.entry_keys_lost);
    let dropped: HashSet<&[u8]> = indexes()
        .flat_map(|index| &index.recovery.keys_lost)
        .chain(of_entries.map(|(key, _)| key))
        .map(Vec::as_slice)
        .collect();
    let in_log = Mutex::new(HashSet::new());
    let seen = |key: &[u8]| {
        if let Some(key) = dropped.get(key) {
            in_log.lock().insert(*key);
        }
    };
    let budget = DeviceBudget::new(None);
    let sorter = Sorter::new(Engine::Cpu, &budget)?;
    let shared = Shared::new(dirs.len(), &options, (sorter, budget));
    let states = open_all(dirs, shared, &options, (&told, &seen))?;
    let in_log = in_log.into_inner();
    let mut reports = Vec::with_capacity(states.len());
    for (state, files) in states.iter().zip(&repaired) {
        reports.push(report_of(state, files, &in_log));
    }
    let is_closed = close_all(states)?;
    // A log that stays is for the next opening to replay.
    let stays = |file: &FileReport| !is_closed && file.kind == StoreFile::Log;
    for file in reports.iter_mut().flat_map(|report| &mut report.files) {
        if file.state == ReportState::NeedsRecovery && !stays(file) {
            file.state = ReportState::Recovered;
        }
    }
    Ok(joined(reports, parts))
}

/// What has become of a partition, of whose dropped items the log has had these.
fn report_of(state: &StoreInner, repaired: &RepairedFiles, in_log: &HashSet<&[u8]>) -> StoreReport {
    let mut report = StoreReport::new(repaired.files.clone());
    report.items_lost = repaired.entries_lost;
    let recovery = repaired.index.as_ref().map(|index| &index.recovery);
    report.items_lost += recovery.map_or(0, |recovery| recovery.items_lost);
    let version = state.tiers.spill.version();
    let is_superseded = |key: &[u8], sequence: u64| {
        let in_files = version.find(key).ok().flatten();
        state.tiers.has_newer(key, sequence, 0)
            || in_files.is_some_and(|(newest, _)| newest > sequence)
    };
    let of_index = recovery.into_iter().flat_map(|found| &found.keys_lost);
    let mut keys: Vec<&[u8]> = of_index.map(Vec::as_slice).collect();
    let mut known: HashSet<&[u8]> = keys.iter().copied().collect();
    for (key, sequence) in &repaired.entry_keys_lost {
        // Of a key that has something newer nothing is lost.
        match is_superseded(key, *sequence) || !known.insert(key) {
            true => report.items_lost -= 1,
            false => keys.push(key),
        }
    }
    for key in keys {
        // What the log has of a key is the last that was done to it.
        if in_log.contains(key) {
            report.items_lost -= 1;
        } else if state.tiers.get(key).is_ok_and(|value| value.is_some()) {
            report.items_lost -= 1;
            report.items_reverted += 1;
            report.keys_reverted.push(key.to_vec());
        } else {
            report.keys_lost.push(key.to_vec());
        }
    }
    let stats = state.tiers.table.stats();
    report.items = state.tiers.keys();
    report.log_records = state.replayed_records;
    report.was_repaired = true;
    report.index = repaired.index.clone().map(|index| Report {
        capacity: stats.slots,
        load_factor: stats.load_factor,
        levels: stats.levels,
        recovery: Recovery {
            items: stats.items,
            ..index.recovery
        },
        ..index
    });
    report
}
