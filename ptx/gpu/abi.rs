//! The structs that a launch passes to the kernels, as `ptx/include/layout.cuh` has them.
//!
//! All of them are plain data: device addresses are numbers here. Tests of gphash compare sizes and
//! offsets with those that the compiled kernels state, and the words of the file with its own.

use bytemuck::{Pod, Zeroable};

use crate::gpu::memory::Address;

/// Levels that a view has room for: as many as a file can name.
pub const DIRECTORY: usize = 48;

/// The frozen bucket cache as a launch sees it; all 0 without one.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CacheView {
    /// 1 + the entry that holds each bucket, by its ordinal.
    pub links: Address,
    /// How often, or when last, each bucket was used; 0 if that is not counted.
    pub access_counts: Address,
    /// Records whose values each entry holds.
    pub records: Address,
    /// The values.
    pub values: Address,
    /// The buckets of the entries, or 0 if every level has a copy.
    pub buckets: Address,
    /// Bytes from one value to the next.
    pub value_stride: u32,
    /// How the buckets are chosen: a `POLICY_…`.
    pub policy: u32,
}

/// The table as one launch sees it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TableView {
    /// Address of offset 0 of the file.
    pub file: Address,
    /// Bytes of the file that the GPU can reach.
    pub file_len: u64,
    /// The file's hash seed.
    pub hash_seed: u64,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value, or of the part of it that a lookup copies.
    pub value_size: u32,
    /// Slots of a bucket.
    pub slots: u32,
    /// Levels at rest.
    pub levels: u32,
    /// Hash locations.
    pub locations: u32,
    /// The lowest live level.
    pub bottom_level: u32,
    /// The highest live level.
    pub top_level: u32,
    /// Bytes of a bucket.
    pub bucket_size: u32,
    /// Bytes of a record.
    pub record_stride: u32,
    /// First byte of each value that a lookup copies; `value_size` says how many.
    pub value_offset: u32,
    /// Offset of the checksum in a record, or 0.
    pub checksum_offset: u32,
    /// Zero.
    pub reserved: u32,
    /// Where the reserved buckets are probed.
    pub reserved_probe: [Address; 2],
    /// One bit for each page of the file, or 0.
    pub dirty: Address,
    /// Offset of each live level in the file.
    pub level_offset: [u64; DIRECTORY],
    /// Where each live level is probed: its copy in device memory, or the file itself.
    pub level_probe: [Address; DIRECTORY],
    /// The frozen bucket cache.
    pub cache: CacheView,
}

/// Records that a launch may take, and where it leaves those it retires.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct RecordsView {
    /// Offsets of records; entry *n* stands at *n* modulo the capacity.
    pub ring: Address,
    /// Entries of the ring, a power of two.
    pub ring_capacity: u64,
    /// First free entry.
    pub head: u64,
    /// End of the free entries, begin of the retired ones.
    pub tail: u64,
    /// End of the retired entries.
    pub retired_tail: u64,
    /// Offsets of two runs of fresh records.
    pub bump_offset: [u64; 2],
    /// Records in each of them.
    pub bump_count: [u64; 2],
    /// Bytes from one to the next.
    pub bump_stride: u64,
}

/// Bins that a thread block sums up; the bins of a batch are a multiple of it.
pub const BIN_CHUNK: u32 = 4096;

/// Most such chunks of a batch.
pub const MOST_CHUNKS: u32 = 256;

/// Most tiles of a change that share their fences.
pub const DEEPEST: u32 = 4;

/// How a batch is put in the order of the offsets that it touches.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AddressSortView {
    /// Offset of each position in the file, 0 for none.
    pub offsets: Address,
    /// Number of each position within its bin.
    pub ranks: Address,
    /// The positions that have an offset, in order.
    pub positions: Address,
    /// Positions in each bin.
    pub bins: Address,
    /// Positions in the bins before each one.
    pub starts: Address,
    /// Positions in each chunk of bins; at [`MOST_CHUNKS`] those in all.
    pub sums: Address,
    /// How many bins there are.
    pub bin_count: u32,
    /// A bin holds 2^`shift` bytes of the file.
    pub shift: u32,
    /// 1 to execute the batch in this order.
    pub wanted: u32,
    /// Zero.
    pub reserved: u32,
}

/// A batch in device memory.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BatchView {
    /// Keys, one behind the other.
    pub keys: Address,
    /// Values, one behind the other.
    pub values: Address,
    /// One bit a position, in whole 64-bit words.
    pub answers: Address,
    /// One byte a position: 1 for those that await slots or records.
    pub pending: Address,
    /// Group of each position, or 0.
    pub entry: Address,
    /// First position of each group.
    pub first: Address,
    /// Last position of each group.
    pub last: Address,
    /// Positions.
    pub len: u32,
    /// Positions that a warp takes at a time: a power of two, 4 to 32.
    pub tile: u32,
    /// 1 to execute pending positions only.
    pub retry: u32,
    /// Tiles that share their fences in a change: up to [`DEEPEST`].
    pub depth: u32,
    /// Which lookups are counted.
    pub sample: u32,
    /// 1 if the values are in records already, whose offsets `values` holds, one a position.
    pub stored: u32,
    /// Its order.
    pub order: AddressSortView,
}

