//! Gets and changes of several threads while models take each other's room.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::RngExt;

use super::{any_value, cache, get, rng, sample};
use crate::bucket::Bucket;
use crate::{HotCache, Value};

/// Keys of a store of which half of the bins may be hot in a cache of so many buckets.
fn half(buckets: u64) -> u64 {
    16 * Bucket::ENTRIES as u64 * buckets
}

/// Each answer is that of a map, with one thread.
#[test]
fn random_requests_are_answered_as_by_a_map() {
    let mut rng = rng();
    for (buckets, bins) in [(1, 1), (1, 8), (3, 5), (40, 64)] {
        let cache = cache(buckets, bins);
        let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut hits = 0;
        for _ in 0..30_000 {
            let number = rng.random_range(0..60u32);
            let key = vec![number.to_le_bytes()[0]; number as usize % 30 + 1];
            match rng.random_range(0..20) {
                0 => {
                    sample(&cache, &key);
                    cache.swap(half(buckets), || ());
                }
                1..5 => {
                    let value = rng.random_bool(0.7).then(|| any_value(&mut rng));
                    let _blocked = cache.block([(&key[..], value.as_deref())]);
                    match &value {
                        Some(value) => map.insert(key.clone(), value.clone()),
                        None => map.remove(&key),
                    };
                }
                _ => {
                    let stored = map.get(&key);
                    let (found, is_hit) = get(&cache, &key, stored.map(|value| &value[..]));
                    assert_eq!(found.as_ref(), stored);
                    hits += u32::from(is_hit);
                }
            }
        }
        assert!(hits > 100, "{hits} hits of {buckets} buckets");
    }
}

/// Keys that all threads use.
const KEYS: usize = 12;

/// A map that several threads change, each key under one of two locks, as partitions of a store have them.
struct Store {
    cache: HotCache,
    applying: [Mutex<()>; 2],
    /// What is published: the version of each key, and zero for none.
    published: [AtomicU64; KEYS],
    /// The last version whose put has begun, and has returned.
    begun: [AtomicU64; KEYS],
    returned: [AtomicU64; KEYS],
}

fn key(nth: usize) -> Vec<u8> {
    vec![b'k'; nth]
}

/// Versions that are a multiple of five delete the key.
fn value(nth: usize, version: u64) -> Value {
    let word = version * KEYS as u64 + nth as u64;
    (!version.is_multiple_of(5)).then(|| word.to_le_bytes().repeat(1 + nth))
}

impl Store {
    fn put(&self, nth: usize) {
        let _alone = self.applying[nth % 2].lock();
        let version = self.begun[nth].load(Ordering::SeqCst) + 1;
        let (key, value) = (key(nth), value(nth, version));
        self.begun[nth].store(version, Ordering::SeqCst);
        let blocked = self.cache.block([(&key[..], value.as_deref())]);
        self.published[nth].store(version, Ordering::SeqCst);
        drop(blocked);
        self.returned[nth].store(version, Ordering::SeqCst);
    }

    /// Reads a key, which must have what no later put had replaced before, and what some put had begun to give it.
    fn get(&self, nth: usize) -> bool {
        let least = self.returned[nth].load(Ordering::SeqCst);
        let read = || Ok::<_, ()>(value(nth, self.published[nth].load(Ordering::SeqCst)));
        let (found, is_hit) = self.cache.get_or_read(&key(nth), None, read).unwrap();
        let most = self.begun[nth].load(Ordering::SeqCst);
        let is_possible = (least..=most).any(|version| value(nth, version) == found);
        assert!(is_possible, "key {nth}: {found:?}, of {least} to {most}");
        is_hit
    }

    /// Makes other keys hot, drawn anew.
    fn swap(&self, seed: u64) {
        for nth in 0..KEYS {
            if seed >> nth & 1 == 1 {
                sample(&self.cache, &key(nth));
            }
        }
        self.cache.swap(half(self.cache.buckets.len() as u64), || {
            self.applying.iter().for_each(|one| drop(one.lock()));
        });
    }
}

