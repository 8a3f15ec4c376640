//! Taking a table back from an engine that has failed amid a change, without closing it.

use super::{Policy, Recovery};
use crate::Result;
use crate::pm::Medium;
use crate::sync::nap;
use crate::table::Table;
use crate::table::alloc::arena::ReachableRecords;
use crate::table::alloc::epoch::GRACE;

impl<M: Medium> Table<M> {
    /// Recovers the table as the next opening would. What the engine has left half done is finished
    /// or undone, and free records are found anew. All that the host keeps of the file in volatile
    /// memory is made anew. Then any engine may go on with it.
    ///
    /// No batch may be under way, and the engine must have stored its last word.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if something is there that no engine leaves behind. The
    /// file is then as after a crash, and nothing may change it any more.
    pub(crate) fn retake(&self) -> Result<Recovery> {
        let _gate = self.store_gate();
        // Iterators may hold records that the engine has retired.
        let start = self.epochs.current();
        while self.epochs.try_advance() < start + GRACE {
            nap();
        }
        let superblock = *self.superblock();
        self.persist_found(&superblock);
        self.follow_engine();
        // What the arena has free, the scan finds again.
        drop(self.arena.take_all());
        let reachable = ReachableRecords::new(&self.arena);
        let findings = self.scan(&reachable, &|_| {});
        let mut recovery = Recovery::default();
        self.apply(&findings, &reachable, Policy::INDEX, &mut recovery)?;
        recovery.items = self.len();
        self.set_drained_by_engine(false);
        Ok(recovery)
    }

    /// Makes what the host keeps of the file in volatile memory anew, after an engine has changed the file alone. No
    /// batch may be under way.
    pub(crate) fn follow_engine(&self) {
        self.tags.forget();
        let levels = self.levels.live();
        for level in levels.bottom..=levels.top {
            let map = self.levels.offset(level) + self.shape.buckets_len(level);
            let words = self.shape.overflow_len(level) / 8;
            let words = (0..words).map(|word| self.medium.load(map + word * 8));
            self.overflow.merge(level, words);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
