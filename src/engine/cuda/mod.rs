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

#[cfg(test)]
mod abi_tests;
mod batch;
mod cache;
mod kernels;
pub(crate) mod locator;
mod recovery_scan;
mod service;
mod stream;
mod table;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::gpu::device::Device;
use crate::pm::Mapping;
use crate::table::Table;
use crate::table::idle::IdleWatch;
use crate::table::maintenance;
use crate::table::maintenance::Maintainer;
use crate::{Engine, Options, Result};
use cache::{Pace, Refresher};
use service::{Server, Service};
use table::Prepared;

pub(crate) use batch::DeviceOperands;
pub(crate) use kernels::Read;

/// Runs batches on a GPU, and on the CPU once that has failed.
pub(crate) struct CudaEngine {
    /// Refreshes the cache from time to time. Goes before what it works on.
    refresher: Option<Refresher>,
    /// What a recovery scan has made and attaching needs as well.
    prepared: Option<Prepared>,
    service: Arc<Service>,
}

impl CudaEngine {
    /// Opens the device.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if it is absent or too old.
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
            refresher: None,
            prepared: None,
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
    /// [`Error::Gpu`](crate::Error::Gpu) if the file cannot be pinned.
    pub(crate) fn attach(&mut self, table: &Arc<Table<Mapping>>) -> Result<()> {
        self.service.attach(table, &mut self.prepared)?;
        let options = self.service.options();
        if let Some(period) = options.cache_period
            && options.cache_ratio > 0.0
        {
            let (service, table) = (Arc::clone(&self.service), Arc::clone(table));
            self.refresher = Refresher::start(service, table, period)
                .inspect_err(|error| tracing::warn!(%error, "the cache is refreshed when asked"))
                .ok();
        }
        Ok(())
    }

    /// Starts the maintenance of the table, which is attached.
    pub(crate) fn maintain(&self, table: &Arc<Table<Mapping>>) -> Maintainer<Mapping> {
        let service = Arc::clone(&self.service);
        let (mut pace, mut watch) = (maintenance::Pace::default(), IdleWatch::default());
        Maintainer::start(table, move |table| {
            service.maintain(table, &mut pace, &mut watch)
        })
    }

    /// Finishes what is under way and gives the table back. It may be closed then.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if lookups have met damage.
    /// [`Error::Gpu`](crate::Error::Gpu) if the GPU has failed and the table could not be recovered. The file
    /// is then as after a crash.
    pub(crate) fn detach(&mut self, table: &Table<Mapping>) -> Result<()> {
        self.refresher = None;
        let detached = self.service.detach(table);
        self.service.tell(detached)
    }

    /// Does `work` to the table while the device lets go of it, and the CPU serves batches; `None` if others do so.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), and those of `work`.
    pub(crate) fn without_device(
        &self,
        table: &Table<Mapping>,
        work: impl FnOnce() -> Result<()> + Send,
    ) -> Option<Result<()>> {
        self.service.without_device(table, work)
    }

    /// Makes room for `additional` more items.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn reserve(&self, table: &Table<Mapping>, additional: u64) -> Result<()> {
        self.service.serve(table, |server| match server {
            Server::Host(_) => table.reserve(additional),
            Server::Device(device_table) => {
                device_table.exclusively(table, |exclusive| exclusive.reserve(additional))
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
                device_table.exclusively(table, |exclusive| exclusive.finish_draining())
            }
        })
    }

    /// Publishes a version, in one checkpoint where the domain has them.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), and those of [`Table::publish`].
    pub(crate) fn sync(&self, table: &Table<Mapping>) -> Result<()> {
        let synced = self.service.serve(table, |server| match server {
            Server::Host(_) => table.publish(),
            Server::Device(device_table) => device_table.sync(table),
        });
        self.service.tell(synced)
    }

    /// Refreshes the cache.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn reload_cache(&self, table: &Table<Mapping>) -> Result<()> {
        self.service.serve(table, |server| match server {
            Server::Host(_) => Ok(()),
            Server::Device(device_table) => device_table.refresh_cache(table, Pace::AtOnce),
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

    /// Bytes of device memory that are taken for the table.
    pub(crate) fn device_memory(&self) -> u64 {
        self.service.budget().taken()
    }

    /// Adds what lookups have done that no call has waited for to the table's statistics.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn count_lookups(&self, table: &Table<Mapping>) -> Result<()> {
        self.service.serve(table, |server| match server {
            Server::Host(_) => Ok(()),
            Server::Device(device_table) => device_table.count_lookups(table),
        })
    }
}

static_assertions::assert_impl_all!(CudaEngine: Send, Sync);

impl Drop for CudaEngine {
    fn drop(&mut self) {
        self.refresher = None;
        // Device memory is freed in the context of the calling thread.
        let _entered = self.service.device().enter();
        self.prepared = None;
    }
}
