//! How an index is created and opened.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::column;
use crate::domain::Domain;
use crate::error::ParseOptionError;
use crate::layout::{Column, KeyKind, Metadata, Shape};
use crate::pm::Faults;
use crate::pool::cores;
use crate::width::to_usize;
use crate::{Error, Result};

/// Fewest bytes of a budget of device memory.
pub(crate) const DEVICE_MEMORY_BUDGET_MIN: u64 = 64 << 20;

#[cfg(feature = "cuda")]
const _: () = assert!(DEVICE_MEMORY_BUDGET_MIN == crate::gpu::budget::BUDGET_MIN);

/// How long an index rests until it is compacted.
const IDLE: Duration = Duration::from_secs(10);

/// Which processor executes the batches of an [`Index`](crate::Index).
///
/// Both engines open the same file and give the same answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// A GPU if this build (feature `cuda`) and this machine have one, else the CPU.
    #[default]
    Auto,
    /// Threads of the CPU.
    Cpu,
    /// The GPU with this ordinal.
    Cuda {
        /// Ordinal of the device as the driver counts, from 0.
        device: u32,
    },
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::Auto => f.write_str("auto"),
            Engine::Cpu => f.write_str("cpu"),
            Engine::Cuda { device: 0 } => f.write_str("cuda"),
            Engine::Cuda { device } => write!(f, "cuda:{device}"),
        }
    }
}

impl FromStr for Engine {
    type Err = ParseOptionError;

    /// `auto`, `cpu`, `cuda` (device 0) or `cuda:N`.
    fn from_str(text: &str) -> std::result::Result<Self, ParseOptionError> {
        match text {
            "auto" => Ok(Engine::Auto),
            "cpu" => Ok(Engine::Cpu),
            "cuda" => Ok(Engine::Cuda { device: 0 }),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(|device| Engine::Cuda { device })
                .ok_or_else(|| ParseOptionError::new("engine", text, "auto, cpu, cuda or cuda:N")),
        }
    }
}

impl FromStr for Domain {
    type Err = ParseOptionError;

    /// `auto`, `dax`, `shared` or `checkpointed`.
    fn from_str(text: &str) -> Result<Self, ParseOptionError> {
        match text {
            "auto" => Ok(Domain::Auto),
            "dax" => Ok(Domain::Dax),
            "shared" => Ok(Domain::Shared),
            "checkpointed" => Ok(Domain::Checkpointed),
            _ => {
                let expected = "auto, dax, shared or checkpointed";
                Err(ParseOptionError::new("domain", text, expected))
            }
        }
    }
}

/// Whether the CUDA engine executes a batch in the order of the file offsets that it touches, rather than in the order given. Answers are the same.
///
/// Random access to a large file in host memory is limited by address translation: neighbours
/// should be touched at the same time. Sorting has its price, which small batches do not earn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressOrder {
    /// From that length of a batch on from which it was faster when the file was opened, measured on
    /// the device and the file at hand.
    #[default]
    Auto,
    /// Every batch.
    Always,
    /// No batch.
    Never,
}

impl fmt::Display for AddressOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressOrder::Auto => "auto",
            AddressOrder::Always => "always",
            AddressOrder::Never => "never",
        })
    }
}

impl FromStr for AddressOrder {
    type Err = ParseOptionError;

    /// `auto`, `always` or `never`.
    fn from_str(text: &str) -> std::result::Result<Self, ParseOptionError> {
        match text {
            "auto" => Ok(AddressOrder::Auto),
            "always" => Ok(AddressOrder::Always),
            "never" => Ok(AddressOrder::Never),
            _ => Err(ParseOptionError::new(
                "address order",
                text,
                "auto, always or never",
            )),
        }
    }
}

/// Which buckets the frozen bucket cache of the CUDA engine holds (GPHash §3.3). It is decided anew
/// at every refresh; between refreshes the buckets stay the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CachePolicy {
    /// Those used most often. Earlier uses count half with every refresh.
    #[default]
    Lfu,
    /// Those used last.
    Lru,
    /// Any, chosen at random.
    Random,
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CachePolicy::Lfu => "lfu",
            CachePolicy::Lru => "lru",
            CachePolicy::Random => "random",
        })
    }
}

impl FromStr for CachePolicy {
    type Err = ParseOptionError;

