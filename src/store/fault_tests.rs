//! A file system that fails under the recovery of a store: each call to the operating system is refused in
//! turn, alone or with all that follow. The answer is an error or a right report, a check changes nothing,
//! nothing that can be saved is given up, and the next recovery succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::tests::seed;
use super::{
    Durability, FileReport, Repair, Store, StoreFile, StoreOptions, StoreReport, WriteBatch,
};
use crate::index::fault_tests::faults::{Failing, TestDir};
use crate::pm::{Call, Dir, Faults, sim_disk};
use crate::store::files::dir::Room;
use crate::store::lifecycle::recover::recover_with;
use crate::store::wal::record::{Entry, GroupPart};
use crate::{Error, ReportState, Result};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What files hold, by their paths in the store's directory.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// All files of a directory.
fn files(root: &Path) -> io::Result<Files> {
    let mut found = Files::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    let name = path.strip_prefix(root).expect("it is in there");
                    found.insert(name.to_path_buf(), fs::read(&path)?);
                }
            }
        }
    }
    Ok(found)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Puts files in a directory instead of those there.
fn lay(files: &Files, root: &Path) {
    let _ = fs::remove_dir_all(root);
    for (name, contents) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        sim_disk::write(&path, contents).unwrap();
    }
}

/// Values of so many bytes that the budget has no room for twenty batches of them.
fn write(store: &Store, model: &mut Model, nth: u8) {
    let mut batch = WriteBatch::new();
    for key in 0..4 {
        let value = vec![nth; 2500];
        batch.put([key, nth], value.clone());
        model.insert(vec![key, nth], value);
    }
    batch.delete([3, nth / 2]);
    model.remove(&vec![3, nth / 2]);
    store.write(batch).unwrap();
}

/// What the death of the process leaves of a store with sorted files, segments of log, and in
/// `Checkpointed` the journal of a checkpoint that did not come home; and what the store held.
fn killed(test_dir: &TestDir) -> (Files, Model) {
    let path = test_dir.dir.path().join("store");
    let faults = Failing::only(
        |call, path| call == Call::Write && path.ends_with("index.gph"),
        libc::EIO,
    );
    let options = super::tests::options()
        .capacity(1)
        .domain(test_dir.domain)
        .durability(Durability::Always)
        .segment_bytes(24 << 10)
        .checkpoint_bytes(u64::MAX)
        .memory_budget(StoreOptions::MIN_BUDGET)
        .faults(faults.clone());
    let store = Store::open(&path, &options).unwrap();
    let mut model = Model::new();
    for nth in 1..36 {
        write(&store, &mut model, nth);
        store.core().keep_within_budget().unwrap();
        if nth == 30 {
            store.checkpoint().unwrap();
        }
    }
    faults.cure(false);
    let is_saved = store.checkpoint().is_ok();
    assert_eq!(is_saved, test_dir.domain == crate::Domain::Shared);
    for nth in 36..42 {
        write(&store, &mut model, nth);
    }
    let state = store.state();
    let ssts = || -> BTreeSet<PathBuf> {
        let version = state.tiers.spill.version();
        let names = version.files().map(|(_, sst)| sst.path());
        names.collect()
    };
    // The compaction may still be at work, or have left files that it has not removed yet.
    let left = loop {
        let expected = ssts();
        if let (Ok(first), Ok(second)) = (files(&path), files(&path))
            && first == second
            && ssts() == expected
            && first
                .keys()
                .filter(|name| has_extension(name, "sst"))
                .map(|name| path.join(name))
                .eq(expected)
        {
            break first;
        }
    };
    let count = |extension| {
        left.keys()
            .filter(|path| has_extension(path, extension))
            .count()
    };
    assert!(count("sst") > 0 && count("log") > 2, "{:?}", left.keys());
    assert_eq!(count("journal") == 0, is_saved);
    (left, model)
}

