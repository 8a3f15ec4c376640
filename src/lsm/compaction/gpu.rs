//! Who does which part of a compaction: a thread of the CPU, or the GPU for it (gLSM §5.4).
//!
//! Both make the same bytes, so that each part goes to whoever is faster: how long both took for parts of about its
//! size is known from the parts before.
//!
//! A part on the GPU needs a lane, memory that takes longer to make than the part: the host's must be pinned. A thread
//! makes the lanes, one after the other, and nobody waits for it: without a lane that is ready, a part is the CPU's.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::Engine;
use crate::engine::{Compactor, DeviceBudget, compactor};
#[cfg(feature = "cuda")]
use crate::pool::rates::REST;
use crate::pool::rates::{Rates, Side};
use crate::pool::worker::Worker;
use crate::width::to_usize;
#[cfg(feature = "cuda")]
use crate::{
    Result,
    gpu::compaction::{Plan, Task},
};

/// Bytes of a part below which a launch is not worth its while.
const PART_BYTES_MIN: u64 = 256 << 10;

/// Most bytes of a part that goes to the GPU.
const PART_BYTES_MAX: u64 = 32 << 20;

/// Lanes, at most: while some parts are copied, others are sorted.
const LANES_MAX: u64 = 16;

/// The part of a memory budget that all lanes may pin, besides it, and what they may without one.
const PINNED_SHARE: u64 = 8;
const PINNED_BYTES_MAX: u64 = 256 << 20;

/// All lanes pin this part of the buffers in a budget of device memory: there each needs up to six times as much, and they
/// have half of it.
const DEVICE_SHARE: u64 = 12;

/// Pinned bytes that a lane has at least: with a small budget there are fewer lanes.
const LANE_BYTES_MIN: u64 = 3 << 19;

/// How long lanes are kept for parts to come.
#[cfg(feature = "cuda")]
const IDLE_LANES: Duration = Duration::from_secs(30);

/// See the [module](self). All partitions of a store share one.
pub struct GpuCompaction {
    lanes: Arc<Lanes>,
    /// Prepares them.
    preparer: Worker,
    /// Most bytes of a part.
    bytes_max: u64,
    /// Nanoseconds a byte.
    rates: Rates,
    /// That of the parts which are the GPU's, whoever is faster.
    share: Option<f64>,
}

/// The GPU, and how its lanes are to be.
struct Lanes {
    engine: Engine,
    budget: DeviceBudget,
    /// It, once it was needed, if there is one.
    gpu: OnceLock<Option<Compactor>>,
    /// Pinned bytes of a lane.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code))]
    bytes: usize,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code))]
    count: usize,
}

impl Lanes {
    /// The GPU, which is opened if it is not yet.
    fn open(&self) -> Option<&Compactor> {
        let open = || {
            let opened = compactor(self.engine, &self.budget);
            let opened = opened.inspect_err(|error| {
                tracing::warn!(%error, "the CPU compacts alone");
            });
            opened.ok().flatten()
        };
        self.gpu.get_or_init(open).as_ref()
    }

    /// Makes one lane, or frees those that nobody has wanted for long. Gives when to go on.
    #[cfg(feature = "cuda")]
    fn round(&self, rests_until: &mut Option<Instant>) -> Option<Duration> {
        let gpu = self.open()?;
        let now = Instant::now();
        if rests_until.is_none_or(|until| until <= now) {
            match gpu.prepare(self.bytes, self.count) {
                // The thread may be stopped between two lanes.
                Ok(true) => return Some(Duration::ZERO),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "fewer parts are compacted on the GPU");
                    *rests_until = Some(now + REST);
                }
            }
        }
        gpu.release_unused(IDLE_LANES).ok().flatten()
    }

    /// A build without the feature `cuda` has none.
    #[cfg(not(feature = "cuda"))]
    fn round(&self, _: &mut Option<Instant>) -> Option<Duration> {
        self.open();
        None
    }
}

