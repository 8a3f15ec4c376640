//! Readers of many versions beside additions and compactions in threads of their own.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::pm::Call;
use crate::width::low_half;

/// A key has the same number in each part; an addition changes one key in all parts.
fn key(part: u8, number: u32) -> Vec<u8> {
    [&[part][..], &number.to_be_bytes()].concat()
}

const PARTS: u8 = 4;

#[test]
fn readers_see_whole_additions() {
    let seed = seed();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let threads = SpillOptions {
        threads: 2,
        cache_bytes: 100_000,
        ..options()
    };
    let spill = open(dir.path(), None, threads.clone()).unwrap();
    let mut model = Model::new();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for nth in 0..2 {
            let (spill, is_done) = (&spill, &is_done);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(nth));
                while !is_done.load(Ordering::Relaxed) {
                    let version = spill.version();
                    let number = rng.random_range(0..600u32);
                    // A tombstone that hides nothing may be there or not.
                    let value = |part| {
                        let found = version.get(&key(part, number)).unwrap();
                        found.filter(|(_, value)| value.is_some())
                    };
                    let expected = value(0);
                    for part in 1..PARTS {
                        assert_eq!(value(part), expected);
                    }
                    let from = key(1, number);
                    let range = (Bound::Included(&from[..]), Bound::Unbounded);
                    let page = page(&version, range, false, 1).unwrap();
                    if let Some((_, value)) = expected {
                        assert_eq!(page.items, [(from, value)]);
                    }
                }
            });
        }
        let mut rng = SmallRng::seed_from_u64(seed);
        for sequence in 0..60 {
            let mut changes = Model::new();
            for _ in 0..100 {
                let number = rng.random_range(0..600u32);
                let value = rng
                    .random_bool(0.8)
                    .then(|| number.to_be_bytes().repeat(30));
                for part in 0..PARTS {
                    changes.insert(key(part, number), (sequence, value.clone()));
                }
            }
            add(&spill, &changes).unwrap();
            model.extend(changes);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(values(&contents(&spill.version(), false, 100).unwrap()) == values(&model));
    // Nobody else compacts.
    while spill.stats().compactions == 0 {
        std::thread::yield_now();
    }
    // What was under way is left undone, and nothing of it stays.
    drop(spill);
    let spill = open(dir.path(), None, options()).unwrap();
    assert!(values(&contents(&spill.version(), true, 100).unwrap()) == values(&model));
    super::model::check_files(&spill, dir.path());
}

/// Fails what the threads that compact ask for, until it is cured.
#[derive(Debug, Default)]
struct Failing {
    refused: AtomicU64,
    is_cured: AtomicBool,
}

impl Faults for Failing {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        let thread = std::thread::current();
        let is_theirs = thread
            .name()
            .is_some_and(|name| name.starts_with("gphash-compaction"));
        if !is_theirs || self.is_cured.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(libc::ENOSPC))
    }
}

/// Additions and readers go on while compaction fails, and it is made up for afterwards.
#[test]
fn compaction_that_fails_is_retried() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let faults = Arc::new(Failing::default());
    let one = SpillOptions {
        threads: 1,
        ..options()
    };
    let spill = open(dir.path(), Some(faults.clone()), one).unwrap();
    let mut model = Model::new();
    for sequence in 0..30 {
        let numbers = (low_half(sequence % 7)..600).step_by(7);
        let changes = numbers.map(|number| (key(0, number), (sequence, Some(vec![7; 50]))));
        let changes: Model = changes.collect();
        add(&spill, &changes).unwrap();
        model.extend(changes);
    }
    while faults.refused.load(Ordering::Relaxed) < 3 {
        std::thread::yield_now();
    }
    assert_eq!(spill.stats().compactions, 0);
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
    faults.is_cured.store(true, Ordering::Relaxed);
    while spill.version().newest().len() > 4 {
        std::thread::yield_now();
    }
    assert!(spill.stats().compactions > 0);
    assert!(contents(&spill.version(), false, 100).unwrap() == model);
}
