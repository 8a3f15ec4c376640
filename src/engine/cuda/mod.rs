//! The CUDA engine: a batch is copied to the device and executed there by warps, on the same file
//! and with the same answers as the CPU engine.
//!
//! The file is pinned and mapped into the GPU's address space, where it has the addresses that it
//! has for the process. Kernels store into it directly. Levels are copied to device memory, as
//! far as there is room, so that probing costs no access to the file.
//!
//! Batches that change the table run one after another; lookups run beside them and beside each
//! other, each on a stream of its own. A lookup holds the view of the table while it runs; who
//! changes the view, or frees what a lookup may still read, waits until none is held.

mod abi;
mod address_sort;
mod batch;
mod batch_stream;
mod cache;
mod growth;
mod host;
mod kernels;
mod mirror;
mod reader_gate;
mod readers;
mod record_pool;
mod recovery_scan;
mod registration;
mod service;
mod slices;
mod staging;
mod write_trace;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use bytemuck::Zeroable;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::gpu::device::Device;
use crate::gpu::memory::{DeviceMemory, copy_out, fill, wait};
use crate::pm::{Mapping, Medium};
use crate::pool::pool;
use crate::table::Table;
use crate::table::maintenance;
use crate::table::maintenance::Maintainer;
use crate::width::{saturating_u64, to_usize, u32_of};
use crate::{AddressOrder, Engine, Error, Options, Result};
use abi::{Counters, TableView};
use batch_stream::BatchStream;
use cache::{Cache, Loader, Pace};
use growth::Draining;
use kernels::Kernels;
use mirror::Mirror;
use reader_gate::{ReadGuard, ReaderGate};
use readers::Readers;
use record_pool::RecordPool;
use recovery_scan::Surveyed;
use registration::Registration;
use service::{Copiers, Server, Service};

pub(crate) use kernels::Read;
pub(crate) use slices::DeviceOperands;

/// Runs batches on a GPU, and on the CPU once that has failed.
pub(crate) struct CudaEngine {
    /// Loads the cache from time to time. Goes before what it works on.
    loader: Option<Loader>,
    /// What a survey has made and attaching needs as well.
    surveyed: Option<Surveyed>,
    service: Arc<Service>,
}

/// What the engine keeps for its table.
struct DeviceTable {
    kernels: Kernels,
    /// Held by lookups while they run.
    view: RwLock<TableView>,
    /// Lookups that hold the view without a guard, as they are waited for by no call.
    readers: Readers,
    /// What those lookups did, added up; one [`Counters`].
    looked_up: DeviceMemory,
    /// How much of it has been counted.
    counted: Mutex<Counters>,
    /// Length from which on a batch is put in the order of the places it touches.
    ordered_from: AtomicU32,
    /// Batches launched.
    launches: AtomicU32,
    /// Those that change the table, counted before they are launched.
    changes: AtomicU64,
    /// Lookups that hold the view.
    reader_gate: ReaderGate,
    /// Held by whoever loads the cache.
    loading: Mutex<()>,
    /// Loads that callers wait for and that have not begun.
    awaited_loads: AtomicU32,
    /// Values that the cache was asked for, and those that it had.
    cache_uses: [AtomicU64; 2],
    /// Which share of the lookups that find something is expected to read the file, of [`WHOLE`].
    missed: AtomicU32,
    /// Held by whoever waits for the writer's lock.
    next_writer: Mutex<()>,
    /// Held by whoever changes the table.
    writer: Mutex<Writer>,
    channels: Mutex<Vec<BatchStream>>,
    /// Threads that copy between the host's slices, the file and pinned memory.
    copiers: Copiers,
    registration: Registration,
}

/// What shares are of.
const WHOLE: u32 = 1 << 10;

/// The view while a lookup is under way.
struct HeldView<'a> {
    _visit: ReadGuard<'a>,
    view: RwLockReadGuard<'a, TableView>,
}

impl Deref for HeldView<'_> {
    type Target = TableView;

    fn deref(&self) -> &TableView {
        &self.view
    }
}

/// What only one batch at a time may use.
struct Writer {
    record_pool: RecordPool,
    mirror: Mirror,
    cache: Cache,
    /// One bit for each page of the file that was stored to since it was last saved; empty where
    /// stores need no checkpoint.
    dirty: DeviceMemory,
    draining: Draining,
    integrity: Integrity,
}

/// Whether it is known what the device has changed.
#[derive(Debug)]
enum Integrity {
    /// It is.
    Intact,
    /// The device is changing the table.
    InFlight,
    /// A call failed meanwhile, with this error. The table is recovered before it is changed again.
    Torn(Error),
}

