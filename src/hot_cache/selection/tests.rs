use super::*;

/// More than any count of uses here.
const SCORES: usize = 1024;

fn scores(counts: &[(usize, u32)]) -> Vec<u32> {
    let mut scores = vec![0; SCORES];
    for &(score, count) in counts {
        scores[score] = count;
    }
    scores
}

/// Buckets held if lookups change nothing meanwhile.
fn held(linked: &[u32], selection: &Selection) -> u64 {
    let above = selection.threshold as usize + 1;
    let stay: u32 = linked[above..].iter().sum();
    u64::from(stay) + selection.keep + selection.room
}

#[test]
fn selection_keeps_the_highest_scores_and_prefers_cached_ones() {
    let unlinked = scores(&[(0, 1000), (1, 50), (7, 10), (900, 3)]);
    let linked = scores(&[(0, 5), (1, 20), (7, 4)]);
    let selection = select(&unlinked, &linked, 30);
    assert_eq!(
        selection,
        Selection {
            threshold: 1,
            keep: 13,
            enter: 0,
            room: 13
        }
    );
    assert_eq!(held(&linked, &selection), 30);
    let selection = select(&unlinked, &linked, 40);
    assert_eq!(
        (selection.keep, selection.enter, selection.room),
        (20, 3, 16)
    );
    assert_eq!(held(&linked, &selection), 40);
}

#[test]
fn selection_misses_the_uses_below_its_threshold() {
    let unlinked = scores(&[(0, 1000), (1, 50), (2, 20), (10, 1)]);
    let linked = scores(&[(0, 9), (15, 4)]);
    let selection = select(&unlinked, &linked, 15);
    // 1 × 10 + 4 × 10 + 10 × 2 of 50 + 40 + 10 + 40 uses.
    assert!((missed_share(&unlinked, &linked, &selection) - 0.5).abs() < 1e-9);
    let nothing = scores(&[(0, 9)]);
    assert_eq!(
        missed_share(&nothing, &nothing, &select(&nothing, &nothing, 5)),
        1.0
    );
}

#[test]
fn selection_keeps_but_never_admits_unused_buckets() {
    let (unlinked, linked) = (scores(&[(0, 1000), (3, 4)]), scores(&[(0, 9), (3, 1)]));
    let selection = select(&unlinked, &linked, 12);
    assert_eq!(
        selection,
        Selection {
            threshold: 0,
            keep: 7,
            enter: 0,
            room: 4
        }
    );
    assert_eq!(select(&unlinked, &linked, 100).keep, 9);
}

#[test]
fn selection_without_entries_holds_nothing() {
    let unlinked = scores(&[(5, 10)]);
    let selection = select(&unlinked, &scores(&[]), 0);
    assert_eq!(
        (selection.threshold, selection.keep, selection.room),
        (5, 0, 0)
    );
}

#[test]
fn cache_size_is_bounded_by_memory_and_option() {
    assert_eq!(affordable(100, 1000, 1 << 30, u64::MAX), 100);
    assert_eq!(affordable(100, 1000, 80_000, u64::MAX), 70);
    assert_eq!(affordable(100, 1000, 1 << 30, 12_999), 12);
    assert_eq!(affordable(100, 1000, 1 << 30, 0), 0);
    assert_eq!(affordable(u64::MAX, 1, u64::MAX, u64::MAX), (1 << 31) - 2);
}
