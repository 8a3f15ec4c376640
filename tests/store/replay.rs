//! Logs that are replayed.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use gphash::store::{Store, StoreOptions, WriteBatch};
use gphash::{Domain, Error, ReportState};
use rayon::prelude::*;
use tempfile::TempDir;

use super::disk::{Failing, copy, folders};
use super::model::{Model, contents};

fn options() -> StoreOptions {
    crate::options()
        .partitions(1)
        .segment_bytes(4096)
        .checkpoint_bytes(u64::MAX)
}

/// Which files the log has.
fn inodes(path: &Path) -> BTreeSet<u64> {
    let files = fs::read_dir(path.join("wal")).unwrap();
    let inode = |file: io::Result<DirEntry>| file.unwrap().metadata().unwrap().ino();
    files.map(inode).collect()
}

fn segments(path: &Path) -> usize {
    inodes(path).len()
}

/// More than a segment of changes: new keys, new values of old ones, and a key that goes.
fn change(store: &Store, model: &mut Model, life: u8) {
    for nth in 0..20u8 {
        let (key, value) = (vec![b'k', nth % 15 + life], vec![life + nth; 500]);
        store.put(key.clone(), value.clone()).unwrap();
        model.insert(key, value);
    }
    store.delete([b'k', life]).unwrap();
    model.remove(&[b'k', life][..]);
}

#[test]
fn log_that_is_long_counts_until_a_checkpoint() {
    for folder in folders() {
        let place = |life: u8| folder.path().join(life.to_string());
        let mut model = Model::new();
        let mut bytes = 0;
        for life in 0..4 {
            let store = Store::open(place(life), &options()).unwrap();
            let stats = store.stats();
            assert_eq!(stats.replayed_records, 21 * u64::from(life));
            assert_eq!(stats.log_bytes, bytes);
            assert_eq!(contents(&store), model);
            change(&store, &mut model, life);
            bytes = store.stats().log_bytes;
            copy(&place(life), &place(life + 1));
        }
        let store = Store::open(place(4), &options()).unwrap();
        assert_eq!(contents(&store), model);
        store.checkpoint().unwrap();
        assert_eq!(store.stats().log_bytes, 0);
        // The last one, and one to be used again.
        assert_eq!(segments(&place(4)), 2);
        copy(&place(4), &place(5));
        let store = Store::open(place(5), &options()).unwrap();
        assert_eq!(store.stats().replayed_records, 0);
        assert_eq!(contents(&store), model);
    }
}

/// A log may have more segments than a process may have files open.
#[test]
fn segments_are_open_while_they_are_read() {
    const LIVES: u8 = 8;
    let folder = tempfile::tempdir().unwrap();
    let (path, left) = (folder.path().join("store"), folder.path().join("left"));
    let mut model = Model::new();
    let store = Store::open(&path, &options()).unwrap();
    (0..LIVES).for_each(|life| change(&store, &mut model, life));
    assert!(segments(&path) >= 2 * usize::from(LIVES));
    copy(&path, &left);
    let (told, open) = mpsc::channel();
    let wal = left.join("wal");
    let count = move |_, _| {
        let files = fs::read_dir("/proc/self/fd").unwrap();
        let files = files.flat_map(|file| fs::read_link(file.unwrap().path()));
        told.send(files.filter(|file| file.starts_with(&wal)).count())
            .unwrap();
    };
    let store = Store::open(&left, &options().on_replay(count)).unwrap();
    let open: Vec<usize> = open.try_iter().collect();
    assert!(open.len() >= 2 * usize::from(LIVES), "{open:?}");
    assert!(open.iter().all(|&open| open <= 2), "{open:?}");
    assert_eq!(contents(&store), model);
}

#[test]
fn log_that_is_short_stays_until_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let (open, left) = (folder.path().join("open"), folder.path().join("left"));
    let store = Store::open(&open, &options()).unwrap();
    store.put("key", "value").unwrap();
    copy(&open, &left);
    let store = Store::open(&left, &options()).unwrap();
    assert_eq!(store.stats().replayed_records, 1);
    assert!(store.stats().log_bytes > 0);
    assert_eq!(segments(&left), 1);
    drop(store);
    let store = Store::open(&left, &options()).unwrap();
    assert_eq!(store.stats().replayed_records, 0);
    assert_eq!(store.stats().log_bytes, 0);
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
}

