//! Short sequences of operations by one thread, each stopped at every store and fence.

use super::Kind;
use super::explorer::{Explorer, budget, on_one_thread, rng, seed};
use super::operation::Op;
use super::operation::Run;
use crate::engine::Write;
use crate::index::crash_tests::operation::Op::{
    AddLevel, Batch, Compact, Drain, Insert, Kill, MakeRoom, Move, Recycle, Remove, Reopen, Update,
    Upsert, UseUp,
};
use crate::layout::{BUSY, EMPTY};

/// Keys of the sequences.
const KEYS: u64 = 12;

/// Sequences that share the budget, each with all key classes.
const SEQUENCES: u64 = 3 * 15;

/// Steps that a sequence has, more or less.
const STEPS: u64 = 250;

/// Runs `ops` on a table that `prepare` has filled, and looks at every step. Of each step some
/// images are tried even if the budget is small.
fn stop_everywhere(kind: Kind, prepare: &[Op], ops: &[Op]) {
    let seed = seed();
    println!("GPHASH_TEST_SEED={seed}");
    let mut rng = rng(seed);
    let mut explorer = Explorer::new(u64::MAX);
    let most = budget(20) / (SEQUENCES * STEPS) * 2 / 3;
    let run = Run::new(kind, seed, prepare);
    let (history, recording) = ops.iter().fold(run, Run::apply).end();
    let steps = recording.count();
    explorer.explore(
        &kind,
        &history,
        &recording,
        KEYS,
        (most.max(3) as usize, u64::MAX),
        &mut rng,
    );
    explorer.report(&format!("{ops:?}, {steps} steps"));
}

fn for_fixed_keys(shape: (u32, u32, u32), prepare: &[Op], ops: &[Op]) {
    on_one_thread(|| {
        stop_everywhere(Kind::of(shape, 8), prepare, ops);
        stop_everywhere(Kind::of(shape, 32), prepare, ops);
    });
}

fn for_all_key_classes(shape: (u32, u32, u32), prepare: &[Op], ops: &[Op]) {
    for_fixed_keys(shape, prepare, ops);
    on_one_thread(|| stop_everywhere(Kind::of(shape, 0), prepare, ops));
}

#[test]
fn insert() {
    let ops = [
        Insert(2),
        Insert(EMPTY),
        Insert(1),
        Insert(BUSY),
        Insert(3),
        Insert(2),
    ];
    for_all_key_classes((2, 2, 4), &[Insert(1)], &ops);
}

#[test]
fn update_and_upsert() {
    let prepare = [Insert(1), Insert(2), Insert(EMPTY), Insert(BUSY)];
    let ops = [
        Update(1),
        Upsert(2),
        Upsert(3),
        Update(9),
        Upsert(EMPTY),
        Update(BUSY),
        Update(1),
    ];
    for_all_key_classes((2, 2, 4), &prepare, &ops);
}

#[test]
fn remove() {
    let prepare = [Insert(1), Insert(2), Insert(EMPTY), Insert(BUSY)];
    let ops = [
        Remove(1),
        Remove(EMPTY),
        Remove(9),
        Insert(3),
        Remove(BUSY),
        Insert(EMPTY),
    ];
    for_all_key_classes((2, 2, 4), &prepare, &ops);
}

#[test]
fn reuse_of_records_and_slots() {
    let prepare = [Insert(1), Insert(2), Insert(3), Insert(EMPTY)];
    let ops = [
        Remove(1),
        UseUp,
        Recycle,
        Remove(2),
        Recycle,
        Insert(4),
        Update(4),
        Recycle,
        Update(3),
        Recycle,
        Upsert(5),
        Remove(EMPTY),
        Recycle,
        Insert(6),
        Update(6),
        Recycle,
        Insert(EMPTY),
    ];
    for_all_key_classes((1, 2, 4), &prepare, &ops);
}