/// The same with damage in the first sorted file and in the last but one segment of the log.
fn damaged(left: &Files) -> Files {
    let mut left = left.clone();
    let mut flip = |dir: &str, from_end: usize, at: usize| {
        let mut names: Vec<_> = left.keys().filter(|name| name.starts_with(dir)).collect();
        let name = names
            .remove(if from_end == 0 {
                0
            } else {
                names.len() - from_end
            })
            .clone();
        left.get_mut(&name).unwrap()[at] ^= 1;
    };
    flip("sst", 0, 80);
    flip("wal", 2, 64 + 48 + 100);
    left
}

/// What a report says of the store and of each file.
fn summary(report: &StoreReport) -> impl PartialEq + std::fmt::Debug + use<> {
    let file = |file: &FileReport| (file.name.clone(), file.state, file.checked);
    let files: Vec<_> = report.files.iter().map(file).collect();
    (report.state, report.log_records, report.was_repaired, files)
}

/// Whether the next opening replays a log.
fn log_stays(report: &StoreReport) -> bool {
    let stays =
        |file: &FileReport| file.kind == StoreFile::Log && file.state == ReportState::NeedsRecovery;
    report.files.iter().any(stays)
}

fn recover(path: &Path, repair: Repair) -> StoreReport {
    recover_with(path, repair, &|_| {}, None).unwrap()
}

fn contents(path: &Path) -> Model {
    let store = Store::open(path, &StoreOptions::new()).unwrap();
    let found = store.range(..).collect::<Result<_>>().unwrap();
    store.close().unwrap();
    found
}

/// Refuses calls of a recovery of `left`: some, drawn from the seed, or all in turn if
/// `GPHASH_STORE_CALLS` is `all`. `whole` repairs it afterwards; then it must hold `expected`.
fn every_call_fails(
    test_dir: &TestDir,
    left: &Files,
    repair: Repair,
    whole: Repair,
    expected: &Model,
) {
    let mut rng = SmallRng::seed_from_u64(seed());
    let all = std::env::var("GPHASH_STORE_CALLS").is_ok_and(|calls| calls == "all");
    let stride = match test_dir.is_slow() {
        _ if all => 1,
        true => 120,
        false => 20,
    };
    let path = test_dir.dir.path().join("copy");
    lay(left, &path);
    let right = recover(&path, repair);
    let changes = files(&path).unwrap() != *left;
    for (code, lasting) in [(libc::EIO, false), (libc::ENOSPC, true)] {
        let (mut calls, mut lives, mut refused) = (0, 0, 0);
        loop {
            lay(left, &path);
            let faults = Failing::at(calls, code, lasting);
            match recover_with(&path, repair, &|_| {}, Some(faults.clone())) {
                Ok(report) => {
                    let stays = log_stays(&report);
                    let checked = recover(&path, Repair::Check);
                    // A checkpoint of which the last call fails may have taken the place of the log all the same.
                    assert!(stays || !log_stays(&checked), "call {calls}");
                    // A full disk may have no room for the last checkpoint.
                    if stays == log_stays(&right) || code != libc::ENOSPC {
                        assert_eq!(summary(&report), summary(&right), "call {calls}");
                    }
                }
                Err(error) => {
                    faults.expect(&error, &path);
                    refused += 1;
                }
            }
            if !changes {
                assert!(
                    files(&path).unwrap() == *left,
                    "call {calls}: a file has changed"
                );
            }
            let report = recover(&path, whole);
            assert!(whole == Repair::Salvage || report.state != ReportState::Damaged);
            assert!(report.was_repaired, "call {calls}: {report:?}");
            assert_eq!(recover(&path, Repair::Check).state, ReportState::Clean);
            assert!(
                contents(&path) == *expected,
                "call {calls}: something is lost"
            );
            if !faults.was_met() {
                break;
            }
            lives += 1;
            calls += rng.random_range(1..=2 * stride - 1);
        }
        println!("{repair:?}, error {code}: {refused} errors at {lives} of {calls} calls");
        assert!(refused > 0);
    }
}

