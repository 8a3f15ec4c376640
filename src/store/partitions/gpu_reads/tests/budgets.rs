//! What a store takes of the device's memory within a budget, and that columns have the same values.

use super::*;
use crate::engine::DeviceBudget;

/// A budget, partitions, and keys that are expected. With the least budget there are 32 MiB for copies: the records of one
/// partition, or the levels of one for so many keys.
const CASES: [(u64, u32, u64); 4] = [
    (StoreOptions::MIN_DEVICE_MEMORY_BUDGET, 1, 1024),
    (StoreOptions::MIN_DEVICE_MEMORY_BUDGET, 3, 1024),
    (StoreOptions::MIN_DEVICE_MEMORY_BUDGET, 2, 1_500_000),
    (1 << 30, 3, 1024),
];

#[test]
fn columns_have_what_was_put_within_a_budget_of_device_memory() {
    let Some(_alone) = alone() else { return };
    let mut rng = rng();
    for (budget, partitions, capacity) in CASES {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = StoreOptions::new()
            .partitions(partitions)
            .capacity(capacity)
            .device_memory_budget(budget);
        let store = open_with(dir.path(), options);
        let mut model = Model::new();
        for round in 0..4 {
            let most = [900, 5000][round % 2];
            let keys: Vec<Vec<u8>> = (0..most / 2)
                .map(|_| key(rng.random_range(0..most)))
                .collect();
            let len = rng.random_range(0..300);
            let values: Vec<Vec<u8>> = keys.iter().map(|_| vec![rng.random(); len]).collect();
            store
                .put_columns(&columns(&keys), &columns(&values))
                .unwrap();
            model.extend(keys.into_iter().zip(values));
            let asked: Vec<Vec<u8>> = (0..1500)
                .map(|_| key(rng.random_range(0..most * 2)))
                .collect();
            // What was just put may still be on its way into the tables.
            let patience = (1, PATIENCE);
            let located = most_located(&store, &asked, &model, patience);
            let taken = store.stats().device_memory_bytes;
            assert!(taken > 0 && taken <= budget, "{taken} of {budget}");
            assert!(located > 0);
        }
        store.close().unwrap();
    }
}

#[test]
fn budget_of_device_memory_counts_what_sorts_groups() {
    let Some(_alone) = alone() else { return };
    let budget = DeviceBudget::new(Some(StoreOptions::MIN_DEVICE_MEMORY_BUDGET));
    let gpu = crate::engine::version_sorter(GPU, &budget)
        .unwrap()
        .unwrap();
    assert!(gpu.has_room(100_000));
    // The CPU sorts those.
    assert!(!gpu.has_room(10_000_000));
    assert_eq!(budget.taken(), 0);
}