/// The groups of equal keys of a batch.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct GroupsView {
    /// 1 + the position that opened each group.
    pub claims: Address,
    /// First position of each group.
    pub first: Address,
    /// Last position of each group.
    pub last: Address,
    /// Group of each position.
    pub entry: Address,
    /// Entries less one; a power of two of them.
    pub mask: u64,
    /// Of the hash that leads to them; nobody who chooses keys can know it.
    pub seed: u64,
}

/// What a launch did.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Counters {
    /// Records taken: from the ring first, then from the runs. May exceed what there was.
    pub taken: u64,
    /// Records retired.
    pub retired: u64,
    /// Members added less members removed, in two's complement.
    pub items: u64,
    /// Operations that found no slot.
    pub full: u64,
    /// Operations that found no record.
    pub out_of_records: u64,
    /// PM touches.
    pub touches: u64,
    /// Operations executed.
    pub operations: u64,
    /// File offset of a record word that names no record, 0 for none.
    pub damaged: u64,
    /// Operations that need a record.
    pub wanted: u64,
    /// Values that the cache was asked for.
    pub cache_lookups: u64,
    /// Those that it had.
    pub cache_hits: u64,
}

/// `CachePolicy::Lfu` in a [`CacheView`].
pub const POLICY_LFU: u32 = 0;

/// `CachePolicy::Lru`.
pub const POLICY_LRU: u32 = 1;

/// `CachePolicy::Random`.
pub const POLICY_RANDOM: u32 = 2;

/// How many scores there are, by which the buckets to be cached are chosen.
pub const SCORES: usize = 1024;

/// One refresh of the cache.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CacheRefresh {
    /// Buckets of each score that are not linked, then those that are.
    pub scores: Address,
    /// Ordinals of the buckets to be given up.
    pub evicted: Address,
    /// Ordinals of the buckets to be filled in.
    pub incoming: Address,
    /// Entries that hold no bucket.
    pub free: Address,
    /// Entries, and room in each list.
    pub entries: u64,
    /// How many of them hold no bucket.
    pub free_count: u64,
    /// How many linked buckets of the threshold's score stay.
    pub keep: u64,
    /// How many others of that score come in.
    pub enter: u64,
    /// How many come in, whatever their score.
    pub room: u64,
    /// Buckets of a higher score are held.
    pub threshold: u32,
    /// LRU: the tick now; random: differs from refresh to refresh.
    pub round: u32,
    /// LFU: 1 if earlier uses count half from now on.
    pub ages: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a refresh has come to.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CacheOutcome {
    /// Buckets given up.
    pub evicted: u64,
    /// Buckets to be filled in.
    pub incoming: u64,
    /// Free entries asked for. May exceed what there was.
    pub taken: u64,
    /// Of the threshold's score: linked buckets that would stay.
    pub kept: u64,
    /// Others that would come in.
    pub entered: u64,
    /// Of any score: buckets that would come in.
    pub admitted: u64,
    /// Buckets held since this refresh.
    pub linked: u64,
}

/// A range of the file that holds records.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RecordRange {
    /// Offset of the first record.
    pub offset: u64,
    /// Records.
    pub count: u64,
    /// Number of the first record, counted over all ranges.
    pub first_ordinal: u64,
}

/// What a recovery scan found wrong with a slot.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Repair {
    /// File offset of the slot's state word.
    pub at: u64,
    /// [`REPAIR_DUPLICATE`], [`REPAIR_THAW`], or 1: half filled or half emptied.
    pub kind: u64,
}

/// The slot's item has been moved up.
pub const REPAIR_DUPLICATE: u64 = 2;

/// The slot's item was about to be moved.
pub const REPAIR_THAW: u64 = 3;

/// Where a recovery scan of the levels puts what it finds.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RecoveryScanView {
    /// [`RecordRange`]s.
    pub ranges: Address,
    /// One bit a record, by its number.
    pub reachable: Address,
    /// [`Repair`]s.
    pub repairs: Address,
    /// Room for repairs.
    pub repair_capacity: u64,
    /// How many ranges.
    pub range_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a recovery scan found.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct RecoveryScanFindings {
    /// Members.
    pub members: u64,
    /// Slots to repair; may exceed the room for them.
    pub repairs: u64,
    /// Kind and offset of something that no crash leaves, 0 for none.
    pub damage: u64,
}
