//! How a cache is made.

use std::time::Duration;

use super::bucket::Bucket;

/// Most bins: a tag says which one a key is in.
const BINS_MAX: u32 = 1 << 20;

/// Bins of a model by default (KVCG §8).
const DEFAULT_BINS: u32 = 10_000;

/// Sampled gets by default after which the shadow model takes over.
const DEFAULT_SAMPLES: u64 = 10_000;

/// An option that is out of its range: its name, what it is, and what is expected.
#[doc(hidden)]
pub type Refused = (&'static str, String, String);

/// How large a hot cache is, and how its model is trained (KVCG §6, §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotCacheOptions {
    pub(crate) bytes: u64,
    pub(crate) bins: u32,
    pub(crate) samples: u64,
    pub(crate) latency_target: Option<Duration>,
}

impl HotCacheOptions {
    /// Fewest bytes of a cache.
    pub const MIN_BYTES: u64 = Bucket::BYTES;

    /// Bytes of a key and its value, at most, for which there is room in the cache. Each of the two counts as a multiple
    /// of eight.
    pub const ENTRY_BYTES_MAX: u64 = 4 * Bucket::DATA_WORDS;

    /// A cache of so many bytes of memory, which it takes at once: a multiple of 2 KiB, rounded down. With 0 there is
    /// none, and nothing is sampled; nor if there is no memory for it, of which a warning tells.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            bins: DEFAULT_BINS,
            samples: DEFAULT_SAMPLES,
            latency_target: None,
        }
    }

    /// Into how many bins the model tells keys apart by their hash: 1 to 2^20. A bin is hot or not as a whole. More of
    /// them tell hot keys from their neighbours better, and need more samples.
    ///
    /// Default: 10,000.
    #[must_use]
    pub fn bins(mut self, bins: u32) -> Self {
        self.bins = bins;
        self
    }

    /// Sampled gets after which the shadow model replaces the current one, at least 1. One get in 61 of a
    /// thread is sampled.
    ///
    /// Default: 10,000, about 610,000 gets.
    #[must_use]
    pub fn samples(mut self, samples: u64) -> Self {
        self.samples = samples;
        self
    }

    /// The time within which 95 % of the gets are to be served, longer than zero. While more of them take longer, each
    /// new model makes more bins hot than the cache is expected to hold; while they do not, fewer, so that other gets
    /// cost nothing.
    ///
    /// Default: none, as many bins are hot as the cache is expected to hold.
    #[must_use]
    pub fn latency_target(mut self, target: Duration) -> Self {
        self.latency_target = Some(target);
        self
    }

    /// Whether all of them are in their ranges.
    ///
    /// # Errors
    /// The first that is not.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Refused> {
        let refused = |name, found: String, expected: String| Err((name, found, expected));
        if (1..Self::MIN_BYTES).contains(&self.bytes) || usize::try_from(self.bytes).is_err() {
            let expected = format!("0, or at least {} that fit into memory", Self::MIN_BYTES);
            return refused("hot_cache.bytes", self.bytes.to_string(), expected);
        }
        if !(1..=BINS_MAX).contains(&self.bins) {
            let expected = format!("1 to {BINS_MAX}");
            return refused("hot_cache.bins", self.bins.to_string(), expected);
        }
        if self.samples == 0 {
            return refused("hot_cache.samples", "0".into(), "at least 1".into());
        }
        if self.latency_target == Some(Duration::ZERO) {
            let expected = "a time longer than zero".into();
            return refused("hot_cache.latency_target", "0s".into(), expected);
        }
        Ok(())
    }
}

impl Default for HotCacheOptions {
    /// No cache.
    fn default() -> Self {
        Self::new(0)
    }
}
