//! What the benches share: workloads and how they are timed, orders of places, limits, charts.

pub use gphash_bench_reckoning::{chart, limit, order};

#[cfg(feature = "bench-peers")]
pub mod rocks;
pub mod workload;
