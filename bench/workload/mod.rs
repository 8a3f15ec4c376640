//! What the benches run on a table and how they time it: YCSB's workloads as batches that are made
//! before the clock starts.

pub use gphash_bench_reckoning::{latency, window};

pub mod case;
#[cfg(feature = "cust")]
mod device;
pub mod distribution;
pub mod drive;
#[cfg(feature = "cust")]
mod pinned;
pub mod plan;
mod reload;
pub mod sizes;
pub mod store;
pub mod target;
