//! Stores with more items than their memory budget.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gphash::pm::{Call, Faults};
use gphash::store::LevelStats;
use gphash::store::{Durability, Store, StoreOptions, WriteBatch};
use gphash::{Error, ReportState};
use gphash_test_support::wait_for;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use super::disk::{folders, room_taken};
use super::model::{Model, contents};
use super::{append, seed};

const BUDGET: u64 = 256 << 10;

fn options() -> StoreOptions {
    crate::options()
        .capacity(1)
        .durability(Durability::None)
        .checkpoint_bytes(1 << 20)
        .memory_budget(BUDGET)
        .merge_operator(append())
}

fn key(number: u32) -> Vec<u8> {
    format!("key {:08}", number.wrapping_mul(0x9E37_79B9)).into_bytes()
}

/// A store of ten times as many bytes as its budget.
fn fill(store: &Store, rng: &mut SmallRng) -> Model {
    let mut model = Model::new();
    for numbers in (0..20_000).collect::<Vec<u32>>().chunks(500) {
        let mut batch = WriteBatch::new();
        for number in numbers {
            let value = vec![number.to_le_bytes()[0]; rng.random_range(50..150)];
            batch.put(key(*number), value.clone());
            model.insert(key(*number), value);
        }
        store.write(batch).unwrap();
    }
    model
}

/// Files that each range would have to be looked up in become fewer while ranges are read.
#[test]
fn ranges_have_the_files_that_they_read_compacted() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = Store::open(folder.path().join("store"), &options()).unwrap();
    let mut model = fill(&store, &mut rng);
    // A few runs that nothing else has compacted, and that are worth it.
    let files_if_worth_it = || {
        let levels = store.stats().spill.levels;
        let bytes = |level| {
            levels
                .get(level)
                .map_or(0, |level: &LevelStats| level.bytes)
        };
        (16 * bytes(0) > bytes(1)).then(|| levels[0].files)
    };
    let mut next = 20_000;
    let (started, mut resting) = (Instant::now(), 0);
    let before = loop {
        assert!(started.elapsed() < Duration::from_secs(600), "no rest");
        let files = files_if_worth_it();
        if let Some(files) = files.filter(|_| resting >= 10) {
            break files;
        }
        if files.is_none() {
            let mut batch = WriteBatch::new();
            for number in next..next + 500 {
                batch.put(key(number), b"new");
                model.insert(key(number), b"new".to_vec());
            }
            store.write(batch).unwrap();
            next += 500;
            resting = 0;
        }
        std::thread::sleep(Duration::from_millis(10));
        resting += 1;
    };
    wait_for("level 0 is compacted", || {
        for _ in 0..500 {
            // A file of level 0 that has few keys has some of those that came last.
            let from = key(rng.random_range(next - 500..next));
            let found = store.range(from.clone()..).next().transpose().unwrap();
            let (key, value) = found.unwrap();
            assert!(key >= from && model[&key] == value);
        }
        let levels = store.stats().spill.levels;
        levels.first().is_none_or(|level| level.files < before)
    });
    assert!(contents(&store) == model, "other items");
}

