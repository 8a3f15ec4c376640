//! An item of variable length, and a change of one.

/// A key, its sequence number and its value.
pub(crate) type Item = (Vec<u8>, u64, Vec<u8>);

/// Where an item is: in which of up to 256 tables, by which fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItemId {
    pub table: u8,
    pub fingerprint: u64,
}

/// What is to be read of an item whose key is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Key and value.
    Item,
    /// The key alone.
    Key,
    /// Nothing, of no later item either.
    End,
}

/// Takes the items that a lookup finds.
pub(crate) trait Found {
    /// What is wanted of the item at a position, with this key and a value of so many bytes.
    fn wanted(&mut self, nth: usize, key: &[u8], value_bytes: u64) -> Wanted;

    /// Takes the item, with its sequence number. The value is empty if only the key was wanted; it may
    /// leave with its buffer.
    fn take(&mut self, key: &[u8], sequence: u64, value: &mut Vec<u8>);
}

/// A change of one key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mutation<'a> {
    /// Stores a value, with its sequence number, whether the key is there or not.
    Put {
        key: &'a [u8],
        value: &'a [u8],
        sequence: u64,
    },
    /// Takes the key out.
    Delete { key: &'a [u8] },
}

impl<'a> Mutation<'a> {
    /// The key that is changed.
    pub(crate) fn key(&self) -> &'a [u8] {
        match *self {
            Mutation::Put { key, .. } | Mutation::Delete { key } => key,
        }
    }
}
