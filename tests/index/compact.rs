//! Room comes back: compaction of an index and of a store, beside batches, across openings. `GPHASH_TEST_ENGINE`
//! chooses the engine of the index (`cpu` by default, or `cuda`).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gphash::store::{Store, StoreOptions, WriteBatch};
use gphash::{Engine, Index, Options, Repair, ReportState, compact, recover};
use gphash_test_support::Ends;
use tempfile::TempDir;

type Value = [u64; 64];

/// Options for the engine that `GPHASH_TEST_ENGINE` names.
fn options() -> Options {
    let engine = std::env::var("GPHASH_TEST_ENGINE").ok();
    let engine = engine.map_or(Engine::Cpu, |name| {
        name.parse().expect("GPHASH_TEST_ENGINE")
    });
    // Tests of what an index at rest does by itself say after which time: else it might take their work from others.
    Options::new().engine(engine).idle_compaction(None)
}

/// A directory on a disk, where files are in the domain `Checkpointed`, and one in memory.
fn dirs() -> [TempDir; 2] {
    [
        TempDir::new().unwrap(),
        TempDir::new_in("/dev/shm").unwrap(),
    ]
}

/// Bytes that a file has on its disk.
fn disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// As [`disk`], of an index that is open. A device that pins the file keeps all of it.
fn disk_while_open(path: &Path) -> u64 {
    match std::env::var("GPHASH_TEST_ENGINE").as_deref() {
        Ok("cuda") => 0,
        _ => disk(path),
    }
}

fn value(key: u64, version: u64) -> Value {
    [key.wrapping_mul(version + 1); 64]
}

fn check(index: &Index<u64, Value>, model: &HashMap<u64, u64>, keys: std::ops::Range<u64>) {
    let keys: Vec<u64> = keys.collect();
    let mut values = vec![[0; 64]; keys.len()];
    let found = index.get(&keys, &mut values).unwrap();
    for (nth, key) in keys.iter().enumerate() {
        let expected = model.get(key).map(|version| value(*key, *version));
        assert_eq!(found[nth].then_some(values[nth]), expected, "key {key}");
    }
}

/// A new index of 60,000 keys, and these with their first values.
fn filled(path: &Path) -> (Index<u64, Value>, Vec<u64>, Vec<Value>) {
    let index = Index::create(path, &options()).unwrap();
    let keys: Vec<u64> = (0..60_000).collect();
    let values: Vec<Value> = keys.iter().map(|&key| value(key, 0)).collect();
    index.insert(&keys, &values).unwrap();
    (index, keys, values)
}

#[test]
fn index_gives_back_what_removals_leave() {
    for dir in dirs() {
        let path = dir.path().join("index");
        let (index, keys, values) = filled(&path);
        index.sync().unwrap();
        let full = disk(&path);
        assert!(full > 30 << 20);
        let mut model: HashMap<u64, u64> = keys.iter().map(|&key| (key, 0)).collect();
        // Those that stay lie all over the file.
        let gone: Vec<u64> = keys.iter().copied().filter(|key| key % 10 != 3).collect();
        index.remove(&gone).unwrap();
        for key in &gone {
            model.remove(key);
        }
        index.compact(&|_| {}).unwrap();
        let stats = index.stats();
        assert!(stats.free_bytes > 24 << 20, "{stats:?}");
        let open = disk_while_open(&path);
        assert!(open < full / 3, "{open} of {full}, {stats:?}");
        assert_eq!(stats.free_bytes_held == 0, open != 0);
        check(&index, &model, 0..60_010);
        // What is free is used again before the file grows.
        for version in 1..4 {
            let values: Vec<Value> = keys.iter().map(|&key| value(key, version)).collect();
            index.upsert(&keys, &values).unwrap();
            model.extend(keys.iter().map(|&key| (key, version)));
            check(&index, &model, 0..60_010);
            // Each thread takes records at a time, so it is more on many cores.
            let file_len = index.stats().file_len;
            assert!(
                file_len <= stats.file_len * 3 / 2 + (8 << 20),
                "{file_len} {stats:?}"
            );
            index.remove(&gone).unwrap();
            for key in &gone {
                model.remove(key);
            }
            index.compact(&|_| {}).unwrap();
        }
        assert_eq!(index.iter().count(), model.len());
        index.close().unwrap();
        assert!(disk(&path) < full / 3);
        let report = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(report.state, ReportState::Clean, "{report:?}");
        let index = Index::<u64, Value>::open(&path, &options()).unwrap();
        check(&index, &model, 0..60_010);
        index.remove(&keys).unwrap();
        index.close().unwrap();
        compact(&path, &|_| {}).unwrap();
        assert!(disk(&path) < 8 << 20, "{}", disk(&path));
        let index = Index::<u64, Value>::open(&path, &options()).unwrap();
        assert!(index.is_empty());
        index.insert(&keys, &values).unwrap();
        let model = keys.iter().map(|&key| (key, 0)).collect();
        check(&index, &model, 0..60_010);
    }
}

