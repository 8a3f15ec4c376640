//! Requests and their answers.

use crate::layout::size_class::{MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE};
use crate::{Error, Result};

/// One request of a batch. Keys have 0 bytes to 64 KiB, values and operands 0 bytes to 1 GiB.
///
/// What a request reads is what those before it in its batch have left, and nobody changes it before the
/// request does: so a [`CompareAndSwap`](Self::CompareAndSwap) is one step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Asks for the value of a key; answered by [`Response::Value`].
    Get {
        /// The key.
        key: Vec<u8>,
    },
    /// Gives a key a value, whether it had one or not.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Takes a key's value away, if it has one.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Gives a key the value that the store's [`MergeOperator`](crate::store::MergeOperator) makes of
    /// the one that it has and of the operand.
    Merge {
        /// The key.
        key: Vec<u8>,
        /// What is merged.
        operand: Vec<u8>,
    },
    /// Gives a key a value if it has none; answered by [`Response::Done`], or by [`Response::Present`] if it
    /// has one.
    PutIfAbsent {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Gives a key a value, or takes it away, if the key has what is expected; answered by
    /// [`Response::Done`], or by [`Response::Mismatch`] if it has not.
    CompareAndSwap {
        /// The key.
        key: Vec<u8>,
        /// What the key must have; `None` for no value.
        expected: Option<Vec<u8>>,
        /// What the key gets; `None` takes its value away.
        new: Option<Vec<u8>>,
    },
    /// Gives a key a value, or takes it away; answered by [`Response::Value`] with the one before.
    Swap {
        /// The key.
        key: Vec<u8>,
        /// What the key gets; `None` takes its value away.
        new: Option<Vec<u8>>,
    },
}

/// The answer to one request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Response {
    /// To a get: the value, or `None` if the key has none. To a swap: the value before it.
    Value(Option<Vec<u8>>),
    /// To any other: it has been done.
    Done,
    /// To a put if absent: it was not done, because the key has a value.
    Present,
    /// To a compare-and-swap: it was not done, because the key has this instead of what was expected.
    Mismatch(Option<Vec<u8>>),
    /// To a merge: it was not done, and the key kept its value.
    Failed(Box<Error>),
}

impl Request {
    /// The key.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Merge { key, .. }
            | Self::PutIfAbsent { key, .. }
            | Self::CompareAndSwap { key, .. }
            | Self::Swap { key, .. } => key,
        }
    }

    /// Bytes that it takes, with its key, its values and its operand.
    pub(in crate::store) fn bytes(&self) -> usize {
        let len = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        size_of::<Self>()
            + self.key().len()
            + match self {
                Self::Get { .. } | Self::Delete { .. } => 0,
                Self::Put { value, .. } | Self::PutIfAbsent { value, .. } => value.len(),
                Self::Merge { operand, .. } => operand.len(),
                Self::CompareAndSwap { expected, new, .. } => len(expected) + len(new),
                Self::Swap { new, .. } => len(new),
            }
    }

    /// Whether the request only reads.
    pub fn is_get(&self) -> bool {
        matches!(self, Self::Get { .. })
    }

    pub(in crate::store) fn is_merge(&self) -> bool {
        matches!(self, Self::Merge { .. })
    }

    /// Whether what it changes depends on the value before it.
    pub(in crate::store) fn is_read_modify_write(&self) -> bool {
        matches!(
            self,
            Self::Merge { .. } | Self::PutIfAbsent { .. } | Self::CompareAndSwap { .. }
        )
    }

    /// Whether it takes a value away, and can do nothing else.
    pub(in crate::store) fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::Delete { .. }
                | Self::CompareAndSwap { new: None, .. }
                | Self::Swap { new: None, .. }
        )
    }

    /// Refuses keys, values and operands that are too long.
    pub(in crate::store) fn check(&self) -> Result<()> {
        check_key(self.key())?;
        match self {
            Self::Put { value, .. } | Self::PutIfAbsent { value, .. } => {
                check_value("value", value)
            }
            Self::Merge { operand, .. } => check_value("operand", operand),
            Self::CompareAndSwap { expected, new, .. } => {
                let expected = expected.as_deref().unwrap_or_default();
                check_value("expected value", expected)?;
                check_value("value", new.as_deref().unwrap_or_default())
            }
            Self::Swap { new, .. } => check_value("value", new.as_deref().unwrap_or_default()),
            Self::Get { .. } | Self::Delete { .. } => Ok(()),
        }
    }
}

