//! The frame of a block, which is what is read and checked at a time.
//!
//! ```text
//!  0          8     12
//!  | checksum | len | len bytes |
//! ```
//!
//! *checksum* is the XXH3 of all behind it.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes before the content of a block.
pub const BLOCK_HEADER: usize = 12;

/// Writes a block with this content behind `out`.
///
/// # Panics
/// If the content has 4 GiB or more.
pub fn write(content: &[u8], seed: u64, out: &mut Vec<u8>) {
    let start = out.len();
    let len = u32::try_from(content.len()).expect("keys and values have a longest length");
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(content);
    let checksum = xxh3_64_with_seed(&out[start + 8..], seed);
    out[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// How many bytes the block has that begins with `header`.
#[inline]
pub fn block_len(header: &[u8; BLOCK_HEADER]) -> u64 {
    let [.., a, b, c, d] = *header;
    u64::from(u32::from_le_bytes([a, b, c, d])) + BLOCK_HEADER as u64
}

/// Checks a block, whose content begins behind its header.
///
/// # Errors
/// What is wrong with it.
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