/// A register of each key is linearizable, whichever side serves it, also while models swap.
fn registers_during_swaps(buckets: u64, bins: u32) {
    let store = Store {
        cache: cache(buckets, bins),
        applying: [Mutex::new(()), Mutex::new(())],
        published: [const { AtomicU64::new(0) }; KEYS],
        begun: [const { AtomicU64::new(0) }; KEYS],
        returned: [const { AtomicU64::new(0) }; KEYS],
    };
    let is_over = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut rng = rng();
                    // On a busy machine readers may come late.
                    let has_seen_enough = || {
                        let (hits, swaps) =
                            (hits.load(Ordering::Relaxed), store.cache.stats().swaps);
                        hits > 100 && swaps > 10 || began.elapsed() > Duration::from_secs(600)
                    };
                    for nth in 0.. {
                        if nth >= 60_000 && nth % 1000 == 0 && has_seen_enough() {
                            break;
                        }
                        store.put(rng.random_range(0..KEYS));
                        if rng.random_ratio(1, 50) {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut rng = rng();
                while !is_over.load(Ordering::Relaxed) {
                    let is_hit = store.get(rng.random_range(0..KEYS));
                    hits.fetch_add(is_hit.into(), Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut rng = rng();
            while !is_over.load(Ordering::Relaxed) {
                store.swap(rng.random());
                if rng.random_bool(0.5) {
                    thread::yield_now();
                }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert!(hits.into_inner() > 100);
    assert!(store.cache.stats().swaps > 10);
}

#[test]
fn registers_in_one_bucket_are_linearizable_during_swaps() {
    registers_during_swaps(1, 8);
}

#[test]
fn registers_in_many_buckets_are_linearizable_during_swaps() {
    registers_during_swaps(64, 32);
}

/// A get sleeps in the store while its bin turns cold, the key changes, and the bin turns hot again.
#[test]
fn sleeping_get_fills_nothing_after_two_swaps() {
    let cache = cache(1, 8);
    sample(&cache, b"key");
    cache.swap(1000, || ());
    let read = || {
        // The bin is cold once all samples of it are forgotten.
        for _ in 0..3 {
            cache.swap(1000, || ());
        }
        assert_eq!(cache.stats().hot_bins, 0);
        assert!(cache.block([(&b"key"[..], None)]).is_empty());
        sample(&cache, b"key");
        cache.swap(1000, || ());
        Ok::<Value, ()>(Some(b"old".to_vec()))
    };
    let (found, _) = cache.get_or_read(b"key", None, read).unwrap();
    assert_eq!(found, Some(b"old".to_vec()));
    assert_eq!(
        get(&cache, b"key", Some(b"new")),
        (Some(b"new".to_vec()), false)
    );
}

/// A get that began before a change does not bring back what was there before it.
#[test]
fn late_fill_of_an_old_value_is_refused() {
    let cache = cache(1, 1);
    sample(&cache, b"key");
    cache.swap(1, || ());
    let read = || {
        drop(cache.block([(&b"key"[..], Some(&b"new"[..]))]));
        Ok::<Value, ()>(Some(b"old".to_vec()))
    };
    cache.get_or_read(b"key", None, read).unwrap();
    let found = get(&cache, b"key", Some(b"new"));
    assert_eq!(found, (Some(b"new".to_vec()), false));
}

#[test]
fn change_updates_what_is_cached() {
    let cache = cache(1, 1);
    sample(&cache, b"key");
    cache.swap(1, || ());
    get(&cache, b"key", Some(b"old"));
    let blocked = cache.block([(&b"key"[..], Some(&b"new"[..]))]);
    // It is not published yet, and then it is.
    assert_eq!(get(&cache, b"key", Some(b"old")).0, Some(b"old".to_vec()));
    assert_eq!(
        get(&cache, b"key", Some(b"new")),
        (Some(b"new".to_vec()), false)
    );
    drop(blocked);
    assert_eq!(get(&cache, b"key", None), (Some(b"new".to_vec()), true));
    drop(cache.block([(&b"key"[..], None)]));
    assert_eq!(get(&cache, b"key", Some(b"new")), (None, true));
    // One that is too long has no entry.
    let long = vec![0; 2000];
    drop(cache.block([(&b"key"[..], Some(&long[..]))]));
    assert!(!get(&cache, b"key", Some(&long)).1);
}

#[test]
fn change_that_panics_leaves_no_value() {
    let cache = cache(1, 1);
    sample(&cache, b"key");
    cache.swap(1, || ());
    get(&cache, b"key", Some(b"old"));
    let panics = || {
        let _blocked = cache.block([(&b"key"[..], Some(&b"new"[..]))]);
        panic!("as it was told");
    };
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(
        get(&cache, b"key", Some(b"old")),
        (Some(b"old".to_vec()), false)
    );
    assert_eq!(get(&cache, b"key", None), (Some(b"old".to_vec()), true));
}

/// While a swap waits, changes block the new bins, and gets do not ask the cache for them yet.
#[test]
fn swap_waits_for_changes_before_gets_are_served() {
    let cache = cache(1, 1);
    sample(&cache, b"key");
    let mut has_waited = false;
    cache.swap(1, || {
        has_waited = true;
        assert!(!cache.block([(&b"key"[..], None)]).is_empty());
        get(&cache, b"key", Some(b"old"));
        assert_eq!(cache.stats().entries, 0);
    });
    assert!(has_waited);
    get(&cache, b"key", Some(b"old"));
    assert_eq!(cache.stats().entries, 1);
}
