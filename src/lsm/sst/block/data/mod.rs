//! What a data block holds: entries in ascending order of their keys.
//!
//! ```text
//!  entries ... | restart point (4 bytes) | ... | number of restart points (4 bytes)
//!
//!  entry:  shared | rest | sequence | value | rest of the key ... | value ...
//! ```
//!
//! The first four fields of an entry are numbers of variable length. *shared* is
//! how many bytes the key has from the one before, *rest* how many stand here. *value* is 0 for a tombstone,
//! else 1 plus twice the length of the value, which follows, or 2 plus twice the length of one in a
//! value file, to which a reference follows. At a restart point, which is the offset of
//! an entry in the block, *shared* is 0.
//!
//! ```text
//!  reference:  file | offset | checksum (8 bytes)
//! ```

mod builder;
mod decoded;

use std::cmp::Ordering;
use std::ops::Range;

pub use builder::Builder;
pub use decoded::Decoded;

use gphash_layout::mark::COUNT_LIMIT;
use gphash_layout::width::to_usize;

use crate::frame::{BLOCK_HEADER, check};
use crate::varint::{take, take_len};
use crate::{Entry, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX, Value, ValueRef};

/// Bytes of entries, each as long as it [counts](counted_len), after which a block ends. So where it ends is known of
/// all blocks at once, whatever is in those before.
pub const BLOCK_BYTES: usize = 4 << 10;

/// What an entry counts beside its key and its value, in bytes.
const ENTRY_OVERHEAD: usize = 8;

/// What a reference counts, in bytes.
const REF_BYTES: usize = 16;

/// What an entry counts for the lengths of its block and of its file. Keys count whole, so that what a block is in
/// memory is bounded, too.
pub fn counted_len(entry: &Entry) -> usize {
    let value = match entry.value {
        Some(Value::Inline(value)) => value.len(),
        Some(Value::Apart(_)) => REF_BYTES,
        None => 0,
    };
    entry.key.len() + value + ENTRY_OVERHEAD
}

/// How many bytes two keys have in common at their beginning.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// An entry as it stands in its block.
struct RawEntry {
    shared: usize,
    rest: Range<usize>,
    sequence: u64,
    value: Option<RawValue>,
}

/// A value as it stands in its block.
#[derive(Debug, Clone)]
pub enum RawValue {
    /// These bytes of the block.
    Inline(Range<usize>),
    /// In a value file.
    Apart(ValueRef),
}

/// The fourth field of an entry.
fn code_of(value: Option<Value>) -> u64 {
    match value {
        None => 0,
        Some(Value::Inline(value)) => 2 * value.len() as u64 + 1,
        Some(Value::Apart(value)) => 2 * value.len as u64 + 2,
    }
}

/// A data block in memory.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    /// Where the entries end and the restart points begin.
    end: usize,
}

/// Takes a value of `len` bytes, or the reference to it, off `bytes`.
#[inline]
fn take_value(bytes: &[u8], at: &mut usize, len: usize, is_apart: bool) -> Option<RawValue> {
    if !is_apart {
        let end = *at + len;
        let range = std::mem::replace(at, end)..end;
        let fits = len <= INLINE_VALUE_BYTES_MAX && end <= bytes.len();
        return fits.then_some(RawValue::Inline(range));
    }
    let (file, offset) = (take(bytes, at)?, take(bytes, at)?);
    let checksum = bytes.get(*at..)?.first_chunk()?;
    *at += checksum.len();
    let value = ValueRef {
        file,
        offset,
        len,
        checksum: u64::from_le_bytes(*checksum),
    };
    value.end().map(|_| RawValue::Apart(value))
}

fn broken() -> String {
    String::from("an entry that cannot be one")
}

/// What a block has of a key: its sequence number, and where its value is unless it is a tombstone.
#[derive(Debug)]
pub struct Found {
    /// The number of the request that left it.
    pub sequence: u64,
    /// `None` for a tombstone.
    pub value: Option<RawValue>,
}

