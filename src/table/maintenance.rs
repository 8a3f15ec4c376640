//! The maintenance of a table between its batches, by a thread of its own, so that no batch waits
//! for it. It preallocates room in the file, and drives a resize on.
//!
//! Preallocated room is known to nobody but the medium; neither the superblock nor the extent table
//! speaks of it. So a growth that finds it there only writes these two, and a crash takes it
//! back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Table;
use super::idle::IdleCompaction;
use crate::layout::shape::extent_alignment;
use crate::layout::{HUGE_PAGE, Shape, align_up};
use crate::pm::{Medium, Priority};
use crate::pool::worker::Worker;
use crate::width::saturating_u64;

/// Percentages of full slots at which preallocation of a further level begins, at the earliest and
/// at the latest, and at which all of it should be there. Tables grow when about 93 are.
const LEVEL_FULL_PERCENTS: [u64; 3] = [70, 80, 90];

/// Room for further records begins to be made when fewer than one in so many was never taken, at the
/// earliest and at the latest.
const FRESH_SHARES: [u64; 2] = [8, 32];

/// It begins before the latest time if so many of the longest batches of a device would fill what there
/// is: they do so quicker than room is made.
const BATCHES_IN_RESERVE: u64 = 16;

/// Nothing is preallocated for a growth by fewer bytes of a shorter file, which has no huge page to itself.
const PREALLOCATION_BYTES_MIN: u64 = HUGE_PAGE;

/// Which part of a short file is preallocated at least: its steps are shorter than what the thread takes to come.
const PREALLOCATED_SHARE: u64 = 8;

/// Bytes that are prepared before the thread looks again whether it is still wanted.
const PREALLOCATE_STEP_BYTES: u64 = 64 << 20;

/// Operations for which a batch makes a huge page of room when the maintenance has fallen behind. An
/// insertion is owed a few hundred bytes: two records and eight slots.
const OPS_PER_HUGE_PAGE: u64 = 2048;

/// Shortest rest between two slices of a resize.
const REST_MIN: Duration = Duration::from_micros(200);

/// While batches run, a slice is followed by a rest of so many times its length.
const REST_WHILE_BUSY: u32 = 3;

/// Percentage of the slots above the bottom level that are full when there is no more time to rest.
/// A resize begins at about half, and the next one should not have to wait for it.
const PRESSING_PERCENT: u64 = 70;

/// What the maintenance of a table knows, whether it has a thread or not.
pub(crate) struct Maintenance {
    thread: Worker,
    ending: AtomicBool,
    /// Length for which the disk had no room.
    refused: AtomicU64,
    /// Operations of a device's longest batch so far, or of the longest part that one was executed in.
    longest_batch: AtomicU64,
    /// Nanoseconds of the longest step of a growth that a batch had to wait for.
    pub(crate) longest_pause: AtomicU64,
    /// Levels added since the file was opened.
    pub(crate) resizes: AtomicU64,
    /// The bottom level is emptied but for a damaged slot, and stays until the file is opened anew.
    pub(crate) stays: AtomicBool,
    /// Offset of that slot, of which nobody was told yet; else 0.
    pub(crate) untold: AtomicU64,
    pub(crate) idle: IdleCompaction,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            thread: Worker::new("gphash-maintenance"),
            ending: AtomicBool::default(),
            refused: AtomicU64::default(),
            longest_batch: AtomicU64::default(),
            longest_pause: AtomicU64::default(),
            resizes: AtomicU64::default(),
            stays: AtomicBool::default(),
            untold: AtomicU64::default(),
            idle: IdleCompaction::default(),
        }
    }
}

impl Maintenance {
    /// Has the thread look for work, if the table is kept up. Without a thread to be had, growth and
    /// resize are left to the batches.
    pub(crate) fn wake(&self) {
        self.thread.call_if_possible();
    }

    /// Says that a device executes batches of so many operations at a time.
    #[cfg(any(test, feature = "cuda"))]
    pub(crate) fn expect_batches(&self, operations: u64) {
        self.longest_batch.fetch_max(operations, Ordering::Relaxed);
    }

