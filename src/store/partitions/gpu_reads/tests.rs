//! Columns that a GPU helps to read have what the CPU finds. Without a GPU, and without the emulated device for its
//! driver (docs/testing.md), these tests pass by.

mod budgets;
mod collisions;
mod sides;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gphash_test_support::Ends;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::engine::device_tests::{GPU, alone, fail_calls, failing_calls};
use crate::gpu::device::Device;
use crate::gpu::pinned_pool::{PINNED_BYTES_MAX, PinnedPool};
use crate::store::columns::{Columns, ValueColumns};
use crate::store::tests::seed;
use crate::store::{Durability, Partitioner, RequestKind, Store, StoreOptions};
use crate::width::low_byte;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(seed())
}

fn open(dir: &std::path::Path, partitions: u32, budget: Option<u64>) -> Store {
    let options = StoreOptions::new().partitions(partitions);
    let options = match budget {
        Some(budget) => options.memory_budget(budget),
        None => options,
    };
    open_with(dir, options)
}

/// A store all of whose columns a GPU helps to read.
fn open_with(dir: &std::path::Path, options: StoreOptions) -> Store {
    let options = options.durability(Durability::None).engine(GPU);
    let store = Store::open(dir, &options).unwrap();
    store.partitions().shared().gpu_reads.force(true);
    store
}

fn key(number: u32) -> Vec<u8> {
    // Of any length, the empty one included.
    number.to_le_bytes()[..(number % 5) as usize]
        .iter()
        .copied()
        .chain(
            number
                .to_be_bytes()
                .into_iter()
                .skip_while(|byte| *byte == 0),
        )
        .collect()
}

fn columns<'k>(keys: impl IntoIterator<Item = &'k Vec<u8>>) -> Columns {
    keys.into_iter().collect()
}

/// How long to wait for what comes in the end, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(300);

/// Reads a column until a GPU has helped with so many keys, or for so long; says how many these were at most. While
/// levels of a table change, it helps with none of that.
fn most_located(
    store: &Store,
    asked: &[Vec<u8>],
    model: &Model,
    (enough, patience): (u64, Duration),
) -> u64 {
    let started = Instant::now();
    let mut most = 0;
    while most < enough && started.elapsed() < patience {
        let before = store.stats().gpu_located;
        expect(&store.get_columns(&columns(asked)).unwrap(), asked, model);
        most = most.max(store.stats().gpu_located - before);
    }
    most
}

fn expect(found: &ValueColumns, keys: &[Vec<u8>], model: &Model) {
    for (nth, key) in keys.iter().enumerate() {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(found.get(nth), expected, "key {key:?}, the {nth}th");
    }
}

#[test]
fn columns_have_what_was_put_whatever_becomes_of_the_table() {
    let Some(_alone) = alone() else { return };
    let mut rng = rng();
    for (partitions, budget) in [(1, None), (3, None), (8, Some(StoreOptions::MIN_BUDGET))] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = open(dir.path(), partitions, budget);
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        let (mut located, mut there) = (0, 0);
        let is_in_memory = budget.is_none();
        for round in 0..12 {
            // The table grows, and shrinks when it is compacted.
            let most = [40, 900, 6000, 300][round % 4];
            let changes: Vec<u32> = (0..most / 2).map(|_| rng.random_range(0..most)).collect();
            let keys: Vec<Vec<u8>> = changes.iter().map(|&number| key(number)).collect();
            if rng.random_range(0..3) == 0 {
                store.delete_columns(&columns(&keys)).unwrap();
                keys.iter().for_each(|key| drop(model.remove(key)));
            } else {
                let len = rng.random_range(0..300);
                let values: Vec<Vec<u8>> = keys.iter().map(|_| vec![rng.random(); len]).collect();
                store
                    .put_columns(&columns(&keys), &columns(&values))
                    .unwrap();
                model.extend(keys.into_iter().zip(values));
            }
            match rng.random_range(0..4) {
                0 => store.compact(&|_| {}).unwrap(),
                1 => snapshots.push((store.snapshot(), model.clone())),
                _ => {}
            }
            // Of one wave, or of several.
            let asked: Vec<Vec<u8>> = (0..[700, 2600][round % 2])
                .map(|_| key(rng.random_range(0..most * 2)))
                .collect();
            expect(
                &store.get_columns(&columns(&asked)).unwrap(),
                &asked,
                &model,
            );
            if is_in_memory {
                let found = asked.iter().filter(|key| model.contains_key(*key)).count() as u64;
                let terms = (found - found / 10, Duration::from_secs(60));
                located += most_located(&store, &asked, &model, terms).min(found);
                there += found;
            }
            for (snapshot, model) in &snapshots {
                expect(
                    &snapshot.get_columns(&columns(&asked)).unwrap(),
                    &asked,
                    model,
                );
            }
            mixed(&store, &mut model, &asked, &mut rng);
        }
        // All that are in the index, in the nearest buckets of a table at rest.
        assert!(
            !is_in_memory || located * 10 > there * 8,
            "{located} of {there}"
        );
    }
}

