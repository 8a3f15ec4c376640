//! The hot cache: all answers are those of a store without it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gphash::Error;
use gphash::store::{
    Durability, HotCacheOptions, Request, Response, Store, StoreOptions, WriteBatch,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::disk::{Failing, folders};
use super::model::{Model, any_value, contents, expect, was};
use super::{append, seed};

/// One get in so many of a thread is sampled.
const SAMPLE_INTERVAL: usize = 61;

/// A cache of so many buckets, whose model takes over after each sampled get.
fn tiny(buckets: u64, bins: u32) -> HotCacheOptions {
    let bytes = buckets * HotCacheOptions::MIN_BYTES;
    HotCacheOptions::new(bytes).bins(bins).samples(1)
}

fn options(cache: HotCacheOptions, partitions: u32) -> StoreOptions {
    crate::options()
        .partitions(partitions)
        .hot_cache(cache)
        .merge_operator(append())
}

/// Gives a store so many keys that nobody reads: then some bins are hot, and others are not.
fn fill(store: &Store, count: u32) -> Model {
    let keys = (0..count).map(|nth| format!("filler {nth}").into_bytes());
    let items: Model = keys.map(|key| (key, Vec::new())).collect();
    let put = |(key, value): (&Vec<u8>, &Vec<u8>)| Request::Put {
        key: key.clone(),
        value: value.clone(),
    };
    store.execute(items.iter().map(put).collect()).unwrap();
    items
}

/// Reads keys until the cache has hot bins.
fn warm_up(store: &Store, keys: &[&[u8]]) {
    let swaps = store.stats().hot_cache.swaps;
    while store.stats().hot_cache.swaps == swaps || store.stats().hot_cache.hot_bins == 0 {
        for key in keys.iter().cycle().take(SAMPLE_INTERVAL + 1) {
            store.get(key).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// So many rounds, and then more until enough has been seen, or for five minutes: on a busy machine models come late.
fn rounds(least: usize, has_seen_enough: impl Fn() -> bool) -> impl Iterator<Item = usize> {
    let mut ends = None;
    (0..).take_while(move |round| {
        if *round < least {
            return true;
        }
        thread::sleep(Duration::from_millis(1));
        let ends = *ends.get_or_insert_with(|| Instant::now() + Duration::from_secs(300));
        !has_seen_enough() && Instant::now() < ends
    })
}

/// Any request of one key, by the verb for it or in a batch, a transaction or a write batch.
fn change(store: &Store, model: &mut Model, rng: &mut SmallRng) {
    let key = vec![b'k'; rng.random_range(0..30)];
    let new = rng.random_bool(0.7).then(|| any_value(rng));
    let request = match rng.random_range(0..7) {
        0..2 => Request::Put {
            key: key.clone(),
            value: any_value(rng),
        },
        2 => Request::Delete { key: key.clone() },
        3 => Request::Merge {
            key: key.clone(),
            operand: vec![b'+'; 20],
        },
        4 => Request::PutIfAbsent {
            key: key.clone(),
            value: any_value(rng),
        },
        5 => Request::CompareAndSwap {
            key: key.clone(),
            expected: model.get(&key).cloned(),
            new,
        },
        _ => Request::Swap {
            key: key.clone(),
            new,
        },
    };
    match (rng.random_range(0..4), request) {
        (0, Request::Put { key, value }) => {
            let mut transaction = store.transaction();
            let before = transaction.get(&key).unwrap();
            assert!(before.as_ref() == model.get(&key));
            transaction.put(key.clone(), value.clone()).unwrap();
            transaction.delete("no such key").unwrap();
            transaction.commit().unwrap();
            model.insert(key, value);
        }
        (1, Request::Delete { key }) => {
            let mut batch = WriteBatch::new();
            batch.put("beside", "it");
            batch.delete(key.clone());
            store.write(batch).unwrap();
            model.remove(&key);
            model.insert(b"beside".to_vec(), b"it".to_vec());
        }
        (2, Request::Put { key, value }) => {
            store.put(key.clone(), value.clone()).unwrap();
            model.insert(key, value);
        }
        (2, Request::Delete { key }) => {
            store.delete(key.clone()).unwrap();
            model.remove(&key);
        }
        (_, request) => {
            let expected = expect(model, &request);
            let response = store.execute(vec![request]).unwrap().pop().unwrap();
            assert!(was(response) == expected, "another answer");
        }
    }
}

#[test]
fn hot_cache_answers_as_a_map() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for (partitions, buckets, bins) in [(1, 1, 1), (3, 2, 4), (1, 40, 16), (3, 1, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = options(tiny(buckets, bins), partitions);
        let options = match rng.random_bool(0.5) {
            true => options.memory_budget(StoreOptions::MIN_BUDGET),
            false => options,
        };
        let mut store = Store::open(&path, &options).unwrap();
        let mut model = fill(&store, 1000);
        let read = |store: &Store, model: &Model, rng: &mut SmallRng| {
            for _ in 0..rng.random_range(0..20) {
                let key = vec![b'k'; rng.random_range(0..30)];
                let found = store.get(&key).unwrap();
                assert!(found.as_ref() == model.get(&key), "of {} bytes", key.len());
            }
        };
        for step in 0..3000 {
            change(&store, &mut model, &mut rng);
            read(&store, &model, &mut rng);
            match rng.random_range(0..200) {
                0 => store.checkpoint().unwrap(),
                1 => assert!(contents(&store) == model),
                _ => {}
            }
            if step == 1500 {
                drop(store);
                store = Store::open(&path, &options).unwrap();
            }
        }
        let has_seen_enough = || {
            let stats = store.stats().hot_cache;
            stats.swaps > 10 && stats.hits + stats.misses > 0
        };
        for _ in rounds(0, has_seen_enough) {
            read(&store, &model, &mut rng);
        }
        let stats = store.stats().hot_cache;
        println!("{partitions} partitions: {stats:?}");
        assert!(stats.swaps > 10, "{stats:?}");
        assert!(stats.hits + stats.misses > 0, "{stats:?}");
        store.close().unwrap();
    }
}

/// Keys that all threads use.
const KEYS: usize = 8;

fn key(nth: usize) -> [u8; 1] {
    [nth.to_le_bytes()[0]]
}

/// The value of a version of a key. Every fifth one is a deletion, and the first one comes before all puts.
fn value(nth: usize, version: u64) -> Option<Vec<u8>> {
    let word = version * KEYS as u64 + nth as u64;
    (!version.is_multiple_of(5)).then(|| word.to_le_bytes().repeat(1 + 3 * nth))
}

/// What has begun to be written to a key, and what was answered.
#[derive(Default)]
struct Register {
    begun: AtomicU64,
    returned: AtomicU64,
}

/// Writes the next version of two keys, in one of the ways that there are.
fn write(store: &Store, registers: &[Register], nths: [usize; 2], rng: &mut SmallRng) {
    let next = |nth: usize| {
        let version = registers[nth].begun.fetch_add(1, Ordering::SeqCst) + 1;
        (nth, version)
    };
    let request = |(nth, version): (usize, u64)| Request::Swap {
        key: key(nth).to_vec(),
        new: value(nth, version),
    };
    let written = match rng.random_range(0..4) {
        0 => {
            let written = next(nths[0]);
            match value(nths[0], written.1) {
                Some(value) => store.put(key(nths[0]), value).unwrap(),
                None => store.delete(key(nths[0])).unwrap(),
            }
            vec![written]
        }
        1 => {
            let written = nths.map(next);
            let mut transaction = store.transaction();
            for (nth, version) in written {
                match value(nth, version) {
                    Some(value) => transaction.put(key(nth), value).unwrap(),
                    None => transaction.delete(key(nth)).unwrap(),
                }
            }
            transaction.commit().unwrap();
            written.to_vec()
        }
        2 => {
            let written = next(nths[1]);
            let old = match value(nths[1], written.1) {
                Some(value) => store.swap(key(nths[1]), value).unwrap(),
                None => store.take(key(nths[1])).unwrap(),
            };
            assert_eq!(old, value(written.0, written.1 - 1));
            vec![written]
        }
        _ => {
            let written = nths.map(next);
            for (response, (nth, version)) in store
                .execute(written.map(request).to_vec())
                .unwrap()
                .into_iter()
                .zip(written)
            {
                let old = value(nth, version - 1);
                assert!(matches!(response, Response::Value(found) if found == old));
            }
            written.to_vec()
        }
    };
    for (nth, version) in written {
        registers[nth].returned.store(version, Ordering::SeqCst);
    }
}

/// A get must find what no put that had returned before was replaced by, and nothing that no put had begun with.
fn read(store: &Store, register: &Register, nth: usize) {
    let least = register.returned.load(Ordering::SeqCst);
    let found = store.get(&key(nth)).unwrap();
    let most = register.begun.load(Ordering::SeqCst);
    let is_possible = (least..=most).any(|version| value(nth, version) == found);
    assert!(is_possible, "key {nth}: {found:?}, of {least} to {most}");
}

/// Each key is a linearizable register, whichever side serves it, while models swap and checkpoints are taken.
#[test]
fn hot_cache_is_linearizable_during_swaps_and_checkpoints() {
    let seed = seed();
    for partitions in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::open(&path, &options(tiny(2, 5), partitions)).unwrap();
        fill(&store, 400);
        let registers: [Register; KEYS] = Default::default();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (store, registers, is_over) = (&store, &registers, &is_over);
            // Each writer has keys of its own, so that versions are in order.
            let writers: Vec<_> = (0..2)
                .map(|writer: usize| {
                    scope.spawn(move || {
                        let mut rng = SmallRng::seed_from_u64(seed + writer as u64);
                        let has_seen_enough = || {
                            let stats = store.stats().hot_cache;
                            stats.swaps > 10 && stats.hits > 10
                        };
                        for _ in rounds(4000, has_seen_enough) {
                            let first = rng.random_range(0..KEYS / 2);
                            let second = (first + rng.random_range(1..KEYS / 2)) % (KEYS / 2);
                            let nths = [first, second].map(|nth| 2 * nth + writer);
                            write(store, registers, nths, &mut rng);
                        }
                    })
                })
                .collect();
            for reader in 0..2 {
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed + 10 + reader);
                    while !is_over.load(Ordering::Relaxed) {
                        // The favourites change.
                        let nth = rng.random_range(0..KEYS);
                        for _ in 0..rng.random_range(1..200) {
                            read(store, &registers[nth], nth);
                        }
                    }
                });
            }
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    store.checkpoint().unwrap();
                    thread::sleep(Duration::from_millis(2));
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok));
        });
        let stats = store.stats().hot_cache;
        println!("{partitions} partitions: {stats:?}");
        assert!(stats.swaps > 10 && stats.hits > 10, "{stats:?}");
        store.close().unwrap();
    }
}

