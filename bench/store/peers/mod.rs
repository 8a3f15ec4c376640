//! Stores that others have made. Both read before they write within a batch, which spares them
//! what a store pays that answers in the order of the requests.

pub mod fjall;
#[cfg(feature = "bench-peers")]
pub mod rocksdb;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::target::Failure;

/// A thread that syncs a log at an interval, until it is dropped.
struct Syncer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// # Panics
    /// Its thread does if a sync fails, and so does the drop.
    fn start(interval: Duration, sync: impl Fn() -> Result<(), Failure> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                std::thread::park_timeout(interval);
                sync().expect("a sync");
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("every sync succeeded");
        }
    }
}
