//! What all partitions of a store share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::Result;
use crate::engine::DeviceBudget;
use crate::hot_cache::{Blocked, HotCache};
use crate::lsm::{GpuCompaction, MetaBlocks};
use crate::metrics::calls::StoreMetrics;
use crate::pool::Pool;
use crate::pool::clock::Clock;
use crate::pool::demands::Demands;
use crate::pool::limits;
use crate::pool::prefetch;
use crate::pool::rate_limiter::RateLimiter;
use crate::pool::snapshots::Snapshots;
use crate::pool::threads::Threads;
use crate::store::Partition;
use crate::store::commit::sorter::Sorter;
use crate::store::options::{StoreOptions, WhenFull};
use crate::store::ordered::view::SharedView;
use crate::store::partitions::Partitions;
#[cfg(feature = "cuda")]
use crate::store::partitions::gpu_reads::GpuReads;
use crate::store::wal::Log;
use crate::store::wal::record::Entry;
use crate::sync::commit_clock::CommitClock;
use crate::width::u32_of;

/// Most keys whose lines are asked for before a group is in the log.
const PREFETCHED_KEYS_MAX: usize = 8;

/// See the [module](self).
pub struct Shared {
    pub clock: Arc<CommitClock>,
    pub snapshots: Snapshots,
    pub threads: Threads,
    /// What each partition wants of the memory budget, if there is one.
    pub demands: Option<Arc<Demands>>,
    /// The threads that compact.
    pub compaction: Arc<Pool>,
    pub compaction_rate: Arc<RateLimiter>,
    /// The threads for items on their way out of the tables.
    pub eviction: Pool,
    /// Sorted files and value files that each partition keeps open.
    pub open_files: usize,
    /// Their filters and indexes that are in memory.
    pub meta: Arc<Clock<MetaBlocks>>,
    pub gpu_compaction: Arc<GpuCompaction>,
    #[cfg(feature = "cuda")]
    pub gpu_reads: GpuReads,
    /// What all that a GPU does for the store takes of its memory.
    pub device_budget: DeviceBudget,
    pub metrics: StoreMetrics,
    pub sorter: Sorter,
    pub when_full: WhenFull,
    /// Values of keys that are read often, if it is wanted.
    pub hot_cache: Option<HotCache>,
    pub view: SharedView,
    /// A commit record could not be written, and may be in its log all the same.
    has_failed_commit: AtomicBool,
    /// Held while that changes.
    ruling_out: Mutex<()>,
    /// Held while the logs of all partitions are made durable.
    syncing_logs: Mutex<()>,
    /// See [`Leader::lacks_server`](crate::store::commit::queue::Leader::lacks_server).
    pub lacks_server: AtomicBool,
    /// The log of each partition, once all are open.
    pub logs: OnceLock<Vec<Arc<Log>>>,
    /// The first partition, whose checkpoint is one of all, once all are served.
    pub first: OnceLock<Weak<Partition>>,
    /// All partitions, once they are served.
    pub all: OnceLock<Weak<Partitions>>,
    /// Checkpoints that were taken of a partition.
    pub checkpoints: AtomicU64,
    /// Those of all partitions.
    pub full_checkpoints: AtomicU64,
}

/// The part of the files that a process may have open which a store keeps open, and most of each partition.
const OPEN_FILES_SHARE: usize = 2;
const OPEN_FILES_MAX: usize = 4096;

/// How many files each of so many partitions keeps open.
fn open_files(partitions: usize) -> usize {
    let of_each = limits::open_files_max() / OPEN_FILES_SHARE / partitions;
    of_each.clamp(1, OPEN_FILES_MAX)
}