#[test]
fn eviction_keeps_every_item_readable() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for folder in folders() {
        let path = folder.path().join("store");
        let store = Store::open(&path, &options()).unwrap();
        let mut model = fill(&store, &mut rng);
        wait_for("items leave", || store.stats().items_evicted > 10_000);
        wait_for("the table comes down to its budget", || {
            let stats = store.stats();
            stats.record_bytes + stats.level_bytes <= BUDGET
        });
        // In both tiers: changes, deletions, merges, new keys.
        for number in (0..25_000).step_by(7) {
            match number % 4 {
                0 => {
                    store.delete(key(number)).unwrap();
                    model.remove(&key(number));
                }
                1 => {
                    store.merge(key(number), b"+").unwrap();
                    model.entry(key(number)).or_default().push(b'+');
                }
                _ => {
                    store.put(key(number), b"new").unwrap();
                    model.insert(key(number), b"new".to_vec());
                }
            }
        }
        let check = |store: &Store| {
            assert!(contents(store) == model, "other items");
            let found: Vec<_> = store
                .range(..)
                .rev()
                .collect::<gphash::Result<_>>()
                .unwrap();
            assert!(
                found
                    .iter()
                    .rev()
                    .map(|(key, value)| (key, value))
                    .eq(&model)
            );
            let keys: Vec<_> = (0..26_000).map(key).collect();
            let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
            assert!(store.multi_get(&keys).unwrap() == expected);
            for (key, value) in keys.iter().zip(&expected).step_by(5) {
                assert_eq!(store.contains_key(key).unwrap(), value.is_some());
            }
            let snapshot = store.snapshot();
            assert!(snapshot.multi_get(&keys).unwrap() == expected);
            let own = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
            assert!(store.first().unwrap() == model.first_key_value().map(own));
            assert_eq!(store.is_empty().unwrap(), model.is_empty());
            assert!(store.last().unwrap() == model.last_key_value().map(own));
            assert_eq!(store.verify(&|_| {}).state, ReportState::Clean);
        };
        check(&store);
        store.close().unwrap();
        // Without a budget what is in the files stays there.
        let store = Store::open(&path, &crate::options().merge_operator(append())).unwrap();
        check(&store);
        assert_eq!(store.stats().items_evicted, 0);
        store.close().unwrap();
    }
}

/// Filters and indexes take three eighths of the budget, and what has no room is read when it is needed.
#[test]
fn filters_beyond_their_share_are_read_again() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for folder in folders() {
        let path = folder.path().join("store");
        let options = options().memory_budget(StoreOptions::MIN_BUDGET);
        let store = Store::open(&path, &options).unwrap();
        let mut model = fill(&store, &mut rng);
        wait_for("items leave", || store.stats().items_evicted > 15_000);
        // Those of a file of the least length, which is the last one that was read.
        let most = StoreOptions::MIN_BUDGET / 8 * 3 + (8 << 10);
        let check = |store: &Store, model: &Model, rng: &mut SmallRng| {
            let read = store.stats().spill.filter_reads;
            for _ in 0..500 {
                // A fifth is not there.
                let key = key(rng.random_range(0..25_000));
                assert_eq!(store.get(&key).unwrap().as_ref(), model.get(&key));
            }
            let spill = store.stats().spill;
            assert!(spill.filter_reads > read, "all have room");
            assert!((1..most).contains(&spill.memory), "{spill:?}");
        };
        check(&store, &model, &mut rng);
        for number in (0..25_000).step_by(5) {
            store.delete(key(number)).unwrap();
            model.remove(&key(number));
        }
        check(&store, &model, &mut rng);
        assert!(contents(&store) == model, "other items");
        store.close().unwrap();
        let store = Store::open(&path, &options).unwrap();
        check(&store, &model, &mut rng);
        store.compact(&|_| {}).unwrap();
        check(&store, &model, &mut rng);
        assert!(contents(&store) == model, "other items after compaction");
    }
}

#[test]
fn promotion_follows_repeated_reads() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for folder in folders() {
        let store = Store::open(folder.path().join("store"), &options()).unwrap();
        let model = fill(&store, &mut rng);
        let keys: Vec<_> = model.keys().cloned().collect();
        let mut some: Vec<_> = keys.sample(&mut rng, 100).cloned().collect();
        wait_for("they are in the table", || {
            // In turns, two keys may always take the place where the last read is noted.
            some.shuffle(&mut rng);
            let before = store.stats().read_below;
            for key in &some {
                assert_eq!(store.get(key).unwrap().as_ref(), model.get(key));
            }
            store.stats().read_below == before
        });
        assert!(store.stats().items_promoted > 0);
        assert!(contents(&store) == model, "other items");
        store.close().unwrap();
    }
}

#[test]
fn deletion_of_evicted_items_is_final() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store"), &options()).unwrap();
    let mut model = Model::new();
    // The same keys come and go, so that tombstones and values are on their way down together.
    for round in 0..60 {
        let mut batch = WriteBatch::new();
        for _ in 0..400 {
            let key = key(rng.random_range(0..4000));
            if rng.random_bool(0.5) {
                batch.delete(key.clone());
                model.remove(&key);
            } else {
                let value = vec![round; 200];
                batch.put(key.clone(), value.clone());
                model.insert(key, value);
            }
        }
        store.write(batch).unwrap();
        if round % 10 == 9 {
            assert!(contents(&store) == model, "round {round}");
        }
    }
    assert!(store.stats().items_evicted > 0);
    store.close().unwrap();
}

