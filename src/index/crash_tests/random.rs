//! Random sequences of everything that can be done to a table, by one thread.

use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use super::Kind;
use super::explorer::{Described, explore_runs};
use super::operation::{Op, Run};
use crate::engine::Write;
use crate::layout::{BUSY, EMPTY};

/// Shapes: levels, locations, slots. Buckets of more than eight slots have several words of tags.
const SHAPES: [(u32, u32, u32); 8] = [
    (1, 1, 2),
    (1, 2, 4),
    (2, 1, 2),
    (2, 2, 2),
    (2, 2, 4),
    (2, 2, 8),
    (3, 1, 2),
    (1, 1, 12),
];

pub(super) const VERBS: [Write; 4] = [Write::Insert, Write::Upsert, Write::Update, Write::Remove];

pub(super) fn any_kind(rng: &mut SmallRng) -> Kind {
    let shape = *SHAPES.choose(rng).unwrap();
    Kind {
        value_size: *[8, 24, 72].choose(rng).unwrap(),
        checksums: rng.random(),
        ..Kind::of(shape, *[8, 8, 16, 32, 0, 0].choose(rng).unwrap())
    }
}

pub(super) fn any_key(count: u64, rng: &mut SmallRng) -> u64 {
    match rng.random_range(0..count + 2) {
        0 => EMPTY,
        key if key > count => BUSY,
        key => key,
    }
}

fn any_op(count: u64, rng: &mut SmallRng) -> Op {
    let key = any_key(count, rng);
    match rng.random_range(0..42) {
        0..6 => Op::Insert(key),
        6..11 => Op::Upsert(key),
        11..15 => Op::Update(key),
        15..20 => Op::Remove(key),
        20..26 => {
            let len = rng.random_range(2..6);
            let keys = (0..len).map(|_| any_key(count, rng)).collect();
            Op::Batch(*VERBS.choose(rng).unwrap(), keys)
        }
        26 => Op::AddLevel,
        27 => Op::Reserve(rng.random_range(1..8)),
        28..31 => Op::Slice,
        31 => Op::Drain,
        32..35 => Op::Recycle,
        35 => Op::UseUp,
        36 => Op::MakeRoom,
        37 => Op::Sync,
        38 => Op::Reopen,
        39 => Op::Compact,
        40 => Op::Move,
        _ => Op::Kill,
    }
}

/// Explores sequences of operations on few keys.
fn explore_sequences(what: &str, percent: u64, key_sizes: &[usize]) {
    explore_runs(what, "sequences", percent, |explorer, seed, rng| {
        let mut kind = any_kind(rng);
        kind.key_size = *key_sizes.choose(rng).unwrap();
        let count = rng.random_range(2..14);
        let mut ops = |most| -> Vec<Op> {
            let len = rng.random_range(0..most);
            (0..len).map(|_| any_op(count, rng)).collect()
        };
        let (prepare, ops) = (ops(30), ops(16));
        let _described = Described {
            seed,
            text: format!("{kind:?}, {prepare:?}, then {ops:?}"),
        };
        let run = Run::new(kind, rng.random(), &prepare);
        let (history, recording) = ops.iter().fold(run, Run::apply).end();
        let most = *[(8, 200), (24, 400), (96, 1500)].choose(rng).unwrap();
        explorer.explore(&kind, &history, &recording, count, most, rng);
    });
}

#[test]
fn random_sequences_on_keys_of_a_word() {
    explore_sequences("keys of a word", 15, &[8]);
}

#[test]
fn random_sequences_on_keys_of_variable_length() {
    explore_sequences("keys of variable length", 15, &[0]);
}

#[test]
fn random_sequences_on_wide_keys() {
    explore_sequences("wide keys", 10, &[16, 32]);
}
