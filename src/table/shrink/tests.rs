use std::path::Path;

use crate::layout::bucket::SlotAddr;
use crate::layout::{DATA_START, ExtentKind, PAGE, RecordWord, Shape};
use crate::pm::sim::Simulated;
use crate::pm::{Medium, Priority};
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::probe::Occupied;
use crate::table::probe_hint::ProbeHint;
use crate::table::record::Content;

/// A table of which most is gone: these are left of thousands.
fn thinned(is_left: impl Fn(u64) -> bool, max_len: u64) -> Table<Simulated> {
    let shape = Shape::new(8, 8, 4, 2, 2).unwrap();
    let memory = Simulated::new(DATA_START, max_len);
    let table = Table::create(memory, shape, 1, Path::new("memory")).unwrap();
    let bytes = |key: u64| key.to_ne_bytes();
    for key in 1..5000 {
        let (key, mut session) = (bytes(key), table.session());
        let target = table.target(&key);
        let hint = ProbeHint::of(&table, &target);
        (session.insert(&target, &hint, &Content::fixed(&key))).unwrap();
    }
    table.finish_draining_quietly();
    for key in (1..5000).filter(|&key| !is_left(key)) {
        let (key, mut session) = (bytes(key), table.session());
        let target = table.target(&key);
        let hint = ProbeHint::of(&table, &target);
        assert!(session.remove(&target, &hint).unwrap());
    }
    // An item that had no room above may have kept a level.
    table.finish_draining_quietly();
    table
}

fn find(table: &Table<Simulated>, key: u64) -> Option<Occupied> {
    table.find(&table.target(&key.to_ne_bytes()), &mut 0)
}

/// An item whose slot has a flipped bit is found as long as no scan has named the damage, and levels that would be
/// without it are not made.
#[test]
fn damaged_slot_is_not_left_behind() {
    let table = thinned(|key| key == 1, 1 << 24);
    let addr = find(&table, 1).unwrap().addr;
    let word = table.medium.load(addr.record);
    let top = table.levels.live().top;
    for flipped in [RecordWord::PARITY, RecordWord::TENTATIVE, 0] {
        table.medium.store(addr.record, word ^ flipped);
        assert!(table.shrink_levels(&|_| true));
        // An item with that flag is none.
        let is_item = flipped != RecordWord::TENTATIVE;
        assert_eq!(find(&table, 1).is_some(), is_item);
        assert_eq!(table.levels.live().top == top, flipped != 0);
    }
}

/// Nor does its record move: the parity of a new word would be right.
#[test]
fn damaged_slot_keeps_its_record() {
    let is_left = |key: u64| key % 16 == 7;
    let table = thinned(is_left, 1 << 24);
    let addrs: Vec<_> = (1..5000)
        .filter(|&key| is_left(key))
        .map(|key| find(&table, key).unwrap().addr)
        .collect();
    let words = |table: &Table<Simulated>| -> Vec<u64> {
        let load = |addr: &SlotAddr| table.medium.load(addr.record);
        addrs.iter().map(load).collect()
    };
    let before = words(&table);
    for (addr, word) in addrs.iter().zip(&before).step_by(2) {
        table.medium.store(addr.record, word ^ RecordWord::PARITY);
    }
    let damaged = words(&table);
    assert!(table.compact(&|_| true));
    let moved = words(&table);
    let same = |nth: &usize| moved[*nth] == damaged[*nth];
    assert!((0..moved.len()).step_by(2).all(|nth| same(&nth)));
    assert!((1..moved.len()).step_by(2).any(|nth| !same(&nth)));
}

/// What was preallocated goes back, too: a disk that is full has no room for checkpoints.
#[test]
fn shrink_without_room_takes_none() {
    let max_len = 1 << 21;
    let table = thinned(|key| key < 300, max_len);
    let top = table.levels.live().top;
    {
        let mut superblock = table.superblock();
        // One of the new levels would fit.
        let len = max_len - PAGE - superblock.file_len;
        let arena = table.append_extent(&mut superblock, ExtentKind::Arena, 0, len);
        assert_eq!(arena.unwrap() + len, max_len - PAGE);
        table.commit(&mut superblock);
    }
    let len = table.medium.len();
    table.medium.prepare(len + PAGE, Priority::Beside).unwrap();
    assert!(table.shrink_levels(&|_| true));
    assert_eq!(table.levels.live().top, top);
    assert_eq!((table.medium.len(), table.medium.prepared()), (len, len));
    assert_eq!(table.free_extent_bytes().0, 0);
}

/// Whoever waits for the levels does not wait until room for new ones is made, of the end of the file or of what is
/// free.
#[test]
fn shrink_that_others_wait_for_makes_no_room() {
    let table = thinned(|key| key < 300, 1 << 24);
    let top = table.levels.live().top;
    for is_free in [false, true] {
        if is_free {
            let range = {
                let mut superblock = table.superblock();
                let len = 64 * PAGE;
                let offset = table.append_extent(&mut superblock, ExtentKind::Arena, 0, len);
                table.commit(&mut superblock);
                (offset.unwrap(), len)
            };
            table.add_free(&[range]);
        }
        let (len, steps) = (table.medium.len(), table.medium.steps());
        let free = table.free_extent_bytes().0;
        table.shrinking.hurrying.fetch_add(1, Ordering::SeqCst);
        assert!(table.shrink_levels(&|_| true));
        table.shrinking.hurrying.fetch_sub(1, Ordering::SeqCst);
        assert_eq!((table.medium.len(), table.medium.prepared()), (len, len));
        assert_eq!(table.free_extent_bytes().0, free);
        // No more than what enters the range as free again.
        assert!(is_free || table.medium.steps() == steps);
        assert_eq!(table.levels.live().top, top);
    }
    assert!(table.shrink_levels(&|_| true));
    assert!(table.levels.live().top < top);
}
