//! Requests in columns: kinds, keys and values.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Columns, ValueColumns};
use crate::layout::size_class::{MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE};
use crate::pool::parallel;
use crate::pool::threads::REQUESTS_PER_THREAD_MIN;
use crate::store::request::{RequestRef, check_key, check_value};
use crate::{Error, Result};

/// What a request of [`execute_columns`](crate::store::Store::execute_columns) does, in one byte.
///
/// # Examples
/// ```
/// use gphash::store::RequestKind;
///
/// assert_eq!(RequestKind::try_from(1)?, RequestKind::Put);
/// assert!(RequestKind::try_from(4).is_err());
/// # Ok::<(), gphash::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum RequestKind {
    /// Asks for the value of a key. The request's own value means nothing.
    Get = 0,
    /// Gives a key a value, whether it had one or not.
    Put = 1,
    /// Takes a key's value away, if it has one. The request's own value means nothing.
    Delete = 2,
    /// Merges an operand, which is in the column of values, with the store's
    /// [`MergeOperator`](crate::store::MergeOperator).
    Merge = 3,
}

impl TryFrom<u8> for RequestKind {
    type Error = Error;

    fn try_from(byte: u8) -> Result<Self> {
        Ok(match byte {
            0 => Self::Get,
            1 => Self::Put,
            2 => Self::Delete,
            3 => Self::Merge,
            _ => {
                return Err(Error::InvalidColumns {
                    what: "the kind of a request".into(),
                    found: byte.to_string(),
                    expected: "0 (get), 1 (put), 2 (delete) or 3 (merge)".into(),
                });
            }
        })
    }
}

/// The requests of a batch in columns, which the caller may share.
#[derive(Debug)]
pub struct ColumnBatch {
    kinds: Kinds,
    keys: Columns,
    /// As many as keys; none if no request has one.
    values: Option<Columns>,
    /// How many of the requests are gets.
    gets: usize,
    /// Those that the answers take, once.
    buffers: Mutex<ValueColumns>,
}

#[derive(Debug, Clone)]
enum Kinds {
    All(RequestKind),
    Each(Arc<[RequestKind]>),
}

impl ColumnBatch {
    /// Gets of keys.
    pub fn gets(keys: &Columns) -> Self {
        Self::all(RequestKind::Get, keys, None)
    }

    /// Puts of values.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    pub fn puts(keys: &Columns, values: &Columns) -> Result<Self> {
        check_lengths(keys, values)?;
        Ok(Self::all(RequestKind::Put, keys, Some(values.clone())))
    }

    /// Deletions of keys.
    pub fn deletes(keys: &Columns) -> Self {
        Self::all(RequestKind::Delete, keys, None)
    }

    fn all(kind: RequestKind, keys: &Columns, values: Option<Columns>) -> Self {
        Self {
            kinds: Kinds::All(kind),
            keys: keys.clone(),
            values,
            gets: if kind == RequestKind::Get {
                keys.len()
            } else {
                0
            },
            buffers: Mutex::default(),
        }
    }

    /// Requests of these kinds, whose answers take the place of values.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::InvalidColumns`].
    pub fn mixed(
        kinds: &[RequestKind],
        keys: &Columns,
        values: &Columns,
        buffers: ValueColumns,
    ) -> Result<Self> {
        check_lengths(keys, values)?;
        if kinds.len() != keys.len() {
            return Err(Error::InvalidColumns {
                what: "the number of kinds".into(),
                found: kinds.len().to_string(),
                expected: format!("{}, one for each key", keys.len()),
            });
        }
        let is_get = |kind: &&RequestKind| **kind == RequestKind::Get;
        let gets = kinds.iter().filter(is_get).count();
        let buffers = Mutex::new(buffers);
        Ok(match gets == kinds.len() {
            true => Self {
                buffers,
                ..Self::gets(keys)
            },
            false => Self {
                kinds: Kinds::Each(kinds.into()),
                keys: keys.clone(),
                values: Some(values.clone()),
                gets,
                buffers,
            },
        })
    }

    #[cfg(feature = "cuda")]
    pub fn keys(&self) -> &Columns {
        &self.keys
    }

    /// The buffers that the answers may take.
    pub fn take_buffers(&self) -> ValueColumns {
        std::mem::take(&mut *self.buffers.lock())
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn key(&self, nth: usize) -> &[u8] {
        self.keys.at(nth)
    }

    #[inline]
    pub fn kind(&self, nth: usize) -> RequestKind {
        match &self.kinds {
            Kinds::All(kind) => *kind,
            Kinds::Each(kinds) => kinds[nth],
        }
    }

    fn value(&self, nth: usize) -> &[u8] {
        self.values.as_ref().map_or(&[], |values| values.at(nth))
    }

    /// Request `nth`.
    pub fn request(&self, nth: usize) -> RequestRef<'_> {
        let key = self.key(nth);
        match self.kind(nth) {
            RequestKind::Get => RequestRef::Get { key },
            RequestKind::Put => RequestRef::Put {
                key,
                value: self.value(nth),
            },
            RequestKind::Delete => RequestRef::Delete { key },
            RequestKind::Merge => RequestRef::Merge {
                key,
                operand: self.value(nth),
            },
        }
    }

    /// How many of the requests are gets.
    pub fn count_gets(&self) -> usize {
        self.gets
    }

    /// Whether all requests delete.
    pub fn only_delete(&self) -> bool {
        match &self.kinds {
            Kinds::All(kind) => *kind == RequestKind::Delete,
            Kinds::Each(kinds) => kinds.iter().all(|kind| *kind == RequestKind::Delete),
        }
    }

    /// Whether any request is answered by more than that it was done.
    pub fn is_answered(&self) -> bool {
        !matches!(
            self.kinds,
            Kinds::All(RequestKind::Put | RequestKind::Delete)
        )
    }

    /// Whether there are merges.
    pub fn has_merge(&self) -> bool {
        match &self.kinds {
            Kinds::All(_) => false,
            Kinds::Each(kinds) => {
                let is_none = |nth: usize| kinds[nth] != RequestKind::Merge;
                !parallel::all(kinds.len(), REQUESTS_PER_THREAD_MIN, is_none)
            }
        }
    }

    /// Refuses keys, values and operands that are too long.
    ///
    /// # Errors
    /// [`Error::TooLong`], for the first of them.
    pub fn check(&self) -> Result<()> {
        let longest = |column: &Columns| column.longest() as u64;
        let longest_value = self.values.as_ref().map_or(0, longest);
        // Threads take longer to wake up than this one to see that none is too long.
        if longest(&self.keys) <= MAX_VARIABLE_KEY && longest_value <= MAX_VARIABLE_VALUE {
            return Ok(());
        }
        let check = |nth: usize| match self.request(nth) {
            RequestRef::Put { key, value } => {
                check_key(key).and_then(|()| check_value("value", value))
            }
            RequestRef::Merge { key, operand } => {
                check_key(key).and_then(|()| check_value("operand", operand))
            }
            request => check_key(request.key()),
        };
        (0..self.len()).try_for_each(check)
    }
}

fn check_lengths(keys: &Columns, values: &Columns) -> Result<()> {
    match keys.len() == values.len() {
        true => Ok(()),
        false => Err(Error::LengthMismatch {
            keys: keys.len(),
            values: values.len(),
        }),
    }
}
