use std::path::Path;

use crate::layout::{DATA_START, Shape};
use crate::pm::Medium;
use crate::pm::sim::Simulated;
use crate::table::Table;
use crate::table::probe_hint::ProbeHint;
use crate::table::record::Content;

/// Removes and inserts these keys; all of them are new to the table, or none.
fn change(table: &Table<Simulated>, keys: std::ops::Range<u64>, insert: bool) {
    let mut session = table.session();
    for key in keys {
        let bytes = key.to_ne_bytes();
        let target = table.target(&bytes);
        let hint = ProbeHint::of(table, &target);
        match insert {
            true => drop(
                session
                    .insert(&target, &hint, &Content::fixed(&key.to_ne_bytes()))
                    .unwrap(),
            ),
            false => assert!(session.remove(&target, &hint).unwrap()),
        }
    }
}

/// A compaction has given up parts of the arena. Who takes the table back neither loses count of the records nor takes
/// the same ones twice.
#[test]
fn retake_after_a_compaction_counts_what_was_given_up() {
    let shape = Shape::new(8, 8, 4, 2, 2).unwrap();
    let memory = Simulated::new(DATA_START, 1 << 24);
    let table = Table::create(memory, shape, 1, Path::new("memory")).unwrap();
    let keys = 40_000;
    change(&table, 1..keys, true);
    // The last records stay in use, or none of them do.
    for kept in [100..200, 0..0] {
        change(&table, 1..kept.start.max(1), false);
        change(&table, kept.end.max(1)..keys, false);
        assert!(table.compact(&|_| true));
        assert!(
            table.arena.end(0) > table.arena.total(0),
            "nothing was given up"
        );
        table.retake().unwrap();
        assert!(table.arena.high_water(0) <= table.arena.end(0));
        assert!(table.arena.taken(0) <= table.arena.total(0));
        assert_eq!(table.len(), kept.end - kept.start);
        change(&table, 1..kept.start.max(1), true);
        change(&table, kept.end.max(1)..keys, true);
        assert_eq!(table.len(), keys - 1);
    }
    table.close().unwrap();
    let superblock = *table.superblock();
    let (table, recovery) = Table::open(
        table.medium,
        superblock,
        Path::new("memory"),
        crate::table::recovery::Policy::INDEX,
    )
    .unwrap();
    assert!(recovery.clean);
    assert_eq!(table.len(), keys - 1);
    assert!(table.medium.len() >= superblock.file_len);
}
