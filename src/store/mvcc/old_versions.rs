//! Old versions of overwritten keys, kept while a live snapshot can read them (MVCC).
//!
//! Every group of changes is one *commit sequence number*. A snapshot is the number of the commit that it sees. Only
//! what a live snapshot can see is kept: of a key one value for each snapshot at most, and nothing
//! while there is no snapshot. With a memory budget, values that have no room there are in a
//! [file](super::spill_file).

use std::collections::BTreeMap;
use std::ops::Bound;

use xxhash_rust::xxh3::xxh3_64;

use super::spill_file::{SPILLED_VALUE_BYTES_MIN, SpilledValue};
use crate::pool::hash_filter::HashFilter;
use crate::{Error, Result};

/// A key's value; `None` if it had none.
pub type Value = Option<Vec<u8>>;

/// What a key had before a change, or why that cannot be read.
pub type Before = std::result::Result<Value, Box<Error>>;

/// From how many versions on those that nobody sees any more are looked for.
const PRUNE_FROM: usize = 4096;

/// From how many bytes on that is done of fewer versions.
const PRUNE_FROM_BYTES: u64 = 16 << 20;

/// Bytes of memory that a version takes beside key and value, with what the allocator and the tree leave unused, and with its
/// share of the filter: the most, which it is where keys come in order.
const VERSION_BYTES: u64 = 154;

/// What a key had before a change, wherever that is now.
#[derive(Debug, Clone)]
pub enum OldVersion {
    /// In memory.
    Kept(Before),
    /// In a file.
    Spilled(SpilledValue),
}

impl OldVersion {
    /// Bytes of the value; `None` if the key had none, or if it cannot be read.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Kept(before) => Some(before.as_ref().ok()?.as_ref()?.len()),
            Self::Spilled(value) => Some(value.len()),
        }
    }

    /// What the key had.
    ///
    /// # Errors
    /// Why that cannot be read.
    pub fn into_value(self) -> Result<Value> {
        match self {
            Self::Kept(before) => before.map_err(|error| *error),
            Self::Spilled(value) => value.read().map(Some),
        }
    }

    /// As [`into_value`](Self::into_value), with an empty value in place of each.
    ///
    /// # Errors
    /// As there, but for those of the file.
    pub fn into_empty_value(self) -> Result<Value> {
        match self {
            Self::Kept(before) => Ok(before.map_err(|error| *error)?.map(|_| Vec::new())),
            Self::Spilled(_) => Ok(Some(Vec::new())),
        }
    }

    /// Whether the key had a value.
    ///
    /// # Errors
    /// As [`into_empty_value`](Self::into_empty_value).
    pub fn has_value(&self) -> Result<bool> {
        match self {
            Self::Kept(Ok(value)) => Ok(value.is_some()),
            Self::Kept(Err(error)) => Err((**error).clone()),
            Self::Spilled(_) => Ok(true),
        }
    }

    /// The value, if a file takes it out of memory.
    pub fn to_spill(&self) -> Option<&[u8]> {
        match self {
            Self::Kept(Ok(Some(value))) if value.len() >= SPILLED_VALUE_BYTES_MIN => Some(value),
            Self::Kept(_) | Self::Spilled(_) => None,
        }
    }
}

/// Bytes of versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionBytes {
    /// In memory, with keys.
    pub in_memory: u64,
    /// In files.
    pub spilled: u64,
}

impl VersionBytes {
    /// Counts a version of `key`.
    pub fn add(&mut self, key: &[u8], version: &OldVersion) {
        let value = version.len().unwrap_or(0) as u64;
        self.in_memory += VERSION_BYTES + key.len() as u64;
        match version {
            OldVersion::Kept(_) => self.in_memory += value,
            OldVersion::Spilled(_) => self.spilled += value,
        }
    }

    fn sum(self) -> u64 {
        self.in_memory + self.spilled
    }
}

/// Of a key, by ascending commit sequence number: when it was changed, and what it had before. Most keys have
/// one, for which no memory is allocated.
#[derive(Debug)]
enum Changes {
    One((u64, OldVersion)),
    More(Vec<(u64, OldVersion)>),
}

impl Changes {
    fn as_slice(&self) -> &[(u64, OldVersion)] {
        match self {
            Self::One(change) => std::slice::from_ref(change),
            Self::More(changes) => changes,
        }
    }

    fn into_vec(self) -> Vec<(u64, OldVersion)> {
        match self {
            Self::One(change) => vec![change],
            Self::More(changes) => changes,
        }
    }

    /// Takes them out.
    fn take(&mut self) -> Vec<(u64, OldVersion)> {
        std::mem::replace(self, Self::More(Vec::new())).into_vec()
    }

    fn push(&mut self, change: (u64, OldVersion)) {
        let mut changes = self.take();
        changes.push(change);
        *self = Self::More(changes);
    }

    /// What the key had in `snapshot`, if it was changed since.
    fn seen(&self, snapshot: u64) -> Option<&OldVersion> {
        let changes = self.as_slice();
        let nth = changes.partition_point(|(commit_seq, _)| *commit_seq <= snapshot);
        changes.get(nth).map(|(_, version)| version)
    }

