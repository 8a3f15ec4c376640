//! The table on the device: what the engine keeps for it, from the moment when it is taken over until it is given
//! back.

mod bucket_cache;
mod counts;
mod dirty_map;
mod exclusive;
mod follow;
mod maintenance;
mod mirror;
mod reader_gate;
mod record_pool;
mod refill;
mod registration;
mod resize;
mod view;
mod writer;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use bytemuck::Zeroable;
use parking_lot::{Mutex, RwLock};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::kernels::Kernels;
use super::stream::{BatchStream, address_sort};
use crate::gpu::abi::{Counters, TableView};
use crate::gpu::budget::IndexBudget;
use crate::gpu::device::Device;
use crate::gpu::memory::{DeviceMemory, fill, wait};
use crate::gpu::readers::Readers;
use crate::pm::{Mapping, Medium};
use crate::pool::affinity::Unpinned;
use crate::pool::permits::Permits;
use crate::table::Table;
use crate::{AddressOrder, Error, Options, Result};
use reader_gate::ReaderGate;
use resize::Draining;

pub use bucket_cache::{Cache, Entries, OUTCOME_LEN, SCORES_LEN, buckets_of, value_stride};
pub use counts::{WHOLE, check_damage};
pub use exclusive::Exclusive;
pub use mirror::{Mirror, Source};
pub use record_pool::{RecordPool, Taken};
pub use registration::Registration;
pub use writer::{Integrity, Writer};

/// What launches need before the table is taken over; a recovery scan has made it already.
pub struct Prepared {
    pub kernels: Kernels,
    pub registration: Registration,
    /// The copies of the levels, and the buckets in them that the host has repaired since, each as
    /// its level and its offset in the file.
    pub mirror: Option<(Mirror, Vec<(u32, u64)>)>,
}

/// The slots whose damage callers were told of.
pub type Told = Arc<Mutex<BTreeSet<u64>>>;

/// Threads that copy for a table.
pub type Copiers = Arc<ThreadPool>;

/// What the engine keeps for its table.
pub struct DeviceTable {
    pub kernels: Kernels,
    /// Held by lookups while they run.
    view: RwLock<TableView>,
    /// Lookups that hold the view without a guard, as they are waited for by no call.
    pub readers: Readers,
    /// What those lookups did, added up; one [`Counters`].
    pub lookup_counters: DeviceMemory,
    /// How much of it has been counted.
    counted: Mutex<Counters>,
    /// Where the damage is that callers were told of.
    told: Told,
    /// Length from which on a batch is put in the order of the offsets it touches.
    pub ordered_from: AtomicU32,
    /// Batches launched.
    pub launches: AtomicU32,
    /// So many when it was last asked whether the table rests.
    watched: AtomicU32,
    /// Those that change the table, counted before they are launched.
    pub changes: AtomicU64,
    /// Lookups that hold the view.
    pub reader_gate: ReaderGate,
    /// Held by whoever refreshes the cache.
    pub refreshing: Mutex<()>,
    /// Loads that callers wait for and that have not begun.
    pub awaited_refreshes: AtomicU32,
    /// Values that the cache was asked for, and those that it had.
    pub cache_uses: [AtomicU64; 2],
    /// Which share of the lookups that find something is expected to read the file, of [`WHOLE`].
    pub missed: AtomicU32,
    /// Held by whoever waits for the writer's lock.
    next_writer: Mutex<()>,
    /// Held by whoever changes the table.
    pub writer: Mutex<Writer>,
    batch_streams: Mutex<Vec<BatchStream>>,
    /// Lookups of slices of the host.
    pub lookups: Permits,
    pub budget: IndexBudget,
    /// Threads that copy between the host's slices, the file and pinned memory.
    pub copiers: Copiers,
    registration: Registration,
}