/// A copy has blocks where the closed index had none, and so has one whose process was killed while it gave them back.
#[test]
fn copy_of_a_closed_index_gives_its_free_blocks_back() {
    let mut copies = 0;
    for dir in dirs() {
        let path = dir.path().join("index");
        let (index, keys, _) = filled(&path);
        index.remove(&keys[..50_000]).unwrap();
        index.compact(&|_| {}).unwrap();
        index.close().unwrap();
        let closed = disk(&path);
        let bytes = fs::read(&path).unwrap();
        let copy = dir.path().join("copy");
        // Zeros are written as others are.
        fs::write(&copy, bytes).unwrap();
        let copied = disk(&copy);
        if copied < closed + (4 << 20) {
            // A file system that finds zeros, or one without holes.
            continue;
        }
        copies += 1;
        let index = Index::<u64, Value>::open(&copy, &options()).unwrap();
        assert!(index.recovery().clean);
        index.close().unwrap();
        let left = disk(&copy);
        assert!(left < closed + (1 << 20), "{closed}, {copied}, {left}");
    }
    assert!(copies > 0, "memory has blocks for what is written");
}

#[test]
fn batches_run_beside_compaction() {
    for dir in dirs() {
        let index = Index::<u64, Value>::create(dir.path().join("index"), &options()).unwrap();
        let ends = AtomicBool::new(false);
        let models: Vec<HashMap<u64, u64>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3u64)
                .map(|thread| {
                    let index = &index;
                    scope.spawn(move || {
                        let mut model = HashMap::new();
                        let first = thread * 10_000;
                        for version in 0..40 {
                            let keys: Vec<u64> = (first..first + 8000)
                                .filter(|key| key % (version % 7 + 1) == 0)
                                .collect();
                            let values: Vec<Value> =
                                keys.iter().map(|&key| value(key, version)).collect();
                            index.upsert(&keys, &values).unwrap();
                            model.extend(keys.iter().map(|&key| (key, version)));
                            check(index, &model, first..first + 8000);
                            let gone: Vec<u64> = (first..first + 8000)
                                .filter(|key| key % 3 == version % 3)
                                .collect();
                            index.remove(&gone).unwrap();
                            for key in &gone {
                                model.remove(key);
                            }
                            check(index, &model, first..first + 8000);
                        }
                        model
                    })
                })
                .collect();
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    index.compact(&|_| {}).unwrap();
                }
            });
            let models = workers.into_iter().map(|worker| worker.join().unwrap());
            let models = models.collect();
            ends.store(true, Ordering::Relaxed);
            models
        });
        let model = models.into_iter().flatten().collect::<HashMap<_, _>>();
        check(&index, &model, 0..40_000);
        assert_eq!(index.len(), model.len() as u64);
        index.compact(&|_| {}).unwrap();
        index.close().unwrap();
    }
}

