//! The room on the disk that a store sees to before it does anything: so that on a full disk puts are
//! refused, and nothing else is.
//!
//! What is free on the disk and what the [reserve](crate::store::files::reserve) holds are one sum,
//! if nobody else writes there. At any moment it is enough for a checkpoint of all that has
//! changed. A change that adds to the store leaves room to delete all keys. That is room for the
//! log of some deletions, which the next checkpoint gives back, and for the tombstones of all
//! evicted items.

use std::sync::atomic::Ordering;

use crate::Result;
use crate::store::files::dir::{Room, is_full};
use crate::store::files::reserve;
use crate::store::files::reserve::Purpose;
use crate::store::files::segment::LEAST_EXTENSION;
use crate::store::inner::StoreInner;
use crate::store::wal::record;
use crate::store::wal::record::Entry;
use crate::table::room::Need;

/// Evictions that deletions on a full disk wait for, one after the other.
const EVICTIONS_AWAITED: usize = 8;

impl StoreInner {
    /// What the index needs for the final values of a group.
    fn need(&self, entries: &[Entry]) -> Need {
        let table = &self.tiers.table;
        let mut need = Need::default();
        let mut version = None;
        let precisely = self.store_dir.is_tight();
        for entry in entries {
            let is_tombstone = entry.value.is_none() && {
                let (version, is_evicting) = version.get_or_insert_with(|| {
                    let is_evicting = self.applying().is_evicting;
                    (self.tiers.spill.version(), is_evicting)
                });
                self.tiers
                    .leaves_tombstone(version, entry.key, *is_evicting, precisely)
            };
            match entry.value {
                None if !is_tombstone => need.add_removals(1),
                value => {
                    let len = value.map_or(0, <[u8]>::len);
                    table.needs_record(&mut need, entry.key.len(), len, 1);
                }
            }
        }
        need
    }

    fn hold(&self, bytes: u64, purpose: Purpose) -> Result<()> {
        self.tiers.hold(&self.store_dir, bytes, purpose)
    }

    /// Sees to it that the disk has room for what needs `need` in the index and `more` bytes beside it, and
    /// for deleting all afterwards.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like.
    pub(in crate::store) fn hold_to_add(&self, need: &Need, more: u64) -> Result<()> {
        loop {
            let evictions = self.tiers.evictions();
            self.hold(self.tiers.to_keep_free(need, more), Purpose::Addition)?;
            // Else what an eviction needs, which has begun meanwhile, would be forgotten.
            if self.tiers.evictions() == evictions {
                return Ok(());
            }
        }
    }

    /// Sees to it that the disk has room for a group of changes before they go into the log; gives what of
    /// the reserve the log may have.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like.
    pub(in crate::store) fn hold_for(&self, entries: &[Entry]) -> Result<Room> {
        let held = match entries.iter().any(|entry| entry.value.is_some()) {
            true => {
                let held = self.hold_to_add(&self.need(entries), 0);
                held.map(|()| Room::Spares)
            }
            false => self.hold_to_delete(entries),
        };
        self.note_full(held)
    }

    /// Has a checkpoint make room, once somebody wakes its thread, if the disk was full for what was `done`.
    pub(in crate::store) fn note_full<T>(&self, done: Result<T>) -> Result<T> {
        if is_full(&done) {
            self.was_full.store(true, Ordering::Relaxed);
        }
        done
    }

    fn hold_to_delete(&self, entries: &[Entry]) -> Result<Room> {
        let record = record::len(entries) + 2 * LEAST_EXTENSION;
        let try_hold = || {
            let is_evicting = self.applying().is_evicting;
            let (journal, growth) = self.tiers.table.room_for(&self.need(entries));
            let keep = journal + growth + reserve::ROOM_AFTER_DELETION_BYTES;
            let held = self.hold(keep + record, Purpose::Deletion);
            (held.map(|()| Room::Reserve { keep }), growth, is_evicting)
        };
        let (mut held, mut growth, mut was_evicting) = try_hold();
        if is_full(&held) && !self.store_dir.is_tight() {
            // Fewer of them leave a tombstone if the files are asked.
            self.store_dir.reserve().set_tight();
            (held, growth, was_evicting) = try_hold();
        }
        for _ in 0..EVICTIONS_AWAITED {
            if !is_full(&held) || !(was_evicting || self.applying().is_evicting) {
                break;
            }
            // An eviction finds no room either. Once it has ended, they leave no tombstones.
            drop(self.evicting.lock());
            (held, growth, was_evicting) = try_hold();
        }
        // What the disk has no room to checkpoint may go on as long as the log does.
        let goes_on = growth == 0 && self.is_unsaved.load(Ordering::Relaxed);
        match is_full(&held) && goes_on {
            true => Ok(Room::ALL),
            false => held,
        }
    }

    /// Sees to it that removals from the index, of which the log knows nothing, leave room for a checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like.
    pub(in crate::store) fn hold_to_remove(&self, removals: usize) -> Result<()> {
        let mut need = Need::default();
        need.add_removals(removals as u64);
        let (journal, _) = self.tiers.table.room_for(&need);
        let keep = journal + reserve::ROOM_AFTER_DELETION_BYTES;
        self.hold(keep, Purpose::Deletion)
    }

    /// Bytes that a checkpoint now may take of the disk, but for segments and manifest.
    pub(in crate::store) fn journal_bytes(&self) -> u64 {
        self.tiers.table.room_for(&Need::default()).0
    }

    /// Lowers what the partition needs to what it does once something has the room that was held for it.
    pub(in crate::store) fn lower_need(&self) {
        let evictions = self.tiers.evictions();
        let wanted = self.tiers.to_keep_free(&Need::default(), 0);
        // Else what an eviction needs, which has begun meanwhile, would be forgotten.
        if self.tiers.evictions() == evictions {
            self.store_dir.reserve().need_at_most(wanted);
        }
    }

    /// Holds what deleting takes, as far as the disk has it, and gives back the rest.
    pub(in crate::store) fn fill_reserve(&self) {
        let wanted = self.tiers.to_keep_free(&Need::default(), 0);
        let reserve = self.store_dir.reserve();
        reserve.cut(wanted);
        if self.hold(wanted, Purpose::Refill).is_err() {
            reserve.hold_most(wanted);
        }
    }
}
