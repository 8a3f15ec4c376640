//! A record of the write-ahead log: what one group of batches leaves behind.
//!
//! ```text
//!  0       8     16      24     32        40         48
//!  | check | len | first | span | durable | checksum | entries ... | zeros to 8 |
//! ```
//!
//! - *check* is the XXH3 of the 40 bytes behind it, *checksum* that of the entries. If they are
//!   longer than 1 MiB, it is that of the XXH3s of each MiB of them, the rest included. All have as
//!   their seed the segment's salt plus the record's offset. So a record is valid only at its
//!   offset, and nothing that a user has written can look like one.
//! - *len* is the length of the entries in bytes.
//! - The batches had the sequence numbers from *first* on, *span* of them.
//! - All of the segment before *durable* was durable when the record was written. So what is
//!   broken although a valid record behind it calls it durable is damage. Without such a record a
//!   power cut may have broken it.
//! - The top bit of *span* says that the record has a part of a group that changes several partitions of a store.
//!   The key of its first entry is then the number of the group, and no key of the store. In a **prepare record**
//!   the value is empty. The **commit record**, in the log of the first partition, has in it the number of each
//!   other partition that the group changes, and the sequence number of its prepare record, in 8 bytes each.
//! - A header with *len* and *span* 0 is a **witness**. It is written after a sync where the next record
//!   goes, so that the records of the last sync have one behind them, too.
//!
//! An entry is the final value of a key: what it has, or has no more, after the group.
//!
//! ```text
//!  0         4           8          12
//!  | key len | value len | position | key ... | value ... |
//! ```
//!
//! The top bit of *key len* says that the key is deleted; *value len* is then 0. *position* plus
//! *first* is the sequence number of the request.

use bytemuck::{Pod, Zeroable};
use gphash_layout::size_class::{MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE};
use gphash_layout::width::to_usize;
use gphash_pool::prefetch;
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Numbers of segments and sequence numbers are below this: what is counted up does not overflow.
pub const SEQUENCE_LIMIT: u64 = 1 << 62;

/// How many entries before its copy an entry is asked for.
const PREFETCH_DISTANCE: usize = 8;

/// First bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RecordHeader {
    check: u64,
    /// Bytes of the entries.
    pub len: u64,
    /// First sequence number of the group.
    pub first: u64,
    /// How many sequence numbers the group has, and one bit.
    span: u64,
    /// Bytes of the segment that were durable when this was written.
    pub durable: u64,
    checksum: u64,
}

const_assert_eq!(size_of::<RecordHeader>(), RECORD_HEADER);

/// Bytes of a record's header.
pub const RECORD_HEADER: usize = 48;

/// Bytes of an entry before its key.
pub const ENTRY_HEADER: usize = 12;

/// Bytes of the entries that have a sum of their own where there are more.
pub const BLOCK: usize = 1 << 20;

const DELETED: u32 = 1 << 31;

const IS_PART: u64 = 1 << 63;

impl RecordHeader {
    /// The header of a record whose entries are known by their hash.
    pub fn new(len: u64, first: u64, span: u64, durable: u64) -> Self {
        Self {
            check: 0,
            len,
            first,
            span,
            durable,
            checksum: 0,
        }
    }

    /// As it is, of a part of a group of several partitions.
    pub fn of_part(mut self) -> Self {
        self.span |= IS_PART;
        self
    }

    /// Whether the record has a part of a group of several partitions.
    #[inline]
    pub fn is_part(&self) -> bool {
        self.span & IS_PART != 0
    }

    /// How many sequence numbers the group has.
    #[inline]
    pub fn span(&self) -> u64 {
        self.span & !IS_PART
    }

    /// Ties the header to its entries and its offset.
    pub fn seal(mut self, seed: u64, checksum: u64) -> Self {
        self.checksum = checksum;
        self.check = self.own_check(seed);
        self
    }

    fn own_check(&self, seed: u64) -> u64 {
        xxh3_64_with_seed(&bytemuck::bytes_of(self)[8..], seed)
    }

    /// The header at the start of `bytes`, if it is one of this offset.
    #[inline]
    pub fn read(bytes: &[u8], seed: u64) -> Option<Self> {
        let header: Self = bytemuck::pod_read_unaligned(bytes.get(..RECORD_HEADER)?);
        (header.check == header.own_check(seed)).then_some(header)
    }

    /// The header of a record that is known to be one.
    #[inline]
    pub fn known(record: &[u8]) -> Option<Self> {
        Some(bytemuck::pod_read_unaligned(record.get(..RECORD_HEADER)?))
    }

