//! Stores whose compaction in the background has a rate that would take years.

use gphash::store::{Durability, Store, StoreOptions, WriteBatch};
use gphash_test_support::{must_end, wait_for};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::model::{Model, contents};
use super::seed;

fn options(partitions: u32) -> StoreOptions {
    crate::options()
        .capacity(1)
        .durability(Durability::None)
        .checkpoint_bytes(1 << 20)
        .partitions(partitions)
        .memory_budget(u64::from(partitions) * (256 << 10))
}

/// Puts values of some keys, of ten times as many bytes as the budget.
fn load(store: &Store, rng: &mut SmallRng, partitions: u32) -> Model {
    let mut model = Model::new();
    for _ in 0..partitions * 60 {
        let mut batch = WriteBatch::new();
        for _ in 0..500 {
            let key = format!("key {:06}", rng.random_range(0..40_000)).into_bytes();
            let value = vec![rng.random(); rng.random_range(50..150)];
            batch.put(key.clone(), value.clone());
            model.insert(key, value);
        }
        store.write(batch).unwrap();
    }
    model
}

#[test]
fn compaction_rate_of_a_byte_holds_up_nobody() {
    let seed = seed();
    for partitions in [1, 3] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("store");
        let limited = options(partitions).compaction_rate(1);
        let store = Store::open(&path, &limited).unwrap();
        let loaded = |store: Store, seed| {
            must_end(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                let model = load(&store, &mut rng, partitions);
                (store, model)
            })
        };
        let (store, mut model) = loaded(store, seed);
        assert!(store.stats().items_evicted > 0);
        assert!(contents(&store) == model, "other items");
        let (store, done) = must_end(move || {
            let done = store.compact(&|_| {});
            (store, done)
        });
        done.unwrap();
        assert!(store.stats().spill.compactions > 0);
        assert!(contents(&store) == model, "other items");
        let waited = store.stats().spill.compaction_rate_wait;
        let (store, changed) = loaded(store, seed.wrapping_add(1));
        model.extend(changed);
        wait_for("the rate counts again", || {
            store.stats().spill.compaction_rate_wait > waited
        });
        assert!(contents(&store) == model, "other items");
        must_end(move || store.close()).unwrap();
        let store = Store::open(&path, &options(partitions)).unwrap();
        assert!(contents(&store) == model, "other items");
    }
}
