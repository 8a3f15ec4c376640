//! What the index of a store says of its store, so that neither takes an older copy of the other, or
//! another store's, for its own.
//!
//! ```text
//!  0          16         24           32      40         48
//!  | store id | sequence | generation | count | checksum |
//! ```
//!
//! There are two copies, in sectors of their own; the valid one with the greater count holds.

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64;

use super::{RESERVED_BUCKET_STRIDE, RESERVED_BUCKETS};
use crate::width::to_usize;

/// Offset of the two copies: where other tables have their second reserved bucket.
pub const MARKS: u64 = RESERVED_BUCKETS + RESERVED_BUCKET_STRIDE;

/// Bytes from one copy to the other.
pub const MARK_STRIDE: u64 = 512;

/// Bytes of both.
pub const MARKS_LEN: usize = 2 * to_usize(MARK_STRIDE);

/// What is counted is below this: what is counted up from a mark does not overflow.
pub const COUNT_LIMIT: u64 = 1 << 62;

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Mark {
    /// The store that the index belongs to.
    pub store_id: [u64; 2],
    /// All requests up to this number are in the index.
    pub sequence: u64,
    /// Generation of a manifest that the index relies on.
    pub generation: u64,
    /// Grows with every mark.
    pub count: u64,
    /// XXH3 of all bytes before this field.
    pub checksum: u64,
}

const_assert_eq!(size_of::<Mark>(), 48);

impl Mark {
    /// The mark that follows `last`.
    #[must_use]
    #[inline]
    pub fn next(last: Option<Self>, store_id: [u64; 2], sequence: u64, generation: u64) -> Self {
        let mut mark = Self {
            store_id,
            sequence,
            generation,
            count: last.map_or(1, |last| last.count.wrapping_add(1)),
            checksum: 0,
        };
        mark.checksum = mark.sum();
        mark
    }

    /// Where it is written.
    #[must_use]
    #[inline]
    pub fn file_offset(&self) -> u64 {
        MARKS + self.count % 2 * MARK_STRIDE
    }

    /// The one that holds, out of the bytes from [`MARKS`] on; `None` if none was ever written.
    ///
    /// # Errors
    /// What was found if neither copy is valid.
    pub fn find(bytes: &[u8]) -> Result<Option<Self>, String> {
        let at = |nth: usize| {
            let from = nth * MARKS_LEN / 2;
            let bytes = bytes.get(from..from + size_of::<Self>())?;
            Some(bytemuck::pod_read_unaligned::<Self>(bytes))
        };
        let copies: Vec<Self> = (0..2).filter_map(at).collect();
        let valid = copies.iter().filter(|mark| mark.is_valid());
        match valid.max_by_key(|mark| mark.count) {
            Some(mark) => Ok(Some(*mark)),
            None if copies.iter().all(|mark| *mark == Self::zeroed()) => Ok(None),
            None => Err(format!(
                "{copies:?}; neither has the checksum that it states, and counts below {COUNT_LIMIT}"
            )),
        }
    }

    #[inline]
    fn is_valid(&self) -> bool {
        let counts = [self.sequence, self.generation, self.count];
        self.checksum == self.sum() && counts.iter().all(|count| *count < COUNT_LIMIT)
    }

    #[inline]
    fn sum(&self) -> u64 {
        xxh3_64(&bytemuck::bytes_of(self)[..std::mem::offset_of!(Self, checksum)])
    }
}

#[cfg(test)]
mod tests;
