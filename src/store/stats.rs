//! Statistics of a store.

use std::sync::Arc;
use std::time::Duration;

pub use crate::hot_cache::HotCacheStats;
pub use crate::lsm::{LevelStats, SpillStats};
pub use crate::metrics::{LatencyStats, StallEvent, StallReason, StallStats};

use crate::Stats;
use crate::metrics::calls::TimedPath;
use crate::metrics::latency::Latency;
use crate::metrics::stalls::{EVENTS_MAX, StallRecorder};
use crate::store::partition::Partition;

/// Statistics of a store, for [`Store::stats`](super::Store::stats).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreStats {
    /// Keys that have a value; with items in sorted files an estimate from above: deleted ones
    /// and those that are in several places may count more than once.
    pub keys: u64,
    /// How many [partitions](super::StoreOptions::partitions) the store has.
    pub partitions: u32,
    /// Those of the index.
    pub index: Stats,
    /// Sequence numbers that were given in all partitions together: at least one for each request of the groups that have
    /// changed something.
    pub sequence: u64,
    /// Bytes of the log that a recovery would read.
    pub log_bytes: u64,
    /// Iterators, transactions and snapshots that are open.
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
    /// How long calls took.
    pub latencies: Latencies,
    /// What changes have waited for.
    pub stalls: Stalls,
    /// Groups of batches for which a GPU was chosen; see [`engine`](super::StoreOptions::engine).
    pub gpu_batches: u64,
    /// Keys of columns of which a GPU has said what values they have, where their records are, or that there are none;
    /// see [`engine`](super::StoreOptions::engine).
    pub gpu_located: u64,
    /// Bytes that the store has taken of the memory of its GPU, as
    /// [`device_memory_budget`](super::StoreOptions::device_memory_budget) counts them.
    pub device_memory_bytes: u64,
    /// What groups of batches took.
    pub steps: Steps,
    /// The sorted files.
    pub spill: SpillStats,
    /// The [hot cache](super::StoreOptions::hot_cache).
    pub hot_cache: HotCacheStats,
}

/// What executing groups of batches took since the opening, by its steps. Of groups of fewer than 384 requests
/// of one partition one in 31 is timed, in place of all of them. Requests that are all gets are not counted, nor is what callers
/// read before it is their turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Steps {
    /// Putting the versions of keys in order; merges. Of batches of several partitions that are not in columns, the answers,
    /// too.
    pub versions: Duration,
    /// Looking up what gets ask for, and making the answers.
    pub answers: Duration,
    /// Writing the log, and with [`Durability::Always`](super::Durability::Always) its sync: what that
    /// took longer than the answers, which are made beside it.
    pub log: Duration,
    /// Giving the index the final values.
    pub index: Duration,
}

/// How long calls took since the opening, by the path that they take. The clock would make short calls slower, so
/// of these a thread times one in [`sample_interval`](LatencyStats::sample_interval): of gets one in 61, of
/// single changes, `multi_get` and pages of ranges one in 7. All others are timed. A call that fails counts, too.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// store.put("ada", "lovelace")?;
/// for (path, latency) in store.stats().latencies.iter() {
///     println!("{path}: {:?}, at most {:?}", latency.p99, latency.max);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// `get` and `get_with` of the store, of snapshots and of transactions; `get_async` up to its callback.
    pub get: LatencyStats,
    /// `multi_get` and `get_columns`, whatever the number of their keys.
    pub multi_get: LatencyStats,
    /// The calls of an iterator that have read a page of items. Others return an item of the page.
    pub range_page: LatencyStats,
    /// One change alone: `put`, `delete`, `merge`, `put_if_absent`, `compare_and_swap`, `swap` and `take`;
    /// asynchronous ones up to their callback. Their stalls count.
    pub change: LatencyStats,
    /// `execute`, `write` and their forms in columns, `execute_async` up to its callback, whatever the number of their
    /// requests. Their stalls count.
    pub batch: LatencyStats,
    /// Commits of transactions that have changed something, those in conflict included.
    pub commit: LatencyStats,
    /// Checkpoints: those that were asked for, and those of the store itself.
    pub checkpoint: LatencyStats,
    /// Compactions of sorted files, moves included, with the time that they wait for their
    /// [rate](super::StoreOptions::compaction_rate).
    pub compaction: LatencyStats,
    /// Syncs of the log.
    pub log_sync: LatencyStats,
}