/// Sums of pairs of keys stay what they are, in every snapshot, while items leave and come up.
#[test]
fn snapshot_across_evictions_sees_one_moment() {
    const PAIRS: u32 = 4000;
    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store"), &options()).unwrap();
    let pair = |number: u32, amount: u32| {
        let value = |amount: u32| [&amount.to_le_bytes()[..], &[0; 96]].concat();
        let mut batch = WriteBatch::new();
        batch.put([&b"a"[..], &key(number)].concat(), value(amount));
        batch.put([&b"b"[..], &key(number)].concat(), value(u32::MAX - amount));
        batch
    };
    for number in 0..PAIRS {
        store.write(pair(number, 0)).unwrap();
    }
    let amount = |value: &[u8]| u32::from_le_bytes(value[..4].try_into().unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = |nth: u64| {
            let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(nth));
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let key = key(rng.random_range(0..PAIRS));
                    let keys = [[&b"a"[..], &key].concat(), [&b"b"[..], &key].concat()];
                    let values = store.multi_get(&keys).unwrap();
                    let sum = values.iter().map(|value| amount(value.as_ref().unwrap()));
                    assert_eq!(sum.sum::<u32>(), u32::MAX);
                    if rng.random_bool(0.01) {
                        let all: BTreeMap<_, _> = contents(store);
                        assert_eq!(all.len(), 2 * PAIRS as usize);
                        let (a, b): (Vec<_>, Vec<_>) =
                            all.iter().partition(|(key, _)| key[0] == b'a');
                        let sums = a.iter().zip(&b).map(|(a, b)| amount(a.1) + amount(b.1));
                        assert!(sums.into_iter().all(|sum| sum == u32::MAX));
                    }
                }
            })
        };
        let readers = [reader(1), reader(2)];
        let mut rng = SmallRng::seed_from_u64(seed);
        for _ in 0..6000 {
            let number = rng.random_range(0..PAIRS);
            store.write(pair(number, rng.random())).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    let stats = store.stats();
    assert!(stats.items_evicted > 0, "{stats:?}");
    store.close().unwrap();
}

/// A disk whose sorted files cannot be read for a while.
#[derive(Debug, Default)]
struct Unreadable(AtomicBool);

impl Faults for Unreadable {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_sorted = path.extension().is_some_and(|extension| extension == "sst");
        let is_read = matches!(call, Call::Read | Call::TryRead);
        match is_read && is_sorted && self.0.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
}

#[test]
fn sst_that_cannot_be_read_is_an_error() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(Unreadable::default());
    let path = folder.path().join("store");
    let store = Store::open(&path, &options().faults(disk.clone())).unwrap();
    let mut model = fill(&store, &mut rng);
    disk.0.store(true, Ordering::Relaxed);
    let mut failed = 0;
    for (key, value) in &model {
        match store.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value)),
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }), "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 1000, "{failed} lookups have failed");
    assert!(store.range(..).any(|item| item.is_err()));
    // A merge needs the value that it cannot read, and does nothing; other changes need none.
    for number in 0..200 {
        match store.merge(key(number), b"+") {
            Ok(()) => model.get_mut(&key(number)).unwrap().push(b'+'),
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
        }
        store.put(key(number + 200), b"new").unwrap();
        model.insert(key(number + 200), b"new".to_vec());
        store.delete(key(number + 400)).unwrap();
        model.remove(&key(number + 400));
    }
    disk.0.store(false, Ordering::Relaxed);
    assert!(contents(&store) == model, "other items");
    store.close().unwrap();
}

/// What a store whose data is in memory alone needs, for each partition: index, reserve, segments of the log.
const OTHER_ROOM: u64 = 16 << 20;

