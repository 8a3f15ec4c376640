//! Compaction: files of one level and those with the same keys of the next become files of that next
//! level.

mod gpu;
#[cfg(feature = "cuda")]
mod gpu_part;
mod job;
mod plan;
mod rate;
mod slices;
mod worker;

pub use gpu::GpuCompaction;
pub use job::Job;
pub use plan::{LEVEL_RUNS_MAX, Plan, STALL_RUNS_MIN, is_overfull};
pub use slices::{cuts, has_slice_read_often};
pub use worker::{Workers, compact_due};
