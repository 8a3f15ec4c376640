//! Code of the user that the store's threads run: callbacks and merge operators that panic, and that call
//! the store.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use gphash::pm::{Call, Faults};
use gphash::store::{
    Durability, MergeOperator, Request, Response, StallReason, Store, StoreOptions, WhenFull,
};
use gphash::{Error, Result};
use gphash_test_support::{block_on, must_end};

use super::disk::folders;

fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn callback_that_panics_harms_nobody() {
    must_end(|| {
        let folder = in_memory();
        let store = Store::open(folder.path(), &StoreOptions::new()).unwrap();
        let answered = Arc::new(AtomicU64::new(0));
        for nth in 0..100u8 {
            let answered = Arc::clone(&answered);
            store.put_async([nth], "value", move |answer| {
                answer.unwrap();
                answered.fetch_add(1, Ordering::Relaxed);
                assert!(nth % 7 != 0, "as it was told");
            });
        }
        store.close().unwrap();
        assert_eq!(answered.load(Ordering::Relaxed), 100);
        let store = Store::open(folder.path(), &StoreOptions::new()).unwrap();
        assert_eq!(store.range(..).count(), 100);
    });
}

/// Puts a value and, once that is done, the next one.
fn chain(store: &Arc<Store>, nth: u64, done: &mpsc::Sender<u64>) {
    let (next, told) = (Arc::clone(store), done.clone());
    store.put_async(nth.to_be_bytes(), vec![1; 4 << 20], move |answer| {
        answer.unwrap();
        if nth < 90 {
            chain(&next, nth + 30, &told);
        }
        drop(next);
        told.send(nth).unwrap();
    });
}

#[test]
fn callbacks_put_more_while_the_queue_is_full() {
    must_end(|| {
        let folder = in_memory();
        let options = StoreOptions::new().durability(Durability::None);
        let store = Arc::new(Store::open(folder.path(), &options).unwrap());
        let (done, all) = mpsc::channel();
        // More than may wait, so that this thread waits for room, too.
        for nth in 0..30 {
            chain(&store, nth, &done);
        }
        drop(done);
        assert_eq!(all.iter().count(), 120);
        let store = Arc::into_inner(store).expect("all callbacks have let go of it");
        assert_eq!(store.range(..).count(), 120);
        store.close().unwrap();
    });
}

#[test]
fn callbacks_call_every_verb() {
    must_end(|| {
        for folder in folders() {
            let options = StoreOptions::new()
                .partitions(1)
                .merge_operator(super::append());
            let store = Arc::new(Store::open(folder.path().join("store"), &options).unwrap());
            let (done, all) = mpsc::channel();
            for nth in 0..40u8 {
                let (store_too, done) = (Arc::clone(&store), done.clone());
                store.put_async([nth], [nth], move |answer| {
                    answer.unwrap();
                    let store = store_too;
                    // Behind requests that nobody waits for, which no other thread would execute.
                    for more in 0..20u8 {
                        store.put_async([nth, more], "more", |answer| answer.unwrap());
                    }
                    store.put([nth, 100], "put").unwrap();
                    store.merge([nth, 100], "+").unwrap();
                    let requests = vec![
                        Request::Get { key: vec![nth] },
                        Request::Delete { key: vec![nth] },
                    ];
                    let answers = store.execute(requests).unwrap();
                    assert!(matches!(&answers[0], Response::Value(Some(value)) if *value == [nth]));
                    let mut transaction = store.transaction();
                    transaction.put([nth, 101], "transacted").unwrap();
                    transaction.commit().unwrap();
                    assert_eq!(store.get(&[nth, 100]).unwrap().unwrap(), b"put+");
                    assert_eq!(store.prefix([nth]).count(), 22);
                    if nth % 8 == 0 {
                        store.checkpoint().unwrap();
                    }
                    store.flush().unwrap();
                    drop(store);
                    done.send(()).unwrap();
                });
            }
            drop(done);
            assert_eq!(all.iter().count(), 40);
            Arc::into_inner(store).unwrap().close().unwrap();
        }
    });
}