    /// Moves what no live snapshot sees to `unseen`.
    fn take_unseen(&mut self, live: &BTreeMap<u64, usize>, unseen: &mut Vec<OldVersion>) {
        if self.as_slice().iter().all(is_seen_in(live)) {
            return;
        }
        let (seen, others): (Vec<_>, Vec<_>) = self.take().into_iter().partition(is_seen_in(live));
        *self = Self::More(seen);
        unseen.extend(others.into_iter().map(|(_, version)| version));
    }
}

/// Whether a live snapshot sees a version, asked for each of a key in their order.
fn is_seen_in(live: &BTreeMap<u64, usize>) -> impl FnMut(&(u64, OldVersion)) -> bool {
    let mut from = 0;
    move |(commit_seq, _)| {
        let is_seen = live.range(from..*commit_seq).next().is_some();
        from = *commit_seq;
        is_seen
    }
}

/// Values of keys before the commits that changed them.
#[derive(Debug, Default)]
pub struct OldVersions {
    changes: BTreeMap<Box<[u8]>, Changes>,
    /// Of their keys: most keys that a snapshot reads were not changed.
    filter: HashFilter,
    versions: usize,
    bytes: VersionBytes,
    prune_at: usize,
    prune_at_bytes: u64,
}

impl OldVersions {
    /// Whether what `key` has now must be kept when it is changed.
    pub fn is_needed(&self, key: &[u8], newest_snapshot: u64) -> bool {
        self.changes_of(key)
            .and_then(|changes| changes.as_slice().last())
            .is_none_or(|(commit_seq, _)| *commit_seq <= newest_snapshot)
    }

    /// Keeps what `key` had before it was changed by the commit `commit_seq`.
    pub fn keep(&mut self, key: &[u8], commit_seq: u64, version: OldVersion) {
        self.versions += 1;
        self.bytes.add(key, &version);
        match self.changes.get_mut(key) {
            Some(changes) => changes.push((commit_seq, version)),
            None => {
                let changes = Changes::One((commit_seq, version));
                self.changes.insert(key.into(), changes);
                self.filter.insert(xxh3_64(key));
            }
        }
    }

    /// What `key` had in `snapshot`, if it was changed since.
    pub fn value(&self, key: &[u8], snapshot: u64) -> Option<&OldVersion> {
        self.changes_of(key)?.seen(snapshot)
    }

    fn changes_of(&self, key: &[u8]) -> Option<&Changes> {
        match self.filter.may_have(xxh3_64(key)) {
            true => self.changes.get(key),
            false => None,
        }
    }

    /// The keys of a range that were changed since `snapshot`, in order, with what they had then.
    pub fn range<'h>(
        &'h self,
        range: (Bound<&'h [u8]>, Bound<&'h [u8]>),
        snapshot: u64,
    ) -> impl DoubleEndedIterator<Item = (&'h [u8], &'h OldVersion)> {
        let range = (!is_empty(&range)).then(|| self.changes.range::<[u8], _>(range));
        range
            .into_iter()
            .flatten()
            .filter_map(move |(key, changes)| Some((&**key, changes.seen(snapshot)?)))
    }

    /// How many values are kept.
    pub fn versions(&self) -> usize {
        self.versions
    }

    /// What they take.
    pub fn bytes(&self) -> VersionBytes {
        self.bytes
    }

    /// Forgets what no snapshot sees, if it is time to look for it. Its memory and its files end with what is
    /// returned.
    pub fn prune(&mut self, live: &BTreeMap<u64, usize>) -> Pruned {
        let mut unseen = Vec::new();
        let before = self.bytes.in_memory;
        let all_versions = self.versions;
        if live.is_empty() {
            return Pruned {
                _all: std::mem::take(self),
                _some: unseen,
                versions: all_versions,
                bytes: before,
            };
        }
        if self.versions >= self.prune_at.max(PRUNE_FROM)
            || self.bytes.sum() >= self.prune_at_bytes.max(PRUNE_FROM_BYTES)
        {
            (self.versions, self.bytes) = Default::default();
            self.changes.retain(|key, changes| {
                changes.take_unseen(live, &mut unseen);
                let changes = changes.as_slice();
                self.versions += changes.len();
                for (_, version) in changes {
                    self.bytes.add(key, version);
                }
                !changes.is_empty()
            });
            let hashes = self.changes.keys().map(|key| xxh3_64(key));
            self.filter = HashFilter::of(hashes);
            self.prune_at = 2 * self.versions;
            self.prune_at_bytes = 2 * self.bytes.sum();
        }
        Pruned {
            _all: Self::default(),
            versions: unseen.len(),
            _some: unseen,
            bytes: before - self.bytes.in_memory,
        }
    }
}

/// What nobody sees any more. To let go of it may take long, and wants no lock.
#[must_use]
pub struct Pruned {
    _all: OldVersions,
    _some: Vec<OldVersion>,
    versions: usize,
    bytes: u64,
}

impl Pruned {
    /// How many there are.
    pub fn versions(&self) -> usize {
        self.versions
    }

    /// Bytes of memory that end with it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
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

#[cfg(test)]
mod tests;
