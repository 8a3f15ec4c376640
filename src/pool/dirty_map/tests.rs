use super::*;

#[test]
fn dirty_pages_are_taken_once_and_put_back() {
    let map = DirtyMap::new(1 << 30).unwrap();
    map.mark(0, 0);
    assert!(map.take(1 << 30).is_empty());
    map.mark(PAGE - 1, 2);
    map.mark(64 * PAGE + 8, 8);
    map.mark(3 * PAGE, 2 * PAGE);
    map.mark((1 << 30) - 8, 8);
    let last = (1 << 30) / PAGE - 1;
    let pages = map.take(1 << 30);
    assert_eq!(pages, [0, 1, 3, 4, 64, last]);
    assert!(map.take(1 << 30).is_empty());
    assert_eq!(map.count(), 0);
    map.put_back(&pages);
    map.mark(3 * PAGE, 8);
    assert_eq!(map.count(), 6);
    assert_eq!(map.take(1 << 30), pages);
    for page in [0, 63, 64, 70, 127, 128, 300] {
        map.mark(page * PAGE, 1);
    }
    map.clear(63 * PAGE, 128 * PAGE);
    assert_eq!(map.count(), 3);
    assert_eq!(map.take(1 << 30), [0, 128, 300]);
}

#[test]
fn dirty_words_of_another_processor_are_merged() {
    let map = DirtyMap::new(1 << 24).unwrap();
    map.mark(64 * PAGE, 8);
    map.merge(1, &[0b10, 0, 1]);
    assert_eq!(map.take(1 << 24), [64, 65, 192]);
}

#[test]
fn dirty_map_of_a_huge_range_costs_nothing() {
    let map = DirtyMap::new(1 << 44).unwrap();
    map.mark((1 << 44) - 1, 1);
    assert_eq!(map.take(1 << 44), [(1 << 32) - 1]);
}
