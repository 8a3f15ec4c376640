//! A block: what is read, checked and decompressed at a time.
//!
//! ```text
//!  0          8     12    16
//!  | checksum | len | raw | len bytes |
//! ```
//!
//! *checksum* is the XXH3 of all behind it. *raw* is 0 if the bytes are as they are, else how many they
//! are without LZ4. Those of a data block are
//!
//! ```text
//!  entries ... | restart point (4 bytes) | ... | number of restart points (4 bytes)
//!
//!  entry:  shared | rest | sequence | value | rest of the key ... | value ...
//! ```
//!
//! where the first four are numbers of [variable length](super::varint): how many bytes the key has from
//! the one before, how many stand here, the sequence number, and 0 for a tombstone or else one more than
//! the length of the value. At a restart point, which is the place of an entry in the block, `shared`
//! is 0.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use lz4_flex::block::{
    CompressTable, compress_into, compress_into_with_table, decompress_into,
    get_maximum_output_size,
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::super::Entry;
use super::varint::{put, take, take_len};
use super::{LONGEST_KEY, LONGEST_VALUE};

/// Bytes before the content of a block.
pub const BLOCK_HEADER: usize = 16;

/// Bytes of entries in a block, unless a single one is longer.
pub const BLOCK_BYTES: usize = 8 << 10;

/// What an entry counts beside its key and its value, in bytes.
const ENTRY_OVERHEAD: usize = 8;

/// Entries from one restart point to the next.
const RESTART_INTERVAL: usize = 16;

/// LZ4 makes nothing smaller than this.
const BEST_RATIO: u64 = 256;

/// What the compressor needs from block to block.
pub struct Compressor(CompressTable);

impl Compressor {
    pub fn new() -> Self {
        Self(CompressTable::small())
    }

