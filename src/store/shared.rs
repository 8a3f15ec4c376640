//! What all partitions of a store share.

use std::sync::{Arc, OnceLock};

use crate::Result;
use crate::store::commit::sorter::Sorter;
use crate::store::metrics::StoreMetrics;
use crate::store::mvcc::clock::CommitClock;
use crate::store::mvcc::old_versions::Snapshots;
use crate::store::options::{StoreOptions, WhenFull};
use crate::store::threads::Threads;
use crate::store::wal::Log;

/// See the [module](self).
pub struct Shared {
    pub clock: Arc<CommitClock>,
    pub snapshots: Snapshots,
    pub threads: Threads,
    pub metrics: StoreMetrics,
    pub sorter: Sorter,
    pub when_full: WhenFull,
    /// The log of each partition, once all are open.
    pub logs: OnceLock<Vec<Arc<Log>>>,
}

impl Shared {
    /// That of so many partitions.
    pub fn new(partitions: usize, options: &StoreOptions, sorter: Sorter) -> Self {
        Self {
            clock: Arc::new(CommitClock::new(partitions)),
            snapshots: Snapshots::default(),
            threads: Threads::new(options.index.threads),
            metrics: StoreMetrics::new(),
            sorter,
            when_full: options.when_full,
            logs: OnceLock::new(),
        }
    }

    /// Makes the records of all partitions durable, if there are several: what one of them makes durable in its index may
    /// be part of a group.
    ///
    /// # Errors
    /// Those of [`sync_logs`](Self::sync_logs).
    pub fn sync_groups(&self) -> Result<()> {
        match self.logs.get().map_or(0, Vec::len) {
            0 | 1 => Ok(()),
            _ => self.sync_logs(),
        }
    }

    /// Makes the records of all partitions durable.
    ///
    /// # Errors
    /// What the operating system answers; each log is tried.
    pub fn sync_logs(&self) -> Result<()> {
        let logs = self.logs.get().into_iter().flatten();
        logs.map(|log| log.sync()).fold(Ok(()), Result::and)
    }
}
