//! Compactions of a bounded rate.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gphash_test_support::{must_end, wait_for};

use super::*;
use crate::lsm::compaction::STALL_RUNS_MIN;

/// More than threads have at a time, and what is saved up, in bytes.
fn slack(rate: u64) -> u64 {
    rate / 10 + 3 * (64 << 10)
}

/// With threads of its own, which wait.
fn limited(rate: u64, threads: usize) -> SpillOptions {
    SpillOptions {
        rate: Arc::new(RateLimiter::new(Some(rate))),
        pool: Arc::new(Pool::new("compaction", 2)),
        threads,
        ..options()
    }
}

/// Values of so many bytes for some keys.
fn values_of(keys: impl Iterator<Item = u64>, sequence: u64, len: usize) -> Model {
    let item = |key: u64| {
        let value = [&key.to_be_bytes()[..], &vec![7; len - 8]].concat();
        (key.to_be_bytes().to_vec(), (sequence, Some(value)))
    };
    keys.map(item).collect()
}

/// Adds 3,000 keys in six runs; `then` is told of what there is after each.
fn add_sixths(spill: &Spill, then: impl Fn(&Model)) -> Model {
    let mut model = Model::new();
    for sequence in 0..6 {
        let changes = values_of((sequence..3000).step_by(6), sequence, 200);
        add(spill, &changes).unwrap();
        model.extend(changes);
        then(&model);
    }
    model
}

/// Checks that compactions since then have read and written no more than their rate allows. Filters and indexes of files
/// are not read.
fn check_rate(spill: &Spill, rate: u64, since: Instant) {
    let stats = spill.stats();
    let bytes = stats.compaction_read + stats.compaction_written;
    let allowed = since.elapsed().as_secs_f64() * rate as f64 + slack(rate) as f64;
    assert!(bytes as f64 * 0.8 <= allowed, "{stats:?}");
    assert!(stats.compaction_rate_wait > Duration::ZERO, "{stats:?}");
}

#[test]
fn compaction_keeps_to_its_rate() {
    let rate = 512 << 10;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let since = Instant::now();
    let mut wide = limited(rate, 1);
    // No level is too large.
    wide.level_bytes = 1 << 20;
    let spill = open(dir.path(), None, wide).unwrap();
    let model = add_sixths(&spill, |model| {
        assert!(contents(&spill.version(), false, 100).unwrap() == *model);
    });
    // Of six runs, four are due.
    wait_for("level 0 is compacted", || {
        spill.version().newest().len() < 4 && spill.stats().compaction_written > 400_000
    });
    check_rate(&spill, rate, since);
    assert!(contents(&spill.version(), true, 100).unwrap() == model);
}

/// A level that is far too large is not left to grow.
#[test]
fn level_that_is_far_too_large_does_not_wait_for_the_rate() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut wide = options();
    wide.level_bytes = 1 << 20;
    let spill = open(dir.path(), None, wide).unwrap();
    let model = add_sixths(&spill, |_| while spill.compact().unwrap() {});
    let limit = 2 * (64 << 10);
    assert!(spill.stats().levels[1].bytes > limit);
    drop(spill);
    let spill = open(dir.path(), None, limited(1, 1)).unwrap();
    wait_for("files go down", || spill.stats().levels[1].bytes <= limit);
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
    must_end(move || drop(spill));
}

/// Values of files that are worn, too.
#[test]
fn moved_values_keep_to_the_rate() {
    let rate = 512 << 10;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let since = Instant::now();
    let spill = open(dir.path(), None, limited(rate, 0)).unwrap();
    let mut model = Model::new();
    for sequence in 0..24 {
        // Of each round some keys are not changed again, and each of its value files has one.
        let changes = values_of((0..400).filter(|key| key % 24 >= sequence), sequence, 1000);
        add(&spill, &changes).unwrap();
        model.extend(changes);
        while spill.compact().unwrap() {}
    }
    let stats = spill.stats();
    let sorted: u64 = stats.levels.iter().map(|level| level.bytes).sum();
    assert!(stats.compaction_written > 20 * sorted, "{stats:?}");
    check_rate(&spill, rate, since);
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
}

/// Has a compaction stop once it reads a value.
#[derive(Debug, Default)]
struct StopAtValue {
    levels: std::sync::OnceLock<std::sync::Weak<Levels>>,
    values: AtomicU64,
}