/// What a failing disk refuses is not in the cache, and what it takes later is.
#[test]
fn hot_cache_keeps_no_value_of_a_commit_that_failed() {
    for folder in folders() {
        for code in [libc::EIO, libc::ENOSPC] {
            let faults = Failing::at(u64::MAX, true, code);
            let options = options(tiny(4, 1), 2)
                .durability(Durability::Always)
                .faults(faults.clone());
            let path = folder.path().join(code.to_string());
            let store = Store::open(&path, &options).unwrap();
            let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
            for name in names {
                store.put(name, "old").unwrap();
            }
            warm_up(&store, &names);
            for (nth, name) in names.into_iter().enumerate() {
                store.get(name).unwrap();
                faults.fail();
                let refused = match nth {
                    0 => store.put(name, "new"),
                    1 => store.delete(name),
                    2 => store.merge(name, "new"),
                    _ => {
                        let mut batch = WriteBatch::new();
                        names.iter().for_each(|name| {
                            batch.put(*name, "new");
                        });
                        store.write(batch)
                    }
                };
                refused.unwrap_err();
                assert_eq!(store.get(name).unwrap().unwrap(), b"old");
                faults.cure();
                store.put(name, "newer").unwrap();
                assert_eq!(store.get(name).unwrap().unwrap(), b"newer");
                store.put(name, "old").unwrap();
            }
            store.close().unwrap();
        }
    }
}

