//! Who does which part of a compaction: a thread of the CPU, or the GPU for it (gLSM §5.4).
//!
//! Both make the same bytes, so that each part goes to whoever is faster: how long both took for parts of about its
//! size is known from the parts before.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Engine;
use crate::engine::{Compactor, compactor};

/// Bytes of a part below which a launch is not worth its while.
const PART_BYTES_MIN: u64 = 256 << 10;

/// Most bytes of a part that goes to the GPU: each has pinned memory for them twice.
const PART_BYTES_MAX: u64 = 32 << 20;

/// The part of a memory budget that a part may have.
const PART_SHARE: u64 = 64;

/// Parts that are on the GPU at a time: while some are copied, others are sorted.
const PARTS_MAX: usize = 16;

/// How long a GPU is left alone after a failure.
const REST: Duration = Duration::from_secs(10);

/// Parts of a size after which the slower side does one again: it may have become the faster one.
const RETRY_PARTS: u64 = 512;

/// How much the last part counts in what is known of a size.
const WEIGHT: f64 = 0.25;

/// Sizes that are told apart: each is twice the one before.
const SIZES: usize = 64;

/// See the [module](self). All partitions of a store share one.
pub struct GpuCompaction {
    engine: Engine,
    /// The GPU, once it was needed, if there is one.
    gpu: Arc<OnceLock<Option<Compactor>>>,
    /// It is being opened, or was.
    is_opened: AtomicBool,
    /// Who opens it.
    opener: Mutex<Option<JoinHandle<()>>>,
    /// Most bytes of a part.
    bytes_max: u64,
    sizes: Mutex<[Rates; SIZES]>,
    under_way: AtomicUsize,
    rests_until: Mutex<Option<Instant>>,
    /// It does each part, however short it is and long it takes.
    #[cfg(all(test, feature = "cuda"))]
    is_forced: bool,
}

/// What is known of parts of a size: nanoseconds a byte, on the CPU and on the GPU.
#[derive(Clone, Copy, Default)]
struct Rates {
    cpu: Option<f64>,
    gpu: Option<f64>,
    parts: u64,
}

impl Rates {
    /// Whether the GPU is to do the next part.
    fn choose(&mut self) -> bool {
        self.parts += 1;
        let faster = match (self.cpu, self.gpu) {
            (Some(cpu), Some(gpu)) => gpu < cpu,
            // What is not known yet is tried.
            (_, gpu) => gpu.is_none(),
        };
        faster != self.parts.is_multiple_of(RETRY_PARTS)
    }
}

/// Who has done a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Cpu,
    Gpu,
}

impl GpuCompaction {
    /// The one that is asked for. It is opened when there is work for it.
    pub fn new(engine: Engine, memory_budget: Option<u64>) -> Self {
        Self {
            engine,
            gpu: Arc::new(OnceLock::new()),
            is_opened: AtomicBool::new(false),
            opener: Mutex::new(None),
            bytes_max: memory_budget.map_or(PART_BYTES_MAX, |budget| {
                (budget / PART_SHARE).min(PART_BYTES_MAX)
            }),
            sizes: Mutex::new([Rates::default(); SIZES]),
            under_way: AtomicUsize::new(0),
            rests_until: Mutex::new(None),
            #[cfg(all(test, feature = "cuda"))]
            is_forced: false,
        }
    }

    /// One that does each part.
    #[cfg(all(test, feature = "cuda"))]
    pub fn forced(engine: Engine) -> Self {
        let mut one = Self::new(engine, None);
        one.is_forced = true;
        one
    }

    /// Parts in which a job of so many bytes must be cut to be for the GPU, if there is one.
    pub fn parts_of(&self, bytes: u64) -> u64 {
        match self.gpu.get() {
            Some(Some(_)) => bytes.div_ceil(self.bytes_max.max(1)),
            _ => 1,
        }
    }

    /// Whether it is worth its while.
    fn is_faster(&self, bytes: u64) -> bool {
        #[cfg(all(test, feature = "cuda"))]
        if self.is_forced {
            return true;
        }
        let fits = (PART_BYTES_MIN..=self.bytes_max).contains(&bytes);
        fits && self.sizes.lock()[size_of_part(bytes)].choose()
    }

    /// The GPU, if it is to do a part of so many bytes.
    pub fn choose(&self, bytes: u64) -> Option<Turn<'_>> {
        let has_none = matches!(self.gpu.get(), Some(None));
        if !cfg!(feature = "cuda") || self.engine == Engine::Cpu || has_none {
            return None;
        }
        if !self.is_rested() || !self.is_faster(bytes) {
            return None;
        }
        self.open()?;
        let turn = Turn { of: self };
        let before = self.under_way.fetch_add(1, Ordering::AcqRel);
        (before < PARTS_MAX).then_some(turn)
    }

    /// The GPU, if it is there. To open one takes longer than to do a part, so nobody waits for it.
    fn open(&self) -> Option<&Compactor> {
        if !self.is_opened.swap(true, Ordering::Relaxed) {
            let (engine, gpu) = (self.engine, Arc::clone(&self.gpu));
            let open = move || {
                let opened = compactor(engine);
                let opened = opened.inspect_err(|error| {
                    tracing::warn!(%error, "the CPU compacts alone");
                });
                let _ = gpu.set(opened.ok().flatten());
            };
            let thread = thread::Builder::new().name("gphash-gpu".into()).spawn(open);
            match thread {
                #[cfg(all(test, feature = "cuda"))]
                Ok(thread) if self.is_forced => thread.join().expect("it is opened"),
                Ok(thread) => *self.opener.lock() = Some(thread),
                // It is tried again.
                Err(_) => self.is_opened.store(false, Ordering::Relaxed),
            }
        }
        self.gpu.get()?.as_ref()
    }

    fn is_rested(&self) -> bool {
        let until = *self.rests_until.lock();
        until.is_none_or(|until| until <= Instant::now())
    }

    /// Notes how long a part took.
    pub fn note(&self, side: Side, bytes: u64, took: Duration) {
        let rate = took.as_nanos() as f64 / bytes.max(1) as f64;
        let mut sizes = self.sizes.lock();
        let rates = &mut sizes[size_of_part(bytes)];
        let known = match side {
            Side::Cpu => &mut rates.cpu,
            Side::Gpu => &mut rates.gpu,
        };
        *known = Some(known.map_or(rate, |known| known + WEIGHT * (rate - known)));
    }

    /// Leaves the GPU alone for a while: it has failed.
    pub fn rest(&self) {
        *self.rests_until.lock() = Some(Instant::now() + REST);
    }
}

impl Drop for GpuCompaction {
    fn drop(&mut self) {
        // A driver must not be opened while the program ends.
        if let Some(opener) = self.opener.lock().take() {
            let _ = opener.join();
        }
    }
}

fn size_of_part(bytes: u64) -> usize {
    bytes.max(1).ilog2() as usize
}

/// A part is on the GPU while this is there.
pub struct Turn<'g> {
    of: &'g GpuCompaction,
}

impl Turn<'_> {
    /// The GPU.
    #[cfg(feature = "cuda")]
    pub fn compactor(&self) -> Option<&Compactor> {
        self.of.gpu.get()?.as_ref()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}