/// Gets beside changes, some of the same keys: each sees the changes before it.
fn mixed(store: &Store, model: &mut Model, keys: &[Vec<u8>], rng: &mut SmallRng) {
    let kinds: Vec<RequestKind> = keys
        .iter()
        .map(|_| match rng.random_range(0..6) {
            0 => RequestKind::Put,
            1 => RequestKind::Delete,
            _ => RequestKind::Get,
        })
        .collect();
    let values: Vec<Vec<u8>> = keys
        .iter()
        .map(|_| vec![rng.random(); rng.random_range(0..90)])
        .collect();
    execute(store, model, &kinds, (keys, &values));
}

/// Executes a column of requests, whose answers are those of one after the other; gives these.
fn execute(
    store: &Store,
    model: &mut Model,
    kinds: &[RequestKind],
    (keys, values): (&[Vec<u8>], &[Vec<u8>]),
) -> ValueColumns {
    let answers = store
        .execute_columns(kinds, &columns(keys), &columns(values))
        .unwrap();
    assert!(answers.failures.is_empty());
    for (nth, (kind, key)) in kinds.iter().zip(keys).enumerate() {
        let mut expected = None;
        match kind {
            RequestKind::Get => expected = model.get(key).map(Vec::as_slice),
            RequestKind::Delete => drop(model.remove(key)),
            _ => drop(model.insert(key.clone(), values[nth].clone())),
        }
        assert_eq!(
            answers.values.get(nth),
            expected,
            "{kind:?} of {key:?}, the {nth}th"
        );
    }
    answers.values
}

/// Keys for which the tables of two partitions have room from the beginning, and whose buckets are then mostly full.
const FULL_TABLES_KEYS: u32 = 10_400;

#[test]
fn keys_of_full_tables_are_found_on_the_device() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = StoreOptions::new().capacity(FULL_TABLES_KEYS.into());
    let store = open_with(dir.path(), options.partitions(2));
    let keys: Vec<Vec<u8>> = (0..FULL_TABLES_KEYS).map(key).collect();
    store.put_columns(&columns(&keys), &columns(&keys)).unwrap();
    let model: Model = keys.iter().map(|key| (key.clone(), key.clone())).collect();
    // Those that have gone past the nearest buckets, too.
    let enough = u64::from(FULL_TABLES_KEYS - FULL_TABLES_KEYS / 1000);
    let located = most_located(&store, &keys, &model, (enough, PATIENCE));
    assert!(located >= enough, "{located} of {FULL_TABLES_KEYS}");
}

/// Says where keys are by their length.
struct ByLength;

impl Partitioner for ByLength {
    fn name(&self) -> &str {
        "by length"
    }

    fn partition(&self, key: &[u8], partitions: usize) -> usize {
        key.len() % partitions
    }
}

#[test]
fn keys_of_any_length_are_found_on_the_device() {
    let Some(_alone) = alone() else { return };
    // Each way of hashing has lengths of its own.
    let lens = (0..520).chain([1023, 1024, 1025, 1100, 2049, 5000]);
    let keys: Vec<Vec<u8>> = lens
        .map(|len: usize| (0..len).map(|at| low_byte(at as u64 * 7)).collect())
        .collect();
    let model: Model = keys.iter().map(|key| (key.clone(), key.clone())).collect();
    let mut rng = rng();
    let options = StoreOptions::new().partitions(3);
    for options in [options.clone(), options.partitioner(Arc::new(ByLength))] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = open_with(dir.path(), options);
        store.put_columns(&columns(&keys), &columns(&keys)).unwrap();
        let enough = (keys.len() - keys.len() / 100) as u64;
        let located = most_located(&store, &keys, &model, (enough, PATIENCE));
        assert!(located >= enough, "{located}");
        let (mut model, twice) = (model.clone(), [&keys[..], &keys[..]].concat());
        for _ in 0..3 {
            mixed(&store, &mut model, &twice, &mut rng);
        }
    }
}