/// A request that borrows its bytes. See [`Request`].
#[derive(Debug, Clone, Copy)]
pub enum RequestRef<'r> {
    Get {
        key: &'r [u8],
    },
    Put {
        key: &'r [u8],
        value: &'r [u8],
    },
    Delete {
        key: &'r [u8],
    },
    Merge {
        key: &'r [u8],
        operand: &'r [u8],
    },
    PutIfAbsent {
        key: &'r [u8],
        value: &'r [u8],
    },
    CompareAndSwap {
        key: &'r [u8],
        expected: Option<&'r [u8]>,
        new: Option<&'r [u8]>,
    },
    Swap {
        key: &'r [u8],
        new: Option<&'r [u8]>,
    },
}

impl<'r> RequestRef<'r> {
    /// The key.
    pub fn key(self) -> &'r [u8] {
        match self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Merge { key, .. }
            | Self::PutIfAbsent { key, .. }
            | Self::CompareAndSwap { key, .. }
            | Self::Swap { key, .. } => key,
        }
    }
}

impl<'r> From<&'r Request> for RequestRef<'r> {
    fn from(request: &'r Request) -> Self {
        match request {
            Request::Get { key } => Self::Get { key },
            Request::Put { key, value } => Self::Put { key, value },
            Request::Delete { key } => Self::Delete { key },
            Request::Merge { key, operand } => Self::Merge { key, operand },
            Request::PutIfAbsent { key, value } => Self::PutIfAbsent { key, value },
            Request::CompareAndSwap { key, expected, new } => Self::CompareAndSwap {
                key,
                expected: expected.as_deref(),
                new: new.as_deref(),
            },
            Request::Swap { key, new } => Self::Swap {
                key,
                new: new.as_deref(),
            },
        }
    }
}

/// Refuses a key that is too long.
pub fn check_key(key: &[u8]) -> Result<()> {
    at_most("key", key.len(), MAX_VARIABLE_KEY)
}

/// Refuses a value that is too long.
pub fn check_value(what: &'static str, value: &[u8]) -> Result<()> {
    at_most(what, value.len(), MAX_VARIABLE_VALUE)
}

fn at_most(what: &'static str, found: usize, limit: u64) -> Result<()> {
    let found = found as u64;
    match found <= limit {
        true => Ok(()),
        false => Err(Error::TooLong { what, found, limit }),
    }
}

/// Changes that are made together: all of them or none, also across a crash. They take effect in the
/// order in which they were added.
///
/// # Examples
/// ```
/// use gphash::store::WriteBatch;
///
/// let mut batch = WriteBatch::new();
/// batch.put(b"one", b"1");
/// batch.delete(b"two");
/// batch.merge(b"list", b"three"); // with the store's `MergeOperator`
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    pub(in crate::store) requests: Vec<Request>,
}

impl WriteBatch {
    /// A batch without changes.
    ///
    /// # Examples
    /// ```
    /// assert!(gphash::store::WriteBatch::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `key` a value.
    ///
    /// # Examples
    /// ```
    /// let mut batch = gphash::store::WriteBatch::new();
    /// batch.put(b"ada", b"lovelace");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.requests.push(Request::Put {
            key: key.into(),
            value: value.into(),
        });
    }

    /// Takes the value of `key` away.
    ///
    /// # Examples
    /// ```
    /// let mut batch = gphash::store::WriteBatch::new();
    /// batch.delete(b"ada");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.requests.push(Request::Delete { key: key.into() });
    }

    /// Merges `operand` into the value of `key`, by the store's [`MergeOperator`](super::MergeOperator).
    ///
    /// # Examples
    /// ```
    /// let mut batch = gphash::store::WriteBatch::new();
    /// batch.merge(b"visits", b"1");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn merge(&mut self, key: impl Into<Vec<u8>>, operand: impl Into<Vec<u8>>) {
        self.requests.push(Request::Merge {
            key: key.into(),
            operand: operand.into(),
        });
    }

    /// How many changes there are.
    ///
    /// # Examples
    /// ```
    /// let mut batch = gphash::store::WriteBatch::new();
    /// batch.put(b"ada", b"lovelace");
    /// batch.delete(b"ada");
    /// assert_eq!(batch.len(), 2); // the batch keeps both, in order
    /// ```
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is none.
    ///
    /// # Examples
    /// ```
    /// let mut batch = gphash::store::WriteBatch::new();
    /// assert!(batch.is_empty());
    /// batch.delete(b"ada");
    /// assert!(!batch.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}
