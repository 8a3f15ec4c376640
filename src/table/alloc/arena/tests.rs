use gphash_layout::size_class::{SIZE_CLASSES, class_size};

use super::*;

/// The arena of a table of fixed values.
fn fixed(stride: u64) -> Arena {
    Arena::new([stride].into_iter())
}

/// That of one of values of variable length.
pub(crate) fn variable() -> Arena {
    Arena::new((0..SIZE_CLASSES).map(class_size))
}

#[test]
fn record_numbers_and_offsets_are_inverse() {
    let arena = variable();
    // Classes of 40 and of 32 bytes.
    arena.add_extent(1, 4096, 100);
    arena.add_extent(0, 65536, 4096);
    arena.add_extent(1, 69632, 4096);
    assert_eq!((arena.total(0), arena.total(1)), (128, 2 + 102));
    let map = arena.map();
    for class in 0..2 {
        for ordinal in 0..arena.total(class) {
            let offset = arena.extents().offset(class, ordinal).unwrap();
            assert_eq!(map.record(offset), Some((class, ordinal)));
        }
        assert_eq!(arena.extents().offset(class, arena.total(class)), None);
    }
    for nowhere in [0, 4095, 4097, 4096 + 80, 65536 + 4, 69632 + 102 * 40] {
        assert_eq!(map.record(nowhere), None);
    }
}

#[test]
fn record_is_handed_out_once_and_again_only_after_grace() {
    let arena = fixed(64 << 10);
    arena.add_extent(0, 4096, 640 << 10);
    let mut shard = arena.shard(3);
    let mut taken: Vec<_> = std::iter::from_fn(|| arena.allocate(&mut shard, 0, || 1)).collect();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 10);
    shard.retire(taken[0], 1 << 20);
    arena.flush(&mut shard, || 5);
    assert_eq!(arena.allocate(&mut shard, 0, || 5), None);
    assert_eq!(arena.allocate(&mut shard, 0, || 6), None);
    assert_eq!(arena.allocate(&mut shard, 0, || 7), Some(taken[0]));
}

#[test]
fn records_come_back_to_their_own_class() {
    let arena = variable();
    arena.add_extent(0, 4096, 32);
    arena.add_extent(5, 8192, 80);
    let mut shard = arena.shard(0);
    let small = arena.allocate(&mut shard, 0, || 1).unwrap();
    let large = arena.allocate(&mut shard, 5, || 1).unwrap();
    assert_eq!((small, large), (4096, 8192));
    assert_eq!(arena.allocate(&mut shard, 1, || 1), None);
    shard.retire(large, 80);
    shard.retire(small, 32);
    assert_eq!(arena.collect(&mut shard, || 1), 1);
    assert_eq!(arena.allocate(&mut shard, 5, || 3), Some(large));
    assert_eq!(arena.allocate(&mut shard, 0, || 3), Some(small));
}

/// What a shard keeps, others must find elsewhere: a small table would grow by much.
#[test]
fn shards_of_a_small_arena_keep_few_retired_records() {
    let kept = |bytes: u64| {
        let arena = fixed(1 << 10);
        arena.add_extent(0, 4096, bytes);
        let mut shard = arena.shard(0);
        let mut kept = 0;
        while !arena.has_limbo() {
            let record = arena.allocate(&mut shard, 0, || 1).unwrap();
            shard.retire(record, 1 << 10);
            kept += 1 << 10;
            arena.flush(&mut shard, || 1);
        }
        kept
    };
    assert_eq!(kept(1 << 20), 32 << 10);
    assert_eq!(kept(64 << 20), 128 << 10);
    assert_eq!(kept(1 << 30), 1 << 20);
}
