//! A sorted string table: one file of items in ascending order of their keys, written once.
//!
//! ```text
//!  | header | data block | ... | data block | filter | index | properties | footer |
//!
//!  footer (40 bytes)
//!  0        8       16           24         32      40
//!  | filter | index | properties | checksum | magic |
//! ```
//!
//! The words *filter*, *index* and *properties* say at which byte of the file these blocks begin.
//! All blocks have the form that [frame](gphash_block::frame) draws. The seed of every checksum behind the header is
//! the header's checksum plus its own offset, from the filter on the complement of that sum. So a
//! block counts at its offset in its file alone, and none behind the data can be taken for data.

mod check;
#[cfg(all(test, not(loom)))]
mod forged_tests;
mod reader;
mod salvage;
mod writer;

use std::path::Path;

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use check::Checked;
#[cfg(feature = "cuda")]
pub use gphash_block::data::common_prefix;
pub use gphash_block::data::{BLOCK_BYTES, Block, Decoded};
pub use gphash_block::index::BlockHandle;
pub use reader::{MetaBlocks, Sst};
pub use salvage::Salvage;
#[cfg(feature = "cuda")]
pub use writer::MadeBlock;
pub use writer::{Writer, is_next};

use super::header::{HEADER, Header, NUMBERS_MAX};
use crate::layout::preamble::FileFormat;
use crate::pm::PmFile;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"GPHSST\r\n";

const FORMAT: FileFormat = FileFormat {
    magic: MAGIC,
    version: 3,
};

/// Last bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Footer {
    filter: u64,
    index: u64,
    properties: u64,
    checksum: u64,
    magic: [u8; 8],
}

const FOOTER: usize = 40;
const_assert_eq!(size_of::<Footer>(), FOOTER);

/// The header of file `number`.
pub fn header(store_id: [u64; 2], number: u64) -> Header {
    Header::new(FORMAT, store_id, number)
}

impl Footer {
    fn sum(&self, seed: u64) -> u64 {
        xxh3_64_with_seed(&bytemuck::bytes_of(self)[..24], seed)
    }

    fn seal(mut self, seed: u64) -> Self {
        self.magic = MAGIC;
        self.checksum = self.sum(seed);
        self
    }

    /// Reads the footer at byte `at`.
    fn read(bytes: &[u8], header: &Header, at: u64, path: &Path) -> Result<Self> {
        let footer: Self = bytemuck::try_pod_read_unaligned(bytes).map_err(|_| {
            let found = format!("{} bytes; expected {FOOTER}", bytes.len());
            damaged(path, "footer of the SST", at, found)
        })?;
        let expected = footer.sum(header.end_seed(at));
        if footer.magic != MAGIC || footer.checksum != expected {
            let found = format!("{bytes:02x?}; its checksum would be {expected:#x}");
            return Err(damaged(path, "footer of the SST", at, found));
        }
        let offsets = [
            HEADER as u64,
            footer.filter,
            footer.index,
            footer.properties,
            at,
        ];
        if !offsets.is_sorted() {
            let found = format!("blocks at {offsets:?}");
            return Err(damaged(path, "offsets of the SST's blocks", at, found));
        }
        Ok(footer)
    }

    /// From which byte to which filter and index go.
    fn meta(&self) -> (u64, u64) {
        (self.filter, self.properties)
    }
}

/// The store that a file says that it belongs to, if its header is whole.
///
/// # Errors
/// What the operating system answers, [`Error::NewerFormat`] and [`Error::OlderFormat`].
pub fn store_of(file: &PmFile) -> Result<Option<[u64; 2]>> {
    let bytes = reader::read_exactly(file, 0, HEADER as u64)?;
    let header = Header::read(&bytes, FORMAT, file.path())?;
    Ok(header.map(|header| header.preamble.store_id))
}

/// The name of file `number` in its directory.
pub fn name(number: u64) -> String {
    format!("{number:012}.sst")
}

/// The name of what takes the place of file `number`.
pub fn next_name(number: u64) -> String {
    name(number) + NEXT
}

/// Whether a file has a name that only one has which was left behind.
pub fn is_left_behind(file_name: &str) -> bool {
    let name = file_name.strip_suffix(NEXT);
    name.is_some_and(|name| number(name).is_some())
}

const NEXT: &str = ".next";

/// The number of the file that has this name.
pub fn number(file_name: &str) -> Option<u64> {
    let number = file_name.strip_suffix(".sst")?.parse().ok()?;
    (number < NUMBERS_MAX && name(number) == file_name).then_some(number)
}

/// The hash by which filters know a key.
pub fn key_hash(store_id: [u64; 2], key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, store_id[0])
}

fn damaged(path: &Path, what: &'static str, at: u64, found: String) -> Error {
    Error::Damaged {
        path: path.to_path_buf(),
        what,
        at,
        found,
    }
}
