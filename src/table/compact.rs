//! Compaction: records move together, so that whole ranges of the file become free.
//!
//! A record moves as an update would store the same value: it is copied into a free record and made durable,
//! then the record word is swung. So batches, readers and iterators run beside it, and a crash leaves the one
//! record or the other.

use std::time::{Duration, Instant};

use super::Table;
use super::recovery::Progress;
use super::session::Session;
use crate::layout::bucket::SlotAddr;
use crate::layout::{BUSY, EMPTY, RecordWord};
use crate::pm::Medium;
use crate::sync::pause;
use crate::table::alloc::arena::{ExtentMap, Victims};
use crate::table::alloc::epoch::GRACE;
use crate::table::iter::Buckets;
use crate::width::to_usize;

/// Buckets that are gone through before others may reclaim what was replaced, and go on with a resize.
const SLICE_BUCKETS: usize = 256;

/// The same ends after so many bytes were moved.
const SLICE_BYTES_MAX: u64 = 4 << 20;

/// How long compaction waits for readers, who may keep records for as long as they like.
const READERS_WAIT_MAX: Duration = Duration::from_secs(1);

/// What is done between two slices: it may rest, and says whether to go on. While levels shrink, their lock is held.
pub(crate) type Between<'a> = &'a (dyn Fn(Progress) -> bool + Sync);

/// Goes on at once, and reports the progress.
pub(crate) fn reporting(progress: &(dyn Fn(Progress) + Sync)) -> impl Fn(Progress) -> bool + Sync {
    move |done| {
        progress(done);
        true
    }
}

/// Ends, when dropped, what was begun to be emptied.
struct Ending<'t, M: Medium>(&'t Table<M>);

impl<M: Medium> Drop for Ending<'_, M> {
    fn drop(&mut self) {
        self.0.free_vacated();
    }
}

impl<M: Medium> Table<M> {
    /// Empties ranges of the file that hold few records, and enters them as free. Where the domain has checkpoints,
    /// they are free for good with the next one. The caller is not pinned. A second compaction beside this one
    /// does nothing.
    ///
    /// What readers hold, or other batches keep for themselves, stays where it is. `false` if `between` has ended it early.
    pub(crate) fn compact(&self, between: Between<'_>) -> bool {
        if !self.shrink_levels(between) {
            return false;
        }
        while self.read_free_list() {}
        self.pass_epochs();
        let most = self.parts_max(&self.superblock());
        let epoch = || self.epochs.current();
        let begun = self
            .arena
            .begin_vacating(Victims::Sparse, self.part_len(), most, epoch);
        let Some(victims) = begun else { return true };
        // Also when `between` panics.
        let ending = Ending(self);
        let is_done = self.move_out_of(&victims, between);
        self.pass_epochs();
        drop(ending);
        is_done
    }

    /// Waits until nobody holds what has been replaced so far, but not for long.
    pub(super) fn pass_epochs(&self) {
        // What batches that have ended still keep must be known to wait for its epoch.
        self.arena.collect_idle(|| self.epochs.current());
        self.wait_for_pins();
    }

    /// Waits until all who are pinned have let go; `false` if some do not for long.
    pub(super) fn wait_for_pins(&self) -> bool {
        let (start, started) = (self.epochs.current(), Instant::now());
        while self.epochs.try_advance() <= start + GRACE {
            if started.elapsed() >= READERS_WAIT_MAX {
                return false;
            }
            pause();
        }
        true
    }

    /// Moves records out of `victims`, as far as there are free ones elsewhere. `false` if `between` has ended it.
    pub(crate) fn move_out_of(&self, victims: &ExtentMap, between: Between<'_>) -> bool {
        let total = self.slots() / u64::from(self.shape.slots);
        let mut buckets = Buckets::new(self);
        let mut buffer = Vec::new();
        let mut done = 0;
        loop {
            // A resize leaves two copies of an item for a moment, which must name one record.
            let resize = self.resize();
            let mut session = self.session();
            let before = done;
            let mut moved = 0;
            while moved < SLICE_BYTES_MAX && done - before < SLICE_BUCKETS {
                let Some(bucket) = buckets.next() else { break };
                done += 1;
                let Some(at) = bucket.offset(self) else {
                    continue;
                };
                for slot in 0..self.shape.slots {
                    let addr = self.shape.slot_addr(at, slot);
                    moved += session.move_record(addr, victims, &mut buffer);
                }
            }
            drop(session);
            drop(resize);
            let is_done = done == before;
            let progress = Progress {
                phase: "compact",
                done: (done as u64).min(total),
                total,
            };
            if is_done || !between(progress) {
                return is_done;
            }
        }
    }
}

impl<M: Medium> Session<'_, M> {
    /// Moves the record of a slot, if it is among the victims and there is a free one elsewhere. Gives its bytes.
    fn move_record(&mut self, addr: SlotAddr, victims: &ExtentMap, buffer: &mut Vec<u8>) -> u64 {
        let table = self.table;
        let medium = &table.medium;
        loop {
            let record = RecordWord(medium.load(addr.record));
            let state = medium.load(addr.state);
            let is_item = state != EMPTY && state != BUSY && record.is_member();
            let from = record.offset();
            let class = match victims.record(from) {
                Some((class, _)) if is_item && !record.is_frozen() => class,
                _ => return 0,
            };
            if !table.record_in_bounds(record) {
                return 0;
            }
            if !record.is_sound(state) {
                if medium.load(addr.record) == record.0 {
                    // A new word would hide the damage, and name what may be another item's record.
                    return 0;
                }
                continue;
            }
            let len = table.record_len(from).min(table.shape.record_size(class));
            let Some(to) = self.allocate(class) else {
                return 0;
            };
            buffer.resize(to_usize(len), 0);
            medium.read(from, buffer);
            medium.write(to, buffer);
            table.persist_record(to);
            medium.fence();
            let new = RecordWord::member(state, to);
            let swung = medium.compare_exchange(addr.record, record.0, new.0);
            if swung.is_ok() {
                self.note_slot(addr);
                medium.write_back(addr.record, 8);
                medium.fence();
                self.retire(from);
                return len;
            }
            self.put_back(class, to);
        }
    }
}
