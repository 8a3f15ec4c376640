//! The store against a sorted map.

mod bad_input;
mod callbacks;
mod churn;
mod columns;
mod compaction_rate;
mod corruption;
mod damage;
mod disk;
mod faults;
mod full_calls;
mod full_disk;
mod hot_cache;
mod kill;
mod large_batches;
mod large_transactions;
mod memory;
mod memory_bound;
mod model;
mod open_stores;
mod packages;
mod partitioner;
mod partitions;
mod ranges;
mod read_modify_write;
mod recover;
mod replay;
mod snapshots;
mod spill;
mod thread_ends;
mod threads;
mod transactions;
mod verify;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gphash::store::{MergeOperator, Partitioner, Store, StoreOptions};
use gphash_test_support::setting;

/// Partitions of the stores that may have any number of them: drawn once for all tests of a process.
fn partitions() -> u32 {
    static PARTITIONS: OnceLock<u32> = OnceLock::new();
    let partitions = *PARTITIONS.get_or_init(|| {
        let drawn = || [1, 2, 3, 8][rand::random_range(0..4)];
        setting("GPHASH_TEST_PARTITIONS").unwrap_or_else(drawn)
    });
    println!("GPHASH_TEST_PARTITIONS={partitions}");
    partitions
}

/// Options of a store. With `GPHASH_TEST_COMPACTION=drawn` a GPU, if there is one, does half of the parts of its
/// compactions.
fn options() -> StoreOptions {
    match setting::<String>("GPHASH_TEST_COMPACTION") {
        Some(sides) if sides == "drawn" => StoreOptions::new().gpu_compaction_share(0.5),
        _ => StoreOptions::new(),
    }
}

/// Options of a store that may have any number of partitions.
fn partitioned() -> StoreOptions {
    options().partitions(partitions())
}

/// Waits until nothing is kept for readers who are gone.
fn wait_for_readers(store: &Store) {
    let started = Instant::now();
    while store.stats().kept_versions > 0 {
        assert!(
            started.elapsed() < Duration::from_secs(600),
            "{} old versions stay",
            store.stats().kept_versions
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The seed of a random test, which says how to repeat it.
fn seed() -> u64 {
    let seed = setting("GPHASH_TEST_SEED").unwrap_or_else(rand::random);
    println!("GPHASH_TEST_SEED={seed}");
    seed
}

/// Puts the operand behind the value. Fails for operands that begin with `fail`, and panics for
/// those that begin with `panic`.
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        match operand {
            [b'f', b'a', b'i', b'l', ..] => Err("as it was told".into()),
            [b'p', b'a', b'n', b'i', b'c', ..] => panic!("as it was told"),
            _ => Ok([value.unwrap_or_default(), operand].concat()),
        }
    }
}

/// Whether a merge was refused because the store has no operator.
fn lacks_operator(error: &gphash::Error) -> bool {
    matches!(error, gphash::Error::InvalidOption { option, .. } if *option == "merge_operator")
}

/// The partition of the number that a key begins with.
struct ByFirstByte;

impl Partitioner for ByFirstByte {
    fn name(&self) -> &str {
        "by first byte"
    }

    fn partition(&self, key: &[u8], _: usize) -> usize {
        usize::from(key[0])
    }
}

fn append() -> Arc<dyn MergeOperator> {
    Arc::new(Append)
}
