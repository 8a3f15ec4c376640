//! The shape of a table: what its keys, buckets, levels and records measure.

use std::fmt;

use crate::bucket::{SLOT_WORDS_BYTES, SlotAddr};
use crate::size_class::{SIZE_CLASSES, SMALLEST_RECORD, class_size};
use crate::width::u32_of;
use crate::{HUGE_PAGE, PAGE, align_up};

/// An option of which no table can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpossibleShape {
    /// Its name.
    pub option: &'static str,
    /// What it is.
    pub found: String,
    /// What it may be.
    pub expected: &'static str,
}

impl std::error::Error for ImpossibleShape {}

impl fmt::Display for ImpossibleShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            option,
            found,
            expected,
        } = self;
        write!(f, "invalid option {option}: {found}; expected {expected}")
    }
}

/// How a bucket holds its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyClass {
    /// 8 bytes: the key is the slot's state word.
    Word,
    /// 16 to 128 bytes in multiples of 8: fingerprint in the state word, key in the bucket.
    Wide,
    /// Any length: fingerprint in the state word, key in the record.
    Variable,
}

/// Sizes and counts of a table, fixed when its file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a key; 0 for keys of variable length.
    pub key_size: u64,
    /// Bytes of a value; 0 for values of variable length.
    pub value_size: u64,
    /// Slots in a bucket.
    pub slots: u32,
    /// Levels of a table that is not being resized.
    pub levels: u32,
    /// Hash locations of a key.
    pub locations: u32,
    /// Bytes from one bucket to the next.
    pub bucket_size: u64,
    /// Whether a record of fixed size has a checksum behind its value.
    pub checksums: bool,
    /// Bytes from one record of the arena to the next; of the smallest class if there are several.
    pub record_stride: u64,
}

/// Bytes of the checksum of a value.
pub const CHECKSUM_BYTES: u64 = 8;

impl Shape {
    /// Slots that one warp can look at at once: the limit of levels × locations × slots.
    pub const MAX_CANDIDATES: u32 = 32;
    /// Largest fixed key in bytes.
    pub const MAX_KEY: u64 = 128;
    /// Largest fixed value in bytes.
    pub const MAX_VALUE: u64 = 64 << 10;
    /// Highest level: 2^39 buckets, 64 TiB of them at 128 bytes.
    pub const MAX_LEVEL: u32 = 39;

    /// The shape of a table of fixed keys and values.
    ///
    /// # Errors
    /// [`ImpossibleShape`] for keys that are not 8 to 128 bytes in multiples of 8, values
    /// that are not 1 byte to 64 KiB, and counts whose product is not 1 to 32.
    pub fn new(
        key_size: u64,
        value_size: u64,
        slots: u32,
        levels: u32,
        locations: u32,
    ) -> Result<Self, ImpossibleShape> {
        let refuse = |option, found: String, expected| {
            Err(ImpossibleShape {
                option,
                found,
                expected,
            })
        };
        if !(8..=Self::MAX_KEY).contains(&key_size) || !key_size.is_multiple_of(8) {
            return refuse(
                "key type",
                format!("{key_size} bytes"),
                "8 to 128 bytes in multiples of 8",
            );
        }
        if !(1..=Self::MAX_VALUE).contains(&value_size) {
            return refuse(
                "value type",
                format!("{value_size} bytes"),
                "1 byte to 64 KiB",
            );
        }
        let record_stride = record_stride(value_size);
        Self::with_counts(
            (key_size, value_size, record_stride),
            slots,
            levels,
            locations,
        )
    }

    /// The shape of a table of keys and values of variable length.
    ///
    /// # Errors
    /// [`ImpossibleShape`] for counts whose product is not 1 to 32.
    pub fn variable(slots: u32, levels: u32, locations: u32) -> Result<Self, ImpossibleShape> {
        Self::with_counts((0, 0, SMALLEST_RECORD), slots, levels, locations)
    }

    fn with_counts(
        (key_size, value_size, record_stride): (u64, u64, u64),
        slots: u32,
        levels: u32,
        locations: u32,
    ) -> Result<Self, ImpossibleShape> {
        let product = [slots, levels, locations]
            .into_iter()
            .try_fold(1u32, |product, count| product.checked_mul(count));
        if !product.is_some_and(|product| (1..=Self::MAX_CANDIDATES).contains(&product)) {
            return Err(ImpossibleShape {
                option: "shape",
                found: format!("{levels} levels × {locations} locations × {slots} slots"),
                expected: "each at least 1, their product at most 32",
            });
        }
        let slot = SLOT_WORDS_BYTES + if key_size > 8 { key_size } else { 0 };
        Ok(Self {
            key_size,
            value_size,
            slots,
            levels,
            locations,
            bucket_size: align_up(u64::from(slots) * slot, 64),
            checksums: false,
            record_stride,
        })
    }

    /// The same, where records of fixed size have checksums or not.
    #[must_use]
    pub fn with_checksums(mut self, checksums: bool) -> Self {
        if self.key_class() != KeyClass::Variable {
            self.checksums = checksums;
            self.record_stride = record_stride(self.value_record_len());
        }
        self
    }

