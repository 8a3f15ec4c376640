//! What a transaction has read, and whether it still holds.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use super::old_versions::{OldVersions, is_empty};

/// A range of keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What a transaction has read, which must not have changed when it is committed.
#[derive(Debug, Default)]
pub struct ReadSet {
    /// When it was read: a live snapshot, which whoever has the read_set must release.
    pub commit_seq: u64,
    pub keys: HashSet<Vec<u8>>,
    pub ranges: Vec<KeyRange>,
}

impl ReadSet {
    /// Whether nothing of it has changed; `changed` are keys whose changes are not in the old_versions yet.
    pub fn hold(&self, old_versions: &OldVersions, changed: &BTreeSet<&[u8]>) -> bool {
        let has_changed = |key: &Vec<u8>| {
            changed.contains(key.as_slice()) || old_versions.value(key, self.commit_seq).is_some()
        };
        let has_changes = |(start, end): &KeyRange| {
            let limits = (
                start.as_ref().map(Vec::as_slice),
                end.as_ref().map(Vec::as_slice),
            );
            let is_within = || changed.range::<[u8], _>(limits).next().is_some();
            old_versions.range(limits, self.commit_seq).next().is_some()
                || (!is_empty(&limits) && is_within())
        };
        !self.keys.iter().any(has_changed) && !self.ranges.iter().any(has_changes)
    }
}
