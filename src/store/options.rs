//! How a store is opened.

mod device;
mod durability;
mod when_full;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::durability::Durability;
pub use self::when_full::WhenFull;
use super::merge::MergeOperator;
use crate::hot_cache::HotCacheOptions;
use crate::lsm::{INLINE_VALUE_BYTES_MAX, SpillOptions};
use crate::options::check_device_memory_budget;
use crate::pm::Faults;
use crate::pool::affinity::Affinity;
use crate::pool::{Pool, cores};
use crate::store::commit::queue::GROUP_REQUESTS_MAX;
use crate::store::files::identity::{Names, PartitionCount};
use crate::store::files::manifest::{LONGEST_NAME, Manifest, PARTITIONS_MAX};
use crate::store::partitions::Partitioner;
use crate::store::shared::Shared;
use crate::{Domain, Engine, Error, Options, Result};

/// Fewest cores on which a new store has more than one partition by default, and most partitions that it has then.
const DEFAULT_PARTITIONS: (usize, usize) = (4, 64);

/// Least memory budget for each thread that writes files. The allocator keeps for each what it has freed, 1 to 2 MiB, also
/// while another one writes.
const WRITER_BUDGET: u64 = 16 << 20;

/// Least memory budget of each of the partitions that a store has by default.
const DEFAULT_PARTITION_BUDGET: u64 = 64 << 20;

/// Partitions of a new store on so many cores, with this memory budget if it has one.
fn default_partitions(cores: usize, budget: Option<u64>) -> u32 {
    let (fewest, most) = DEFAULT_PARTITIONS;
    let count = if cores < fewest { 1 } else { cores.min(most) };
    let count = u32::try_from(count).expect("it is no more than the most");
    let affordable = budget.map_or(u64::MAX, |bytes| bytes / DEFAULT_PARTITION_BUDGET);
    count
        .min(u32::try_from(affordable).unwrap_or(u32::MAX))
        .max(1)
}

/// The share of the memory budget that is for blocks of the files.
const CACHE_SHARE: u64 = 8;

/// Eighths of the memory budget that filters and indexes of the files take at most: with what each record takes beside itself,
/// the least that is left for records fits beside them.
const META_EIGHTHS: u64 = 3;

/// The share of the memory budget that a segment of the log may be as long as, and what it may be if that is less: a
/// recovery has some in memory.
const SEGMENT_SHARE: u64 = 16;
const LEAST_SEGMENT_MAX: u64 = 1 << 20;

/// Most bytes of the log that are kept in memory until they are durable, and their share of the memory budget.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;
const UNSYNCED_SHARE: u64 = 16;

/// The cache of the blocks of files without a budget: the store had one once.
const DEFAULT_CACHE: u64 = 32 << 20;

/// The share of the budget that a file has, and its bounds.
const FILE_SHARE: u64 = 16;
const LEAST_FILE: u64 = 64 << 10;
const MOST_FILE: u64 = 32 << 20;

/// Bytes of a value file, in those of a sorted file.
const VALUE_FILE_FILES: u64 = 2;

/// Parts into which a compaction is split are at least this share of a file, and so long: each writes a file.
const PARTS_OF_FILE: u64 = 4;
const PART_BYTES_MIN: u64 = 1 << 20;

/// Bytes of the highest level of sorted files that has no runs, in memory budgets.
const LEVEL_BUDGETS: u64 = 10;

/// Called with the bytes of the log that were read, and all bytes.
type Progress = dyn Fn(u64, u64) + Send + Sync;

