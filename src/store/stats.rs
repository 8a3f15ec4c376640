//! Figures of a store.

use crate::Stats;

/// Figures of a store, for [`Store::stats`](super::Store::stats).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreStats {
    /// Keys that have a value.
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
    /// Records of the log that opening has carried out again.
    pub replayed_records: u64,
}
