//! Statistics of a cache.

/// Statistics of a hot cache. All are zero if there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotCacheStats {
    /// Bytes of memory that it takes.
    pub bytes: u64,
    /// Keys that it has, those without a value included.
    pub entries: u64,
    /// Bins of keys that are hot.
    pub hot_bins: u64,
    /// Sampled gets that it has answered.
    pub hits: u64,
    /// Sampled gets of keys of hot bins that the store has answered.
    pub misses: u64,
    /// Sampled gets of all other keys.
    pub cold: u64,
    /// How often a shadow model has replaced the current one.
    pub swaps: u64,
}

impl HotCacheStats {
    /// Names, values and meanings of those that may go down, and of those that do not.
    #[doc(hidden)]
    pub fn families(&self) -> ([Sample; 3], [Sample; 4]) {
        let gauges = [
            ("hot_cache_bytes", self.bytes, "Memory of the hot cache."),
            ("hot_cache_entries", self.entries, "Keys in the hot cache."),
            (
                "hot_cache_hot_bins",
                self.hot_bins,
                "Bins of keys that are hot.",
            ),
        ];
        let counters = [
            (
                "hot_cache_hits_total",
                self.hits,
                "Sampled gets that the hot cache has answered.",
            ),
            (
                "hot_cache_misses_total",
                self.misses,
                "Sampled gets of hot bins that the store has answered.",
            ),
            (
                "hot_cache_cold_total",
                self.cold,
                "Sampled gets of all other bins.",
            ),
            (
                "hot_cache_swaps_total",
                self.swaps,
                "Models that have replaced others.",
            ),
        ];
        let sample =
            |(name, value, help): (&'static str, u64, &'static str)| (name, value as f64, help);
        (gauges.map(sample), counters.map(sample))
    }
}

/// Name, value, and what it means.
pub type Sample = (&'static str, f64, &'static str);
