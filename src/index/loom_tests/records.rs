//! Records: what has left the table serves again only when nobody can still be reading it.

use super::model::Model;
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
