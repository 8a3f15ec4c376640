//! An item of variable length, and a change of one.

/// A key, its sequence number and its value.
pub(crate) type Item = (Vec<u8>, u64, Vec<u8>);

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
