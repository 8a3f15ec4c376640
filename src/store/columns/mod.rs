//! Byte strings in columns: one buffer and offsets, as Apache Arrow lays out binary arrays. Batches of
//! them take no allocation a request, neither of the caller nor of the store.

pub mod requests;
#[cfg(all(test, not(loom)))]
mod tests;
mod values;

#[cfg(feature = "cuda")]
use std::ops::Range;
use std::sync::Arc;

pub use crate::binary_column::Offsets;
pub(in crate::store) use crate::binary_column::{
    BinaryColumn, Bytes, ColumnBuilder, PART_VALUES, ValuesPart, assemble,
};
#[cfg(feature = "cuda")]
pub(in crate::store) use crate::binary_column::{EndsCopy, Lent, NULL_END, PartCopy, split_off};
pub use values::{ColumnAnswers, ValueColumns};

use crate::{Error, Result};

/// A column of byte strings: keys, values or operands, one behind the other in one buffer.
///
/// String *i* is the bytes from offset *i* to offset *i* + 1: the layout of Arrow's `Binary` (offsets of 32 bits)
/// and `LargeBinary` (64 bits). The first offset may be above 0 and the last one before the end of the bytes, as
/// in a slice of an array. Keys and values need not have offsets of the same width.
///
/// The buffers are taken as they are, checked once, and never copied. A clone shares them, and so does the store
/// while it executes a batch: once a verb has returned, [`into_parts`](Self::into_parts) gives them back to be
/// filled again.
///
/// # Examples
/// ```
/// use gphash::store::Columns;
///
/// let keys = Columns::new(vec![0i32, 3, 3, 7], *b"adaalan")?;
/// assert!(keys.iter().eq([&b"ada"[..], b"", b"alan"]));
///
/// let (offsets, bytes) = keys.into_parts(); // to be filled again
/// # assert_eq!((offsets, &bytes[..]), (vec![0i32, 3, 3, 7].into(), &b"adaalan"[..]));
/// # Ok::<(), gphash::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Columns(Arc<Buffers>);

#[derive(Debug, Clone)]
struct Buffers {
    offsets: Offsets,
    bytes: Bytes,
}

impl Columns {
    /// The strings between these offsets of `bytes`. A `Vec` is used as it is.
    ///
    /// # Examples
    /// ```
    /// use gphash::Error;
    /// use gphash::store::Columns;
    ///
    /// let slice = Columns::new(vec![3i64, 7], *b"adaalangrace")?;
    /// assert_eq!(slice.get(0), Some(&b"alan"[..]));
    ///
    /// let backwards = Columns::new(vec![0i32, 3, 2], *b"ada");
    /// assert!(matches!(backwards, Err(Error::InvalidColumns { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidColumns`] if there is no offset, if one is negative or less than the one before it, or if
    /// the last one is behind the end of the bytes.
    pub fn new(offsets: impl Into<Offsets>, bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let (offsets, bytes) = (offsets.into(), bytes.into());
        match &offsets {
            Offsets::I32(offsets) => check(offsets, bytes.len())?,
            Offsets::I64(offsets) => check(offsets, bytes.len())?,
        }
        Ok(Self::of(offsets, bytes.into()))
    }

    fn of(offsets: Offsets, bytes: Bytes) -> Self {
        Self(Arc::new(Buffers { offsets, bytes }))
    }

