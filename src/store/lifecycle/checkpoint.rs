//! Checkpoints, which take the place of the log, and the one at closing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::store::files::dir::{Room, is_full};
use crate::store::inner::StoreInner;
use crate::table::room::Need;

/// Closes all partitions of a store, the first one last. Tells whether no log is needed any more: a full disk has no
/// room for a checkpoint.
///
/// # Errors
/// One of those of the partitions. The log of that partition stays then, and that of the first one, which decides for the
/// others as long as they have logs.
pub fn close_all(states: Vec<StoreInner>) -> Result<bool> {
    let store_dir = Arc::clone(&states[0].store_dir);
    let mut states = states.into_iter();
    let first = states.next().expect("a store has a partition");
    let synced = first.shared.sync_groups();
    let others = store_dir.each_partition(states, |state| state.close(synced.is_ok()));
    let closed = others.into_iter().fold(synced.map(|()| true), |all, this| {
        all.and_then(|are_free| this.map(|is_free| are_free && is_free))
    });
    let is_free = matches!(closed, Ok(true));
    let is_free = closed.and(first.close(is_free))?;
    store_dir.note_others().map(|()| is_free)
}

impl StoreInner {
    /// Begins a checkpoint. No change runs beside it.
    pub(in crate::store) fn begin_checkpoint(&self) -> Result<()> {
        let stalls = &self.shared.metrics.checkpoint_stalls;
        let begun = stalls.time(|| self.try_checkpoint());
        self.is_unsaved.store(is_full(&begun), Ordering::Relaxed);
        begun
    }

    fn try_checkpoint(&self) -> Result<()> {
        let finished = self.finish();
        let sealed = self.log.seal()?;
        if finished.is_err() {
            self.log_again()?;
        }
        self.tiers.mark(&self.store_dir, Some(sealed.sequence));
        self.store_dir.with_room(Room::ALL, || {
            let begun = self.tiers.table.begin_sync();
            begun.inspect_err(|_| self.tiers.table.trim())
        })?;
        // The journal has its room.
        self.lower_need();
        *self.begun.lock() = Some(sealed);
        Ok(())
    }

    /// Makes the index as it was when the checkpoint was begun durable in place of the log. Changes may
    /// run beside it, but no other checkpoint.
    pub(in crate::store) fn complete_checkpoint(&self) -> Result<()> {
        let Some(sealed) = self.begun.lock().take() else {
            return Ok(());
        };
        self.tiers.table.complete_sync()?;
        self.store_dir.edit(|manifest| {
            manifest.marked = true;
            manifest.salvaged = false;
            manifest.first_segment = sealed.segment;
            manifest.sequence = sealed.sequence;
        })?;
        self.log.was_taken(&sealed);
        self.fill_reserve();
        Ok(())
    }

    /// Closes the index and the log cleanly. Without `with_checkpoint` the log stays, and the index is as its last
    /// checkpoint has left it. Tells whether the log is not needed any more.
    fn close(self, with_checkpoint: bool) -> Result<bool> {
        if let Some(error) = self.broken.get().cloned() {
            // The log has all that was answered; what the index has is not known.
            if let Err(error) = self.log.sync() {
                tracing::warn!(%error, "a power cut may take back what was written last");
            }
            self.tiers.table.abandon();
            return Err(error);
        }
        if !with_checkpoint {
            self.tiers.table.abandon();
            return Ok(false);
        }
        if !self.has_changed.load(Ordering::Relaxed) && self.log.is_new() {
            return self.tiers.table.close_unchanged().map(|()| true);
        }
        // What stays is a short segment, which the next opening reads, and no other.
        self.store_dir.retire_old_segments(0);
        let begun = self.try_checkpoint();
        let checkpoint = begun.and_then(|()| self.complete_checkpoint());
        self.store_dir.retire_old_segments(0);
        if checkpoint.is_err() {
            // The index, which is durable when it is closed, must not have what the log may lose.
            self.log.sync()?;
        }
        let is_copied = self.tiers.table.is_copied();
        if is_full(&checkpoint) {
            // The log stays in its place, with all that was answered.
            tracing::warn!(
                "the store is closed without a checkpoint: the disk has no room for one"
            );
            if is_copied {
                self.tiers.table.abandon();
                return Ok(false);
            }
            return self.tiers.table.close().map(|()| false);
        }
        let wanted = self.tiers.to_keep_free(&Need::default(), 0);
        let reserve = self.store_dir.reserve();
        let given = reserve.give();
        // What is free is written down, which may be much.
        given.shrink(0);
        let closed = self.tiers.table.close();
        drop(given);
        // A store that is closed has room to be opened and worked with, as far as it can be had.
        reserve.hold_most(wanted);
        match is_copied && is_full(&closed) {
            // The last checkpoint stands, and the next opening scans it.
            true => checkpoint,
            false => closed.and(checkpoint),
        }
        .map(|()| true)
    }
}
