//! Random mixed batches with many equal keys, reopening now and then.

use gphash::{Domain, Index, Options};
use rand::RngExt;
use tempfile::TempDir;

use crate::{Checked, folder, options, rng};

/// Rounds of one batch of each verb.
const ROUNDS: usize = 120;

fn run(name: &str, longest: usize, universe: u64, threads: usize) {
    let options = options().capacity(100).threads(threads);
    run_with(name, longest, universe, &folder(), &options);
}

fn run_with(name: &str, longest: usize, universe: u64, folder: &TempDir, options: &Options) {
    let path = folder.path().join("f");
    let mut rng = rng(name);
    let mut checked = Checked::new(Index::<u64, [u64; 3]>::create(&path, options).unwrap());
    for round in 0..ROUNDS {
        let len = rng.random_range(0..longest);
        let keys: Vec<u64> = (0..len)
            .map(|_| match rng.random_range(0..50) {
                0 => 0,
                1 => u64::MAX,
                _ => rng
                    .random_range(0..universe)
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15),
            })
            .collect();
        let values: Vec<[u64; 3]> = (0..len)
            .map(|i| [rng.random(), i as u64, round as u64])
            .collect();
        match rng.random_range(0..6) {
            0 => checked.insert(&keys, &values),
            1 | 2 => checked.upsert(&keys, &values),
            3 => checked.update(&keys, &values),
            4 => checked.remove(&keys),
            _ => checked.get(&keys, [u64::MAX; 3]),
        }
        if round % 20 == 19 {
            checked.check();
            let Checked { index, model } = checked;
            index.close().unwrap();
            let index = Index::open(&path, options).unwrap();
            assert!(index.recovery().clean);
            checked = Checked { index, model };
            checked.check();
        }
    }
}

#[test]
fn small_batches_of_few_keys() {
    run("small batches", 50, 40, 1);
}

#[test]
fn batches_that_make_the_table_grow() {
    run("growing", 3000, 20_000, 1);
}

#[test]
fn large_batches_on_several_threads() {
    run("large batches", 40_000, 30_000, 4);
}

/// Write-backs and fences as on persistent memory, on a file in memory that passes for it.
#[test]
fn batches_in_the_domain_of_persistent_memory() {
    let memory = std::path::Path::new("/dev/shm");
    if !memory.is_dir() || cfg!(not(target_arch = "x86_64")) {
        println!("skipped: no /dev/shm, or not x86-64");
        return;
    }
    let folder = TempDir::new_in(memory).unwrap();
    let options = options().capacity(100).domain(Domain::Dax).assume_dax(true);
    run_with("dax", 1000, 5000, &folder, &options);
}
