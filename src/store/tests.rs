//! What the store's own tests share.

#[cfg(not(loom))]
use std::sync::Arc;
use std::time::Duration;

use super::{Columns, Request, Store, StoreOptions, WriteBatch};

/// Options of a store. With `GPHASH_TEST_COMPACTION=drawn` a GPU, if there is one, does half of the parts of its
/// compactions.
pub fn options() -> StoreOptions {
    match std::env::var("GPHASH_TEST_COMPACTION") {
        Ok(sides) if sides == "drawn" => StoreOptions::new().gpu_compaction_share(0.5),
        _ => StoreOptions::new(),
    }
}

/// The seed of a random test, which says how to repeat it.
pub fn seed() -> u64 {
    let seed = match std::env::var("GPHASH_TEST_SEED") {
        Ok(seed) => seed.parse().expect("GPHASH_TEST_SEED"),
        Err(_) => rand::random(),
    };
    println!("GPHASH_TEST_SEED={seed}");
    seed
}

/// A key that a partition has.
fn key_of(store: &Store, number: usize) -> Vec<u8> {
    let mut keys = (0..=u8::MAX).map(|key| vec![key]);
    keys.find(|key| store.partitions().number_of(key) == number)
        .unwrap()
}

/// One of them waits for a partition that the others do not need.
#[test]
fn asynchronous_requests_keep_their_order_across_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options().partitions(2)).unwrap();
    let partitions = store.partitions();
    let of = |number| key_of(&store, number);
    let put = |number| Request::Put {
        key: of(number),
        value: "first".into(),
    };
    let first = &partitions.all()[0];
    let held = first.queue.hold(first);
    let (sender, answers) = std::sync::mpsc::channel();
    let (done, also_done) = (sender.clone(), sender.clone());
    store.execute_async(vec![put(0), put(1)], move |answer| {
        done.send(answer.map(|_| None)).unwrap();
    });
    store.put_async(of(1), "then", move |answer| {
        also_done.send(answer.map(|()| None)).unwrap();
    });
    store.get_async(of(1), move |answer| sender.send(answer).unwrap());
    // Nothing is known to come before the batch.
    assert!(answers.recv_timeout(Duration::from_millis(50)).is_err());
    drop(held);
    let answers: Vec<_> = answers.iter().map(Result::unwrap).collect();
    assert_eq!(answers, [None, None, Some(b"then".to_vec())]);
    assert_eq!(store.get(&of(0)).unwrap(), Some(b"first".to_vec()));
    assert_eq!(store.get(&of(1)).unwrap(), Some(b"then".to_vec()));
}

/// By each verb, while the batch before waits for a partition that the change does not need.
#[test]
fn changes_that_are_waited_for_come_behind_asynchronous_ones() {
    type Verb = fn(&Store, Vec<u8>);
    let changes: [Verb; 5] = [
        |store, key| store.put(key, "last").unwrap(),
        |store, key| assert_eq!(store.swap(key, "last").unwrap(), Some("then".into())),
        |store, key| {
            let mut batch = WriteBatch::new();
            batch.put(key, "last");
            store.write(batch).unwrap();
        },
        |store, key| {
            let columns = |bytes: &[u8]| [bytes].into_iter().collect();
            let (keys, values): (Columns, Columns) = (columns(&key), columns(b"last"));
            store.put_columns(&keys, &values).unwrap();
        },
        |store, key| {
            let mut transaction = store.transaction();
            transaction.put(key, "last").unwrap();
            transaction.commit().unwrap();
        },
    ];
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options().partitions(2)).unwrap();
    let put = |number| Request::Put {
        key: key_of(&store, number),
        value: "first".into(),
    };
    for change in changes {
        let first = &store.partitions().all()[0];
        let held = first.queue.hold(first);
        store.execute_async(vec![put(0), put(1)], |answer| drop(answer.unwrap()));
        let (done, then) = std::sync::mpsc::channel();
        store.put_async(key_of(&store, 1), "then", move |answer| {
            done.send(answer).unwrap()
        });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                drop(held);
            });
            change(&store, key_of(&store, 1));
        });
        then.recv().unwrap().unwrap();
        assert_eq!(store.get(&key_of(&store, 1)).unwrap(), Some("last".into()));
    }
}

/// The second one while the first one is called.
#[test]
fn callbacks_of_a_thread_are_called_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options().partitions(2)).unwrap();
    let put = |number| Request::Put {
        key: key_of(&store, number),
        value: "first".into(),
    };
    let (sender, second) = std::sync::mpsc::channel();
    let (first, order) = std::sync::mpsc::channel();
    let also_first = first.clone();
    let (begins, has_begun) = std::sync::mpsc::channel();
    store.execute_async(vec![put(0), put(1)], move |_| {
        begins.send(()).unwrap();
        // The second one is there by then.
        second.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        also_first.send("first").unwrap();
    });
    has_begun.recv().unwrap();
    store.put_async(key_of(&store, 1), "", move |_| {
        first.send("second").unwrap()
    });
    sender.send(()).unwrap();
    assert_eq!(order.iter().collect::<Vec<_>>(), ["first", "second"]);
}

/// Callers call back at the end, when nothing is held that a callback may wait for.
#[cfg(not(loom))]
#[test]
fn callbacks_are_called_by_callers_where_no_thread_does() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(dir.path(), &options().partitions(2)).unwrap());
    let partition = Arc::clone(&store.partitions().all()[1]);
    partition.queue.lose_server();
    // It would do so, too, between its own works.
    partition.background.stop(&partition.state);
    let (sender, called) = std::sync::mpsc::channel();
    let put_async = || {
        let (store_of, sender) = (Arc::downgrade(&store), sender.clone());
        store.put_async(key_of(&store, 1), "", move |_| {
            store_of.upgrade().unwrap().checkpoint().unwrap();
            sender.send(()).unwrap();
        });
        let lacks_server = &store.partitions().shared().lacks_server;
        lacks_server.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let wait = Duration::from_secs(600);
    put_async();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        partition.checkpoint_here().unwrap();
        drop(partition);
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(wait)
        .expect("nobody calls back while he holds a lock");
    assert!(called.try_recv().is_err());
    store.put(key_of(&store, 0), "").unwrap();
    called.try_recv().unwrap();
    // What waits is executed by who holds the partition.
    put_async();
    let put = |number| Request::Put {
        key: key_of(&store, number),
        value: "".into(),
    };
    store.execute(vec![put(0), put(1)]).unwrap();
    called.try_recv().unwrap();
}
