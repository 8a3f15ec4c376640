//! A resize beside everything else: nobody misses what is there, and nothing is lost or doubled.

use super::model::{Keys, Model, Op};
use crate::index::loom_tests::model::Op::*;

/// A level of two full slots below a new one; the resize may begin to empty it at once.
const SETTLED: &[Op] = &[Insert(1, 1), Insert(2, 1), Grow, Slice, Slice];

fn check(before: &'static [Op], threads: &'static [&'static [Op]]) {
    Model {
        before,
        threads,
        ..Model::default()
    }
    .check();
}

#[test]
fn slice_and_get() {
    check(SETTLED, &[&[Slice], &[Get(1)]]);
}

#[test]
fn slice_and_insert() {
    check(SETTLED, &[&[Slice], &[Insert(1, 2)]]);
    check(SETTLED, &[&[Slice], &[Insert(3, 2)]]);
}

#[test]
fn slice_and_update() {
    check(SETTLED, &[&[Slice], &[Update(1, 2)]]);
}

#[test]
fn slice_and_remove() {
    check(SETTLED, &[&[Slice], &[Remove(1)]]);
}

#[test]
fn slice_and_upsert() {
    check(SETTLED, &[&[Slice], &[Upsert(2, 2)]]);
}

#[test]
fn resize_and_get() {
    check(&[Insert(1, 1)], &[&[Get(1)], &[Grow, Drain]]);
}

#[test]
fn resize_and_insert() {
    check(&[Insert(1, 1)], &[&[Insert(2, 2)], &[Grow, Drain]]);
}

#[test]
fn resize_and_update() {
    check(&[Insert(1, 1)], &[&[Update(1, 2)], &[Grow, Drain]]);
}

#[test]
fn resize_and_remove() {
    check(&[Insert(1, 1)], &[&[Remove(1)], &[Grow, Drain]]);
}

/// The space of the level serves as records, while someone may still be reading it as buckets.
#[test]
fn retired_level_and_get() {
    const LEFT: &[Op] = &[Slice, Slice, Slice, Insert(3, 3)];
    check(
        &[Insert(1, 1), Insert(2, 1), UseUp, Grow, Slice, Slice],
        &[&[Get(1)], LEFT],
    );
}

/// Items of variable length move without their keys being read.
#[test]
fn slice_beside_keys_of_variable_length() {
    let check = |threads| {
        Model {
            keys: Keys::Variable,
            preemptions: Some(2),
            before: SETTLED,
            threads,
            ..Model::default()
        }
        .check();
    };
    check(&[&[Slice], &[Get(1)]]);
    check(&[&[Slice], &[Upsert(2, 2)]]);
}

/// The insertion may have seen the levels as they were, and put the item below.
#[test]
fn resize_by_two_levels_and_insert() {
    Model {
        threads: &[&[Insert(1, 1)], &[Slice, Slice, Slice], &[Grow]],
        preemptions: Some(2),
        ..Model::default()
    }
    .check();
}

#[test]
fn insertions_that_find_no_slot() {
    check(&[Insert(1, 1)], &[&[Insert(2, 2)], &[Insert(3, 3)]]);
}

/// The home of a key that goes to a further round is another one once a level was added.
#[test]
fn growth_and_further_rounds() {
    Model {
        shape: (1, 1, 1),
        capacity: 2,
        before: &[Insert(1, 1)],
        threads: &[&[Insert(2, 1)], &[Grow]],
        ..Model::default()
    }
    .check();
}

/// Checks these threads on a table that has a level more than it needs.
fn check_shrink(threads: &'static [&'static [Op]]) {
    Model {
        before: &[Insert(1, 1), Grow, Drain],
        preemptions: Some(2),
        threads,
        ..Model::default()
    }
    .check();
}

#[test]
fn shrink_and_get() {
    check_shrink(&[&[Get(1), Get(1)], &[Shrink]]);
}

#[test]
fn shrink_and_insert() {
    check_shrink(&[&[Insert(2, 1), Get(2)], &[Shrink]]);
}

#[test]
fn shrink_and_update() {
    check_shrink(&[&[Update(1, 2), Get(1)], &[Shrink]]);
}

#[test]
fn shrink_and_remove() {
    check_shrink(&[&[Remove(1), Insert(1, 3)], &[Shrink]]);
}

#[test]
fn shrink_and_growth() {
    check_shrink(&[&[Grow, Insert(2, 1)], &[Shrink]]);
}

/// Of two batches, one may have begun before changes were noted.
#[test]
fn shrink_and_two_batches() {
    check_shrink(&[&[Upsert(1, 2)], &[Remove(1)], &[Shrink]]);
}
