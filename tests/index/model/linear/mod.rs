//! Linearizability: several threads at a few keys, with every verb and equal keys in their batches,
//! while the table grows and shrinks in turn, checkpoints are taken and the cache is loaded. What each was told, and
//! when, must be explained by operations that take effect one after another.
//!
//! `GPHASH_LINEAR_ROUNDS` says how many histories are made.

mod checker;
mod history;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gphash::{Index, Options};
use gphash_test_support::{Ends, setting};
use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::{engine, folder, options, rng};
use history::{Answer, Clock, History, Operation};

/// Threads whose batches are checked.
const THREADS: u64 = 4;

/// Keys that they use, of which two equal slot states.
const KEYS: [u64; 6] = [0, u64::MAX, 1, 2, 3, 4];

/// Batches of each of them in one history, and how many more until the table has shrunk. Between those is a pause, since
/// a slow disk may hold up what makes it shrink.
const BATCHES: usize = 3000;
const BATCHES_MAX: usize = 3 * BATCHES;
const PAUSE: Duration = Duration::from_millis(2);

/// Most operations of a batch.
const BATCH: usize = 6;

/// One batch in so many is so long that the CPU engine splits it.
const LONG: u32 = 500;

/// Keys from here on fill the table up and long batches. Nobody asks for them.
const FILLER: u64 = 1 << 32;

/// Items with which a table is filled up beside the threads, before all of them are removed and it shrinks.
const FILLED: u64 = 10_000;

/// Keys of a long batch.
const LONG_BATCH: u64 = 16 << 10;

type Value = [u64; 4];

/// A value that shows its key and whether it is whole.
fn value(key: u64, version: u64) -> Value {
    let mixed = (key ^ version).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    [version, key, mixed, !mixed]
}

/// Calls one verb for a batch of random keys, and writes down what it was told.
fn batch(
    index: &Index<u64, Value>,
    clock: &Clock,
    rng: &mut SmallRng,
    next_version: &mut u64,
    history: &mut History,
) {
    let len = rng.random_range(1..=BATCH);
    let mut keys: Vec<u64> = (0..len)
        .map(|_| KEYS[rng.random_range(0..KEYS.len())])
        .collect();
    if rng.random_ratio(1, LONG) {
        let first = FILLER + rng.random_range(0..FILLED);
        keys.extend(first..first + LONG_BATCH);
    }
    let versions = *next_version..;
    *next_version += keys.len() as u64;
    let mut values: Vec<Value> = keys
        .iter()
        .zip(versions.clone())
        .map(|(&key, version)| value(key, version))
        .collect();
    let verb = rng.random_range(0..6);
    let called = clock.tick();
    let answers = match verb {
        0 => index.insert(&keys, &values),
        1 => index.upsert(&keys, &values),
        2 => index.update(&keys, &values),
        3 => index.remove(&keys),
        4 => index.get(&keys, &mut values),
        _ => index.contains(&keys),
    }
    .unwrap();
    let returned = clock.tick();
    let told = keys[..len].iter().zip(versions).enumerate();
    let told = told.map(|(i, (&key, version))| {
        let operation = match verb {
            0 => Operation::Insert(version),
            1 => Operation::Upsert(version),
            2 => Operation::Update(version),
            3 => Operation::Remove,
            4 => Operation::Get,
            _ => Operation::Contains,
        };
        let answer = if operation == Operation::Get {
            Answer::Got(answers.contains(i).then(|| {
                let held = values[i];
                assert_eq!(held, value(key, held[0]), "a value that nobody stored");
                held[0]
            }))
        } else {
            Answer::Bit(answers.contains(i))
        };
        (key, operation, answer)
    });
    history.add((called, returned), told);
}

/// Fills the table up and empties it again until it is told to stop, and does what is done beside batches. Counts how
/// often the table has shrunk.
fn disturb(index: &Index<u64, Value>, is_over: &AtomicBool, shrinks: &AtomicUsize) {
    let mut first = FILLER;
    while !is_over.load(Ordering::Relaxed) {
        if first < FILLER + FILLED {
            let keys: Vec<u64> = (first..first + 512).collect();
            index.upsert(&keys, &vec![[9; 4]; keys.len()]).unwrap();
            first += 512;
        } else {
            let filled: Vec<u64> = (FILLER..first + LONG_BATCH).collect();
            filled.chunks(1024).for_each(|keys| {
                index.remove(keys).unwrap();
            });
            let slots = index.stats().slots;
            index.compact(&|_| {}).unwrap();
            let has_shrunk = index.stats().slots < slots;
            shrinks.fetch_add(usize::from(has_shrunk), Ordering::Relaxed);
            first = FILLER;
        }
        index.reload_cache().unwrap();
        if first.is_multiple_of(4096) {
            index.sync().unwrap();
        }
        thread::sleep(Duration::from_micros(20));
    }
}

/// One history on a new index, and how often that has shrunk.
fn run(options: &Options, seed: u64) -> (History, usize) {
    let folder = folder();
    let index = Index::<u64, Value>::create(folder.path().join("f"), options).unwrap();
    let clock = Clock::default();
    let is_over = AtomicBool::new(false);
    let mut history = History::default();
    let shrinks = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (index, clock, is_over, shrinks) = (&index, &clock, &is_over, &shrinks);
        scope.spawn(move || disturb(index, is_over, shrinks));
        let _ends = Ends(is_over);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed ^ number);
                    let mut own = History::default();
                    let mut next_version = number << 48;
                    for nth in 0..BATCHES_MAX {
                        if nth >= BATCHES {
                            if shrinks.load(Ordering::Relaxed) > 0 {
                                break;
                            }
                            thread::sleep(PAUSE);
                        }
                        batch(index, clock, &mut rng, &mut next_version, &mut own);
                    }
                    own
                })
            })
            .collect();
        for thread in threads {
            history.join(thread.join().unwrap());
        }
    });
    let mut values = [[0; 4]; KEYS.len()];
    let called = clock.tick();
    let found = index.get(&KEYS, &mut values).unwrap();
    let left = KEYS.into_iter().enumerate().map(|(i, key)| {
        let held = found.contains(i).then_some(values[i][0]);
        (key, Operation::Get, Answer::Got(held))
    });
    history.add((called, clock.tick()), left);
    (history, shrinks.into_inner())
}

#[test]
fn history_has_an_order_that_explains_it() {
    let rounds = setting("GPHASH_LINEAR_ROUNDS").unwrap_or(10);
    let mut rng = rng("linearizability");
    let (mut operations, mut histories, mut shrinks) = (0, 0, 0);
    for round in 0..rounds {
        let shape = [(1, 1, 4), (2, 2, 8), (1, 2, 12), (3, 2, 1)][round % 4];
        let options = options()
            .capacity(1)
            .shape(shape.0, shape.1, shape.2)
            .threads(2)
            .cache_period(Some(Duration::from_millis(1)));
        let (history, shrunk) = run(&options, rng.random());
        shrinks += shrunk;
        operations += history.operations();
        histories += history.0.len();
        for (key, calls) in &history.0 {
            if let Err(under_way) = checker::check(calls) {
                panic!("no order explains what key {key} was told; under way: {under_way:#?}");
            }
        }
    }
    println!(
        "{:?}: {operations} operations in {histories} histories of {rounds} tables, which have shrunk {shrinks} \
         times, are linearizable",
        engine()
    );
    assert!(shrinks > 0, "no table has shrunk");
}
