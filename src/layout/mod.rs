//! Every byte of the file: the structs, their sizes and offsets, and the words they hold.
//!
//! ```text
//!       0  superblock, copy 0
//!    4096  superblock, copy 1
//!    8192  reserved buckets: one for each key value that equals a slot state
//!          (keys of variable length: the table of size classes, and a store's mark)
//!   16384  extent table, area 0: one entry for each extent, appended
//!   65536  metadata block, copy 0
//!   69632  metadata block, copy 1
//!   73728  extent table, area 1: the superblock says which one holds
//!  122880  extents: levels and record arenas, in the order of their making
//! ```
//!
//! Offsets are bytes from the start of the file, never addresses. All numbers are little endian.
//! `docs/format.md` draws what stands here; `ptx/include/layout.cuh` mirrors it for the kernels.
//! The files beside it that make a store share a [`preamble`] (`docs/store.md`).

pub mod bucket;
pub mod checksum;
pub mod extent;
pub mod hash;
pub mod mark;
pub mod preamble;
pub mod record;
pub mod shape;
pub mod size_class;
pub mod superblock;

pub use crate::column::metadata;
pub use crate::column::metadata::MetadataPage;
pub use crate::column::{Column, ColumnRole, DType, KeyKind, Metadata};
pub use bucket::{BUSY, EMPTY, RESERVED_WORD};
pub use extent::{ExtentEntry, ExtentKind};
pub use hash::KeyHash;
pub use mark::Mark;
pub use preamble::{FileFormat, Preamble};
pub use record::RecordWord;
pub use shape::{KeyClass, Shape};
pub use superblock::{Features, Flags, Superblock};

#[cfg(not(target_endian = "little"))]
compile_error!("the file is little endian and used without conversion, so the machine must be too");

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

/// Largest file, in bytes: what the offset of a [`RecordWord`] can name.
pub const MAX_FILE: u64 = 1 << 56;

/// Rounds `value` up to a multiple of `unit`, a power of two.
pub const fn align_up(value: u64, unit: u64) -> u64 {
    (value + unit - 1) & !(unit - 1)
}
