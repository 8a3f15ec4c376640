//! The CUDA engine: a batch is copied to the device and executed there by warps, on the same file
//! and with the same answers as the CPU engine.
//!
//! The file is pinned and mapped into the GPU's address space, where it has the addresses that it
//! has for the process. Kernels store into it directly. Levels are copied to device memory, as
//! far as there is room, so that probing costs no access to the file.
//!
//! Batches that change the table run one after another; look-ups run beside them and beside each
//! other, each on a stream of its own. A look-up holds the view of the table while it runs; who
//! changes the view, or frees what a look-up may still read, waits until none is held.

mod batch;
mod cache;
mod channel;
mod device;
mod driver;
mod growth;
mod host;
mod kernels;
mod launch;
mod memory;
mod mirror;
mod order;
mod readers;
mod registration;
mod slices;
mod staging;
mod store_log;
mod supply;
mod survey;
mod under_way;
mod versions;
mod view;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use bytemuck::Zeroable;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rayon::ThreadPool;

use crate::index::table::Table;
use crate::index::upkeep::{self, Upkeeper};
use crate::pm::{Mapping, Medium};
use crate::threads::pool;
use crate::{AddressOrder, Error, Options, Result};
use cache::{Cache, Loader, Pace};
use channel::Channel;
use device::Device;
use growth::Draining;
use kernels::Kernels;
use memory::{DeviceMemory, copy_out, fill, wait};
use mirror::Mirror;
use readers::Readers;
use registration::Registration;
use supply::Supply;
use survey::Surveyed;
use under_way::{UnderWay, Visit};
use view::{Counters, TableView};

pub(crate) use kernels::Read;
pub(crate) use slices::DeviceOperands;
pub use store_log::{Note, StoreWatch};
pub use versions::{SortedVersions, VersionBatch, VersionSorter};

/// Runs batches on a GPU.
pub(crate) struct CudaEngine {
    /// Loads the cache from time to time. Goes before what it works on.
    loader: Option<Loader>,
    // Attached goes before the device whose memory it has.
    attached: Option<Arc<Attached>>,
    /// What a survey has made and attaching needs as well.
    surveyed: Option<Surveyed>,
    device: Arc<Device>,
    ordinal: u32,
    options: Options,
}

/// What the engine keeps for its table.
struct Attached {
    kernels: Kernels,
    /// Held by look-ups while they run.
    view: RwLock<TableView>,
    /// Look-ups that hold the view without a guard, as they are waited for by no call.
    readers: Readers,
    /// What those look-ups did, added up; one [`Counters`].
    looked_up: DeviceMemory,
    /// How much of it has been counted.
    counted: Mutex<Counters>,
    /// Length from which on a batch is put in the order of the places it touches.
    ordered_from: AtomicU32,
    /// Batches launched.
    launches: AtomicU32,
    /// Those that change the table, counted before they are launched.
    changes: AtomicU64,
    /// Look-ups that hold the view.
    under_way: UnderWay,
    /// Held by whoever loads the cache.
    loading: Mutex<()>,
    /// Loads that callers wait for and that have not begun.
    awaited_loads: AtomicU32,
    /// Values that the cache was asked for, and those that it had.
    cache_uses: [AtomicU64; 2],
    /// Which share of the look-ups that find something is expected to read the file, of [`WHOLE`].
    missed: AtomicU32,
    /// Held by whoever waits for the writer's lock.
    next_writer: Mutex<()>,
    /// Held by whoever changes the table.
    writer: Mutex<Writer>,
    channels: Mutex<Vec<Channel>>,
    /// Threads that copy between the host's slices, the file and pinned memory.
    copiers: ThreadPool,
    registration: Registration,
}

/// What shares are of.
const WHOLE: u32 = 1 << 10;

/// The view while a look-up is under way.
struct HeldView<'a> {
    _visit: Visit<'a>,
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
    supply: Supply,
    mirror: Mirror,
    cache: Cache,
    /// One bit for each page of the file that was stored to since it was last saved; empty where
    /// stores need no checkpoint.
    dirty: DeviceMemory,
    draining: Draining,
}

impl CudaEngine {
    /// Opens the device.
    ///
    /// # Errors
    /// [`Error::Gpu`] if it is absent or too old.
    pub(crate) fn open(ordinal: u32, options: &Options) -> Result<Self> {
        let started = Instant::now();
        let device = Arc::new(Device::open(ordinal)?);
        let took = started.elapsed();
        tracing::info!(
            device = device.name(),
            ordinal,
            ?took,
            "the CUDA engine is open"
        );
        Ok(Self {
            loader: None,
            attached: None,
            surveyed: None,
            device,
            ordinal,
            options: options.clone(),
        })
    }

