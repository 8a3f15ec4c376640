//! Keys chosen by someone who knows the seed of the file, so that they all go to a few buckets.

use std::fs;
use std::path::Path;

use gphash::layout::{KeyHash, Superblock};
use gphash::{Error, Index, recover};

use crate::file::{folder, options};

type Table = Index<u64, u64>;

/// Slots that a table may have for each item that it holds when it grows: one in 32 slots of the
/// top level is full then, the new one has twice as many, and all below it as many again.
const SLOTS_AN_ITEM: u64 = 32 * 2 * 2;

/// Slots that a table of a shape may have with whatever items: up to 5 levels more than it needs.
fn small(levels: u32, slots: u32) -> u64 {
    u64::from(slots) << (levels + 6)
}

fn seed_of(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    Superblock::parse(&bytes, bytes.len() as u64, path)
        .unwrap()
        .hash_seed
}

/// Keys of which all `locations` lie in the first of 2^`bits` parts of every level.
fn colliding(seed: u64, locations: u32, bits: u32) -> impl Iterator<Item = u64> {
    (1u64..).filter(move |&key| {
        let hash = KeyHash::of_word(key, seed);
        (0..locations).all(|nth| hash.location(nth) >> (64 - bits) == 0)
    })
}

fn holds(index: &Table, keys: &[u64]) {
    let mut values = vec![0; keys.len()];
    let found = index.get(keys, &mut values).unwrap();
    assert_eq!(found.count_ones(..), keys.len());
    assert!(values == keys);
}

#[test]
fn growth_is_in_proportion_to_colliding_keys() {
    let folder = folder();
    let path = folder.path().join("index");
    let options = options().capacity(1);
    let index = Table::create(&path, &options).unwrap();
    // All locations of all rounds in a quarter of the buckets: one key in 2^16.
    let keys = colliding(seed_of(&path), 8, 2).take(800);
    let mut held = Vec::new();
    for key in keys {
        assert!(index.insert_one(&key, &key).unwrap());
        held.push(key);
        let slots = index.stats().slots;
        let allowed = small(2, 8).max(SLOTS_AN_ITEM * held.len() as u64);
        assert!(slots <= allowed, "{slots} slots for {} items", held.len());
    }
    assert!(index.stats().slots > small(2, 8));
    holds(&index, &held);
    index.close().unwrap();
    let index = Table::open(&path, &options).unwrap();
    holds(&index, &held);
}

#[test]
fn collision_beyond_the_slots_of_a_key_is_refused() {
    let folder = folder();
    let path = folder.path().join("index");
    // One slot a bucket, and one location a round.
    let options = options().capacity(900).shape(1, 1, 1);
    let index = Table::create(&path, &options).unwrap();
    let (seed, top) = (seed_of(&path), index.stats().top_level);
    let bucket = |key, nth| KeyHash::bucket(KeyHash::of_word(key, seed).location(nth), top);
    let victim = 1 << 60;
    let mut held: Vec<u64> = (0..4)
        .map(|nth| {
            let at = bucket(victim, nth);
            (1..).find(|&key| bucket(key, 0) == at).unwrap()
        })
        .collect();
    index.insert(&held, &held).unwrap();
    let before = index.stats();
    let refused = index.insert_one(&victim, &1).unwrap_err();
    assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    assert!(matches!(
        index.upsert_one(&victim, &1),
        Err(Error::Limit { .. })
    ));
    let after = index.stats();
    assert_eq!(
        (after.slots, after.file_len),
        (before.slots, before.file_len)
    );
    assert_eq!(index.get_one(&victim).unwrap(), None);
    // Others' keys find their places as before, and with enough of them the table grows again.
    let honest: Vec<u64> = (1 << 50..(1 << 50) + 200).collect();
    index.insert(&honest, &honest).unwrap();
    assert!(index.insert_one(&victim, &victim).unwrap());
    held.extend(honest);
    held.push(victim);
    held.sort_unstable();
    held.dedup();
    holds(&index, &held);
    index.close().unwrap();
    let index = Table::open(&path, &options).unwrap();
    holds(&index, &held);
    assert_eq!(index.len(), held.len() as u64);
}

#[test]
fn resize_without_free_slots_waits_for_the_next_growth() {
    let folder = folder();
    let path = folder.path().join("index");
    let options = options().capacity(1).shape(1, 1, 1);
    let index = Table::create(&path, &options).unwrap();
    // Both keys have one bucket alone in the new top level, and the second one takes it.
    let keys: Vec<u64> = colliding(seed_of(&path), 4, 1).take(2).collect();
    for key in &keys {
        assert!(index.insert_one(key, key).unwrap());
    }
    index.close().unwrap();
    let report = recover(&path, gphash::Repair::Salvage, &|_| {}).unwrap();
    assert_eq!((report.recovery.items, report.levels), (2, 2));
    let index = Table::open(&path, &options).unwrap();
    assert!(index.stats().resizing);
    holds(&index, &keys);
    index.reserve(100).unwrap();
    holds(&index, &keys);
    assert!(!index.stats().resizing);
}
