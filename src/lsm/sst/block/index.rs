//! The index of a file: which of its data blocks may have a key.
//!
//! ```text
//!  separator len | separator ... | block len | entries   for each data block
//! ```
//!
//! All three numbers are of variable length. A separator is behind all keys of the blocks
//! before, and not behind the first one of its own block. Blocks stand one behind the other.

use std::ops::Range;

use crate::KEY_BYTES_MAX;
use crate::data::common_prefix;
use crate::frame::BLOCK_HEADER;
use crate::varint::{put, take, take_len};

/// Puts an index together.
#[derive(Debug, Default)]
pub struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    /// Adds the separator of a block between the key before it and its first one.
    pub fn separate(&mut self, before: &[u8], first: &[u8]) {
        let len = first.len().min(common_prefix(before, first) + 1);
        put(&mut self.bytes, len as u64);
        self.bytes.extend_from_slice(&first[..len]);
    }

    /// Adds the rest of what is said of that block.
    pub fn add(&mut self, block_len: usize, entries: usize) {
        put(&mut self.bytes, block_len as u64);
        put(&mut self.bytes, entries as u64);
    }

    /// The content.
    pub fn content(&self) -> &[u8] {
        &self.bytes
    }
}

/// Which data block, and where it is in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockHandle {
    /// Its number among all of the file.
    pub nth: usize,
    /// Where it begins, in bytes.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
}

impl BlockHandle {
    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.to - self.from
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Index {
    separators: Vec<u8>,
    /// Where each separator ends.
    ends: Vec<u32>,
    /// Where each block begins, and where the last one ends.
    offsets: Vec<u64>,
    entries: Vec<u32>,
}

impl Index {
    /// Reads the index of data blocks at these bytes of their file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &[u8], blocks: Range<u64>) -> Result<Self, String> {
        let mut index = Self {
            separators: Vec::new(),
            ends: Vec::new(),
            offsets: vec![blocks.start],
            entries: Vec::new(),
        };
        let mut at = 0;
        while at < bytes.len() {
            let nth = index.ends.len();
            index
                .read_block(bytes, &mut at)
                .ok_or_else(|| format!("what is said of block {nth} cannot be"))?;
            if nth > 0 && index.separator(nth - 1) >= index.separator(nth) {
                return Err(format!(
                    "the separator of block {nth} is not behind the last one"
                ));
            }
        }
        // What it takes is what is counted.
        index.separators.shrink_to_fit();
        index.ends.shrink_to_fit();
        index.offsets.shrink_to_fit();
        index.entries.shrink_to_fit();
        let end = blocks.end;
        match index.offsets.last() {
            Some(&last) if last == end && !index.ends.is_empty() => Ok(index),
            last => Err(format!("the blocks end at {last:?}; expected {end}")),
        }
    }

    fn read_block(&mut self, bytes: &[u8], at: &mut usize) -> Option<()> {
        let len = take_len(bytes, at, KEY_BYTES_MAX)?;
        self.separators
            .extend_from_slice(bytes.get(*at..*at + len)?);
        *at += len;
        let block = take(bytes, at).filter(|&len| len > BLOCK_HEADER as u64)?;
        let entries = take(bytes, at)?;
        self.ends.push(self.separators.len().try_into().ok()?);
        self.offsets.push(self.offsets.last()?.checked_add(block)?);
        self.entries.push(entries.try_into().ok()?);
        Some(())
    }

    /// A key that is behind all of the blocks before, and not behind any of block `nth`.
    pub fn separator(&self, nth: usize) -> &[u8] {
        let start = nth.checked_sub(1).map_or(0, |last| self.ends[last]);
        &self.separators[start as usize..self.ends[nth] as usize]
    }

    /// How many blocks there are; never 0.
    pub fn blocks(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in memory.
    pub fn memory(&self) -> usize {
        self.separators.len() + 16 * self.ends.len()
    }

    /// The block that has the key if any has.
    pub fn find(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.blocks());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.separator(middle) <= key {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Where a block is.
    pub fn handle(&self, nth: usize) -> BlockHandle {
        BlockHandle {
            nth,
            from: self.offsets[nth],
            to: self.offsets[nth + 1],
        }
    }

    /// How many entries a block has.
    pub fn entries(&self, nth: usize) -> u32 {
        self.entries[nth]
    }
}
