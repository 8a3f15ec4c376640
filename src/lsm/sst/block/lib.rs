//! Blocks of a sorted file: what is read and checked at a time, and what stands in each.
//!
//! The [frame] is that of all blocks. [Data blocks](data) have the entries, the [index] says where these blocks are, and the
//! [properties] what is known of the file as a whole.

pub mod data;
pub mod frame;
pub mod index;
pub mod properties;
mod varint;

use bytemuck::{Pod, Zeroable};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Values that are longer, in bytes, stand in value files.
pub const INLINE_VALUE_BYTES_MAX: usize = 1 << 20;

/// A key's newest value in a run of sorted files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The number of the request that left it.
    pub sequence: u64,
    /// `None` for a tombstone.
    pub value: Option<Value<'a>>,
}

/// A value of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Beside its key.
    Inline(&'a [u8]),
    /// In a value file.
    Apart(ValueRef),
}

impl Value<'_> {
    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Apart(value) => value.len,
        }
    }
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRef {
    /// Number of the value file.
    pub file: u64,
    /// The byte at which it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: usize,
    /// Their XXH3.
    pub checksum: u64,
}

impl ValueRef {
    /// The byte behind it, unless there can be none.
    #[inline]
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len as u64)
    }
}

/// What a sorted file has in one value file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ValueUse {
    /// Number of the value file.
    pub file: u64,
    /// Bytes of its values.
    pub bytes: u64,
    /// The byte behind the last one.
    pub end: u64,
}
