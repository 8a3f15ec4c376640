//! Level 0 in slices.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Adds changes, cut where they should be.
fn add_cut(spill: &Spill, changes: &Model) {
    let cuts = spill.cuts();
    assert!(cuts.is_sorted_by(|a, b| a < b));
    let mut parts = vec![Vec::new(); cuts.len() + 1];
    for (key, (sequence, value)) in changes {
        parts[cuts.partition_point(|cut| cut <= key)].push(Entry {
            key,
            sequence: *sequence,
            value: value.as_deref().map(Value::Inline),
        });
    }
    let parts = parts.into_iter().map(part_of);
    spill.add(&ADDERS, parts.collect()).unwrap();
}

fn changes(rng: &mut SmallRng, sequence: u64, count: usize) -> Model {
    let mut item = || {
        let key: u32 = rng.random_range(0..1 << 20);
        let value = rng.random_bool(0.9).then(|| vec![rng.random(); 50]);
        (key.to_be_bytes().to_vec(), (sequence, value))
    };
    (0..count).map(|_| item()).collect()
}

fn large_level_1() -> SpillOptions {
    SpillOptions {
        level_bytes: 16 << 20,
        ..options()
    }
}

/// A load writes each byte few times, and no job is about all that there is.
#[test]
fn compaction_of_a_cut_load_is_in_slices() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut spill = open(dir.path(), None, large_level_1()).unwrap();
    let mut model = Model::new();
    let (mut last, mut most, mut added) = (0, 0, 0);
    for sequence in 0..60 {
        let changes = changes(&mut rng, sequence, 2000);
        add_cut(&spill, &changes);
        model.extend(changes);
        added += 2000;
        while spill.compact().unwrap() {
            let stats = spill.stats();
            let job = stats.compaction_written - last;
            last = stats.compaction_written;
            if sequence > 30 {
                let all: u64 = stats.levels.iter().map(|level| level.bytes).sum();
                most = most.max(100 * job / all);
            }
        }
        if sequence == 29 {
            // What is there says where the slices are.
            drop(spill);
            spill = open(dir.path(), None, large_level_1()).unwrap();
            last = 0;
            let found = contents(&spill.version(), true, 500).unwrap();
            assert!(values(&found) == values(&model));
        }
    }
    let version = spill.version();
    assert!(version.newest().len() < 20, "{:?}", spill.stats());
    assert_eq!(spill.cuts().len(), 7);
    assert!((1..50).contains(&most), "{most} % of all in a job");
    // Of the first half it is not known any more.
    let written = last / (54 * added / 2);
    assert!(written < 5, "{written} times");
    assert!(values(&contents(&version, false, 500).unwrap()) == values(&model));
    super::model::check_files(&spill, dir.path());
}

/// Files that have a single key in common are compacted together, so the newest value of it wins.
#[test]
fn files_that_share_a_key_are_in_one_slice() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, large_level_1()).unwrap();
    let mut model = Model::new();
    // Each addition ends with the key that the one before begins with.
    for sequence in 1..40u64 {
        let from = (40 - sequence) * 100;
        let changes: Model = (from..=from + 100)
            .map(|nth| {
                (
                    nth.to_be_bytes().to_vec(),
                    (sequence, Some(sequence.to_be_bytes().repeat(9))),
                )
            })
            .collect();
        add(&spill, &changes).unwrap();
        model.extend(changes);
        while spill.compact().unwrap() {}
        assert!(contents(&spill.version(), false, 500).unwrap() == model);
    }
    assert!(spill.stats().compactions > 0);
}

/// Slices that have few runs each make up many, as long as nothing is compacted.
#[test]
fn level_0_of_many_slices_has_few_runs() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, large_level_1()).unwrap();
    let mut model = Model::new();
    for sequence in 0..80u64 {
        let from = sequence / 2 * 100 + sequence % 2 * 5;
        let changes: Model = (from..from + 10)
            .map(|nth| (nth.to_be_bytes().to_vec(), (sequence, Some(vec![7; 50]))))
            .collect();
        add(&spill, &changes).unwrap();
        model.extend(changes);
        while spill.compact().unwrap() {}
        assert!(spill.version().newest().len() < 26, "{:?}", spill.stats());
    }
    assert!(contents(&spill.version(), false, 500).unwrap() == model);
}

