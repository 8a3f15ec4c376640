use std::ops::Range;
use std::path::Path;

use super::*;
use crate::layout::DATA_START;
use crate::pm::sim::Simulated;
use crate::table::Session;
use crate::table::probe_hint::ProbeHint;
use crate::table::record::Content;

/// Inserts keys; they count when the session ends.
pub(crate) fn insert(session: &mut Session<Simulated>, keys: Range<u64>) {
    let table = session.table;
    for key in keys {
        let target = table.target(bytemuck::bytes_of(&key));
        let hint = ProbeHint::of(table, &target);
        let value = key.to_ne_bytes();
        session
            .insert(&target, &hint, &Content::fixed(&value))
            .unwrap();
    }
}

fn table_for(items: u64) -> Table<Simulated> {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let memory = Simulated::new(DATA_START, 1 << 24);
    Table::create(memory, shape, items, Path::new("memory")).unwrap()
}

#[test]
fn growth_of_a_table_that_others_filled() {
    let table = table_for(2000);
    let shape = table.shape;
    let levels = table.levels.live();
    assert!(levels.top > shape.levels + 4);
    assert!(table.grow_levels(levels).is_err(), "nothing is full");
    let mut session = table.session();
    insert(&mut session, 1..1500);
    assert_eq!(table.len(), 0);
    table.grow_levels(levels).unwrap();
    assert_eq!(table.levels.live().top, levels.top + 1);
}

#[test]
fn resize_drains_a_level_in_bounded_slices() {
    let table = table_for(30_000);
    let shape = table.shape;
    {
        let mut session = table.session();
        insert(&mut session, 1..30_001);
    }
    let levels = table.levels.live();
    let buckets = 1u64 << levels.bottom;
    let slice = SLICE_SLOTS_MAX / u64::from(shape.slots);
    assert!(buckets >= 4 * slice);
    table.add_level(levels).unwrap();
    let mut slices = 0;
    while table.levels.live().bottom == levels.bottom {
        let (moved, before) = (table.resize().cursor, table.medium.steps());
        assert!(table.drain_between_batches());
        let after = table.resize().cursor;
        assert!(after == 0 || after - moved <= slice);
        // Freezing, key, state and record words, and fences, of each item.
        assert!(table.medium.steps() - before <= SLICE_SLOTS_MAX * 12 + 400);
        slices += u64::from(after != moved);
    }
    assert_eq!(slices, buckets / slice);
    assert_eq!(table.len(), 30_000);
}

#[test]
fn removal_beside_a_move_outlives_a_power_cut() {
    let table = table_for(2000);
    let shape = table.shape;
    insert(&mut table.session(), 1..1500);
    let levels = table.levels.live();
    table.add_level(levels).unwrap();
    let bottom = table.levels.offset(levels.bottom);
    let bottom = bottom..bottom + shape.buckets_len(levels.bottom);
    let found = |key: &u64| table.find(&table.target(&key.to_ne_bytes()), &mut 0);
    let is_below = |key: &u64| found(key).is_some_and(|it| bottom.contains(&it.addr.state));
    let key = (1..1500).find(is_below).unwrap();
    let (bytes, from) = (key.to_ne_bytes(), found(&key).unwrap());
    let target = table.target(&bytes);
    // Whoever moves the item is interrupted before the slot that it has left is durable.
    let mut session = table.session();
    let to = table.claim(&target).unwrap().unwrap();
    table.write_key(to.addr, &target);
    table.medium.store(to.addr.state, target.word);
    table.medium.store(to.addr.record, from.record.0);
    table.write_back_slot(to.addr);
    table.medium.fence();
    to.show(&target);
    table.medium.store(from.addr.record, RecordWord::NONE.0);
    let hint = ProbeHint::of(&table, &target);
    assert!(session.remove(&target, &hint).unwrap());
    let state = table.medium.crash_state();
    let after = state.power_cut_but_for(|_| false).memory();
    assert_eq!(after.load(from.addr.record), RecordWord::NONE.0);
    assert_eq!(after.load(to.addr.record), RecordWord::NONE.0);
}

/// It may be an item of which a bit is flipped, and nothing else would tell of it.
#[test]
fn level_with_a_damaged_slot_stays() {
    let table = table_for(2000);
    let shape = table.shape;
    insert(&mut table.session(), 1..1500);
    let levels = table.levels.live();
    let find = |key: u64| table.find(&table.target(&key.to_ne_bytes()), &mut 0);
    let bottom = table.levels.offset(levels.bottom);
    let bottom = bottom..bottom + shape.buckets_len(levels.bottom);
    let key = (1..1500).find(|&key| bottom.contains(&find(key).unwrap().addr.state));
    let (key, addr) = (key.unwrap(), find(key.unwrap()).unwrap().addr);
    let flipped = table.medium.load(addr.record) ^ RecordWord::TENTATIVE;
    table.medium.store(addr.record, flipped);
    table.add_level(levels).unwrap();
    for _ in 0..2 {
        let damaged = table.finish_draining().unwrap_err();
        assert!(matches!(damaged, Error::Damaged { at, .. } if at == addr.state));
        assert_eq!(table.levels.live().bottom, levels.bottom);
        assert_eq!(table.medium.load(addr.record), flipped);
    }
    // Nothing is under way any more: no slice is emptied.
    let steps = table.medium.steps();
    assert!(!table.drain_between_batches());
    table.drain_slice();
    assert_eq!(table.medium.steps(), steps);
    assert!(!table.is_draining(table.levels.live()));
    assert!(matches!(table.tell_staying(), Err(Error::Damaged { at, .. }) if at == addr.state));
    table.tell_staying().unwrap();
    // All others have moved, and the table goes on.
    for other in (1..1500).filter(|&other| other != key) {
        assert!(!bottom.contains(&find(other).unwrap().addr.state));
    }
    insert(&mut table.session(), 1500..8000);
    assert!(table.levels.live().top > levels.top + 1);
    assert!((1500..8000).all(|key| find(key).is_some()));
}
