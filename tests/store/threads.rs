//! Several callers at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gphash::store::{Durability, Request, Response, Store, StoreOptions, WriteBatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

use super::disk::{copy, folders};
use super::model::{Expected, Model, contents, expect, was};
use super::{append, seed};

/// Each thread has keys of its own, so each answer is known; all write at the same time.
fn many_callers(durability: Durability) {
    let seed = seed();
    for folder in folders() {
        let options = crate::partitioned()
            .durability(durability)
            .segment_bytes(1 << 16)
            .checkpoint_bytes(1 << 18)
            .merge_operator(append());
        let path = folder.path().join("store");
        let store = Store::open(&path, &options).unwrap();
        let live = |thread: u8| {
            let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(u64::from(thread)));
            let mut model = Model::new();
            for _ in 0..150 {
                let request = |rng: &mut SmallRng| {
                    let key = vec![thread, rng.random_range(0..40)];
                    match rng.random_range(0..5) {
                        0..2 => Request::Get { key },
                        2 => Request::Delete { key },
                        3 => Request::Merge {
                            key,
                            operand: vec![b'+'],
                        },
                        _ => Request::Put {
                            key,
                            value: vec![rng.random(); 50],
                        },
                    }
                };
                let len = if rng.random_bool(0.5) { 1 } else { 30 };
                let requests: Vec<_> = (0..len).map(|_| request(&mut rng)).collect();
                let expected: Vec<_> = requests.iter().map(|one| expect(&mut model, one)).collect();
                let answers = store.execute(requests).unwrap();
                assert_eq!(answers.into_iter().map(was).collect::<Vec<_>>(), expected);
                let range = store.range(vec![thread]..vec![thread + 1]);
                if rng.random_bool(0.1) {
                    assert_eq!(range.collect::<gphash::Result<Model>>().unwrap(), model);
                }
            }
            model
        };
        let model: Model = std::thread::scope(|scope| {
            let live = &live;
            let threads: Vec<_> = (0..4).map(|nth| scope.spawn(move || live(nth))).collect();
            let models = threads.into_iter().map(|thread| thread.join().unwrap());
            models.flatten().collect()
        });
        assert_eq!(contents(&store), model);
        let left = folder.path().join("left");
        copy(&path, &left);
        drop(store);
        let store = Store::open(&left, &options).unwrap();
        assert_eq!(contents(&store), model);
    }
}

#[test]
fn callers_at_the_same_time_always_durable() {
    many_callers(Durability::Always);
}

#[test]
fn callers_at_the_same_time_synced_at_intervals() {
    many_callers(Durability::Interval(Duration::from_millis(1)));
}

/// A group of changes is seen as a whole, whoever looks: in one key after the other, at once, in
/// order, and in a transaction.
#[test]
fn batch_is_seen_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    let keys: Vec<Vec<u8>> = (0..50u8).map(|key| vec![key]).collect();
    let write = |version: u64| {
        let mut batch = WriteBatch::new();
        for key in &keys {
            // Some come and go.
            match version.is_multiple_of(2) && key[0].is_multiple_of(7) {
                true => batch.delete(key.clone()),
                false => batch.put(key.clone(), version.to_le_bytes()),
            }
        }
        store.write(batch).unwrap();
    };
    write(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (2..400).for_each(write);
            done.store(true, Ordering::Relaxed);
        });
        let mut last = 0;
        while !done.load(Ordering::Relaxed) {
            let seen = |values: Vec<Vec<u8>>| {
                let version = u64::from_le_bytes(values[0].as_slice().try_into().unwrap());
                assert!(values.iter().all(|value| *value == values[0]));
                assert_eq!(
                    values.len(),
                    if version.is_multiple_of(2) { 42 } else { 50 }
                );
                version
            };
            let values = store.multi_get(&keys).unwrap();
            let version = seen(values.into_iter().flatten().collect());
            assert!(version >= last);
            let values = store.range(..).map(|item| item.unwrap().1);
            last = seen(values.collect());
            assert!(last >= version);
            let mut transaction = store.transaction();
            let get = |key: &Vec<u8>| transaction.get(key).unwrap();
            seen(keys.iter().filter_map(get).collect());
            // Later keys of the same batch are never older.
            let one = store.get(&[1]).unwrap().unwrap();
            assert!(u64::from_le_bytes(one.try_into().unwrap()) >= last);
        }
    });
}