/// Four runs are compacted, however much is below, if their values are apart; else more of them are awaited.
#[test]
fn few_runs_are_compacted_if_values_are_apart() {
    for value_bytes_min in [200, usize::MAX] {
        let mut rng = SmallRng::seed_from_u64(seed());
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = SpillOptions {
            value_bytes_min,
            ..large_level_1()
        };
        let spill = open(dir.path(), None, options).unwrap();
        let mut sequence = 0;
        let mut add = |count| {
            sequence += 1;
            let items = (0..count).map(|_| {
                let key: u32 = rng.random();
                (key.to_be_bytes().to_vec(), (sequence, Some(vec![1; 300])))
            });
            add_cut(&spill, &items.collect());
        };
        for _ in 0..4 {
            add(3000);
        }
        assert!(spill.compact().unwrap());
        while spill.compact().unwrap() {}
        for _ in 0..4 {
            assert!(!spill.compact().unwrap());
            add(100);
        }
        assert_eq!(spill.compact().unwrap(), value_bytes_min == 200);
    }
}

/// Two runs are compacted once ranges have lost as much time by them as that takes, and not before.
#[test]
fn runs_that_ranges_read_often_are_compacted() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, large_level_1()).unwrap();
    let mut model = Model::new();
    for (sequence, count) in [3000, 3000, 3000, 3000, 500, 500].into_iter().enumerate() {
        let changes = changes(&mut rng, sequence as u64, count);
        add_cut(&spill, &changes);
        model.extend(changes);
        while spill.compact().unwrap() {}
    }
    let version = spill.version();
    assert_eq!(version.newest().len(), 2);
    let all: u64 = version.files().map(|(_, sst)| sst.len()).sum();
    // Each counts in both runs.
    let read = |count| {
        for key in model.keys().step_by(500) {
            spill.add_seeks(key, count);
        }
    };
    read(1);
    assert!(!spill.compact().unwrap(), "few ranges are no reason");
    read(all >> 11);
    while spill.compact().unwrap() {}
    assert!(spill.version().newest().is_empty(), "{:?}", spill.stats());
    // What is new was not read yet.
    add_cut(&spill, &changes(&mut rng, 7, 100));
    assert!(!spill.compact().unwrap());
    read(all);
    assert!(
        !spill.compact().unwrap(),
        "for a hundred items all would be written anew"
    );
}

/// A damaged file keeps what has its keys from being compacted, and nothing else.
#[test]
fn other_slices_are_compacted_beside_a_damaged_one() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, large_level_1()).unwrap();
    for sequence in 0..30 {
        add_cut(&spill, &changes(&mut rng, sequence, 2000));
        while spill.compact().unwrap() {}
    }
    let damaged = spill.version().level(1)[0].number();
    drop(spill);
    let path = dir.path().join(sst::name(damaged));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let spill = open(dir.path(), None, large_level_1()).unwrap();
    let (mut failures, mut compacted) = (0, 0);
    for sequence in 30..90 {
        add_cut(&spill, &changes(&mut rng, sequence, 2000));
        loop {
            match spill.compact() {
                Ok(true) => compacted += 1,
                Ok(false) => break,
                Err(error) => {
                    assert!(!error.is_refusal(), "{error}");
                    failures += 1;
                    assert!(failures < 4, "the same files are tried again");
                }
            }
        }
    }
    assert!(failures > 0);
    assert!(compacted > 5, "{compacted}");
    let compact_all = || {
        let found = spill.compact_all(&mut |_, _| true);
        assert!(found.is_err_and(|error| !error.is_refusal()));
        spill.compaction_latency().stats(1).count
    };
    let tried = compact_all();
    assert_eq!(compact_all(), tried);
    spill.try_damaged();
    assert!(compact_all() > tried);
}