    /// Where the checksum stands in a record of fixed size that has one.
    #[inline]
    pub fn checksum_offset(&self) -> Option<u64> {
        self.checksums.then(|| align_up(self.value_size, 8))
    }

    /// Bytes of a record of fixed size that mean something.
    #[inline]
    pub fn value_record_len(&self) -> u64 {
        self.checksum_offset()
            .map_or(self.value_size, |offset| offset + CHECKSUM_BYTES)
    }

    /// Size classes of records.
    pub fn classes(&self) -> u32 {
        match self.key_class() {
            KeyClass::Word | KeyClass::Wide => 1,
            KeyClass::Variable => SIZE_CLASSES,
        }
    }

    /// Bytes from one record of `class` to the next.
    #[inline]
    pub fn record_size(&self, class: u32) -> u64 {
        match self.key_class() {
            KeyClass::Word | KeyClass::Wide => self.record_stride,
            KeyClass::Variable => class_size(class),
        }
    }

    /// How buckets hold keys.
    #[inline]
    pub fn key_class(&self) -> KeyClass {
        match self.key_size {
            0 => KeyClass::Variable,
            8 => KeyClass::Word,
            _ => KeyClass::Wide,
        }
    }

    /// Where slot `slot` of the bucket at offset `bucket` lies.
    #[inline]
    pub fn slot_addr(&self, bucket: u64, slot: u32) -> SlotAddr {
        let keys = bucket + u64::from(self.slots) * SLOT_WORDS_BYTES;
        let slot = u64::from(slot);
        let state = bucket + slot * SLOT_WORDS_BYTES;
        SlotAddr {
            state,
            record: state + 8,
            key: if self.key_size <= 8 {
                state
            } else {
                keys + slot * self.key_size
            },
        }
    }

    /// The number of the slot whose state word lies `offset` bytes into its bucket.
    #[inline]
    pub fn slot_at(&self, offset: u64) -> u32 {
        u32_of(offset / SLOT_WORDS_BYTES)
    }

    /// Bytes of the buckets of `level`.
    #[inline]
    pub fn buckets_len(&self, level: u32) -> u64 {
        self.bucket_size << level
    }

    /// Bytes of the overflow map of `level`: one bit a bucket, in whole 64-bit words.
    ///
    /// Bit *b* is of the items whose location 0 is bucket *b*. It says that one of them found all
    /// buckets of its first hash locations full while this level was the top one. It went to those
    /// of a further set. So only a lookup that passes such a bucket has more than one set to read.
    #[inline]
    pub fn overflow_len(&self, level: u32) -> u64 {
        (1u64 << level).div_ceil(64) * 8
    }

    /// Offset of the word of the overflow map that has the bit of `bucket`, in the level that begins at `level_at`.
    pub fn overflow_word(&self, level_at: u64, level: u32, bucket: u64) -> u64 {
        level_at + self.buckets_len(level) + bucket / 64 * 8
    }

    /// Bytes of the extent of `level`: its buckets, then its overflow map.
    pub fn level_len(&self, level: u32) -> u64 {
        align_up(self.buckets_len(level) + self.overflow_len(level), PAGE)
    }

    /// Slots of a table whose top level is `top`.
    pub fn capacity(&self, top: u32) -> u64 {
        (0..self.levels.min(top + 1))
            .map(|below| u64::from(self.slots) << (top - below))
            .sum()
    }

    /// Bytes of a file with room for `items`, more or less; of variable length, without records.
    pub fn file_len_for(&self, items: u64) -> u64 {
        let top = self.top_level_for(items).min(Self::MAX_LEVEL);
        let levels = (top + 1 - self.levels..=top).map(|level| self.level_len(level));
        // As many records again, for values that are replaced and for the alignment of extents.
        let records = items.saturating_mul(self.record_stride).saturating_mul(2);
        levels.fold(records, u64::saturating_add)
    }

    /// The lowest top level at which `items` fill at most nine tenths of the slots, or more than
    /// [`MAX_LEVEL`](Self::MAX_LEVEL) if there is none.
    pub fn top_level_for(&self, items: u64) -> u32 {
        let slots = items.saturating_add(items / 9);
        (self.levels - 1..=Self::MAX_LEVEL)
            .find(|&top| self.capacity(top) >= slots)
            .unwrap_or(Self::MAX_LEVEL + 1)
    }
}

/// Where an extent of `len` bytes may start.
pub fn extent_alignment(len: u64) -> u64 {
    if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE }
}

/// What the offset of each record of a stride is a multiple of.
pub fn record_alignment(stride: u64) -> u64 {
    stride.min(64)
}

/// A stride that makes a record touch as few lines as it can without wasting much: a power of
/// two up to one line, multiples of a cache line above.
fn record_stride(len: u64) -> u64 {
    if len <= crate::LINE {
        len.next_power_of_two().max(8)
    } else {
        align_up(len, 64)
    }
}

#[cfg(test)]
mod tests;
