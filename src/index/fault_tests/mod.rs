//! A file system that fails, under a whole index: each call to the operating system is refused in
//! turn. Every error is clear, nothing acknowledged is lost, the index goes on working, and what
//! it leaves can be opened.

pub(crate) mod faults;
mod flaky;
mod full_disk;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use faults::{Failing, TestDir};

use super::repair::{recover, recover_with};
use crate::layout::PAGE;
use crate::pm::{Call, Entry, MapOptions};
use crate::width::to_usize;
use crate::{Domain, Index, Options, Repair, ReportState, Result};

/// A kibibyte, so that records are soon used up.
type Value = [u64; 128];
type Table = Index<u64, Value>;

/// The version of each key.
type Model = BTreeMap<u64, u64>;

/// What a model has the user's metadata under.
const USER: u64 = u64::MAX - 1;

/// Numbers of the keys that are used.
const KEYS: Range<u64> = 0..200;

/// The seed of a random test: `GPHASH_TEST_SEED`, or a random one. Prints how to repeat it.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("GPHASH_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("GPHASH_TEST_SEED={seed}");
    seed
}

/// Key `n`; the two that equal slot states are among them.
fn key(n: u64) -> u64 {
    if n == 1 { u64::MAX } else { n }
}

fn keys(numbers: Range<u64>) -> Vec<u64> {
    numbers.map(key).collect()
}

fn value(key: u64, version: u64) -> Value {
    let mix = (key ^ version << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    std::array::from_fn(|i| if i == 0 { version } else { mix ^ i as u64 })
}

fn values(keys: &[u64], version: u64) -> Vec<Value> {
    keys.iter().map(|&key| value(key, version)).collect()
}

/// One step in the life of an index. Each verb stores a version of its own.
#[derive(Debug, Clone)]
enum Step {
    Insert(Range<u64>),
    Upsert(Range<u64>),
    Update(Range<u64>),
    Remove(Range<u64>),
    Reserve(u64),
    SetUser,
    Compact,
    Sync,
    Close,
    Open,
}

use Step::{Close, Compact, Insert, Open, Remove, Reserve, SetUser, Sync, Update, Upsert};

/// All that an index does: growth of levels and records, resizes, checkpoints, clean closes.
fn life() -> Vec<Step> {
    vec![
        SetUser,
        Insert(0..30),
        Sync,
        SetUser,
        Insert(20..90),
        Update(0..80),
        Sync,
        Remove(10..60),
        Compact,
        Upsert(50..150),
        Reserve(300),
        SetUser,
        Close,
        Open,
        Update(0..200),
        Insert(100..200),
        Sync,
        Remove(0..140),
        Compact,
        Sync,
        Upsert(20..60),
        Close,
        Open,
        Upsert(0..40),
        Close,
    ]
}

impl Step {
    /// Does the step to an index that is open.
    fn run(&self, index: &Table, version: u64) -> Result<()> {
        match self.clone() {
            Insert(numbers) => {
                let keys = keys(numbers);
                index.insert(&keys, &values(&keys, version)).map(drop)
            }
            Upsert(numbers) => {
                let keys = keys(numbers);
                index.upsert(&keys, &values(&keys, version)).map(drop)
            }
            Update(numbers) => {
                let keys = keys(numbers);
                index.update(&keys, &values(&keys, version)).map(drop)
            }
            Remove(numbers) => index.remove(&keys(numbers)).map(drop),
            Reserve(items) => index.reserve(items),
            Compact => index.compact(&|_| {}),
            SetUser => index.set_user_metadata(&version.to_ne_bytes()),
            _ => index.sync(),
        }
    }

    /// What the step makes of the model.
    fn model(&self, model: &Model, version: u64) -> Model {
        let mut model = model.clone();
        match self.clone() {
            Insert(numbers) => numbers.for_each(|n| {
                model.entry(key(n)).or_insert(version);
            }),
            Upsert(numbers) => numbers.for_each(|n| {
                model.insert(key(n), version);
            }),
            Update(numbers) => numbers.for_each(|n| {
                model.entry(key(n)).and_modify(|held| *held = version);
            }),
            Remove(numbers) => numbers.for_each(|n| {
                model.remove(&key(n));
            }),
            SetUser => {
                model.insert(USER, version);
            }
            _ => {}
        }
        model
    }
}

/// Items of a model.
fn items(model: &Model) -> u64 {
    model.keys().filter(|&&key| key != USER).count() as u64
}

/// The versions of all keys, looked up, once it is sure that every value is whole.
fn contents(index: &Table) -> Model {
    let keys = keys(KEYS);
    let mut held = vec![[0; 128]; keys.len()];
    let found = index.get(&keys, &mut held).unwrap();
    let user = index.metadata().user;
    let user = (!user.is_empty()).then(|| (USER, bytemuck::pod_read_unaligned(&user)));
    let found = found.ones().map(|i| {
        let version = held[i][0];
        assert_eq!(held[i], value(keys[i], version), "key {} is torn", keys[i]);
        (keys[i], version)
    });
    found.chain(user).collect()
}

/// Opens what a crash has left, and checks that it is one of the `allowed` states and works.
fn check(test_dir: &TestDir, allowed: &[Model]) {
    let index = Table::open(test_dir.path(), &test_dir.options(None)).unwrap();
    let found = contents(&index);
    assert!(allowed.contains(&found), "{found:?} is none of {allowed:?}");
    assert_eq!(index.len(), items(&found));
    assert_eq!(index.iter().count() as u64, items(&found));
    let fresh: Vec<u64> = (1000..1100).collect();
    let stored = index.insert(&fresh, &values(&fresh, 7)).unwrap();
    assert_eq!(stored.count_ones(..), 100);
    assert_eq!(index.remove(&fresh).unwrap().count_ones(..), 100);
    index.close().unwrap();
    assert_eq!(test_dir.files(), ["index"]);
    let index = Table::open(test_dir.path(), &test_dir.options(None)).unwrap();
    assert!(index.recovery().clean);
    assert_eq!(contents(&index), found);
}

/// An index on a file system that fails, and what it must hold.
struct Subject<'p> {
    test_dir: &'p TestDir,
    faults: std::sync::Arc<Failing>,
    options: Options,
    index: Option<Table>,
    now: Model,
    /// What a crash may leave.
    saved: Vec<Model>,
    steps: u64,
    /// Version that the index has reported last.
    reported: u64,
}

