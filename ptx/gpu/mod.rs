//! The GPU's driver, and what is made of it: streams, events, modules of kernels.

pub mod device;
pub mod driver;
pub mod error;
pub mod event;
pub mod launch;
pub mod memory;
pub mod module;
pub mod sort;
pub mod stream;
