//! Reads that wait for a disk side by side: what they find, and in which order they ask.

use std::io;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::lsm::lookups::Lookup;
use crate::pm::Call;

/// Notes which reads there were, some of those that would not wait fail, and others are too short.
#[derive(Debug, Default)]
struct Reads {
    calls: Mutex<Vec<Call>>,
    /// One in so many that would not wait fails, if it is not 0.
    failing: AtomicU64,
}

impl Reads {
    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock())
    }

    /// Which were one behind the other, and how many.
    fn take_runs(&self) -> Vec<(Call, usize)> {
        let calls = self.take();
        let runs = calls.chunk_by(|a, b| a == b);
        runs.map(|run| (run[0], run.len())).collect()
    }
}

impl Faults for Reads {
    fn before(&self, call: Call, _: &Path) -> io::Result<()> {
        if !matches!(call, Call::Read | Call::TryRead) {
            return Ok(());
        }
        let mut calls = self.calls.lock();
        calls.push(call);
        let failing = self.failing.load(Ordering::Relaxed);
        let is_due = |failing| (calls.len() as u64).is_multiple_of(failing);
        match call == Call::TryRead && failing > 0 && is_due(failing) {
            true => Err(io::ErrorKind::Other.into()),
            false => Ok(()),
        }
    }