#[test]
fn levels_shrink_with_their_items() {
    for dir in dirs() {
        let path = dir.path().join("index");
        let index = Index::<u64, u64>::create(&path, &options()).unwrap();
        let keys: Vec<u64> = (0..400_000).collect();
        for turn in 0..3u64 {
            let values: Vec<u64> = keys.iter().map(|key| key * 3 + turn).collect();
            index.insert(&keys, &values).unwrap();
            let full = index.stats().slots;
            // Two are reserved keys in no level.
            let gone: Vec<u64> = (0..400_000).filter(|key| key % 400 != 7).collect();
            index.remove(&gone).unwrap();
            index.compact(&|_| {}).unwrap();
            let stats = index.stats();
            assert!(stats.slots <= full / 128, "{full} {stats:?}");
            assert_eq!((index.len(), index.iter().count()), (1000, 1000));
            let mut found_values = vec![0; keys.len()];
            let found = index.get(&keys, &mut found_values).unwrap();
            for (nth, value) in values.iter().enumerate() {
                let expected = (nth % 400 == 7).then_some(*value);
                assert_eq!(found[nth].then_some(found_values[nth]), expected);
            }
            let open = disk_while_open(&path);
            assert!(open < 8 << 20, "{open} {stats:?}");
            // Whoever goes through the index keeps its levels.
            index.insert(&gone, &gone).unwrap();
            let mut iter = index.iter();
            assert!(iter.next().is_some());
            index.remove(&keys).unwrap();
            let before = index.stats().top_level;
            index.compact(&|_| {}).unwrap();
            assert_eq!(index.stats().top_level, before);
            drop(iter);
            index.compact(&|_| {}).unwrap();
            assert!(index.stats().slots < 100);
            assert!(index.is_empty());
        }
        index.insert(&keys[..10], &keys[..10]).unwrap();
        index.close().unwrap();
        assert!(disk(&path) < 8 << 20, "{}", disk(&path));
        let report = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(
            (report.state, report.recovery.items),
            (ReportState::Clean, 10)
        );
    }
}

/// Each thread inserts, updates and removes keys of its own while another one compacts: many at first, then few.
#[test]
fn levels_shrink_and_grow_beside_batches() {
    for dir in dirs() {
        let index = Index::<u64, u64>::create(dir.path().join("index"), &options()).unwrap();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3u64)
                .map(|thread| {
                    let index = &index;
                    scope.spawn(move || {
                        let first = thread << 32;
                        for turn in 1..16u64 {
                            let many: Vec<u64> = (first..first + 20_000).collect();
                            let values: Vec<u64> = many.iter().map(|key| key + turn).collect();
                            index.upsert(&many, &values).unwrap();
                            let (few, gone) = many.split_at(200);
                            index.remove(gone).unwrap();
                            for nth in 0..20 {
                                let values: Vec<u64> = few.iter().map(|key| key + nth).collect();
                                index.update(few, &values).unwrap();
                                let mut held = vec![0; many.len()];
                                let found = index.get(&many, &mut held).unwrap();
                                assert_eq!(found.count_ones(..), few.len());
                                assert_eq!(&held[..few.len()], values);
                                let next = few[0] + 10_000 + nth;
                                assert!(index.insert_one(&next, &nth).unwrap());
                                assert!(!index.insert_one(&next, &nth).unwrap());
                                assert!(index.remove_one(&next).unwrap());
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    index.compact(&|_| {}).unwrap();
                }
            });
            workers
                .into_iter()
                .for_each(|worker| worker.join().unwrap());
            ends.store(true, Ordering::Relaxed);
        });
        index.compact(&|_| {}).unwrap();
        assert!(index.stats().slots < 10_000, "{:?}", index.stats());
        assert_eq!((index.len(), index.iter().count()), (600, 600));
        index.close().unwrap();
    }
}

/// Contents of a list, which grows.
fn list(key: u32, len: usize) -> Vec<u8> {
    vec![key.to_le_bytes()[0]; len]
}

