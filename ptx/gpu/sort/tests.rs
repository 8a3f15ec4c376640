use std::collections::HashMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Requests of the longest batch of a run on a device of the CPU, which takes a second for it.
const EMULATED: usize = 5_000;

/// The same for a GPU.
const ON_GPU: usize = 2_000_000;

/// Sorts a batch on the device and compares it with what the CPU makes of it.
fn check(sorter: &VersionSorter, hashes: &[u64], changes: &[u32]) {
    let mut batch = sorter.batch(hashes.len()).unwrap();
    let (to_hashes, to_changes) = batch.operands();
    to_hashes.copy_from_slice(hashes);
    to_changes[..changes.len()].copy_from_slice(changes);
    let sorted = batch.sort(changes.len()).unwrap();

    let mut order = changes.to_vec();
    order.sort_by_key(|&position| hashes[position as usize]);
    assert!(sorted.order() == order);
    let mut number_of = vec![u32::MAX; hashes.len()];
    for (number, &position) in (0..).zip(&order) {
        number_of[position as usize] = number;
    }
    let mut newest = HashMap::new();
    for (position, (hash, &found)) in hashes.iter().zip(sorted.before()).enumerate() {
        let wanted = newest.get(hash).copied().unwrap_or(u32::MAX);
        assert_eq!(found, wanted, "of the request at {position}");
        if number_of[position] != u32::MAX {
            newest.insert(*hash, number_of[position]);
        }
    }
    assert_eq!(sorted.before().len(), hashes.len());
}

#[test]
fn device_sort_matches_the_cpu_sort() {
    let sorter = match VersionSorter::open(0, &Quota::unbounded()) {
        Ok(sorter) => sorter,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let is_emulated = sorter.device_name() == "emulated warps";
    let most = if is_emulated { EMULATED } else { ON_GPU };
    let seed = std::env::var("GPHASH_TEST_SEED").map_or_else(
        |_| rand::random(),
        |seed| seed.parse().expect("GPHASH_TEST_SEED"),
    );
    println!("GPHASH_TEST_SEED={seed}, on {}", sorter.device_name());
    let mut random = SmallRng::seed_from_u64(seed);
    for len in [0, 1, 2, 33, 257, 1025, most / 2, most] {
        let kinds = 1 + random.random_range(0..=len as u64);
        let hashes: Vec<u64> = (0..len)
            .map(|_| {
                random
                    .random_range(0..kinds)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            })
            .collect();
        let changes = (0..u32::try_from(len).unwrap()).filter(|_| random.random());
        check(&sorter, &hashes, &changes.collect::<Vec<_>>());
    }
    let all: Vec<u32> = (0..u32::try_from(most / 2).unwrap()).collect();
    let hashes: Vec<u64> = (0..most / 2).map(|_| random.random()).collect();
    check(&sorter, &hashes, &all);
    check(&sorter, &hashes, &[]);
    check(&sorter, &vec![hashes[0]; most / 2], &all);
    assert!(sorter.batch(REQUESTS_MAX).is_err());
}
