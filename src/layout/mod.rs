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

pub mod preamble;
pub mod superblock;

pub use crate::column::metadata;
pub use crate::column::metadata::MetadataPage;
pub use crate::column::{Column, ColumnRole, DType, KeyKind, Metadata};
pub(crate) use gphash_layout::record_hasher;
pub use gphash_layout::{
    BUSY, DATA_START, EMPTY, EXTENT_TABLE_LEN, EXTENT_TABLES, ExtentEntry, ExtentKind, HUGE_PAGE,
    ImpossibleShape, KeyClass, KeyHash, LINE, MAX_FILE, METADATA, Mark, PAGE,
    RESERVED_BUCKET_STRIDE, RESERVED_BUCKETS, RESERVED_WORD, RecordWord, SUPERBLOCKS, Shape,
    align_up, bucket, checksum, extent, hash, mark, record, shape, size_class,
};
pub use preamble::{FileFormat, Preamble};
pub use superblock::{Features, Flags, Superblock};