#[test]
fn recovery_of_a_killed_store_fails_at_every_call() {
    for test_dir in TestDir::all() {
        let (left, model) = killed(&test_dir);
        for repair in [Repair::Check, Repair::Recover, Repair::Salvage] {
            every_call_fails(&test_dir, &left, repair, Repair::Recover, &model);
        }
    }
}

#[test]
fn recovery_of_a_damaged_store_fails_at_every_call() {
    for test_dir in TestDir::all() {
        let (left, model) = killed(&test_dir);
        let left = damaged(&left);
        let path = test_dir.dir.path().join("saved");
        lay(&left, &path);
        assert_eq!(recover(&path, Repair::Recover).state, ReportState::Damaged);
        assert!(
            files(&path).unwrap() == left,
            "a refusal has changed a file"
        );
        assert!(recover(&path, Repair::Salvage).was_repaired);
        let saved = contents(&path);
        assert!(saved != model && !saved.is_empty());
        for repair in [Repair::Recover, Repair::Salvage] {
            every_call_fails(&test_dir, &left, repair, Repair::Salvage, &saved);
        }
    }
}

/// Whatever call of it fails, a salvage that could not make a manifest anew leaves no sorted files for one.
#[test]
fn manifest_that_cannot_be_made_leaves_no_files() {
    let test_dir = &TestDir::all()[0];
    let (mut left, _) = killed(test_dir);
    let is_named = |path: &Path| path.starts_with("MANIFEST") || path.starts_with("MANIFEST.2");
    left.retain(|path, _| !is_named(path));
    let path = test_dir.dir.path().join("copy");
    let ssts = |files: Files| {
        files
            .into_keys()
            .filter(|path| has_extension(path, "sst"))
            .count()
    };
    let mut refused = 0;
    for first in 0.. {
        lay(&left, &path);
        let faults = Failing::at(first, libc::EIO, false);
        let salvaged = recover_with(&path, Repair::Salvage, &|_| {}, Some(faults.clone()));
        let found = files(&path).unwrap();
        if !faults.was_met() {
            break;
        }
        // Failures that come later are the business of others.
        if found.keys().any(|path| is_named(path)) {
            continue;
        }
        assert_eq!(
            ssts(found),
            ssts(left.clone()),
            "call {first}: {salvaged:?}"
        );
        refused += 1;
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn recovery_discards_nothing_after_a_read_error() {
    let refusals: [fn(Call, &Path) -> bool; 3] = [
        |call, path| call == Call::Open && has_extension(path, "log"),
        |call, path| call == Call::Read && has_extension(path, "log"),
        |call, path| call == Call::Read && has_extension(path, "sst"),
    ];
    for test_dir in TestDir::all() {
        let (left, model) = killed(&test_dir);
        let path = test_dir.dir.path().join("copy");
        for refusal in refusals {
            lay(&left, &path);
            let faults = Failing::only(refusal, libc::EIO);
            faults.cure(false);
            let recovered = recover_with(&path, Repair::Salvage, &|_| {}, Some(faults.clone()));
            assert!(matches!(recovered, Err(Error::Io { .. })), "{recovered:?}");
            let options = StoreOptions::new().salvage(true).faults(faults);
            let opened = Store::open(&path, &options).err();
            assert!(matches!(opened, Some(Error::Io { .. })), "{opened:?}");
            assert!(contents(&path) == model);
        }
    }
}

/// A key that a partition has, the `nth` one.
fn key_in(store: &Store, partition: usize, nth: usize) -> Vec<u8> {
    let keys = (0..u32::MAX).map(|key| key.to_be_bytes().to_vec());
    let mut own = keys.filter(|key| store.partitions().number_of(key) == partition);
    own.nth(nth).expect("each partition has many")
}

/// The records of a group are written side by side. One of them fails: nothing of the others counts, neither now nor after a
/// crash, also once the partitions have used their numbers again.
#[test]
fn group_counts_for_nothing_if_one_of_its_records_fails() {
    const PARTITIONS: usize = 3;
    let of_log: [fn(Call, &Path) -> bool; PARTITIONS] = [
        |call, path| call == Call::Sync && !path.to_string_lossy().contains("partition-"),
        |call, path| call == Call::Sync && path.to_string_lossy().contains("partition-001"),
        |call, path| call == Call::Sync && path.to_string_lossy().contains("partition-002"),
    ];
    for (nth, fails) in of_log.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
        let faults = Failing::only(fails, libc::EIO);
        let options = super::tests::options()
            .partitions(3)
            .durability(Durability::Always);
        let store = Store::open(&path, &options.clone().faults(faults.clone())).unwrap();
        let mut model = Model::new();
        let mut write = |round: usize, is_refused: bool| {
            let mut batch = WriteBatch::new();
            let keys: Vec<Vec<u8>> = (0..PARTITIONS)
                .map(|partition| key_in(&store, partition, round))
                .collect();
            keys.iter().for_each(|key| batch.put(key.clone(), [7]));
            let written = store.write(batch);
            assert_eq!(
                written.is_err(),
                is_refused,
                "{nth}, round {round}: {written:?}"
            );
            for key in keys {
                let value = store.get(&key).unwrap();
                assert_eq!(value.is_some(), !is_refused, "{nth}, round {round}");
                model.extend(value.map(|value| (key, value)));
            }
        };
        write(0, false);
        faults.cure(false);
        write(1, true);
        assert!(faults.was_met());
        faults.cure(true);
        for partition in (0..PARTITIONS).rev() {
            let key = key_in(&store, partition, 2);
            store.put(key.clone(), [8]).unwrap();
            model.insert(key, vec![8]);
            lay(&files(&path).unwrap(), &copy);
            assert_eq!(contents(&copy), model, "{nth}, {partition} was used again");
        }
        drop(store);
        assert_eq!(contents(&path), model);
    }
}

/// A manifest that cannot be written keeps the log from going on, at the cost of one segment.
#[test]
fn manifest_that_cannot_be_written_costs_one_segment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let is_manifest = |_, path: &Path| path.to_string_lossy().contains("MANIFEST");
    let faults = Failing::only(is_manifest, libc::EIO);
    let options = super::tests::options()
        .partitions(1)
        .durability(Durability::Interval(std::time::Duration::from_millis(1)))
        .segment_bytes(8192);
    let store = Store::open(&path, &options.faults(faults.clone())).unwrap();
    let mut model = Model::new();
    let segments = || files(&path.join("wal")).unwrap().len();
    store.put("first", "").unwrap();
    let before = segments();
    faults.cure(false);
    for nth in 0..100u32 {
        let (key, value) = (nth.to_be_bytes().to_vec(), vec![7; 700]);
        if store.put(key.clone(), value.clone()).is_ok() {
            model.insert(key, value);
        }
        let _ = store.flush();
    }
    assert!(faults.was_met() && (2..20).contains(&model.len()));
    assert!(segments() <= before + 1, "{} segments", segments());
    faults.cure(true);
    store.put("last", "").unwrap();
    store.flush().unwrap();
    drop(store);
    model.extend([(b"first".to_vec(), vec![]), (b"last".to_vec(), vec![])]);
    assert!(contents(&path) == model);
}

