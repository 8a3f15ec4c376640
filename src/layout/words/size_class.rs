//! Records of tables with keys and values of variable length: their size classes, the header that
//! begins them, and the count of each class.
//!
//! A record of such a table holds a [`RecordHeader`], the bytes of the key, zeros up to the next
//! multiple of 8, and the bytes of the value. Its slot in the arena is as long as its size class
//! says; the rest of that slot means nothing.
//!
//! Classes are numbered from 0 (32 bytes) on. There is one for every 8 bytes up to 256: 32, 40, 48,
//! … 248, 256. Above, there are four in every doubling: 320, 384, 448, 512, 640, and so on. So a
//! slot is less than 8 bytes, or less than a quarter, longer than the record that needs it. Most
//! records are short, so most classes are of short ones.

use bytemuck::{Pod, Zeroable};
use static_assertions::{const_assert, const_assert_eq};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use super::hash::mix;
use super::{RESERVED_BUCKETS, align_up};
use crate::width::{low_half, to_usize, u32_of};

/// Longest key of variable length, in bytes.
pub const MAX_VARIABLE_KEY: u64 = 64 << 10;

/// Longest value of variable length, in bytes.
pub const MAX_VARIABLE_VALUE: u64 = 1 << 30;

/// Bytes of a record of class 0.
pub const SMALLEST_RECORD: u64 = 32;

/// Bytes from one class to the next up to [`LAST_EVEN`].
const CLASS_STEP_BYTES: u64 = 8;

/// Bytes of the longest class of those that are [`CLASS_STEP_BYTES`] apart.
const LAST_EVEN: u64 = 256;

/// Its number.
const LAST_EVEN_CLASS: u32 = u32_of((LAST_EVEN - SMALLEST_RECORD) / CLASS_STEP_BYTES);

/// Classes in every further doubling of the size.
const CLASSES_PER_DOUBLING: u32 = 4;

/// How many classes there are; the last one takes the longest key with the longest value.
pub const SIZE_CLASSES: u32 = 118;

/// Offset of the [`ClassTable`]: where other tables have their reserved buckets, which keys of
/// variable length do not need.
pub const CLASS_TABLE: u64 = RESERVED_BUCKETS;

/// Bytes from one record of `class` to the next; `class` is below [`SIZE_CLASSES`].
#[inline]
pub const fn class_size(class: u32) -> u64 {
    let Some(further) = class.checked_sub(LAST_EVEN_CLASS) else {
        return SMALLEST_RECORD + class as u64 * CLASS_STEP_BYTES;
    };
    let quarters = (CLASSES_PER_DOUBLING + further % CLASSES_PER_DOUBLING) as u64;
    (quarters * (LAST_EVEN / CLASSES_PER_DOUBLING as u64)) << (further / CLASSES_PER_DOUBLING)
}

/// The smallest class whose records have `len` bytes, or `None` if no record is that long.
#[inline]
pub fn class_of(len: u64) -> Option<u32> {
    if len <= LAST_EVEN {
        return Some(low_half(
            len.saturating_sub(SMALLEST_RECORD)
                .div_ceil(CLASS_STEP_BYTES),
        ));
    }
    let first = LAST_EVEN_CLASS + (len / LAST_EVEN).ilog2() * CLASSES_PER_DOUBLING;
    (first..SIZE_CLASSES).find(|&class| class_size(class) >= len)
}

/// Bytes of the record of a key of `key_len` bytes and a value of `value_len` bytes.
#[inline]
pub const fn record_len(key_len: u64, value_len: u64) -> u64 {
    value_offset(key_len) + value_len
}

/// Where in its record the value beside a key of `key_len` bytes begins.
#[inline]
pub const fn value_offset(key_len: u64) -> u64 {
    size_of::<RecordHeader>() as u64 + align_up(key_len, 8)
}

/// What is behind the header, up to so many bytes, is hashed in one piece.
const SHORT: usize = 256;

