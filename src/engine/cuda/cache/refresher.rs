//! The thread that refreshes the cache from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Pace;
use crate::engine::cuda::service::{Server, Service};
use crate::engine::cuda::table::buckets_of;
use crate::pm::Mapping;
use crate::table::Table;
use crate::{Error, Result};

/// A refresh is worth it after operations on one in so many buckets.
const USED_SHARE_MIN: u64 = 4;

/// Refreshes the cache of a table every now and then, until it is dropped.
pub struct Refresher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Refresher {
    /// Begins. Between two refreshes at least `period` passes, and enough lookups for the choice of
    /// buckets to change: an idle index is left alone.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no further thread.
    pub fn start(
        service: Arc<Service>,
        table: Arc<Table<Mapping>>,
        period: Duration,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let path = table.path().to_path_buf();
        let thread = thread::Builder::new()
            .name("gphash-cache".into())
            .spawn(move || {
                refresh_until(&stopped, &service, &table, period);
            })
            .map_err(|source| Error::Io {
                path,
                action: "start the thread that refreshes the cache",
                source: source.into(),
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Refresher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, its message has been printed.
            let _ = thread.join();
        }
    }
}

fn refresh_until(stop: &AtomicBool, service: &Service, table: &Table<Mapping>, period: Duration) {
    let mut launches = 0;
    let mut operations = 0;
    loop {
        thread::park_timeout(period);
        if stop.load(Ordering::Acquire) {
            return;
        }
        let refreshed = service.serve(table, |server| {
            // The CPU has no such cache.
            let Server::Device(device_table) = server else {
                return Ok(());
            };
            // Asking the device costs more than this, and is not for every idle second.
            let launched = device_table.launches.load(Ordering::Relaxed);
            if std::mem::replace(&mut launches, launched) == launched {
                return Ok(());
            }
            device_table.count_lookups(table)?;
            let done = table.counts.operations();
            if done - operations < buckets_of(table) / USED_SHARE_MIN {
                return Ok(());
            }
            operations = done;
            device_table.refresh_cache(table, Pace::Considerate(stop))
        });
        if let Err(error) = refreshed {
            tracing::warn!(%error, "the bucket cache stays as it is");
        }
    }
}
