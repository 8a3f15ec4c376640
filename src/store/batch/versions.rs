//! The versions of keys that a batch makes, sorted by key and sequence number (H-Rocks §5: the
//! G-memtable). Keys are in the order of their hashes, so that mostly words are compared; equal
//! hashes are told apart by their keys.

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// From how many versions on several threads sort them.
const PARALLEL: usize = 1 << 15;

/// A change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    hash: u64,
    /// Position of the request in the batch: its sequence number less the batch's first one.
    pub position: u32,
}

/// Versions by key, those of one key in the order of their requests.
#[derive(Debug)]
pub struct Versions<'k, K: Fn(u32) -> &'k [u8]> {
    table: Vec<Version>,
    key: K,
    /// A bit for some bits of the hash: whether there can be a key with it.
    filter: Vec<u64>,
}

impl<'k, K: Fn(u32) -> &'k [u8] + Sync> Versions<'k, K> {
    /// Sorts the changes at `positions`; `key` gives the key at a position.
    pub fn sort(positions: impl Iterator<Item = u32>, key: K) -> Self {
        let version = |position| Version {
            hash: xxh3_64(key(position)),
            position,
        };
        let mut table: Vec<Version> = positions.map(version).collect();
        let order = |a: &Version, b: &Version| {
            a.hash
                .cmp(&b.hash)
                .then_with(|| key(a.position).cmp(key(b.position)))
                .then(a.position.cmp(&b.position))
        };
        match table.len() {
            PARALLEL.. => table.par_sort_unstable_by(order),
            _ => table.sort_unstable_by(order),
        }
        let mut filter = vec![0; (table.len() / 4).next_power_of_two()];
        for version in &table {
            let (word, bit) = place(version.hash, filter.len());
            filter[word] |= bit;
        }
        Self { table, key, filter }
    }

    /// The versions of each key, oldest first.
    pub fn keys(&self) -> impl Iterator<Item = &[Version]> {
        self.table
            .chunk_by(|a, b| a.hash == b.hash && (self.key)(a.position) == (self.key)(b.position))
    }

    /// The versions of a key that are older than the request at `position`, oldest first.
    pub fn before(&self, key: &[u8], position: u32) -> &[Version] {
        let hash = xxh3_64(key);
        let (word, bit) = place(hash, self.filter.len());
        if self.filter[word] & bit == 0 {
            return &[];
        }
        let start = self.table.partition_point(|version| {
            version.hash < hash || version.hash == hash && (self.key)(version.position) < key
        });
        let rest = &self.table[start..];
        let len = rest
            .iter()
            .take_while(|version| {
                version.hash == hash
                    && version.position < position
                    && (self.key)(version.position) == key
            })
            .count();
        &rest[..len]
    }
}

/// Word and bit of a hash in a filter of so many words, a power of two.
fn place(hash: u64, words: usize) -> (usize, u64) {
    let word = (hash >> 6) as usize & (words - 1);
    (word, 1 << (hash & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_key_are_found_in_order() {
        let keys: [&[u8]; 7] = [b"b", b"a", b"", b"b", b"a", b"b", b"c"];
        let versions = Versions::sort([0, 1, 2, 3, 5].into_iter(), |position| {
            keys[position as usize]
        });
        let before = |key: &[u8], position| {
            let found = versions.before(key, position).iter();
            found.map(|version| version.position).collect::<Vec<_>>()
        };
        assert_eq!(before(b"b", 7), [0, 3, 5]);
        assert_eq!(before(b"b", 5), [0, 3]);
        assert_eq!(before(b"a", 4), [1]);
        assert_eq!(before(b"a", 1), []);
        assert_eq!(before(b"", 6), [2]);
        assert_eq!(before(b"c", 7), []);
        let mut runs: Vec<usize> = versions.keys().map(<[Version]>::len).collect();
        runs.sort_unstable();
        assert_eq!(runs, [1, 1, 3]);
    }
}