    /// `lfu`, `lru` or `random`.
    fn from_str(text: &str) -> std::result::Result<Self, ParseOptionError> {
        match text {
            "lfu" => Ok(CachePolicy::Lfu),
            "lru" => Ok(CachePolicy::Lru),
            "random" => Ok(CachePolicy::Random),
            _ => Err(ParseOptionError::new(
                "cache policy",
                text,
                "lfu, lru or random",
            )),
        }
    }
}

/// Options of [`Index::create`](crate::Index::create), [`open`](crate::Index::open) and
/// [`open_or_create`](crate::Index::open_or_create).
///
/// ```
/// use gphash::{Domain, Engine, Options};
///
/// let options = Options::new()
///     .capacity(1_000_000)
///     .engine(Engine::Cpu)
///     .domain(Domain::Auto);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) capacity: u64,
    pub(crate) engine: Engine,
    pub(crate) domain: Domain,
    pub(crate) cache_ratio: f64,
    pub(crate) cache_policy: CachePolicy,
    pub(crate) cache_period: Option<Duration>,
    pub(crate) device_memory_budget: Option<u64>,
    pub(crate) threads: usize,
    pub(crate) checksums: bool,
    /// By default those of records of variable length, which are of a store, and no others.
    pub(crate) verify_checksums: Option<bool>,
    pub(crate) idle_compaction: Option<Duration>,
    /// Indexes that share items, threads and what is kept at rest.
    pub(crate) sharers: u64,
    pub(crate) assume_dax: bool,
    pub(crate) faults: Option<Arc<dyn Faults>>,
    pub(crate) device_mirror: bool,
    pub(crate) address_order: AddressOrder,
    pub(crate) slots: u32,
    pub(crate) levels: u32,
    pub(crate) locations: u32,
    pub(crate) key_kind: Option<KeyKind>,
    pub(crate) columns: Option<Vec<Column>>,
    #[cfg(feature = "cuda")]
    pub(crate) write_trace: Option<Arc<dyn crate::WriteTrace>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity: 1024,
            engine: Engine::Auto,
            domain: Domain::Auto,
            cache_ratio: 0.2,
            cache_policy: CachePolicy::Lfu,
            cache_period: Some(Duration::from_secs(1)),
            device_memory_budget: None,
            threads: 0,
            checksums: false,
            verify_checksums: None,
            idle_compaction: Some(IDLE),
            sharers: 1,
            assume_dax: false,
            faults: None,
            device_mirror: true,
            address_order: AddressOrder::Auto,
            slots: 8,
            levels: 2,
            locations: 2,
            key_kind: None,
            columns: None,
            #[cfg(feature = "cuda")]
            write_trace: None,
        }
    }
}

impl Options {
    /// Largest number of items that [`capacity`](Self::capacity) takes.
    pub const MAX_CAPACITY: u64 = 1 << 40;

    /// Largest number of [`threads`](Self::threads).
    pub const MAX_THREADS: usize = 1024;

    /// Fewest bytes of a [`device_memory_budget`](Self::device_memory_budget): 64 MiB. Batches cannot do without about half
    /// of that.
    pub const MIN_DEVICE_MEMORY_BUDGET: u64 = DEVICE_MEMORY_BUDGET_MIN;

    /// The defaults: 1,024 items, engine and domain chosen by themselves, 2L-2H-8S.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Items expected, 1 to [`MAX_CAPACITY`](Self::MAX_CAPACITY). Space for them is allocated when the
    /// file is created; the table grows past them by itself. Opening only checks its range.
    ///
    /// Default: 1,024 items.
    #[must_use]
    pub fn capacity(mut self, items: u64) -> Self {
        self.capacity = items;
        self
    }

    /// Those of one of so many indexes that share items and threads.
    pub(crate) fn share(mut self, indexes: u64) -> Self {
        let threads = if self.threads == 0 {
            cores()
        } else {
            self.threads
        };
        self.threads = threads.div_ceil(to_usize(indexes));
        self.capacity = self.capacity.div_ceil(indexes);
        self.sharers = indexes;
        self
    }

