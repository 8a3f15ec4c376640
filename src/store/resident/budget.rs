//! The memory budget of the table, and what keeping to it costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::metrics::StallReason;
use crate::metrics::stalls::StallRecorder;
use crate::pool::demands::Demands;
use crate::pool::forgiven::Forgiven;
use crate::pool::worker::Worker;
use crate::store::resident::tiers::TieredItems;

/// The share of the budget that records have at least.
const LEAST_SHARE: u64 = 4;

/// Bytes of memory that a key of the table takes beside its slot and its record, and with an ordered view.
const KEY_BYTES: u64 = 2;
const ORDERED_KEY_BYTES: u64 = 18;

/// The share of the budget that is left to what threads work with, and to what the allocator keeps of that for each.
const THREADS_SHARE: u64 = 16;

/// The share of what records may take that is left to changes while items are evicted.
const CHANGES_SHARE: u64 = 8;

/// A round begins at most three of these shares of what records may take before they take that.
const EARLY_SHARE: u64 = 8;

/// The share of the budget that free room of the table's file may take before it is given back, and again beyond
/// what could not be. It is more than the step in which the file grows: else what was given back would be taken again
/// at once, with a checkpoint each time.
const FREE_ROOM_SHARE: u64 = 8;

/// Bytes that it may take whatever the budget is: it is preallocated in huge pages.
const FREE_ROOM_MIN: u64 = 4 << 20;

/// The memory budget of a table, and what it costs.
pub struct Budget {
    /// Those of all partitions.
    demands: Arc<Demands>,
    /// The partition's number.
    number: usize,
    pub(in crate::store) worker: Worker,
    /// Bytes that old versions take beyond their own share.
    pub(in crate::store) old_version_bytes: AtomicU64,
    /// Bytes of free room beyond its share that could not be given back.
    kept_room: Forgiven,
    /// There is an ordered view.
    pub(in crate::store) is_ordered: AtomicBool,
    /// Held by the one who lets items leave: how often changes had waited when he last did.
    pub(in crate::store) stalls_before: Mutex<u64>,
    /// Held by who notes what the table takes.
    noting: Mutex<()>,
    /// Where he goes on: a number of buckets.
    pub(in crate::store) hand: AtomicU64,
    pub(in crate::store) left: Mutex<()>,
    pub(in crate::store) has_left: Condvar,
    /// Items could not leave when they last should have.
    pub(in crate::store) fails: AtomicBool,
    /// Bytes that changes have brought while items last left.
    brought: AtomicU64,
    /// Changes that wait for room.
    pub(in crate::store) stalls: StallRecorder,
    pub(in crate::store) items_evicted: AtomicU64,
    pub(in crate::store) items_promoted: AtomicU64,
}

impl Budget {
    /// That of a partition, by what all want.
    pub fn new(demands: Arc<Demands>, number: usize, worker: Worker) -> Self {
        demands.attend(number, worker.clone());
        Self {
            demands,
            number,
            worker,
            old_version_bytes: AtomicU64::new(0),
            kept_room: Forgiven::default(),
            is_ordered: AtomicBool::new(false),
            stalls_before: Mutex::default(),
            noting: Mutex::default(),
            hand: AtomicU64::new(0),
            left: Mutex::default(),
            has_left: Condvar::new(),
            fails: AtomicBool::new(false),
            brought: AtomicU64::new(0),
            stalls: StallRecorder::new(StallReason::MemoryBudget),
            items_evicted: AtomicU64::new(0),
            items_promoted: AtomicU64::new(0),
        }
    }

    /// The thread that keeps to the budget.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Wakes changes that wait for room.
    pub fn tell_left(&self) {
        // Whoever has found none, and does not sleep yet, holds it.
        drop(self.left.lock());
        self.has_left.notify_all();
    }

    /// Notes what the table takes, and what of that it has to give back. What its file keeps of records that have left is
    /// nobody else's yet. Gives what it [holds](held).
    pub fn note_taken(&self, tiers: &TieredItems) -> u64 {
        // What one has seen must not be noted after what another has seen since.
        let _one = self.noting.lock();
        let records = tiers.table.record_bytes();
        let limit = self.limit(tiers);
        let held = held(tiers);
        let free = self.free_room(held, limit);
        let owed = match self.fails.load(Ordering::Relaxed) {
            true => 0,
            false if free > self.free_room_max() => free,
            false => records.saturating_sub(limit + limit / CHANGES_SHARE),
        };
        let taken = self.beside_records(tiers) + records.max(held);
        self.demands.note(self.number, taken, owed);
        held
    }

