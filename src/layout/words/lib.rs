//! The words of the file: hashes, slots, records, extents and size classes, the shape of a table, and where the parts of
//! the file lie.

pub mod bucket;
pub mod checksum;
pub mod extent;
pub mod hash;
pub mod mark;
pub mod record;
pub mod shape;
pub mod size_class;
pub mod width;

pub use bucket::{BUSY, EMPTY, RESERVED_WORD};
pub use extent::{ExtentEntry, ExtentKind};
pub use hash::KeyHash;
pub use mark::Mark;
pub use record::RecordWord;
pub use shape::{ImpossibleShape, KeyClass, Shape};

use size_class::RecordHeader;
use xxhash_rust::xxh3::Xxh3;

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "the file is little endian and used without conversion, and its offsets have 64 bits, as pointers must"
);

/// Granularity of extents, of the dirty map and of checkpoints, in bytes.
pub const PAGE: u64 = 4096;

/// Alignment of extents of at least that size, so that huge pages can back them.
pub const HUGE_PAGE: u64 = 2 << 20;

/// What the design calls a PM touch: one distinct aligned line of this many bytes, which is
/// what a GPU moves over PCIe at the price of one address translation.
pub const LINE: u64 = 128;

/// Offsets of the two copies of the superblock.
pub const SUPERBLOCKS: [u64; 2] = [0, PAGE];

/// Offset of the first reserved bucket (key [`EMPTY`]); the second (key [`BUSY`]) lies
/// [`RESERVED_BUCKET_STRIDE`] further on.
pub const RESERVED_BUCKETS: u64 = 2 * PAGE;

/// Distance of the two reserved buckets, in bytes.
pub const RESERVED_BUCKET_STRIDE: u64 = PAGE;

/// Offsets of the two areas for the extent table.
pub const EXTENT_TABLES: [u64; 2] = [4 * PAGE, 18 * PAGE];

/// Bytes of an extent table.
pub const EXTENT_TABLE_LEN: u64 = 12 * PAGE;

/// Offsets of the two copies of the metadata block.
pub const METADATA: [u64; 2] = [16 * PAGE, 17 * PAGE];

/// Offset of the first extent.
pub const DATA_START: u64 = EXTENT_TABLES[1] + EXTENT_TABLE_LEN;

/// Entries for levels in memory, by their numbers.
pub const DIRECTORY: usize = 48;

/// Largest file, in bytes: what the offset of a [`RecordWord`] can name.
pub const MAX_FILE: u64 = 1 << 56;

/// Rounds `value` up to a multiple of `unit`, a power of two.
#[inline]
pub const fn align_up(value: u64, unit: u64) -> u64 {
    (value + unit - 1) & !(unit - 1)
}

/// What has the checksum of a record of variable length for its digest once it was given what is behind `header`,
/// in parts.
#[inline]
pub fn record_hasher(header: &RecordHeader) -> Xxh3 {
    header.hasher()
}
