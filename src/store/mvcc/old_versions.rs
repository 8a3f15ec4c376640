//! Old versions of overwritten keys, kept while a live snapshot can read them (MVCC).
//!
//! Every group of changes is one *commit sequence number*. A snapshot is the number of the commit that it sees. Only
//! what a live snapshot can see is kept: of a key one value for each snapshot at most, and nothing
//! while there is no snapshot.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::Error;

/// A key's value; `None` if it had none.
pub type Value = Option<Vec<u8>>;

/// What a key had before a change, or why that cannot be read.
pub type Before = Result<Value, Box<Error>>;

/// From how many versions on those that nobody sees any more are looked for.
const PRUNE_FROM: usize = 4096;

/// Values of keys before the commits that changed them.
#[derive(Debug, Default)]
pub struct OldVersions {
    /// Of each key, by ascending commit sequence number: when it was changed, and what it had before.
    changes: BTreeMap<Vec<u8>, Vec<(u64, Before)>>,
    versions: usize,
    prune_at: usize,
}

impl OldVersions {
    /// Whether what `key` has now must be kept when it is changed.
    pub fn is_needed(&self, key: &[u8], newest_snapshot: u64) -> bool {
        self.changes
            .get(key)
            .and_then(|changes| changes.last())
            .is_none_or(|(commit_seq, _)| *commit_seq <= newest_snapshot)
    }

    /// Keeps what `key` had before it was changed by the commit `commit_seq`.
    pub fn keep(&mut self, key: &[u8], commit_seq: u64, before: Before) {
        match self.changes.get_mut(key) {
            Some(changes) => changes.push((commit_seq, before)),
            None => {
                self.changes
                    .insert(key.to_vec(), vec![(commit_seq, before)]);
            }
        }
        self.versions += 1;
    }

    /// What `key` had in `snapshot`, if it was changed since.
    pub fn value(&self, key: &[u8], snapshot: u64) -> Option<&Before> {
        seen(self.changes.get(key)?, snapshot)
    }

    /// The keys of a range that were changed since `snapshot`, in order, with what they had then.
    pub fn range<'h>(
        &'h self,
        range: (Bound<&'h [u8]>, Bound<&'h [u8]>),
        snapshot: u64,
    ) -> impl DoubleEndedIterator<Item = (&'h [u8], &'h Before)> {
        let range = (!is_empty(&range)).then(|| self.changes.range::<[u8], _>(range));
        range
            .into_iter()
            .flatten()
            .filter_map(move |(key, changes)| Some((key.as_slice(), seen(changes, snapshot)?)))
    }

    /// How many values are kept.
    pub fn versions(&self) -> usize {
        self.versions
    }

    /// Forgets what no snapshot sees, if it is time to look for it.
    pub fn prune(&mut self, live: &BTreeMap<u64, usize>) {
        if live.is_empty() {
            *self = Self::default();
            return;
        }
        if self.versions < self.prune_at.max(PRUNE_FROM) {
            return;
        }
        self.changes.retain(|_, changes| {
            let mut from = 0;
            changes.retain(|(commit_seq, _)| {
                let is_seen = live.range(from..*commit_seq).next().is_some();
                from = *commit_seq;
                is_seen
            });
            !changes.is_empty()
        });
        self.versions = self.changes.values().map(Vec::len).sum();
        self.prune_at = 2 * self.versions;
    }
}

fn seen(changes: &[(u64, Before)], snapshot: u64) -> Option<&Before> {
    let nth = changes.partition_point(|(commit_seq, _)| *commit_seq <= snapshot);
    changes.get(nth).map(|(_, value)| value)
}

/// Whether no key can be in a range; the ranges of a `BTreeMap` panic then.
pub fn is_empty(range: &(Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end))
        | (Bound::Included(start), Bound::Excluded(end)) => start >= end,
    }
}

/// The live snapshots: how many there are of each commit.
#[derive(Debug, Clone, Default)]
pub struct Snapshots(Arc<Mutex<BTreeMap<u64, usize>>>);

impl Snapshots {
    /// The live ones.
    pub fn live(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.0.lock()
    }

    /// The newest one.
    pub fn newest(&self) -> Option<u64> {
        self.live().keys().next_back().copied()
    }

    fn release(&self, commit_seq: u64) {
        let mut live = self.live();
        if let Some(count) = live.get_mut(&commit_seq) {
            *count -= 1;
            if *count == 0 {
                live.remove(&commit_seq);
            }
        }
    }

    /// Takes one: no change may run beside that, unless another of the same commit is live.
    pub fn take(&self, commit_seq: u64) -> Snapshot {
        *self.live().entry(commit_seq).or_default() += 1;
        Snapshot {
            commit_seq,
            all: self.clone(),
        }
    }
}

/// A moment of the store that a reader still needs. Released when dropped.
#[derive(Debug)]
pub struct Snapshot {
    /// The last commit that it sees.
    pub commit_seq: u64,
    all: Snapshots,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.all.release(self.commit_seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(byte: u8) -> Before {
        Ok(Some(vec![byte]))
    }

    fn seen(old_versions: &OldVersions, snapshot: u64) -> Option<Value> {
        old_versions
            .value(b"key", snapshot)
            .map(|before| before.clone().unwrap())
    }

    #[test]
    fn snapshot_sees_its_own_moment() {
        let snapshots = Snapshots::default();
        let mut old_versions = OldVersions::default();
        let old = snapshots.take(1);
        old_versions.keep(b"key", 2, value(1));
        assert!(!old_versions.is_needed(b"key", 1));
        assert!(old_versions.is_needed(b"other", 1));
        let new = snapshots.take(4);
        assert!(old_versions.is_needed(b"key", 4));
        old_versions.keep(b"key", 5, value(4));
        assert_eq!(seen(&old_versions, old.commit_seq), Some(Some(vec![1])));
        assert_eq!(seen(&old_versions, new.commit_seq), Some(Some(vec![4])));
        assert_eq!(seen(&old_versions, 5), None);
        // Changed between the two: only the older one sees what was before.
        for nth in 0..PRUNE_FROM as u64 {
            old_versions.keep(&nth.to_le_bytes(), 3, Ok(None));
        }
        drop(old);
        old_versions.prune(&snapshots.live());
        assert_eq!(seen(&old_versions, 4), Some(Some(vec![4])));
        assert_eq!(old_versions.versions(), 1);
        drop(new);
        old_versions.prune(&snapshots.live());
        assert_eq!(old_versions.versions(), 0);
    }

    #[test]
    fn ranges_without_keys_are_empty() {
        let mut old_versions = OldVersions::default();
        old_versions.keep(b"b", 1, Ok(None));
        let count = |start, end| old_versions.range((start, end), 0).count();
        assert_eq!(count(Bound::Unbounded, Bound::Unbounded), 1);
        assert_eq!(count(Bound::Included(b"b"), Bound::Included(b"b")), 1);
        assert_eq!(count(Bound::Excluded(b"b"), Bound::Included(b"b")), 0);
        assert_eq!(count(Bound::Excluded(b"b"), Bound::Excluded(b"b")), 0);
        assert_eq!(count(Bound::Included(b"c"), Bound::Excluded(b"a")), 0);
    }
}