impl DeviceTable {
    /// Takes a table over. The device has been entered.
    pub fn new(
        (device, budget): (&Device, &IndexBudget),
        options: &Options,
        table: &Table<Mapping>,
        prepared: Option<Prepared>,
        copiers: Option<Copiers>,
        told: Told,
    ) -> Result<Self> {
        let Prepared {
            kernels,
            registration,
            mirror,
        } = match prepared {
            Some(prepared) => prepared,
            None => Self::prepare(device, options, table)?,
        };
        // The file may have grown since it was pinned.
        // SAFETY: the mapping keeps what it has mapped where it is, and outlives the engine.
        unsafe { registration.extend(&table.medium, table.medium.len())? };
        let started = Instant::now();
        let (mirror, repaired) = match mirror {
            Some((mirror, repaired)) if options.device_mirror => (mirror, repaired),
            _ => {
                let mirror = Mirror::new(options.device_mirror, budget);
                (mirror, Vec::new())
            }
        };
        let device_table = Self {
            kernels,
            view: RwLock::new(TableView::zeroed()),
            readers: Readers::default(),
            lookup_counters: DeviceMemory::new(&budget.buffers, size_of::<Counters>())?,
            counted: Mutex::default(),
            told,
            ordered_from: AtomicU32::new(u32::MAX),
            launches: AtomicU32::new(0),
            watched: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            reader_gate: ReaderGate::default(),
            refreshing: Mutex::default(),
            awaited_refreshes: AtomicU32::new(0),
            cache_uses: Default::default(),
            missed: AtomicU32::new(WHOLE),
            next_writer: Mutex::default(),
            writer: Mutex::new(Writer {
                record_pool: RecordPool::new(table.shape.record_stride, budget)?,
                mirror,
                cache: Cache::new(options, budget),
                dirty: DeviceMemory::empty(&budget.dirty),
                draining: Draining::default(),
                integrity: Integrity::Intact,
            }),
            batch_streams: Mutex::default(),
            lookups: Permits::new(budget.lookups_max),
            budget: budget.clone(),
            copiers: match copiers {
                Some(copiers) => copiers,
                None => Arc::new(pool("copy", table.path())?),
            },
            registration,
        };
        let mut batch_stream = device_table.batch_stream()?;
        // SAFETY: the block is as long.
        unsafe {
            let totals = &device_table.lookup_counters;
            fill(&batch_stream.stream, totals.address(), 0, totals.len())?;
        }
        let mut writer = device_table.writer()?;
        let source = Source {
            table,
            registration: &device_table.registration,
            kernels: &device_table.kernels,
            stream: &batch_stream.stream,
        };
        let mut view = writer.mirror.add_table(source)?;
        writer.mirror.refresh(source, &repaired)?;
        (view.cache, _) = writer
            .cache
            .reach(&batch_stream.stream, view.top_level, view.cache)?;
        *device_table.view_alone() = view;
        device_table
            .exclusive(table, &mut writer, &mut batch_stream)
            .follow()?;
        drop(writer);
        tracing::debug!(took = ?started.elapsed(), "copied the levels to the device");
        let started = Instant::now();
        let ordered_from = match options.address_order {
            AddressOrder::Always => 0,
            AddressOrder::Never => u32::MAX,
            AddressOrder::Auto => address_sort::measure(
                &device_table.kernels,
                &mut batch_stream,
                budget,
                device_table.view_now(),
            )?,
        };
        device_table
            .ordered_from
            .store(ordered_from, Ordering::Relaxed);
        tracing::debug!(took = ?started.elapsed(), ordered_from, "measured the machine");
        device_table.give(batch_stream);
        table.set_drained_by_engine(true);
        // The device changes the file without them.
        table.tags.forget();
        Ok(device_table)
    }

    /// The kernels for a table, and its file pinned, neither of which waits for the other.
    pub fn prepare(device: &Device, options: &Options, table: &Table<Mapping>) -> Result<Prepared> {
        std::thread::scope(|scope| {
            let load = || -> Result<Kernels> {
                let started = Instant::now();
                let _entered = device.enter()?;
                let watch = options.write_trace.as_ref();
                let key_size = table.shape.key_size;
                let kernels = Kernels::load(device, &table.medium, key_size, watch)?;
                tracing::debug!(took = ?started.elapsed(), "loaded the kernels");
                Ok(kernels)
            };
            let loading = std::thread::Builder::new().spawn_scoped(scope, load);
            let started = Instant::now();
            // SAFETY: the mapping keeps what it has mapped where it is, and outlives the engine.
            let registration = unsafe { Registration::of_file(&table.medium)? };
            let len = table.medium.len();
            tracing::debug!(took = ?started.elapsed(), len, "pinned the file");
            let kernels = match loading {
                Ok(loading) => loading
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(_) => load(),
            };
            Ok(Prepared {
                kernels: kernels?,
                registration,
                mirror: None,
            })
        })
    }

