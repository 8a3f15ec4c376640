//! Old versions of overwritten keys, kept while a live snapshot can read them (MVCC).
//!
//! Every group of changes is one *commit sequence number*. A snapshot is the number of the commit that it sees. Only
//! what a live snapshot can see is kept: of a key one value for each snapshot at most, and nothing
//! while there is no snapshot. What snapshots have left is swept up a few keys at a time.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;

use xxhash_rust::xxh3::xxh3_64;

use crate::hash_filter::HashFilter;

/// Bytes of memory that a version takes beside key and value, with what the allocator and the tree leave unused, and with its
/// share of the filter: the most, which it is where keys come in order.
const VERSION_BYTES: u64 = 154;

/// A round of sweeps makes the filter anew if it has so many keys that are gone, and more of them than of others.
const GONE_KEYS_MIN: usize = 4096;

/// What a key had before a change, wherever that is now.
pub trait KeptVersion {
    /// Bytes of the value: in memory, and in a file.
    fn value_bytes(&self) -> (u64, u64);
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
    fn of(key: &[u8], version: &impl KeptVersion) -> Self {
        let (in_memory, spilled) = version.value_bytes();
        Self {
            in_memory: VERSION_BYTES + key.len() as u64 + in_memory,
            spilled,
        }
    }

    /// Counts a version of `key`.
    pub fn add(&mut self, key: &[u8], version: &impl KeptVersion) {
        let of = Self::of(key, version);
        self.in_memory += of.in_memory;
        self.spilled += of.spilled;
    }

    fn subtract(&mut self, key: &[u8], version: &impl KeptVersion) {
        let of = Self::of(key, version);
        self.in_memory -= of.in_memory;
        self.spilled -= of.spilled;
    }
}

/// Of a key, by ascending commit sequence number: when it was changed, and what it had before. Most keys have
/// one, for which no memory is allocated.
#[derive(Debug)]
enum Changes<V> {
    One((u64, V)),
    More(Vec<(u64, V)>),
}

impl<V> Changes<V> {
    fn as_slice(&self) -> &[(u64, V)] {
        match self {
            Self::One(change) => std::slice::from_ref(change),
            Self::More(changes) => changes,
        }
    }

    fn into_vec(self) -> Vec<(u64, V)> {
        match self {
            Self::One(change) => vec![change],
            Self::More(changes) => changes,
        }
    }

    /// Takes them out.
    fn take(&mut self) -> Vec<(u64, V)> {
        mem::replace(self, Self::More(Vec::new())).into_vec()
    }

    fn push(&mut self, change: (u64, V)) {
        let mut changes = self.take();
        changes.push(change);
        *self = Self::More(changes);
    }

    /// What the key had in `snapshot`, if it was changed since.
    fn seen(&self, snapshot: u64) -> Option<&V> {
        let changes = self.as_slice();
        let nth = changes.partition_point(|(commit_seq, _)| *commit_seq <= snapshot);
        changes.get(nth).map(|(_, version)| version)
    }

    /// Moves what no live snapshot sees to `unseen`.
    fn take_unseen(&mut self, live: &BTreeMap<u64, usize>, unseen: &mut Vec<V>) {
        if self.as_slice().iter().all(is_seen_in(live)) {
            return;
        }
        let (seen, others): (Vec<_>, Vec<_>) = self.take().into_iter().partition(is_seen_in(live));
        *self = Self::More(seen);
        unseen.extend(others.into_iter().map(|(_, version)| version));
    }
}

/// Whether a live snapshot sees a version, asked for each of a key in their order.
fn is_seen_in<V>(live: &BTreeMap<u64, usize>) -> impl FnMut(&(u64, V)) -> bool {
    let mut from = 0;
    move |(commit_seq, _)| {
        let is_seen = live.range(from..*commit_seq).next().is_some();
        from = *commit_seq;
        is_seen
    }
}

/// Values of keys before the commits that changed them.
#[derive(Debug)]
pub struct OldVersions<V> {
    changes: BTreeMap<Box<[u8]>, Changes<V>>,
    /// Of their keys: most keys that a snapshot reads were not changed.
    filter: HashFilter,
    /// Keys that the filter has, and that are gone.
    gone_keys: usize,
    /// The one that takes its place once the round has ended.
    next_filter: Option<HashFilter>,
    versions: usize,
    bytes: VersionBytes,
    /// The key that was swept last, unless a round has ended with it.
    swept: Option<Box<[u8]>>,
}

