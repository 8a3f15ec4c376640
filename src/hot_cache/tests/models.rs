//! What is hot.

use std::time::Duration;

use super::{cache, get, sample};
use crate::model::Model;
use crate::{HotCache, HotCacheOptions};

/// A key whose bin is not that of another.
fn of_another_bin(cache: &HotCache, key: &[u8]) -> Vec<u8> {
    let bin = |key: &[u8]| cache.router.bin(cache.hashed(key).tag());
    let mut keys = (0..u32::MAX).map(|nth| nth.to_le_bytes().to_vec());
    keys.find(|other| bin(other) != bin(key)).unwrap()
}

#[test]
fn model_without_samples_makes_nothing_hot() {
    let cache = cache(4, 16);
    cache.swap(100, || ());
    assert_eq!(cache.stats().hot_bins, 0);
    get(&cache, b"key", Some(b"value"));
    assert!(!get(&cache, b"key", Some(b"value")).1);
    assert_eq!(cache.stats().entries, 0);
}

#[test]
fn model_trained_on_one_key_makes_its_bin_hot() {
    let cache = cache(4, 16);
    for _ in 0..10 {
        sample(&cache, b"key");
    }
    cache.swap(1_000_000, || ());
    assert_eq!(cache.stats().hot_bins, 1);
    assert_eq!(
        get(&cache, b"key", Some(b"value")),
        (Some(b"value".to_vec()), false)
    );
    assert_eq!(get(&cache, b"key", None), (Some(b"value".to_vec()), true));
    let other = of_another_bin(&cache, b"key");
    assert_eq!(get(&cache, &other, Some(b"1")).0, Some(b"1".to_vec()));
    assert_eq!(get(&cache, &other, Some(b"2")).0, Some(b"2".to_vec()));
}

#[test]
fn store_without_keys_has_hot_bins() {
    let cache = cache(1, 1);
    sample(&cache, b"key");
    cache.swap(0, || ());
    get(&cache, b"key", None);
    assert_eq!(get(&cache, b"key", None), (None, true));
}

#[test]
fn hot_bins_are_as_many_as_the_cache_holds() {
    let model = Model::new(&HotCacheOptions::new(1 << 20).bins(100));
    for bin in 0..50 {
        for _ in 0..=bin {
            model.sample(bin, 10, Duration::ZERO, (false, false));
        }
    }
    // Room for 130 entries of 10 words, which are one in eight of the keys of hot bins.
    let hot = model.hot_bins(8000, (1000, 1300));
    let hot: Vec<usize> = (0..100).filter(|&bin| hot[bin]).collect();
    assert_eq!(hot, (37..50).collect::<Vec<_>>());
    // Bins that nobody has read stay cold if there is no room for all. Half of the samples are left.
    let count = |hot: Vec<bool>| hot.into_iter().filter(|is_hot| *is_hot).count();
    assert_eq!(count(model.hot_bins(1100, (1000, 1300))), 49);
    model.sample(0, 10, Duration::ZERO, (false, false));
    assert_eq!(count(model.hot_bins(1000, (1000, 1300))), 100);
}

#[test]
fn latency_target_widens_and_narrows() {
    let options = HotCacheOptions::new(1 << 20).bins(100);
    let model = Model::new(&options.latency_target(Duration::from_micros(1)));
    let count = |took: u64| {
        for bin in 0..100 {
            model.sample(bin, 1, Duration::from_nanos(took), (false, false));
        }
        let hot = model.hot_bins(8000, (100, 1000));
        hot.iter().filter(|is_hot| **is_hot).count()
    };
    // A tenth of the keys, at first.
    assert_eq!(count(2000), 12);
    assert_eq!(count(2000), 15);
    assert!((0..20).map(|_| count(2000)).all(|count| count > 15));
    assert_eq!(count(2000), 100);
    assert!((0..100).any(|_| count(1000) < 2));
}

#[test]
fn swap_forgets_what_is_no_longer_hot() {
    let cache = cache(4, 16);
    let other = of_another_bin(&cache, b"key");
    sample(&cache, b"key");
    cache.swap(1000, || ());
    get(&cache, b"key", Some(b"old"));
    assert!(get(&cache, b"key", None).1);
    sample(&cache, &other);
    cache.swap(1000, || ());
    assert_eq!(cache.stats().entries, 0);
    // While it is cold, changes say nothing to the cache.
    sample(&cache, b"key");
    cache.swap(1000, || ());
    assert_eq!(
        get(&cache, b"key", Some(b"new")),
        (Some(b"new".to_vec()), false)
    );
}

#[test]
fn options_have_ranges() {
    let refused = |options: HotCacheOptions| options.check().unwrap_err().0;
    let options = HotCacheOptions::new(HotCacheOptions::MIN_BYTES);
    assert_eq!(options.check(), Ok(()));
    assert_eq!(HotCacheOptions::default().check(), Ok(()));
    assert_eq!(refused(HotCacheOptions::new(2047)), "hot_cache.bytes");
    assert_eq!(refused(options.bins(0)), "hot_cache.bins");
    assert_eq!(refused(options.bins((1 << 20) + 1)), "hot_cache.bins");
    assert_eq!(refused(options.samples(0)), "hot_cache.samples");
    let refused = refused(options.latency_target(Duration::ZERO));
    assert_eq!(refused, "hot_cache.latency_target");
    assert!(HotCache::new(&HotCacheOptions::default()).is_none());
    // There is no memory for it.
    assert!(HotCache::new(&HotCacheOptions::new(1 << 62)).is_none());
}
