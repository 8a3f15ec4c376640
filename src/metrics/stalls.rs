//! Stalls: how often and how long changes waited for something else than their own work.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// Events of each reason that are kept.
pub const EVENTS_MAX: usize = 32;

/// What a change has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallReason {
    /// Room in the memory budget: items had to be evicted first.
    MemoryBudget,
    /// The log: another segment was begun, because the one before was full, had failed, or was of another process;
    /// or too much of it was not durable, and was synced.
    Log,
    /// The beginning of a checkpoint, which seals the log and copies what has changed since the last one. No
    /// change is made meanwhile, so it counts whether or not one has come.
    Checkpoint,
    /// The disk was full, and a checkpoint was taken to make room.
    FullDisk,
    /// The queue of asynchronous changes was full.
    Queue,
    /// Evicted items waited for the compaction of sorted files.
    Compaction,
}

impl StallReason {
    /// The reason as one lowercase word or several joined by `_`: the label in Prometheus.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(gphash::store::StallReason::MemoryBudget.name(), "memory_budget");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryBudget => "memory_budget",
            Self::Log => "log",
            Self::Checkpoint => "checkpoint",
            Self::FullDisk => "full_disk",
            Self::Queue => "queue",
            Self::Compaction => "compaction",
        }
    }
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallEvent {
    /// What the change has waited for.
    pub reason: StallReason,
    /// When it began to wait.
    pub began: SystemTime,
    /// How long it waited.
    pub waited: Duration,
}

/// The stalls of one reason since the opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallStats {
    /// How many there were.
    pub count: u64,
    /// How long they took in all. Those of several threads at the same time count once each.
    pub total: Duration,
    /// How long the longest took.
    pub longest: Duration,
}

impl StallStats {
    /// Counts others, too.
    pub fn add(&mut self, others: Self) {
        self.count += others.count;
        self.total += others.total;
        self.longest = self.longest.max(others.longest);
    }
}

/// Counts the stalls of one reason.
#[derive(Debug)]
pub struct StallRecorder {
    reason: StallReason,
    recorded: Mutex<(StallStats, VecDeque<StallEvent>)>,
}

impl StallRecorder {
    /// No stalls yet.
    pub fn new(reason: StallReason) -> Self {
        Self {
            reason,
            recorded: Mutex::default(),
        }
    }

    /// Counts a stall that lasts as long as `wait` takes.
    pub fn time<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.measure(wait).0
    }

    /// As [`time`](Self::time), for one who holds locks: the stall is counted when what is returned is dropped.
    pub fn measure<T>(&self, wait: impl FnOnce() -> T) -> (T, MeasuredStall<'_>) {
        let (began, started) = (SystemTime::now(), Instant::now());
        let result = wait();
        let event = StallEvent {
            reason: self.reason,
            began,
            waited: started.elapsed(),
        };
        let recorder = self;
        (result, MeasuredStall { recorder, event })
    }

    fn record(&self, event: StallEvent) {
        let mut recorded = self.recorded.lock();
        let (stats, events) = &mut *recorded;
        stats.count += 1;
        stats.total = stats.total.saturating_add(event.waited);
        stats.longest = stats.longest.max(event.waited);
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.recorded.lock().0.count
    }

    /// Statistics of all; the last ones are put behind `events`.
    pub fn stats(&self, events: &mut Vec<StallEvent>) -> StallStats {
        let recorded = self.recorded.lock();
        events.extend(&recorded.1);
        recorded.0
    }
}

/// A stall that is over. Dropping it counts it and makes it an event of `tracing`, for which a subscriber may do
/// anything but call the store: it should be dropped without locks.
pub struct MeasuredStall<'r> {
    recorder: &'r StallRecorder,
    event: StallEvent,
}

impl Drop for MeasuredStall<'_> {
    fn drop(&mut self) {
        let StallEvent { reason, waited, .. } = self.event;
        self.recorder.record(self.event);
        tracing::info!(reason = reason.name(), ?waited, "changes stalled");
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
