use super::*;
use crate::pool::snapshots::Snapshots;

fn value(byte: u8) -> OldVersion {
    OldVersion::Kept(Ok(Some(vec![byte])))
}

fn none() -> OldVersion {
    OldVersion::Kept(Ok(None))
}

fn seen(old_versions: &OldVersions, snapshot: u64) -> Option<Value> {
    old_versions
        .value(b"key", snapshot)
        .map(|version| version.clone().into_value().unwrap())
}

#[test]
fn snapshot_sees_its_own_moment() {
    let snapshots = Snapshots::default();
    let mut old_versions = OldVersions::default();
    let old = snapshots.take_newest(|| 1);
    old_versions.keep(b"key", 2, value(1));
    assert!(!old_versions.is_needed(b"key", 1));
    assert!(old_versions.is_needed(b"other", 1));
    let new = snapshots.take_newest(|| 4);
    assert!(old_versions.is_needed(b"key", 4));
    old_versions.keep(b"key", 5, value(4));
    assert_eq!(seen(&old_versions, old.commit_seq), Some(Some(vec![1])));
    assert_eq!(seen(&old_versions, new.commit_seq), Some(Some(vec![4])));
    assert_eq!(seen(&old_versions, 5), None);
    // Changed between the two: only the older one sees what was before.
    for nth in 0..PRUNE_FROM as u64 {
        old_versions.keep(&nth.to_le_bytes(), 3, none());
    }
    drop(old);
    drop(old_versions.prune(&snapshots.live()));
    assert_eq!(seen(&old_versions, 4), Some(Some(vec![4])));
    assert_eq!(old_versions.versions(), 1);
    drop(new);
    drop(old_versions.prune(&snapshots.live()));
    assert_eq!(old_versions.versions(), 0);
}

#[test]
fn ranges_without_keys_are_empty() {
    let mut old_versions = OldVersions::default();
    old_versions.keep(b"b", 1, none());
    let count = |start, end| old_versions.range((start, end), 0).count();
    assert_eq!(count(Bound::Unbounded, Bound::Unbounded), 1);
    assert_eq!(count(Bound::Included(b"b"), Bound::Included(b"b")), 1);
    assert_eq!(count(Bound::Excluded(b"b"), Bound::Included(b"b")), 0);
    assert_eq!(count(Bound::Excluded(b"b"), Bound::Excluded(b"b")), 0);
    assert_eq!(count(Bound::Included(b"c"), Bound::Excluded(b"a")), 0);
}
