//! The cache in front of a map.

mod buckets;
mod models;
mod swaps;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::{HotCache, HotCacheOptions, Value};

/// A random generator whose seed is said.
fn rng() -> SmallRng {
    let seed = rand::random();
    println!("seed {seed}");
    SmallRng::seed_from_u64(seed)
}

/// A cache of so many buckets of which each miss may evict what is there.
fn cache(buckets: u64, bins: u32) -> HotCache {
    let options = HotCacheOptions::new(buckets * HotCacheOptions::MIN_BYTES).bins(bins);
    let mut cache = HotCache::new(&options).unwrap();
    cache.eviction_interval = 1;
    cache
}

/// Samples a get of a key.
fn sample(cache: &HotCache, key: &[u8]) {
    let bin = cache.router.bin(cache.hashed(key).tag());
    cache
        .model
        .sample(bin, 2, std::time::Duration::ZERO, (false, false));
}

/// Reads a key whose value in the store is this. Gives what was read, and whether the cache had it.
fn get(cache: &HotCache, key: &[u8], stored: Option<&[u8]>) -> (Value, bool) {
    let read = || Ok::<Value, ()>(stored.map(<[u8]>::to_vec));
    cache.get_or_read(key, None, read).unwrap()
}

/// A value that shows where it is torn.
fn any_value(rng: &mut SmallRng) -> Vec<u8> {
    let len = match rng.random_range(0..10) {
        0 => 0,
        1 => rng.random_range(900..1100),
        _ => rng.random_range(0..200),
    };
    let first: u8 = rng.random();
    (0..len)
        .map(|nth: usize| first.wrapping_add(nth.to_le_bytes()[0]))
        .collect()
}
