//! How long batches took.

use std::time::Duration;

/// What each of some batches took.
pub struct Latencies {
    sorted: Vec<Duration>,
}

impl Latencies {
    /// Of batches in any order.
    pub fn new(mut batches: Vec<Duration>) -> Self {
        batches.sort_unstable();
        Self { sorted: batches }
    }

    /// The microseconds that `percent` of the batches stay within; 0 of no batch.
    pub fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.sorted.len() * percent)
            .div_ceil(100)
            .saturating_sub(1);
        self.sorted
            .get(rank)
            .map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}