    /// Ordinal of the device.
    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Takes a table over: from here to [`detach`](Self::detach) only this engine changes it.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the file cannot be pinned.
    pub(crate) fn attach(&mut self, table: &Arc<Table<Mapping>>) -> Result<()> {
        self.device.enter()?;
        let Surveyed {
            kernels,
            registration,
            mirror,
        } = match self.surveyed.take() {
            Some(surveyed) => surveyed,
            None => self.prepare(table)?,
        };
        let started = Instant::now();
        let (mirror, mended) = match mirror {
            Some((mirror, mended)) if self.options.device_mirror => (mirror, mended),
            _ => {
                let (wanted, most) = (self.options.device_mirror, self.options.device_memory);
                (Mirror::new(wanted, most), Vec::new())
            }
        };
        let attached = Attached {
            kernels,
            view: RwLock::new(TableView::zeroed()),
            readers: Readers::default(),
            looked_up: DeviceMemory::new(size_of::<Counters>())?,
            counted: Mutex::default(),
            ordered_from: AtomicU32::new(u32::MAX),
            launches: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            under_way: UnderWay::default(),
            loading: Mutex::default(),
            awaited_loads: AtomicU32::new(0),
            cache_uses: Default::default(),
            missed: AtomicU32::new(WHOLE),
            next_writer: Mutex::default(),
            writer: Mutex::new(Writer {
                supply: Supply::new(table.shape.record_stride)?,
                mirror,
                cache: Cache::new(&self.options),
                dirty: DeviceMemory::new(0)?,
                draining: Draining::default(),
            }),
            channels: Mutex::default(),
            copiers: pool("copy", 0, table.path())?,
            registration,
        };
        let mut channel = attached.channel()?;
        // SAFETY: the block is as long.
        unsafe {
            let totals = &attached.looked_up;
            fill(&channel.stream, totals.address(), 0, totals.len())?;
        }
        let mut writer = attached.writer();
        let registration = &attached.registration;
        let mut view = writer
            .mirror
            .add_table(table, registration, &channel.stream)?;
        writer
            .mirror
            .refresh(table, registration, &channel.stream, &mended)?;
        (view.cache, _) = writer
            .cache
            .reach(&channel.stream, view.top_level, view.cache)?;
        *attached.view_alone() = view;
        attached.extend(table, &mut writer, &channel.stream)?;
        drop(writer);
        tracing::debug!(took = ?started.elapsed(), "copied the levels to the device");
        let started = Instant::now();
        let ordered_from = match self.options.address_order {
            AddressOrder::Always => 0,
            AddressOrder::Never => u32::MAX,
            AddressOrder::Auto => {
                order::measure(&attached.kernels, &mut channel, attached.view_now())?
            }
        };
        attached.ordered_from.store(ordered_from, Ordering::Relaxed);
        tracing::debug!(took = ?started.elapsed(), ordered_from, "measured the machine");
        attached.give(channel);
        table.set_drained_by_engine(true);
        let attached = Arc::new(attached);
        let period = self.options.cache_period;
        if let Some(period) = period.filter(|_| self.options.cache_ratio > 0.0) {
            self.loader = Some(Loader::start(
                Arc::clone(&self.device),
                Arc::clone(&attached),
                Arc::clone(table),
                period,
            )?);
        }
        self.attached = Some(attached);
        Ok(())
    }

