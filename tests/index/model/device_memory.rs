//! An index within a budget of device memory: it takes no more, and its results are the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bytemuck::Pod;
use gphash::{Engine, Index, Options};
use rand::RngExt;
use rayon::prelude::*;

use super::{Checked, engine, folder, options, rng};

const MIB: u64 = 1 << 20;

/// Keys so wide that few buckets have many bytes.
type Wide = [u64; 16];

fn wide(key: u64) -> Wide {
    [key; 16]
}

/// Does `work`, and gives the most bytes that the index has had meanwhile.
fn most_taken<K: Pod + Sync, V: Pod + Sync>(index: &Index<K, V>, work: impl FnOnce()) -> u64 {
    let (is_done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let sample = || most.fetch_max(index.stats().device_memory_bytes, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                sample();
                thread::yield_now();
            }
        });
        work();
        sample();
        is_done.store(true, Ordering::Relaxed);
    });
    most.into_inner()
}

/// Of levels of 18, 36 and 72 MiB, some budgets have room for one, two or all.
#[test]
fn device_memory_budget_is_kept_while_levels_come_and_go() {
    let least = Options::MIN_DEVICE_MEMORY_BUDGET;
    let mut random = rng("device_memory_budget_is_kept");
    let mut copied = Vec::new();
    for budget in [least, 160 * MIB, 512 * MIB] {
        let folder = folder();
        let path = folder.path().join("f");
        let options = options()
            .capacity(200_000)
            .device_mirror(true)
            // What the device does is slow without one, and would count as rest.
            .idle_compaction(None)
            .device_memory_budget(budget);
        let mut checked = Checked::new(Index::<Wide, u64>::create(&path, &options).unwrap());
        let check = |checked: &Checked<Wide, u64>| {
            let taken = checked.index.stats().device_memory_bytes;
            assert!(taken <= budget, "{taken} of {budget}");
            assert_eq!(taken == 0, engine() == Engine::Cpu);
            taken
        };
        copied.push(check(&checked));
        let keys: Vec<Wide> = (0..1500)
            .map(|_| wide(random.random_range(0..2000)))
            .collect();
        let values: Vec<u64> = (0..1500).collect();
        checked.upsert(&keys, &values);
        checked.index.reload_cache().unwrap();
        check(&checked);
        checked.get(&keys, 7);
        // A level comes on top, and the lowest one goes.
        checked.index.reserve(400_000).unwrap();
        check(&checked);
        checked.remove(&keys[..700]);
        checked.insert(&keys, &values);
        checked.update(&keys[..100], &values[..100]);
        checked.index.reload_cache().unwrap();
        check(&checked);
        checked.get(&keys, 7);
        checked.index.compact(&|_| {}).unwrap();
        check(&checked);
        checked.get(&keys, 7);
        checked.check();
        checked.index.sync().unwrap();
        drop(checked);
        // Another opening has another budget, or none.
        let open =
            |options: &Options| Checked::new(Index::<Wide, u64>::open(&path, options).unwrap());
        let checked = open(&options.clone().device_memory_budget(least));
        assert!(checked.index.stats().device_memory_bytes <= least);
        checked.get(&keys, 7);
    }
    if engine() != Engine::Cpu {
        let [one, two, _] = copied[..] else {
            panic!("{copied:?}")
        };
        assert!((18 * MIB..37 * MIB).contains(&one), "{one}");
        assert!((54 * MIB..160 * MIB).contains(&two), "{two}");
    }
}

/// Lookups wait for the buffers of others, also those of threads of a pool, which execute others while they wait.
#[test]
fn device_memory_budget_is_kept_by_lookups_of_many_threads() {
    let folder = folder();
    let budget = Options::MIN_DEVICE_MEMORY_BUDGET;
    let options = options().capacity(30_000).device_memory_budget(budget);
    let index = Index::<u64, [u64; 8]>::create(folder.path().join("f"), &options).unwrap();
    let keys: Vec<u64> = (0..20_000).collect();
    let values: Vec<[u64; 8]> = keys.iter().map(|&key| [key; 8]).collect();
    index.insert(&keys, &values).unwrap();
    let most = most_taken(&index, || {
        (0..24).into_par_iter().for_each(|nth: usize| {
            // Long ones, whose parts are several, and short ones.
            let keys = if nth.is_multiple_of(4) {
                &keys[..]
            } else {
                &keys[nth..nth + 900]
            };
            let mut found = vec![[0; 8]; keys.len()];
            let answers = index.get(keys, &mut found).unwrap();
            assert_eq!(answers.count_ones(..), keys.len());
            assert!(
                keys.iter()
                    .zip(&found)
                    .all(|(&key, found)| *found == [key; 8])
            );
            if nth == 9 {
                index.upsert(keys, &found).unwrap();
            }
        });
    });
    assert!(most <= budget, "{most}");
}

/// More records than a ring within the least budget has room for come free, and are used again.
#[test]
fn device_memory_budget_bounds_free_records_at_hand() {
    const COUNT: u64 = 140_000;
    let folder = folder();
    let budget = Options::MIN_DEVICE_MEMORY_BUDGET;
    let options = options().capacity(COUNT).device_memory_budget(budget);
    let index = Index::<u64, u64>::create(folder.path().join("f"), &options).unwrap();
    let keys: Vec<u64> = (0..COUNT).collect();
    let mut file_len = 0;
    let most = most_taken(&index, || {
        for round in 0..2 {
            let values: Vec<u64> = keys.iter().map(|key| key + round).collect();
            assert_eq!(
                index.insert(&keys, &values).unwrap().count_ones(..),
                keys.len()
            );
            let mut found = vec![0; keys.len()];
            assert_eq!(
                index.get(&keys, &mut found).unwrap().count_ones(..),
                keys.len()
            );
            assert_eq!(found, values);
            assert_eq!(index.remove(&keys).unwrap().count_ones(..), keys.len());
            if round == 0 {
                file_len = index.stats().file_len;
            }
        }
    });
    assert!(most <= budget, "{most}");
    // Records are used again, but for some that wait for their epoch.
    let grown = index.stats().file_len;
    assert!(grown <= file_len + file_len / 2, "{file_len} {grown}");
}