impl Shared {
    /// That of so many partitions.
    pub fn new(
        partitions: usize,
        options: &StoreOptions,
        (sorter, device_budget): (Sorter, DeviceBudget),
    ) -> Self {
        let compaction = options.compaction_pool();
        let of_each = options
            .of_partition(u32_of(partitions as u64))
            .table_budget();
        let demands = of_each.map(|share| Demands::new(partitions, share));
        let gpu_compaction = GpuCompaction::new(
            options.engine,
            &device_budget,
            options.memory_budget,
            compaction.count(),
            options.gpu_compaction_share,
        );
        Self {
            clock: Arc::new(CommitClock::new(partitions)),
            snapshots: Snapshots::default(),
            threads: Threads::new(options.index.threads, &options.affinity),
            demands: demands.map(Arc::new),
            compaction: Arc::new(compaction),
            compaction_rate: Arc::new(RateLimiter::new(options.compaction_rate)),
            eviction: options.eviction_pool(),
            open_files: open_files(partitions),
            meta: Arc::new(Clock::new(options.meta_bytes())),
            gpu_compaction: Arc::new(gpu_compaction),
            #[cfg(feature = "cuda")]
            gpu_reads: GpuReads::new(options.engine, &device_budget),
            device_budget,
            metrics: StoreMetrics::default(),
            sorter,
            when_full: options.when_full,
            hot_cache: HotCache::new(&options.hot_cache),
            view: SharedView::new(options.ordered),
            has_failed_commit: AtomicBool::new(false),
            ruling_out: Mutex::new(()),
            syncing_logs: Mutex::new(()),
            lacks_server: AtomicBool::new(false),
            logs: OnceLock::new(),
            first: OnceLock::new(),
            all: OnceLock::new(),
            checkpoints: AtomicU64::new(0),
            full_checkpoints: AtomicU64::new(0),
        }
    }

    /// Keeps gets of keys away from the hot cache until what this gives is dropped. The caller publishes these changes
    /// meanwhile, and holds what changes the tables.
    pub fn block_cached<'e>(
        &self,
        finals: impl IntoIterator<Item = &'e Entry<'e>>,
    ) -> Option<Blocked<'_, 'e>> {
        let changes = finals.into_iter().map(|entry| (entry.key, entry.value));
        self.hot_cache.as_ref().map(|cache| cache.block(changes))
    }

    /// Asks for what [`block_cached`](Self::block_cached) is about to change, of a few changes.
    pub fn prefetch_cached(&self, finals: &[Entry]) {
        if let Some(cache) = &self.hot_cache {
            let some = finals.iter().take(PREFETCHED_KEYS_MAX);
            let lines = some.filter_map(|entry| cache.line_of(entry.key));
            lines.for_each(prefetch::line);
        }
    }

    /// Notes that a commit record could not be written.
    pub fn note_failed_commit(&self) {
        let _alone = self.ruling_out.lock();
        self.has_failed_commit.store(true, Ordering::Release);
    }

    /// Sees to it that a commit record that failed does not count, before anything comes into a log behind it.
    ///
    /// # Errors
    /// What the operating system answers; then nothing may come into a log yet.
    pub fn rule_out_failed_commit(&self) -> Result<()> {
        if !self.has_failed_commit.load(Ordering::Acquire) {
            return Ok(());
        }
        let _alone = self.ruling_out.lock();
        if self.has_failed_commit.load(Ordering::Acquire) {
            let first = self.logs.get().and_then(|logs| logs.first());
            // One that is not to be trusted is left for the next segment, from which on the record does not count.
            first.map_or(Ok(()), |log| log.sync())?;
            self.has_failed_commit.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// How many checkpoints were taken, of all partitions and of any.
    pub fn checkpoints(&self) -> (u64, u64) {
        let count = |checkpoints: &AtomicU64| checkpoints.load(Ordering::Relaxed);
        (count(&self.full_checkpoints), count(&self.checkpoints))
    }

    /// Whether a log has records of which a checkpoint could take the place.
    pub fn has_records(&self) -> bool {
        let mut logs = self.logs.get().into_iter().flatten();
        logs.any(|log| log.bytes() > 0)
    }

    /// Makes the records of all partitions durable, if there are several: what one of them makes durable in its index may
    /// be part of a group.
    ///
    /// # Errors
    /// Those of [`sync_logs`](Self::sync_logs).
    pub fn sync_groups(&self) -> Result<()> {
        match self.logs.get().map_or(0, Vec::len) {
            0 | 1 => Ok(()),
            _ => self.sync_logs(),
        }
    }

    /// Makes the records of all partitions durable.
    ///
    /// # Errors
    /// What the operating system answers; each log is tried.
    pub fn sync_logs(&self) -> Result<()> {
        // Others who come meanwhile find nothing left to do, or sync what came after this.
        let _alone = self.syncing_logs.lock();
        let logs = self.logs.get().into_iter().flatten();
        let behind: Vec<_> = logs.filter(|log| log.is_behind()).collect();
        let Some(first) = behind.first() else {
            return Ok(());
        };
        let synced = first.store_dir().each_partition(&behind, |log| log.sync());
        synced.into_iter().fold(Ok(()), Result::and)
    }
}
