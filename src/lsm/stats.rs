//! Statistics of a spill.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::levels::Levels;
use super::version::LEVELS;
use crate::metrics::StallReason;
use crate::metrics::latency::Latency;
use crate::metrics::stalls::StallRecorder;

/// What has been done since the opening.
#[derive(Debug)]
pub struct Counts {
    pub compactions: AtomicU64,
    pub moves: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    /// Bytes of files whose parts a GPU has merged.
    pub gpu_bytes: AtomicU64,
    /// Nanoseconds that parts of compactions have waited for their rate.
    pub rate_waits: AtomicU64,
    /// How long compactions take.
    pub compaction: Latency,
    /// Additions that wait for compaction.
    pub stalls: StallRecorder,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            compactions: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            gpu_bytes: AtomicU64::new(0),
            rate_waits: AtomicU64::new(0),
            compaction: Latency::new(),
            stalls: StallRecorder::new(StallReason::Compaction),
        }
    }
}

/// What a level of sorted files has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Keys, tombstones among them.
    pub entries: u64,
    /// Keys that were deleted, and may have a value in a deeper level.
    pub tombstones: u64,
}

/// What the sorted files are, and what has been done to them since the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpillStats {
    /// The levels, the newest first, up to the last one that has files.
    pub levels: Vec<LevelStats>,
    /// Merges of files.
    pub compactions: u64,
    /// Compactions that only gave files another level.
    pub moves: u64,
    /// Bytes of files that merges have read, values included.
    pub compaction_read: u64,
    /// Bytes of files that merges have written, values included.
    pub compaction_written: u64,
    /// Those of the bytes read that a GPU has merged, about.
    pub gpu_compaction_read: u64,
    /// How long merges have waited for their [rate](crate::store::StoreOptions::compaction_rate). Waits of several threads
    /// at the same time count once each.
    pub compaction_rate_wait: Duration,
    /// Data blocks that were in the cache.
    pub cache_hits: u64,
    /// Data blocks that were not.
    pub cache_misses: u64,
    /// Bytes of data blocks in memory.
    pub cache_bytes: u64,
    /// Bytes of filters and indexes in memory.
    pub memory: u64,
    /// How often a filter and an index had to be read again: they take three eighths of a memory budget at most.
    pub filter_reads: u64,
    /// Value files.
    pub value_files: u64,
    /// Their bytes, but for those that are being written.
    pub value_bytes: u64,
    /// Bytes of them to which sorted files refer.
    pub live_value_bytes: u64,
}

impl SpillStats {
    /// Those of this moment.
    pub(super) fn of(levels: &Levels) -> Self {
        let mut all = [LevelStats::default(); LEVELS as usize];
        let version = levels.version();
        for (level, sst) in version.files() {
            let stats = &mut all[level as usize];
            stats.files += 1;
            stats.bytes += sst.len();
            stats.entries += sst.properties().entries;
            stats.tombstones += sst.properties().tombstones;
        }
        let used = all.iter().rposition(|level| level.files > 0);
        let (cache_bytes, cache_hits, cache_misses) = levels.cache().stats();
        let values = version.values();
        let counts = &levels.counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            levels: all[..used.map_or(0, |last| last + 1)].to_vec(),
            compactions: count(&counts.compactions),
            moves: count(&counts.moves),
            compaction_read: count(&counts.bytes_read),
            compaction_written: count(&counts.bytes_written),
            gpu_compaction_read: count(&counts.gpu_bytes),
            compaction_rate_wait: Duration::from_nanos(count(&counts.rate_waits)),
            cache_hits,
            cache_misses,
            cache_bytes,
            memory: levels.cache().meta_bytes(),
            filter_reads: levels.cache().meta_reads(),
            value_files: values.len() as u64,
            value_bytes: values.iter().filter_map(|of| of.file.len()).sum(),
            live_value_bytes: values.iter().map(|of| of.bytes).sum(),
        }
    }
}
