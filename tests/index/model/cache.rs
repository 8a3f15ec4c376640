//! The frozen bucket cache: whatever it holds, the answers are those of the file. On the CPU engine,
//! which has no cache, the same must hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gphash::{CachePolicy, Engine, Index, Options};
use rand::RngExt;

use crate::{Checked, engine, folder, options, rng};

const POLICIES: [CachePolicy; 3] = [CachePolicy::Lfu, CachePolicy::Lru, CachePolicy::Random];

/// A cache that is loaded when the test says so.
fn cached(policy: CachePolicy) -> Options {
    options()
        .cache_ratio(0.5)
        .cache_policy(policy)
        .cache_period(None)
}

/// Looks the keys up often enough for a sample to see each.
fn heat(index: &Index<u64, [u64; 4]>, keys: &[u64]) {
    let mut values = vec![[0; 4]; keys.len()];
    for _ in 0..32 {
        index.get(keys, &mut values).unwrap();
    }
}

#[test]
fn cache_agrees_with_the_file_after_every_change() {
    for policy in POLICIES {
        let folder = folder();
        let options = cached(policy).capacity(1000);
        let mut checked = Checked::new(Index::create(folder.path().join("f"), &options).unwrap());
        let keys: Vec<u64> = (0..1000).collect();
        let values =
            |tag: u64| -> Vec<[u64; 4]> { keys.iter().map(|&key| [key, tag, 0, 0]).collect() };
        checked.insert(&keys, &values(0));
        for round in 1..20 {
            heat(&checked.index, &keys[..200]);
            checked.index.reload_cache().unwrap();
            checked.get(&keys, [9; 4]);
            checked.update(&keys[100..300], &values(round)[100..300]);
            checked.get(&keys, [9; 4]);
            checked.remove(&keys[..50]);
            checked.get(&keys, [9; 4]);
            checked.upsert(&keys[25..150], &values(100 + round)[25..150]);
            checked.get(&keys, [9; 4]);
            checked.insert(&keys, &values(200 + round));
            checked.get(&keys, [9; 4]);
        }
        checked.check();
    }
}

#[test]
fn cache_survives_growth_between_refreshes() {
    let folder = folder();
    let options = cached(CachePolicy::Lfu).capacity(16);
    let mut checked = Checked::new(Index::create(folder.path().join("f"), &options).unwrap());
    for round in 0..30u64 {
        let keys: Vec<u64> = (round * 300..(round + 1) * 300).collect();
        let values: Vec<[u64; 4]> = keys.iter().map(|&key| [key; 4]).collect();
        checked.insert(&keys, &values);
        heat(&checked.index, &keys);
        checked.index.reload_cache().unwrap();
        let all: Vec<u64> = (0..(round + 2) * 300).collect();
        checked.get(&all, [9; 4]);
    }
    checked.check();
}

#[test]
fn cache_refresh_beside_growth_keeps_results_right() {
    const KEYS: u64 = 2000;
    for policy in POLICIES {
        let folder = folder();
        let options = cached(policy)
            .capacity(64)
            .cache_period(Some(Duration::from_millis(3)));
        let index = Index::<u64, [u64; 8]>::create(folder.path().join("f"), &options).unwrap();
        let keys: Vec<u64> = (0..KEYS).collect();
        let first: Vec<[u64; 8]> = keys.iter().map(|&key| [key; 8]).collect();
        index.insert(&keys, &first).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    index.reload_cache().unwrap();
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut rng = rng("lookups beside loads");
                    while !stop.load(Ordering::Relaxed) {
                        // Half of the keys are removed and come back; the others stay.
                        let keys: Vec<u64> = (0..500).map(|_| rng.random_range(0..KEYS)).collect();
                        let mut held = vec![[u64::MAX; 8]; keys.len()];
                        let found = index.get(&keys, &mut held).unwrap();
                        for (i, (key, value)) in keys.iter().zip(&held).enumerate() {
                            if !found.contains(i) {
                                assert_eq!(key % 2, 1, "{key} was lost");
                                continue;
                            }
                            assert_eq!(value[0] % KEYS, *key, "a value of another key");
                            assert!(value.iter().all(|word| *word == value[0]), "{value:?}");
                        }
                    }
                });
            }
            let odd: Vec<u64> = keys.iter().copied().filter(|key| key % 2 == 1).collect();
            let mut seen = vec![[0; 8]; keys.len()];
            for round in 1..60u64 {
                let changed: Vec<[u64; 8]> =
                    keys.iter().map(|&key| [key + round * KEYS; 8]).collect();
                let present = index.update(&keys, &changed).unwrap();
                assert_eq!(present.count_ones(..) as u64, KEYS);
                // What this thread has changed it must see, cached or not.
                assert_eq!(
                    index.get(&keys, &mut seen).unwrap().count_ones(..) as u64,
                    KEYS
                );
                assert_eq!(seen, changed);
                assert_eq!(index.remove(&odd).unwrap().count_ones(..), odd.len());
                let back: Vec<[u64; 8]> = odd.iter().map(|&key| [key + round * KEYS; 8]).collect();
                assert_eq!(index.insert(&odd, &back).unwrap().count_ones(..), odd.len());
                let new: Vec<u64> = (0..100).map(|n| KEYS * (1000 + round * 100 + n)).collect();
                index.insert(&new, &vec![[0; 8]; 100]).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn cache_serves_hot_values() {
    let folder = folder();
    // Values whose checksums are compared come from the file.
    let options = cached(CachePolicy::Lfu)
        .capacity(20_000)
        .verify_checksums(false);
    let index = Index::<u64, [u64; 4]>::create(folder.path().join("f"), &options).unwrap();
    let keys: Vec<u64> = (0..10_000).collect();
    let values: Vec<[u64; 4]> = keys.iter().map(|&key| [key; 4]).collect();
    index.insert(&keys, &values).unwrap();
    heat(&index, &keys[..100]);
    index.reload_cache().unwrap();
    let before = index.stats();
    heat(&index, &keys[..100]);
    let after = index.stats();
    let hits = after.cache_hits - before.cache_hits;
    match engine() {
        Engine::Cpu => assert_eq!((hits, after.cache_lookups), (0, 0)),
        _ => assert!(hits > 32 * 90, "{hits} hits of {}", 32 * 100),
    }
}

#[test]
fn cache_is_off_without_a_share_of_the_buckets() {
    let folder = folder();
    let options = options().cache_ratio(0.0).device_memory_budget(1 << 30);
    let index = Index::<u64, [u64; 4]>::create(folder.path().join("f"), &options).unwrap();
    index.insert(&[1, 2], &[[1; 4], [2; 4]]).unwrap();
    heat(&index, &[1, 2]);
    index.reload_cache().unwrap();
    assert_eq!(index.get_one(&2).unwrap(), Some([2; 4]));
    assert_eq!(index.stats().cache_lookups, 0);
}
