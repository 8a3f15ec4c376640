//! A block: what is read and checked at a time.
//!
//! ```text
//!  0          8     12
//!  | checksum | len | len bytes |
//! ```
//!
//! *checksum* is the XXH3 of all behind it.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Bytes before the content of a block.
pub const BLOCK_HEADER: usize = 12;

/// Writes a block with this content behind `out`.
pub fn write(content: &[u8], seed: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&header_of(&[content], seed));
    out.extend_from_slice(content);
}

/// The header of a block whose content comes in pieces.
pub fn header_of(pieces: &[&[u8]], seed: u64) -> [u8; BLOCK_HEADER] {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    let len = u32::try_from(len).expect("keys and values have a longest length");
    let mut header = [0; BLOCK_HEADER];
    header[8..].copy_from_slice(&len.to_le_bytes());
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
    let len = u32::from_le_bytes(header[8..].try_into().expect("four bytes"));
    u64::from(len) + BLOCK_HEADER as u64
}

/// Checks a block, whose content begins behind its header; says what is wrong.
pub fn check(bytes: &[u8], seed: u64) -> Result<(), String> {
    let Some((header, content)) = bytes.split_first_chunk::<BLOCK_HEADER>() else {
        return Err(format!("{} bytes", bytes.len()));
    };
    let len = block_len(header) - BLOCK_HEADER as u64;
    if len != content.len() as u64 {
        let expected = content.len();
        return Err(format!("{len} bytes of content; expected {expected}"));
    }
    let checksum = u64::from_le_bytes(*header.first_chunk().expect("eight bytes"));
    let expected = xxh3_64_with_seed(&bytes[8..], seed);
    if checksum != expected {
        return Err(format!("checksum {checksum:#x}; expected {expected:#x}"));
    }
    Ok(())
}