    /// Longest time that one step of a growth held up a batch.
    pub(crate) fn longest_pause(&self) -> Duration {
        Duration::from_nanos(self.longest_pause.load(Ordering::Relaxed))
    }

    /// Does one step of a growth, for which a batch waits.
    pub(crate) fn holding_up<T>(&self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = work();
        let took = started.elapsed();
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if self.longest_pause.fetch_max(nanoseconds, Ordering::Relaxed) < nanoseconds {
            tracing::debug!(step, ?took, "the longest pause so far");
        }
        done
    }
}

/// Room for which the file should be ready.
struct Room {
    /// Length with all that will soon be needed.
    all: u64,
    /// Length with the part of it that should be there by now.
    due: u64,
}

impl Room {
    /// Adds an extent of `len` bytes, of which a `share` should be there by now.
    fn add(&mut self, len: u64, share: f64) {
        self.all = align_up(self.all, extent_alignment(len)) + len;
        self.due += saturating_u64(len as f64 * share.clamp(0.0, 1.0));
    }
}

impl<M: Medium> Table<M> {
    /// The level that the table will soon need on top, if none is preallocated.
    pub(crate) fn coming_level(&self) -> Option<u32> {
        let levels = self.levels.live();
        let (begins, _) = self.level_times();
        let coming = self.len() >= begins && levels.top < Shape::MAX_LEVEL;
        (coming && !self.is_draining(levels)).then_some(levels.top + 1)
    }

    /// How many items there are when room for a further level begins to be made, and when all of it
    /// should be there.
    fn level_times(&self) -> (u64, u64) {
        let slots = self.slots();
        let [earliest, latest, due] =
            LEVEL_FULL_PERCENTS.map(|percent| slots.saturating_mul(percent) / 100);
        (
            due.saturating_sub(self.reserve_ops())
                .clamp(earliest, latest),
            due,
        )
    }

    /// Operations that should find preallocated room.
    fn reserve_ops(&self) -> u64 {
        BATCHES_IN_RESERVE * self.maintenance.longest_batch.load(Ordering::Relaxed)
    }

    /// The room that the file should be ready for, if it is not, and if the disk may have it.
    fn missing_room(&self) -> Option<Room> {
        let now = self.medium.len();
        let mut room = Room { all: now, due: now };
        if let Some(level) = self.coming_level() {
            let (begins, due) = self.level_times();
            let share = self.len().saturating_sub(begins) as f64 / (due - begins).max(1) as f64;
            room.add(self.shape.level_len(level), share);
        }
        // Records take what is free before the file grows. Few batches need to know it.
        let mut free = None;
        for class in self.arena.classes() {
            let total = self.arena.total(class);
            let fresh = self.arena.fresh(class);
            let [earliest, latest] = FRESH_SHARES.map(|part| total / part);
            if total > 0 && fresh <= self.reserve_ops().clamp(latest, earliest) {
                // The batches make none of it before the latest time: they may be the last ones.
                let share = 1.0 - fresh as f64 / latest.max(1) as f64;
                let len = self.next_arena_len(class, self.arena.extent_count());
                let free = free.get_or_insert_with(|| self.free_extent_bytes().0);
                let of_free = len.min(*free);
                *free -= of_free;
                if of_free < len {
                    room.add(len, share);
                }
            }
        }
        if room.all - now < PREALLOCATION_BYTES_MIN {
            if room.all == now || now < PREALLOCATION_BYTES_MIN {
                return None;
            }
            // The batches make short steps themselves if the maintenance falls behind.
            room = Room {
                all: room
                    .all
                    .max(now + (now / PREALLOCATED_SHARE).min(HUGE_PAGE)),
                due: now,
            };
        }
        let refused = self.maintenance.refused.load(Ordering::Relaxed);
        let is_missing = room.all > self.medium.prepared() && room.all != refused;
        is_missing.then_some(room)
    }