    /// The first sequence number of a record that is known to be one.
    #[inline]
    pub fn first_of(record: &[u8]) -> Option<u64> {
        Some(Self::known(record)?.first)
    }

    /// Whether `entries` are those of the record.
    pub fn holds(&self, entries: &[u8], seed: u64) -> bool {
        checksum(entries, seed) == self.checksum
    }

    /// Whether it is no record, but says that all before it is durable.
    #[inline]
    pub fn is_witness(&self) -> bool {
        self.len == 0 && self.span == 0
    }

    /// Bytes from this record to the next; `None` if no file is so long.
    #[inline]
    pub fn stride(&self) -> Option<u64> {
        let padded = self.len.checked_next_multiple_of(8)?;
        padded.checked_add(RECORD_HEADER as u64)
    }
}

/// The seed of a record's checksums.
#[inline]
pub fn seed(salt: u64, at: u64) -> u64 {
    salt.wrapping_add(at)
}

/// Makes records valid at another offset, from `at` on in a segment with this salt. All that stands
/// before them there is durable.
///
/// # Panics
/// If they are not whole.
pub fn move_to(mut records: &mut [u8], salt: u64, mut at: u64) {
    while let Some((head, rest)) = records.split_first_chunk_mut::<RECORD_HEADER>() {
        let header: RecordHeader = bytemuck::pod_read_unaligned(head);
        let padded = to_usize(header.len.next_multiple_of(8));
        let seed = seed(salt, at);
        let checksum = checksum(&rest[..to_usize(header.len)], seed);
        let moved = RecordHeader {
            durable: at,
            ..header
        };
        head.copy_from_slice(bytemuck::bytes_of(&moved.seal(seed, checksum)));
        at += (RECORD_HEADER + padded) as u64;
        records = &mut rest[padded..];
    }
}

/// Entries, of which some are asked for before each: what callers gave lies anywhere.
pub fn prefetched<'e, 'a>(entries: &'e [Entry<'a>]) -> impl Iterator<Item = &'e Entry<'a>> {
    prefetch::in_turn(entries.iter(), PREFETCH_DISTANCE, |entry| {
        prefetch::lines(entry.key);
        prefetch::lines(entry.value.unwrap_or_default());
    })
}

/// How long the entries of a record are, in bytes.
pub fn len(entries: &[Entry]) -> u64 {
    entries.iter().map(Entry::bytes).sum()
}

/// The checksum of entries.
pub fn checksum(entries: &[u8], seed: u64) -> u64 {
    let sum = |block: &[u8]| xxh3_64_with_seed(block, seed);
    match entries.len() {
        0..=BLOCK => sum(entries),
        _ => of_blocks(&entries.chunks(BLOCK).map(sum).collect::<Vec<_>>(), seed),
    }
}

/// The checksum of entries that have several blocks, of the sums of these.
pub fn of_blocks(sums: &[u64], seed: u64) -> u64 {
    xxh3_64_with_seed(bytemuck::cast_slice(sums), seed)
}

/// The final value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value; `None` if it is deleted.
    pub value: Option<&'a [u8]>,
    /// Which request of the group has brought it.
    pub position: u32,
}

impl<'a> Entry<'a> {
    /// Bytes in a record.
    #[inline]
    pub fn bytes(&self) -> u64 {
        (ENTRY_HEADER + self.key.len() + self.value.map_or(0, <[u8]>::len)) as u64
    }

    /// What stands before the key.
    ///
    /// # Panics
    /// If key or value have 4 GiB or more.
    #[inline]
    pub fn head(&self) -> [u8; ENTRY_HEADER] {
        let deleted = if self.value.is_none() { DELETED } else { 0 };
        let mut head = [0; ENTRY_HEADER];
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("requests are checked");
        head[..4].copy_from_slice(&(len(self.key) | deleted).to_le_bytes());
        let value_len = self.value.map_or(0, len);
        head[4..8].copy_from_slice(&value_len.to_le_bytes());
        head[8..].copy_from_slice(&self.position.to_le_bytes());
        head
    }