/// A merge that panics ends all changes; gets go on, with what was there.
#[test]
fn hot_cache_outlives_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), &options(tiny(4, 1), 1)).unwrap();
    store.put("key", "old").unwrap();
    warm_up(&store, &[b"key"]);
    store.merge("key", "panic").unwrap_err();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"old");
    store.put("key", "new").ok();
    let again = store.get(b"key").unwrap();
    assert_eq!(again, contents(&store).get(&b"key"[..]).cloned());
}

/// A model that has seen one key serves that, and all others as before.
#[test]
fn model_trained_on_one_key() {
    let dir = tempfile::tempdir().unwrap();
    let cache = tiny(2, 1000).samples(20);
    let store = Store::open(dir.path().join("store"), &options(cache, 1)).unwrap();
    let items: BTreeMap<Vec<u8>, Vec<u8>> = (0..2000u32)
        .map(|nth| (nth.to_le_bytes().to_vec(), vec![7; nth as usize % 90]))
        .collect();
    for (key, value) in &items {
        store.put(key.clone(), value.clone()).unwrap();
    }
    warm_up(&store, &[&7u32.to_le_bytes()]);
    store.get(&7u32.to_le_bytes()).unwrap();
    let stats = store.stats().hot_cache;
    assert_eq!((stats.hot_bins, stats.entries), (1, 1));
    for (key, value) in &items {
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value));
    }
}

