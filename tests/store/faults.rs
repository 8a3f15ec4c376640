//! Every call to the operating system fails in turn: the store says so, does nothing by halves, goes
//! on when the disk does, and loses nothing that it has answered.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use gphash::Error;
use gphash::pm::{Call, Faults};
use gphash::store::{Durability, Store, StoreOptions, WriteBatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::disk::{Failing, copy, folders};
use super::model::{Model, contents};
use super::{append, seed};

/// Options of a store, which spills unless it is always durable.
fn options(durability: Durability) -> StoreOptions {
    let options = crate::options()
        .partitions(crate::partitions().min(3))
        .capacity(16)
        .durability(durability)
        .segment_bytes(8192)
        .checkpoint_bytes(u64::MAX)
        .merge_operator(append());
    match durability {
        Durability::Always => options,
        _ => options.memory_budget(StoreOptions::MIN_BUDGET),
    }
}

/// What is done in a life, beside opening and closing.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A batch of changes, with values of so many bytes.
    Write(usize),
    Merge,
    Transact,
    Flush,
    Checkpoint,
}

const STEPS: [Step; 14] = [
    Step::Write(10),
    Step::Merge,
    Step::Write(3000),
    Step::Transact,
    Step::Flush,
    Step::Write(3000),
    Step::Checkpoint,
    Step::Merge,
    Step::Write(900_000),
    Step::Write(100_000),
    Step::Transact,
    Step::Write(10),
    Step::Checkpoint,
    Step::Write(300),
];

impl Step {
    /// Does it in the store.
    fn run(self, store: &Store, nth: usize) -> gphash::Result<()> {
        let number = u8::try_from(nth).unwrap();
        match self {
            Step::Write(len) => {
                let mut batch = WriteBatch::new();
                for key in 0..4 {
                    batch.put([number, key], vec![number; len]);
                    batch.delete([number.wrapping_sub(2), key]);
                }
                batch.put("same", vec![number; len]);
                store.write(batch)
            }
            Step::Merge => store.merge("merged", vec![number]),
            Step::Transact => {
                let mut transaction = store.transaction();
                let value = transaction.get(b"same")?.unwrap_or_default();
                transaction.put("read", value.len().to_string())?;
                transaction.delete("same")?;
                transaction.commit()
            }
            Step::Flush => store.flush(),
            Step::Checkpoint => store.checkpoint(),
        }
    }

    /// What is there afterwards.
    fn model(self, before: &Model, nth: usize) -> Model {
        let mut model = before.clone();
        let number = u8::try_from(nth).unwrap();
        match self {
            Step::Write(len) => {
                for key in 0..4 {
                    model.insert(vec![number, key], vec![number; len]);
                    model.remove(&vec![number.wrapping_sub(2), key]);
                }
                model.insert(b"same".to_vec(), vec![number; len]);
            }
            Step::Merge => model.entry(b"merged".to_vec()).or_default().push(number),
            Step::Transact => {
                let len = model.remove(&b"same"[..]).map_or(0, |value| value.len());
                model.insert(b"read".to_vec(), len.to_string().into_bytes());
            }
            Step::Flush | Step::Checkpoint => {}
        }
        model
    }
}

fn is_told(error: &Error, code: i32) {
    let told = match code {
        libc::ENOSPC => matches!(error, Error::NoSpace { .. }),
        _ => matches!(error, Error::Io { .. }),
    };
    assert!(told, "{error}");
}

/// All that a store has; the call that fails may be one that reads it.
fn read(store: &Store, faults: &Failing, code: i32) -> Model {
    let items: gphash::Result<Model> = store.range(..).collect();
    items.unwrap_or_else(|error| {
        is_told(&error, code);
        faults.cure();
        contents(store)
    })
}

/// Opens what is there, which must be one of `allowed`, and checks that it works.
fn check(path: &Path, allowed: &[&Model]) -> Model {
    let store = Store::open(path, &options(Durability::Always)).unwrap();
    let found = contents(&store);
    let keys = |model: &Model| {
        model
            .iter()
            .map(|(key, value)| (key.clone(), value.len()))
            .collect::<Vec<_>>()
    };
    assert!(
        allowed.contains(&&found),
        "found {:?}; allowed {:?}",
        keys(&found),
        allowed.iter().map(|model| keys(model)).collect::<Vec<_>>()
    );
    store.put("checked", "yes").unwrap();
    store.delete("checked").unwrap();
    store.close().unwrap();
    found
}

