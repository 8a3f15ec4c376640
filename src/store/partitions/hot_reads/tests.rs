//! Swaps of the hot cache beside what changes the tables.

use std::thread;
use std::time::Duration;

use crate::store::{HotCacheOptions, Store, StoreOptions};

#[test]
fn swap_waits_for_the_changes_of_all_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let cache = HotCacheOptions::new(1 << 20);
    let options = StoreOptions::new().partitions(3).hot_cache(cache);
    let store = Store::open(dir.path(), &options).unwrap();
    let partitions = store.partitions();
    let cache = partitions.shared().hot_cache.as_ref().unwrap();
    for (swaps, held) in (0..).zip(partitions.all()) {
        thread::scope(|scope| {
            let alone = held.state.applying();
            scope.spawn(|| partitions.first().swap_hot_bins(cache));
            thread::sleep(Duration::from_millis(50));
            assert_eq!(cache.stats().swaps, swaps);
            drop(alone);
        });
        assert_eq!(cache.stats().swaps, swaps + 1);
    }
}
