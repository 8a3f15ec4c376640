//! Snapshots that threads share, and objects that own their share of the store.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gphash::Error;
use gphash::store::{Keys, Range, Snapshot, Store, StoreOptions, Transaction, WriteBatch};
use gphash_test_support::{Ends, wait_for};
use rayon::ThreadPoolBuilder;

use super::disk::folders;
use super::model::contents;

const KEYS: u32 = 400;

fn key(nth: u32) -> [u8; 4] {
    nth.to_be_bytes()
}

/// Gives all keys one value, long enough that it is not kept in memory beside a budget.
fn put_all(store: &Store, value: u8) {
    let mut batch = WriteBatch::new();
    for nth in 0..KEYS {
        batch.put(key(nth), vec![value; 100]);
    }
    store.write(batch).unwrap();
}

/// The one value that all keys have in a snapshot, read in several ways.
fn value_of_all(snapshot: &Snapshot, way: usize) -> u8 {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let values: Vec<Vec<u8>> = match way % 4 {
        0 => snapshot.iter().map(|item| item.unwrap().1).collect(),
        1 => {
            let values = snapshot.multi_get(&keys).unwrap();
            values.into_iter().map(Option::unwrap).collect()
        }
        2 => {
            let values = snapshot.get_columns(&keys.iter().collect()).unwrap();
            values.iter().map(|value| value.unwrap().to_vec()).collect()
        }
        _ => {
            let get = |key: &[u8; 4]| snapshot.get(key).unwrap().unwrap();
            keys.iter().map(get).collect()
        }
    };
    assert_eq!(values.len(), KEYS as usize);
    assert!(values.windows(2).all(|pair| pair[0] == pair[1]));
    assert!(keys.iter().all(|key| snapshot.contains_key(key).unwrap()));
    values[0][0]
}

#[test]
fn snapshot_shared_by_threads_sees_one_moment() {
    for folder in folders() {
        for (name, budget) in [("all", None), ("spilled", Some(StoreOptions::MIN_BUDGET))] {
            let mut options = crate::partitioned();
            if let Some(budget) = budget {
                options = options.memory_budget(budget);
            }
            let store = Store::open(folder.path().join(name), &options).unwrap();
            put_all(&store, 0);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut value = 0u8;
                    while !is_over.load(Ordering::Relaxed) {
                        value = value.wrapping_add(1);
                        put_all(&store, value);
                        store.delete(key(KEYS + u32::from(value))).unwrap();
                    }
                });
                let ends = Ends(&is_over);
                for _ in 0..10 {
                    let snapshot = store.snapshot();
                    let seen = value_of_all(&snapshot, 0);
                    std::thread::scope(|scope| {
                        for way in 0..4 {
                            // Some share it, and some have a clone, which lives on.
                            let clone = snapshot.clone();
                            let shared = &snapshot;
                            scope.spawn(move || {
                                assert_eq!(value_of_all(shared, way), seen);
                                assert_eq!(value_of_all(&clone, way + 1), seen);
                            });
                        }
                    });
                    let clone = snapshot.clone();
                    drop(snapshot);
                    assert_eq!(value_of_all(&clone, 1), seen);
                }
                drop(ends);
                writer.join().unwrap();
            });
            assert_eq!(store.stats().snapshots, 0);
            crate::wait_for_readers(&store);
        }
    }
}

#[test]
fn old_versions_go_also_if_readers_come_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    for key in 0..KEYS {
        store.put(key.to_be_bytes(), "old").unwrap();
    }
    let first = store.snapshot();
    for key in 0..KEYS {
        store.put(key.to_be_bytes(), "new").unwrap();
    }
    drop(first);
    // Who would forget what the first one saw finds this one, mostly.
    let next = store.snapshot();
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(next);
    crate::wait_for_readers(&store);
}

#[test]
fn clones_of_a_snapshot_keep_what_it_sees() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    store.put("key", "old").unwrap();
    let snapshot = store.snapshot();
    let clone = snapshot.clone();
    let mut items = clone.range("k"..);
    assert_eq!(store.stats().snapshots, 2); // that of the two, and the iterator's
    store.delete("key").unwrap();
    drop((snapshot, clone));
    assert_eq!(items.next().unwrap().unwrap().1, b"old");
    drop(items);
    assert_eq!(store.stats().snapshots, 0);
}

#[test]
fn many_keys_of_a_snapshot_are_read_by_several_threads() {
    const MANY: u32 = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path(), &crate::partitioned()).unwrap());
    let mut batch = WriteBatch::new();
    (0..MANY).for_each(|nth| batch.put(key(nth), key(nth)));
    store.write(batch).unwrap();
    let snapshot = store.snapshot_owned();
    for nth in (0..MANY).step_by(3) {
        match nth % 2 {
            0 => store.put(key(nth), "new").unwrap(),
            _ => store.delete(key(nth)).unwrap(),
        }
    }
    let (send, read) = mpsc::channel();
    // A thread of a pool must not wait for tasks of its own pool.
    let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.spawn(move || {
        let keys: Vec<_> = (0..MANY + 1).map(key).collect();
        send.send(snapshot.multi_get(&keys)).unwrap();
    });
    let values = read.recv_timeout(Duration::from_secs(600));
    let values = values.expect("it ends").unwrap();
    for (nth, value) in (0..).zip(values) {
        assert_eq!(value, (nth < MANY).then(|| key(nth).to_vec()));
    }
}

fn is_shared<T: Send + Sync>(_: &T) {}