    /// Sees to it that room is made, if it will soon be needed. Where the maintenance falls behind the
    /// batches, each of them makes a little for its `operations`: many short waits in place of a
    /// long one.
    pub(crate) fn check_room(&self, operations: u64) {
        let Some(room) = self.missing_room() else {
            return;
        };
        self.maintenance.wake();
        let prepared = self.medium.prepared();
        if prepared < room.due {
            let share = (operations / OPS_PER_HUGE_PAGE).max(1) * HUGE_PAGE;
            let to = room.due.min(prepared + share);
            self.maintenance.holding_up("making room", || {
                self.prepare(to, &room, Priority::WaitedFor)
            });
        }
    }

    /// Makes a part of the room that will soon be needed; `false` when there is enough, or no
    /// more to be had.
    pub(crate) fn make_room(&self) -> bool {
        match self.missing_room() {
            Some(room) if !self.maintenance.ending.load(Ordering::Relaxed) => {
                let to = room
                    .all
                    .min(self.medium.prepared() + PREALLOCATE_STEP_BYTES);
                self.prepare(to, &room, Priority::of_step(to == room.all))
            }
            _ => false,
        }
    }

    /// Prepares a part of `room`. A full disk is no error before the room is needed.
    fn prepare(&self, to: u64, room: &Room, priority: Priority) -> bool {
        let prepared = self.medium.prepare(to, priority);
        if let Err(error) = &prepared {
            tracing::debug!(%error, wanted = room.all, "no room can be preallocated");
            self.maintenance.refused.store(room.all, Ordering::Relaxed);
        }
        prepared.is_ok()
    }

    /// One round of the maintenance of a table that no engine empties: how long to rest, or `None`
    /// until there is something to do.
    pub(crate) fn maintain(&self, pace: &mut Pace) -> Option<Duration> {
        self.free_empty_parts();
        while self.make_room() {}
        let started = Instant::now();
        let more = self.drain_between_batches();
        more.then(|| pace.rest(self, started.elapsed()))
    }

    /// Whether the resize under way should soon come to its end.
    fn is_pressed(&self) -> bool {
        let bottom = u64::from(self.shape.slots) << self.levels.live().bottom;
        let above = self.slots().saturating_sub(bottom);
        self.len().saturating_mul(100) >= above.saturating_mul(PRESSING_PERCENT)
    }
}

/// How fast a resize is driven on beside the batches.
#[derive(Default)]
pub(crate) struct Pace {
    operations: u64,
}

impl Pace {
    /// How long to rest after a slice that `took` so long.
    pub(crate) fn rest<M: Medium>(&mut self, table: &Table<M>, took: Duration) -> Duration {
        let operations = table.counts.operations();
        let is_busy = std::mem::replace(&mut self.operations, operations) != operations;
        if is_busy && !table.is_pressed() {
            REST_MIN.max(took * REST_WHILE_BUSY)
        } else {
            REST_MIN
        }
    }
}

/// Keeps a table up, by a thread that is there while there is work. Stopped when dropped.
pub(crate) struct Maintainer<M> {
    table: Arc<Table<M>>,
}

impl<M: Medium + 'static> Maintainer<M> {
    /// Has `round` done when the table is roused, again and again: after the rest that it asks for, or
    /// when it is roused again.
    pub(crate) fn start(
        table: &Arc<Table<M>>,
        mut round: impl FnMut(&Table<M>) -> Option<Duration> + Send + 'static,
    ) -> Self {
        let kept = Arc::clone(table);
        table.maintenance.thread.set_work(move || round(&kept));
        // A resize may have been under way, or about to begin, when the file was left.
        let is_draining = table.levels.live().draining(table.shape.levels);
        if is_draining || table.coming_level().is_some() || table.hint_at_opening() {
            table.maintenance.wake();
        }
        Self {
            table: Arc::clone(table),
        }
    }
}

impl<M> Maintainer<M> {
    /// Ends the thread.
    pub(crate) fn stop(&mut self) {
        self.table.maintenance.ending.store(true, Ordering::Relaxed);
        self.table.maintenance.idle.end();
        self.table.maintenance.thread.stop();
    }
}

impl<M> Drop for Maintainer<M> {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