/// Opens a store that is being closed, as soon as it is.
fn open_again(path: &Path) -> Store {
    let open = || match Store::open(path, &StoreOptions::new()) {
        Err(Error::InUse { .. }) => None,
        opened => Some(opened.unwrap()),
    };
    (0..100).find_map(|_| open()).expect("it is closed")
}

#[test]
fn callback_that_closes_the_store_gets_an_error() {
    must_end(|| {
        for by_drop in [false, true] {
            let folder = in_memory();
            let store = Store::open(folder.path(), &StoreOptions::new()).unwrap();
            let store = Arc::new(store);
            let (send, told) = mpsc::channel();
            let last = Arc::new(OnceLock::new());
            let (go, wait) = mpsc::channel::<()>();
            let held = Arc::clone(&last);
            store.put_async("key", "value", move |answer| {
                answer.unwrap();
                wait.recv().unwrap();
                let store: Option<Arc<Store>> = Arc::into_inner(held).unwrap().into_inner();
                let store = Arc::into_inner(store.unwrap()).unwrap();
                send.send(match by_drop {
                    true => None,
                    false => store.close().err(),
                })
                .unwrap();
            });
            assert!(last.set(store).is_ok());
            drop(last);
            go.send(()).unwrap();
            let error = told.recv().unwrap();
            assert_eq!(error.is_some(), !by_drop);
            assert!(error.is_none_or(|error| matches!(error, Error::Reentrant { .. })));
            let store = open_again(folder.path());
            assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
            assert_eq!(store.stats().replayed_records, 0, "it was cleanly closed");
        }
    });
}

/// Merges by reading, and tries to change what the operand says.
#[derive(Default)]
struct Calls(OnceLock<Weak<Store>>);

impl MergeOperator for Calls {
    fn name(&self) -> &str {
        "calls"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let store = self.0.get().and_then(Weak::upgrade).ok_or("no store")?;
        let done = match operand {
            b"read" => Ok(()),
            b"put" => store.put("other", "value"),
            b"execute" => {
                let request = Request::Delete { key: Vec::new() };
                store.execute(vec![request]).map(drop)
            }
            b"transact" => {
                let mut transaction = store.transaction();
                transaction.delete("other").unwrap();
                transaction.commit()
            }
            b"checkpoint" => store.checkpoint(),
            b"put_async" => {
                let (send, told) = mpsc::channel();
                store.put_async("other", "value", move |answer| send.send(answer).unwrap());
                told.recv().unwrap()
            }
            _ => panic!("as it was told"),
        };
        done.map_err(|error| error.to_string())?;
        assert_eq!(store.range(..).count(), 1);
        let read = store.get(b"source").map_err(|error| error.to_string())?;
        Ok(read.unwrap_or_default())
    }
}

#[test]
fn merge_operator_reads_the_store_and_changes_none() {
    must_end(|| {
        let folder = in_memory();
        let operator = Arc::new(Calls::default());
        let options = StoreOptions::new().merge_operator(operator.clone());
        let store = Arc::new(Store::open(folder.path(), &options).unwrap());
        operator.0.set(Arc::downgrade(&store)).unwrap();
        store.put("source", "read").unwrap();
        for verb in ["put", "execute", "transact", "checkpoint", "put_async"] {
            let error = store.merge("key", verb).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Merge { .. }), "{verb}: {text}");
            assert!(text.contains("a merge operator cannot change"), "{text}");
        }
        assert!(matches!(
            store.merge("key", "panic"),
            Err(Error::Merge { .. })
        ));
        store.merge("key", "read").unwrap();
        assert_eq!(store.get(b"key").unwrap().unwrap(), b"read");
        assert_eq!(store.range(..).count(), 2);
        assert_eq!(store.stats().snapshots, 0);
        Arc::into_inner(store).unwrap().close().unwrap();
    });
}