impl<'p> Subject<'p> {
    fn create(test_dir: &'p TestDir, faults: std::sync::Arc<Failing>) -> Self {
        let options = test_dir.options(Some(faults.clone()));
        let index = Table::create(test_dir.path(), &options).unwrap_or_else(|error| {
            faults.expect(&error, &test_dir.path());
            assert!(test_dir.files().is_empty(), "{:?}", test_dir.files());
            faults.cure(true);
            Table::create(test_dir.path(), &options).unwrap()
        });
        Self {
            test_dir,
            faults,
            options,
            index: Some(index),
            now: Model::new(),
            saved: vec![Model::new()],
            steps: 0,
            reported: 1,
        }
    }

    fn step(&mut self, step: &Step) {
        self.steps += 1;
        match (step, &self.index) {
            (Open, _) => self.open(),
            (Close, _) => self.close(),
            (_, Some(_)) => self.work(step),
            (_, None) => unreachable!("a step of an index that is closed"),
        }
    }

    fn open(&mut self) {
        let opened = Table::open(self.test_dir.path(), &self.options).unwrap_or_else(|error| {
            self.faults.expect(&error, &self.test_dir.path());
            self.check_crash();
            self.faults.cure(true);
            Table::open(self.test_dir.path(), &self.options).unwrap()
        });
        assert_eq!(contents(&opened), self.now);
        let version = opened.metadata().version;
        assert!(
            version >= self.reported,
            "{version} after {}",
            self.reported
        );
        self.reported = version;
        self.index = Some(opened);
    }

    fn close(&mut self) {
        let index = self.index.take().expect("it is open");
        let closed = index.close();
        let before = std::mem::replace(&mut self.saved, vec![self.now.clone()]);
        if let Err(error) = closed {
            self.faults.expect(&error, &self.test_dir.path());
            self.faults.cure(true);
            self.saved.extend(before);
            self.check_crash();
            let index = Table::open(self.test_dir.path(), &self.options).unwrap();
            self.now = contents(&index);
            assert!(self.saved.contains(&self.now));
            self.saved = vec![self.now.clone()];
            index.close().unwrap();
        }
    }

