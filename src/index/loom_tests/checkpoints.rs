//! A checkpoint beside changes: none of their stores falls into it.

use super::model::{Model, Op};
use crate::Domain;
use crate::index::loom_tests::model::Op::*;

fn check(before: &'static [Op], threads: &'static [&'static [Op]]) {
    Model {
        domain: Domain::Checkpointed,
        before,
        threads,
        ..Model::default()
    }
    .check();
}

#[test]
fn checkpoint_and_changes() {
    check(&[], &[&[Sync], &[Insert(1, 1), Update(1, 2), Remove(1)]]);
}

#[test]
fn checkpoint_and_growth() {
    check(&[Insert(1, 1)], &[&[Sync], &[Grow, Drain]]);
}
