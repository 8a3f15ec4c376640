//! Readers of many versions beside additions and compactions in threads of their own.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// A key has the same number in each part; an addition changes one key in all parts.
fn key(part: u8, number: u32) -> Vec<u8> {
    [&[part][..], &number.to_be_bytes()].concat()
}

const PARTS: u8 = 4;

#[test]
fn readers_see_whole_additions() {
    let seed = seed();
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let threads = SpillOptions {
        threads: 2,
        cache_bytes: 100_000,
        ..options()
    };
    let spill = open(folder.path(), None, threads.clone()).unwrap();
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
                    let expected = version.get(&key(0, number)).unwrap();
                    for part in 1..PARTS {
                        assert_eq!(version.get(&key(part, number)).unwrap(), expected);
                    }
                    let from = key(1, number);
                    let range = (Bound::Included(&from[..]), Bound::Unbounded);
                    let page = version.page(range, false, 1).unwrap();
                    if let Some((sequence, Some(_))) = expected {
                        assert_eq!(
                            (&page.items[0].key, page.items[0].sequence),
                            (&from, sequence)
                        );
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
    // What was under way is left undone, and nothing of it stays.
    drop(spill);
    let spill = open(folder.path(), None, options()).unwrap();
    assert!(values(&contents(&spill.version(), true, 100).unwrap()) == values(&model));
    super::model::check_files(&spill, folder.path());
}
