//! Atomics and locks: the real ones, or loom's under `--cfg loom`. There every use of one is a
//! point at which loom may switch threads. What the locks guard is whole between any two
//! statements, so a panic poisons none. And what is made of them alone: the clock of a store of several partitions,
//! and what an index has of its file in volatile memory: the tags, which levels are live, the overflow maps, which
//! slots have changed.

pub mod changed_slots;
pub mod commit_clock;
pub mod levels;
#[cfg(loom)]
mod modelled;
pub mod overflow;
pub mod tags;

#[cfg(not(loom))]
pub use crossbeam_queue::SegQueue;
#[cfg(not(loom))]
pub use gphash_pool::thread_number;
#[cfg(loom)]
pub use loom::sync::{
    MutexGuard, RwLockReadGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};
#[cfg(loom)]
pub use modelled::{Mutex, RwLock, SegQueue, be_thread, thread_number};
#[cfg(not(loom))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Lets another thread run while this one waits for it.
#[inline]
pub fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Looks away for a while from something that takes its time.
#[inline]
pub fn nap() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(50));
}
