//! A data block with all its keys in memory.

use std::ops::Range;
use std::sync::Arc;

use super::{BLOCK_BYTES, BLOCK_HEADER, Block, RawValue};
use crate::lsm::Entry;

/// All entries of a block, which can be gone through in both directions.
#[derive(Debug)]
pub struct Decoded {
    block: Arc<Block>,
    keys: Vec<u8>,
    entries: Vec<DecodedEntry>,
}

#[derive(Debug)]
struct DecodedEntry {
    key: Range<usize>,
    sequence: u64,
    value: Option<RawValue>,
}

impl Decoded {
    /// Decodes a block; says what is wrong with it.
    pub fn new(block: Arc<Block>) -> Result<Self, String> {
        let mut keys: Vec<u8> = Vec::with_capacity((block.end - BLOCK_HEADER).min(BLOCK_BYTES));
        let mut entries: Vec<DecodedEntry> = Vec::new();
        let mut at = BLOCK_HEADER;
        let mut last = 0..0;
        while at < block.end {
            let entry_at = at;
            let entry = block
                .take(&mut at)
                .filter(|entry| entry.shared <= last.len() && keys.len() <= BLOCK_BYTES)
                .ok_or_else(|| format!("no entry at byte {}", entry_at - BLOCK_HEADER))?;
            let start = keys.len();
            keys.extend_from_within(last.start..last.start + entry.shared);
            keys.extend_from_slice(&block.bytes[entry.rest]);
            last = start..keys.len();
            entries.push(DecodedEntry {
                key: last.clone(),
                sequence: entry.sequence,
                value: entry.value,
            });
        }
        Ok(Self {
            block,
            keys,
            entries,
        })
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry.
    pub fn entry(&self, nth: usize) -> Entry<'_> {
        let entry = &self.entries[nth];
        Entry {
            key: self.key(nth),
            sequence: entry.sequence,
            value: entry.value.as_ref().map(|value| self.block.value(value)),
        }
    }

    /// The key of an entry.
    #[inline]
    pub fn key(&self, nth: usize) -> &[u8] {
        &self.keys[self.entries[nth].key.clone()]
    }

    /// How many entries at the beginning satisfy `before`.
    pub fn partition(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        self.entries
            .partition_point(|entry| before(&self.keys[entry.key.clone()]))
    }
}
