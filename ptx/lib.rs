//! The CUDA kernels of [gphash](https://crates.io/crates/gphash), compiled to PTX for devices of compute
//! capability 7.0 and up, and what calls the driver, which compiles them for the device at hand. Of use to
//! gphash alone: versions of the two belong together.

#[doc(hidden)]
pub mod gpu;

/// Kernels of the index: lookups, changes, growth, the recovery scan, the bucket cache.
pub const INDEX: &str = include_str!("generated/gphash.ptx");

/// Kernels that sort the versions of the keys of a store's batch.
pub const VERSIONS: &str = include_str!("generated/versions.ptx");

/// Kernels that compact a store's sorted files.
pub const COMPACTION: &str = include_str!("generated/compaction.ptx");

/// Kernels that find the records of a store's keys.
pub const LOCATOR: &str = include_str!("generated/locator.ptx");
