//! Damage to a copy of the manifest, under a checksum that matches or not.

use arbitrary::Arbitrary;
use xxhash_rust::xxh3::xxh3_64;

/// One change to it.
#[derive(Arbitrary, Debug)]
pub enum Patch {
    Bytes(Vec<u8>),
    /// Words of the header, under a checksum that matches.
    Words(Vec<(u8, u64)>),
    /// Any bytes, likewise.
    Sealed(Vec<(u8, u8)>),
    Patched(Vec<(u8, u8)>),
    Cut(u8),
}

/// Bytes before the name of the merge operator, and the checksum.
const HEADER: usize = 80 + 8;

fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 8;
    let sum = xxh3_64(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

fn patch(bytes: &mut [u8], patches: &[(u8, u8)]) {
    for &(at, value) in patches {
        let at = usize::from(at) % bytes.len();
        bytes[at] = value;
    }
}

impl Patch {
    pub fn is_sealed(&self) -> bool {
        matches!(self, Self::Words(_) | Self::Sealed(_))
    }

    pub fn apply(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Bytes(new) => *bytes = new,
            Self::Cut(len) => bytes.truncate(usize::from(len)),
            // Nothing is left of it.
            _ if bytes.len() < HEADER => {}
            Self::Words(words) => {
                for (nth, value) in words {
                    let at = usize::from(nth % 8) * 8;
                    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
                seal(bytes);
            }
            Self::Sealed(patches) => {
                patch(bytes, &patches);
                seal(bytes);
            }
            Self::Patched(patches) => patch(bytes, &patches),
        }
    }
}