impl<V> Default for OldVersions<V> {
    fn default() -> Self {
        Self {
            changes: BTreeMap::new(),
            filter: HashFilter::default(),
            gone_keys: 0,
            next_filter: None,
            versions: 0,
            bytes: VersionBytes::default(),
            swept: None,
        }
    }
}

impl<V: KeptVersion> OldVersions<V> {
    /// Whether what `key` has now must be kept when it is changed.
    pub fn is_needed(&self, key: &[u8], newest_snapshot: u64) -> bool {
        self.changes_of(key)
            .and_then(|changes| changes.as_slice().last())
            .is_none_or(|(commit_seq, _)| *commit_seq <= newest_snapshot)
    }

    /// Keeps what `key` had before it was changed by the commit `commit_seq`.
    pub fn keep(&mut self, key: &[u8], commit_seq: u64, version: V) {
        self.versions += 1;
        self.bytes.add(key, &version);
        match self.changes.get_mut(key) {
            Some(changes) => changes.push((commit_seq, version)),
            None => {
                let changes = Changes::One((commit_seq, version));
                self.changes.insert(key.into(), changes);
                let hash = xxh3_64(key);
                self.filter.insert(hash);
                if let Some(filter) = &mut self.next_filter {
                    filter.insert(hash);
                }
            }
        }
    }

    /// What `key` had in `snapshot`, if it was changed since.
    pub fn value(&self, key: &[u8], snapshot: u64) -> Option<&V> {
        self.changes_of(key)?.seen(snapshot)
    }

    fn changes_of(&self, key: &[u8]) -> Option<&Changes<V>> {
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
    ) -> impl DoubleEndedIterator<Item = (&'h [u8], &'h V)> {
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

    /// Forgets what no snapshot sees of the next so many keys, from where the last sweep has ended on; all, if there is no
    /// snapshot. Its memory and its files end with what is returned.
    pub fn sweep(&mut self, live: &BTreeMap<u64, usize>, keys: usize) -> Unseen<V> {
        if live.is_empty() {
            let all = mem::take(self);
            return Unseen {
                versions: all.versions,
                bytes: all.bytes.in_memory,
                _all: all,
                _some: Vec::new(),
            };
        }
        assert!(keys > 0, "else a round would end where it began");
        let before = self.bytes.in_memory;
        let (mut unseen, mut gone) = (Vec::new(), Vec::new());
        let from = self.swept.take();
        if from.is_none() && self.gone_keys >= self.changes.len().max(GONE_KEYS_MIN) {
            self.next_filter = Some(HashFilter::with_room(self.changes.len()));
        }
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.changes.range_mut::<[u8], _>((from, Bound::Unbounded));
        let mut last = None;
        for (key, changes) in rest.by_ref().take(keys) {
            let first = unseen.len();
            changes.take_unseen(live, &mut unseen);
            for version in &unseen[first..] {
                self.bytes.subtract(key, version);
            }
            if changes.as_slice().is_empty() {
                gone.push(key.clone());
            } else if let Some(filter) = &mut self.next_filter {
                filter.insert(xxh3_64(key));
            }
            last = Some(key);
        }
        if rest.next().is_some() {
            self.swept = last.cloned();
        }
        for key in &gone {
            self.changes.remove(key);
        }
        self.versions -= unseen.len();
        self.gone_keys += gone.len();
        let mut all = Self::default();
        if self.is_swept()
            && let Some(filter) = self.next_filter.take()
        {
            all.filter = mem::replace(&mut self.filter, filter);
            self.gone_keys = 0;
        }
        Unseen {
            _all: all,
            versions: unseen.len(),
            _some: unseen,
            bytes: before - self.bytes.in_memory,
        }
    }

    /// Whether the last sweep has ended a round.
    pub fn is_swept(&self) -> bool {
        self.swept.is_none()
    }
}

/// What nobody sees any more. To let go of it may take long, and wants no lock.
#[must_use]
#[derive(Debug)]
pub struct Unseen<V> {
    _all: OldVersions<V>,
    _some: Vec<V>,
    versions: usize,
    bytes: u64,
}

impl<V> Unseen<V> {
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
