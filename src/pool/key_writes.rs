//! The versions of keys that a batch makes, sorted by key and sequence number (H-Rocks §5: the
//! G-memtable). Keys are in the order of their hashes, so that words are compared. The hash has a seed
//! that nobody foresees, and another one if two keys share a hash.

use std::ops::Range;

use gphash_layout::width::{product_top, to_usize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::hash_filter::{HashFilter, hash_seed};
use super::parallel;
use super::prefetch;
use super::split::position;
use super::threads::REQUESTS_PER_THREAD_MIN;

/// By how many requests a key is asked for before it is read: those of a partition are scattered over a column.
pub const KEY_DISTANCE_REQUESTS: usize = 16;

/// Versions from which on they are sorted by buckets.
const BUCKET_SORT_MIN: usize = 64;

/// A change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyWrite {
    /// That of the key.
    pub hash: u64,
    /// Position of the request in the batch: its sequence number less the batch's first one.
    pub position: u32,
}

/// What another one than the CPU has sorted.
#[derive(Debug)]
pub struct Sorted {
    /// The versions, by hash and position.
    pub table: Vec<KeyWrite>,
    /// For each request which of them is the newest before it that has the hash of its key, or `u32::MAX`.
    pub newest: Vec<u32>,
}

/// Key writes by key, those of one key in the order of their requests.
#[derive(Debug)]
pub struct KeyWrites<'k, K: Fn(u32) -> &'k [u8]> {
    table: Vec<KeyWrite>,
    key: K,
    /// Seed of the hashes.
    seed: u64,
    /// Where the versions of each value of the hash's top bits begin, and where all end.
    starts: Vec<u32>,
    /// Most keys that are read have no version.
    filter: HashFilter,
    /// As of what is [`Sorted`].
    newest: Option<Vec<u32>>,
}

impl<'k, K: Fn(u32) -> &'k [u8] + Sync> KeyWrites<'k, K> {
    /// Sorts the changes among `len` requests, whose positions ascend; `key` gives the key at a position. The `other` one, who
    /// is given the hashes of the keys at positions, may do it in place of the CPU.
    pub fn sort(
        len: u32,
        changes: &[u32],
        key: K,
        other: impl Fn(&(dyn Fn(u32) -> u64 + Sync)) -> Option<Sorted>,
    ) -> Self {
        loop {
            let seed = hash_seed();
            let hash = |position| xxh3_64_with_seed(key(position), seed);
            let (table, starts, newest) = match other(&hash) {
                Some(Sorted { table, newest }) => {
                    let starts = starts(&table);
                    (table, starts, Some(newest))
                }
                None => {
                    let ask = |position| prefetch::lines(key(position));
                    let version = |position| KeyWrite {
                        hash: hash(position),
                        position,
                    };
                    let (table, starts) = sort_on_cpu(changes, ask, version);
                    (table, starts, None)
                }
            };
            if tells_apart(&table, &key) {
                let filter = match table.len() == len as usize {
                    true => HashFilter::any(),
                    false => HashFilter::of(table.iter().map(|version| version.hash)),
                };
                return Self {
                    table,
                    key,
                    seed,
                    starts,
                    filter,
                    newest,
                };
            }
        }
    }

    /// What `each` makes of the versions of each key, oldest first.
    pub fn map_keys<'v, T: Send>(
        &'v self,
        each: impl Fn(&'v [KeyWrite]) -> Option<T> + Sync + Send,
    ) -> Vec<T> {
        match self.table.len() {
            0..REQUESTS_PER_THREAD_MIN => {
                self.table.chunk_by(shares_key).filter_map(each).collect()
            }
            len => {
                let parts = parallel::parts(len, REQUESTS_PER_THREAD_MIN);
                let of_part = |part| {
                    let versions = self.of_keys_that_begin_in(part);
                    let runs = versions.chunk_by(shares_key);
                    runs.filter_map(&each).collect::<Vec<T>>()
                };
                parallel::map(parts, of_part)
                    .into_iter()
                    .flatten()
                    .collect()
            }
        }
    }

    /// The versions of those keys whose oldest one stands in a part of the table.
    fn of_keys_that_begin_in(&self, part: Range<usize>) -> &[KeyWrite] {
        let begin = |from: usize| match from.checked_sub(1).map(|before| &self.table[before]) {
            None => 0,
            Some(before) => {
                let behind = &self.table[from..];
                from + behind.partition_point(|version| shares_key(version, before))
            }
        };
        &self.table[begin(part.start)..begin(part.end)]
    }

    /// The versions older than the request at `position` of its key, newest first.
    pub fn before(
        &self,
        key: &[u8],
        position: impl FnOnce() -> u32,
    ) -> impl Iterator<Item = &KeyWrite> {
        self.ending_at(key, self.upto(key, position))
    }

    /// All versions of a key, newest first. No request may have the last position that there is.
    pub fn all(&self, key: &[u8]) -> impl Iterator<Item = &KeyWrite> {
        self.ending_at(key, self.upto_hash(key, || u32::MAX))
    }

    /// The versions of a key among those before `end`, of which the last one has its hash, newest first.
    fn ending_at(&self, key: &[u8], end: usize) -> impl Iterator<Item = &KeyWrite> {
        let older = &self.table[..end];
        let newest = older.last().copied();
        let newest = newest.filter(|newest| (self.key)(newest.position) == key);
        let has_key =
            move |version: &&KeyWrite| newest.is_some_and(|newest| shares_key(version, &newest));
        older.iter().rev().take_while(has_key)
    }

    /// The end of the versions among which the last one is the newest of the key's hash before `position`; 0 if there is
    /// none.
    fn upto(&self, key: &[u8], position: impl FnOnce() -> u32) -> usize {
        match &self.newest {
            Some(newest) => match newest[position() as usize] {
                u32::MAX => 0,
                newest => newest as usize + 1,
            },
            None => self.upto_hash(key, position),
        }
    }

    /// As [`upto`](Self::upto), by the hash of the key.
    fn upto_hash(&self, key: &[u8], position: impl FnOnce() -> u32) -> usize {
        let hash = xxh3_64_with_seed(key, self.seed);
        if !self.filter.may_have(hash) {
            return 0;
        }
        let position = position();
        let bits = top_bits(hash, self.starts.len());
        let (start, end) = (self.starts[bits] as usize, self.starts[bits + 1] as usize);
        let near = &self.table[start..end];
        let is_older = |version: &KeyWrite| (version.hash, version.position) < (hash, position);
        let older = near.partition_point(is_older);
        match near[..older].last() {
            Some(newest) if newest.hash == hash => start + older,
            _ => 0,
        }
    }
}

