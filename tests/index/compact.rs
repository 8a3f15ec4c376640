//! Room comes back: compaction of an index and of a store, beside batches, across openings.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gphash::store::{Store, StoreOptions};
use gphash::{Engine, Index, Options, Repair, ReportState, compact, recover};
use tempfile::TempDir;

type Value = [u64; 64];

fn options() -> Options {
    Options::new().engine(Engine::Cpu)
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

#[test]
fn index_gives_back_what_removals_leave() {
    for dir in dirs() {
        let path = dir.path().join("index");
        let index = Index::<u64, Value>::create(&path, &options()).unwrap();
        let keys: Vec<u64> = (0..60_000).collect();
        let values: Vec<Value> = keys.iter().map(|&key| value(key, 0)).collect();
        index.insert(&keys, &values).unwrap();
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
        assert_eq!(stats.free_bytes_held, 0);
        assert!(disk(&path) < full / 3, "{} of {full}", disk(&path));
        check(&index, &model, 0..60_010);
        // What is free is used again before the file grows.
        for version in 1..4 {
            let values: Vec<Value> = keys.iter().map(|&key| value(key, version)).collect();
            index.upsert(&keys, &values).unwrap();
            model.extend(keys.iter().map(|&key| (key, version)));
            check(&index, &model, 0..60_010);
            assert!(index.stats().file_len <= stats.file_len + (8 << 20));
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
