//! Statistics of a store.

use std::time::Duration;

pub use crate::lsm::{LevelStats, SpillStats};

use crate::Stats;

/// Statistics of a store, for [`Store::stats`](super::Store::stats).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreStats {
    /// Keys that have a value; with items in sorted files an estimate from above: deleted ones
    /// and those that are in several places may count more than once.
    pub keys: u64,
    /// Those of the index.
    pub index: Stats,
    /// Sequence number of the last request that has changed something.
    pub sequence: u64,
    /// Bytes of the log that a recovery would read.
    pub log_bytes: u64,
    /// Iterators and transactions that are open.
    pub snapshots: usize,
    /// Values that were replaced and are kept for them.
    pub kept_versions: usize,
    /// Bytes of memory that these take, with their keys.
    pub kept_memory_bytes: u64,
    /// Bytes of those that have no room in the memory budget and are in a file.
    pub kept_file_bytes: u64,
    /// Records of the log that opening has replayed.
    pub replayed_records: u64,
    /// Bytes that the index's records take, counted if there is a memory budget.
    pub record_bytes: u64,
    /// Bytes of the index's levels, which it keeps once it has grown.
    pub level_bytes: u64,
    /// Items that have left the index for sorted files since the opening.
    pub items_evicted: u64,
    /// Items that have come up into the index again, since they were read.
    pub items_promoted: u64,
    /// Values that were found in sorted files.
    pub read_below: u64,
    /// Changes that waited for room in the memory budget.
    pub stalls: u64,
    /// How long they waited.
    pub stalled: Duration,
    /// Groups of batches for which a GPU was chosen; see [`engine`](super::StoreOptions::engine).
    pub gpu_batches: u64,
    /// What groups of batches took.
    pub steps: Steps,
    /// The sorted files.
    pub spill: SpillStats,
}

/// What executing groups of batches took since the opening, by its steps. Requests that are all gets
/// are not counted, nor is what callers read before it is their turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Steps {
    /// Putting the versions of keys in order; merges.
    pub versions: Duration,
    /// Looking up what gets ask for, and making the answers.
    pub answers: Duration,
    /// Writing the log, and with [`Durability::Always`](super::Durability::Always) its sync: what that
    /// took longer than the answers, which are made beside it.
    pub log: Duration,
    /// Giving the index the final values.
    pub index: Duration,
}
