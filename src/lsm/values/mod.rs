//! Value files: long values apart from their keys (gLSM §5.5.3; WiscKey, FAST 2016). A sorted file has
//! references to them, so a compaction moves keys alone.
//!
//! ```text
//!  | header | value | value | ...
//! ```
//!
//! Values stand one behind the other. Where one begins, how long it is, and its checksum are in the reference:
//! a value is read with one call, and no other can be taken for it. A file is written once, and is removed when no
//! sorted file refers to it.

mod file;
mod salvage;
mod writer;

pub use file::ValueFile;
pub use salvage::ValueSalvage;
pub use writer::ValueWriter;

pub(crate) use gphash_block::{Value, ValueRef, ValueUse};
use xxhash_rust::xxh3::xxh3_64;

use super::header::{Header, NUMBERS_MAX};
use crate::Result;
use crate::layout::preamble::FileFormat;
use crate::pm::Dir;

const FORMAT: FileFormat = FileFormat {
    magic: *b"GPHVAL\r\n",
    version: 1,
};

/// The name of value file `number`.
pub fn name(number: u64) -> String {
    format!("{number:012}{EXTENSION}")
}

const EXTENSION: &str = ".val";

/// The number of the value file that has this name.
pub fn number(file_name: &str) -> Option<u64> {
    let number = file_name.strip_suffix(EXTENSION)?.parse().ok()?;
    (number < NUMBERS_MAX && name(number) == file_name).then_some(number)
}

/// The largest number that a value file in the directory has; 0 if there is none.
///
/// # Errors
/// What the operating system answers.
pub fn last_number(dir: &Dir) -> Result<u64> {
    let names = dir.names()?;
    let numbers = names.iter().filter_map(|name| number(name));
    Ok(numbers.max().unwrap_or(0))
}

fn header(store_id: [u64; 2], number: u64) -> Header {
    Header::new(FORMAT, store_id, number)
}

fn checksum(value: &[u8]) -> u64 {
    xxh3_64(value)
}
