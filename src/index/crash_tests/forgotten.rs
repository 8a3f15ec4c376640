//! The explorer finds what is wrong: every fence that an operation needs is left out once, and then
//! some image must fail.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Kind;
use super::explorer::{Explorer, on_one_thread, rng};
use super::operation::Op;
use super::operation::Run;
use crate::index::crash_tests::operation::Op::{
    AddLevel, Drain, Insert, Recycle, Remove, Reopen, Update, UseUp,
};
use crate::pm::sim::Recording;

const KEYS: u64 = 6;

/// The steps of `ops` that are fences: nothing but them takes pending stores away, and a fence that
/// takes none away is not needed.
fn fences(recording: &Recording) -> Vec<u64> {
    let mut before = 0;
    let mut takes_away = |&(_, pending): &(u64, usize)| pending < replace(&mut before, pending);
    recording
        .states()
        .map(|state| (state.step, state.pending_stores()))
        .filter(&mut takes_away)
        .map(|(step, _)| step)
        .collect()
}

/// How many fences of `ops` there are, and those of them without which no image is found that fails.
fn not_missed(key_size: usize, prepare: &[Op], ops: &[Op]) -> (usize, Vec<u64>) {
    let kind = Kind::of((1, 2, 4), key_size);
    let run = || Run::new(kind, 7, prepare);
    let begin = run().table.medium.steps();
    let (_, recording) = ops.iter().fold(run(), Run::apply).end();
    let mut fences = fences(&recording);
    fences.retain(|&fence| fence > begin);
    let is_missed = |&fence: &u64| {
        let run = run();
        run.table.medium.forget_fence(fence);
        let explored = catch_unwind(AssertUnwindSafe(|| {
            let (history, recording) = ops.iter().fold(run, Run::apply).end();
            let mut explorer = Explorer::new(u64::MAX);
            // An entry that is not durable shows only where all words of its superblock are.
            let most = (256, u64::MAX);
            explorer.explore(&kind, &history, &recording, KEYS, most, &mut rng(fence));
        }));
        explored.is_err()
    };
    let count = fences.len();
    fences.retain(|fence| !is_missed(fence));
    (count, fences.iter().map(|fence| fence - begin).collect())
}

#[test]
fn fence_left_out_is_detected() {
    on_one_thread(|| {
        let prepare = [Insert(1), Insert(2)];
        // How many fences each has, and how many of them another one makes up for: at the end of a
        // batch that empties slots, or before anything relies on what a superblock says.
        for (ops, count, spared) in [
            (vec![Insert(3)], 2, 0),
            (vec![Update(1)], 2, 0),
            (vec![Remove(1), Recycle, Insert(3), Update(2)], 6, 2),
            (vec![UseUp, Insert(3)], 4, 1),
            (vec![Reopen, Insert(3)], 4, 1),
            (vec![AddLevel, Drain, Insert(3)], 14, 8),
        ] {
            let (fences, not_missed) = not_missed(8, &prepare, &ops);
            println!("{ops:?}: {fences} fences, not missed {not_missed:?}");
            assert_eq!((fences, not_missed.len()), (count, spared));
        }
    });
}

#[test]
fn fence_left_out_is_detected_with_variable_length() {
    on_one_thread(|| {
        let prepare = [Insert(1), Insert(2)];
        // The first two need records of a class that has none, as the last one does.
        for (ops, count, spared) in [
            (vec![Insert(3)], 4, 1),
            (vec![Update(1)], 4, 1),
            (vec![Remove(1), Recycle, Insert(3), Update(2)], 6, 2),
            (vec![UseUp, Insert(3)], 4, 1),
        ] {
            let (fences, not_missed) = not_missed(0, &prepare, &ops);
            println!("{ops:?}: {fences} fences, not missed {not_missed:?}");
            assert_eq!((fences, not_missed.len()), (count, spared));
        }
    });
}