impl Latencies {
    pub(in crate::store) fn of(partitions: &[Arc<Partition>]) -> Self {
        let states = || partitions.iter().map(|partition| &partition.state);
        let metrics = &partitions[0].state.shared.metrics;
        let of = |path| metrics.latency(path);
        let compactions = states().map(|state| state.tiers.spill.compaction_latency());
        Self {
            get: of(TimedPath::Get),
            multi_get: of(TimedPath::MultiGet),
            range_page: of(TimedPath::RangePage),
            change: of(TimedPath::SingleChange),
            batch: of(TimedPath::Batch),
            commit: of(TimedPath::Commit),
            checkpoint: of(TimedPath::Checkpoint),
            compaction: Latency::stats_of(compactions, 1),
            log_sync: Latency::stats_of(states().map(|state| &state.log.syncs), 1),
        }
    }

    /// All of them, with the names of their paths, which are those of the fields.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let latencies = store.stats().latencies;
    /// let slowest = latencies.iter().max_by_key(|(_, latency)| latency.p99);
    /// println!("{}", slowest.unwrap().0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &LatencyStats)> {
        let Self {
            get,
            multi_get,
            range_page,
            change,
            batch,
            commit,
            checkpoint,
            compaction,
            log_sync,
        } = self;
        [
            ("get", get),
            ("multi_get", multi_get),
            ("range_page", range_page),
            ("change", change),
            ("batch", batch),
            ("commit", commit),
            ("checkpoint", checkpoint),
            ("compaction", compaction),
            ("log_sync", log_sync),
        ]
        .into_iter()
    }
}

/// What changes have waited for since the opening, beside their own work. Each stall is also an event of the
/// crate `tracing`, of level `INFO`.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// store.put("ada", "lovelace")?;
/// let stalls = store.stats().stalls;
/// println!("{:?} in all for the memory budget", stalls.memory_budget.total);
/// for stall in &stalls.recent {
///     println!("{:?}: {} for {:?}", stall.began, stall.reason, stall.waited);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalls {
    /// For [`StallReason::MemoryBudget`]: at most a second each.
    pub memory_budget: StallStats,
    /// For [`StallReason::Log`].
    pub log: StallStats,
    /// For [`StallReason::Checkpoint`].
    pub checkpoint: StallStats,
    /// For [`StallReason::FullDisk`].
    pub full_disk: StallStats,
    /// For [`StallReason::Queue`].
    pub queue: StallStats,
    /// For [`StallReason::Compaction`]: at most a second each.
    pub compaction: StallStats,
    /// The last 32, the latest last.
    pub recent: Vec<StallEvent>,
}

impl Stalls {
    /// Those of all partitions, and of the queue for several of them.
    pub(in crate::store) fn of(partitions: &[Arc<Partition>], queue: &StallRecorder) -> Self {
        let metrics = &partitions[0].state.shared.metrics;
        let mut recent = Vec::new();
        let mut stalls = Self {
            checkpoint: metrics.checkpoint_stalls.stats(&mut recent),
            full_disk: metrics.full_disk_stalls.stats(&mut recent),
            queue: queue.stats(&mut recent),
            ..Self::default()
        };
        for partition in partitions {
            let state = &partition.state;
            if let Some(budget) = &state.budget {
                stalls.memory_budget.add(budget.stalls.stats(&mut recent));
            }
            stalls.log.add(state.log.stalls.stats(&mut recent));
            stalls.queue.add(partition.queue.stalls.stats(&mut recent));
            let compaction = state.tiers.spill.stalls();
            stalls.compaction.add(compaction.stats(&mut recent));
        }
        recent.sort_by_key(|event| event.began);
        stalls.recent = recent.split_off(recent.len().saturating_sub(EVENTS_MAX));
        stalls
    }

    /// Those of each reason.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let stalls = store.stats().stalls;
    /// let count: u64 = stalls.iter().map(|(_, stats)| stats.count).sum();
    /// println!("{count} stalls");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (StallReason, &StallStats)> {
        let Self {
            memory_budget,
            log,
            checkpoint,
            full_disk,
            queue,
            compaction,
            recent: _,
        } = self;
        [
            (StallReason::MemoryBudget, memory_budget),
            (StallReason::Log, log),
            (StallReason::Checkpoint, checkpoint),
            (StallReason::FullDisk, full_disk),
            (StallReason::Queue, queue),
            (StallReason::Compaction, compaction),
        ]
        .into_iter()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