/// Options of [`Store::open`](super::Store::open).
///
/// ```
/// use std::time::Duration;
/// use gphash::store::{Durability, StoreOptions};
///
/// let options = StoreOptions::new()
///     .capacity(1_000_000)
///     .durability(Durability::Interval(Duration::from_millis(100)));
/// ```
#[derive(Clone)]
pub struct StoreOptions {
    pub(super) index: Options,
    pub(super) engine: Engine,
    pub(super) durability: Durability,
    pub(super) ordered: bool,
    pub(super) partitions: Option<u32>,
    pub(super) when_full: WhenFull,
    pub(super) affinity: Affinity,
    pub(super) group_requests_max: usize,
    pub(super) salvage: bool,
    /// Parts that are older than others are used as they are: the recovery has checked them.
    pub(super) takes_older: bool,
    /// Whatever merge operator and partitioner the store was made with: nothing asks for them.
    pub(super) any_names: bool,
    pub(super) segment_bytes: u64,
    pub(super) checkpoint_bytes: u64,
    pub(super) memory_budget: Option<u64>,
    pub(super) value_file_threshold: usize,
    pub(super) compaction_threads: usize,
    pub(super) compaction_rate: Option<u64>,
    pub(super) hot_cache: HotCacheOptions,
    pub(super) gpu_compaction_share: Option<f64>,
    pub(super) device_memory_budget: Option<u64>,
    pub(super) merge_operator: Option<Arc<dyn MergeOperator>>,
    pub(super) partitioner: Option<Arc<dyn Partitioner>>,
    pub(super) on_replay: Option<Arc<Progress>>,
    pub(super) faults: Option<Arc<dyn Faults>>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            index: Options::new(),
            engine: Engine::Auto,
            durability: Durability::Interval(Duration::from_millis(100)),
            ordered: true,
            partitions: None,
            when_full: WhenFull::Wait,
            affinity: Affinity::default(),
            group_requests_max: GROUP_REQUESTS_MAX,
            salvage: false,
            takes_older: false,
            any_names: false,
            segment_bytes: 64 << 20,
            checkpoint_bytes: 512 << 20,
            memory_budget: None,
            value_file_threshold: Self::DEFAULT_VALUE_FILE_THRESHOLD,
            compaction_threads: 0,
            compaction_rate: None,
            hot_cache: HotCacheOptions::default(),
            gpu_compaction_share: None,
            device_memory_budget: None,
            merge_operator: None,
            partitioner: None,
            on_replay: None,
            faults: None,
        }
    }
}

impl StoreOptions {
    /// Most partitions of a store.
    pub const PARTITIONS_MAX: u32 = PARTITIONS_MAX;

    /// Fewest bytes of a memory budget.
    pub const MIN_BUDGET: u64 = 64 << 10;

    /// Values of so many bytes and more go into value files by default.
    pub const DEFAULT_VALUE_FILE_THRESHOLD: usize = 512;

    /// The largest [threshold of value files](Self::value_file_threshold): longer values always go into one.
    pub const MAX_VALUE_FILE_THRESHOLD: usize = INLINE_VALUE_BYTES_MAX;

    /// Fewest bytes of a log segment.
    pub const MIN_SEGMENT: u64 = 4096;

    /// The defaults: synced every 100 ms, ordered, no merge operator.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keys expected, 1 to [`Options::MAX_CAPACITY`]; the store grows past them by itself. An existing
    /// store has its room already.
    ///
    /// Default: 1,024 keys.
    #[must_use]
    pub fn capacity(mut self, keys: u64) -> Self {
        self.index = self.index.capacity(keys);
        self
    }

    /// Which persistence domain the index's file must have; see [`Domain`]. A file that cannot have it is
    /// refused with [`Error::Domain`].
    ///
    /// Default: [`Domain::Auto`], the strongest that the file can have.
    #[must_use]
    pub fn domain(mut self, domain: Domain) -> Self {
        self.index = self.index.domain(domain);
        self
    }

