//! What a transaction has read, and whether it still holds.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use parking_lot::Mutex;

use super::old_versions::{OldVersions, Snapshot, is_empty};

/// A range of keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What a transaction has read, which must not have changed when it is committed.
#[derive(Debug)]
pub struct ReadSet {
    /// The last commit that was seen.
    pub commit_seq: u64,
    pub keys: HashSet<Vec<u8>>,
    pub ranges: Vec<KeyRange>,
    /// Keeps the old versions by which changes since then are noticed.
    snapshot: Mutex<Option<Snapshot>>,
}

impl ReadSet {
    /// Nothing yet, as of a snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            commit_seq: snapshot.commit_seq,
            keys: HashSet::new(),
            ranges: Vec::new(),
            snapshot: Mutex::new(Some(snapshot)),
        }
    }

    /// Lets go of the snapshot, once it is certain that nobody asks again whether the reads hold.
    pub fn release(&self) {
        *self.snapshot.lock() = None;
    }

    /// Whether it can still be asked.
    pub fn is_live(&self) -> bool {
        self.snapshot.lock().is_some()
    }

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