/// Whether two versions are of one key.
fn shares_key(a: &KeyWrite, b: &KeyWrite) -> bool {
    a.hash == b.hash
}

/// The versions that changes make, by hash and position, and their [starts](KeyWrites). `ask` asks for the key of one.
fn sort_on_cpu(
    changes: &[u32],
    ask: impl Fn(u32) + Copy + Sync,
    version: impl Fn(u32) -> KeyWrite + Sync,
) -> (Vec<KeyWrite>, Vec<u32>) {
    let versions = |changes: &[u32]| -> Vec<KeyWrite> {
        let changes = changes.iter().copied();
        let asked = prefetch::in_turn(changes, KEY_DISTANCE_REQUESTS, ask);
        asked.map(&version).collect()
    };
    if changes.len() < REQUESTS_PER_THREAD_MIN || parallel::threads() == 1 {
        return sort_in_buckets(versions(changes));
    }
    let parts = parallel::parts(changes.len(), REQUESTS_PER_THREAD_MIN);
    let of_part = |part: Range<usize>| versions(&changes[part]);
    let mut table: Vec<KeyWrite> = parallel::map(parts, of_part).concat();
    parallel::sort_unstable_by_key(&mut table, REQUESTS_PER_THREAD_MIN, |version| *version);
    let starts = starts(&table);
    (table, starts)
}

/// Sorts versions on the caller's thread: by the top bits of the hashes first, of which most values have few versions.
fn sort_in_buckets(mut table: Vec<KeyWrite>) -> (Vec<KeyWrite>, Vec<u32>) {
    if table.len() < BUCKET_SORT_MIN {
        table.sort_unstable();
        let starts = starts(&table);
        return (table, starts);
    }
    let versions = table.clone();
    let buckets = versions.len().next_power_of_two();
    let bucket = |version: &KeyWrite| top_bits(version.hash, buckets + 1);
    // Each is one further back than in the end: what is put there moves it.
    let mut starts = vec![0; buckets + 2];
    versions
        .iter()
        .for_each(|version| starts[bucket(version) + 2] += 1);
    let mut end = 0;
    for start in &mut starts {
        end += *start;
        *start = end;
    }
    for version in versions {
        let next = &mut starts[bucket(&version) + 1];
        table[*next as usize] = version;
        *next += 1;
    }
    starts.pop();
    for bounds in starts.windows(2) {
        let bucket = bounds[0] as usize..bounds[1] as usize;
        if bucket.len() > 1 {
            table[bucket].sort_unstable();
        }
    }
    (table, starts)
}

/// Whether versions of one hash are all of one key.
fn tells_apart<'k>(table: &[KeyWrite], key: &(impl Fn(u32) -> &'k [u8] + Sync)) -> bool {
    let is_apart = |nth: usize| {
        let (this, next) = (&table[nth], &table[nth + 1]);
        !shares_key(this, next) || key(this.position) == key(next.position)
    };
    let pairs = table.len().saturating_sub(1);
    parallel::all(pairs, REQUESTS_PER_THREAD_MIN, is_apart)
}

/// See [`KeyWrites`]: as many values of the top bits as there are versions, more or less.
fn starts(table: &[KeyWrite]) -> Vec<u32> {
    let mut starts = vec![0; table.len().next_power_of_two() + 1];
    let mut next = 1;
    for (nth, version) in (0..).zip(table) {
        let bits = top_bits(version.hash, starts.len());
        starts[next..=bits].fill(nth);
        next = next.max(bits + 1);
    }
    starts[next..].fill(position(table.len()));
    starts
}

/// Which of the starts a hash belongs to.
fn top_bits(hash: u64, starts: usize) -> usize {
    to_usize(product_top(hash, starts as u64 - 1))
}

#[cfg(test)]
mod tests;