impl Faults for StopAtValue {
    fn before(&self, call: crate::pm::Call, path: &std::path::Path) -> std::io::Result<()> {
        let levels = self.levels.get().and_then(std::sync::Weak::upgrade);
        if let Some(levels) = levels
            && call == crate::pm::Call::Read
            && path.extension().is_some_and(|kind| kind == "val")
        {
            levels.plan().is_stopping = true;
            self.values.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Long values that are moved keep a store that is closed no longer than short ones.
#[test]
fn compaction_of_long_values_stops_after_one() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let faults = Arc::new(StopAtValue::default());
    let mut wide = options();
    wide.value_file_bytes = 64 << 20;
    let spill = open(dir.path(), Some(faults.clone()), wide).unwrap();
    faults.levels.set(Arc::downgrade(&spill.levels)).unwrap();
    let is_stopped = || faults.values.load(Ordering::Relaxed) > 0;
    for sequence in 0..24 {
        // Most of the first round is overwritten: twenty values are left of its file.
        let keys = (0..80).filter(|key| sequence == 0 || key % 4 != 0);
        add(&spill, &values_of(keys, sequence, 100_000)).unwrap();
        while !is_stopped() && spill.compact().unwrap() {}
    }
    let values = faults.values.load(Ordering::Relaxed);
    assert!((1..=2).contains(&values), "{values} values");
}

/// It would take years, and additions that wait would take a second each.
#[test]
fn additions_do_not_wait_for_the_rate() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, limited(1, 1)).unwrap();
    let mut model = Model::new();
    for sequence in 0..60 {
        let changes = values_of(
            (0..1000).skip(to_usize(sequence % 9)).step_by(9),
            sequence,
            100,
        );
        add(&spill, &changes).unwrap();
        model.extend(changes);
    }
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
    wait_for("level 0 is compacted", || {
        spill.version().newest().len() < STALL_RUNS_MIN
    });
    assert!(spill.stats().compactions > 0);
    // What was late at the opening does not wait either.
    let version = spill.version();
    must_end(move || drop(spill));
    drop(version);
    let spill = open(dir.path(), None, options()).unwrap();
    let mut runs = spill.version().newest().len();
    while runs < STALL_RUNS_MIN {
        let changes = values_of(0..1000, 1000, 100);
        add(&spill, &changes).unwrap();
        model.extend(changes);
        runs = spill.version().newest().len();
    }
    drop(spill);
    let spill = open(dir.path(), None, limited(1, 1)).unwrap();
    wait_for("level 0 is compacted", || {
        spill.version().newest().len() < STALL_RUNS_MIN
    });
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
    must_end(move || drop(spill));
}

/// What was under way is left undone.
#[test]
fn closing_does_not_wait_for_the_rate() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, limited(1, 1)).unwrap();
    let model = add_sixths(&spill, |_| ());
    wait_for("compaction waits", || {
        spill.stats().compaction_rate_wait > Duration::ZERO
    });
    assert_eq!(spill.stats().compactions, 0);
    must_end(move || drop(spill));
    let spill = open(dir.path(), None, options()).unwrap();
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
    super::model::check_files(&spill, dir.path());
}

/// A catalog whose disk may be full.
struct FullDisk {
    catalog: Arc<FileCatalog>,
    is_full: Arc<AtomicBool>,
}

impl Catalog for FullDisk {
    fn edit(&self, added: &[LevelFile], removed: &[u64]) -> Result<()> {
        self.catalog.edit(added, removed)
    }

    fn may_compact(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }

    fn write(&self, write: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        match self.may_compact() {
            true => write(),
            false => Err(crate::Error::NoSpace {
                path: PathBuf::new(),
                needed: 1,
                source: Arc::new(std::io::ErrorKind::StorageFull.into()),
            }),
        }
    }
}

/// Files that are half written take room that others need.
#[test]
fn compaction_on_a_full_disk_does_not_wait_for_its_rate() {
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let dir = Dir::at(temp.path().to_path_buf(), None);
    let catalog = FullDisk {
        catalog: FileCatalog::open(dir.clone()).unwrap(),
        is_full: Arc::clone(&is_full),
    };
    let spill = Spill::open(dir, &[], Arc::new(catalog), limited(1, 1)).unwrap();
    let model = add_sixths(&spill, |_| ());
    wait_for("compaction waits", || {
        spill.stats().compaction_rate_wait > Duration::ZERO
    });
    is_full.store(true, Ordering::Relaxed);
    wait_for("half-written files go", || {
        let names = std::fs::read_dir(temp.path()).unwrap();
        let numbers = names.filter_map(|name| sst::number(name.unwrap().file_name().to_str()?));
        numbers.count() == spill.version().files().count()
    });
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
    must_end(move || drop(spill));
}