#[test]
fn compaction() {
    let prepare: Vec<Op> = (1..6).map(Insert).chain([Insert(EMPTY)]).collect();
    let ops = [
        Remove(2),
        Update(3),
        Move,
        Compact,
        Update(1),
        Insert(7),
        Move,
        Recycle,
        Insert(9),
        Remove(EMPTY),
        Compact,
        Reopen,
        Insert(8),
        Compact,
        Kill,
        Update(4),
    ];
    for_all_key_classes((1, 2, 4), &prepare, &ops);
}

#[test]
fn growth_of_levels() {
    let mut ops: Vec<Op> = (1..5).map(Insert).collect();
    ops.extend([
        Update(1),
        Remove(2),
        Drain,
        Insert(2),
        Insert(5),
        Insert(6),
        Upsert(3),
        Drain,
    ]);
    for_all_key_classes((1, 1, 2), &[], &ops);
}

#[test]
fn growth_of_two_levels() {
    let prepare: Vec<Op> = (1..6).map(Insert).collect();
    let mut ops: Vec<Op> = (6..12).map(Insert).collect();
    ops.extend([Drain, Remove(7), Update(8)]);
    for_all_key_classes((2, 1, 2), &prepare, &ops);
}

#[test]
fn growth_into_preallocated_room() {
    let ops = [
        MakeRoom,
        Insert(4),
        UseUp,
        Insert(5),
        MakeRoom,
        Drain,
        Update(5),
        Insert(6),
        Reopen,
    ];
    // With size classes the chain of so many free records takes tens of thousands of steps.
    for_fixed_keys((1, 1, 2), &[Insert(1), Insert(2), Insert(3)], &ops);
}

#[test]
fn growth_of_the_arena() {
    let ops = [
        UseUp,
        Insert(2),
        Update(1),
        UseUp,
        Update(2),
        UseUp,
        Upsert(3),
    ];
    for_all_key_classes((2, 2, 4), &[Insert(1)], &ops);
}

#[test]
fn close() {
    let prepare = [Insert(1), Insert(2), Insert(3), Insert(4), Insert(EMPTY)];
    let ops = [Remove(1), Update(2), Remove(3), Reopen];
    for_all_key_classes((2, 2, 2), &prepare, &ops);
}

#[test]
fn close_amid_a_resize() {
    let prepare: Vec<Op> = (1..4).map(Insert).collect();
    for_all_key_classes((1, 1, 2), &prepare, &[Insert(4), Insert(5), Reopen]);
}

#[test]
fn open_after_a_clean_close() {
    let prepare = [Insert(1), Insert(2), Remove(1), Insert(EMPTY), Reopen];
    for_all_key_classes((2, 2, 2), &prepare, &[Insert(3)]);
}

#[test]
fn batches_with_equal_keys() {
    let ops = [
        Batch(Write::Insert, vec![2, 3, 2, EMPTY]),
        Batch(Write::Upsert, vec![1, 4, 4, 1]),
        Batch(Write::Remove, vec![1, 3, 1]),
        Batch(Write::Update, vec![2, 1, 2, BUSY]),
    ];
    for_all_key_classes((1, 2, 4), &[Insert(1), Insert(BUSY)], &ops);
}

#[test]
fn probe_in_further_rounds() {
    // More items than a bucket has slots find no slot in the first round.
    let prepare: Vec<Op> = (1..6).map(Insert).collect();
    let mut ops: Vec<Op> = (6..10).map(Insert).collect();
    ops.extend([Remove(7), Update(8), Kill, Insert(7), Reopen, Remove(9)]);
    for_all_key_classes((1, 1, 4), &prepare, &ops);
}

#[test]
fn kill_of_the_process_on_a_running_machine() {
    let ops = [
        Insert(3),
        Kill,
        Remove(1),
        Kill,
        AddLevel,
        Kill,
        Drain,
        Update(2),
        Kill,
        Reopen,
        Kill,
    ];
    for_all_key_classes((1, 1, 2), &[Insert(1), Insert(2)], &ops);
}