/// A life in which the disk fails. A call that fails alone leaves the store at work; where all fail,
/// the process dies, or goes on once the disk is cured.
fn life(folder: &Path, faults: &Arc<Failing>, durability: Durability, code: i32, dies: bool) {
    let path = folder.join("store");
    let options = options(durability).faults(faults.clone());
    let mut model = Model::new();
    // After an error, what may be found by the next opening.
    let mut maybe = Model::new();
    let store = Store::open(&path, &options).or_else(|error| {
        is_told(&error, code);
        if dies {
            return Err(());
        }
        faults.cure();
        Ok(Store::open(&path, &options).unwrap())
    });
    let Ok(store) = store else {
        check(&path, &[&model]);
        return;
    };
    for (nth, step) in STEPS.into_iter().enumerate() {
        let after = step.model(&model, nth);
        match step.run(&store, nth) {
            Ok(()) => model = after,
            Err(error) => {
                is_told(&error, code);
                if maybe == model || maybe.is_empty() {
                    maybe.clone_from(&after);
                }
                let found = read(&store, faults, code);
                assert!(found == model, "after {step:?}: {error}");
                let left = folder.join("left");
                copy(&path, &left);
                check(&left, &[&model, &maybe]);
                std::fs::remove_dir_all(&left).unwrap();
                if dies {
                    drop(store);
                    check(&path, &[&model, &maybe]);
                    return;
                }
                faults.cure();
                step.run(&store, nth).unwrap();
                model = after;
                maybe.clone_from(&model);
            }
        }
        if faults.met() == 0 {
            maybe.clone_from(&model);
        }
        assert!(read(&store, faults, code) == model, "after {step:?}");
    }
    match store.close() {
        Ok(()) => {}
        Err(error) => is_told(&error, code),
    }
    check(&path, &[&model]);
}

/// Lives in which the disk fails at one call after the other: at all of them if
/// `GPHASH_STORE_CALLS` is `all`, else at some, drawn from the seed.
fn every_call_fails(durability: Durability, code: i32, lasting: bool, dies: bool) {
    let mut rng = SmallRng::seed_from_u64(seed());
    let all = std::env::var("GPHASH_STORE_CALLS").is_ok_and(|calls| calls == "all");
    for folder in folders() {
        let in_memory = folder.path().starts_with("/dev/shm");
        let stride = match () {
            () if all => 1,
            () if in_memory => 16,
            () => 80,
        };
        let mut lives = 0;
        let mut calls = 0;
        loop {
            let faults = Failing::at(calls, lasting, code);
            let place = folder.path().join(calls.to_string());
            std::fs::create_dir(&place).unwrap();
            life(&place, &faults, durability, code, dies);
            std::fs::remove_dir_all(&place).unwrap();
            if faults.met() == 0 {
                break;
            }
            lives += 1;
            calls += rng.random_range(1..=2 * stride - 1);
        }
        println!("{durability:?}, error {code}: {lives} lives, the last one of {calls} calls");
    }
}

#[test]
fn death_at_every_call_loses_nothing() {
    every_call_fails(Durability::Always, libc::EIO, true, true);
}

#[test]
fn calls_fail_once_in_turn() {
    every_call_fails(Durability::Always, libc::EIO, false, false);
}

#[test]
fn disk_fills_up_at_every_call() {
    every_call_fails(Durability::Always, libc::ENOSPC, true, false);
}

#[test]
fn calls_fail_while_nobody_waits_for_the_log() {
    every_call_fails(Durability::None, libc::EIO, false, false);
    every_call_fails(
        Durability::Interval(Duration::from_millis(1)),
        libc::EIO,
        true,
        false,
    );
}

/// Refuses one kind of call about old versions that are in a file.
struct OldVersionsFail {
    call: Call,
    fails: AtomicBool,
}

impl fmt::Debug for OldVersionsFail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldVersionsFail").finish_non_exhaustive()
    }
}