/// First bytes of a record of variable length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RecordHeader {
    /// Bytes of the key, at most [`MAX_VARIABLE_KEY`].
    pub key_len: u32,
    /// Bytes of the value, at most [`MAX_VARIABLE_VALUE`].
    pub value_len: u32,
    /// What the writer says of the record: for a store, which request has made it and whether it is a
    /// tombstone.
    pub sequence: u64,
    /// XXH3 of the 16 bytes before this field, the key and the value.
    pub checksum: u64,
}

const_assert_eq!(size_of::<RecordHeader>(), 24);
const_assert_eq!(std::mem::offset_of!(RecordHeader, value_len), 4);
const_assert_eq!(std::mem::offset_of!(RecordHeader, sequence), 8);
const_assert_eq!(std::mem::offset_of!(RecordHeader, checksum), 16);
const_assert!(size_of::<RecordHeader>() < to_usize(SMALLEST_RECORD));
const_assert!(
    record_len(MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE) <= class_size(SIZE_CLASSES - 1)
        && record_len(MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE) > class_size(SIZE_CLASSES - 2)
);

impl RecordHeader {
    /// The header of a key and a value, or `None` if one of them is too long.
    #[inline]
    pub fn new(key: &[u8], value: &[u8], sequence: u64) -> Option<Self> {
        if key.len() as u64 > MAX_VARIABLE_KEY || value.len() as u64 > MAX_VARIABLE_VALUE {
            return None;
        }
        let mut header = Self {
            key_len: u32::try_from(key.len()).ok()?,
            value_len: u32::try_from(value.len()).ok()?,
            sequence,
            checksum: 0,
        };
        header.checksum = header.sum(key, value);
        Some(header)
    }

    /// Whether this is the header of a record that has these bytes behind it: key, zeros and value.
    #[inline]
    pub fn matches(&self, body: &[u8]) -> bool {
        self.checksum == xxh3_64_with_seed(body, self.seed())
    }

    /// What has the checksum for its digest once it was given what is behind the header, in parts.
    #[inline]
    pub(crate) fn hasher(&self) -> Xxh3 {
        Xxh3::with_seed(self.seed())
    }

    /// The other fields: so one reads what is behind the header where it is.
    #[inline]
    fn seed(&self) -> u64 {
        mix(u64::from(self.value_len) << 32 | u64::from(self.key_len)) ^ self.sequence
    }

    #[inline]
    fn sum(&self, key: &[u8], value: &[u8]) -> u64 {
        let value_at = to_usize(align_up(key.len() as u64, 8));
        // Setting up the hash for pieces takes longer than putting short ones together.
        let mut buffer = [0; SHORT];
        if let Some(body) = buffer.get_mut(..value_at + value.len()) {
            body[..key.len()].copy_from_slice(key);
            body[value_at..].copy_from_slice(value);
            return xxh3_64_with_seed(body, self.seed());
        }
        let mut hasher = self.hasher();
        hasher.update(key);
        hasher.update(&[0; 8][..value_at - key.len()]);
        hasher.update(value);
        hasher.digest()
    }
}

/// How many records of each class were ever taken: what the superblock's `arena_high_water` says
/// of tables that have only one class. Holds if the file is `CLEAN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ClassTable {
    /// Records taken of each class, counted over the extents of the class in order.
    pub taken: [u64; SIZE_CLASSES as usize],
    /// XXH3 of all bytes before this field.
    pub checksum: u64,
}

const_assert_eq!(size_of::<ClassTable>(), 952);
const_assert_eq!(std::mem::offset_of!(ClassTable, checksum), 944);

impl ClassTable {
    /// The table of these counts.
    pub fn new(taken: [u64; SIZE_CLASSES as usize]) -> Self {
        let mut table = Self { taken, checksum: 0 };
        table.checksum = table.sum();
        table
    }

    /// Whether the table is whole.
    pub fn is_whole(&self) -> bool {
        self.checksum == self.sum()
    }

    fn sum(&self) -> u64 {
        xxh3_64(&bytemuck::bytes_of(self)[..std::mem::offset_of!(ClassTable, checksum)])
    }
}

#[cfg(test)]
mod tests;
