//! Values that a batch of columns is answered by.

use super::{BinaryColumn, Columns, Offsets};
use crate::Error;

/// The values of keys, or of gets, in one buffer. A key without a value has *null*, which is not the empty value.
///
/// Arrow's layout: values one behind the other, offsets, and a validity with a bit for each, the lowest bit of a
/// byte first. The offsets have 32 bits, or 64 if the values have 2 GiB or more.
///
/// # Examples
/// ```
/// use gphash::store::Columns;
///
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// store.put("ada", "lovelace")?;
/// store.put("empty", "")?;
/// let values = store.get_columns(&["ada", "alan", "empty"].into_iter().collect())?;
/// assert!(values.iter().eq([Some(&b"lovelace"[..]), None, Some(b"")]));
/// assert_eq!((values.len(), values.null_count()), (3, 1));
///
/// let (offsets, bytes, validity) = values.into_parts(); // as Arrow wants them
/// assert_eq!(offsets, vec![0i32, 8, 8, 8].into());
/// assert_eq!((&bytes[..], &validity[..]), (&b"lovelace"[..], &[0b101][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueColumns {
    values: Columns,
    validity: Vec<u8>,
}

impl ValueColumns {
    /// How many there are, nulls included.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none, not even a null.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Value `nth`; `None` if it is null, or if there are not so many.
    pub fn get(&self, nth: usize) -> Option<&[u8]> {
        self.is_valid(nth).then(|| self.values.at(nth))
    }

    /// The values in their order; `None` for a null.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|nth| self.get(nth))
    }

    /// How many nulls there are.
    pub fn null_count(&self) -> usize {
        let valid: u32 = self.validity.iter().map(|byte| byte.count_ones()).sum();
        self.len() - valid as usize
    }

    /// The values, a null being an empty string: to be given to another verb without a copy.
    pub fn values(&self) -> &Columns {
        &self.values
    }

    /// Which values are not null: bit *i* of the bytes, the lowest of each first.
    pub fn validity(&self) -> &[u8] {
        &self.validity
    }

    /// The buffers: offsets, bytes and validity. Nothing is copied unless a clone shares the values, or a GPU has put them
    /// where they are: [`values`](Self::values) has them there.
    pub fn into_parts(self) -> (Offsets, Vec<u8>, Vec<u8>) {
        let (offsets, bytes) = self.values.into_parts();
        (offsets, bytes, self.validity)
    }

    /// As [`into_parts`](Self::into_parts), but empty ones in place of those that a clone shares.
    pub(in crate::store) fn into_buffers(self) -> BinaryColumn {
        let (offsets, bytes) = self.values.into_own_parts().unwrap_or_default();
        BinaryColumn {
            offsets,
            bytes,
            validity: self.validity,
        }
    }

    fn is_valid(&self, nth: usize) -> bool {
        let byte = self.validity.get(nth / 8);
        byte.is_some_and(|byte| byte >> (nth % 8) & 1 != 0)
    }
}

impl From<BinaryColumn> for ValueColumns {
    fn from(column: BinaryColumn) -> Self {
        Self {
            values: Columns::of(column.offsets, column.bytes),
            validity: column.validity,
        }
    }
}

/// What [`execute_columns`](crate::store::Store::execute_columns) answers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ColumnAnswers {
    /// The value that each get has found, or null. Null for every other request, too.
    pub values: ValueColumns,
    /// The merges that failed, by their positions in ascending order, and why. Their keys kept their values.
    pub failures: Vec<(usize, Error)>,
}