/// What was put leaves the index while the rest is replayed, and what is deleted then stays so.
#[test]
fn items_leave_while_a_log_is_replayed() {
    let within = options().memory_budget(StoreOptions::MIN_BUDGET);
    for folder in folders() {
        let mut model = Model::new();
        for life in 0..4u8 {
            let place = |name| folder.path().join(format!("{name} {life}"));
            // Without a budget nothing leaves before.
            let store = Store::open(place("open"), &options()).unwrap();
            let mut put = WriteBatch::new();
            for nth in 0..=u8::MAX {
                let (key, value) = (vec![b'k', nth], vec![life; 700]);
                put.put(key.clone(), value.clone());
                model.insert(key, value);
            }
            store.write(put).unwrap();
            // In a segment of its own.
            let mut deleted = WriteBatch::new();
            for nth in (life..=u8::MAX).step_by(5) {
                deleted.delete([b'k', nth]);
                model.remove(&[b'k', nth][..]);
            }
            store.write(deleted).unwrap();
            copy(&place("open"), &place("left"));
            let store = Store::open(place("left"), &within).unwrap();
            let stats = store.stats();
            assert!(stats.items_evicted > 128, "{stats:?}");
            assert_eq!(stats.replayed_records, 2);
            assert_eq!(contents(&store), model, "life {life}");
            store.close().unwrap();
            let next = folder.path().join(format!("open {}", life + 1));
            fs::rename(place("left"), next).unwrap();
        }
    }
}

/// A store that is open, whose three partitions have logs so long that they are replayed side by side.
struct LongLogs {
    folder: TempDir,
    options: StoreOptions,
    _store: Store,
    model: Model,
}

impl LongLogs {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = crate::options()
            .partitions(3)
            .domain(Domain::Checkpointed)
            .checkpoint_bytes(u64::MAX);
        let store = Store::open(folder.path().join("open"), &options).unwrap();
        let mut model = Model::new();
        for nth in 0..60u8 {
            let mut batch = WriteBatch::new();
            for key in (0..30).map(|key| (u16::from(nth) * 20 + key).to_le_bytes()) {
                let value = vec![nth; 6000];
                batch.put(key, value.clone());
                model.insert(key.to_vec(), value);
            }
            store.write(batch).unwrap();
        }
        store.flush().unwrap();
        assert!(store.stats().log_bytes > 9 << 20);
        Self {
            folder,
            options,
            _store: store,
            model,
        }
    }

    /// What a kill would leave, in the place of an earlier copy of this name.
    fn left(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let _ = fs::remove_dir_all(&path);
        copy(&self.folder.path().join("open"), &path);
        path
    }
}

#[test]
fn replay_of_several_logs_tells_of_all() {
    let logs = LongLogs::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    let options = logs.options.clone();
    let options = options.on_replay(move |done, all| hears.lock().unwrap().push((done, all)));
    let store = Store::open(logs.left("left"), &options).unwrap();
    assert_eq!(contents(&store), logs.model);
    let told = told.lock().unwrap();
    assert!(told.len() >= 3 && told.is_sorted(), "{told:?}");
    let all = told[0].1;
    assert!(told.iter().all(|of| of.0 <= all && of.1 == all), "{told:?}");
    assert_eq!(told.last(), Some(&(all, all)));
}

/// A thread of the global pool that opens a store must not wait for that pool.
#[test]
fn threads_of_the_global_pool_open_stores_with_long_logs() {
    let logs = LongLogs::new();
    let threads = rayon::current_num_threads();
    let paths: Vec<PathBuf> = (0..threads)
        .map(|nth| logs.left(&nth.to_string()))
        .collect();
    let options = logs.options.clone();
    let (opened, open) = mpsc::channel();
    rayon::spawn(move || {
        let read = |path| contents(&Store::open(path, &options).unwrap());
        let found: Vec<Model> = paths.par_iter().map(read).collect();
        opened.send(found).unwrap();
    });
    let found = open.recv_timeout(Duration::from_secs(600));
    let found = found.expect("threads of a pool wait for each other");
    assert!(found.iter().all(|found| *found == logs.model));
}