#[test]
fn sizes_that_drift_take_no_more_room_than_what_is_there() {
    for dir in dirs() {
        let store_options = StoreOptions::new();
        let store = Store::open(dir.path(), &store_options).unwrap();
        let index_file = dir.path().join("index.gph");
        // Each list takes 100 size classes, one after another.
        let mut live = 0;
        for step in 1..100usize {
            for key in 0..100u32 {
                store.put(key.to_be_bytes(), list(key, step * 400)).unwrap();
            }
            live = step as u64 * 400 * 100;
        }
        store.compact(&|_| {}).unwrap();
        let used = disk(&index_file);
        assert!(used < live * 3 / 2 + (8 << 20), "{used} for {live}");
        let stats = store.stats();
        assert!(stats.index.file_len < 4 * live + (16 << 20), "{stats:?}");
        for key in 0..100u32 {
            let found = store.get(&key.to_be_bytes()).unwrap();
            assert_eq!(found, Some(list(key, 99 * 400)));
        }
        store.close().unwrap();
        let store = Store::open(dir.path(), &store_options).unwrap();
        for key in 0..100u32 {
            store.delete(key.to_be_bytes()).unwrap();
        }
        store.compact(&|_| {}).unwrap();
        assert!(disk(&index_file) < 8 << 20, "{}", disk(&index_file));
        let report = store.verify(&|_| {});
        assert_eq!(report.state, ReportState::Clean, "{report:?}");
        store.close().unwrap();
        let store = Store::open(dir.path(), &store_options).unwrap();
        assert_eq!(store.get(&7u32.to_be_bytes()).unwrap(), None);
        store.put(b"after", list(1, 100_000)).unwrap();
        assert_eq!(store.get(b"after").unwrap(), Some(list(1, 100_000)));
    }
}