#[test]
fn objects_of_a_store_go_between_threads() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path(), &crate::partitioned()).unwrap());
    let snapshot: Snapshot<'static> = store.snapshot_owned();
    let range: Range<'static> = snapshot.range(..);
    let keys: Keys<'static> = snapshot.keys(..);
    let transaction: Transaction<'static> = store.transaction_owned();
    is_shared(&snapshot);
    is_shared(&range);
    is_shared(&keys);
    is_shared(&transaction);
    is_shared(&store.snapshot());
}

/// Whether the store in a directory is still open.
fn is_open(path: &Path) -> bool {
    matches!(
        Store::open(path, &crate::partitioned()),
        Err(Error::InUse { .. })
    )
}

#[test]
fn owned_objects_keep_the_store_open_until_the_last_is_dropped() {
    for folder in folders() {
        let path = folder.path().join("store");
        let store = Arc::new(Store::open(&path, &crate::partitioned()).unwrap());
        put_all(&store, 1);
        let snapshot = store.snapshot_owned();
        let mut items = snapshot.iter();
        let mut transaction = store.transaction_owned();
        put_all(&store, 2);
        assert!(
            Arc::into_inner(store).is_none(),
            "others have it, too: nobody can close it"
        );
        assert_eq!(value_of_all(&snapshot, 1), 1);
        drop(snapshot);
        assert_eq!(items.next().unwrap().unwrap().1[0], 1);
        drop(items);
        assert!(is_open(&path));
        transaction.put("last", "word").unwrap();
        // It is the last one, so its commit closes the store.
        transaction.commit().unwrap();
        let store = Store::open(&path, &crate::partitioned()).unwrap();
        assert_eq!(store.stats().replayed_records, 0, "it was cleanly closed");
        assert_eq!(store.get(b"last").unwrap().unwrap(), b"word");
        assert_eq!(value_of_all(&store.snapshot(), 1), 2);
        store.close().unwrap();
    }
}

#[test]
fn last_owner_closes_the_store_on_another_thread() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path(), &crate::partitioned()).unwrap());
    put_all(&store, 1);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let items = store.range_owned(..);
            std::thread::spawn(move || items.map(Result::unwrap).count())
        })
        .collect();
    drop(store);
    for reader in readers {
        assert_eq!(reader.join().unwrap(), KEYS as usize);
    }
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    assert_eq!(store.stats().replayed_records, 0, "it was cleanly closed");
    assert_eq!(contents(&store).len(), KEYS as usize);
}

#[test]
fn callback_that_drops_the_last_owner_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path(), &crate::partitioned()).unwrap());
    put_all(&store, 1);
    let snapshot = store.snapshot_owned();
    let (go, wait) = mpsc::channel::<()>();
    let (ended, end) = mpsc::channel();
    store.put_async("key", "value", move |answer| {
        answer.unwrap();
        wait.recv().unwrap();
        drop(snapshot);
        ended.send(()).unwrap();
    });
    drop(store);
    go.send(()).unwrap();
    end.recv_timeout(Duration::from_secs(600)).expect("it ends");
    let open = || Store::open(folder.path(), &crate::partitioned());
    let store = (0..600).find_map(|_| match open() {
        Err(Error::InUse { .. }) => {
            std::thread::sleep(Duration::from_millis(100));
            None
        }
        opened => Some(opened.unwrap()),
    });
    let store = store.expect("a thread of its own closes it");
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn keys_of_a_snapshot_need_no_ordered_view() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned().ordered(false)).unwrap();
    store.put("key", "value").unwrap();
    let snapshot = store.snapshot();
    assert!(matches!(snapshot.first(), Err(Error::Unordered)));
    store.delete("key").unwrap();
    assert_eq!(snapshot.get(b"key").unwrap().unwrap(), b"value");
    assert!(snapshot.contains_key(b"key").unwrap());
    assert!(!store.contains_key(b"key").unwrap());
}

#[test]
fn snapshot_refuses_keys_that_are_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    let snapshot = store.snapshot();
    let long = vec![0; 65537];
    let refused = [
        snapshot.get(&long).err(),
        snapshot.get_with(&long, |_| ()).err(),
        snapshot.contains_key(&long).err(),
        snapshot.multi_get(std::slice::from_ref(&long)).err(),
    ];
    for error in refused {
        assert!(matches!(error, Some(Error::TooLong { .. })), "{error:?}");
    }
    // A bound is no key.
    assert_eq!(snapshot.range(long..).count(), 0);
}

/// What the oldest snapshot alone has seen goes with it, although another one lives, and nothing is changed.
#[test]
fn versions_that_only_the_oldest_snapshot_saw_go_with_it() {
    for folder in folders() {
        let store = Store::open(folder.path().join("store"), &crate::partitioned()).unwrap();
        let put_many = |value: u8| {
            let mut batch = WriteBatch::new();
            for nth in 0..40_000 {
                batch.put(key(nth), vec![value; 100]);
            }
            store.write(batch).unwrap();
        };
        put_many(1);
        let oldest = store.snapshot();
        put_many(2);
        let newer = store.snapshot();
        assert_eq!(store.stats().kept_versions, 40_000);
        drop(oldest);
        wait_for("old versions go", || store.stats().kept_versions == 0);
        put_all(&store, 3);
        assert_eq!(store.stats().kept_versions, KEYS as usize);
        assert_eq!(newer.get(&key(7)).unwrap(), Some(vec![2; 100]));
        drop(newer);
        wait_for("the last ones go", || store.stats().kept_versions == 0);
    }
}
