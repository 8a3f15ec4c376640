//! The memory budget of the table, and what keeping to it costs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::index::bytes::BytesIndex;
use crate::pool::worker::Worker;

/// The share of the budget that records have at least.
const LEAST_SHARE: u64 = 4;

/// The memory budget of a table, and what it costs.
pub struct Budget {
    pub(in crate::store) bytes: u64,
    pub(in crate::store) worker: Worker,
    /// Bytes that old versions take beyond their own share.
    pub(in crate::store) old_version_bytes: AtomicU64,
    /// Held by the one who lets items leave: how often changes had waited when he last did.
    pub(in crate::store) stalls_before: Mutex<u64>,
    pub(in crate::store) left: Mutex<()>,
    pub(in crate::store) has_left: Condvar,
    /// Items could not leave when they last should have.
    pub(in crate::store) fails: AtomicBool,
    pub(in crate::store) stalls: AtomicU64,
    pub(in crate::store) stalled: AtomicU64,
    pub(in crate::store) items_evicted: AtomicU64,
    pub(in crate::store) items_promoted: AtomicU64,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64, worker: Worker) -> Self {
        Self {
            bytes,
            worker,
            old_version_bytes: AtomicU64::new(0),
            stalls_before: Mutex::default(),
            left: Mutex::default(),
            has_left: Condvar::new(),
            fails: AtomicBool::new(false),
            stalls: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            items_evicted: AtomicU64::new(0),
            items_promoted: AtomicU64::new(0),
        }
    }

    /// The thread that keeps to the budget.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Wakes the thread if the records of a table are too large.
    pub fn wake_if_exceeded(&self, table: &BytesIndex) {
        if table.record_bytes() > self.limit(table) {
            self.worker.call_if_possible();
        }
    }

    /// Bytes that records may take. The levels of a table that has grown stay, and old versions as long as a
    /// snapshot sees them; they never take all of the budget.
    pub fn limit(&self, table: &BytesIndex) -> u64 {
        let old_versions = self.old_version_bytes.load(Ordering::Relaxed);
        let others = table.level_bytes() + old_versions;
        let rest = self.bytes.saturating_sub(others);
        rest.max(self.bytes / LEAST_SHARE)
    }

    /// Changes that waited for room, and how long in all.
    pub fn stalls(&self) -> (u64, Duration) {
        let stalled = self.stalled.load(Ordering::Relaxed);
        (
            self.stalls.load(Ordering::Relaxed),
            Duration::from_nanos(stalled),
        )
    }

    /// Counts items that have come up into the table.
    pub fn count_promoted(&self, items: usize) {
        self.items_promoted
            .fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Items that have left the table, and that have come up into it.
    pub fn moved(&self) -> (u64, u64) {
        let promoted = self.items_promoted.load(Ordering::Relaxed);
        (self.items_evicted.load(Ordering::Relaxed), promoted)
    }
}
