//! Writing a data block.

use super::{BLOCK_BYTES, common_prefix};
use crate::lsm::Entry;
use crate::lsm::sst::varint::put;

/// What an entry counts beside its key and its value, in bytes.
const ENTRY_OVERHEAD: usize = 8;

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

    /// Adds an entry with a key behind all others, without its value, which must follow.
    pub fn add_head(&mut self, entry: &Entry) {
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
        let code = entry.value.map_or(0, |value| value.len() as u64 + 1);
        put(&mut self.bytes, code);
        self.bytes.extend_from_slice(&entry.key[shared..]);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&entry.key[shared..]);
        self.size += size(entry);
        self.entries += 1;
    }

    /// Adds an entry with a key behind all others.
    pub fn add(&mut self, entry: &Entry) {
        self.add_head(entry);
        self.bytes
            .extend_from_slice(entry.value.unwrap_or_default());
    }

    /// The entries so far.
    pub fn entries(&self) -> &[u8] {
        &self.bytes
    }

    /// What stands behind the entries.
    pub fn tail(&self) -> Vec<u8> {
        let count = u32::try_from(self.restarts.len()).expect("a block is short");
        let words = self.restarts.iter().chain([&count]);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The whole content.
    pub fn content(&mut self) -> &[u8] {
        let tail = self.tail();
        self.bytes.extend_from_slice(&tail);
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
    entry.key.len() + entry.value.map_or(0, <[u8]>::len) + ENTRY_OVERHEAD
}
