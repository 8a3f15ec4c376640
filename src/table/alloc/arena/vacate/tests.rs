use gphash_layout::size_class::class_size;

use super::*;
use crate::tests::variable;

/// Takes all records of a class, in order.
fn take_all_of(arena: &Arena, class: u32) -> Vec<u64> {
    let mut shard = arena.shard(0);
    std::iter::from_fn(|| arena.allocate(&mut shard, class, || 1)).collect()
}

#[test]
fn part_is_cut_at_pages_and_records() {
    let arena = variable();
    // Records of 40 bytes: five pages hold 512 of them.
    arena.add_extent(1, 8192, 50 << 10);
    let parts: Vec<_> = cut(arena.extents().iter().next().unwrap(), 4096).collect();
    let ranges: Vec<_> = parts
        .iter()
        .map(|part| (part.offset, part.len, part.count))
        .collect();
    assert_eq!(
        ranges,
        [(8192, 20480, 512), (28672, 20480, 512), (49152, 10240, 256)]
    );
    for class in [0, 5, 17, 28, 30, 60] {
        let stride = class_size(class);
        let extent = ArenaExtent {
            offset: 1 << 20,
            len: 64 << 20,
            class,
            stride,
            first: 7,
            count: (64 << 20) / stride,
        };
        let parts: Vec<_> = cut(extent, 1 << 20).collect();
        assert!(parts.iter().all(|part| part.offset % PAGE == 0));
        assert_eq!(
            parts.iter().map(|part| part.count).sum::<u64>(),
            extent.count
        );
        assert_eq!(parts.iter().map(|part| part.len).sum::<u64>(), extent.len);
    }
}

#[test]
fn empty_part_leaves_the_arena_and_no_number_changes() {
    let arena = Arena::new([4096].into_iter());
    arena.add_extent(0, 0x10000, 8 * 4096);
    let records = take_all_of(&arena, 0);
    assert_eq!(records.len(), 8);
    arena.give(records[2..6].to_vec());
    arena.give(records[7..].to_vec());
    let victims = arena
        .begin_vacating(Victims::Empty, 2 * 4096, 99, || 9)
        .unwrap();
    assert_eq!(victims.extents().len(), 2);
    assert!(
        arena
            .begin_vacating(Victims::Empty, 2 * 4096, 99, || 9)
            .is_none()
    );
    let freed = arena.end_vacating(99, || 9);
    assert_eq!(freed, [(0x12000, 0x2000), (0x14000, 0x2000)]);
    assert_eq!((arena.total(0), arena.taken(0), arena.fresh(0)), (4, 4, 0));
    assert_eq!(arena.map().record(0x16000), Some((0, 6)));
    assert_eq!(arena.map().record(0x12000), None);
    assert_eq!(arena.take_all(), records[7..]);
}

#[test]
fn part_that_somebody_uses_stays_and_its_records_come_back() {
    let arena = Arena::new([4096].into_iter());
    arena.add_extent(0, 0x10000, 8 * 4096);
    let mut records = take_all_of(&arena, 0);
    arena.give(records.split_off(1));
    // All of them go into one part, less than half of which is in use.
    assert!(
        arena
            .begin_vacating(Victims::Sparse, 8 * 4096, 99, || 9)
            .is_none()
    );
    let victims = arena
        .begin_vacating(Victims::Sparse, 4096, 99, || 9)
        .unwrap();
    assert!(victims.find(records[0]).is_none());
    assert_eq!(victims.extents().len(), 7);
    // One is taken out of what is put aside, as by a batch that had it all along.
    arena.vacating.parts.lock().as_mut().unwrap().aside[0].pop();
    assert_eq!(arena.end_vacating(99, || 9).len(), 6);
    assert_eq!((arena.total(0), arena.taken(0)), (2, 2));
    assert!(
        arena
            .begin_vacating(Victims::Empty, 4096, 99, || 9)
            .is_none()
    );
}

#[test]
fn records_that_were_never_taken_are_given_up() {
    let arena = Arena::new([4096].into_iter());
    arena.add_extent(0, 0x10000, 100 * 4096);
    let mut shard = arena.shard(0);
    let record = arena.allocate(&mut shard, 0, || 1).unwrap();
    drop(shard);
    assert!(
        arena
            .begin_vacating(Victims::Sparse, 4096, 99, || 9)
            .is_some()
    );
    let freed: u64 = arena
        .end_vacating(99, || 9)
        .iter()
        .map(|(_, len)| len)
        .sum();
    assert_eq!(freed, 99 * 4096);
    assert_eq!((arena.total(0), arena.fresh(0)), (1, 0));
    assert_eq!(arena.map().record(record), Some((0, 0)));
    assert!(take_all_of(&arena, 0).is_empty());
}
