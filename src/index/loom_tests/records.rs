//! Records: what has left the table serves again only when nobody can still be reading it.

use super::model::{Model, Op};
use crate::index::loom_tests::model::Op::*;

#[test]
fn record_is_not_reused_while_it_is_read() {
    Model {
        before: &[Insert(1, 1)],
        threads: &[
            &[Get(1)],
            &[Update(1, 2), Update(1, 3), Update(1, 4), Update(1, 5)],
        ],
        ..Model::default()
    }
    .check();
}

#[test]
fn records_are_taken_and_returned() {
    Model {
        threads: &[&[Insert(1, 1), Remove(1)], &[Insert(2, 2), Remove(2)]],
        ..Model::default()
    }
    .check();
}

/// Checks these threads on a bucket that holds key 1.
fn check_moves(threads: &'static [&'static [Op]]) {
    Model {
        before: &[Insert(1, 1)],
        threads,
        ..Model::default()
    }
    .check();
}

#[test]
fn record_moves_beside_a_lookup() {
    check_moves(&[&[Get(1), Get(1)], &[Move]]);
}

#[test]
fn record_moves_beside_an_update() {
    check_moves(&[&[Update(1, 2), Get(1)], &[Move]]);
}

#[test]
fn record_moves_beside_a_removal() {
    check_moves(&[&[Remove(1), Insert(1, 3)], &[Move]]);
}

#[test]
fn record_moves_beside_a_resize() {
    check_moves(&[&[Grow, Drain], &[Move]]);
}
