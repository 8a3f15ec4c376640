//! Several threads on one index.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use gphash::{Index, Options};
use rand::RngExt;
use rayon::prelude::*;

use crate::{folder, options, rng};

const THREADS: u64 = 4;

#[test]
fn threads_with_keys_of_their_own_see_only_their_own_changes() {
    let folder = folder();
    let index =
        Index::<u64, [u64; 2]>::create(folder.path().join("f"), &options().capacity(64)).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let index = &index;
            let mut rng = rng("own keys");
            scope.spawn(move || {
                let mut model: HashMap<u64, [u64; 2]> = HashMap::new();
                for _ in 0..150 {
                    let keys: Vec<u64> = (0..200)
                        .map(|_| rng.random_range(0..2000) * THREADS + thread)
                        .collect();
                    let values: Vec<[u64; 2]> =
                        keys.iter().map(|&key| [key, rng.random()]).collect();
                    if rng.random_range(0..3) == 0 {
                        let answers = index.remove(&keys).unwrap();
                        for (i, key) in keys.iter().enumerate() {
                            assert_eq!(answers.contains(i), model.remove(key).is_some());
                        }
                    } else {
                        let answers = index.upsert(&keys, &values).unwrap();
                        for (i, key) in keys.iter().enumerate() {
                            assert_eq!(
                                answers.contains(i),
                                model.insert(*key, values[i]).is_none()
                            );
                        }
                    }
                }
                let keys: Vec<u64> = (0..2000).map(|n| n * THREADS + thread).collect();
                let mut held = vec![[0; 2]; keys.len()];
                let found = index.get(&keys, &mut held).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(
                        found.contains(i).then_some(held[i]),
                        model.get(key).copied()
                    );
                }
            });
        }
    });
    assert_eq!(index.iter().count() as u64, index.len());
}

#[test]
fn insert_of_one_key_by_several_threads_wins_once() {
    let folder = folder();
    let index =
        Index::<u64, u64>::create(folder.path().join("f"), &options().capacity(16)).unwrap();
    const KEYS: u64 = 20_000;
    let wins: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let index = &index;
                scope.spawn(move || {
                    (0..KEYS)
                        .collect::<Vec<_>>()
                        .chunks(64)
                        .map(|keys| {
                            let values: Vec<u64> =
                                keys.iter().map(|key| key * THREADS + thread).collect();
                            index.insert(keys, &values).unwrap().count_ones(..) as u64
                        })
                        .sum::<u64>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(wins.iter().sum::<u64>(), KEYS, "{wins:?}");
    assert_eq!(index.len(), KEYS);
    assert!(index.iter().all(|(key, value)| value / THREADS == key));
    assert_eq!(index.iter().count() as u64, KEYS);
}

#[test]
fn inserts_less_removes_are_the_items_left() {
    let folder = folder();
    let index =
        Index::<[u64; 2], u64>::create(folder.path().join("f"), &options().capacity(16)).unwrap();
    let (inserted, removed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (index, inserted, removed) = (&index, &inserted, &removed);
            let mut rng = rng("inserts and removes");
            scope.spawn(move || {
                for _ in 0..300 {
                    let keys: Vec<[u64; 2]> =
                        (0..50).map(|_| [rng.random_range(0..40), 5]).collect();
                    if rng.random() {
                        let answers = index.insert(&keys, &[9; 50]).unwrap();
                        inserted.fetch_add(answers.count_ones(..) as u64, Ordering::Relaxed);
                    } else {
                        let answers = index.remove(&keys).unwrap();
                        removed.fetch_add(answers.count_ones(..) as u64, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let left = inserted.into_inner() - removed.into_inner();
    assert_eq!(index.len(), left);
    assert_eq!(index.iter().count() as u64, left);
}

#[test]
fn readers_find_every_key_whole_while_the_table_grows_and_values_change() {
    readers_find_every_key_whole(1000, 40);
}

#[test]
fn readers_with_long_batches_find_every_key_whole_while_values_change() {
    readers_find_every_key_whole(10_000, 8);
}

/// Looks up `stable` keys again and again while each gets a new value in each of so many rounds.
fn readers_find_every_key_whole(stable: u64, rounds: u64) {
    let folder = folder();
    let index =
        Index::<u64, [u64; 16]>::create(folder.path().join("f"), &options().capacity(16)).unwrap();
    let keys: Vec<u64> = (0..stable).collect();
    let values: Vec<[u64; 16]> = keys.iter().map(|&key| [key; 16]).collect();
    index.insert(&keys, &values).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (index, keys, stop) = (&index, &keys, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut held = vec![[0; 16]; keys.len()];
                    let found = index.get(keys, &mut held).unwrap();
                    for (key, value) in keys.iter().zip(&held) {
                        assert!(
                            found.contains(usize::try_from(*key).unwrap()),
                            "{key} was lost"
                        );
                        assert_eq!(value[0] % stable, *key, "a value of another key");
                        assert!(
                            value.iter().all(|word| *word == value[0]),
                            "torn: {value:?}"
                        );
                    }
                }
            });
        }
        let mut next = stable;
        for round in 1..rounds {
            let new: Vec<u64> = (next..next + 500).map(|n| n * stable).collect();
            index.insert(&new, &vec![[3; 16]; 500]).unwrap();
            let changed: Vec<[u64; 16]> =
                keys.iter().map(|&key| [key + round * stable; 16]).collect();
            assert_eq!(
                index.update(&keys, &changed).unwrap().count_ones(..),
                usize::try_from(stable).unwrap()
            );
            next += 500;
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn tasks_of_a_thread_pool_may_call_the_index() {
    call_from_a_thread_pool(9000, &options());
}

/// Also those whose batches are short, of which the host compares checksums.
#[test]
fn tasks_of_a_thread_pool_may_look_up_few_keys() {
    call_from_a_thread_pool(300, &options().checksums(true));
}

fn call_from_a_thread_pool(len: u64, options: &Options) {
    let folder = folder();
    let path = folder.path().join("f");
    let options = options.clone().capacity(16);
    let index = Index::<u64, [u64; 16]>::create(path, &options).unwrap();
    let index = Arc::new(index);
    let (ended, end) = mpsc::channel();
    let shared = Arc::clone(&index);
    rayon::spawn(move || {
        let tasks = 36_000 / len * rayon::current_num_threads() as u64;
        (0..tasks).into_par_iter().for_each(|task| {
            let keys: Vec<u64> = (task * len..(task + 1) * len).collect();
            let values: Vec<[u64; 16]> = keys.iter().map(|&key| [key; 16]).collect();
            shared.insert(&keys, &values).unwrap();
            let mut held = vec![[0; 16]; keys.len()];
            shared.get(&keys, &mut held).unwrap();
            assert_eq!(held, values);
        });
        ended.send(tasks).unwrap();
    });
    let tasks = end
        .recv_timeout(Duration::from_secs(600))
        .expect("tasks wait for each other");
    assert_eq!(index.len(), tasks * len);
}
