//! Entries of a data block with their keys in memory.

use std::ops::Range;
use std::sync::Arc;

use super::builder::RESTART_INTERVAL;
use super::{BLOCK_BYTES, Block, RawValue};
use crate::Entry;
use crate::frame::BLOCK_HEADER;

/// Entries of a block that follow one another: all, or a group, which goes from a restart point to the next. They can be
/// gone through in both directions.
#[derive(Debug)]
pub struct Decoded {
    block: Arc<Block>,
    /// The group, if it is one.
    group: usize,
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
    /// Decodes a whole block.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(block: Arc<Block>) -> Result<Self, String> {
        let all = BLOCK_HEADER..block.end;
        Self::of_range(block, 0, all)
    }

    /// Decodes a group of a block.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_group(block: Arc<Block>, group: usize) -> Result<Self, String> {
        let range = block.group(group);
        Self::of_range(block, group, range)
    }

    fn of_range(block: Arc<Block>, group: usize, range: Range<usize>) -> Result<Self, String> {
        // What a group of most blocks needs, from the allocator's quickest lists.
        let mut keys: Vec<u8> = Vec::with_capacity(range.len().min(512));
        let mut entries: Vec<DecodedEntry> = Vec::with_capacity(RESTART_INTERVAL);
        let mut at = range.start;
        let mut last = 0..0;
        while at != range.end {
            let entry_at = at;
            let entry = block
                .take(&mut at)
                .filter(|entry| entry.shared <= last.len() && keys.len() <= BLOCK_BYTES)
                .filter(|_| at <= range.end)
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
            group,
            keys,
            entries,
        })
    }

    /// The block, and which of its groups this is.
    #[inline]
    pub fn group(&self) -> (&Arc<Block>, usize) {
        (&self.block, self.group)
    }

    /// How many entries there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// An entry.
    #[inline]
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
    #[inline]
    pub fn partition(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        self.entries
            .partition_point(|entry| before(&self.keys[entry.key.clone()]))
    }
}