/// Every batch reads whose turn was the one before, so its answers are known, whatever was read before its
/// turn came and while items leave the table for files and come back.
#[test]
fn batches_come_one_after_the_other() {
    const TURN: &[u8] = b"turn";
    let seed = seed();
    for budget in [None, Some(2 * StoreOptions::MIN_BUDGET)] {
        let folder = tempfile::tempdir().unwrap();
        let mut options = crate::partitioned().merge_operator(append());
        if let Some(budget) = budget {
            options = options.memory_budget(budget);
        }
        let store = Store::open(folder.path(), &options).unwrap();
        let batch = |thread: u64, rng: &mut SmallRng| -> Vec<Request> {
            let request = |rng: &mut SmallRng| {
                let number = match rng.random_bool(0.5) {
                    true => rng.random_range(0..30),
                    false => rng.random_range(0..4000u32),
                };
                let key = number.to_be_bytes().to_vec();
                match rng.random_range(0..20) {
                    0..4 => {
                        let value = vec![rng.random(); 200];
                        Request::Put { key, value }
                    }
                    4 => Request::Delete { key },
                    5 => {
                        let operand = vec![b'+'];
                        Request::Merge { key, operand }
                    }
                    _ => Request::Get { key },
                }
            };
            // More than 384 changes are shared among threads.
            let len = [20, 200, 2500][rng.random_range(0..3)];
            let mut requests: Vec<Request> = (0..len).map(|_| request(rng)).collect();
            let turn = [
                Request::Get { key: TURN.into() },
                Request::Put {
                    key: TURN.into(),
                    value: (thread << 32 | rng.random_range(0..u64::from(u32::MAX)))
                        .to_le_bytes()
                        .into(),
                },
            ];
            requests.splice(0..0, turn);
            requests
        };
        let live = |thread: u64| -> Vec<(Vec<Request>, Vec<Expected>)> {
            let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(thread));
            let run = |_| {
                let requests = batch(thread, &mut rng);
                let answers = store.execute(requests.clone()).unwrap();
                (requests, answers.into_iter().map(was).collect())
            };
            (0..150).map(run).collect()
        };
        let batches: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|nth| scope.spawn(move || live(nth))).collect();
            let batches = threads.into_iter().map(|thread| thread.join().unwrap());
            batches.flatten().collect()
        });
        let count = batches.len();
        let before = |(_, answers): &(_, Vec<Expected>)| match &answers[0] {
            Expected::Value(turn) => turn.clone(),
            other => panic!("{other:?}"),
        };
        let mut by_turn: BTreeMap<_, _> = batches
            .into_iter()
            .map(|batch| (before(&batch), batch))
            .collect();
        assert_eq!(by_turn.len(), count, "two batches have seen one turn");
        let mut model = Model::new();
        for _ in 0..count {
            let (requests, answers) = by_turn
                .remove(&model.get(TURN).cloned())
                .expect("a turn each");
            for (nth, request) in requests.iter().enumerate() {
                assert_eq!(answers[nth], expect(&mut model, request), "{request:?}");
            }
        }
        assert_eq!(contents(&store), model);
        if budget.is_some() {
            assert!(store.stats().items_evicted > 0 && store.stats().items_promoted > 0);
        }
    }
}

