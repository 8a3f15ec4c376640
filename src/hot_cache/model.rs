//! The shadow model: a histogram of sampled gets over the bins (KVCG §7), from which the hot bins are chosen.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::HotCacheStats;
use super::options::HotCacheOptions;

/// One in so many keys of a hot bin is expected to be read often. The others are in the bin by chance, and the cache
/// forgets them first.
const KEYS_PER_HOT_KEY: u64 = 8;

/// What the width is in without a latency target.
const WIDTH_UNIT: u64 = 1000;

/// Bounds of the width.
const WIDTH_MIN: u64 = WIDTH_UNIT / 100;
const WIDTH_MAX: u64 = WIDTH_UNIT * 64;

/// One in so many gets may take longer than the latency target.
const SLOW_SHARE: u64 = 20;

/// See the [module](self). Threads count beside each other.
pub struct Model {
    /// Sampled gets of each bin; half of them are kept for the next model.
    counts: Box<[AtomicU32]>,
    /// Sampled gets after which the model is due.
    period: u64,
    /// Those since the last swap, and words of their keys and values.
    samples: AtomicU64,
    words: AtomicU64,
    target: Option<Duration>,
    /// Those since then that took longer than the target.
    slow: AtomicU64,
    /// How many bins are made hot, in thousandths of those that the cache is expected to hold.
    width: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    cold: AtomicU64,
    swaps: AtomicU64,
}

impl Model {
    /// One that has seen nothing.
    pub fn new(options: &HotCacheOptions) -> Self {
        Self {
            counts: (0..options.bins).map(|_| AtomicU32::new(0)).collect(),
            period: options.samples,
            samples: AtomicU64::new(0),
            words: AtomicU64::new(0),
            target: options.latency_target,
            slow: AtomicU64::new(0),
            width: AtomicU64::new(WIDTH_UNIT),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            cold: AtomicU64::new(0),
            swaps: AtomicU64::new(0),
        }
    }

    /// Counts a get of a bin, whose key and value take so many words.
    pub fn sample(&self, bin: usize, words: u64, took: Duration, (is_hot, is_hit): (bool, bool)) {
        self.counts[bin].fetch_add(1, Ordering::Relaxed);
        self.words.fetch_add(words, Ordering::Relaxed);
        if self.target.is_some_and(|target| took > target) {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        let outcome = match (is_hot, is_hit) {
            (_, true) => &self.hits,
            (true, false) => &self.misses,
            (false, false) => &self.cold,
        };
        outcome.fetch_add(1, Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether enough gets were sampled.
    pub fn is_due(&self) -> bool {
        self.samples.load(Ordering::Relaxed) >= self.period
    }

    /// Ends the training, and begins the next one: the bins that are hot now, the most sampled first, as many as a cache
    /// of so many entries and words is expected to hold of a store of so many keys. Bins that were not sampled are cold,
    /// unless all are expected to fit.
    pub fn hot_bins(&self, keys: u64, (entries, words): (u64, u64)) -> Vec<bool> {
        let samples = self.samples.swap(0, Ordering::Relaxed);
        let sampled_words = self.words.swap(0, Ordering::Relaxed);
        let words_per_key = sampled_words.checked_div(samples).unwrap_or(0).max(1);
        let held = KEYS_PER_HOT_KEY * entries.min(words / words_per_key);
        self.steer(samples);
        let width = self.width.load(Ordering::Relaxed);
        let bins = self.counts.len() as u64;
        let wide = u128::from(held) * u128::from(bins) * u128::from(width)
            / (u128::from(keys.max(1)) * u128::from(WIDTH_UNIT));
        let count = usize::try_from(wide.clamp(1, bins.into())).expect("at most the bins");
        let mut sampled: Vec<(u32, usize)> = Vec::new();
        for (bin, count) in self.counts.iter().enumerate() {
            let seen = count.load(Ordering::Relaxed);
            // Gets that are sampled meanwhile may be lost.
            count.store(seen / 2, Ordering::Relaxed);
            if seen > 0 {
                sampled.push((seen, bin));
            }
        }
        sampled.sort_unstable_by_key(|&(seen, bin)| (Reverse(seen), bin));
        let fits_all = samples > 0 && count == self.counts.len();
        let mut hot = vec![fits_all; self.counts.len()];
        sampled
            .iter()
            .take(count)
            .for_each(|&(_, bin)| hot[bin] = true);
        hot
    }

    /// Makes more bins hot if gets took longer than they should, and fewer if not.
    fn steer(&self, samples: u64) {
        let slow = self.slow.swap(0, Ordering::Relaxed);
        if self.target.is_none() || samples == 0 {
            return;
        }
        let width = self.width.load(Ordering::Relaxed);
        let width = match slow > samples / SLOW_SHARE {
            true => width + width.div_ceil(4),
            false => width - width / 10,
        };
        self.width
            .store(width.clamp(WIDTH_MIN, WIDTH_MAX), Ordering::Relaxed);
    }

    /// Notes that the bins it has chosen are hot.
    pub fn note_swap(&self) {
        self.swaps.fetch_add(1, Ordering::Relaxed);
    }

    /// What it has counted.
    pub fn stats(&self) -> HotCacheStats {
        HotCacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            cold: self.cold.load(Ordering::Relaxed),
            swaps: self.swaps.load(Ordering::Relaxed),
            ..HotCacheStats::default()
        }
    }
}