impl GpuCompaction {
    /// The one that is asked for, whose parts so many threads share. It is opened when there is work for it.
    ///
    /// With a share, for tests, each part is the GPU's if that is drawn, whoever is faster, and however small the budget
    /// is; it waits until it can be.
    pub fn new(
        engine: Engine,
        budget: &DeviceBudget,
        memory_budget: Option<u64>,
        threads: usize,
        share: Option<f64>,
    ) -> Self {
        let pinned = memory_budget.map_or(PINNED_BYTES_MAX, |budget| budget / PINNED_SHARE);
        let pinned = pinned.min(budget.buffers_max() / DEVICE_SHARE);
        let (pinned, threads) = match share {
            Some(_) => (pinned.max(LANES_MAX * LANE_BYTES_MIN), LANES_MAX),
            None => (pinned, threads as u64),
        };
        let count = (pinned / LANE_BYTES_MIN).min(threads).clamp(1, LANES_MAX);
        // A quarter is for what does not come out as it went in.
        let bytes_max = (pinned / count / 4 * 3).min(PART_BYTES_MAX);
        let lanes = Arc::new(Lanes {
            engine,
            budget: budget.clone(),
            gpu: OnceLock::new(),
            bytes: to_usize(bytes_max / 3 * 4),
            count: to_usize(count),
        });
        let preparer = Worker::new("gphash-gpu");
        let prepared = Arc::clone(&lanes);
        let mut rests_until = None;
        preparer.set_work(move || prepared.round(&mut rests_until));
        Self {
            lanes,
            preparer,
            bytes_max,
            rates: Rates::default(),
            share,
        }
    }

    /// Parts in which a job of so many bytes must be cut to be for the GPU, if there is one.
    pub fn parts_of(&self, bytes: u64) -> u64 {
        match self.lanes.gpu.get() {
            Some(Some(_)) if self.share.is_none() => bytes.div_ceil(self.bytes_max.max(1)),
            _ => 1,
        }
    }

    /// Whether parts could be the GPU's.
    fn is_wanted(&self) -> bool {
        let has_none = matches!(self.lanes.gpu.get(), Some(None));
        let is_built = cfg!(feature = "cuda") && self.lanes.engine != Engine::Cpu;
        is_built && !has_none && self.bytes_max >= PART_BYTES_MIN
    }

    /// Whether the GPU is to do a part, if it can.
    fn is_next(&self, bytes: u64) -> bool {
        if let Some(share) = self.share {
            return rand::random_bool(share);
        }
        let fits = (PART_BYTES_MIN..=self.bytes_max).contains(&bytes);
        fits && self.rates.choose(bytes) == Side::Gpu
    }

    /// Opens the GPU and makes its lanes, for parts that are to come.
    pub fn expect_parts(&self) {
        if self.share.is_none() && self.is_wanted() && self.lanes.gpu.get().is_none() {
            self.preparer.call_if_possible();
        }
    }

    /// Has lanes made as parts have needed them.
    pub fn prepare(&self) {
        if self.share.is_none() {
            self.preparer.call_if_possible();
        }
    }

    /// The GPU, if it is to do a part of so many bytes.
    pub fn choose(&self, bytes: u64) -> Option<&Compactor> {
        if !self.is_wanted() || !self.rates.is_rested() || !self.is_next(bytes) {
            return None;
        }
        self.expect_parts();
        match self.share {
            Some(_) => self.lanes.open(),
            None => self.lanes.gpu.get()?.as_ref(),
        }
    }

    /// Begins a part with so many bytes of data blocks, if there is a lane for it. If there is not, later ones find one
    /// once it is [made](Self::prepare).
    #[cfg(feature = "cuda")]
    pub fn begin<'g>(
        &self,
        gpu: &'g Compactor,
        plan: &Plan,
        bytes: usize,
    ) -> Result<Option<Task<'g>>> {
        loop {
            let task = gpu.begin(plan, bytes);
            match self.share {
                _ if task.is_some() => return Ok(task),
                Some(_) if gpu.prepare(self.lanes.bytes, self.lanes.count)? => {}
                _ => return Ok(None),
            }
        }
    }

    /// Notes how long a part took.
    pub fn note(&self, side: Side, bytes: u64, took: Duration) {
        self.rates.note(side, bytes, took);
    }

    /// Leaves the GPU alone for a while: it has failed.
    pub fn rest(&self) {
        self.rates.rest();
    }
}

impl Drop for GpuCompaction {
    fn drop(&mut self) {
        // A driver must not be opened, nor memory be pinned, while the program ends.
        self.preparer.stop();
    }
}