impl Writer {
    /// Whether it is not known what the device has changed.
    fn is_torn(&self) -> bool {
        !matches!(self.integrity, Integrity::Intact)
    }

    /// Keeps the error of a call amid a change, for whoever comes before the table is recovered.
    fn keep_failure<T>(&mut self, answer: Result<T>) -> Result<T> {
        if let (Integrity::InFlight, Err(error)) = (&self.integrity, &answer) {
            self.integrity = Integrity::Torn(error.clone());
        }
        answer
    }
}

impl CudaEngine {
    /// Opens the device.
    ///
    /// # Errors
    /// [`Error::Gpu`] if it is absent or too old.
    pub(crate) fn open(ordinal: u32, options: &Options) -> Result<Self> {
        let started = Instant::now();
        let device = Device::open(ordinal)?;
        let took = started.elapsed();
        tracing::info!(
            device = device.name(),
            ordinal,
            ?took,
            "the CUDA engine is open"
        );
        Ok(Self {
            loader: None,
            surveyed: None,
            service: Arc::new(Service::new(device, ordinal, options)),
        })
    }

    /// Which engine serves the table: the CPU if the GPU has failed.
    pub(crate) fn engine(&self) -> Engine {
        self.service.engine()
    }

    /// Takes a table over: from here to [`detach`](Self::detach) only this engine changes it.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the file cannot be pinned.
    pub(crate) fn attach(&mut self, table: &Arc<Table<Mapping>>) -> Result<()> {
        self.service.attach(table, self.surveyed.take())?;
        let options = self.service.options();
        if let Some(period) = options.cache_period
            && options.cache_ratio > 0.0
        {
            let (service, table) = (Arc::clone(&self.service), Arc::clone(table));
            self.loader = Loader::start(service, table, period)
                .inspect_err(|error| tracing::warn!(%error, "the cache is loaded when asked"))
                .ok();
        }
        Ok(())
    }

    /// Starts the maintenance of the table, which is attached.
    pub(crate) fn maintain(&self, table: &Arc<Table<Mapping>>) -> Maintainer<Mapping> {
        let service = Arc::clone(&self.service);
        let mut pace = maintenance::Pace::default();
        Maintainer::start(table, move |table| service.maintain(table, &mut pace))
    }

    /// Finishes what is under way and gives the table back. It may be closed then.
    ///
    /// # Errors
    /// [`Error::Damaged`] if lookups have met damage; [`Error::Gpu`] if the GPU has failed and the table
    /// could not be recovered. The file is then as after a crash.
    pub(crate) fn detach(&mut self, table: &Table<Mapping>) -> Result<()> {
        self.loader = None;
        self.service.detach(table)
    }

    /// Makes room for `additional` more items.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn reserve(&self, table: &Table<Mapping>, additional: u64) -> Result<()> {
        self.service.serve(table, |server| match server {
            Server::Host(_) => table.reserve(additional),
            Server::Device(device_table) => {
                let mut writer = device_table.writer()?;
                let mut channel = device_table.channel()?;
                device_table.reserve(table, &mut writer, &mut channel, additional)?;
                device_table.give(channel);
                Ok(())
            }
        })
    }

    /// Drives a resize under way to its end.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn finish_draining(&self, table: &Table<Mapping>) -> Result<()> {
        self.service.serve(table, |server| match server {
            // Whoever iterates sees to it.
            Server::Host(_) => Ok(()),
            Server::Device(device_table) => {
                let mut writer = device_table.writer()?;
                let mut channel = device_table.channel()?;
                device_table.finish_draining(table, &mut writer, &mut channel)?;
                device_table.give(channel);
                Ok(())
            }
        })
    }

    /// Takes a checkpoint, where the domain has them.
    ///
    /// # Errors
    /// [`Error::Gpu`], and those of [`Table::sync`].
    pub(crate) fn sync(&self, table: &Table<Mapping>) -> Result<()> {
        self.service.serve(table, |server| match server {
            Server::Host(_) => table.sync(),
            Server::Device(device_table) => {
                // The writer's lock keeps the GPU's stores away from the checkpoint.
                let writer = device_table.writer()?;
                let channel = device_table.channel()?;
                device_table.save_dirty(table, &writer, &channel.stream)?;
                device_table.give(channel);
                device_table.count_look_ups(table)?;
                table.sync()
            }
        })
    }

    /// Loads the cache anew.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn reload_cache(&self, table: &Table<Mapping>) -> Result<()> {
        self.service.serve(table, |server| match server {
            Server::Host(_) => Ok(()),
            Server::Device(device_table) => device_table.load_cache(table, Pace::AtOnce),
        })
    }

    /// Values that lookups have asked the cache for, and those that it had.
    pub(crate) fn cache_uses(&self, table: &Table<Mapping>) -> (u64, u64) {
        let uses = self.service.serve(table, |server| match server {
            Server::Host(_) => Ok([0; 2]),
            Server::Device(device_table) => {
                let uses = device_table.cache_uses.each_ref();
                Ok(uses.map(|uses| uses.load(Ordering::Relaxed)))
            }
        });
        let [asked, had] = uses.unwrap_or_default();
        (asked, had)
    }

    /// Adds what lookups have done that no call has waited for to the table's figures.
    ///
    /// # Errors
    /// [`Error::Gpu`], and [`Error::Damaged`] if they met damage.
    pub(crate) fn count_look_ups(&self, table: &Table<Mapping>) -> Result<()> {
        self.service.serve(table, |server| match server {
            Server::Host(_) => Ok(()),
            Server::Device(device_table) => device_table.count_look_ups(table),
        })
    }
}

