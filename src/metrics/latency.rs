//! A histogram of latencies that many threads record in.

use std::fmt;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use gphash_pool::{cores, thread_number};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// Most shards of a histogram. One that has met calls of a second takes 25 KB.
const SHARDS_MAX: usize = 16;

/// Percentiles are up to 1 % above what was measured.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Upper bounds of the [buckets](LatencyStats::buckets), in nanoseconds.
const BOUNDS_NANOS: [u64; 24] = [
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Latencies of the calls of one path. Each thread records in one of several shards, so threads rarely share a
/// cache line.
pub struct Latency {
    shards: Box<[CachePadded<Mutex<Option<Recorded>>>]>,
}

/// What threads have recorded in a shard.
struct Recorded {
    histogram: Histogram<u64>,
    total: Duration,
    max: Duration,
}

impl Recorded {
    fn new() -> Self {
        Self {
            histogram: Histogram::new(SIGNIFICANT_DIGITS).expect("it may have 0 to 5 digits"),
            total: Duration::ZERO,
            max: Duration::ZERO,
        }
    }

    fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let recorded = self.histogram.record(nanos);
        recorded.expect("it grows, and an address has 64 bits");
        self.total = self.total.saturating_add(latency);
        self.max = self.max.max(latency);
    }

    fn add(&mut self, other: &Self) {
        let added = self.histogram.add(&other.histogram);
        added.expect("it grows, and an address has 64 bits");
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }
}

impl Latency {
    /// No latencies yet.
    pub fn new() -> Self {
        let shards = cores().next_power_of_two().min(SHARDS_MAX);
        Self {
            shards: (0..shards).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Records how long a call took.
    #[inline(never)]
    pub fn record(&self, latency: Duration) {
        let mut recorded = self.shards[thread_number() % self.shards.len()].lock();
        recorded.get_or_insert_with(Recorded::new).record(latency);
    }

    /// Records how long `call` takes.
    pub fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = call();
        self.record(started.elapsed());
        result
    }

    /// Statistics of what was recorded of every `sample_interval`th call.
    pub fn stats(&self, sample_interval: u32) -> LatencyStats {
        Self::stats_of([self], sample_interval)
    }

    /// As [`stats`](Self::stats), of what several have recorded.
    pub fn stats_of<'l>(
        several: impl IntoIterator<Item = &'l Self>,
        sample_interval: u32,
    ) -> LatencyStats {
        let mut all = Recorded::new();
        for shard in several.into_iter().flat_map(|latency| &latency.shards) {
            if let Some(recorded) = &*shard.lock() {
                all.add(recorded);
            }
        }
        LatencyStats::new(&all, sample_interval)
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency").finish_non_exhaustive()
    }
}

/// How long the calls of one path took, those that failed included. Percentiles are those of a histogram with
/// two significant digits: up to 1 % above what was measured. All are zero before the first call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyStats {
    /// Calls that were timed.
    pub count: u64,
    /// A thread times one in so many of its calls, the first included; 1 if all are timed. So there were about
    /// `count` times `sample_interval` calls.
    pub sample_interval: u32,
    /// The sum of all that were timed.
    pub total: Duration,
    /// Their mean.
    pub mean: Duration,
    /// Half of them took at most as long.
    pub p50: Duration,
    /// 90 % of them took at most as long.
    pub p90: Duration,
    /// 99 % of them took at most as long.
    pub p99: Duration,
    /// 99.9 % of them took at most as long.
    pub p999: Duration,
    /// 99.99 % of them took at most as long.
    pub p9999: Duration,
    /// The longest.
    pub max: Duration,
    cumulative: [u64; BOUNDS_NANOS.len()],
}

impl LatencyStats {
    fn new(recorded: &Recorded, sample_interval: u32) -> Self {
        let histogram = &recorded.histogram;
        // The upper end of a step of the histogram may be beyond all that was measured.
        let quantile = |quantile| {
            let nanos = histogram.value_at_quantile(quantile);
            Duration::from_nanos(nanos).min(recorded.max)
        };
        let count = histogram.len();
        let mean = recorded.total.as_nanos().checked_div(u128::from(count));
        let mean = mean.and_then(|nanos| u64::try_from(nanos).ok());
        let mut cumulative = [0; BOUNDS_NANOS.len()];
        for step in histogram.iter_recorded() {
            let above = BOUNDS_NANOS.partition_point(|&bound| bound < step.value_iterated_to());
            for counted in &mut cumulative[above..] {
                *counted += step.count_since_last_iteration();
            }
        }
        Self {
            count,
            sample_interval,
            total: recorded.total,
            mean: Duration::from_nanos(mean.unwrap_or_default()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            p9999: quantile(0.9999),
            max: recorded.max,
            cumulative,
        }
    }

    /// How many calls took at most as long as each of some bounds, which ascend from 200 ns to 10 s in steps of
    /// 1, 2 and 5. A call that took up to 1 % less than a bound may count as longer.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let put = store.stats().latencies.change;
    /// let (longest_bound, count) = put.buckets().last().unwrap();
    /// println!("{count} of {} took at most {longest_bound:?}", put.count);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let bounds = BOUNDS_NANOS.iter().copied().map(Duration::from_nanos);
        bounds.zip(self.cumulative.iter().copied())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
