use std::path::Path;

use crate::layout::{DATA_START, RecordWord, Shape};
use crate::pm::Medium;
use crate::pm::sim::Simulated;
use crate::table::Table;
use crate::table::probe_hint::ProbeHint;
use crate::table::record::Content;

/// An item whose slot has a flipped bit is found as long as no scan has named the damage, and levels that would be
/// without it are not made.
#[test]
fn damaged_slot_is_not_left_behind() {
    let shape = Shape::new(8, 8, 4, 2, 2).unwrap();
    let memory = Simulated::new(DATA_START, 1 << 24);
    let table = Table::create(memory, shape, 1, Path::new("memory")).unwrap();
    let bytes = |key: u64| key.to_ne_bytes();
    let keys = 1..5000;
    for key in keys.clone() {
        let (key, mut session) = (bytes(key), table.session());
        let target = table.target(&key);
        let hint = ProbeHint::of(&table, &target);
        (session.insert(&target, &hint, &Content::fixed(&key))).unwrap();
    }
    table.finish_draining_quietly();
    let key = bytes(7);
    let damaged = table.target(&key);
    let addr = table.find(&damaged, &mut 0).unwrap().addr;
    let word = table.medium.load(addr.record);
    for key in keys.filter(|key| *key != 7) {
        let (key, mut session) = (bytes(key), table.session());
        let target = table.target(&key);
        let hint = ProbeHint::of(&table, &target);
        assert!(session.remove(&target, &hint).unwrap());
    }
    let top = table.levels.live().top;
    for is_damaged in [true, false] {
        let flipped = if is_damaged { RecordWord::PARITY } else { 0 };
        table.medium.store(addr.record, word ^ flipped);
        assert!(table.shrink_levels(&|_| true));
        assert!(table.find(&damaged, &mut 0).is_some());
        assert_eq!(table.levels.live().top == top, is_damaged);
    }
}
