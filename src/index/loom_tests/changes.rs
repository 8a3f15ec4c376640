//! Verbs beside each other: at one key, at two keys of one bucket, at keys that take turns in a
//! slot. The keys 7 and 8 have one tag.

use super::model::{Keys, Model, Op};
use crate::index::loom_tests::model::Op::*;

/// Checks these threads on a bucket of two slots.
fn check(before: &'static [Op], threads: &'static [&'static [Op]]) {
    Model {
        before,
        threads,
        ..Model::default()
    }
    .check();
}

#[test]
fn insert_and_insert() {
    check(&[], &[&[Insert(1, 1)], &[Insert(1, 2)]]);
}

/// The two locations of key 1 lead to different buckets, of one slot each.
#[test]
fn insert_and_insert_in_two_buckets() {
    Model {
        shape: (1, 2, 1),
        capacity: 2,
        threads: &[&[Insert(1, 1)], &[Insert(1, 2)]],
        ..Model::default()
    }
    .check();
}

#[test]
fn insert_and_insert_after_an_opening() {
    check(&[Insert(2, 1), Forget], &[&[Insert(1, 1)], &[Insert(1, 2)]]);
}

#[test]
fn insert_and_insert_of_two_keys() {
    check(&[], &[&[Insert(7, 1)], &[Insert(8, 2)]]);
}

#[test]
fn insert_and_remove() {
    check(&[], &[&[Insert(1, 1)], &[Remove(1)]]);
    check(&[Insert(1, 1)], &[&[Insert(1, 2)], &[Remove(1)]]);
}

/// A walk that has seen the tag of the old item comes to the new one before its tag is shown.
#[test]
fn insert_and_the_same_key_anew() {
    check(
        &[Insert(1, 1)],
        &[&[Insert(1, 2)], &[Remove(1), Insert(1, 3)]],
    );
}

#[test]
fn insert_and_remove_of_two_keys() {
    check(&[Insert(7, 1)], &[&[Insert(8, 2)], &[Remove(7)]]);
}

#[test]
fn insert_and_get() {
    check(&[], &[&[Insert(1, 1)], &[Get(1), Get(1)]]);
}

#[test]
fn insert_and_get_after_an_opening() {
    check(
        &[Insert(2, 1), Forget],
        &[&[Insert(1, 1)], &[Get(1), Get(2)]],
    );
}

#[test]
fn update_and_update() {
    check(&[Insert(1, 1)], &[&[Update(1, 2)], &[Update(1, 3)]]);
}

#[test]
fn update_and_remove() {
    check(&[Insert(1, 1)], &[&[Update(1, 2)], &[Remove(1)]]);
}

#[test]
fn update_and_get() {
    check(&[Insert(1, 1)], &[&[Update(1, 2)], &[Get(1), Get(1)]]);
}

#[test]
fn update_and_the_same_key_anew() {
    check(
        &[Insert(1, 1)],
        &[&[Update(1, 2)], &[Remove(1), Insert(1, 3)]],
    );
}

#[test]
fn update_and_another_key_in_its_slot() {
    check(
        &[Insert(7, 1)],
        &[&[Update(7, 2)], &[Remove(7), Insert(8, 3)]],
    );
}

#[test]
fn remove_and_remove() {
    check(&[Insert(1, 1)], &[&[Remove(1)], &[Remove(1)]]);
}

#[test]
fn get_and_another_key_in_its_slot() {
    check(&[Insert(7, 1)], &[&[Get(7)], &[Remove(7), Insert(8, 3)]]);
    check(&[Insert(7, 1)], &[&[Get(8)], &[Remove(7), Insert(8, 3)]]);
}

#[test]
fn upsert_and_upsert() {
    check(&[], &[&[Upsert(1, 1)], &[Upsert(1, 2)]]);
    check(&[Insert(1, 1)], &[&[Upsert(1, 2)], &[Upsert(1, 3)]]);
}

#[test]
fn upsert_and_remove() {
    check(&[Insert(1, 1)], &[&[Upsert(1, 2)], &[Remove(1)]]);
}

/// Keys 1 and 2 have one home bucket, of one slot; in its further rounds key 2 goes to the other one.
#[test]
fn probe_in_further_rounds() {
    let check = |before, threads| {
        Model {
            shape: (1, 1, 1),
            capacity: 2,
            before,
            threads,
            ..Model::default()
        }
        .check();
    };
    const HOME: &[Op] = &[Remove(1), Insert(2, 2)];
    check(&[Insert(1, 1)], &[&[Insert(2, 1)], &[Get(2), Get(2)]]);
    check(&[Insert(1, 1)], &[&[Insert(2, 1)], &[Insert(2, 2)]]);
    check(&[Insert(1, 1)], &[&[Insert(2, 1)], HOME]);
}

#[test]
fn keys_that_equal_slot_states() {
    check(&[], &[&[Insert(0, 1)], &[Insert(0, 2)]]);
    check(
        &[Insert(0, 1)],
        &[&[Update(0, 2)], &[Remove(0), Insert(0, 3)]],
    );
}

#[test]
fn wide_keys() {
    let check = |before, threads| {
        Model {
            keys: Keys::Wide,
            before,
            threads,
            ..Model::default()
        }
        .check();
    };
    check(&[], &[&[Insert(1, 1)], &[Insert(1, 2)]]);
    check(&[Insert(1, 1)], &[&[Get(1)], &[Remove(1), Insert(2, 3)]]);
}

/// Different keys have one fingerprint: only their records tell them apart.
#[test]
fn keys_of_variable_length() {
    let check = |before, threads| {
        Model {
            keys: Keys::Variable,
            preemptions: Some(2),
            before,
            threads,
            ..Model::default()
        }
        .check();
    };
    const USED: &[Op] = &[Insert(9, 1), Remove(9)];
    check(USED, &[&[Insert(1, 1)], &[Insert(1, 2)]]);
    check(USED, &[&[Insert(1, 1)], &[Insert(2, 2)]]);
    check(&[Insert(1, 1)], &[&[Insert(2, 2)], &[Remove(1)]]);
    check(&[Insert(1, 1)], &[&[Get(1)], &[Remove(1), Insert(2, 3)]]);
    check(&[Insert(1, 1)], &[&[Upsert(1, 2)], &[Upsert(1, 3)]]);
}

/// The record of an insertion that lost is still read by the others.
#[test]
fn keys_of_variable_length_and_their_records() {
    Model {
        keys: Keys::Variable,
        before: &[Insert(9, 1), Remove(9)],
        threads: &[&[Insert(1, 1), Update(1, 2)], &[Insert(1, 7)]],
        ..Model::default()
    }
    .check();
}

#[test]
fn threads_insert_update_and_remove_one_key() {
    let check = |before, threads| {
        Model {
            shape: (1, 1, 4),
            before,
            threads,
            preemptions: Some(2),
            ..Model::default()
        }
        .check();
    };
    check(&[], &[&[Insert(1, 1)], &[Insert(1, 2)], &[Insert(1, 3)]]);
    check(&[], &[&[Insert(1, 1)], &[Insert(1, 2)], &[Remove(1)]]);
    const ANEW: &[Op] = &[Remove(1), Insert(1, 3)];
    check(&[Insert(1, 1)], &[&[Get(1)], &[Update(1, 2)], ANEW]);
}
