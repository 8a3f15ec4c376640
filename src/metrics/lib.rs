//! Latencies and stalls, recorded by the threads that meet them and read by those who ask for statistics, or by Prometheus.

#[doc(hidden)]
pub mod calls;
#[doc(hidden)]
pub mod counts;
#[doc(hidden)]
pub mod exposition;
pub mod latency;
pub mod stalls;

pub use latency::LatencyStats;
pub use stalls::{StallEvent, StallReason, StallStats};
