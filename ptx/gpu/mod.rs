//! The GPU's driver, what is made of it: streams, events, modules of kernels, and what kernels are passed.

pub mod abi;
pub mod batch;
pub mod budget;
pub mod compaction;
pub mod device;
pub mod driver;
pub mod error;
pub mod event;
pub mod kernel;
pub mod launch;
pub mod locator;
pub mod memory;
pub mod module;
pub mod order;
pub mod pinned_pool;
pub mod radix;
pub mod readers;
pub mod sort;
pub mod stream;
pub mod write_trace;
