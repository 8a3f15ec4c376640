//! A block: what is read, checked and decompressed at a time.
//!
//! ```text
//!  0          8     12    16
//!  | checksum | len | raw | len bytes |
//! ```
//!
//! *checksum* is the XXH3 of all behind it. *raw* is 0 if the bytes are as they are, else how many they
//! are without LZ4.

use lz4_flex::block::{
    CompressTable, compress_into, compress_into_with_table, decompress_into,
    get_maximum_output_size,
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Bytes before the content of a block.
pub const BLOCK_HEADER: usize = 16;

/// LZ4 makes nothing smaller than this.
const COMPRESSION_RATIO_MAX: u64 = 256;

/// Most blocks in a row that are written as they are because blocks before did not compress.
const UNCOMPRESSED_BLOCKS_MAX: u32 = 32;

/// What the compressor needs from block to block.
pub struct Compressor {
    table: CompressTable,
    /// How many blocks are left as they are after the next one that does not compress.
    rest: u32,
    /// How many of those are to come.
    resting: u32,
}

impl Compressor {
    pub fn new() -> Self {
        Self {
            table: CompressTable::small(),
            rest: 1,
            resting: 0,
        }
    }

    /// Compresses into `out` if that saves an eighth; the length then.
    fn compress(&mut self, content: &[u8], out: &mut [u8]) -> Option<usize> {
        // What does not compress mostly has neighbours that do not.
        if self.resting > 0 {
            self.resting -= 1;
            return None;
        }
        let compressed = match content.len() < usize::from(u16::MAX) {
            true => compress_into_with_table(content, out, &mut self.table),
            // The table would be larger from then on, and slower to clear.
            false => compress_into(content, out),
        };
        let worth = content.len() - content.len() / 8;
        let len = compressed.ok().filter(|len| *len < worth);
        self.rest = match len {
            Some(_) => 1,
            None => (2 * self.rest).min(UNCOMPRESSED_BLOCKS_MAX),
        };
        if len.is_none() {
            self.resting = self.rest;
        }
        len
    }

    /// Writes a block with this content behind `out`, compressed if that saves an eighth and it is
    /// tried.
    pub fn write(&mut self, content: &[u8], seed: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let body = start + BLOCK_HEADER;
        out.resize(body + get_maximum_output_size(content.len()), 0);
        let raw = match self.compress(content, &mut out[body..]) {
            Some(len) => {
                out.truncate(body + len);
                len_of(content.len())
            }
            None => {
                out.truncate(body);
                out.extend_from_slice(content);
                0
            }
        };
        let len = len_of(out.len() - body);
        out[start + 8..start + 12].copy_from_slice(&len.to_le_bytes());
        out[start + 12..body].copy_from_slice(&raw.to_le_bytes());
        let checksum = xxh3_64_with_seed(&out[start + 8..], seed);
        out[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// The length of a block as it stands in its header.
fn len_of(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("keys and values have a longest length")
}

/// The header of a block whose content comes in pieces and is not compressed.
pub fn header_of(pieces: &[&[u8]], seed: u64) -> [u8; BLOCK_HEADER] {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut header = [0; BLOCK_HEADER];
    header[8..12].copy_from_slice(&len_of(len).to_le_bytes());
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
    if u64::from(raw) > u64::from(len) * COMPRESSION_RATIO_MAX {
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