    /// The kernels for a table, and its file pinned, neither of which waits for the other.
    fn prepare(&self, table: &Table<Mapping>) -> Result<Surveyed> {
        std::thread::scope(|scope| {
            let load = || {
                let started = Instant::now();
                self.device.enter()?;
                let watch = self.options.store_watch.as_ref();
                let key_size = table.shape.key_size;
                let kernels = Kernels::load(&self.device, &table.medium, key_size, watch)?;
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

    /// Starts the upkeep of the table, which is attached.
    pub(crate) fn keep_up(&self, table: &Arc<Table<Mapping>>) -> Upkeeper<Mapping> {
        // Who watches stores wants those of batches alone.
        let attached = self
            .attached
            .clone()
            .filter(|_| self.options.store_watch.is_none());
        let device = Arc::clone(&self.device);
        let mut pace = upkeep::Pace::default();
        Upkeeper::start(table, move |table| {
            let attached = attached.as_deref()?;
            let done = device
                .enter()
                .and_then(|()| attached.keep_up(table, &mut pace));
            done.unwrap_or_else(|error| {
                tracing::warn!(%error, "the upkeep rests");
                None
            })
        })
    }

    fn attached(&self) -> Result<&Attached> {
        self.device.enter()?;
        self.attached.as_deref().ok_or_else(|| Error::Gpu {
            what: "running a batch",
            found: "an engine without a table".into(),
            expected: "an open index".into(),
        })
    }

    /// Finishes what is under way and gives the table back. It may be closed then.
    ///
    /// # Errors
    /// [`Error::Gpu`]; the table was not given back, and its file is as after a crash.
    pub(crate) fn detach(&mut self, table: &Table<Mapping>) -> Result<()> {
        self.loader = None;
        let attached = self.attached()?;
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        attached.readers.wait();
        let counted = attached.count_look_ups(table);
        let drained = attached.finish_draining(table, &mut writer, &mut channel);
        if let Err(error) = &drained {
            tracing::warn!(%error, "the resize is left for the next open");
        }
        writer.supply.hand_back(table, &channel.stream)?;
        attached.save_dirty(table, &writer, &channel.stream)?;
        drop((channel, writer));
        self.attached = None;
        // What the GPU could not empty is not for the host, which has not followed its changes.
        table.set_drained_by_engine(drained.is_err());
        counted
    }

    /// Makes room for `additional` more items.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn reserve(&self, table: &Table<Mapping>, additional: u64) -> Result<()> {
        let attached = self.attached()?;
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        attached.reserve(table, &mut writer, &mut channel, additional)?;
        attached.give(channel);
        Ok(())
    }

    /// Drives a resize under way to its end.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn finish_draining(&self, table: &Table<Mapping>) -> Result<()> {
        let attached = self.attached()?;
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        attached.finish_draining(table, &mut writer, &mut channel)?;
        attached.give(channel);
        Ok(())
    }

    /// Takes a checkpoint, where the domain has them.
    ///
    /// # Errors
    /// [`Error::Gpu`], and those of [`Table::sync`].
    pub(crate) fn sync(&self, table: &Table<Mapping>) -> Result<()> {
        let attached = self.attached()?;
        // The writer's lock keeps the GPU's stores away from the checkpoint.
        let writer = attached.writer();
        let channel = attached.channel()?;
        attached.save_dirty(table, &writer, &channel.stream)?;
        attached.give(channel);
        attached.count_look_ups(table)?;
        table.sync()
    }

    /// Loads the cache anew.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn reload_cache(&self, table: &Table<Mapping>) -> Result<()> {
        self.attached()?.load_cache(table, Pace::AtOnce)
    }

    /// Values that look-ups have asked the cache for, and those that it had.
    pub(crate) fn cache_uses(&self) -> (u64, u64) {
        let [asked, had] = self.attached.as_ref().map_or([0; 2], |attached| {
            attached
                .cache_uses
                .each_ref()
                .map(|uses| uses.load(Ordering::Relaxed))
        });
        (asked, had)
    }

    /// Adds what look-ups have done that no call has waited for to the table's figures.
    ///
    /// # Errors
    /// [`Error::Gpu`], and [`Error::Damaged`] if they met damage.
    pub(crate) fn count_look_ups(&self, table: &Table<Mapping>) -> Result<()> {
        self.attached()?.count_look_ups(table)
    }
}

static_assertions::assert_impl_all!(CudaEngine: Send, Sync);

impl Drop for CudaEngine {
    fn drop(&mut self) {
        self.loader = None;
        // Device memory is freed in the context of the calling thread.
        let _ = self.device.enter();
    }
}

impl Attached {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        // Of one lock alone, a thread with batch after batch would leave nothing to others.
        let _next = self.next_writer.lock();
        self.writer.lock()
    }

    /// The view, for a launch of whoever holds the writer's lock.
    fn view_now(&self) -> TableView {
        *self.view.read()
    }

    /// The view for a look-up, kept as it is until the guard is dropped.
    fn hold_view(&self) -> HeldView<'_> {
        HeldView {
            _visit: self.under_way.enter(),
            view: self.view.read(),
        }
    }

    /// The view, when no look-up is under way.
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

    /// Notes which share of the look-ups to come will read the file.
    fn expect_missed(&self, share: f64) {
        let share = (share * f64::from(WHOLE)) as u32;
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
    fn channel(&self) -> Result<Channel> {
        let idle = self.channels.lock().pop();
        idle.map_or_else(Channel::new, Ok)
    }

    /// Keeps a channel, whose stream has come to its end, for the next batch.
    fn give(&self, channel: Channel) {
        self.channels.lock().push(channel);
    }
}

fn sizes(table: &Table<Mapping>) -> (usize, usize) {
    (
        table.shape.key_size as usize,
        table.shape.value_size as usize,
    )
}
