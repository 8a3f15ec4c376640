//! Every call to the operating system fails in turn, once or from then on. What was added is there, what
//! was refused is not, or wholly after a reopening; and all works again when the disk does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::Error;
use crate::lsm::repair::repair;
use crate::pm::Call;

/// Fails the call after `first` others, and those that follow if `lasting`, until it is cured.
#[derive(Debug)]
struct Failing {
    first: u64,
    lasting: bool,
    code: i32,
    calls: AtomicU64,
    cured: AtomicBool,
}

impl Failing {
    fn at(first: u64, lasting: bool, code: i32) -> Self {
        Self {
            first,
            lasting,
            code,
            calls: AtomicU64::new(0),
            cured: AtomicBool::new(false),
        }
    }
}

impl Faults for Failing {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        let nth = self.calls.fetch_add(1, Ordering::Relaxed);
        let due = nth == self.first || self.lasting && nth > self.first;
        match due && !self.cured.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(self.code)),
            false => Ok(()),
        }
    }

    /// Longer reads and writes are short ones.
    fn most_bytes(&self) -> usize {
        5001
    }
}

/// Additions and compactions with failures under them; says whether any was met.
fn run(faults: Arc<Failing>, seed: u64) -> bool {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut model = Model::new();
    // What refused additions may have left to a reopening.
    let mut doubtful: Vec<Model> = Vec::new();
    let mut met = false;
    let path = dir.path();
    let reopen = |met: &mut bool| loop {
        match open(path, Some(faults.clone()), options()) {
            Ok(spill) => break spill,
            Err(error) => {
                assert!(
                    matches!(error, Error::NoSpace { .. } | Error::Io { .. }),
                    "{error}"
                );
                *met = true;
                faults.cured.store(true, Ordering::Relaxed);
            }
        }
    };
    let mut spill = reopen(&mut met);
    for sequence in 0..14 {
        let mut changes = Model::new();
        for _ in 0..rng.random_range(1..60) {
            let value = rng
                .random_bool(0.7)
                .then(|| vec![rng.random(); rng.random_range(0..900)]);
            changes.insert(vec![rng.random_range(0..100)], (sequence, value));
        }
        match add(&spill, &changes) {
            Ok(()) => {
                model.extend(changes);
                doubtful.clear();
            }
            Err(_) => {
                met = true;
                let mut next = model.clone();
                next.extend(changes);
                doubtful.push(next);
            }
        }
        met |= spill.compact().is_err();
        // Until a call fails, each life is as the one before.
        if sequence % 4 == 3 || faults.calls.load(Ordering::Relaxed) > faults.first {
            match contents(&spill.version(), sequence % 2 == 0, 20) {
                Ok(found) => assert!(values(&found) == values(&model)),
                Err(_) => met = true,
            }
        }
        if sequence % 5 == 4 {
            drop(spill);
            spill = reopen(&mut met);
            if let Ok(found) = contents(&spill.version(), false, 20) {
                resolve(&found, &mut model, &mut doubtful);
            }
        }
    }
    faults.cured.store(true, Ordering::Relaxed);
    // Those files that could not be removed go with the next opening.
    drop(spill);
    let spill = open(path, Some(faults.clone()), options()).unwrap();
    let found = contents(&spill.version(), true, 20).unwrap();
    resolve(&found, &mut model, &mut doubtful);
    add(&spill, &Model::from([(vec![200], (99, Some(vec![])))])).unwrap();
    model.insert(vec![200], (99, Some(vec![])));
    while spill.compact().unwrap() {}
    assert!(values(&contents(&spill.version(), true, 20).unwrap()) == values(&model));
    super::model::check_files(&spill, path);
    met
}

/// What is found after a reopening is the model, or one with a refused addition; that it is from now on.
fn resolve(found: &Model, model: &mut Model, doubtful: &mut Vec<Model>) {
    let found = values(found);
    if found != values(model) {
        let is_it = |doubtful: &Model| values(doubtful) == found;
        *model = doubtful.drain(..).find(is_it).expect("no such state");
    }
    doubtful.clear();
}

#[test]
fn calls_fail_once_or_for_long() {
    let seed = seed();
    for (lasting, code) in [(false, libc::EIO), (true, libc::ENOSPC)] {
        let mut first = 0;
        loop {
            let faults = Arc::new(Failing::at(first, lasting, code));
            let met = run(Arc::clone(&faults), seed);
            if faults.calls.load(Ordering::Relaxed) <= first {
                break;
            }
            // A file that cannot be removed is no error.
            assert!(met || !lasting || first > 100, "call {first}");
            first += 1;
        }
        println!("{first} calls");
        assert!(first > 100);
    }
}

/// A file that could not be repaired is what it was, and can be repaired later.
#[test]
fn repair_fails_at_every_call() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let keys = (0..150u8).map(|n| (vec![n], (1, Some(vec![n; 100]))));
    add(&spill, &keys.collect()).unwrap();
    drop(spill);
    let dir = Dir::at(dir.path().to_path_buf(), None);
    let file = FileCatalog::open(dir.clone()).unwrap().files()[0];
    let path = dir.join(sst::name(file.number));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    for first in 0.. {
        std::fs::write(&path, &bytes).unwrap();
        let faults = Arc::new(Failing::at(first, false, libc::EIO));
        let failing = Dir::at(dir.path().to_path_buf(), Some(faults));
        match repair(&failing, &file, options().store_id) {
            Ok(repaired) => {
                assert!(repaired.kept > 0 && repaired.lost == Some(150 - repaired.kept));
                assert!(first > 5);
                return;
            }
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
        }
        let now = std::fs::read(&path).unwrap();
        let repaired = repair(&dir, &file, options().store_id).unwrap();
        // Only the name of a repaired file was not durable.
        assert!(now == bytes || repaired.lost == Some(0));
    }
}