    fn work(&mut self, step: &Step) {
        let index = self.index.as_ref().expect("it is open");
        let version = self.steps;
        let after = step.model(&self.now, version);
        let done = step.run(index, version);
        let Err(error) = done else {
            self.now = after;
            assert_eq!(contents(index), self.now, "after {step:?}");
            let published = index.metadata().version;
            let is_saved = matches!(step, Sync | Compact);
            assert_eq!(published > self.reported, is_saved);
            self.reported = published;
            if is_saved || self.test_dir.domain == Domain::Shared {
                self.saved = vec![self.now.clone()];
            }
            return;
        };
        self.faults.expect(&error, &self.test_dir.path());
        let found = contents(index);
        for key in keys(KEYS) {
            let version = found.get(&key);
            let whole = version == self.now.get(&key) || version == after.get(&key);
            assert!(whole, "key {key} has version {version:?} after {error}");
        }
        self.now = found;
        assert_eq!(index.len(), items(&self.now));
        self.save();
        self.check_crash();
        self.use_what_is_there();
        self.faults.cure(true);
        let index = self.index.as_ref().expect("it is open");
        step.run(index, version).unwrap();
        self.reported = index.metadata().version;
        self.now = step.model(&self.now, version);
        assert_eq!(contents(index), self.now, "after {step:?}, tried again");
        self.save();
    }

    /// Notes the present state as one that a crash may leave: the only one where stores are
    /// durable, one more where a checkpoint may have been cut short.
    fn save(&mut self) {
        if self.test_dir.domain == Domain::Shared {
            self.saved.clear();
        }
        self.saved.push(self.now.clone());
    }

    /// Changes that need no further room, while calls may still fail.
    fn use_what_is_there(&mut self) {
        let index = self.index.as_ref().expect("it is open");
        let held = self.now.keys().copied().filter(|&key| key != USER);
        let held: Vec<u64> = held.take(8).collect();
        let Some((&first, others)) = held.split_first() else {
            return;
        };
        // One record is free from now on, and each change frees the one that it replaces.
        assert!(index.remove_one(&first).unwrap());
        for &key in others {
            assert!(index.update_one(&key, &value(key, 1 << 20)).unwrap());
        }
        assert!(index.insert_one(&first, &value(first, 1 << 20)).unwrap());
        self.now.extend(held.iter().map(|&key| (key, 1 << 20)));
        assert_eq!(contents(index), self.now);
        self.save();
    }

    fn check_crash(&self) {
        check(&self.test_dir.crash(), &self.saved);
    }
}

#[test]
fn calls_of_an_index_life_fail_in_turn() {
    let kinds = [(libc::ENOSPC, true), (libc::EIO, false), (libc::EIO, true)];
    for (kind, (code, lasting)) in kinds.into_iter().enumerate() {
        for nth in 0..TestDir::all().len() {
            // A disk is too slow for all of them.
            let (first, step) = match TestDir::all()[nth].is_slow() {
                true => (20 * kind as u64, 61),
                false => (0, 1),
            };
            let mut lives = 0;
            for calls in (first..).step_by(step) {
                let test_dir = &TestDir::all()[nth];
                let faults = Failing::at(calls, code, lasting);
                let mut subject = Subject::create(test_dir, faults.clone());
                life().iter().for_each(|step| subject.step(step));
                check(test_dir, &[subject.now]);
                if !faults.was_met() {
                    break;
                }
                lives += 1;
            }
            println!("directory {nth}: error {code} at {lives} calls from number {first} on");
        }
    }
}

#[test]
fn disk_fills_up_at_every_length() {
    let all = std::env::var("GPHASH_DISK_ROOM").is_ok_and(|wanted| wanted == "all");
    for nth in 0..TestDir::all().len() {
        let step = match TestDir::all()[nth].is_slow() {
            _ if all => PAGE,
            true => 61 * PAGE + 512,
            false => 7 * PAGE + 512,
        };
        let mut lives = 0;
        for most in (0..).step_by(to_usize(step)) {
            let test_dir = &TestDir::all()[nth];
            let faults = Failing::within(most);
            let mut subject = Subject::create(test_dir, faults.clone());
            life().iter().for_each(|step| subject.step(step));
            check(test_dir, &[subject.now]);
            if !faults.was_met() {
                break;
            }
            lives += 1;
        }
        println!("directory {nth}: too little room {lives} times");
    }
}