impl Block {
    /// The data block that stands so in its file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(bytes: Vec<u8>, seed: u64) -> Result<Self, String> {
        check(&bytes, seed)?;
        let content = bytes.len() - BLOCK_HEADER;
        let count = bytes
            .last_chunk::<4>()
            .map_or(0, |count| u32::from_le_bytes(*count));
        let restarts = 4 * (u64::from(count) + 1);
        if count == 0 || restarts > content as u64 {
            return Err(format!("{count} restart points in {content} bytes"));
        }
        let end = bytes.len() - to_usize(restarts);
        Ok(Self { bytes, end })
    }

    /// Bytes in memory.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// The value of an entry.
    #[inline]
    pub fn value(&self, value: &RawValue) -> Value<'_> {
        match value {
            RawValue::Inline(range) => Value::Inline(&self.bytes[range.clone()]),
            RawValue::Apart(value) => Value::Apart(*value),
        }
    }

    /// Takes the entry at `at`; `None` if there can be none.
    #[inline]
    fn take(&self, at: &mut usize) -> Option<RawEntry> {
        let bytes = &self.bytes[..self.end];
        let shared = take_len(bytes, at, KEY_BYTES_MAX)?;
        let rest = take_len(bytes, at, KEY_BYTES_MAX - shared)?;
        let sequence = take(bytes, at).filter(|sequence| *sequence < COUNT_LIMIT)?;
        let code = take_len(bytes, at, 2 * VALUE_BYTES_MAX + 2)?;
        let key_end = *at + rest;
        if key_end > bytes.len() {
            return None;
        }
        let rest = *at..key_end;
        *at = key_end;
        let value = match code.checked_sub(1) {
            None => None,
            Some(code) => Some(take_value(bytes, at, code / 2, code % 2 == 1)?),
        };
        Some(RawEntry {
            shared,
            rest,
            sequence,
            value,
        })
    }

    /// Where the entry of a restart point is.
    fn restart(&self, nth: usize) -> usize {
        let at = self.end + 4 * nth;
        let word = self.bytes[at..]
            .first_chunk()
            .map_or(0, |word| u32::from_le_bytes(*word));
        BLOCK_HEADER.saturating_add(word as usize).min(self.end)
    }

    /// How many groups of entries there are: from each restart point to the next. Never 0.
    #[inline]
    pub fn groups(&self) -> usize {
        (self.bytes.len() - 4 - self.end) / 4
    }

    /// Where the entries of a group are. All groups have all entries.
    fn group(&self, nth: usize) -> Range<usize> {
        let start = match nth {
            0 => BLOCK_HEADER,
            _ => self.restart(nth),
        };
        let is_last = nth + 1 == self.groups();
        start..if is_last {
            self.end
        } else {
            self.restart(nth + 1)
        }
    }

    /// The last group whose first key satisfies `before`, or the first group.
    ///
    /// # Errors
    /// If an entry cannot be one.
    #[inline]
    pub fn find_group(&self, before: impl Fn(&[u8]) -> bool) -> Result<usize, String> {
        let (mut low, mut high) = (0, self.groups());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let entry = self.take(&mut self.restart(middle)).ok_or_else(broken)?;
            match before(&self.bytes[entry.rest]) {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// Looks a key up.
    ///
    /// # Errors
    /// If an entry cannot be one.
    pub fn get(&self, key: &[u8]) -> Result<Option<Found>, String> {
        let mut at = self.restart(self.find_group(|first| first <= key)?);
        // Bytes that the last entry's key has in common with the one sought, which is behind it.
        let mut matched = 0;
        while at < self.end {
            let entry = self.take(&mut at).ok_or_else(broken)?;
            match entry.shared.cmp(&matched) {
                // It differs from the sought key where the last one did.
                Ordering::Greater => continue,
                // It has left the last key where that was still the sought one.
                Ordering::Less => return Ok(None),
                Ordering::Equal => {}
            }
            let rest = &self.bytes[entry.rest.clone()];
            let sought = &key[matched..];
            let common = common_prefix(rest, sought);
            if common == sought.len() && common == rest.len() {
                let (sequence, value) = (entry.sequence, entry.value);
                return Ok(Some(Found { sequence, value }));
            }
            let is_behind = match (rest.get(common), sought.get(common)) {
                (Some(rest), Some(sought)) => rest > sought,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if is_behind {
                return Ok(None);
            }
            matched += common;
        }
        Ok(None)
    }
}
