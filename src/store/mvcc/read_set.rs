//! What a transaction has read, and whether it still holds.

use std::collections::BTreeSet;
use std::ops::Bound;

use fixedbitset::FixedBitSet;
use parking_lot::Mutex;

use super::old_versions::{OldVersions, is_empty};
use super::read_keys::ReadKeys;
use crate::Result;
use crate::pool::snapshots::Snapshot;

/// A range of keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range of keys that others have.
pub type Limits<'b> = (Bound<&'b [u8]>, Bound<&'b [u8]>);

/// What a transaction has read, which must not have changed when it is committed.
#[derive(Debug)]
pub struct ReadSet {
    /// The last commit that was seen.
    pub commit_seq: u64,
    pub keys: ReadKeys,
    pub ranges: Vec<KeyRange>,
    /// The partitions that were read.
    partitions: FixedBitSet,
    /// Keeps the old versions by which changes since then are noticed.
    snapshot: Mutex<Option<Snapshot>>,
}

impl ReadSet {
    /// Nothing yet, as of a snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            commit_seq: snapshot.commit_seq,
            keys: ReadKeys::default(),
            ranges: Vec::new(),
            partitions: FixedBitSet::new(),
            snapshot: Mutex::new(Some(snapshot)),
        }
    }

    /// Notes that a partition was read.
    pub fn note_partition(&mut self, number: usize) {
        self.partitions.grow_and_insert(number);
    }

    /// The partitions that were read.
    pub fn partitions(&self) -> impl Iterator<Item = usize> {
        self.partitions.ones()
    }

    /// Another snapshot of the moment that is read.
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = self.snapshot.lock();
        let snapshot = snapshot.as_ref().map(Snapshot::again);
        snapshot.expect("nothing is read after a commit")
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
    ///
    /// # Errors
    /// Those of [`ReadKeys::have_changed`].
    pub fn hold(&self, old_versions: &OldVersions, changed: &BTreeSet<&[u8]>) -> Result<bool> {
        let has_changes = |(start, end): &KeyRange| {
            let limits = (
                start.as_ref().map(Vec::as_slice),
                end.as_ref().map(Vec::as_slice),
            );
            let is_within = || changed.range::<[u8], _>(limits).next().is_some();
            old_versions.range(limits, self.commit_seq).next().is_some()
                || (!is_empty(&limits) && is_within())
        };
        let commit_seq = self.commit_seq;
        Ok(!self.ranges.iter().any(has_changes)
            && !(self.keys).have_changed(old_versions, commit_seq, changed)?)
    }
}
