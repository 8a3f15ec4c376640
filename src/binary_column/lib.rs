//! Byte strings in columns, one buffer and offsets each, as Apache Arrow lays out binary arrays: what threads have read of
//! a batch, put together. All but [`Offsets`] is for the store of gphash alone.

mod assembly;
mod builder;
mod bytes;
mod gather;
#[cfg(test)]
mod tests;

use std::ops::Sub;

#[doc(hidden)]
pub use assembly::assemble;
#[doc(hidden)]
pub use builder::{ColumnBuilder, ColumnRoom, EndsCopy, PartCopy, PartTarget, split_off};
#[doc(hidden)]
pub use bytes::{Block, Bytes};
#[doc(hidden)]
pub use gather::{Lent, NULL_END, PART_VALUES, ValuesPart, concat};

/// Where byte strings begin and end in their buffer: *n* + 1 offsets for *n* strings.
///
/// These are the offsets of Arrow's `Binary` and `LargeBinary`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offsets {
    /// Of 32 bits, for buffers of less than 2 GiB.
    I32(Vec<i32>),
    /// Of 64 bits.
    I64(Vec<i64>),
}

impl Default for Offsets {
    fn default() -> Self {
        Self::I32(vec![0])
    }
}

impl Offsets {
    /// How many offsets there are: one more than strings.
    #[doc(hidden)]
    pub fn count(&self) -> usize {
        match self {
            Self::I32(offsets) => offsets.len(),
            Self::I64(offsets) => offsets.len(),
        }
    }

    /// Begin and end of a string, after the offsets were checked.
    #[doc(hidden)]
    #[inline]
    pub fn span(&self, nth: usize) -> (usize, usize) {
        let (start, end) = match self {
            Self::I32(offsets) => (offsets[nth].into(), offsets[nth + 1].into()),
            Self::I64(offsets) => (offsets[nth], offsets[nth + 1]),
        };
        (
            to_usize(start.cast_unsigned()),
            to_usize(end.cast_unsigned()),
        )
    }

    /// Bytes of the longest string, after the offsets were checked; 0 without one.
    #[doc(hidden)]
    pub fn longest(&self) -> usize {
        match self {
            Self::I32(offsets) => longest_between(offsets),
            Self::I64(offsets) => longest_between(offsets),
        }
    }

    fn shrink_to_fit(&mut self) {
        match self {
            Self::I32(offsets) => offsets.shrink_to_fit(),
            Self::I64(offsets) => offsets.shrink_to_fit(),
        }
    }

    /// Adds the end of one more string.
    #[doc(hidden)]
    pub fn push(&mut self, end: usize) {
        let wide_end = || i64::try_from(end).expect("no buffer is so long");
        match self {
            Self::I64(offsets) => offsets.push(wide_end()),
            Self::I32(offsets) => match i32::try_from(end) {
                Ok(end) => offsets.push(end),
                Err(_) => {
                    let mut wide: Vec<i64> = offsets.iter().copied().map(i64::from).collect();
                    wide.push(wide_end());
                    *self = Self::I64(wide);
                }
            },
        }
    }
}

/// The longest distance between offsets in their order. It is as plain as that so that several are measured at a time.
fn longest_between<O>(offsets: &[O]) -> usize
where
    O: Copy + Default + Ord + Sub<Output = O> + Into<i64>,
{
    let pairs = offsets.iter().zip(offsets.get(1..).unwrap_or_default());
    let longest = pairs.map(|(start, end)| *end - *start);
    let longest: i64 = longest.fold(O::default(), O::max).into();
    to_usize(longest.cast_unsigned())
}

impl From<Vec<i32>> for Offsets {
    fn from(offsets: Vec<i32>) -> Self {
        Self::I32(offsets)
    }
}

impl From<Vec<i64>> for Offsets {
    fn from(offsets: Vec<i64>) -> Self {
        Self::I64(offsets)
    }
}

/// The buffers of a column: values one behind the other, where they begin and end, and which ones there are.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct BinaryColumn {
    /// One more than values.
    pub offsets: Offsets,
    /// All values, one behind the other.
    pub bytes: Bytes,
    /// A bit for each value, the lowest of a byte first.
    pub validity: Vec<u8>,
}

/// A length of a buffer as the processor's. Nothing is lost: a pointer has 64 bits on every target of gphash.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the crate is not built for narrower pointers"
)]
#[inline]
const fn to_usize(number: u64) -> usize {
    number as usize
}