/// A record of a group that is aborted is nowhere, also if the next segment was made with it and the manifest could not be
/// written.
#[test]
fn aborted_record_is_not_in_a_prepared_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let fails = |call, path: &Path| {
        let path = path.to_string_lossy();
        let is_log = call == Call::Sync && path.ends_with("000000000001.log");
        path.contains("partition-001") && (is_log || path.contains("MANIFEST"))
    };
    let faults = Failing::only(fails, libc::EIO);
    let options = super::tests::options()
        .partitions(2)
        .durability(Durability::None);
    let store = Store::open(&path, &options.faults(faults.clone())).unwrap();
    let log = &store.partitions().all()[1].state.log;
    let mut model = Model::new();
    let mut put = |nth: usize| {
        let key = key_in(&store, 1, nth);
        store.put(key.clone(), [7]).unwrap();
        model.insert(key, vec![7]);
    };
    put(0);
    log.sync().unwrap();
    let first = log.next_sequence();
    let part = GroupPart {
        group: 1,
        participants: Vec::new(),
    };
    let entry = Entry {
        key: b"aborted",
        value: Some(b"lost"),
        position: 0,
    };
    log.append_part(1, &part, &[entry], false, Room::ALL)
        .unwrap();
    faults.cure(false);
    log.sync().unwrap_err();
    log.sync().unwrap_err();
    log.abort(first);
    faults.cure(true);
    put(1);
    put(2);
    log.sync().unwrap();
    lay(&files(&path).unwrap(), &copy);
    assert_eq!(contents(&copy), model);
    drop(store);
    assert_eq!(contents(&path), model);
}

