//! What a store records of its calls: latencies, and stalls of its changes.

use std::cell::Cell;
use std::time::Instant;

use super::latency::{Latency, LatencyStats};
use super::stalls::{StallReason, StallRecorder};

/// One in so many gets of a thread is timed: the clock would take a tenth of a get. A prime, so that no pattern
/// of calls is in step with it.
const GET_SAMPLE_INTERVAL: u32 = 61;

/// The same of calls that take a few times longer.
const SHORT_SAMPLE_INTERVAL: u32 = 7;

/// What is timed.
#[derive(Debug, Clone, Copy)]
pub enum TimedPath {
    /// A get of one key.
    Get,
    /// A get of several keys.
    MultiGet,
    /// A page of a range.
    RangePage,
    /// A change of one key.
    SingleChange,
    /// A batch.
    Batch,
    /// The commit of a transaction.
    Commit,
    /// A checkpoint.
    Checkpoint,
}

const PATHS: usize = TimedPath::Checkpoint as usize + 1;

thread_local! {
    /// Calls of this thread until the next one that is timed, by path.
    static UNTIMED: [Cell<u32>; PATHS] = const { [const { Cell::new(0) }; PATHS] };
}

impl TimedPath {
    /// One in so many calls of a thread is timed.
    const fn sample_interval(self) -> u32 {
        match self {
            Self::Get => GET_SAMPLE_INTERVAL,
            Self::MultiGet | Self::RangePage | Self::SingleChange => SHORT_SAMPLE_INTERVAL,
            Self::Batch | Self::Commit | Self::Checkpoint => 1,
        }
    }

    /// When a call begins, if it is one of those that are timed.
    #[inline]
    pub fn start(self) -> Option<Instant> {
        let is_timed = self.sample_interval() == 1
            || UNTIMED.with(|untimed| {
                let untimed = &untimed[self as usize];
                let left = untimed.get().checked_sub(1);
                untimed.set(left.unwrap_or(self.sample_interval() - 1));
                left.is_none()
            });
        is_timed.then(Instant::now)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct StoreMetrics {
    latencies: [Latency; PATHS],
    /// Checkpoints that hold changes up.
    pub checkpoint_stalls: StallRecorder,
    /// Changes for which a checkpoint makes room on a full disk.
    pub full_disk_stalls: StallRecorder,
}

impl Default for StoreMetrics {
    /// Nothing is recorded yet.
    fn default() -> Self {
        Self {
            latencies: std::array::from_fn(|_| Latency::new()),
            checkpoint_stalls: StallRecorder::new(StallReason::Checkpoint),
            full_disk_stalls: StallRecorder::new(StallReason::FullDisk),
        }
    }
}

impl StoreMetrics {
    /// Makes a call, and records how long it takes, unless it is one of those that are not timed.
    #[inline]
    pub fn time<T>(&self, path: TimedPath, call: impl FnOnce() -> T) -> T {
        let started = path.start();
        let result = call();
        self.finish(path, started);
        result
    }

    /// Records how long a call took, if it is timed.
    #[inline]
    pub fn finish(&self, path: TimedPath, started: Option<Instant>) {
        if let Some(started) = started {
            self.latencies[path as usize].record(started.elapsed());
        }
    }

    /// Statistics of the calls of a path.
    pub fn latency(&self, path: TimedPath) -> LatencyStats {
        self.latencies[path as usize].stats(path.sample_interval())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
