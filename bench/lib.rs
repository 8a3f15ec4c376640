//! What the benches share: workloads and how they are timed, orders of places, limits, charts.

pub mod chart;
pub mod limit;
pub mod order;
#[cfg(feature = "bench-peers")]
pub mod rocks;
pub mod workload;
