//! Who sorts the versions of batches: the CPU, or for long queues a GPU if it is faster (H-Rocks §6.7).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::engine::{DeviceBudget, VersionSorter, version_sorter};
#[cfg(feature = "cuda")]
use crate::pool::key_writes::KeyWrite;
use crate::pool::key_writes::Sorted;
use crate::pool::rates::{Rates, Side};
use crate::pool::threads::PARALLEL_REQUESTS_MIN;
use crate::pool::threshold::Threshold;
use crate::pool::worker::Worker;
#[cfg(feature = "cuda")]
use crate::pool::{parallel, split::position, threads::REQUESTS_PER_THREAD_MIN};
use crate::{Engine, Result};

/// See the [module](self).
pub struct Sorter {
    engine: Engine,
    /// The GPU, once it was looked for, if there is one.
    gpu: Arc<OnceLock<Option<VersionSorter>>>,
    /// Looks for it: to open one takes up to half a second, in which the CPU sorts.
    opener: Worker,
    threshold: Mutex<Threshold>,
    /// Of batches that the threshold lets to a GPU.
    rates: Rates,
    batches: AtomicU64,
}

/// Who sorts a batch.
pub struct Turn<'s> {
    sorter: &'s Sorter,
    pub gpu: Option<&'s VersionSorter>,
    /// How long the batch is, and when it began, if that is to be noted.
    began: Option<(u64, Instant)>,
}

impl Turn<'_> {
    /// Notes that the batch is sorted, and what its gets and merges see is found.
    pub fn done(self) {
        if let Some((requests, began)) = self.began {
            let side = self.gpu.map_or(Side::Cpu, |_| Side::Gpu);
            self.sorter.rates.note(side, requests, began.elapsed());
        }
    }
}

impl Sorter {
    /// The one that is asked for. `Auto` opens a GPU only when there is work for it, since that takes
    /// longer than to open the store.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if a GPU is asked for by name and cannot be had.
    pub fn new(engine: Engine, budget: &DeviceBudget) -> Result<Self> {
        let gpu: Arc<OnceLock<_>> = Arc::new(match engine {
            Engine::Auto => OnceLock::new(),
            Engine::Cpu | Engine::Cuda { .. } => version_sorter(engine, budget)?.into(),
        });
        let opener = Worker::new("gphash-gpu");
        let (opened, budget) = (Arc::clone(&gpu), budget.clone());
        opener.set_work(move || {
            // Only `Auto` still has to look, and finds no error.
            opened.get_or_init(|| version_sorter(engine, &budget).ok().flatten());
            None
        });
        let threshold = Mutex::new(Threshold::new(Instant::now()));
        Ok(Self {
            engine,
            gpu,
            opener,
            threshold,
            rates: Rates::default(),
            batches: AtomicU64::new(0),
        })
    }

    /// Batches that the GPU was chosen for.
    pub fn gpu_batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Who is to sort the versions of so many requests, which are all that wait: a GPU that was asked for by name those
    /// of every long queue, any other one those that it sorts faster than the CPU, once it is open.
    pub fn turn(&self, waiting: usize) -> Turn<'_> {
        let of_cpu = Turn {
            sorter: self,
            gpu: None,
            began: None,
        };
        // The threshold has a lock that all partitions share, which single requests would wait for.
        if waiting < PARALLEL_REQUESTS_MIN || matches!(self.gpu.get(), Some(None)) {
            return of_cpu;
        }
        if self.threshold.lock().choose(waiting, Instant::now()) == Side::Cpu {
            return of_cpu;
        }
        let requests = waiting as u64;
        let of_cpu = Turn {
            began: Some((requests, Instant::now())),
            ..of_cpu
        };
        if self.engine == Engine::Auto && self.rates.choose(requests) == Side::Cpu {
            return of_cpu;
        }
        let Some(gpu) = self.gpu.get() else {
            self.opener.call_if_possible();
            return of_cpu;
        };
        // Else the CPU does it: the budget has no room.
        let gpu = gpu.as_ref().filter(|gpu| has_room(gpu, waiting));
        self.batches
            .fetch_add(u64::from(gpu.is_some()), Ordering::Relaxed);
        Turn { gpu, ..of_cpu }
    }
}

#[cfg(feature = "cuda")]
fn has_room(gpu: &VersionSorter, requests: usize) -> bool {
    gpu.has_room(requests)
}

/// The changes among `len` requests, sorted by a GPU, which is given the hashes of the keys at all positions. Nothing if there
/// is none, or it could not.
pub fn sort_on_gpu(
    gpu: Option<&VersionSorter>,
    len: u32,
    changes: &[u32],
    hash: &(dyn Fn(u32) -> u64 + Sync),
) -> Option<Sorted> {
    let sorted = sort(gpu?, len, changes, hash);
    let warn = |error: &_| tracing::warn!(%error, "the CPU sorts a batch that the GPU could not");
    sorted.inspect_err(warn).ok()
}

#[cfg(feature = "cuda")]
fn sort(
    gpu: &VersionSorter,
    len: u32,
    changes: &[u32],
    hash: &(dyn Fn(u32) -> u64 + Sync),
) -> Result<Sorted> {
    let mut batch = gpu.batch(len as usize)?;
    let (hashes, positions) = batch.operands();
    let parts = hashes.chunks_mut(REQUESTS_PER_THREAD_MIN).enumerate();
    parallel::map(parts, |(nth, hashes)| {
        let start = position(nth * REQUESTS_PER_THREAD_MIN);
        for (position, of_position) in (start..).zip(hashes) {
            *of_position = hash(position);
        }
    });
    positions[..changes.len()].copy_from_slice(changes);
    let sorted = batch.sort(changes.len())?;
    let hashes = sorted.hashes();
    let order = sorted.order();
    let version = |nth: usize| KeyWrite {
        hash: hashes[order[nth] as usize],
        position: order[nth],
    };
    Ok(Sorted {
        table: parallel::collect(order.len(), REQUESTS_PER_THREAD_MIN, version),
        newest: sorted.before().to_vec(),
    })
}

/// A build without the feature `cuda` has none.
#[cfg(not(feature = "cuda"))]
fn sort(gpu: &VersionSorter, _: u32, _: &[u32], _: &dyn Fn(u32) -> u64) -> Result<Sorted> {
    match *gpu {}
}

/// As [`sort`].
#[cfg(not(feature = "cuda"))]
fn has_room(gpu: &VersionSorter, _: usize) -> bool {
    match *gpu {}
}

impl Drop for Sorter {
    fn drop(&mut self) {
        self.opener.stop();
    }
}

#[cfg(all(test, feature = "cuda", not(loom)))]
mod tests;
