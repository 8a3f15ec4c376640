//! Threads that work on the same few keys, also while the table is resized: what a crash leaves
//! must be explained by what was answered, key by key.
//!
//! In which order the threads meet is not in the seed.

use std::thread;

use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use super::Kind;
use super::explorer::{Described, explore_runs};
use super::history::Event;
use super::operation::{Op, Run, maintain, write};
use super::random::{VERBS, any_key, any_kind};
use crate::pm::sim::Simulated;
use crate::table::Table;

/// What one thread does next.
fn any_op(count: u64, resizes: bool, rng: &mut SmallRng) -> Op {
    match rng.random_range(0..if resizes { 12 } else { 10 }) {
        10 => Op::AddLevel,
        11 => [Op::Slice, Op::Slice, Op::Drain]
            .choose(rng)
            .unwrap()
            .clone(),
        _ => {
            let len = *[1, 1, 1, 2, 4].choose(rng).unwrap();
            let keys = (0..len).map(|_| any_key(count, rng)).collect();
            Op::Batch(*VERBS.choose(rng).unwrap(), keys)
        }
    }
}

/// Does `ops`; versions count from `version` on.
fn work(kind: &Kind, table: &Table<Simulated>, ops: &[Op], mut version: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for op in ops {
        match op {
            Op::Batch(verb, keys) => {
                let clock = || table.medium.steps();
                events.extend(write(kind, table, *verb, keys, version, clock));
                version += keys.len() as u64;
            }
            op => maintain(table, op),
        }
    }
    table.medium.leave();
    events
}

fn explore_threads(what: &str, percent: u64, resizes: bool) {
    explore_runs(what, "runs", percent, |explorer, seed, rng| {
        let kind = any_kind(rng);
        let count = rng.random_range(1..5);
        let prepare: Vec<Op> = (0..rng.random_range(0..8))
            .map(|_| any_op(count, resizes, rng))
            .collect();
        let threads: Vec<Vec<Op>> = (0..rng.random_range(2..4))
            .map(|_| {
                let len = rng.random_range(1..8);
                let ops = (0..len).map(|_| any_op(count, resizes, rng));
                ops.collect()
            })
            .collect();
        let _described = Described {
            seed,
            text: format!("{kind:?}, {prepare:?}, then side by side {threads:?}"),
        };
        let Run {
            mut table,
            mut history,
            ..
        } = Run::new(kind, rng.random(), &prepare);
        table.arena.hurry();
        table.medium.stir(rng.random(), threads.len());
        history.threads = thread::scope(|scope| {
            let table = &table;
            let started: Vec<_> = (1..)
                .zip(&threads)
                .map(|(nth, ops)| scope.spawn(move || work(&kind, table, ops, nth << 20)))
                .collect();
            started.into_iter().map(|run| run.join().unwrap()).collect()
        });
        // By a thread that has not taken part, so that it answers for what these have left undone.
        table.close().unwrap();
        let recording = table.medium.recorded();
        drop(table);
        let most = *[(2, 40), (8, 80), (24, 200)].choose(rng).unwrap();
        explorer.explore(&kind, &history, &recording, count, most, rng);
    });
}

#[test]
fn threads_on_the_same_keys() {
    explore_threads("threads", 15, false);
}

#[test]
fn threads_beside_a_resize() {
    explore_threads("threads beside a resize", 15, true);
}