    /// How many strings there are.
    ///
    /// # Examples
    /// ```
    /// let keys: gphash::store::Columns = ["ada", "alan"].into_iter().collect();
    /// assert_eq!(keys.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.0.offsets.count() - 1
    }

    /// Whether there is none.
    ///
    /// # Examples
    /// ```
    /// assert!(gphash::store::Columns::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// String `nth`, or `None` if there are not so many.
    ///
    /// # Examples
    /// ```
    /// let keys: gphash::store::Columns = ["ada", "alan"].into_iter().collect();
    /// assert_eq!(keys.get(1), Some(&b"alan"[..]));
    /// assert_eq!(keys.get(2), None);
    /// ```
    pub fn get(&self, nth: usize) -> Option<&[u8]> {
        (nth < self.len()).then(|| self.at(nth))
    }

    /// String `nth`, which is there.
    #[inline]
    pub(in crate::store) fn at(&self, nth: usize) -> &[u8] {
        let (start, end) = self.0.offsets.span(nth);
        &self.0.bytes[start..end]
    }

    /// The strings at some positions, one behind the other.
    #[cfg(feature = "cuda")]
    pub(in crate::store) fn bytes_of(&self, positions: &Range<usize>) -> &[u8] {
        if positions.is_empty() {
            return &[];
        }
        let (start, _) = self.0.offsets.span(positions.start);
        let (_, end) = self.0.offsets.span(positions.end - 1);
        &self.0.bytes[start..end]
    }

    /// Bytes of the longest string.
    pub(in crate::store) fn longest(&self) -> usize {
        self.0.offsets.longest()
    }

    /// The strings in their order.
    ///
    /// # Examples
    /// ```
    /// let keys: gphash::store::Columns = ["ada", "alan"].into_iter().collect();
    /// assert!(keys.iter().eq([&b"ada"[..], b"alan"]));
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|nth| self.at(nth))
    }

    /// The offsets.
    ///
    /// # Examples
    /// ```
    /// let keys: gphash::store::Columns = ["ada", "alan"].into_iter().collect();
    /// assert_eq!(keys.offsets(), &vec![0i32, 3, 7].into());
    /// ```
    pub fn offsets(&self) -> &Offsets {
        &self.0.offsets
    }

    /// The buffer, with what is before the first offset and behind the last one.
    ///
    /// # Examples
    /// ```
    /// let keys: gphash::store::Columns = ["ada", "alan"].into_iter().collect();
    /// assert_eq!(keys.bytes(), b"adaalan");
    /// ```
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Gives the buffers back, as they were given. They are copied only if a clone shares them, or if a GPU has put
    /// values into them: its memory cannot be a `Vec`.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Columns, Offsets};
    ///
    /// let (offsets, mut bytes) = Columns::new(vec![0i32, 3], *b"ada")?.into_parts();
    /// let Offsets::I32(mut offsets) = offsets else { unreachable!("they were given so") };
    /// bytes.extend(b"alan");
    /// offsets.push(7);
    /// assert_eq!(Columns::new(offsets, bytes)?.len(), 2);
    /// # Ok::<(), gphash::Error>(())
    /// ```
    pub fn into_parts(self) -> (Offsets, Vec<u8>) {
        let Buffers { offsets, bytes } = Arc::unwrap_or_clone(self.0);
        (offsets, bytes.into_vec())
    }

    /// Whether a GPU has put the strings where they are.
    #[cfg(all(test, feature = "cuda", not(loom)))]
    pub(in crate::store) fn are_lent(&self) -> bool {
        self.0.bytes.are_lent()
    }

    /// The buffers, unless a clone shares them.
    fn into_own_parts(self) -> Option<(Offsets, Bytes)> {
        let Buffers { offsets, bytes } = Arc::into_inner(self.0)?;
        Some((offsets, bytes))
    }
}

/// No string.
impl Default for Columns {
    fn default() -> Self {
        Self::of(Offsets::default(), Bytes::default())
    }
}

/// Equal if the strings are, wherever they are in their buffers.
impl PartialEq for Columns {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Columns {}

/// Copies strings into one buffer. The offsets have 64 bits from 2 GiB on.
impl<S: AsRef<[u8]>> FromIterator<S> for Columns {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let (mut offsets, mut bytes) = (Offsets::default(), Vec::new());
        for string in strings {
            bytes.extend_from_slice(string.as_ref());
            offsets.push(bytes.len());
        }
        Self::of(offsets, bytes.into())
    }
}

/// Refuses offsets that are not those of strings in so many bytes.
fn check<O: Copy + Ord + Into<i64>>(offsets: &[O], bytes: usize) -> Result<()> {
    let invalid = |nth: usize, expected: String| {
        let found = offsets.get(nth).map_or("none".into(), |&offset| {
            let offset: i64 = offset.into();
            offset.to_string()
        });
        Err(Error::InvalidColumns {
            what: format!("offset {nth}"),
            found,
            expected,
        })
    };
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return invalid(0, "one more than strings".into());
    };
    if first.into() < 0 {
        return invalid(0, "at least 0".into());
    }
    if !offsets.is_sorted() {
        let falls = |pair: &[O]| pair[1] < pair[0];
        let before = offsets.windows(2).position(falls).unwrap_or_default();
        let at_least: i64 = offsets[before].into();
        return invalid(before + 1, format!("at least {at_least}, the one before"));
    }
    let last: i64 = last.into();
    match usize::try_from(last).is_ok_and(|last| last <= bytes) {
        true => Ok(()),
        false => invalid(offsets.len() - 1, format!("at most {bytes}, the bytes")),
    }
}