static_assertions::assert_impl_all!(CudaEngine: Send, Sync);

impl Drop for CudaEngine {
    fn drop(&mut self) {
        self.loader = None;
        // Device memory is freed in the context of the calling thread.
        let _entered = self.service.device().enter();
        self.surveyed = None;
    }
}

impl DeviceTable {
    /// Takes a table over. The device has been entered.
    fn new(
        device: &Device,
        options: &Options,
        table: &Table<Mapping>,
        surveyed: Option<Surveyed>,
        copiers: Option<Copiers>,
    ) -> Result<Self> {
        let Surveyed {
            kernels,
            registration,
            mirror,
        } = match surveyed {
            Some(surveyed) => surveyed,
            None => Self::prepare(device, options, table)?,
        };
        let started = Instant::now();
        let (mirror, mended) = match mirror {
            Some((mirror, mended)) if options.device_mirror => (mirror, mended),
            _ => {
                let (wanted, most) = (options.device_mirror, options.device_memory);
                (Mirror::new(wanted, most), Vec::new())
            }
        };
        let device_table = Self {
            kernels,
            view: RwLock::new(TableView::zeroed()),
            readers: Readers::default(),
            looked_up: DeviceMemory::new(size_of::<Counters>())?,
            counted: Mutex::default(),
            ordered_from: AtomicU32::new(u32::MAX),
            launches: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            reader_gate: ReaderGate::default(),
            loading: Mutex::default(),
            awaited_loads: AtomicU32::new(0),
            cache_uses: Default::default(),
            missed: AtomicU32::new(WHOLE),
            next_writer: Mutex::default(),
            writer: Mutex::new(Writer {
                record_pool: RecordPool::new(table.shape.record_stride)?,
                mirror,
                cache: Cache::new(options),
                dirty: DeviceMemory::new(0)?,
                draining: Draining::default(),
                integrity: Integrity::Intact,
            }),
            channels: Mutex::default(),
            copiers: match copiers {
                Some(copiers) => copiers,
                None => Arc::new(pool("copy", table.path())?),
            },
            registration,
        };
        let mut channel = device_table.channel()?;
        // SAFETY: the block is as long.
        unsafe {
            let totals = &device_table.looked_up;
            fill(&channel.stream, totals.address(), 0, totals.len())?;
        }
        let mut writer = device_table.writer()?;
        let registration = &device_table.registration;
        let mut view = writer
            .mirror
            .add_table(table, registration, &channel.stream)?;
        writer
            .mirror
            .refresh(table, registration, &channel.stream, &mended)?;
        (view.cache, _) = writer
            .cache
            .reach(&channel.stream, view.top_level, view.cache)?;
        *device_table.view_alone() = view;
        device_table.follow(table, &mut writer, &channel.stream)?;
        drop(writer);
        tracing::debug!(took = ?started.elapsed(), "copied the levels to the device");
        let started = Instant::now();
        let ordered_from = match options.address_order {
            AddressOrder::Always => 0,
            AddressOrder::Never => u32::MAX,
            AddressOrder::Auto => {
                address_sort::measure(&device_table.kernels, &mut channel, device_table.view_now())?
            }
        };
        device_table
            .ordered_from
            .store(ordered_from, Ordering::Relaxed);
        tracing::debug!(took = ?started.elapsed(), ordered_from, "measured the machine");
        device_table.give(channel);
        table.set_drained_by_engine(true);
        // The device changes the file without them.
        table.tags.forget();
        Ok(device_table)
    }