/// Items that are in files are deleted, or get shorter values, in the index. What that leaves of the files goes with
/// one compaction, and what a snapshot sees when the snapshot does.
#[test]
fn compaction_removes_what_the_index_hides() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for (folder, partitions) in folders().into_iter().zip([1, 3]) {
        let path = folder.path().join("store");
        let options = options()
            .partitions(partitions)
            .memory_budget(u64::from(partitions) << 20);
        let store = Store::open(&path, &options).unwrap();
        let mut model = Model::new();
        let put = |model: &mut Model, numbers: std::ops::Range<u32>, len: usize| {
            for first in numbers.clone().step_by(500) {
                let mut batch = WriteBatch::new();
                for number in first..numbers.end.min(first + 500) {
                    let value = vec![number.to_le_bytes()[0]; len];
                    batch.put(key(number), value.clone());
                    model.insert(key(number), value);
                }
                store.write(batch).unwrap();
            }
        };
        let delete = |model: &mut Model, numbers: std::ops::Range<u32>| {
            for number in numbers {
                store.delete(key(number)).unwrap();
                model.remove(&key(number));
            }
        };
        let check = |model: &Model| {
            store.compact(&|_| {}).unwrap();
            assert!(contents(&store) == *model);
            let bytes: usize = model
                .iter()
                .map(|(key, value)| key.len() + value.len())
                .sum();
            let bytes = bytes as u64 + 64 * model.len() as u64;
            let most = bytes + bytes / 2 + u64::from(partitions) * OTHER_ROOM;
            let taken = room_taken(&path);
            assert!(
                taken <= most,
                "{taken} of {most} bytes: {:?}",
                store.stats()
            );
        };
        // In value files, and in sorted files.
        put(&mut model, 0..16_000, 3_000);
        put(&mut model, 16_000..60_000, 100);
        check(&model);
        let before = store.snapshot();
        delete(&mut model, 0..8_000);
        put(&mut model, 8_000..16_000, 10);
        delete(&mut model, 16_000..50_000);
        store.compact(&|_| {}).unwrap();
        for _ in 0..200 {
            let number = rng.random_range(0..60_000u32);
            let len = if number < 16_000 { 3_000 } else { 100 };
            let value = vec![number.to_le_bytes()[0]; len];
            assert_eq!(before.get(&key(number)).unwrap(), Some(value));
        }
        drop(before);
        crate::wait_for_readers(&store);
        check(&model);
        delete(&mut model, 8_000..20_000);
        check(&model);
        drop(store);
        // As `gphash-recover --compact` does.
        let without = crate::options().merge_operator(append());
        let store = Store::open(&path, &without).unwrap();
        for number in 20_000..60_000 {
            store.delete(key(number)).unwrap();
        }
        store.compact(&|_| {}).unwrap();
        assert_eq!(store.stats().keys, 0);
        assert!(store.stats().spill.levels.is_empty());
        store.close().unwrap();
        assert!(room_taken(&path) < u64::from(partitions) * OTHER_ROOM);
        let store = Store::open(&path, &options).unwrap();
        assert!(contents(&store).is_empty());
    }
}

/// As after one compaction, in a minute of rest.
#[test]
fn rest_removes_what_the_index_hides() {
    const ITEMS: u32 = 48_000;
    const DELETED: u32 = 40_000;
    for partitions in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let options = options()
            .partitions(partitions)
            .memory_budget(u64::from(partitions) << 22)
            .idle_compaction(Some(Duration::from_millis(200)));
        let store = Store::open(&path, &options).unwrap();
        let value = |number: u32| vec![number.to_le_bytes()[0]; 3_000];
        for first in (0..ITEMS).step_by(500) {
            let mut batch = WriteBatch::new();
            (first..first + 500).for_each(|number| batch.put(key(number), value(number)));
            store.write(batch).unwrap();
        }
        let full = room_taken(&path);
        for first in (0..DELETED).step_by(500) {
            let mut batch = WriteBatch::new();
            (first..first + 500).for_each(|number| batch.delete(key(number)));
            store.write(batch).unwrap();
        }
        let live = u64::from(ITEMS - DELETED) * 3_064;
        let most = live + live / 2 + (64 << 20);
        assert!(full > most, "{full} of {most} bytes");
        wait_for("what is hidden takes room", || room_taken(&path) <= most);
        for number in (0..ITEMS).step_by(7) {
            let found = store.get(&key(number)).unwrap();
            assert_eq!(found, (number >= DELETED).then(|| value(number)));
        }
        store.close().unwrap();
    }
}
