//! The room on the disk that deleting all takes, and how it is held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::tiers::TieredItems;
use crate::Result;
use crate::lsm::LsmVersion;
use crate::store::files::dir::{StoreDir, is_full};
use crate::store::files::reserve::{Purpose, ROOM_AFTER_ADDITION_BYTES};
use crate::table::item::Mutation;
use crate::table::room::Need;

/// What tombstones of all items below the index would take.
#[derive(Debug, Default)]
pub struct Tombstones {
    /// Of the version that was asked for last.
    last: Mutex<(Weak<LsmVersion>, Need)>,
    /// Of items that leave the index now.
    leaving: Mutex<Need>,
    /// How often there were such items.
    evictions: AtomicU64,
}

impl TieredItems {
    /// What tombstones of all items below the index would need there.
    fn need_of_tombstones(&self) -> Need {
        // First: what is not leaving any more is in the version.
        let leaving = *self.tombstones.leaving.lock();
        let version = self.spill.version();
        let mut last = self.tombstones.last.lock();
        if !std::ptr::eq(last.0.as_ptr(), Arc::as_ptr(&version)) {
            let mut need = Need::default();
            for (shortest, longest, keys) in version.key_lens() {
                let table = &self.table;
                table.needs_tombstones(&mut need, (shortest, longest), keys);
            }
            *last = (Arc::downgrade(&version), need);
        }
        last.1.and(&leaving)
    }

    /// Says what tombstones of the items need that leave the index now, until a version has their files.
    pub fn note_leaving(&self, need: Need) {
        *self.tombstones.leaving.lock() = need;
        self.tombstones.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was said.
    pub fn evictions(&self) -> u64 {
        self.tombstones.evictions.load(Ordering::Relaxed)
    }

    /// Bytes that must be left when `need` has been added to the store and `more` bytes have been written,
    /// so that all can be deleted.
    pub fn to_keep_free(&self, need: &Need, more: u64) -> u64 {
        let table = &self.table;
        let tombstones = self.need_of_tombstones();
        let (journal, growth) = match tombstones.is_empty() {
            true => table.room_for(need),
            // They come a few at a time, with checkpoints in between.
            false => table.room_for(&tombstones.without_changes().and(need)),
        };
        (journal + growth)
            .saturating_add(ROOM_AFTER_ADDITION_BYTES)
            .saturating_add(more)
    }

    /// Sees to it that the disk has so many bytes.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like.
    pub fn hold(&self, store_dir: &StoreDir, bytes: u64, purpose: Purpose) -> Result<()> {
        let mut held = store_dir.hold(bytes, purpose);
        if is_full(&held) {
            self.table.trim();
            held = store_dir.hold(bytes, purpose);
        }
        if purpose != Purpose::Deletion && is_full(&held) {
            store_dir.reserve().set_tight();
        }
        held
    }

    /// What the index needs for changes.
    pub fn need_of(&self, changes: &[Mutation]) -> Need {
        let mut need = Need::default();
        for change in changes {
            match change {
                Mutation::Put { key, value, .. } => {
                    self.table
                        .needs_record(&mut need, key.len(), value.len(), 1);
                }
                Mutation::Delete { .. } => need.add_removals(1),
            }
        }
        need
    }
}
