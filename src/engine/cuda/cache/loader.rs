//! The thread that loads the cache from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::load::{Pace, buckets_of};
use crate::engine::cuda::Attached;
use crate::engine::cuda::device::Device;
use crate::index::table::Table;
use crate::pm::Mapping;
use crate::{Error, Result};

/// A load is worth it after operations on one in so many buckets.
const LEAST_USE: u64 = 4;

/// Loads the cache of a table every now and then, until it is dropped.
pub struct Loader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Begins. Between two loads at least `period` passes, and enough look-ups for the choice of
    /// buckets to change: an idle index is left alone.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no further thread.
    pub fn start(
        device: Arc<Device>,
        attached: Arc<Attached>,
        table: Arc<Table<Mapping>>,
        period: Duration,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let path = table.path().to_path_buf();
        let thread = thread::Builder::new()
            .name("gphash-cache".into())
            .spawn(move || {
                let loaded = load_until(&stopped, &device, &attached, &table, period);
                if let Err(error) = loaded {
                    tracing::warn!(%error, "the bucket cache is not loaded any more");
                }
            })
            .map_err(|source| Error::Io {
                path,
                action: "start the thread that loads the cache",
                source: source.into(),
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, its message has been printed.
            let _ = thread.join();
        }
    }
}

fn load_until(
    stop: &AtomicBool,
    device: &Device,
    attached: &Attached,
    table: &Table<Mapping>,
    period: Duration,
) -> Result<()> {
    device.enter()?;
    let mut launches = 0;
    let mut operations = 0;
    loop {
        thread::park_timeout(period);
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        // Asking the device costs more than this, and is not for every idle second.
        let launched = attached.launches.load(Ordering::Relaxed);
        if std::mem::replace(&mut launches, launched) == launched {
            continue;
        }
        attached.count_look_ups(table)?;
        let done = table.operations.load(Ordering::Relaxed);
        if done - operations < buckets_of(table) / LEAST_USE {
            continue;
        }
        operations = done;
        attached.load_cache(table, Pace::Considerate(stop))?;
    }
}