#[test]
fn async_puts_are_acknowledged_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    for nth in 0..1000u64 {
        let order = Arc::clone(&order);
        store.put_async("key", nth.to_le_bytes(), move |outcome| {
            outcome.unwrap();
            order.lock().unwrap().push(nth);
        });
    }
    let (told, refused) = mpsc::channel();
    store.put_async(vec![0; 70_000], "value", move |outcome| {
        told.send(outcome).unwrap()
    });
    let refused = refused.recv().unwrap().unwrap_err();
    assert!(
        matches!(refused, gphash::Error::TooLong { .. }),
        "{refused}"
    );
    store.close().unwrap();
    assert_eq!(*order.lock().unwrap(), (0..1000).collect::<Vec<_>>());
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    assert_eq!(
        store.get(b"key").unwrap(),
        Some(999u64.to_le_bytes().to_vec())
    );
}

/// A caller that uses the store from a callback does not wait for itself.
#[test]
fn callback_may_use_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path(), &crate::partitioned()).unwrap());
    let (told, done) = mpsc::channel();
    let within = Arc::clone(&store);
    store.put_async("first", "1", move |outcome| {
        outcome.unwrap();
        within.put("second", "2").unwrap();
        drop(within);
        told.send(()).unwrap();
    });
    done.recv().unwrap();
    assert_eq!(store.get(b"second").unwrap(), Some(b"2".to_vec()));
}

/// The ordered view is made while others write, and has what they wrote.
#[test]
fn ordered_view_is_built_beside_changes() {
    let folder = tempfile::tempdir().unwrap();
    let written = AtomicU64::new(0);
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    let fill = (0..20_000u64).map(|key| Request::Put {
        key: key.to_be_bytes().to_vec(),
        value: vec![1],
    });
    let answers = store.execute(fill.collect()).unwrap();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Response::Done))
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..3000u64 {
                store.put((key * 7).to_be_bytes(), "new").unwrap();
                store.delete((key * 5 + 1).to_be_bytes()).unwrap();
                store.put((100_000 + key).to_be_bytes(), "more").unwrap();
                written.store(key, Ordering::Relaxed);
            }
        });
        while written.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        assert!(store.range(..).count() > 15_000);
    });
    let found = contents(&store);
    let mut expected: BTreeMap<u64, &str> = (0..20_000).map(|key| (key, "\u{1}")).collect();
    for key in 0..3000 {
        expected.insert(key * 7, "new");
        expected.remove(&(key * 5 + 1));
        expected.insert(100_000 + key, "more");
    }
    let expected: Model = expected
        .into_iter()
        .map(|(key, value)| (key.to_be_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    assert!(found == expected);
}

/// Neighbours in order, of which the view does not know enough to tell them apart, are in different partitions.
#[test]
fn partitions_change_one_order_side_by_side() {
    const WRITERS: u64 = 4;
    const KEYS: u64 = 600;
    // Those of a group differ behind the bytes that the view has of them.
    let key = |nth: u64| format!("{:04}/the same bytes/{:04}", nth / 40, nth).into_bytes();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    for nth in (0..KEYS).step_by(10) {
        store.put(key(nth), "stays").unwrap();
    }
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for round in 0..12 {
                    let own = |nth: &u64| !nth.is_multiple_of(10) && nth % WRITERS == writer;
                    for nth in (0..KEYS).filter(own) {
                        match (nth + round) % 2 {
                            0 => store.put(key(nth), "goes").unwrap(),
                            _ => store.delete(key(nth)).unwrap(),
                        }
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < WRITERS {
            let items: Vec<_> = store.range(..).map(Result::unwrap).collect();
            let reversed: Vec<_> = store.keys(..).rev().map(Result::unwrap).collect();
            assert!(items.is_sorted_by(|(a, _), (b, _)| a < b));
            assert!(reversed.is_sorted_by(|a, b| a > b));
            let stays = items.iter().filter(|(_, value)| value == b"stays");
            assert_eq!(stays.count() as u64, KEYS.div_ceil(10));
        }
    });
    let expected = (0..KEYS).filter(|nth| nth.is_multiple_of(10) || !nth.is_multiple_of(2));
    assert!(store.keys(..).map(Result::unwrap).eq(expected.map(key)));
    assert_eq!(store.verify(&|_| {}).state, gphash::ReportState::Clean);
}

/// A thread of a pool takes other tasks while it waits for the parts of its own, and those must not wait
/// for what it holds.
#[test]
fn tasks_of_a_thread_pool_may_call_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path().join("store"), &crate::partitioned()).unwrap());
    let key = |task: u32, nth: u32| (task * 1000 + nth).to_be_bytes().to_vec();
    let (ended, end) = mpsc::channel();
    let shared = Arc::clone(&store);
    // Enough of them that some have nothing to do while others wait.
    let pool = ThreadPoolBuilder::new().num_threads(8).build().unwrap();
    pool.spawn(move || {
        (0..64u32).into_par_iter().for_each(|task| {
            let put = |nth| Request::Put {
                key: key(task, nth),
                value: nth.to_le_bytes().to_vec(),
            };
            shared.execute((0..1000).map(put).collect()).unwrap();
            let keys: Vec<_> = (0..20_000).map(|nth| key(task, nth % 1000)).collect();
            let values = shared.multi_get(&keys).unwrap();
            assert!(values.iter().all(Option::is_some));
            let first = shared.range(key(task, 0)..).next().unwrap().unwrap();
            assert_eq!(first.0, key(task, 0));
        });
        ended.send(()).unwrap();
    });
    end.recv_timeout(Duration::from_secs(1800))
        .expect("tasks wait for each other");
    assert_eq!(store.stats().keys, 64_000);
}