    /// How many threads may work on one large batch, at most [`Options::MAX_THREADS`]; 0 means one for each
    /// core, or for each of the [`worker_cores`](Self::worker_cores). What of it is in one partition has an equal share of
    /// them, at least one.
    ///
    /// Default: 0.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.index = self.index.threads(threads);
        self
    }

    /// How many threads compact sorted files, for all partitions together, at most [`Options::MAX_THREADS`]. They
    /// share a compaction, each a part of its keys. 0 means half of the cores, at least one: the others are left to
    /// requests. With a [memory budget](Self::memory_budget) it also means no more than one for each 16 MiB of that.
    ///
    /// Default: 0.
    #[must_use]
    pub fn compaction_threads(mut self, threads: usize) -> Self {
        self.compaction_threads = threads;
        self
    }

    /// Bytes a second that compaction of sorted files in the background may read and write, for all partitions together, at
    /// least 1; as a `RateLimiter` of RocksDB for reads and writes, but of compaction alone. What is not used is saved up for
    /// a tenth of a second.
    ///
    /// Requests, evictions, the log and checkpoints are not bounded. All compaction of the store runs at full speed
    /// - while [`compact`](super::Store::compact) runs;
    /// - while level 0 of a partition has 26 runs or more: from 32 on, evictions and changes would wait;
    /// - while a deeper level has more than twice the bytes that it may have;
    /// - while it keeps the thread of a partition at rest from a checkpoint, from many old versions or from much freed
    ///   memory.
    ///
    /// So a rate below what the load needs is exceeded. Until then reads have more runs to search, and files take more room.
    /// [`SpillStats::compaction_rate_wait`](super::SpillStats::compaction_rate_wait) says how long compaction has waited.
    ///
    /// Default: none, no bound.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::StoreOptions;
    ///
    /// let options = StoreOptions::new().memory_budget(64 << 20).compaction_rate(20 << 20);
    /// ```
    #[must_use]
    pub fn compaction_rate(mut self, bytes_per_second: u64) -> Self {
        self.compaction_rate = Some(bytes_per_second);
        self
    }

    /// From when on changes outlive a power cut. An interval must be longer than zero.
    ///
    /// Default: [`Durability::Interval`] of 100 ms.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether ranges can be asked for. The ordered view is made by the first one and then kept: at most 16
    /// bytes of memory a key.
    ///
    /// Default: `true`.
    #[must_use]
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }

    /// How many partitions a new store has: 1 to [`PARTITIONS_MAX`](Self::PARTITIONS_MAX). The hash of a key says
    /// which partition has it (p²KVS §4.2), or a [partitioner](Self::partitioner) does. Each has an index, a log and sorted files of its own, and executes its
    /// requests beside the others; answers are the same for any number. Capacity, memory budget and the bytes of
    /// log until a checkpoint are shared out among them.
    ///
    /// A store keeps the number that it was made with: [`Error::OptionMismatch`](crate::Error::OptionMismatch) for
    /// another one.
    ///
    /// Default: that of the store. A new one has as many as there are cores, at most 64, and one on fewer than four
    /// cores, where threads that meet at a partition wait less than more partitions cost. With a [memory
    /// budget](Self::memory_budget) it has one for each 64 MiB at most.
    ///
    /// More than cores pay where many threads change single keys: fewer of them meet. Fewer pay for ranges and for
    /// batches of some hundred requests, which every partition takes a part in. One keeps the order of asynchronous
    /// changes of one thread also for different keys, and after a power cut everything up to one moment. Several do so
    /// in each partition, and keep batches and transactions whole.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Most requests of several callers that a partition commits as one group: those that have queued while the group before was
    /// committed (p²KVS §4.3). At least 1, with which each request is a group. A longer batch is one by itself.
    ///
    /// Default: 65,536.
    #[must_use]
    pub fn group_requests_max(mut self, requests: usize) -> Self {
        self.group_requests_max = requests;
        self
    }

    /// The cores on which threads of the store run that execute requests, each on one of them: the worker of partition *n* on
    /// number *n* modulo how many are given, and so each thread of the pools for long batches, of which there are as many unless
    /// [`threads`](Self::threads) says otherwise (p²KVS §4 binds each worker to a core). Short requests are executed by
    /// their callers, who run where they are. A core that the process may not use is refused.
    ///
    /// Default: none, the scheduler decides.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Store, StoreOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path(), &StoreOptions::new().worker_cores([0]))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn worker_cores(mut self, cores: impl Into<Vec<usize>>) -> Self {
        self.affinity = Affinity::new(cores.into());
        self
    }

    /// What an asynchronous call does while too many of others wait. [`WhenFull::Refuse`] is for who may not wait, as
    /// on the thread of an executor.
    ///
    /// Default: [`WhenFull::Wait`].
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Whether a log that is damaged, or misses a segment, is used up to there, and the rest of it thrown away, rather
    /// than refused. A segment that the operating system does not let be read is not damaged: that is an error.
    ///
    /// Default: `false`, it is refused.
    #[must_use]
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// Whether a read compares the checksum of a record of the index. If it does not match, the read fails
    /// with [`Error::Damaged`], and all else goes on. Without it what damage has left of a value is given
    /// out as the value.
    ///
    /// Items are evicted to sorted files only with a checksum that matches.
    /// [`verify`](super::Store::verify) and [`recover`](super::recover) compare all of them. The log and
    /// the sorted files are always checked. The bench `store` shows the cost (`--no-checksums`).
    ///
    /// Default: `true`.
    #[must_use]
    pub fn verify_checksums(mut self, verify: bool) -> Self {
        self.index.verify_checksums = Some(verify);
        self
    }

    /// How long the store must rest until room of its index that it does not need goes back to the file system by
    /// itself, or `None` for never; see [`Options::idle_compaction`](crate::Options::idle_compaction). So does what
    /// deletions and new values in the index hide below it, if that is estimated to be more than 16 MiB and an eighth of
    /// the files. It ends with a checkpoint.
    ///
    /// Default: 10 seconds.
    #[must_use]
    pub fn idle_compaction(mut self, after: Option<Duration>) -> Self {
        self.index.idle_compaction = after;
        self
    }

    /// Bytes after which the log goes on in another file, at least [`MIN_SEGMENT`](Self::MIN_SEGMENT). A
    /// longer record has a file of its own. A recovery has two segments in memory. So with a
    /// [memory budget](Self::memory_budget) none is longer than a sixteenth of that, or 1 MiB if that is more.
    ///
    /// Default: 64 MiB.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Bytes of log after which the index is made durable instead, so that a recovery need not read more.
    /// The log keeps as much room on the disk for its next segments until the store is closed.
    ///
    /// Default: 512 MiB.
    #[must_use]
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes = bytes;
        self
    }

    /// Bytes of memory that items may take, at least [`MIN_BUDGET`](Self::MIN_BUDGET). Beyond it the items
    /// that are read least are evicted to sorted files in the directory. The log's unsynced end, old versions and
    /// what else grows with the store count, too: see `docs/store.md`. An eighth of the budget is a cache
    /// of those files' blocks. Changes wait, up to a second, while the index is far beyond it. An index
    /// that has grown keeps its levels: of a much smaller budget than before a quarter is left for
    /// records. A GPU that compacts pins up to an eighth of the budget besides it. Partitions share the budget by
    /// demand: one takes more than others as long as they leave it.
    ///
    /// The budget is no part of what the store is: each opening may give another.
    ///
    /// Default: none, all items stay in the index.
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// The length in bytes from which on a value that is evicted goes into a value file, apart from its key (gLSM
    /// §5.5.3). A compaction moves keys, and references to such values: it writes less, and reads of the keys alone are
    /// faster. A value below the threshold stands in a block with its neighbours, and is read with them. At most
    /// [`MAX_VALUE_FILE_THRESHOLD`](Self::MAX_VALUE_FILE_THRESHOLD).
    ///
    /// The threshold is no part of what the store is: each opening may give another, which holds for what is evicted
    /// from then on.
    ///
    /// Default: [`DEFAULT_VALUE_FILE_THRESHOLD`](Self::DEFAULT_VALUE_FILE_THRESHOLD).
    #[must_use]
    pub fn value_file_threshold(mut self, bytes: usize) -> Self {
        self.value_file_threshold = bytes;
        self
    }

    /// A cache of values of the keys that are read most, for [`get`](super::Store::get) and
    /// [`get_with`](super::Store::get_with) (KVCG §6). Answers are the same. Its memory is no part of the
    /// [budget](Self::memory_budget). See `docs/store.md`.
    ///
    /// Default: none.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{HotCacheOptions, StoreOptions};
    ///
    /// let options = StoreOptions::new().hot_cache(HotCacheOptions::new(64 << 20));
    /// ```
    #[must_use]
    pub fn hot_cache(mut self, options: HotCacheOptions) -> Self {
        self.hot_cache = options;
        self
    }

    /// What merges do. A store is opened with an operator of the name that it was made with; another is
    /// refused with [`Error::OptionMismatch`].
    ///
    /// Default: none, and a merge fails with [`Error::InvalidOption`].
    #[must_use]
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.merge_operator = Some(operator);
        self
    }

    /// Which partition has a key, in place of the store's own hash. A store is opened with a partitioner of the name
    /// that it was made with; another is refused with [`Error::OptionMismatch`], and so is one that says otherwise of
    /// some keys that are there.
    ///
    /// Default: a hash of the key, with a seed of the store's own.
    #[must_use]
    pub fn partitioner(mut self, partitioner: Arc<dyn Partitioner>) -> Self {
        self.partitioner = Some(partitioner);
        self
    }

    /// Called while the log is replayed by [`open`](super::Store::open), with the bytes that were read and
    /// all bytes: by any thread, one at a time.
    ///
    /// Default: nothing is called.
    #[must_use]
    pub fn on_replay(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.on_replay = Some(Arc::new(progress));
        self
    }

    /// Puts `faults` between the store and the operating system. For tests of failing disks.
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.index = self.index.faults(Arc::clone(&faults));
        self.faults = Some(faults);
        self
    }

    /// Treats the index's file as DAX. For tests of that path on tmpfs.
    #[doc(hidden)]
    #[must_use]
    pub fn assume_dax(mut self, assume: bool) -> Self {
        self.index = self.index.assume_dax(assume);
        self
    }

    /// The threads that compact, which all partitions share.
    pub(super) fn compaction_pool(&self) -> Pool {
        let threads = match self.compaction_threads {
            0 => self.affordable((cores() / 2).max(1)),
            threads => threads,
        };
        Pool::new("compaction", threads)
    }

    /// The threads for items on their way out of the table, which all partitions share.
    pub(super) fn eviction_pool(&self) -> Pool {
        let threads = match self.index.threads {
            0 => cores(),
            threads => threads,
        };
        Pool::new("eviction", self.affordable(threads))
    }

    /// As many of so many threads that write files as the memory budget has room for.
    fn affordable(&self, threads: usize) -> usize {
        let budget = self.memory_budget.unwrap_or(u64::MAX);
        let most = usize::try_from(budget / WRITER_BUDGET).unwrap_or(usize::MAX);
        threads.min(most.max(1))
    }

    /// How many partitions the store is to have.
    pub(super) fn partition_count(&self) -> PartitionCount {
        PartitionCount {
            wanted: self.partitions,
            // Unit tests look into a partition.
            default: match cfg!(test) {
                true => 1,
                false => default_partitions(cores(), self.memory_budget),
            },
        }
    }

    /// Those of one of so many partitions.
    pub(super) fn of_partition(&self, partitions: u32) -> Self {
        let mut options = self.clone();
        if let Some(budget) = self.memory_budget {
            let most = (budget / SEGMENT_SHARE).max(LEAST_SEGMENT_MAX);
            options.segment_bytes = self.segment_bytes.min(most);
        }
        if partitions > 1 {
            let share = |all: u64| all.div_ceil(u64::from(partitions));
            if let (0, cores @ 1..) = (self.index.threads, self.affinity.cores().len()) {
                options.index = options.index.threads(cores);
            }
            options.index = options.index.share(partitions.into());
            options.checkpoint_bytes = share(self.checkpoint_bytes);
            options.memory_budget = self
                .memory_budget
                .map(|bytes| share(bytes).max(Self::MIN_BUDGET));
        }
        options
    }

    /// Bytes that the index may take.
    pub(super) fn table_budget(&self) -> Option<u64> {
        self.memory_budget.map(|bytes| bytes - bytes / CACHE_SHARE)
    }

    /// Bytes that filters and indexes of the files may take.
    pub(super) fn meta_bytes(&self) -> u64 {
        let budget = self.memory_budget.unwrap_or(u64::MAX);
        budget / 8 * META_EIGHTHS
    }

    /// Bytes of the log that may be in memory until they are durable.
    pub(super) fn unsynced_bytes_max(&self) -> u64 {
        let budget = self.memory_budget.unwrap_or(u64::MAX);
        UNSYNCED_BYTES_MAX.min(budget / UNSYNCED_SHARE)
    }

    /// How what is below the table is kept.
    pub(super) fn spill(&self, manifest: &Manifest, shared: &Shared) -> SpillOptions {
        let budget = self.memory_budget.unwrap_or(DEFAULT_CACHE * CACHE_SHARE);
        let file_bytes = (budget / FILE_SHARE).clamp(LEAST_FILE, MOST_FILE);
        SpillOptions {
            open_files: shared.open_files,
            cache_bytes: budget / CACHE_SHARE,
            meta: Arc::clone(&shared.meta),
            file_bytes,
            value_bytes_min: self.value_file_threshold,
            value_file_bytes: VALUE_FILE_FILES * file_bytes,
            level_bytes: LEVEL_BUDGETS.saturating_mul(budget),
            threads: 1,
            pool: Arc::clone(&shared.compaction),
            gpu: Arc::clone(&shared.gpu_compaction),
            rate: Arc::clone(&shared.compaction_rate),
            part_bytes_min: (file_bytes / PARTS_OF_FILE).max(PART_BYTES_MIN),
            next_number: manifest.next_file,
            store_id: manifest.store_id,
        }
    }

    /// What a store must have been made with.
    pub(super) fn names(&self) -> Names<'_> {
        Names {
            merge_operator: self.merge_operator.as_deref().map_or("", |one| one.name()),
            partitioner: self.partitioner.as_deref().map_or("", |one| one.name()),
        }
    }

    /// These, unless it does not matter.
    pub(super) fn names_to_check(&self) -> Option<Names<'_>> {
        (!self.any_names).then(|| self.names())
    }

    pub(super) fn check(&self) -> Result<()> {
        self.index.check()?;
        check_device_memory_budget(self.device_memory_budget)?;
        let invalid = |option, found: String, expected: String| {
            Err(Error::InvalidOption {
                option,
                found,
                expected,
            })
        };
        if self.segment_bytes < Self::MIN_SEGMENT {
            let expected = format!("at least {}", Self::MIN_SEGMENT);
            return invalid("segment_bytes", self.segment_bytes.to_string(), expected);
        }
        if let Some(count) = self.partitions
            && !(1..=PARTITIONS_MAX).contains(&count)
        {
            let expected = format!("1 to {PARTITIONS_MAX}");
            return invalid("partitions", count.to_string(), expected);
        }
        // What the system does not tell is found out by the threads, which run anywhere then.
        if let Ok(Some((core, allowed))) = self.affinity.missing() {
            let expected = format!("cores that the process may use: {allowed:?}");
            return invalid("worker_cores", core.to_string(), expected);
        }
        if let Some(bytes) = self.memory_budget.filter(|bytes| *bytes < Self::MIN_BUDGET) {
            let expected = format!("at least {}", Self::MIN_BUDGET);
            return invalid("memory_budget", bytes.to_string(), expected);
        }
        if let Err((option, found, expected)) = self.hot_cache.check() {
            return invalid(option, found, expected);
        }
        if self.compaction_threads > Options::MAX_THREADS {
            let expected = format!("0 to {}", Options::MAX_THREADS);
            let found = self.compaction_threads.to_string();
            return invalid("compaction_threads", found, expected);
        }
        if self.group_requests_max == 0 {
            return invalid("group_requests_max", 0.to_string(), "at least 1".into());
        }
        if self.compaction_rate == Some(0) {
            return invalid("compaction_rate", 0.to_string(), "at least 1".into());
        }
        if self.value_file_threshold > Self::MAX_VALUE_FILE_THRESHOLD {
            let expected = format!("at most {}", Self::MAX_VALUE_FILE_THRESHOLD);
            let found = self.value_file_threshold.to_string();
            return invalid("value_file_threshold", found, expected);
        }
        if self.durability == Durability::Interval(Duration::ZERO) {
            let expected = "a time longer than zero, or Durability::Always".into();
            return invalid("durability", format!("{:?}", self.durability), expected);
        }
        let names = self.names();
        for (option, is_given, name) in [
            (
                "merge_operator",
                self.merge_operator.is_some(),
                names.merge_operator,
            ),
            ("partitioner", self.partitioner.is_some(), names.partitioner),
        ] {
            if is_given && !(1..=LONGEST_NAME).contains(&name.len()) {
                let expected = format!("a name of 1 to {LONGEST_NAME} bytes");
                return invalid(option, format!("{} bytes", name.len()), expected);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("index", &self.index)
            .field("engine", &self.engine)
            .field("durability", &self.durability)
            .field("ordered", &self.ordered)
            .field("salvage", &self.salvage)
            .field(
                "verify_checksums",
                &self.index.verify_checksums.unwrap_or(true),
            )
            .field("idle_compaction", &self.index.idle_compaction)
            .field("partitions", &self.partitions)
            .field("when_full", &self.when_full)
            .field("worker_cores", &self.affinity.cores())
            .field("group_requests_max", &self.group_requests_max)
            .field("segment_bytes", &self.segment_bytes)
            .field("checkpoint_bytes", &self.checkpoint_bytes)
            .field("memory_budget", &self.memory_budget)
            .field("value_file_threshold", &self.value_file_threshold)
            .field("compaction_threads", &self.compaction_threads)
            .field("compaction_rate", &self.compaction_rate)
            .field("hot_cache", &self.hot_cache)
            .field("gpu_compaction_share", &self.gpu_compaction_share)
            .field("device_memory_budget", &self.device_memory_budget)
            .field("merge_operator", &self.names().merge_operator)
            .field("partitioner", &self.names().partitioner)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