    /// Writes a block with this content behind `out`, compressed if that saves an eighth.
    pub fn write(&mut self, content: &[u8], seed: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let body = start + BLOCK_HEADER;
        out.resize(body + get_maximum_output_size(content.len()), 0);
        let compressed = match content.len() < usize::from(u16::MAX) {
            true => compress_into_with_table(content, &mut out[body..], &mut self.0),
            // The table would be larger from then on, and slower to clear.
            false => compress_into(content, &mut out[body..]),
        };
        let worth = content.len() - content.len() / 8;
        let raw = match compressed {
            Ok(len) if len < worth => {
                out.truncate(body + len);
                content.len() as u32
            }
            _ => {
                out.truncate(body);
                out.extend_from_slice(content);
                0
            }
        };
        let len = (out.len() - body) as u32;
        out[start + 8..start + 12].copy_from_slice(&len.to_le_bytes());
        out[start + 12..body].copy_from_slice(&raw.to_le_bytes());
        let checksum = xxh3_64_with_seed(&out[start + 8..], seed);
        out[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// The header of a block whose content comes in pieces and is not compressed.
pub fn header_of(pieces: &[&[u8]], seed: u64) -> [u8; BLOCK_HEADER] {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut header = [0; BLOCK_HEADER];
    header[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    let mut hash = Xxh3::with_seed(seed);
    hash.update(&header[8..]);
    for piece in pieces {
        hash.update(piece);
    }
    header[..8].copy_from_slice(&hash.digest().to_le_bytes());
    header
}

/// How many bytes the block has that begins with `header`.
pub fn block_len(header: &[u8; BLOCK_HEADER]) -> u64 {
    let len = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    u64::from(len) + BLOCK_HEADER as u64
}

/// The content of a block, and where it begins in the bytes that come back; says what is wrong.
pub fn open(bytes: Vec<u8>, seed: u64) -> Result<(Vec<u8>, usize), String> {
    let Some((header, content)) = bytes.split_first_chunk::<BLOCK_HEADER>() else {
        return Err(format!("{} bytes", bytes.len()));
    };
    let word = |at| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (len, raw) = (word(8), word(12));
    if len as usize != content.len() {
        return Err(format!(
            "{len} bytes of content; expected {}",
            content.len()
        ));
    }
    let checksum = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
    let expected = xxh3_64_with_seed(&bytes[8..], seed);
    if checksum != expected {
        return Err(format!("checksum {checksum:#x}; expected {expected:#x}"));
    }
    if raw == 0 {
        return Ok((bytes, BLOCK_HEADER));
    }
    if u64::from(raw) > u64::from(len) * BEST_RATIO {
        return Err(format!(
            "{len} bytes that were {raw} before their compression"
        ));
    }
    let mut decompressed = vec![0; raw as usize];
    match decompress_into(content, &mut decompressed) {
        Ok(found) if found == raw as usize => Ok((decompressed, 0)),
        Ok(found) => Err(format!("{found} bytes after decompression; expected {raw}")),
        Err(error) => Err(error.to_string()),
    }
}

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
                self.restarts.push(self.bytes.len() as u32);
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
        let count = self.restarts.len() as u32;
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

/// How many bytes two keys have in common at their beginning.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// An entry as it stands in its block.
struct RawEntry {
    shared: usize,
    rest: Range<usize>,
    sequence: u64,
    value: Option<Range<usize>>,
}

/// A data block in memory.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
    /// Where the entries end and the restart points begin.
    end: usize,
}

/// What a block has of a key: its sequence number, and where its value is unless it is a tombstone.
#[derive(Debug)]
pub struct Found {
    pub sequence: u64,
    pub value: Option<Range<usize>>,
}

impl Block {
    /// The data block that stands so in its file; says what is wrong with it.
    pub fn open(bytes: Vec<u8>, seed: u64) -> Result<Self, String> {
        let (bytes, start) = open(bytes, seed)?;
        let content = bytes.len() - start;
        let count = bytes
            .last_chunk::<4>()
            .map_or(0, |count| u32::from_le_bytes(*count));
        let restarts = 4 * (u64::from(count) + 1);
        if count == 0 || restarts > content as u64 {
            return Err(format!("{count} restart points in {content} bytes"));
        }
        let end = bytes.len() - restarts as usize;
        Ok(Self { bytes, start, end })
    }

    /// Bytes in memory.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes at a place that an entry has named.
    pub fn value(&self, place: &Range<usize>) -> &[u8] {
        &self.bytes[place.clone()]
    }

    /// Bytes at a place that an entry has named, in place of the block.
    pub fn into_value(mut self, place: &Range<usize>) -> Vec<u8> {
        self.bytes.truncate(place.end);
        self.bytes.drain(..place.start);
        self.bytes
    }

    /// Takes the entry at `at`; `None` if there can be none.
    #[inline]
    fn take(&self, at: &mut usize) -> Option<RawEntry> {
        let bytes = &self.bytes[..self.end];
        let shared = take_len(bytes, at, LONGEST_KEY)?;
        let rest = take_len(bytes, at, LONGEST_KEY - shared)?;
        let sequence = take(bytes, at)?;
        let code = take_len(bytes, at, LONGEST_VALUE + 1)?;
        let key_end = *at + rest;
        let value_end = key_end + code.saturating_sub(1);
        if value_end > bytes.len() {
            return None;
        }
        let rest = *at..key_end;
        *at = value_end;
        let value = (code > 0).then_some(key_end..value_end);
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
        let word = self.bytes[at..at + 4].try_into().expect("four bytes");
        self.start
            .saturating_add(u32::from_le_bytes(word) as usize)
            .min(self.end)
    }

    /// Looks a key up. `Err` if an entry cannot be one.
    pub fn get(&self, key: &[u8]) -> Result<Option<Found>, String> {
        let broken = || String::from("an entry that cannot be one");
        // The last restart point whose key is not behind the one that is sought.
        let (mut low, mut high) = (0, (self.bytes.len() - 4 - self.end) / 4);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let entry = self.take(&mut self.restart(middle)).ok_or_else(broken)?;
            match self.bytes[entry.rest].cmp(key) {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => low = middle,
            }
        }
        let mut at = self.restart(low);
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
    value: Option<Range<usize>>,
}

impl Decoded {
    /// Decodes a block; says what is wrong with it.
    pub fn new(block: Arc<Block>) -> Result<Self, String> {
        let mut keys: Vec<u8> = Vec::with_capacity(block.end - block.start);
        let mut entries: Vec<DecodedEntry> = Vec::new();
        let mut at = block.start;
        let mut last = 0..0;
        while at < block.end {
            let entry_at = at;
            let entry = block
                .take(&mut at)
                .filter(|entry| entry.shared <= last.len() && keys.len() <= BLOCK_BYTES)
                .ok_or_else(|| format!("no entry at byte {}", entry_at - block.start))?;
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
            value: entry.value.as_ref().map(|place| self.block.value(place)),
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
