//! The engines: the same operations on the same file, with the same answers.

pub(crate) mod bytes;
pub mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(all(test, feature = "cuda", not(loom)))]
pub(crate) mod device_tests;

use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::sync::atomic::Ordering;

use fixedbitset::FixedBitSet;

#[cfg(feature = "cuda")]
use crate::layout::Shape;
use crate::options::{Engine, Options};
use crate::pm::Mapping;
use crate::table::Table;
use crate::table::alloc::arena::ReachableRecords;
use crate::table::compact::reporting;
use crate::table::maintenance::Maintainer;
use crate::table::record::ValuePart;
use crate::table::recovery::Progress;
use crate::table::recovery::scan::Findings;
use crate::{Error, Result};
use cpu::CpuEngine;

/// Verbs that change the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// The first of equal keys is stored, if absent.
    Insert,
    /// The last of equal keys is stored.
    Upsert,
    /// The last of equal keys is stored, if present.
    Update,
    /// The key is taken out. Comes without values.
    Remove,
}

/// The engine of an open index. Keys and values are packed bytes of the table's sizes.
pub(crate) enum Backend {
    Cpu(CpuEngine),
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::CudaEngine>),
}

impl Backend {
    /// The engine that the options ask for.
    ///
    /// # Errors
    /// [`Error::Gpu`] if they ask for a GPU by name and it cannot be had.
    pub(crate) fn choose(options: &Options) -> Result<Self> {
        match options.engine {
            Engine::Cpu => Ok(Self::cpu(options)),
            Engine::Auto => Ok(Self::cuda(0, options).unwrap_or_else(|error| {
                say_once(&error);
                Self::cpu(options)
            })),
            Engine::Cuda { device } => Self::cuda(device, options),
        }
    }

    fn cpu(options: &Options) -> Self {
        Backend::Cpu(CpuEngine::new(options.threads))
    }

    #[cfg(feature = "cuda")]
    fn cuda(device: u32, options: &Options) -> Result<Self> {
        cuda::CudaEngine::open(device, options).map(|engine| Backend::Cuda(Box::new(engine)))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(device: u32, _: &Options) -> Result<Self> {
        Err(not_built(device))
    }

    /// Makes the engine ready for `table`. `Auto` goes on with the CPU if the GPU refuses it.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn attach(&mut self, table: &Arc<Table<Mapping>>, options: &Options) -> Result<()> {
        let _ = table;
        let attached: Result<()> = match self {
            Backend::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.attach(table),
        };
        if let (Err(error), Engine::Auto) = (&attached, options.engine) {
            say_once(error);
            *self = Self::cpu(options);
            return Ok(());
        }
        attached
    }

    /// Starts the maintenance of `table`, which is attached.
    pub(crate) fn maintain(&self, table: &Arc<Table<Mapping>>) -> Maintainer<Mapping> {
        match self {
            Backend::Cpu(_) => CpuEngine::maintain(table),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.maintain(table),
        }
    }

    /// Scans a table that was not cleanly closed, before it is attached.
    pub(crate) fn scan(
        &mut self,
        table: &Table<Mapping>,
        reachable: &ReachableRecords,
    ) -> Findings {
        #[cfg(feature = "cuda")]
        if let Backend::Cuda(engine) = self {
            match engine.recovery_scan(table, reachable) {
                Ok(Some(findings)) => return findings,
                // The CPU's scan says what is damaged in words.
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "scanning on the CPU"),
            }
            reachable
                .words()
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
        }
        table.scan(reachable, &|_| {})
    }

    /// Gives the table back, so that it can be closed.
    ///
    /// # Errors
    /// [`Error::Gpu`]. [`Error::Damaged`] if lookups have met damage; the table can be closed none the less.
    pub(crate) fn detach(&mut self, table: &Table<Mapping>) -> Result<()> {
        let _ = table;
        match self {
            Backend::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.detach(table),
        }
    }

    /// Gives back what the table does not need; see [`Table::compact`]. A device lets go of the file meanwhile, and
    /// the CPU serves its batches.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn compact(
        &self,
        table: &Table<Mapping>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<()> {
        let compact = || {
            table.compact(&reporting(progress));
            table.publish()?;
            table.release_free();
            Ok(())
        };
        match self {
            Backend::Cpu(_) => compact(),
            #[cfg(feature = "cuda")]
            // Beside another compaction all that is left is to sync.
            Backend::Cuda(engine) => engine
                .without_device(table, compact)
                .unwrap_or_else(|| engine.sync(table)),
        }
    }

    /// Executes a batch that changes the table.
    pub(crate) fn write(
        &self,
        table: &Table<Mapping>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
    ) -> Result<FixedBitSet> {
        match self {
            Backend::Cpu(engine) => engine.write(table, verb, keys, values),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.write(table, verb, keys, values),
        }
    }

    /// Copies a part of the values of the keys that are there. `values` holds such parts.
    pub(crate) fn get(
        &self,
        table: &Table<Mapping>,
        wanted: ValuePart,
        keys: &[u8],
        values: &mut [u8],
    ) -> Result<FixedBitSet> {
        match self {
            Backend::Cpu(engine) => engine.get(table, wanted, keys, values),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.get(table, wanted, keys, values),
        }
    }

    /// Says which keys are there.
    pub(crate) fn contains(&self, table: &Table<Mapping>, keys: &[u8]) -> Result<FixedBitSet> {
        match self {
            Backend::Cpu(engine) => engine.contains(table, keys),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.contains(table, keys),
        }
    }

    /// Makes room for more items.
    pub(crate) fn reserve(&self, table: &Table<Mapping>, additional: u64) -> Result<()> {
        match self {
            Backend::Cpu(_) => table.reserve(additional),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.reserve(table, additional),
        }
    }

    /// Publishes a version, in one checkpoint where the domain has them.
    pub(crate) fn sync(&self, table: &Table<Mapping>) -> Result<()> {
        match self {
            Backend::Cpu(_) => table.publish(),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.sync(table),
        }
    }

    /// Brings the table's statistics up to date.
    pub(crate) fn count(&self, table: &Table<Mapping>) {
        let _ = table;
        match self {
            Backend::Cpu(_) => {}
            // Whatever is wrong, the next sync or close says so.
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => drop(engine.count_lookups(table)),
        }
    }

    /// Refreshes the bucket cache, where there is one.
    pub(crate) fn reload_cache(&self, table: &Table<Mapping>) -> Result<()> {
        let _ = table;
        match self {
            Backend::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.reload_cache(table),
        }
    }

    /// Values that the bucket cache was asked for, and those that it had.
    pub(crate) fn cache_uses(&self, table: &Table<Mapping>) -> (u64, u64) {
        let _ = table;
        match self {
            Backend::Cpu(_) => (0, 0),
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.cache_uses(table),
        }
    }

    /// Bytes of device memory that are taken.
    pub(crate) fn device_memory(&self) -> u64 {
        match self {
            Backend::Cpu(_) => 0,
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.device_memory(),
        }
    }

    /// Which engine this is.
    pub(crate) fn engine(&self) -> Engine {
        match self {
            Backend::Cpu(_) => Engine::Cpu,
            #[cfg(feature = "cuda")]
            Backend::Cuda(engine) => engine.engine(),
        }
    }
}