#[test]
fn reader_of_a_value_may_change_the_store_and_panic() {
    must_end(|| {
        let folder = in_memory();
        let store = Store::open(folder.path(), &StoreOptions::new()).unwrap();
        store.put("key", "old").unwrap();
        let seen = store.get_with(b"key", |value| {
            store.put("key", "new").unwrap();
            let inner = store.get_with(b"key", <[u8]>::to_vec).unwrap();
            assert_eq!(store.range(..).count(), 1);
            store.checkpoint().unwrap();
            (value.to_vec(), inner.unwrap())
        });
        assert_eq!(seen.unwrap().unwrap(), (b"old".to_vec(), b"new".to_vec()));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.get_with(b"key", |_| panic!("as it was told"))
        }));
        assert!(panicked.is_err());
        store.put("key", "newer").unwrap();
        assert_eq!(store.get(b"key").unwrap().unwrap(), b"newer");
    });
}

/// Panics under a write of the log when it is told to.
#[derive(Debug, Default)]
struct Panics(AtomicBool);

impl Faults for Panics {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_log = path.extension().is_some_and(|found| found == "log");
        let is_it = call == Call::Write && is_log;
        assert!(!(is_it && self.0.load(Ordering::Relaxed)), "as it was told");
        Ok(())
    }
}

#[test]
fn panic_of_a_change_breaks_the_store_and_loses_nothing() {
    must_end(|| {
        for (folder, partitions) in folders().into_iter().flat_map(|folder| {
            let other = tempfile::tempdir_in(folder.path().parent().unwrap()).unwrap();
            [(folder, 1), (other, 4)]
        }) {
            let path = folder.path().join("store");
            let faults = Arc::new(Panics::default());
            let options = StoreOptions::new()
                .partitions(partitions)
                .durability(Durability::Always);
            let store = Store::open(&path, &options.clone().faults(faults.clone())).unwrap();
            store.put("key", "value").unwrap();
            if partitions > 1 {
                faults.0.store(true, Ordering::Relaxed);
                assert!(store.put("other", "lost").is_err());
                faults.0.store(false, Ordering::Relaxed);
                // Nor does any other partition take changes.
                for nth in 0..40u8 {
                    let error = store.put([nth], "lost").unwrap_err();
                    assert!(matches!(error, Error::Broken { .. }), "{nth}: {error}");
                }
            }
            faults.0.store(true, Ordering::Relaxed);
            std::thread::scope(|scope| {
                for nth in 0..4u8 {
                    let store = &store;
                    scope.spawn(move || {
                        let error = store.put([nth], "lost").unwrap_err();
                        assert!(matches!(error, Error::Broken { .. }), "{error}");
                    });
                }
            });
            let (send, told) = mpsc::channel();
            store.put_async("async", "lost", move |answer| send.send(answer).unwrap());
            assert!(matches!(told.recv().unwrap(), Err(Error::Broken { .. })));
            faults.0.store(false, Ordering::Relaxed);
            assert!(matches!(store.checkpoint(), Err(Error::Broken { .. })));
            assert!(matches!(store.delete("key"), Err(Error::Broken { .. })));
            assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
            assert!(matches!(store.close(), Err(Error::Broken { .. })));
            let store = Store::open(&path, &options).unwrap();
            assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
            assert!(store.range(..).count() <= 2);
            store.put("key", "again").unwrap();
            store.close().unwrap();
        }
    });
}

