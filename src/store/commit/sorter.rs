//! Who sorts the versions of batches: the CPU, or for long queues a GPU.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::engine::{VersionSorter, version_sorter};
use crate::pool::rates::Side;
use crate::pool::threshold::Threshold;
use crate::store::threads::PARALLEL_REQUESTS_MIN;
use crate::{Engine, Result};

/// See the [module](self).
pub struct Sorter {
    engine: Engine,
    /// The GPU, once it was needed, if there is one.
    gpu: OnceLock<Option<VersionSorter>>,
    threshold: Mutex<Threshold>,
    batches: AtomicU64,
}

impl Sorter {
    /// The one that is asked for. `Auto` opens a GPU only when there is work for it, since that takes
    /// longer than to open the store.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if a GPU is asked for by name and cannot be had.
    pub fn new(engine: Engine) -> Result<Self> {
        let gpu = match engine {
            Engine::Auto => OnceLock::new(),
            Engine::Cpu | Engine::Cuda { .. } => version_sorter(engine)?.into(),
        };
        let threshold = Mutex::new(Threshold::new(Instant::now()));
        Ok(Self {
            engine,
            gpu,
            threshold,
            batches: AtomicU64::new(0),
        })
    }

    /// Batches that the GPU was chosen for.
    pub fn gpu_batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// The GPU, if it is to sort the versions of so many requests, which are all that wait.
    pub fn gpu(&self, waiting: usize) -> Option<&VersionSorter> {
        // The threshold has a lock that all partitions share, which single requests would wait for.
        if waiting < PARALLEL_REQUESTS_MIN || matches!(self.gpu.get(), Some(None)) {
            return None;
        }
        match self.threshold.lock().choose(waiting, Instant::now()) {
            Side::Cpu => None,
            // Only `Auto` may still have to look, and finds no error.
            Side::Gpu => {
                let open = || version_sorter(self.engine).ok().flatten();
                let gpu = self.gpu.get_or_init(open).as_ref();
                self.batches
                    .fetch_add(u64::from(gpu.is_some()), Ordering::Relaxed);
                gpu
            }
        }
    }
}