    /// Its parts, one behind the other.
    fn parts<'p>(&'p self, head: &'p [u8; ENTRY_HEADER]) -> [&'p [u8]; 3] {
        [head, self.key, self.value.unwrap_or_default()]
    }

    /// Puts the entry behind `bytes`, without its first `skipped` bytes, until those are `most`.
    ///
    /// # Panics
    /// If `bytes` are more than `most`.
    pub fn put(&self, bytes: &mut Vec<u8>, skipped: usize, most: usize) {
        let mut skipped = skipped;
        for part in self.parts(&self.head()) {
            let from = skipped.min(part.len());
            skipped -= from;
            let upto = part.len().min(from.saturating_add(most - bytes.len()));
            bytes.extend_from_slice(&part[from..upto]);
        }
    }

    /// Puts entries into `bytes`, which have just the room for them.
    ///
    /// # Panics
    /// If they have less.
    pub fn put_all(entries: &[Self], mut bytes: &mut [u8]) {
        for entry in prefetched(entries) {
            for part in entry.parts(&entry.head()) {
                let (target, rest) = bytes.split_at_mut(part.len());
                target.copy_from_slice(part);
                bytes = rest;
            }
        }
    }

    /// Takes the first entry off `bytes`; `None` if it cannot be one.
    #[inline]
    pub fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(ENTRY_HEADER)?;
        let word = |at| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (key_word, value_len) = (word(0), word(4));
        let key_len = key_word & !DELETED;
        let deleted = key_word & DELETED != 0;
        let possible = u64::from(key_len) <= MAX_VARIABLE_KEY
            && u64::from(value_len) <= MAX_VARIABLE_VALUE
            && !(deleted && value_len != 0);
        if !possible {
            return None;
        }
        let (key, rest) = rest.split_at_checked(key_len as usize)?;
        let (value, rest) = rest.split_at_checked(value_len as usize)?;
        *bytes = rest;
        Some(Self {
            key,
            value: (!deleted).then_some(value),
            position: word(8),
        })
    }
}

/// What the first entry says of a record that has a part of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPart {
    /// A random number, which no other group has.
    pub group: u64,
    /// Only in the commit record: the other partitions that the group changes, and the sequence numbers of their
    /// prepare records.
    pub participants: Vec<(u64, u64)>,
}

impl GroupPart {
    /// Key and value of the entry.
    pub fn to_entry(&self) -> (Vec<u8>, Vec<u8>) {
        let participants = self
            .participants
            .iter()
            .flat_map(|(number, first)| [number, first]);
        (
            self.group.to_le_bytes().to_vec(),
            participants.flat_map(|word| word.to_le_bytes()).collect(),
        )
    }

    /// Whether this partition of so many may have written it.
    pub fn is_possible(&self, number: u64, partitions: u64) -> bool {
        let others = self.participants.iter().map(|(number, _)| *number);
        let mut firsts = self.participants.iter().map(|(_, first)| *first);
        partitions > 1
            && (number == 0) != self.participants.is_empty()
            && firsts.all(|first| first < SEQUENCE_LIMIT)
            && others.clone().is_sorted_by(|a, b| a < b)
            && others
                .clone()
                .all(|number| (1..partitions).contains(&number))
    }

    /// What the first of these entries says; `None` if that cannot be.
    pub fn read(entries: &[u8]) -> Option<Self> {
        let first = Entry::take(&mut { entries })?;
        let (words, rest) = first.value?.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (pairs, odd) = words.as_chunks::<2>();
        (rest.is_empty() && odd.is_empty()).then_some(Self {
            group: u64::from_le_bytes(first.key.try_into().ok()?),
            participants: pairs
                .iter()
                .map(|&[number, first]| (number, first))
                .collect(),
        })
    }
}

/// The entries of a record; `None` in place of one that cannot be, which ends it.
pub fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Option<Entry<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let entry = Entry::take(&mut bytes);
        if entry.is_none() {
            bytes = &[];
        }
        Some(entry)
    })
}

/// What a record of the table says of its request: four times its sequence number. One more if it
/// is a tombstone, and two more if it was promoted from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryMeta(pub u64);

/// The bit of a tombstone.
pub const TOMBSTONE: u64 = 1;
const PROMOTED: u64 = 2;

impl EntryMeta {
    /// The stamp of a request that has left a value, or none.
    #[inline]
    pub fn new(sequence: u64, is_tombstone: bool) -> Self {
        let kind = if is_tombstone { TOMBSTONE } else { 0 };
        Self((sequence << 2) | kind)
    }

    /// The stamp of an item that a file has, too.
    #[inline]
    pub fn promoted(sequence: u64) -> Self {
        Self((sequence << 2) | PROMOTED)
    }

    /// Number of the request.
    #[inline]
    pub fn sequence(self) -> u64 {
        self.0 >> 2
    }

    /// Whether the key has no value.
    #[inline]
    pub fn is_tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }

    /// Whether a file has the item, unless damage has taken it.
    #[inline]
    pub fn was_promoted(self) -> bool {
        self.0 & PROMOTED != 0
    }

    /// What a key has that has this value in the table.
    #[inline]
    pub fn value(self, value: Vec<u8>) -> Option<Vec<u8>> {
        (!self.is_tombstone()).then_some(value)
    }
}

#[cfg(test)]
mod tests;