    /// Which processor executes the batches. [`Engine::Auto`] takes the CPU where no GPU can be had;
    /// [`Engine::Cuda`] fails with [`Error::Gpu`] then.
    ///
    /// Default: [`Engine::Auto`].
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Which persistence domain the file must have. A file that cannot have it is refused with
    /// [`Error::Domain`].
    ///
    /// Default: [`Domain::Auto`], the strongest that the file can have.
    #[must_use]
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = domain;
        self
    }

    /// Share of the buckets, 0.0 to 1.0, whose values the CUDA engine may keep in device memory, in the
    /// frozen bucket cache. The cache is smaller if there is not so much memory; 0.0 means no cache. It
    /// fills at its first refresh, see [`cache_period`](Self::cache_period).
    ///
    /// The CPU engine has no such cache: it reads the values where they are. So do threads of the host for
    /// a long batch of gets in host memory on the CUDA engine (more than 8,192 keys or 1 MiB).
    ///
    /// Default: 0.2.
    #[must_use]
    pub fn cache_ratio(mut self, ratio: f64) -> Self {
        self.cache_ratio = ratio;
        self
    }

    /// Which buckets the cache of the CUDA engine holds.
    ///
    /// Default: [`CachePolicy::Lfu`].
    #[must_use]
    pub fn cache_policy(mut self, policy: CachePolicy) -> Self {
        self.cache_policy = policy;
        self
    }

    /// How often the cache of the CUDA engine is refreshed beside running batches, if it was used enough
    /// since the last time for another choice to be worth it; longer than zero. `None`: only by
    /// [`reload_cache`](crate::Index::reload_cache).
    ///
    /// Default: one second.
    #[must_use]
    pub fn cache_period(mut self, period: Option<Duration>) -> Self {
        self.cache_period = period;
        self
    }

    /// Bytes of the GPU's memory that the index may take, at least
    /// [`MIN_DEVICE_MEMORY_BUDGET`](Self::MIN_DEVICE_MEMORY_BUDGET).
    ///
    /// It counts what the index allocates: the copies of the levels, the bucket cache, the buffers of batches, free records
    /// at hand, and the map of changed pages; as [`Stats::device_memory_bytes`](crate::Stats::device_memory_bytes) does. It
    /// does not count what the driver has besides: its context, the loaded kernels, and
    /// what it rounds up. Pinned memory of the host is none of the GPU's.
    ///
    /// Within a budget
    /// - levels that have no room are probed in the file. The lowest ones are copied first;
    /// - the bucket cache has what the levels leave, at most [`cache_ratio`](Self::cache_ratio);
    /// - batches go in shorter parts, and one to eight lookups of slices of the host run at a time;
    /// - of a file longer than 1,024 times the budget in the domain `Checkpointed`, a sync writes all pages.
    ///
    /// So results are the same, and no call fails for it. Each opening may give another budget. It means nothing to
    /// [`Engine::Cpu`]. Without one an index takes what there is for levels, and seven eighths of the rest for the cache.
    ///
    /// Default: none.
    ///
    /// # Examples
    /// ```
    /// let options = gphash::Options::new().device_memory_budget(2 << 30);
    /// ```
    #[must_use]
    pub fn device_memory_budget(mut self, bytes: u64) -> Self {
        self.device_memory_budget = Some(bytes);
        self
    }

    /// How many threads the CPU engine divides a large batch for, at most [`MAX_THREADS`](Self::MAX_THREADS): into one
    /// to four parts for each, which threads of the caller's rayon pool execute. 0 means one for each core. Batches of
    /// several callers run side by side whatever this says.
    ///
    /// Default: 0, one for each core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether the CUDA engine keeps a copy of the buckets in device memory, where that fits. Without it
    /// every probe reads the file, as in the paper.
    ///
    /// Default: `true`.
    #[must_use]
    pub fn device_mirror(mut self, mirror: bool) -> Self {
        self.device_mirror = mirror;
        self
    }

    /// Whether the CUDA engine executes batches in the order of the addresses that they touch.
    ///
    /// Default: [`AddressOrder::Auto`].
    #[must_use]
    pub fn address_order(mut self, order: AddressOrder) -> Self {
        self.address_order = order;
        self
    }

    /// Shape of a new table: levels × locations × slots, at most 32 in all. Opening only checks that it could be:
    /// the file knows its shape.
    ///
    /// Default: 2 levels, 2 locations, 8 slots (2L-2H-8S, as in the GPHash paper §3.1).
    #[must_use]
    pub fn shape(mut self, levels: u32, locations: u32, slots: u32) -> Self {
        self.levels = levels;
        self.locations = locations;
        self.slots = slots;
        self
    }

    /// What the bytes of a key are; it is written into the file for whoever reads it. Integers have 8 or 16
    /// bytes. It changes nothing about how keys are found: they are compared byte by byte.
    ///
    /// A new index takes it. Opening one that was made with another is refused with
    /// [`Error::OptionMismatch`]; without this option any is opened.
    ///
    /// Default: [`KeyKind::Bytes`] for a new index.
    #[must_use]
    pub fn key_kind(mut self, kind: KeyKind) -> Self {
        self.key_kind = Some(kind);
        self
    }

    /// The columns of a value, in the order of their offsets: what its bytes are, for whoever reads the file
    /// and for [`get_column`](crate::Index::get_column). At most 16; they may leave gaps, and may not
    /// overlap. Where values have more than 64 bytes, a column of the role
    /// [`OptimizerState`](crate::ColumnRole::OptimizerState) may not lie in a 64-byte line of another column,
    /// so that a lookup fetches nothing of it; the error says which padding is needed.
    ///
    /// A new index takes them. Opening one that was made with others is refused with
    /// [`Error::OptionMismatch`]; without this option any is opened.
    ///
    /// Default: none for a new index.
    ///
    /// ```
    /// use gphash::{Column, ColumnRole, DType, Index, KeyKind, Options};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("index");
    /// let options = Options::new().key_kind(KeyKind::Unsigned).columns([
    ///     Column::new("weight", DType::F32, [16], 0),
    ///     Column::new("momentum", DType::F32, [16], 64).with_role(ColumnRole::OptimizerState),
    /// ]);
    /// let index = Index::<u64, [f32; 32]>::create(&path, &options)?;
    /// assert_eq!(index.metadata().columns[1].name(), "momentum");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn columns(mut self, columns: impl IntoIterator<Item = Column>) -> Self {
        self.columns = Some(columns.into_iter().collect());
        self
    }

    /// Whether a new index keeps a checksum beside each value, by which a value that has changed on the medium, or is
    /// another key's, is found: by [`recover`](crate::recover), by an opening after a crash, and by lookups if
    /// [`verify_checksums`](Self::verify_checksums) says so. A checksum takes 8 bytes, which may double what a record
    /// takes on disk. An opening after a crash reads all values then. Opening ignores this option: the file knows.
    ///
    /// A store ignores it: its records always have checksums.
    ///
    /// Default: `false`.
    #[must_use]
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Whether lookups compare the checksums of values, in an index that has [them](Self::checksums). If one
    /// does not match, [`get`](crate::Index::get) fails with [`Error::Damaged`], which names the record's offset;
    /// nothing is changed, and the other items can be read. Neither the iterator nor lookups into device memory
    /// compare them.
    ///
    /// With the CUDA engine the host then copies the values, and the cache serves only device memory.
    ///
    /// Default: `false`. For stores there is
    /// [`StoreOptions::verify_checksums`](crate::store::StoreOptions::verify_checksums).
    #[must_use]
    pub fn verify_checksums(mut self, verify: bool) -> Self {
        self.verify_checksums = Some(verify);
        self
    }

    /// How long the index must rest until room that it does not need goes back to the file system by itself, or
    /// `None` for never. It does so as [`compact`](crate::Index::compact) does, beside batches and with rests in
    /// between, on one thread, where that gives back more than an eighth of what records take, 24 bytes an item,
    /// and 32 MiB. Fewer than 10,000 operations a second are rest, too. When more come it stops, and goes on at the next
    /// rest.
    ///
    /// In `Checkpointed` it ends with a checkpoint if nothing was changed since the last
    /// [`sync`](crate::Index::sync); else what has become free goes back after the next one.
    ///
    /// Default: 10 seconds.
    #[must_use]
    pub fn idle_compaction(mut self, after: Option<Duration>) -> Self {
        self.idle_compaction = after;
        self
    }

    /// Treats the file as DAX although it cannot be mapped with `MAP_SYNC`: the CPU writes back
    /// and fences as on persistent memory. For tests of that path on tmpfs.
    #[doc(hidden)]
    #[must_use]
    pub fn assume_dax(mut self, assume: bool) -> Self {
        self.assume_dax = assume;
        self
    }

    /// Puts `faults` between the index and the operating system. For tests of failing disks.
    #[doc(hidden)]
    #[must_use]
    pub fn faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Lets the CUDA engine run kernels that note what they store into the file. For tests of crashes
    /// inside them.
    #[doc(hidden)]
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn write_trace(mut self, watch: Arc<dyn crate::WriteTrace>) -> Self {
        self.write_trace = Some(watch);
        self
    }

    /// Checks what does not depend on a file, and gives the shape of a new table.
    pub(crate) fn shape_for(&self, key_size: usize, value_size: usize) -> Result<Shape> {
        self.check()?;
        let shape = Shape::new(
            key_size as u64,
            value_size as u64,
            self.slots,
            self.levels,
            self.locations,
        );
        let shape = shape.map_err(Error::of_shape)?;
        Ok(shape.with_checksums(self.checksums))
    }

    /// What the file of a new table of `shape` says of itself.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a key kind or columns that such keys and values cannot have.
    pub(crate) fn metadata_for(&self, shape: &Shape) -> Result<Metadata> {
        let key_kind = self.key_kind.unwrap_or_default();
        if !key_kind.fits(shape.key_size) {
            return Err(Error::InvalidOption {
                option: "key_kind",
                found: format!("{key_kind} for keys of {} bytes", shape.key_size),
                expected: "an integer of 8 or 16 bytes".into(),
            });
        }
        let columns = self.columns.clone().unwrap_or_default();
        let value_size = to_usize(shape.value_size);
        column::check(&columns, value_size)
            .and_then(|()| column::check_lines(&columns, value_size))
            .map_err(|(found, expected)| Error::InvalidOption {
                option: "columns",
                found,
                expected,
            })?;
        Ok(Metadata::of_new(key_kind, columns))
    }

    /// Checks that a file at `path` which says `found` of itself was made with the key kind and the columns
    /// of these options, if they name any.
    ///
    /// # Errors
    /// [`Error::OptionMismatch`].
    pub(crate) fn check_metadata(&self, found: &Metadata, path: &Path) -> Result<()> {
        let mismatch = |option, found, expected| {
            Err(Error::OptionMismatch {
                path: path.to_path_buf(),
                option,
                found,
                expected,
            })
        };
        match (&self.key_kind, &self.columns) {
            (Some(kind), _) if *kind != found.key_kind => {
                mismatch("key_kind", found.key_kind.to_string(), kind.to_string())
            }
            (_, Some(columns)) if *columns != found.columns => {
                let listed = |columns: &[Column]| {
                    let columns: Vec<String> = columns.iter().map(Column::to_string).collect();
                    format!("[{}]", columns.join("; "))
                };
                mismatch("columns", listed(&found.columns), listed(columns))
            }
            _ => Ok(()),
        }
    }

    /// As [`shape_for`](Self::shape_for), for keys and values of variable length.
    pub(crate) fn variable_shape(&self) -> Result<Shape> {
        self.check()?;
        let shape = Shape::variable(self.slots, self.levels, self.locations);
        shape.map_err(Error::of_shape)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.capacity == 0 || self.capacity > Self::MAX_CAPACITY {
            return Err(Error::InvalidOption {
                option: "capacity",
                found: self.capacity.to_string(),
                expected: format!("1 to {}", Self::MAX_CAPACITY),
            });
        }
        if self.threads > Self::MAX_THREADS {
            return Err(Error::InvalidOption {
                option: "threads",
                found: self.threads.to_string(),
                expected: format!("0 to {}", Self::MAX_THREADS),
            });
        }
        if !(0.0..=1.0).contains(&self.cache_ratio) {
            return Err(Error::InvalidOption {
                option: "cache_ratio",
                found: self.cache_ratio.to_string(),
                expected: "0.0 to 1.0".into(),
            });
        }
        check_device_memory_budget(self.device_memory_budget)?;
        if self.cache_period == Some(Duration::ZERO) {
            return Err(Error::InvalidOption {
                option: "cache_period",
                found: "0 s".into(),
                expected: "a time longer than zero, or None".into(),
            });
        }
        Ok(())
    }
}

/// Checks a budget of device memory.
///
/// # Errors
/// [`Error::InvalidOption`] if it is too small.
pub(crate) fn check_device_memory_budget(bytes: Option<u64>) -> Result<()> {
    match bytes {
        Some(bytes) if bytes < DEVICE_MEMORY_BUDGET_MIN => Err(Error::InvalidOption {
            option: "device_memory_budget",
            found: bytes.to_string(),
            expected: format!("at least {DEVICE_MEMORY_BUDGET_MIN}"),
        }),
        _ => Ok(()),
    }
}