/// A record that a failed sync leaves counts at each moment at which the process may die, also while the segment that is to
/// have it cannot be made.
#[test]
fn segment_that_cannot_be_made_hides_no_record() {
    let fails: [fn(Call) -> bool; 6] = [
        |call| call == Call::Create,
        |call| call == Call::Allocate,
        |call| call == Call::Write,
        |call| call == Call::Sync,
        |call| call == Call::SyncDir,
        |call| call == Call::Rename,
    ];
    for (nth, fails) in fails.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
        let faults = Arc::new(FailingNext {
            fails,
            is_cured: AtomicBool::new(true),
        });
        let options = super::tests::options()
            .partitions(1)
            .durability(Durability::None);
        let store = Store::open(&path, &options.faults(faults.clone())).unwrap();
        let mut model = Model::new();
        for key in [b"durable", b"written"] {
            store.put(key, "").unwrap();
            model.insert(key.to_vec(), vec![]);
            if key == b"durable" {
                store.flush().unwrap();
                faults.is_cured.store(false, Ordering::Relaxed);
            }
        }
        for _ in 0..3 {
            let _ = store.flush();
            lay(&files(&path).unwrap(), &copy);
            assert_eq!(contents(&copy), model, "{nth}");
        }
        faults.is_cured.store(true, Ordering::Relaxed);
        store.put("last", "").unwrap();
        store.flush().unwrap();
        model.insert(b"last".to_vec(), vec![]);
        lay(&files(&path).unwrap(), &copy);
        assert_eq!(contents(&copy), model, "{nth}, cured");
        drop(store);
        assert_eq!(contents(&path), model, "{nth}, closed");
    }
}

/// Fails syncs of the first segment of a log, and some calls for the second one.
#[derive(Debug)]
struct FailingNext {
    fails: fn(Call) -> bool,
    is_cured: AtomicBool,
}

impl Faults for FailingNext {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_next = path.ends_with("000000000002.log");
        let is_due = match call {
            Call::SyncDir => (self.fails)(call) && path.ends_with("wal"),
            call if is_next => (self.fails)(call),
            call => call == Call::Sync && path.ends_with("000000000001.log"),
        };
        match is_due && !self.is_cured.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
}

/// Who finds a directory takes its name for durable.
#[test]
fn directory_whose_name_is_not_durable_does_not_stay() {
    let parent = tempfile::tempdir().unwrap();
    let faults = Failing::only(|call, _| call == Call::SyncDir, libc::EIO);
    let root = Dir::at(parent.path().to_path_buf(), Some(faults.clone()));
    let made = root.within("above").within("below");
    root.within("above").create().unwrap();
    faults.cure(false);
    assert!(made.create().is_err());
    assert!(!made.path().exists());
    faults.cure(true);
    made.create().unwrap();
    assert!(made.path().exists());
}