/// Few requests with long values are shared by several threads, too, which must not be those that wait.
#[test]
fn threads_of_the_global_pool_may_put_long_values() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path().join("store"), &crate::partitioned()).unwrap());
    let (ended, end) = mpsc::channel();
    let shared = Arc::clone(&store);
    rayon::spawn(move || {
        let tasks = 4 * u32::try_from(rayon::current_num_threads()).unwrap();
        (0..tasks).into_par_iter().for_each(|task| {
            let value = vec![task.to_le_bytes()[0]; 5 << 20];
            shared.put(task.to_be_bytes(), value).unwrap();
        });
        ended.send(tasks).unwrap();
    });
    let tasks = end
        .recv_timeout(Duration::from_secs(1800))
        .expect("tasks wait for each other");
    assert_eq!(store.stats().keys, u64::from(tasks));
}

/// A parallel loop puts and deletes single keys. While one of its threads waits for parts of something, it must not take
/// up another turn of the loop, which would wait for that.
#[test]
fn threads_of_a_parallel_loop_change_single_keys() {
    for (threads, partitions, has_budget) in [(1, 1, true), (4, 1, false), (4, 3, true)] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut options = StoreOptions::new().partitions(partitions);
        if has_budget {
            options = options.memory_budget(StoreOptions::MIN_BUDGET);
        }
        let store = Arc::new(Store::open(folder.path().join("store"), &options).unwrap());
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let (ended, end) = mpsc::channel();
        let shared = Arc::clone(&store);
        pool.unwrap().spawn(move || {
            (0..3_000u32)
                .into_par_iter()
                .with_max_len(1)
                .for_each(|turn| {
                    let key = turn.to_be_bytes();
                    match turn % 100 {
                        0 => shared.put(key, vec![1; 9 << 20]).unwrap(),
                        1 => {
                            let mut batch = WriteBatch::new();
                            (0..=u8::MAX).for_each(|value| batch.put(key, [value; 100]));
                            (0..=u8::MAX).for_each(|value| batch.put(key, [value; 10]));
                            shared.write(batch).unwrap();
                        }
                        2 => shared.checkpoint().unwrap(),
                        3..10 => shared.put(key, vec![1; 20_000]).unwrap(),
                        nth => shared.put(key, [u8::try_from(nth).unwrap()]).unwrap(),
                    }
                    if turn % 5 == 4 {
                        shared.delete(key).unwrap();
                    }
                });
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(1800))
            .expect("turns wait for each other");
        // One in a hundred takes a checkpoint, and one in five deletes what it has put.
        assert_eq!(store.iter().count(), 3_000 - 30 - 600);
    }
}
