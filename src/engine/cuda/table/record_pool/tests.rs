use std::path::Path;

use super::*;
use crate::engine::device_tests::alone;
use crate::gpu::device::Device;
use crate::layout::{DATA_START, Shape};
use crate::pm::MapOptions;

/// A table in a directory, whose records are all fresh.
fn table(dir: &Path) -> Table<Mapping> {
    let path = dir.join("table");
    let mapping = Mapping::create(&path, DATA_START, &MapOptions::default()).unwrap();
    let shape = Shape::new(8, 8, 4, 2, 2).unwrap();
    Table::create(mapping, shape, 1000, &path).unwrap()
}

/// An iterator of the host copies a value while it is pinned.
#[test]
fn records_that_readers_may_hold_are_given_to_nobody() {
    let Some(_alone) = alone() else { return };
    let device = Device::open(0).unwrap();
    let _entered = device.enter().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    let stream = Stream::new().unwrap();
    let mut pool = RecordPool::new(table.shape.record_stride, &IndexBudget::new(None)).unwrap();
    let all = table.arena.total(0);
    pool.prepare(&table, &stream, all).unwrap();
    // A launch has taken two records, and retired one of them.
    let taken = pool.view.bump_offset[0];
    let retired = taken + table.shape.record_stride;
    let (view, at) = (pool.view, pool.view.retired_tail);
    pool.write(&view, &stream, at, &[retired]).unwrap();
    let counters = Counters {
        taken: 2,
        retired: 1,
        ..Counters::default()
    };
    pool.apply_counters(&table, &counters);

    let pin = table.pin_reader(0);
    pool.hand_back(&table, &stream).unwrap();
    let take = || {
        let mut session = table.session();
        let records: Vec<u64> = std::iter::from_fn(|| session.allocate(0)).collect();
        records
            .iter()
            .for_each(|&record| session.put_back(0, record));
        records
    };
    let free = take();
    assert_eq!(
        (free.len() as u64, free.contains(&retired)),
        (all - 2, false)
    );
    // Nor is it the device's.
    pool.prepare(&table, &stream, all).unwrap();
    assert_eq!(pool.available(), all - 2);
    drop(pin);
    pool.prepare(&table, &stream, all).unwrap();
    assert_eq!(pool.available(), all - 1);
    assert!(pool.entries(&stream).unwrap().contains(&retired));
}

/// Within a budget half of the ring is for records that are retired.
#[test]
fn ring_within_a_budget_leaves_records_to_the_arena() {
    let Some(_alone) = alone() else { return };
    let device = Device::open(0).unwrap();
    let _entered = device.enter().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    let stream = Stream::new().unwrap();
    let budget = IndexBudget {
        ring_records_max: 512,
        ..IndexBudget::new(None)
    };
    let mut pool = RecordPool::new(table.shape.record_stride, &budget).unwrap();
    let all = table.arena.total(0);
    pool.prepare(&table, &stream, all).unwrap();
    assert_eq!((pool.available(), pool.used()), (all, 0));
    // A launch has taken 400 records, and retired 300 of them.
    let first = pool.view.bump_offset[0];
    let retired: Vec<u64> = (0..300)
        .map(|nth| first + nth * table.shape.record_stride)
        .collect();
    let (view, at) = (pool.view, pool.view.retired_tail);
    pool.write(&view, &stream, at, &retired).unwrap();
    let counters = Counters {
        taken: 400,
        retired: 300,
        ..Counters::default()
    };
    pool.apply_counters(&table, &counters);
    assert!(pool.is_crowded(0) && pool.is_crowded(213));
    pool.spill(&table, &stream).unwrap();
    assert_eq!(pool.used(), 0);
    assert!(!pool.is_crowded(512) && pool.is_crowded(513));
    // They are free, and as many as there is room for are at hand.
    pool.prepare(&table, &stream, all - 100).unwrap();
    assert_eq!(pool.used(), 256);
    assert_eq!(pool.available(), all - 400 + 256);
    pool.make_room(&stream, 256).unwrap();
    assert_eq!(pool.view.ring_capacity, RING_RECORDS_MIN as u64);
}