    /// Where some fail, those of the longest values are short.
    fn most_bytes(&self) -> usize {
        match self.failing.load(Ordering::Relaxed) {
            0 => usize::MAX,
            _ => 5 << 10,
        }
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Additions of keys of which every third one is absent, with values inline and apart, and tombstones.
fn fill(spill: &Spill, rng: &mut SmallRng) -> Model {
    let mut model = Model::new();
    for sequence in 0..6 {
        let mut changes = Model::new();
        for _ in 0..300 {
            let len = [0, 50, 299, 300, 2000, 9000][rng.random_range(0..6)];
            let value = rng.random_bool(0.8).then(|| vec![rng.random(); len]);
            let number = rng.random_range(0..600) / 3 * 3 + rng.random_range(0..2);
            changes.insert(key(number), (sequence, value));
        }
        add(spill, &changes).unwrap();
        model.extend(changes);
        if sequence == 3 {
            while spill.compact().unwrap() {}
        }
    }
    model
}

/// What is found of keys, by their positions; each once.
fn found(files: &Arc<LsmVersion>, keys: &[Vec<u8>]) -> BTreeMap<usize, Option<Vec<u8>>> {
    let lookups = keys.iter().enumerate();
    let lookups = lookups.map(|(nth, key)| Lookup { nth, key, files });
    let mut found = BTreeMap::new();
    get_each(lookups, |lookup, value| {
        assert_eq!(lookup.key, keys[lookup.nth]);
        assert_eq!(found.insert(lookup.nth, value), None);
    })
    .unwrap();
    found
}

#[test]
fn lookups_find_the_same_side_by_side() {
    let mut rng = SmallRng::seed_from_u64(seed());
    // On a disk, what has been written is in memory.
    for dir in [
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/dev/shm").unwrap(),
    ] {
        let reads = Arc::new(Reads::default());
        let spill = open(dir.path(), Some(reads.clone()), options()).unwrap();
        let model = fill(&spill, &mut rng);
        let list = Dir::at(dir.path().into(), None)
            .open_file(LIST, false)
            .unwrap();
        let knows_tries = list.try_read(&mut [0], 0).is_ok();
        for failing in [0, 1, 2, 5] {
            reads.failing.store(failing, Ordering::Relaxed);
            let mut calls = Vec::new();
            for len in [1, 2, 63, 64, 65, 300] {
                let keys: Vec<Vec<u8>> = (0..len).map(|_| key(rng.random_range(0..610))).collect();
                // Its blocks are in memory from here on; those of the next one are not.
                let reopened = open(dir.path(), Some(reads.clone()), options()).unwrap();
                for spill in [&reopened, &reopened, &spill] {
                    let version = spill.version();
                    reads.take();
                    let found = found(&version, &keys);
                    calls.extend(reads.take());
                    for (nth, key) in keys.iter().enumerate() {
                        let expected = version.get(key).unwrap().map(|(_, value)| value);
                        assert_eq!(found.get(&nth), expected.as_ref());
                        let known = model.get(key).map(|(_, value)| value.clone());
                        assert_eq!(expected.flatten(), known.flatten());
                    }
                }
            }
            let count = |kind| calls.iter().filter(|call| **call == kind).count();
            let (tried, read) = (count(Call::TryRead), count(Call::Read));
            println!("{tried} tries, {read} reads, knows tries: {knows_tries}");
            if failing == 0 && knows_tries {
                // One key alone waits.
                assert!(tried > 10 * read, "all have succeeded");
            }
            for from_end in [false, true] {
                let found = contents(&spill.version(), from_end, 100).unwrap();
                assert!(values(&found) == values(&model));
            }
        }
    }
}

/// Filters that have no room in memory are waited for before blocks are.
#[test]
fn disk_is_asked_for_all_blocks_although_filters_are_read() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let reads = Arc::new(Reads::default());
    reads.failing.store(1, Ordering::Relaxed);
    let mut wide = options();
    wide.file_bytes = 1 << 20;
    let spill = open(dir.path(), Some(reads.clone()), wide).unwrap();
    let item = |number: u32| (key(number), (1, Some(vec![7; 20])));
    // Two files, of which the second has its filter in memory.
    for file in [0, 2000] {
        add(&spill, &(file..file + 2000).map(item).collect()).unwrap();
    }
    let keys: Vec<Vec<u8>> = (0..4000).step_by(400).map(key).collect();
    reads.take();
    assert_eq!(found(&spill.version(), &keys).len(), 10);
    let runs = reads.take_runs();
    let (tries, read) = (Call::TryRead, Call::Read);
    assert_eq!(runs, [(tries, 10), (read, 1), (tries, 5), (read, 12)]);
}

/// All blocks are asked for before one is waited for, and then all values.
#[test]
fn disk_is_asked_for_all_before_one_is_waited_for() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let reads = Arc::new(Reads::default());
    // None is in memory.
    reads.failing.store(1, Ordering::Relaxed);
    let mut wide = options();
    (wide.file_bytes, wide.value_file_bytes) = (1 << 20, 1 << 20);
    wide.meta = Arc::new(Clock::new(u64::MAX));
    let spill = open(dir.path(), Some(reads.clone()), wide).unwrap();
    let item = |number: u32| (key(number), (1, Some(vec![7; 1000])));
    add(&spill, &(0..2000).map(item).collect()).unwrap();
    // None shares its block with another, or its value's end.
    let keys: Vec<Vec<u8>> = (0..2000).step_by(200).map(key).collect();
    reads.take();
    let before = spill.stats();
    assert_eq!(found(&spill.version(), &keys).len(), keys.len());
    let stats = spill.stats();
    // Each block was looked for once, although each key was looked up twice.
    let missed = stats.cache_misses - before.cache_misses;
    assert_eq!(stats.cache_hits, before.cache_hits);
    let runs = reads.take_runs();
    // Of the last pass, each key waits for its block, then asks for its value.
    let (first, last) = (runs[0], runs[runs.len() - 1]);
    assert_eq!(first, (Call::TryRead, keys.len()));
    assert_eq!(last, (Call::Read, keys.len()), "{runs:?}");
    assert_eq!(runs.len(), 1 + 2 * keys.len() + 1, "{runs:?}");
    let again = open(dir.path(), None, options()).unwrap();
    for key in &keys {
        assert!(again.version().get(key).unwrap().is_some());
    }
    assert_eq!(missed, again.stats().cache_misses);
    // The values of a page, of which none adjoins another.
    let spread: Model = (0..2000)
        .step_by(2)
        .map(|number| (key(number), (2, None)))
        .collect();
    add(&spill, &spread).unwrap();
    reads.take();
    let page = page(
        &spill.version(),
        (Bound::Unbounded, Bound::Unbounded),
        false,
        100,
    )
    .unwrap();
    assert_eq!(page.items.len(), 100);
    let calls = reads.take();
    let first_try = calls
        .iter()
        .position(|call| *call == Call::TryRead)
        .unwrap();
    let of_values = &calls[first_try..];
    assert_eq!(of_values[..50], [Call::TryRead; 50]);
    assert_eq!(of_values[50..], [Call::Read; 50]);
}