    /// Gives the table back, with all that only the device knew.
    ///
    /// # Errors
    /// [`Error::Gpu`]; then the table is still the device's. [`Error::Damaged`] if lookups met damage.
    pub fn hand_back(&self, table: &Table<Mapping>) -> Result<()> {
        let mut writer = self.writer()?;
        let mut batch_stream = self.batch_stream()?;
        self.readers.wait();
        self.count_lookups(table)?;
        let mut exclusive = self.exclusive(table, &mut writer, &mut batch_stream);
        let drained = match exclusive.finish_draining() {
            Err(error @ Error::Gpu { .. }) => return Err(error),
            drained => drained,
        };
        if let Err(error) = &drained {
            tracing::warn!(%error, "the resize is left for the next open");
        }
        exclusive.save_dirty()?;
        writer.record_pool.hand_back(table, &batch_stream.stream)?;
        // What the GPU could not empty is not for the host, which has not followed its changes.
        table.set_drained_by_engine(drained.is_err());
        self.tell_damage(table)
    }

    /// Gives up all that is on the device, once it is done with it, and gives the threads that have
    /// copied. The table is then as after a crash.
    pub fn release(self, table: &Table<Mapping>) -> Copiers {
        self.readers.wait();
        let batch_stream = BatchStream::new(&self.budget);
        let mut writer = self.writer.lock();
        let saved = batch_stream.and_then(|mut batch_stream| {
            let mut exclusive = self.exclusive(table, &mut writer, &mut batch_stream);
            exclusive.save_dirty()
        });
        if saved.is_err() {
            // Which pages differ from the last checkpoint, only the device knows.
            table.medium.mark_dirty(0, table.medium.len());
        }
        drop(writer);
        Arc::clone(&self.copiers)
    }

    /// Whether the device answers, has done whatever it began, and knows all of the table.
    ///
    /// # Errors
    /// [`Error::Gpu`] if not.
    pub fn check(&self, table: &Table<Mapping>) -> Result<()> {
        let mut writer = self.writer()?;
        let mut batch_stream = BatchStream::new(&self.budget)?;
        let mut exclusive = self.exclusive(table, &mut writer, &mut batch_stream);
        exclusive.follow()?;
        exclusive.batch_stream.counters()?;
        exclusive.fetch_counters()?;
        Ok(wait(&batch_stream.stream)?)
    }

    /// A stream for the caller alone.
    pub fn batch_stream(&self) -> Result<BatchStream> {
        let idle = self.batch_streams.lock().pop();
        idle.map_or_else(|| BatchStream::new(&self.budget), Ok)
    }

    /// A stream for who needs no buffers. Within a budget it is not one of those that batches have.
    pub fn plain_stream(&self) -> Result<BatchStream> {
        if !self.budget.is_bounded() {
            return self.batch_stream();
        }
        let mut batch_stream = BatchStream::new(&self.budget)?;
        batch_stream.is_plain = true;
        Ok(batch_stream)
    }

    /// Keeps a stream that has come to its end for the next batch.
    pub fn give(&self, batch_stream: BatchStream) {
        if !batch_stream.is_plain {
            self.batch_streams.lock().push(batch_stream);
        }
    }
}

/// A pool of a thread for each core for the file at `path`.
///
/// # Errors
/// [`Error::Io`] if the system gives no more threads.
fn pool(kind: &'static str, path: &Path) -> Result<ThreadPool> {
    let unpinned = Unpinned::of_caller();
    let pool = ThreadPoolBuilder::new()
        .start_handler(move |_| unpinned.restore())
        .thread_name(move |nth| format!("gphash-{kind}-{nth}"));
    let failed = |error| Error::io(path, "start the threads of", io::Error::other(error));
    pool.build().map_err(failed)
}