/// Keys of more waves of two threads than tables are held for.
const LONG_COLUMN_KEYS: u32 = 160_000;

#[test]
fn long_columns_are_read_while_levels_change() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = open_with(dir.path(), StoreOptions::new().partitions(2).threads(2));
    let keys: Vec<Vec<u8>> = (0..600).map(key).collect();
    store.put_columns(&columns(&keys), &columns(&keys)).unwrap();
    let model: Model = keys.iter().map(|key| (key.clone(), key.clone())).collect();
    let asked: Vec<Vec<u8>> = (0..LONG_COLUMN_KEYS).map(|nth| key(nth % 700)).collect();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Whoever grows the tables is let in between two waves.
            for first in (1000..)
                .step_by(100)
                .take_while(|_| !is_done.load(Ordering::Acquire))
            {
                let others: Vec<Vec<u8>> = (first..first + 100).map(key).collect();
                store
                    .put_columns(&columns(&others), &columns(&others))
                    .unwrap();
                thread::yield_now();
            }
        });
        let _ends = Ends(&is_done);
        let started = Instant::now();
        // On a busy machine the tables may change all the while.
        while store.stats().gpu_located == 0 && started.elapsed() < PATIENCE {
            expect(
                &store.get_columns(&columns(&asked)).unwrap(),
                &asked,
                &model,
            );
        }
    });
    assert!(store.stats().gpu_located > 0);
    let enough = u64::from(LONG_COLUMN_KEYS) / 10 * 8;
    let located = most_located(&store, &asked, &model, (enough, PATIENCE));
    assert!(located >= enough, "{located}");
}

#[test]
fn columns_see_each_batch_of_others_as_a_whole() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = open(dir.path(), 3, None);
    let keys: Vec<Vec<u8>> = (0..300).map(key).collect();
    let all = columns(&keys);
    let put = |version: u32| {
        // Records of several sizes are retired and taken again.
        let value = format!("{version:0len$}", len = 8 + (version % 7) as usize * 20);
        let values: Vec<Vec<u8>> = keys.iter().map(|_| value.clone().into_bytes()).collect();
        store.put_columns(&all, &columns(&values)).unwrap();
    };
    put(0);
    let (is_done, compaction_ends) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&is_done);
            {
                let _ends = Ends(&compaction_ends);
                (1..400).for_each(put);
            }
            let started = Instant::now();
            // On a busy machine the GPU may have found no moment at which nothing was on its way.
            for version in 400.. {
                if store.stats().gpu_located > 0 || started.elapsed() > PATIENCE {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
                put(version);
            }
        });
        scope.spawn(|| {
            while !compaction_ends.load(Ordering::Acquire) {
                store.compact(&|_| {}).unwrap();
            }
        });
        let mut last = 0;
        while !is_done.load(Ordering::Acquire) {
            let found = store.get_columns(&all).unwrap();
            let version = |value: Option<&[u8]>| -> u32 {
                let text = std::str::from_utf8(value.expect("no key is deleted")).unwrap();
                text.parse().unwrap()
            };
            let first = version(found.get(0));
            assert!(found.iter().all(|value| version(value) == first));
            assert!(first >= last, "{first} after {last}");
            last = first;
        }
    });
    assert!(store.stats().gpu_located > 0);
}

/// The device has what is newest; what a snapshot sees of keys that were changed since is put right.
#[test]
fn columns_of_snapshots_have_what_was_there() {
    let Some(_alone) = alone() else { return };
    let mut rng = rng();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = open(dir.path(), 3, None);
    let keys: Vec<Vec<u8>> = (0..600).map(key).collect();
    let all = columns(&keys);
    store.put_columns(&all, &all).unwrap();
    let mut model: Model = keys.iter().cloned().zip(keys.iter().cloned()).collect();
    let mut snapshots = Vec::new();
    for round in 0..20u8 {
        snapshots.push((store.snapshot(), model.clone()));
        for _ in 0..60 {
            let key = &keys[rng.random_range(0..keys.len())];
            if rng.random_range(0..4) == 0 {
                store.delete(key.clone()).unwrap();
                model.remove(key);
            } else {
                let value = vec![round; rng.random_range(0..200)];
                store.put(key.clone(), value.clone()).unwrap();
                model.insert(key.clone(), value);
            }
        }
        if snapshots.len() > 4 {
            snapshots.swap_remove(rng.random_range(0..5));
        }
        for (snapshot, model) in &snapshots {
            expect(&snapshot.get_columns(&all).unwrap(), &keys, model);
        }
        expect(&store.get_columns(&all).unwrap(), &keys, &model);
    }
    assert!(store.stats().gpu_located > 0);
}

