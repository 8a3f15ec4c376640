use super::*;
use crate::snapshots::Snapshots;

/// A value of one byte, or none.
type Value = Option<u8>;

impl KeptVersion for Value {
    fn value_bytes(&self) -> (u64, u64) {
        (u64::from(self.is_some()), 0)
    }
}

fn seen(old_versions: &OldVersions<Value>, snapshot: u64) -> Option<Value> {
    old_versions.value(b"key", snapshot).copied()
}

fn key(nth: u64) -> [u8; 8] {
    nth.to_be_bytes()
}

#[test]
fn snapshot_sees_its_own_moment() {
    let snapshots = Snapshots::default();
    let mut old_versions = OldVersions::default();
    let old = snapshots.take_newest(|| 1);
    old_versions.keep(b"key", 2, Some(1));
    assert!(!old_versions.is_needed(b"key", 1));
    assert!(old_versions.is_needed(b"other", 1));
    let new = snapshots.take_newest(|| 4);
    assert!(old_versions.is_needed(b"key", 4));
    old_versions.keep(b"key", 5, Some(4));
    assert_eq!(seen(&old_versions, old.commit_seq), Some(Some(1)));
    assert_eq!(seen(&old_versions, new.commit_seq), Some(Some(4)));
    assert_eq!(seen(&old_versions, 5), None);
    // Changed between the two: only the older one sees what was before.
    for nth in 0..5000 {
        old_versions.keep(&key(nth), 3, None);
    }
    drop(old);
    drop(old_versions.sweep(&snapshots.live(), usize::MAX));
    assert_eq!(seen(&old_versions, 4), Some(Some(4)));
    assert_eq!(old_versions.versions(), 1);
    drop(new);
    drop(old_versions.sweep(&snapshots.live(), 0));
    assert_eq!(old_versions.versions(), 0);
}

/// A sweep looks at so many keys, and the next one goes on behind them.
#[test]
fn sweeps_go_around() {
    let snapshots = Snapshots::default();
    let (old, new) = (snapshots.take_newest(|| 1), snapshots.take_newest(|| 3));
    let mut old_versions = OldVersions::default();
    for nth in 0..10_000 {
        // Every other one is seen by the newer snapshot alone.
        old_versions.keep(&key(nth), 2 + 2 * (nth % 2), Some(7));
    }
    let all = old_versions.bytes();
    drop(old_versions.sweep(&snapshots.live(), 1000));
    assert!((old_versions.versions(), old_versions.bytes()) == (10_000, all));
    drop(old);
    for round in 1..10 {
        let unseen = old_versions.sweep(&snapshots.live(), 1000);
        assert_eq!(unseen.versions(), 500);
        assert_eq!(old_versions.versions(), 10_000 - 500 * round);
        assert_eq!(old_versions.is_swept(), round == 9);
    }
    // The first ones were looked at before.
    assert_eq!(old_versions.sweep(&snapshots.live(), 1000).versions(), 500);
    assert_eq!(old_versions.bytes().in_memory, all.in_memory / 2);
    // The next round makes the filter anew, also of what comes meanwhile.
    while !old_versions.is_swept() {
        drop(old_versions.sweep(&snapshots.live(), 1000));
    }
    assert_eq!(old_versions.gone_keys, 5000);
    for round in 0..4 {
        drop(old_versions.sweep(&snapshots.live(), 1000));
        assert!(old_versions.next_filter.is_some());
        old_versions.keep(&key(20_000 * round), 4, Some(8));
        for nth in 0..10_000 {
            let expected = (nth % 2 == 1).then_some(Some(7));
            if nth > 0 {
                assert_eq!(old_versions.value(&key(nth), 3).copied(), expected);
            }
        }
    }
    drop(old_versions.sweep(&snapshots.live(), 2000));
    assert!(old_versions.next_filter.is_none() && old_versions.gone_keys == 0);
    for nth in 0..10_000 {
        let kept = (0..4).any(|round| nth == 20_000 * round);
        let expected = (nth % 2 == 1).then_some(Some(7));
        let expected = expected.or_else(|| kept.then_some(Some(8)));
        assert_eq!(old_versions.value(&key(nth), 3).copied(), expected);
    }
    drop(new);
    let unseen = old_versions.sweep(&snapshots.live(), 1);
    assert_eq!(unseen.versions(), 5004);
    assert_eq!(old_versions.bytes(), VersionBytes::default());
}

#[test]
fn ranges_without_keys_are_empty() {
    let mut old_versions = OldVersions::default();
    old_versions.keep(b"b", 1, None::<u8>);
    let count = |start, end| old_versions.range((start, end), 0).count();
    assert_eq!(count(Bound::Unbounded, Bound::Unbounded), 1);
    assert_eq!(count(Bound::Included(b"b"), Bound::Included(b"b")), 1);
    assert_eq!(count(Bound::Excluded(b"b"), Bound::Included(b"b")), 0);
    assert_eq!(count(Bound::Excluded(b"b"), Bound::Excluded(b"b")), 0);
    assert_eq!(count(Bound::Included(b"c"), Bound::Excluded(b"a")), 0);
}