#[test]
fn long_logs_of_partitions_survive_calls_that_fail() {
    let logs = LongLogs::new();
    for (code, lasting) in [
        (libc::ENOSPC, true),
        (libc::ENOSPC, false),
        (libc::EIO, false),
    ] {
        let (mut calls, mut refused) = (0, 0);
        loop {
            let faults = Failing::at(calls, lasting, code);
            let path = logs.left("left");
            let opened = Store::open(&path, &logs.options.clone().faults(faults.clone()));
            if faults.met() == 0 {
                break;
            }
            refused += usize::from(opened.is_err());
            if let Ok(store) = opened {
                faults.cure();
                assert_eq!(contents(&store), logs.model, "call {calls}, error {code}");
            }
            let store = Store::open(&path, &logs.options).unwrap();
            assert_eq!(contents(&store), logs.model, "call {calls}, error {code}");
            calls += 37;
        }
        // A disk that is full once may have room when it is asked again.
        let least = if code == libc::ENOSPC && !lasting {
            0
        } else {
            2
        };
        assert!(refused >= least, "{refused} of {calls} calls, error {code}");
    }
}

#[test]
fn log_that_was_salvaged_is_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name| folder.path().join(name);
    let options = options().domain(Domain::Checkpointed);
    let store = Store::open(place("open"), &options).unwrap();
    let mut model = Model::new();
    for life in 0..2 {
        change(&store, &mut model, life);
    }
    copy(&place("open"), &place("damaged"));
    let segment = place("damaged").join("wal/000000000004.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let refused = Store::open(place("damaged"), &options).map(|_| ());
    assert!(
        matches!(refused, Err(Error::DamagedLog { .. })),
        "{refused:?}"
    );

    let store = Store::open(place("damaged"), &options.clone().salvage(true)).unwrap();
    assert!(store.stats().replayed_records > 10);
    let mut model = contents(&store);
    change(&store, &mut model, 5);
    copy(&place("damaged"), &place("left"));
    let store = Store::open(place("left"), &options).unwrap();
    assert_eq!(contents(&store), model);
}

#[test]
fn segment_files_are_reused_after_a_checkpoint() {
    for folder in folders() {
        let place = |name: &str| folder.path().join(name);
        let store = Store::open(place("open"), &options()).unwrap();
        let mut model = Model::new();
        change(&store, &mut model, 0);
        store.checkpoint().unwrap();
        let before = inodes(&place("open"));
        assert_eq!(before.len(), 2);
        // Of the segment that had the file before, ever fewer records are behind the new ones.
        for nth in 1..20 {
            let (key, value) = (vec![b'k', nth], vec![nth; 500]);
            store.put(key.clone(), value.clone()).unwrap();
            model.insert(key, value);
            let left = place(&format!("left {nth}"));
            copy(&place("open"), &left);
            let left = Store::open(&left, &options()).unwrap();
            assert_eq!(left.stats().replayed_records, u64::from(nth));
            assert_eq!(contents(&left), model);
            assert_eq!(store.verify(&|_| {}).state, ReportState::Clean);
        }
        assert!(inodes(&place("open")).is_superset(&before));
        store.checkpoint().unwrap();
        change(&store, &mut model, 4);
        assert!(!inodes(&place("open")).is_disjoint(&before));
        store.close().unwrap();
        assert_eq!(segments(&place("open")), 1);
        let log = fs::read_dir(place("open").join("wal")).unwrap().next();
        assert!(log.unwrap().unwrap().metadata().unwrap().len() < 4096);
        let store = Store::open(place("open"), &options()).unwrap();
        assert_eq!(contents(&store), model);
    }
}