#[test]
fn a_gpu_that_fails_at_any_call_costs_time_alone() {
    let Some(_alone) = alone() else { return };
    let run = |first: u64, last: u64| {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = open(dir.path(), 2, None);
        let mut model = Model::new();
        let keys: Vec<Vec<u8>> = (0..500).map(key).collect();
        // Some waves of them, so that several exchanges are under way.
        let asked: Vec<Vec<u8>> = keys.iter().cycle().take(3500).cloned().collect();
        fail_calls(first, last)?;
        for round in 0..3u8 {
            let changed = &keys[usize::from(round) * 50..][..300];
            let values: Vec<Vec<u8>> = changed.iter().map(|_| vec![round; 30]).collect();
            store
                .put_columns(&columns(changed), &columns(&values))
                .unwrap();
            model.extend(changed.iter().cloned().zip(values));
            expect(
                &store.get_columns(&columns(&asked)).unwrap(),
                &asked,
                &model,
            );
        }
        let calls = fail_calls(u64::MAX, u64::MAX);
        // It is well again.
        expect(&store.get_columns(&columns(&keys)).unwrap(), &keys, &model);
        calls.map(|calls| (calls, store.stats().gpu_located))
    };
    let Some((calls, located)) = run(u64::MAX, u64::MAX) else {
        println!("skipped: only the emulated device fails when it is asked to");
        return;
    };
    assert!(located > 1000, "{located}");
    println!("{calls} calls");
    for first in failing_calls(calls, &mut rng()) {
        let (_, located) = run(first, first + 1).unwrap();
        assert!(located > 500, "{located} after call {first} failed");
        run(first, u64::MAX).unwrap();
    }
}

/// Keys of a few waves of one thread.
const PINNED_COLUMN_KEYS: u32 = 20_000;

/// Columns after which values come to pinned memory, at least.
const COLUMNS_BEFORE_PINNED: usize = 2;

/// A store whose columns are read in waves of one thread, keys that it has with values of many lengths, and a column of
/// all of them, in no order.
fn whole(dir: &std::path::Path) -> (Store, Vec<Vec<u8>>, Model) {
    let store = open_with(dir, StoreOptions::new().partitions(2).threads(1));
    let keys: Vec<Vec<u8>> = (0..2000).map(key).collect();
    let lens = [100, 0, 1, 3, 1024, 8, 77, 0, 30, 64, 5, 50];
    let values: Vec<Vec<u8>> = (0..keys.len())
        .map(|nth| vec![low_byte(nth as u64); lens[nth % lens.len()]])
        .collect();
    store
        .put_columns(&columns(&keys), &columns(&values))
        .unwrap();
    let asked = (0..PINNED_COLUMN_KEYS).map(|nth| key(nth * 7919 % 2000));
    let model = keys.iter().cloned().zip(values).collect();
    (store, asked.collect(), model)
}

/// Reads columns until the values of one have come to pinned memory. On a busy machine levels of the tables may still
/// change, and nobody knows yet how long values are.
fn pin(store: &Store, asked: &[Vec<u8>]) {
    let started = Instant::now();
    let mut read = 0;
    while !store
        .get_columns(&columns(asked))
        .unwrap()
        .values()
        .are_lent()
    {
        read += 1;
        assert!(started.elapsed() < PATIENCE, "none of {read} columns");
    }
    assert!(read >= COLUMNS_BEFORE_PINNED, "{read}");
}

