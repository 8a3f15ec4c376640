//! What a store records of its calls: latencies, and stalls of its changes.

use std::cell::Cell;
use std::time::Instant;

use crate::metrics::latency::Latency;
use crate::metrics::stalls::StallRecorder;
use crate::metrics::{LatencyStats, StallReason};

/// One in so many gets of a thread is timed: the clock would take a tenth of a get. A prime, so that no pattern
/// of calls is in step with it.
const GET_SAMPLE_INTERVAL: u32 = 61;

/// The same of calls that take a few times longer.
const SHORT_SAMPLE_INTERVAL: u32 = 7;

/// What is timed.
#[derive(Debug, Clone, Copy)]
pub enum TimedPath {
    Get,
    MultiGet,
    RangePage,
    SingleChange,
    Batch,
    Commit,
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

impl StoreMetrics {
    /// Nothing is recorded yet.
    pub fn new() -> Self {
        Self {
            latencies: std::array::from_fn(|_| Latency::new()),
            checkpoint_stalls: StallRecorder::new(StallReason::Checkpoint),
            full_disk_stalls: StallRecorder::new(StallReason::FullDisk),
        }
    }

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
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::store::{Request, Store, StoreOptions, WriteBatch};

    #[test]
    fn latencies_and_stalls_of_each_path_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), &StoreOptions::new()).unwrap();
        open().put("ada", "byron").unwrap();
        let store = open();
        // A thread of its own times its first reads.
        let verbs = || {
            store.put("ada", "lovelace").unwrap();
            store.put_if_absent("alan", "turing").unwrap();
            store.get(b"ada").unwrap();
            store.multi_get(&["ada", "alan"]).unwrap();
            assert_eq!(store.range(..).count(), 2);
            store.write(WriteBatch::new()).unwrap();
            let key = b"ada".to_vec();
            store.execute(vec![Request::Get { key }]).unwrap();
            let mut transaction = store.transaction();
            transaction.put("grace", "hopper").unwrap();
            transaction.commit().unwrap();
            let (sender, outcome) = mpsc::channel();
            store.put_async("dennis", "ritchie", move |result| {
                sender.send(result).unwrap();
            });
            outcome.recv().unwrap().unwrap();
            store.flush().unwrap();
            store.checkpoint().unwrap();
        };
        std::thread::scope(|scope| scope.spawn(verbs).join().unwrap());
        let stats = store.stats();
        let counts = stats.latencies.iter().map(|(path, of)| (path, of.count));
        let counts: Vec<(&str, u64)> = counts.filter(|(path, _)| *path != "log_sync").collect();
        let expected = [
            ("get", 1),
            ("multi_get", 1),
            ("range_page", 1),
            ("change", 1),
            ("batch", 2),
            ("commit", 1),
            ("checkpoint", 1),
            ("compaction", 0),
        ];
        assert_eq!(counts, expected);
        assert!(stats.latencies.log_sync.count > 0);
        let stalls = stats.stalls;
        assert_eq!(stalls.checkpoint.count, 1);
        assert!(stalls.log.count > 0, "the first change begins a segment");
        assert_eq!(stalls.full_disk.count + stalls.queue.count, 0);
        let last = stalls.recent.last().unwrap();
        assert_eq!(last.reason, StallReason::Checkpoint);
        assert!(stalls.recent.is_sorted_by_key(|event| event.began));
    }

    #[test]
    fn latencies_of_short_calls_are_sampled_per_thread_and_others_are_all_there() {
        let metrics = StoreMetrics::new();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2 * GET_SAMPLE_INTERVAL {
                        metrics.time(TimedPath::Get, || ());
                        metrics.time(TimedPath::SingleChange, || ());
                        metrics.time(TimedPath::Batch, || ());
                    }
                });
            }
        });
        assert_eq!(metrics.latency(TimedPath::Get).count, 6);
        let changes = metrics.latency(TimedPath::SingleChange);
        assert_eq!(changes.sample_interval, SHORT_SAMPLE_INTERVAL);
        let timed = (2 * GET_SAMPLE_INTERVAL).div_ceil(SHORT_SAMPLE_INTERVAL);
        assert_eq!(changes.count, u64::from(3 * timed));
        let batches = metrics.latency(TimedPath::Batch);
        assert_eq!(batches.count, u64::from(6 * GET_SAMPLE_INTERVAL));
        assert_eq!(batches.sample_interval, 1);
        assert_eq!(metrics.latency(TimedPath::Commit).count, 0);
    }
}
