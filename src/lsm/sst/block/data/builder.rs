//! Writing a data block.

use super::{code_of, common_prefix};
use crate::varint::put;
use crate::{Entry, Value};

/// Entries from one restart point to the next.
pub(super) const RESTART_INTERVAL: usize = 16;

/// Puts a data block together.
#[derive(Debug, Default)]
pub struct Builder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    last_key: Vec<u8>,
    entries: usize,
}

impl Builder {
    /// How many entries there are.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The key that was added last.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Takes the last key of blocks that are made already.
    pub fn set_last_key(&mut self, key: &[u8]) {
        self.last_key = key.to_vec();
    }

    /// Adds an entry with a key behind all others.
    ///
    /// # Panics
    /// If the block has 4 GiB or more.
    pub fn add(&mut self, entry: &Entry) {
        let shared = match self.entries % RESTART_INTERVAL {
            0 => {
                self.restarts
                    .push(u32::try_from(self.bytes.len()).expect("a block is short"));
                0
            }
            _ => common_prefix(&self.last_key, entry.key),
        };
        put(&mut self.bytes, shared as u64);
        put(&mut self.bytes, (entry.key.len() - shared) as u64);
        put(&mut self.bytes, entry.sequence);
        put(&mut self.bytes, code_of(entry.value));
        self.bytes.extend_from_slice(&entry.key[shared..]);
        match entry.value {
            Some(Value::Inline(value)) => self.bytes.extend_from_slice(value),
            Some(Value::Apart(value)) => {
                put(&mut self.bytes, value.file);
                put(&mut self.bytes, value.offset);
                self.bytes.extend_from_slice(&value.checksum.to_le_bytes());
            }
            None => {}
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&entry.key[shared..]);
        self.entries += 1;
    }

    /// The whole content.
    ///
    /// # Panics
    /// If there are 2³² restart points.
    pub fn content(&mut self) -> &[u8] {
        let count = u32::try_from(self.restarts.len()).expect("a block is short");
        let words = self.restarts.iter().chain([&count]);
        self.bytes.extend(words.flat_map(|word| word.to_le_bytes()));
        &self.bytes
    }

    /// Goes on to the next block; keeps the last key.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.entries = 0;
    }
}