/// A file that was not cleanly closed, in `Checkpointed` with the journal of a checkpoint that
/// did not come home; and what it holds.
fn crashed(test_dir: &TestDir) -> (TestDir, Model) {
    let is_home = |call, path: &Path| {
        call == Call::Write
            && path
                .extension()
                .is_none_or(|extension| extension != "journal")
    };
    let faults = Failing::only(is_home, libc::EIO);
    let mut subject = Subject::create(test_dir, faults.clone());
    for step in [Insert(0..60), Sync, Remove(10..40), Upsert(30..200)] {
        subject.step(&step);
    }
    faults.cure(false);
    let index = subject.index.as_ref().unwrap();
    assert_eq!(
        index.sync().is_err(),
        test_dir.domain == Domain::Checkpointed
    );
    let crashed = test_dir.crash();
    faults.cure(true);
    (crashed, subject.now)
}

#[test]
fn calls_of_an_open_after_a_crash_fail_in_turn() {
    for test_dir in TestDir::all() {
        let (left, model) = crashed(&test_dir);
        for code in [libc::ENOSPC, libc::EIO] {
            for calls in 0.. {
                let copy = left.crash();
                let faults = Failing::at(calls, code, false);
                match Table::open(copy.path(), &copy.options(Some(faults.clone()))) {
                    Ok(index) => assert_eq!(contents(&index), model),
                    Err(error) => {
                        faults.expect(&error, &copy.path());
                        // A journal that has been brought home may be gone.
                        assert_eq!(copy.files()[0], "index", "{error}");
                    }
                }
                check(&copy, std::slice::from_ref(&model));
                if !faults.was_met() {
                    break;
                }
            }
        }
    }
}

#[test]
fn calls_of_the_recovery_tool_fail_in_turn() {
    for test_dir in TestDir::all() {
        let (left, model) = crashed(&test_dir);
        for repair in [Repair::Check, Repair::Recover, Repair::Salvage] {
            for calls in 0.. {
                let copy = left.crash();
                let faults = Failing::at(calls, libc::EIO, false);
                let options = MapOptions {
                    faults: Some(faults.clone()),
                    ..MapOptions::default()
                };
                let bytes = || copy.files().iter().map(read_in(&copy)).collect::<Vec<_>>();
                let before = bytes();
                let entry = Entry::at(&copy.path(), options.faults.clone());
                let recovered =
                    entry.and_then(|entry| recover_with(&entry, repair, &|_| {}, &options));
                match recovered {
                    Ok(report) => assert_eq!(report.recovery.items, model.len() as u64),
                    Err(error) => faults.expect(&error, &copy.path()),
                }
                assert!(
                    repair != Repair::Check || bytes() == before,
                    "a check has changed a file"
                );
                let report = recover(copy.path(), Repair::Recover, &|_| {});
                let state = report.unwrap().state;
                assert!(matches!(state, ReportState::Clean | ReportState::Recovered));
                check(&copy, std::slice::from_ref(&model));
                if !faults.was_met() {
                    break;
                }
            }
        }
    }
}

fn read_in(test_dir: &TestDir) -> impl Fn(&String) -> Vec<u8> {
    |name| std::fs::read(test_dir.dir.path().join(name)).unwrap()
}

#[test]
fn room_goes_back_after_the_checkpoint_that_gives_it_up() {
    for test_dir in TestDir::all() {
        let index = Table::create(test_dir.path(), &test_dir.options(None)).unwrap();
        let keys = keys(KEYS);
        index.insert(&keys, &values(&keys, 1)).unwrap();
        index.sync().unwrap();
        index.remove(&keys[3..]).unwrap();
        index.table.compact(&|_| true);
        index.table.release_free();
        let (free, held) = index.table.free_extent_bytes();
        assert!(free > 100 << 10, "{free}");
        let is_kept = test_dir.domain == Domain::Checkpointed;
        assert_eq!(held, if is_kept { free } else { 0 });
        index.sync().unwrap();
        index.table.release_free();
        assert_eq!(index.table.free_extent_bytes(), (free, 0));
    }
}