impl Faults for OldVersionsFail {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_it = call == self.call && path.ends_with("OLD_VERSIONS");
        match is_it && self.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
}

const OLD_VALUES: u8 = 64;

fn put_all(store: &Store, byte: u8) {
    for nth in 0..OLD_VALUES {
        store.put([nth], vec![byte; 1000]).unwrap();
    }
}

#[test]
fn old_versions_survive_a_file_that_fails() {
    for call in [Call::Create, Call::Write, Call::Read] {
        let folder = tempfile::tempdir().unwrap();
        let faults = Arc::new(OldVersionsFail {
            call,
            fails: AtomicBool::new(true),
        });
        let options = options(Durability::None).faults(faults.clone());
        let store = Store::open(folder.path().join("store"), &options).unwrap();
        put_all(&store, 0);
        let mut transaction = store.transaction();
        let range = store.range(..);
        put_all(&store, 1);
        let spilled = store.stats().kept_file_bytes;
        assert_eq!(spilled > 0, call == Call::Read);
        if call == Call::Read {
            // The last ones have no room in memory any more.
            let last = [OLD_VALUES - 1];
            assert!(matches!(transaction.get(&last), Err(Error::Io { .. })));
            assert!(matches!(range.last(), Some(Err(Error::Io { .. }))));
            // Nobody else is told.
            assert_eq!(store.get(&last).unwrap(), Some(vec![1; 1000]));
            faults.fails.store(false, Ordering::Relaxed);
        } else {
            let found: Vec<_> = range.map(|item| item.unwrap().1).collect();
            assert_eq!(found, vec![vec![0; 1000]; usize::from(OLD_VALUES)]);
            faults.fails.store(false, Ordering::Relaxed);
            let next = store.transaction();
            put_all(&store, 2);
            assert!(store.stats().kept_file_bytes > 0);
            drop(next);
        }
        for nth in 0..OLD_VALUES {
            assert_eq!(transaction.get(&[nth]).unwrap(), Some(vec![0; 1000]));
        }
        drop(transaction);
        crate::wait_for_readers(&store);
        assert_eq!(store.stats().kept_file_bytes, 0);
        store.close().unwrap();
    }
}

/// Refuses, once it is armed, the call of this number to files of other partitions than the first one.
#[derive(Debug, Default)]
struct FailsElsewhere {
    /// How many calls come before it; less than 0 if it is not armed, or was met.
    left: AtomicI64,
}

impl Faults for FailsElsewhere {
    fn before(&self, _: Call, path: &Path) -> io::Result<()> {
        let is_elsewhere = path.components().any(|part| {
            let part = part.as_os_str().to_string_lossy();
            part.starts_with("partition-")
        });
        if !is_elsewhere || self.left.load(Ordering::Relaxed) < 0 {
            return Ok(());
        }
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }
}

/// The log of the first partition decides for a partition that could not be closed.
#[test]
fn partition_that_cannot_be_closed_keeps_its_groups() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let mut call = 0;
    loop {
        let path = folder.path().join(call.to_string());
        let faults = Arc::new(FailsElsewhere::default());
        faults.left.store(-1, Ordering::Relaxed);
        let options = StoreOptions::new()
            .partitions(3)
            .durability(Durability::None);
        let store = Store::open(&path, &options.clone().faults(faults.clone())).unwrap();
        let mut model = Model::new();
        for nth in 0..5u8 {
            let mut batch = WriteBatch::new();
            for key in 0..20u8 {
                batch.put([key], [nth]);
                model.insert(vec![key], vec![nth]);
            }
            store.write(batch).unwrap();
        }
        faults.left.store(call, Ordering::Relaxed);
        let closed = store.close();
        let was_met = faults.left.load(Ordering::Relaxed) < 0;
        assert!(was_met || closed.is_ok(), "{closed:?}");
        let store = Store::open(&path, &options).unwrap();
        assert_eq!(contents(&store), model, "call {call}: {closed:?}");
        store.close().unwrap();
        if !was_met {
            break;
        }
        call += rng.random_range(1..8);
    }
    assert!(call > 40, "{call} calls close a store");
}
