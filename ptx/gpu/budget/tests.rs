use super::*;

#[test]
fn quota_refuses_what_is_beyond_it_and_takes_nothing_then() {
    let quota = Quota::new(100);
    assert!(quota.take(60));
    assert!(!quota.take(41));
    assert_eq!((quota.taken(), quota.left()), (60, 40));
    assert!(quota.take(40) && !quota.take(1));
    quota.give_back(60);
    assert!(quota.take(60));
    assert!(!Quota::new(10).take(usize::MAX));
}

#[test]
fn budget_of_an_index_is_the_sum_of_its_parts() {
    for bytes in (26..44).flat_map(|bits| [1 << bits, (1_u64 << bits) + 12345]) {
        let budget = IndexBudget::new(Some(bytes));
        let parts = [&budget.copies, &budget.buffers, &budget.dirty];
        let sum: u64 = parts.map(|part| part.left()).iter().sum();
        assert_eq!(sum, bytes, "{budget:?}");
        // Copies come off with a third at least.
        assert!(budget.copies.left() >= bytes / 3, "{budget:?}");
        let lookups = budget.lookups_max as u64;
        assert!((1..=LOOKUPS_MAX).contains(&lookups), "{budget:?}");
        let streams = (lookups * LOOKUP_STREAMS + WRITER_STREAMS) * budget.stream_bytes_max;
        let rings = budget.ring_records_max * 8 * 3 / 2;
        assert!(streams + rings < budget.buffers.left(), "{budget:?}");
    }
    assert!(!IndexBudget::new(None).is_bounded());
}

#[test]
fn budget_of_a_store_is_the_sum_of_its_parts() {
    for bytes in [BUDGET_MIN, 1 << 30, 100 << 30] {
        let budget = StoreBudget::new(Some(bytes));
        assert_eq!(budget.copies.left() + budget.buffers.left(), bytes);
        assert!(budget.copies.left() >= bytes / 2);
    }
}
