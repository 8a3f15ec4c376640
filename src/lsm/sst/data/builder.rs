//! Writing a data block.

use super::{BLOCK_BYTES, code_of, common_prefix};
use crate::lsm::Entry;
use crate::lsm::sst::varint::put;
use crate::lsm::values::Value;

/// What an entry counts beside its key and its value, in bytes.
const ENTRY_OVERHEAD: usize = 8;

/// What a reference counts, in bytes.
const REF_BYTES: usize = 16;

/// Entries from one restart point to the next.
const RESTART_INTERVAL: usize = 16;

/// Puts a data block together.
#[derive(Default)]
pub struct Builder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    last_key: Vec<u8>,
    entries: usize,
    size: usize,
}

impl Builder {
    /// Whether the block would be too long with another entry.
    pub fn is_full_for(&self, entry: &Entry) -> bool {
        self.entries > 0 && self.size + size(entry) > BLOCK_BYTES
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// The key that was added last.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds an entry with a key behind all others.
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
        self.size += size(entry);
        self.entries += 1;
    }

    /// The whole content.
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
        self.size = 0;
    }
}

/// What an entry counts for the length of its block. Keys count whole, so that what a block is in
/// memory is bounded, too.
fn size(entry: &Entry) -> usize {
    let value = match entry.value {
        Some(Value::Inline(value)) => value.len(),
        Some(Value::Apart(_)) => REF_BYTES,
        None => 0,
    };
    entry.key.len() + value + ENTRY_OVERHEAD
}