#[test]
fn pinned_columns_are_kept_while_others_are_read() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, asked, model) = whole(dir.path());
    let all = columns(&asked);
    pin(&store, &asked);
    let mut kept = Vec::new();
    for len in [20_000, 19_999, 9000, 20_000, 8193, 20_000, 20_000, 20_000] {
        let found = store.get_columns(&columns(&asked[..len])).unwrap();
        expect(&found, &asked[..len], &model);
        kept.push((len, found));
    }
    let pinned = kept.iter().filter(|(_, found)| found.values().are_lent());
    assert!(pinned.count() >= 3);
    for (len, found) in &kept {
        expect(found, &asked[..*len], &model);
    }
    // What others drop is used again, and clones stay as they are.
    let (_, first) = kept.swap_remove(0);
    assert!(first.values().are_lent());
    let clone = first.clone();
    thread::spawn(move || drop((first, kept))).join().unwrap();
    expect(&clone, &asked, &model);
    drop(clone);
    let mut values = ValueColumns::default();
    for _ in 0..4 {
        values = store.get_columns_into(&all, values).unwrap();
        expect(&values, &asked, &model);
        assert!(values.values().are_lent());
    }
    // Other engines fill such buffers as well.
    let little = columns(&asked[..10]);
    let snapshot = store.snapshot();
    let of_snapshot = snapshot.get_columns_into(&all, values).unwrap();
    expect(&of_snapshot, &asked, &model);
    drop(snapshot);
    let values = store.get_columns_into(&little, of_snapshot).unwrap();
    expect(&values, &asked[..10], &model);
    let (_, bytes, _) = store.get_columns(&all).unwrap().into_parts();
    let expected: Vec<u8> = asked.iter().flat_map(|key| model[key].clone()).collect();
    assert_eq!(bytes, expected);
    // They outlive the store, on any thread.
    let last = store.get_columns(&all).unwrap();
    assert!(last.values().are_lent());
    drop(store);
    thread::spawn(move || expect(&last, &asked, &model))
        .join()
        .unwrap();
}

/// That a key has no value is known of the device.
#[test]
fn absent_keys_are_in_a_pinned_column() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, asked, model) = whole(dir.path());
    let absent = |nth: usize| format!("there is no key {nth}").into_bytes();
    pin(&store, &asked);
    // Some of them, in all bytes of the validity, and all but one.
    for (every, are_absent) in [(3, true), (13, true), (asked.len(), true), (7777, false)] {
        let mut asked = asked.clone();
        let strange = |nth: &usize| nth.is_multiple_of(every) == are_absent;
        (0..asked.len())
            .filter(strange)
            .for_each(|nth| asked[nth] = absent(nth));
        // That a key is in no table is known of tables at rest.
        let enough = asked.len() as u64;
        let located = most_located(&store, &asked, &model, (enough, PATIENCE));
        assert_eq!(located, enough);
        let found = store.get_columns(&columns(&asked)).unwrap();
        expect(&found, &asked, &model);
        assert!(found.values().are_lent());
        let values = asked.iter().filter_map(|key| model.get(key));
        let bytes: usize = values.map(Vec::len).sum();
        assert_eq!(found.values().bytes().len(), bytes);
    }
}

#[test]
fn values_that_the_device_does_not_know_interrupt_a_pinned_column() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, asked, mut model) = whole(dir.path());
    let deleted = b"deleted".to_vec();
    let long = b"long".to_vec();
    for (key, value) in [(&deleted, vec![1u8; 9]), (&long, vec![3; 5000])] {
        store.put(key.clone(), value.clone()).unwrap();
        model.insert(key.clone(), value);
    }
    store.delete(deleted.clone()).unwrap();
    model.remove(&deleted);
    pin(&store, &asked);
    for strange in [&deleted, &long] {
        for at in [&[0][..], &[8191, 8192], &[12_000], &[19_999], &[1, 9000]] {
            let mut asked = asked.clone();
            at.iter().for_each(|&nth| asked[nth] = strange.clone());
            let found = store.get_columns(&columns(&asked)).unwrap();
            expect(&found, &asked, &model);
            assert!(found.values().are_lent());
        }
    }
    // More than there is room for in the pinned memory.
    let longest = asked.iter().filter(|key| model[*key].len() == 1024);
    let longest: Vec<Vec<u8>> = longest.cycle().take(asked.len()).cloned().collect();
    let found = store.get_columns(&columns(&longest)).unwrap();
    expect(&found, &longest, &model);
    assert!(!found.values().are_lent());
}