    /// The kernels for a table, and its file pinned, neither of which waits for the other.
    fn prepare(device: &Device, options: &Options, table: &Table<Mapping>) -> Result<Surveyed> {
        std::thread::scope(|scope| {
            let load = || {
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
            Ok(Surveyed {
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
    fn hand_back(&self, table: &Table<Mapping>) -> Result<()> {
        let mut writer = self.writer()?;
        let mut channel = self.channel()?;
        self.readers.wait();
        let counted = match self.count_look_ups(table) {
            Err(error @ Error::Gpu { .. }) => return Err(error),
            counted => counted,
        };
        let drained = match self.finish_draining(table, &mut writer, &mut channel) {
            Err(error @ Error::Gpu { .. }) => return Err(error),
            drained => drained,
        };
        if let Err(error) = &drained {
            tracing::warn!(%error, "the resize is left for the next open");
        }
        self.save_dirty(table, &writer, &channel.stream)?;
        writer.record_pool.hand_back(table, &channel.stream)?;
        // What the GPU could not empty is not for the host, which has not followed its changes.
        table.set_drained_by_engine(drained.is_err());
        counted
    }

    /// Gives up all that is on the device, once it is done with it, and gives the threads that have
    /// copied. The table is then as after a crash.
    fn release(self, table: &Table<Mapping>) -> Copiers {
        self.readers.wait();
        let channel = BatchStream::new();
        let writer = self.writer.lock();
        let saved = channel.and_then(|channel| self.save_dirty(table, &writer, &channel.stream));
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
    fn check(&self, table: &Table<Mapping>) -> Result<()> {
        let mut writer = self.writer()?;
        let mut channel = BatchStream::new()?;
        self.follow(table, &mut writer, &channel.stream)?;
        channel.counters()?;
        self.fetch_counters(&mut channel)?;
        wait(&channel.stream)
    }

    /// The right to change the table.
    ///
    /// # Errors
    /// [`Error::Gpu`] if a change before has failed amid its work; then nothing was done.
    fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        // Of one lock alone, a thread with batch after batch would leave nothing to others.
        let _next = self.next_writer.lock();
        let writer = self.writer.lock();
        let found = match &writer.integrity {
            Integrity::Intact => return Ok(writer),
            Integrity::InFlight => "a change before that did not come to its end".into(),
            Integrity::Torn(error) => format!("a change before that failed: {error}"),
        };
        Err(Error::Gpu {
            what: "changing the table",
            found,
            expected: "try again: the table is recovered first".into(),
        })
    }

    /// The view, for a launch of whoever holds the writer's lock.
    fn view_now(&self) -> TableView {
        *self.view.read()
    }

    /// The view for a lookup, kept as it is until the guard is dropped.
    fn hold_view(&self) -> HeldView<'_> {
        HeldView {
            _visit: self.reader_gate.enter(),
            view: self.view.read(),
        }
    }

    /// The view, when no lookup is under way.
    fn view_alone(&self) -> RwLockWriteGuard<'_, TableView> {
        let view = self.view.write();
        self.readers.wait();
        view
    }

    fn count_look_ups(&self, table: &Table<Mapping>) -> Result<()> {
        let channel = self.channel()?;
        let mut totals = Counters::default();
        let mut counted = self.counted.lock();
        // SAFETY: both are as long, and nobody looks before the wait.
        unsafe {
            let bytes = bytemuck::bytes_of_mut(&mut totals);
            copy_out(&channel.stream, bytes, self.looked_up.address())?;
        }
        wait(&channel.stream)?;
        self.give(channel);
        let operations = totals.operations - counted.operations;
        table.count_batch(operations, 0, totals.touches - counted.touches);
        self.count_cache(
            totals.cache_lookups - counted.cache_lookups,
            totals.cache_hits - counted.cache_hits,
        );
        *counted = totals;
        self.check_damage(table, &totals)
    }

    /// Notes which share of the lookups to come will read the file.
    fn expect_missed(&self, share: f64) {
        let share = u32_of(saturating_u64(share.clamp(0.0, 1.0) * f64::from(WHOLE)));
        self.missed.store(share, Ordering::Relaxed);
    }

    fn count_cache(&self, asked: u64, had: u64) {
        if asked >= u64::from(WHOLE) {
            self.expect_missed((asked - had) as f64 / asked as f64);
        }
        self.cache_uses[0].fetch_add(asked, Ordering::Relaxed);
        self.cache_uses[1].fetch_add(had, Ordering::Relaxed);
    }

    /// A channel for the caller alone.
    fn channel(&self) -> Result<BatchStream> {
        let idle = self.channels.lock().pop();
        idle.map_or_else(BatchStream::new, Ok)
    }

    /// Keeps a channel, whose stream has come to its end, for the next batch.
    fn give(&self, channel: BatchStream) {
        self.channels.lock().push(channel);
    }
}

fn sizes(table: &Table<Mapping>) -> (usize, usize) {
    (
        to_usize(table.shape.key_size),
        to_usize(table.shape.value_size),
    )
}
