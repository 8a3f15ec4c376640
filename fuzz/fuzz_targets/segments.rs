//! Damage to the segments of a log, under checksums that match or not.

use arbitrary::Arbitrary;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// One change to a segment.
#[derive(Arbitrary, Debug)]
pub enum Patch {
    /// A word of the header, under a checksum that matches.
    Header {
        word: u8,
        value: u64,
    },
    /// A word of a record's header, under checksums that match.
    Record {
        nth: u8,
        word: u8,
        value: u64,
    },
    Byte {
        at: u16,
        value: u8,
    },
    Cut {
        at: u16,
    },
    Zeros {
        at: u16,
        len: u8,
    },
    Bytes(Vec<u8>),
    /// One segment becomes another one.
    Swap {
        other: u8,
    },
    Remove,
}

const HEADER: usize = 64;
const RECORD: usize = 48;
const ENTRY: usize = 12;

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// Where record `nth` begins.
fn record(bytes: &[u8], nth: u8) -> Option<usize> {
    let mut at = HEADER;
    for _ in 0..nth % 16 {
        let len = usize::try_from(word(bytes, at + 8)?).ok()?;
        at = at
            .checked_add(RECORD)?
            .checked_add(len.checked_next_multiple_of(8)?)?;
        // No file is so long, whatever a record says.
        bytes.get(at..at.checked_add(RECORD)?)?;
    }
    (at + RECORD <= bytes.len()).then_some(at)
}

fn seal_record(bytes: &mut [u8], at: usize) -> Option<()> {
    let seed = word(bytes, 48)?.wrapping_add(at as u64);
    let len = usize::try_from(word(bytes, at + 8)?).ok()?;
    let start = at + RECORD;
    if let Some(entries) = bytes.get(start..start.checked_add(len)?) {
        let sum = xxh3_64_with_seed(entries, seed);
        put(bytes, at + 40, sum);
    }
    let check = xxh3_64_with_seed(bytes.get(at + 8..start)?, seed);
    put(bytes, at, check);
    Some(())
}

/// Changes a word of what the first entry of record `nth` says of a group of several partitions: its number, or a
/// record of another partition. The checksums match.
// Only where there are several.
#[allow(dead_code)]
pub fn forge_part(bytes: &mut [u8], nth: u8, word: u8, value: u8) {
    if let Some(at) = record(bytes, nth) {
        let words = at + RECORD + ENTRY;
        put(bytes, words + usize::from(word % 5) * 8, value.into());
        seal_record(bytes, at);
    }
}

impl Patch {
    pub fn apply(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Header { word, value } => {
                put(bytes, usize::from(word % 7) * 8, value);
                if let Some(head) = bytes.get(..56) {
                    let sum = xxh3_64(head);
                    put(bytes, 56, sum);
                }
            }
            Self::Record { nth, word, value } => {
                if let Some(at) = record(bytes, nth) {
                    put(bytes, at + 8 + usize::from(word % 5) * 8, value);
                    seal_record(bytes, at);
                }
            }
            Self::Byte { at, value } => {
                let len = bytes.len().clamp(1, 8192);
                if let Some(byte) = bytes.get_mut(usize::from(at) % len) {
                    *byte = value;
                }
            }
            Self::Cut { at } => bytes.truncate(usize::from(at) % 8192),
            Self::Zeros { at, len } => {
                let start = usize::from(at) % bytes.len().clamp(1, 8192);
                let end = bytes.len().min(start + usize::from(len));
                bytes[start.min(end)..end].fill(0);
            }
            Self::Bytes(new) => *bytes = new,
            Self::Swap { .. } | Self::Remove => unreachable!("a change of files"),
        }
    }
}
