//! PM touches of the CPU engine: the distinct places of the file that an operation reads or writes,
//! held to the numbers of `docs/performance.md`.

use bytemuck::Pod;
use gphash::{Engine, Index, Options, Stats};
use tempfile::TempDir;

/// Items of a table with a load factor of 0.636.
const ITEMS: u64 = 62_500;

/// Operations in a batch.
const BATCH: usize = 4096;

type Value = [u64; 16];

/// The most touches that each operation may cost on average.
struct Limits {
    hit: f64,
    miss: f64,
    insert: f64,
    update: f64,
    remove: f64,
}

fn keys<K>(key: impl Fn(u64) -> K, numbers: std::ops::Range<u64>) -> Vec<K> {
    // Odd, so no two numbers meet; mixed, so neighbours in a batch are none in the table.
    numbers
        .map(|number| key(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
        .collect()
}

/// Touches for each operation of what `run` does batch by batch.
fn touches<K: Pod>(
    index: &Index<K, Value>,
    keys: &[K],
    run: impl Fn(&Index<K, Value>, &[K]) -> usize,
    expected: bool,
) -> f64 {
    let before = index.stats();
    for batch in keys.chunks(BATCH) {
        assert_eq!(run(index, batch), if expected { batch.len() } else { 0 });
    }
    let after: Stats = index.stats();
    assert_eq!(after.operations - before.operations, keys.len() as u64);
    (after.pm_touches - before.pm_touches) as f64 / keys.len() as f64
}

fn hold<K: Pod>(key: impl Fn(u64) -> K, limits: &Limits) {
    let folder = TempDir::new().unwrap();
    let options = Options::new()
        .capacity(ITEMS)
        .engine(Engine::Cpu)
        .threads(1);
    let path = folder.path().join("index");
    let index = Index::<K, Value>::create(&path, &options).unwrap();
    let present = keys(&key, 0..ITEMS);
    let absent = keys(&key, ITEMS..2 * ITEMS);
    let get = |index: &Index<K, Value>, keys: &[K]| {
        let mut values = vec![[0; 16]; keys.len()];
        index.get(keys, &mut values).unwrap().count_ones(..)
    };
    let check = |what: &str, found: f64, most: f64| {
        println!("{what}: {found:.3}, at most {most}");
        assert!(found <= most, "{what}: {found} touches, at most {most}");
    };
    let insert = |index: &Index<K, Value>, keys: &[K]| {
        let values = vec![[7; 16]; keys.len()];
        index.insert(keys, &values).unwrap().count_ones(..)
    };
    let update = |index: &Index<K, Value>, keys: &[K]| {
        let values = vec![[8; 16]; keys.len()];
        index.update(keys, &values).unwrap().count_ones(..)
    };
    let remove = |index: &Index<K, Value>, keys: &[K]| index.remove(keys).unwrap().count_ones(..);
    check(
        "insert",
        touches(&index, &present, insert, true),
        limits.insert,
    );
    assert!((0.6..0.7).contains(&index.stats().load_factor));
    check("hit", touches(&index, &present, get, true), limits.hit);
    check("miss", touches(&index, &absent, get, false), limits.miss);
    check(
        "update",
        touches(&index, &present, update, true),
        limits.update,
    );
    index.close().unwrap();

    // Nothing is known of the buckets, so some are read in vain, once.
    let index = Index::<K, Value>::open(&path, &options).unwrap();
    let first = touches(&index, &present, get, true);
    check("hit after opening", first, limits.hit + 0.2);
    check("hit", touches(&index, &present, get, true), limits.hit);
    check(
        "remove",
        touches(&index, &present, remove, true),
        limits.remove,
    );
    index.close().unwrap();
}

#[test]
fn touches_of_keys_of_8_bytes() {
    let limits = Limits {
        hit: 2.1,
        miss: 0.1,
        insert: 2.2,
        update: 2.2,
        remove: 1.1,
    };
    hold(|number| number, &limits);
}

#[test]
fn touches_of_keys_of_32_bytes() {
    // The key stands in a place of its own.
    let limits = Limits {
        hit: 3.1,
        miss: 0.1,
        insert: 3.2,
        update: 3.2,
        remove: 2.1,
    };
    hold(|number| [number, 1, !number, 2], &limits);
}