/// Parts are written side by side, and count together or not at all.
#[test]
fn addition_of_which_a_part_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let entry = |key| Entry {
        key,
        sequence: 1,
        value: Some(Value::Inline(b"value")),
    };
    let refused = || Error::InvalidOption {
        option: "part",
        found: String::new(),
        expected: String::new(),
    };
    let part = |key: &'static [u8], fails: bool| {
        move |write: WriteEntry| {
            write(entry(key))?;
            match fails {
                true => Err(refused()),
                false => Ok(key.len()),
            }
        }
    };
    let parts = vec![part(b"a", false), part(b"bb", true), part(b"ccc", false)];
    spill.add(&ADDERS, parts).unwrap_err();
    assert!(spill.version().is_empty());
    let names = || Dir::at(dir.path().to_path_buf(), None).names().unwrap();
    let is_sst = |name: &String| crate::lsm::sst::number(name).is_some();
    assert!(!names().iter().any(is_sst), "{:?}", names());
    let parts = vec![part(b"a", false), part(b"bb", false)];
    assert_eq!(spill.add(&ADDERS, parts).unwrap(), [1, 2]);
    assert_eq!(spill.version().entries(), 2);
}

/// Has no descriptor for the first try to open each sorted file, to make it, and to sync its directory.
#[derive(Debug, Default)]
struct NoDescriptors(Mutex<Vec<(Call, PathBuf)>>);

impl Faults for NoDescriptors {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_of_list = path.to_str().unwrap().contains(LIST);
        let mut refused = self.0.lock();
        let refusal = (call, path.to_path_buf());
        if is_of_list
            || !matches!(call, Call::Open | Call::Create | Call::SyncDir)
            || refused.contains(&refusal)
        {
            return Ok(());
        }
        refused.push(refusal);
        Err(io::Error::from_raw_os_error(libc::EMFILE))
    }
}

/// What the cache holds open is closed for them.
#[test]
fn additions_and_compactions_need_no_descriptors_that_others_can_spare() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let faults = Arc::new(NoDescriptors::default());
    let spill = open(dir.path(), Some(faults.clone()), options()).unwrap();
    let value = |len| (1, Some(vec![7; len]));
    for _ in 0..8 {
        let items = [(vec![1], value(10)), (vec![2], value(1000))];
        add(&spill, &Model::from(items)).unwrap();
    }
    while spill.compact().unwrap() {}
    assert!(spill.levels.counts.compactions.load(Ordering::Relaxed) > 0);
    for refused in [Call::Open, Call::Create, Call::SyncDir] {
        assert!(faults.0.lock().iter().any(|(call, _)| *call == refused));
    }
}

/// Reading this file fails.
#[derive(Debug, Default)]
struct Unreadable(Mutex<PathBuf>);

impl Faults for Unreadable {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        match call == Call::Read && *path == *self.0.lock() {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
}

/// What has the most runs comes first.
#[test]
fn other_slices_are_compacted_beside_one_that_cannot_be_read() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let faults = Arc::new(Unreadable::default());
    let spill = open(dir.path(), Some(faults.clone()), options()).unwrap();
    for first in [0, 0, 0, 100, 100] {
        let keys = (first..first + 50u8).map(|n| (vec![n], (1, Some(vec![n; 100]))));
        add(&spill, &keys.collect()).unwrap();
    }
    let version = spill.version();
    let (_, unreadable) = version.files().last().unwrap();
    *faults.0.lock() = unreadable.path();
    let error = spill.compact_all(&mut |_, _| true).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(spill.version().newest().len(), 3);
    assert_eq!(spill.version().level(1).len(), 1);
    *faults.0.lock() = PathBuf::new();
    spill.try_damaged();
    spill.compact_all(&mut |_, _| true).unwrap();
    assert!(spill.version().newest().is_empty());
}

/// A value that the disk cannot read stays where it is, and others are moved.
#[test]
fn worn_value_file_that_cannot_be_read_is_in_nobodys_way() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let faults = Arc::new(Unreadable::default());
    let spill = open(dir.path(), Some(faults.clone()), options()).unwrap();
    let mut model = Model::new();
    let mut add_round = |keys: &mut dyn Iterator<Item = u64>, round: u64| {
        let item = |key: u64| {
            let value = format!("{key} {round} ").into_bytes().repeat(100);
            (key.to_be_bytes().to_vec(), (round, Some(value)))
        };
        let changes: Model = keys.map(item).collect();
        add(&spill, &changes).unwrap();
        model.extend(changes);
    };
    add_round(&mut (0..200), 1);
    let paths = std::fs::read_dir(dir.path()).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let mut values: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|found| found == "val"))
        .collect();
    values.sort_unstable();
    assert!(values.len() > 2);
    *faults.0.lock() = values[0].clone();
    for round in 2..8 {
        add_round(&mut (0..200).filter(|key| key % 8 != 0), round);
        while spill.compact().unwrap() {}
    }
    assert!(values[0].exists() && !values[1].exists(), "{values:?}");
    *faults.0.lock() = PathBuf::new();
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
}
