//! What the host and the kernels of `compaction.cu` share.

use bytemuck::{Pod, Zeroable};

use super::super::memory::Address;

/// What is in the way of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problems(pub u32);

impl Problems {
    pub const NONE: Self = Self(0);
    /// A key is longer than the stride.
    pub const LONG_KEY: Self = Self(2);
}

/// A data block as it stands in its file.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct InputBlock {
    /// Where it begins in the input.
    pub at: u64,
    /// Of its checksum.
    pub seed: u64,
    pub len: u32,
    pub entries: u32,
    /// The number of its first entry.
    pub first: u32,
    pub reserved: u32,
}

/// A new data block.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct OutputBlock {
    /// Where it begins in the output.
    pub at: u64,
    /// What all entries before it count.
    pub position: u64,
    pub smallest_sequence: u64,
    pub largest_sequence: u64,
    /// The number of its first entry.
    pub first: u32,
    pub tombstones: u32,
    pub first_key_len: u32,
    pub last_key_len: u32,
}

/// What a new file has in a value file: bytes, and the byte behind the last one.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Use {
    pub bytes: u64,
    pub end: u64,
}

/// Where the filter of a new file is among those of all: its first block of 32 bytes, and how many it has.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct FilterRange {
    pub first: u32,
    pub blocks: u32,
}

#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Status {
    pub problems: u32,
    pub longest_key: u32,
    pub tombstones: u32,
    pub reserved: u32,
}

/// Bytes of a block of a filter.
pub const FILTER_BLOCK: usize = 32;

/// Bytes of an entry in device memory.
pub const ENTRY: usize = 32;

/// A job as one launch sees it.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct View {
    pub input: Address,
    pub blocks: Address,
    pub bounds: Address,
    pub entries: Address,
    pub keys: Address,
    pub order: Address,
    pub kept: Address,
    pub numbers: Address,
    pub positions: Address,
    pub starts: Address,
    pub firsts: Address,
    pub shared: Address,
    pub offsets: Address,
    pub output: Address,
    pub filters: Address,
    pub filter_ranges: Address,
    pub described: Address,
    pub ends: Address,
    pub seeds: Address,
    pub files: Address,
    pub value_files: Address,
    pub uses: Address,
    pub tombstones: Address,
    pub status: Address,
    pub hash_seed: u64,
    pub block_bytes: u64,
    pub file_bytes: u64,
    pub value_bytes_min: u64,
    pub block_count: u32,
    pub entry_count: u32,
    pub stride: u32,
    pub prefix: u32,
    pub from_len: u32,
    pub to_len: u32,
    pub new_blocks: u32,
    pub value_file_count: u32,
}
