//! Compaction: files of one level and those with the same keys of the next become files of that next
//! level.

mod gpu;
#[cfg(feature = "cuda")]
mod gpu_part;
mod job;
mod plan;
mod slices;
mod worker;

pub use gpu::GpuCompaction;
pub use job::Job;
pub use plan::{Plan, STALL_RUNS_MIN};
pub use slices::{cuts, has_slice_read_often};
pub use worker::{Workers, compact_due};