/// The device leaves room for what other requests of the column have left of a key, and has nothing for changes.
#[test]
fn answers_to_mixed_columns_come_to_pinned_memory() {
    let Some(_alone) = alone() else { return };
    let mut rng = rng();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, mut asked, mut model) = whole(dir.path());
    // Two waves.
    asked.truncate(9000);
    pin(&store, &asked);
    // The device has no room for values that are longer than it gives.
    for longest in [0, 500, 1024, 1025, 90] {
        let mut column = || {
            let mut kinds: Vec<RequestKind> = asked
                .iter()
                .map(|_| match rng.random_range(0..40) {
                    0 => RequestKind::Put,
                    1 => RequestKind::Delete,
                    _ => RequestKind::Get,
                })
                .collect();
            let value = |_: &Vec<u8>| vec![rng.random(); rng.random_range(0..=longest)];
            let mut values: Vec<Vec<u8>> = asked.iter().map(value).collect();
            // One of the longest is asked for: it was changed before.
            let put = (0..asked.len()).find(|&nth| kinds[nth] == RequestKind::Put);
            let put = put.expect("one of very many");
            values[put] = vec![7; longest];
            let later = put + 1..=put + 2000;
            later
                .filter(|&nth| asked[nth] == asked[put])
                .for_each(|nth| kinds[nth] = RequestKind::Get);
            let mut changed = BTreeSet::new();
            let unknown = kinds.iter().zip(&asked).filter(|(kind, key)| {
                let is_get = **kind == RequestKind::Get;
                if !is_get {
                    changed.insert(*key);
                }
                is_get && !changed.contains(key)
            });
            let unknown = unknown.count() as u64;
            let before = store.stats().gpu_located;
            let found = execute(&store, &mut model, &kinds, (&asked, &values));
            let located = store.stats().gpu_located - before;
            assert!(located <= unknown, "{located} of {unknown}");
            found.values().are_lent() && located == unknown
        };
        // There is room for values as long as those of the last columns.
        let (started, has_room) = (Instant::now(), longest <= 1024);
        let may_go_on = |nth| nth < 6 || has_room && started.elapsed() < PATIENCE;
        let is_whole = (0..).take_while(|nth| may_go_on(*nth)).any(|_| column());
        assert!(is_whole || !has_room, "of up to {longest} bytes");
    }
}

#[test]
fn a_gpu_that_fails_while_it_fills_a_pinned_column_costs_time_alone() {
    let Some(_alone) = alone() else { return };
    let run = |first: u64, last: u64| {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (store, mut asked, model) = whole(dir.path());
        // Two waves.
        asked.truncate(3000);
        pin(&store, &asked);
        fail_calls(first, last)?;
        let mut values = ValueColumns::default();
        for _ in 0..2 {
            values = store.get_columns_into(&columns(&asked), values).unwrap();
            expect(&values, &asked, &model);
        }
        let calls = fail_calls(u64::MAX, u64::MAX);
        // It is well again.
        let later = store.get_columns(&columns(&asked)).unwrap();
        expect(&later, &asked, &model);
        expect(&values, &asked, &model);
        calls.map(|calls| (calls, values.values().are_lent()))
    };
    let Some((calls, is_lent)) = run(u64::MAX, u64::MAX) else {
        println!("skipped: only the emulated device fails when it is asked to");
        return;
    };
    assert!(is_lent);
    println!("{calls} calls");
    for first in failing_calls(calls, &mut rng()) {
        run(first, first + 1).unwrap();
        run(first, u64::MAX).unwrap();
    }
}

#[test]
fn pinned_memory_of_columns_is_bounded() {
    let Some(_alone) = alone() else { return };
    let device = Arc::new(Device::open(0).unwrap());
    let pool = PinnedPool::new(&device);
    let pin = || {
        let taken = (0..2).map(|_| pool.take(1).or_else(|| pool.pin(1)));
        taken.flatten().next()
    };
    assert!(pin().is_none(), "nobody knows how long values are");
    pool.note(1, PINNED_BYTES_MAX / 3);
    let first = pin().expect("there is room");
    let second = pin().expect("there is room");
    assert!(pin().is_none());
    let address = first.as_ref().as_ptr();
    drop(first);
    let again = pin().expect("one that has come back");
    assert_eq!(again.as_ref().as_ptr(), address);
    drop((again, second));
    // Those that are too short make room.
    pool.note(1, PINNED_BYTES_MAX / 2);
    let long = pin().expect("there is room");
    assert!(long.as_ref().len() >= PINNED_BYTES_MAX / 2);
    pool.note(1, PINNED_BYTES_MAX);
    assert!(pin().is_none());
    drop(pool);
    drop(device);
    assert!(long.as_ref().iter().all(|byte| *byte == 0));
}
