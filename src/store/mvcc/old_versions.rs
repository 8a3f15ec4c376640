//! What keys had before they were changed: see [the versions](crate::pool::old_versions). With a memory budget, values that
//! have no room there are in a [file](super::spill_file).

use super::spill_file::{SPILLED_VALUE_BYTES_MIN, SpilledValue};
use crate::pool::old_versions;
pub use crate::pool::old_versions::{KeptVersion, VersionBytes, is_empty};
use crate::{Error, Result};

/// Values of keys before the commits that changed them.
pub type OldVersions = old_versions::OldVersions<OldVersion>;

/// What nobody sees any more of them.
pub type Unseen = old_versions::Unseen<OldVersion>;

/// A key's value; `None` if it had none.
pub type Value = Option<Vec<u8>>;

/// What a key had before a change, or why that cannot be read.
pub type Before = std::result::Result<Value, Box<Error>>;

/// What a key had before a change, wherever that is now.
#[derive(Debug, Clone)]
pub enum OldVersion {
    /// In memory.
    Kept(Before),
    /// In a file.
    Spilled(SpilledValue),
}

impl OldVersion {
    /// Bytes of the value; `None` if the key had none, or if it cannot be read.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Kept(before) => Some(before.as_ref().ok()?.as_ref()?.len()),
            Self::Spilled(value) => Some(value.len()),
        }
    }

    /// What the key had.
    ///
    /// # Errors
    /// Why that cannot be read.
    pub fn into_value(self) -> Result<Value> {
        match self {
            Self::Kept(before) => before.map_err(|error| *error),
            Self::Spilled(value) => value.read().map(Some),
        }
    }

    /// As [`into_value`](Self::into_value), with an empty value in place of each.
    ///
    /// # Errors
    /// As there, but for those of the file.
    pub fn into_empty_value(self) -> Result<Value> {
        match self {
            Self::Kept(before) => Ok(before.map_err(|error| *error)?.map(|_| Vec::new())),
            Self::Spilled(_) => Ok(Some(Vec::new())),
        }
    }

    /// Whether the key had a value.
    ///
    /// # Errors
    /// As [`into_empty_value`](Self::into_empty_value).
    pub fn has_value(&self) -> Result<bool> {
        match self {
            Self::Kept(Ok(value)) => Ok(value.is_some()),
            Self::Kept(Err(error)) => Err((**error).clone()),
            Self::Spilled(_) => Ok(true),
        }
    }

    /// The value, if a file takes it out of memory.
    pub fn to_spill(&self) -> Option<&[u8]> {
        match self {
            Self::Kept(Ok(Some(value))) if value.len() >= SPILLED_VALUE_BYTES_MIN => Some(value),
            Self::Kept(_) | Self::Spilled(_) => None,
        }
    }
}

impl KeptVersion for OldVersion {
    fn value_bytes(&self) -> (u64, u64) {
        let len = self.len().unwrap_or(0) as u64;
        match self {
            Self::Kept(_) => (len, 0),
            Self::Spilled(_) => (0, len),
        }
    }
}