/// Waits until a file takes at most so much of its disk.
fn wait_for_disk(path: &Path, most: u64) {
    let started = Instant::now();
    while disk(path) > most {
        let took = started.elapsed();
        assert!(took < Duration::from_secs(600), "{} of {most}", disk(path));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until so much of an index is free.
fn wait_for_free(index: &Index<u64, Value>, least: u64) {
    let started = Instant::now();
    while index.stats().free_bytes < least {
        let took = started.elapsed();
        assert!(took < Duration::from_secs(600), "{:?}", index.stats());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn index_at_rest_gives_room_back_by_itself() {
    let options = options().idle_compaction(Some(Duration::from_millis(100)));
    for dir in dirs() {
        let path = dir.path().join("index");
        let index = Index::<u64, Value>::create(&path, &options).unwrap();
        let keys: Vec<u64> = (0..120_000).collect();
        let values: Vec<Value> = keys.iter().map(|&key| value(key, 0)).collect();
        index.insert(&keys, &values).unwrap();
        let gone: Vec<u64> = keys.iter().copied().filter(|key| key % 20 != 7).collect();
        index.remove(&gone).unwrap();
        index.sync().unwrap();
        let version = index.metadata().version;
        wait_for_free(&index, 48 << 20);
        match disk_while_open(&path) {
            0 => {}
            _ => wait_for_disk(&path, 16 << 20),
        }
        assert_eq!(
            index.metadata().version,
            version,
            "nothing of a user was published"
        );
        let model = keys.iter().filter(|&key| key % 20 == 7);
        check(&index, &model.map(|&key| (key, 0)).collect(), 0..120_000);
        index.close().unwrap();
        assert!(disk(&path) < 16 << 20);
    }
}

/// What was not synced is not made durable by a compaction that nobody has asked for.
#[test]
fn compaction_at_rest_publishes_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("index");
    let options = options().idle_compaction(Some(Duration::from_millis(100)));
    let index = Index::<u64, Value>::create(&path, &options).unwrap();
    if index.stats().domain != gphash::Domain::Checkpointed {
        return;
    }
    let keys: Vec<u64> = (0..120_000).collect();
    let values: Vec<Value> = keys.iter().map(|&key| value(key, 0)).collect();
    index.insert(&keys, &values).unwrap();
    index.sync().unwrap();
    index.remove(&keys[100..]).unwrap();
    wait_for_free(&index, 48 << 20);
    // As after a crash: the files as they are.
    let copy = dir.path().join("copy");
    fs::copy(&path, &copy).unwrap();
    let journal = |path: &Path| path.with_extension("journal");
    if journal(&path).exists() {
        fs::copy(journal(&path), journal(&copy)).unwrap();
    }
    let crashed = Index::<u64, Value>::open(&copy, &options).unwrap();
    assert_eq!(crashed.len(), keys.len() as u64);
    check(
        &crashed,
        &keys.iter().map(|&key| (key, 0)).collect(),
        0..120_000,
    );
    crashed.close().unwrap();
    index.close().unwrap();
}

#[test]
fn store_at_rest_gives_room_back_by_itself() {
    for (dir, partitions) in dirs().into_iter().zip([1, 4].into_iter().cycle()) {
        let index_files = (0..partitions).map(|number| match number {
            0 => dir.path().join("index.gph"),
            _ => dir.path().join(format!("partition-{number:03}/index.gph")),
        });
        let store_options = StoreOptions::new()
            .partitions(partitions)
            .idle_compaction(Some(Duration::from_millis(100)));
        let store = Store::open(dir.path(), &store_options).unwrap();
        let batch = |keys: std::ops::Range<u32>, len: usize| {
            for first in keys.clone().step_by(1000) {
                let mut batch = WriteBatch::new();
                for key in first..keys.end.min(first + 1000) {
                    match len {
                        0 => batch.delete(key.to_be_bytes()),
                        len => batch.put(key.to_be_bytes(), list(key, len)),
                    };
                }
                store.write(batch).unwrap();
            }
        };
        // Each length is of another size class.
        for len in [300, 700, 1100] {
            batch(0..50_000, len);
        }
        batch(2_000..50_000, 0);
        for index_file in index_files {
            wait_for_disk(&index_file, (16 << 20) / u64::from(partitions));
        }
        for key in (0..50_000u32).step_by(7) {
            let held = store.get(&key.to_be_bytes()).unwrap();
            assert_eq!(held, (key < 2_000).then(|| list(key, 1100)));
        }
        store.close().unwrap();
    }
}

/// Other threads change all keys as fast as they can, and the levels shrink none the less.
#[test]
fn levels_shrink_beside_batches_that_change_all_keys() {
    for dir in dirs() {
        let index = Index::<u64, u64>::create(dir.path().join("index"), &options()).unwrap();
        let keys: Vec<u64> = (0..400_000).collect();
        index.insert(&keys, &keys).unwrap();
        let (few, gone) = keys.split_at(40_000);
        index.remove(gone).unwrap();
        let before = index.stats().slots;
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (index, ends) = (&index, &ends);
                scope.spawn(move || {
                    let mine: Vec<u64> = few
                        .iter()
                        .copied()
                        .filter(|key| key % 3 == thread)
                        .collect();
                    let mut turn = 0;
                    while !ends.load(Ordering::Relaxed) {
                        turn += 1;
                        for keys in mine.chunks(64) {
                            let values: Vec<u64> = keys.iter().map(|key| key + turn).collect();
                            index.upsert(keys, &values).unwrap();
                            let mut held = vec![0; keys.len()];
                            assert_eq!(
                                index.get(keys, &mut held).unwrap().count_ones(..),
                                keys.len()
                            );
                            assert_eq!(held, values);
                        }
                    }
                });
            }
            let _ends = Ends(&ends);
            let started = Instant::now();
            let is_large = || index.stats().slots >= before / 4;
            // It gives up where one of the others has lost its core amid a batch.
            while is_large() && started.elapsed() < Duration::from_secs(300) {
                index.compact(&|_| {}).unwrap();
            }
        });
        assert!(index.stats().slots < before / 4, "{:?}", index.stats());
        assert_eq!(index.iter().count(), few.len());
        index.close().unwrap();
    }
}