    /// Wakes the thread if records or free room of the table are too large.
    pub fn wake_if_exceeded(&self, tiers: &TieredItems) {
        let held = self.note_taken(tiers);
        if self.exceeds(tiers, held) {
            self.worker.call_if_possible();
        }
    }

    /// Bytes of records from which on items are evicted. The levels of a table that has grown stay, what is
    /// known of files as long as they do, and old versions as long as a snapshot sees them; they never take all
    /// of the budget.
    pub fn limit(&self, tiers: &TieredItems) -> u64 {
        let granted = self.demands.granted(self.number);
        let rest = granted.saturating_sub(self.beside_records(tiers));
        let rest = rest.max(self.demands.share() / LEAST_SHARE);
        rest - rest / (CHANGES_SHARE + 1)
    }

    /// Bytes that a partition takes beside its records.
    fn beside_records(&self, tiers: &TieredItems) -> u64 {
        let per_key = match self.is_ordered.load(Ordering::Relaxed) {
            true => ORDERED_KEY_BYTES,
            false => KEY_BYTES,
        };
        tiers.table.level_bytes()
            + tiers.table.len() * per_key
            + tiers.spill.filter_bytes()
            + self.old_version_bytes.load(Ordering::Relaxed)
            + self.demands.share() / THREADS_SHARE
    }

    /// Bytes of records from which on a round begins: so much before this `limit` as the last one was late.
    pub fn begins_at(&self, limit: u64) -> u64 {
        let brought = self.brought.load(Ordering::Relaxed);
        limit - brought.min(limit / EARLY_SHARE * 3)
    }

    /// Whether changes have brought so much while items last left that with this `limit` they would have waited.
    pub fn is_late(&self, limit: u64) -> bool {
        self.brought.load(Ordering::Relaxed) > limit / CHANGES_SHARE
    }

    /// Notes how many bytes changes have brought while a round let items leave.
    pub fn note_brought(&self, bytes: u64) {
        self.brought.store(bytes, Ordering::Relaxed);
    }

    /// Whether items should leave the table, or free room its file.
    pub fn is_exceeded(&self, tiers: &TieredItems) -> bool {
        self.exceeds(tiers, held(tiers))
    }

    fn exceeds(&self, tiers: &TieredItems, held: u64) -> bool {
        let limit = self.limit(tiers);
        tiers.table.record_bytes() > self.begins_at(limit) || self.can_give_room_back(held, limit)
    }

    /// Whether changes should wait until there is less of either.
    pub fn is_full(&self, tiers: &TieredItems) -> bool {
        let limit = self.limit(tiers);
        tiers.table.record_bytes() > limit + limit / CHANGES_SHARE
            || self.free_room(held(tiers), limit) > 2 * self.free_room_max()
            || self.demands.lacks_what_others_owe(self.number)
    }

    /// Whether free room should be given back.
    pub fn has_free_room(&self, tiers: &TieredItems) -> bool {
        self.can_give_room_back(held(tiers), self.limit(tiers))
    }

    /// Whether so much room is free that it is worth trying to give it back.
    fn can_give_room_back(&self, held: u64, limit: u64) -> bool {
        free_room(held, limit, self.kept_room.bytes_now()) > self.free_room_max()
    }

    fn free_room_max(&self) -> u64 {
        (self.demands.share() / FREE_ROOM_SHARE).max(FREE_ROOM_MIN)
    }

    /// The free room of a table that holds so many bytes.
    fn free_room(&self, held: u64, limit: u64) -> u64 {
        free_room(held, limit, self.kept_room.bytes())
    }

    /// Notes that all free room was given back that can be now, which was tried since then.
    pub fn keep_free_room(&self, tiers: &TieredItems, begun: Instant) {
        let left = free_room(held(tiers), self.limit(tiers), 0);
        self.kept_room.note(left, begun);
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

/// What of the bytes that a table holds is beyond what records may take, but for what it keeps.
fn free_room(held: u64, limit: u64, kept: u64) -> u64 {
    held.saturating_sub(limit + limit / CHANGES_SHARE + kept)
}

/// Bytes of a table's file beyond its levels.
fn held(tiers: &TieredItems) -> u64 {
    tiers.table.resident_beyond(tiers.table.level_bytes())
}