#[test]
fn futures_of_each_verb_end_and_are_executed_when_dropped() {
    must_end(|| {
        for folder in folders() {
            let options = crate::partitioned().merge_operator(super::append());
            let store = Store::open(folder.path().join("store"), &options).unwrap();
            block_on(async {
                store.put_future("a", "1").await.unwrap();
                store.merge_future("a", "2").await.unwrap();
                assert_eq!(store.get_future("a").await.unwrap().unwrap(), b"12");
                store.delete_future("a").await.unwrap();
                assert_eq!(store.get_future("a").await.unwrap(), None);
                let failed = store.merge_future("a", "fail").await;
                assert!(matches!(failed, Err(Error::Merge { .. })));
                let long = store.put_future(vec![0; 70_000], "").await;
                assert!(matches!(long, Err(Error::TooLong { .. })));
                let put = |nth: u8| Request::Put {
                    key: vec![nth],
                    value: vec![nth],
                };
                let get = |nth: u8| Request::Get { key: vec![nth] };
                let answers =
                    store.execute_future((0..40).map(put).chain((0..40).map(get)).collect());
                let answers = answers.await.unwrap();
                for (nth, answer) in (0..40u8).zip(&answers[40..]) {
                    assert!(matches!(answer, Response::Value(Some(value)) if value == &[nth]));
                }
            });
            // Many at a time, of which some are given up.
            let pending: Vec<_> = (0..200u8)
                .filter_map(|nth| {
                    let pending = store.put_future([nth, 1], "");
                    (nth % 3 > 0).then_some(pending)
                })
                .collect();
            for pending in pending {
                block_on(pending).unwrap();
            }
            store.close().unwrap();
            let store = Store::open(folder.path().join("store"), &options).unwrap();
            assert_eq!(store.iter().count(), 240);
        }
    });
}

#[test]
fn full_queue_refuses_who_may_not_wait() {
    must_end(|| {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new()
            .partitions(1)
            .when_full(WhenFull::Refuse);
        let store = Store::open(folder.path(), &options).unwrap();
        // The thread that makes room waits in a callback.
        let (sender, released) = mpsc::channel::<()>();
        let store = Arc::new(store);
        let called = Arc::clone(&store);
        let (told, in_callback) = mpsc::channel();
        let (begins, begun) = mpsc::channel();
        store.put_async("first", "", move |_| {
            begins.send(()).unwrap();
            released.recv().unwrap();
            called.put_async("of a callback", "", move |result| {
                told.send(result).unwrap()
            });
        });
        begun.recv().unwrap();
        let mut accepted = Vec::new();
        let refused = loop {
            assert!(accepted.len() < 100, "nothing is refused");
            let (sender, outcome) = mpsc::channel();
            let key = accepted.len().to_be_bytes();
            store.put_async(key, vec![0; 1 << 20], move |result| {
                sender.send(result).unwrap();
            });
            // This thread executes what waits. Callbacks wait all the same.
            store.put("sync", "").unwrap();
            match outcome.try_recv() {
                Ok(refused) => break refused,
                Err(_) => accepted.push(outcome),
            }
        };
        assert!(matches!(refused, Err(Error::QueueFull { waiting, limit }) if waiting > limit));
        assert!(accepted.len() > 60, "{}", accepted.len());
        sender.send(()).unwrap();
        for outcome in &accepted {
            outcome.recv().unwrap().unwrap();
        }
        let in_callback = in_callback.recv().unwrap();
        assert!(matches!(in_callback, Err(Error::QueueFull { .. })));
        block_on(store.put_future("last", "")).unwrap();
        assert_eq!(store.iter().count(), accepted.len() + 3);
    });
}

/// Of a batch of several partitions, which has a queue of its own, it is known, too, that its caller waited.
#[test]
fn waits_for_room_in_the_queue_are_counted() {
    must_end(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &StoreOptions::new().partitions(2)).unwrap();
        let (sender, released) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel();
        let puts = |first: u32| {
            let put = |nth: u32| Request::Put {
                key: nth.to_be_bytes().to_vec(),
                value: vec![0; 1 << 16],
            };
            (first..first + 64).map(put).collect::<Vec<_>>()
        };
        store.execute_async(puts(0), move |_| {
            begins.send(()).unwrap();
            released.recv().unwrap();
        });
        begun.recv().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for nth in 1..40 {
                    store.execute_async(puts(nth * 64), |answer| drop(answer.unwrap()));
                }
            });
            // Nobody has come to the end of a wait before.
            std::thread::sleep(Duration::from_millis(300));
            sender.send(()).unwrap();
        });
        store.flush().unwrap();
        let stalls = store.stats().stalls;
        assert!(stalls.queue.count > 0, "{stalls:?}");
        let recent = stalls.recent.iter();
        assert!(
            recent
                .map(|event| event.reason)
                .any(|reason| reason == StallReason::Queue)
        );
    });
}
