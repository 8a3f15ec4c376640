//! The GPU's driver, and what is made of it: streams, events, modules of kernels.

pub mod compaction;
pub mod device;
pub mod driver;
pub mod event;
pub mod launch;
pub mod memory;
pub mod module;
pub mod radix;
pub mod sort;
pub mod stream;