/// More is hot than the cache has room for.
#[test]
fn hot_set_larger_than_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = tiny(2, 1).samples(100);
    let store = Store::open(dir.path().join("store"), &options(cache, 1)).unwrap();
    let keys: Vec<[u8; 4]> = (0..1000u32).map(u32::to_le_bytes).collect();
    for key in &keys {
        store.put(key, key.repeat(10)).unwrap();
    }
    for _ in rounds(30, || store.stats().hot_cache.swaps > 0) {
        for key in &keys {
            assert_eq!(store.get(key).unwrap(), Some(key.repeat(10)));
        }
    }
    let stats = store.stats().hot_cache;
    assert!(stats.swaps > 0 && stats.entries <= 26, "{stats:?}");
    assert_eq!(stats.bytes, 4096);
}

#[test]
fn values_of_all_lengths_are_cached_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), &options(tiny(1000, 1), 1)).unwrap();
    store.put("key", "").unwrap();
    warm_up(&store, &[b"key"]);
    for len in (0..40).chain([900, 951, 952, 953, 960, 961, 5000, 1 << 20]) {
        store.put("key", vec![1; len]).unwrap();
        for _ in 0..10 {
            assert_eq!(store.get(b"key").unwrap(), Some(vec![1; len]));
            let found = store.get_with(b"key", <[u8]>::len).unwrap();
            assert_eq!(found, Some(len));
        }
        store.delete("key").unwrap();
        for _ in 0..10 {
            assert_eq!(store.get(b"key").unwrap(), None);
        }
    }
    let long = vec![b'k'; 64 << 10];
    store.put(long.clone(), "long").unwrap();
    assert_eq!(store.get(&long).unwrap().unwrap(), b"long");
    assert!(matches!(
        store.get(&[long, vec![0]].concat()),
        Err(Error::TooLong { .. })
    ));
}

#[test]
fn hot_cache_options_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |cache| {
        let options = StoreOptions::new().hot_cache(cache);
        match Store::open(dir.path().join("store"), &options) {
            Err(Error::InvalidOption { option, .. }) => option,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(HotCacheOptions::new(1)), "hot_cache.bytes");
    let cache = HotCacheOptions::new(1 << 20);
    assert_eq!(refused(cache.bins(0)), "hot_cache.bins");
    assert_eq!(refused(cache.samples(0)), "hot_cache.samples");
    let cache = cache.latency_target(Duration::ZERO);
    assert_eq!(refused(cache), "hot_cache.latency_target");
}
