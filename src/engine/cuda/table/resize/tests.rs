use super::*;

#[test]
fn resize_slices_fit_batch_and_time() {
    let mut draining = Draining::default();
    assert_eq!(draining.next(1 << 20, 0), 0..SLICE_BUCKETS_MIN);
    assert_eq!(draining.next(1 << 20, 1 << 13), 0..1 << 10);
    assert_eq!(draining.next(100, u64::MAX), 0..100);
    // A device that takes ten times too long is given a tenth, one that is quick soon more.
    draining.learn(1 << 13, 10 * SLICE_TIME);
    assert_eq!(
        draining.next(1 << 20, u64::MAX),
        0..(1 << 13) / 10 * BATCH_SLICES_MAX
    );
    for _ in 0..100 {
        let next = draining.next(1 << 20, u64::MAX);
        draining.learn(next.end, SLICE_TIME / 100);
    }
    assert_eq!(draining.slice, SLICE_BUCKETS_MAX);
    // A short slice, which mostly waits for its launch, says nothing.
    draining.learn(SLICE_BUCKETS_MIN, SLICE_TIME / 2);
    assert_eq!(draining.slice, SLICE_BUCKETS_MAX);
}

#[test]
fn resize_drains_a_level_before_the_table_fills_again() {
    let (bottom, slots) = (1u64 << 20, 8);
    // The levels at rest are then twice and four times as large, and were half and once.
    let insertions = (2 + 4 - 1 - 2) * bottom * slots * 9 / 10;
    for batch in [1 << 12, 1 << 16, 1 << 20] {
        let mut draining = Draining::default();
        for _ in 0..insertions / batch {
            let next = draining.next(bottom, batch);
            let buckets = next.end - next.start;
            // A bucket takes some thirty accesses to host memory, of which a PCIe link does
            // two hundred million a second.
            draining.learn(buckets, Duration::from_nanos(150 * buckets + 10_000));
            draining.done = next.end;
        }
        assert_eq!(draining.done, bottom, "batches of {batch}");
    }
}