/// What sorts the versions of a store's batches on the GPU that is asked for; `None` leaves them to the
/// CPU.
///
/// # Errors
/// [`Error::Gpu`] if a GPU is asked for by name and cannot be had.
pub(crate) fn version_sorter(
    engine: Engine,
    budget: &DeviceBudget,
) -> Result<Option<VersionSorter>> {
    open_on(engine, |device| open_sorter(device, budget))
}

/// What compacts a store's sorted files on the GPU that is asked for; `None` leaves them to the CPU.
///
/// # Errors
/// As [`version_sorter`].
pub(crate) fn compactor(engine: Engine, budget: &DeviceBudget) -> Result<Option<Compactor>> {
    open_on(engine, |device| open_compactor(device, budget))
}

/// What finds records of a store's keys on the GPU that is asked for; `None` leaves them to the CPU.
///
/// # Errors
/// As [`version_sorter`].
#[cfg(feature = "cuda")]
pub(crate) fn locator(
    engine: Engine,
    shape: &Shape,
    budget: &DeviceBudget,
) -> Result<Option<Locator>> {
    open_on(engine, |device| Locator::open(device, shape, budget))
}

/// What `open` makes of the GPU that is asked for. `Auto` does without one that cannot be had.
fn open_on<T>(engine: Engine, open: impl FnOnce(u32) -> Result<T>) -> Result<Option<T>> {
    match engine {
        Engine::Cpu => Ok(None),
        Engine::Auto => Ok(open(0).inspect_err(say_once).ok()),
        Engine::Cuda { device } => open(device).map(Some),
    }
}

#[cfg(feature = "cuda")]
pub(crate) use cuda::locator::{Locator, Refreshed};

#[cfg(feature = "cuda")]
pub(crate) use crate::gpu::{
    budget::StoreBudget as DeviceBudget, compaction::Compactor, sort::VersionSorter,
};

/// A build without the feature `cuda` takes no device memory.
#[cfg(not(feature = "cuda"))]
#[derive(Debug, Clone)]
pub(crate) struct DeviceBudget;

#[cfg(not(feature = "cuda"))]
impl DeviceBudget {
    pub(crate) fn new(_: Option<u64>) -> Self {
        Self
    }

    pub(crate) fn buffers_max(&self) -> u64 {
        u64::MAX
    }

    pub(crate) fn taken(&self) -> u64 {
        0
    }
}

#[cfg(feature = "cuda")]
fn open_compactor(device: u32, budget: &DeviceBudget) -> Result<Compactor> {
    Ok(Compactor::open(device, &budget.buffers)?)
}

/// A build without the feature `cuda` has none.
#[cfg(not(feature = "cuda"))]
pub(crate) enum Compactor {}

#[cfg(not(feature = "cuda"))]
fn open_compactor(device: u32, _: &DeviceBudget) -> Result<Compactor> {
    Err(not_built(device))
}

#[cfg(feature = "cuda")]
fn open_sorter(device: u32, budget: &DeviceBudget) -> Result<VersionSorter> {
    Ok(VersionSorter::open(device, &budget.buffers)?)
}

/// A build without the feature `cuda` has none.
#[cfg(not(feature = "cuda"))]
pub(crate) enum VersionSorter {}

#[cfg(not(feature = "cuda"))]
fn open_sorter(device: u32, _: &DeviceBudget) -> Result<VersionSorter> {
    Err(not_built(device))
}

#[cfg(not(feature = "cuda"))]
fn not_built(device: u32) -> Error {
    Error::Gpu {
        what: "opening the device",
        found: format!("device {device} asked of a build without the feature `cuda`"),
        expected: "build with `--features cuda`, or use Engine::Auto or Engine::Cpu".into(),
    }
}

/// Says, once in the life of the program, why `Auto` chose the CPU.
fn say_once(error: &Error) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| tracing::info!(%error, "Engine::Auto uses the CPU"));
}

#[cfg(test)]
mod tests;
