//! Checkpoints, which take the place of the log, and the one at closing.

use std::sync::atomic::Ordering;

use crate::Result;
use crate::store::files::dir::{Room, is_full};
use crate::store::inner::StoreInner;
use crate::table::room::Need;

impl StoreInner {
    /// Notes in the index which manifest there is, and up to which request it has all.
    pub(in crate::store) fn mark(&self, sequence: Option<u64>) {
        let manifest = self.store_dir.manifest();
        self.tiers
            .table
            .mark(manifest.store_id, sequence, manifest.generation);
    }

    /// Begins a checkpoint. No change runs beside it.
    pub(in crate::store) fn begin_checkpoint(&self) -> Result<()> {
        let stalls = &self.metrics.checkpoint_stalls;
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
        self.mark(Some(sealed.sequence));
        self.store_dir.with_room(Room::ALL, || {
            let begun = self.tiers.table.begin_sync();
            begun.inspect_err(|_| self.tiers.table.trim())
        })?;
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
            manifest.first_segment = sealed.segment;
            manifest.sequence = sealed.sequence;
        })?;
        self.log.was_taken(&sealed);
        self.fill_reserve();
        Ok(())
    }

    /// Closes the index and the log cleanly.
    pub fn close(self) -> Result<()> {
        if let Some(error) = self.broken.get().cloned() {
            // The log has all that was answered; what the index has is not known.
            self.tiers.table.abandon();
            return Err(error);
        }
        if !self.has_changed.load(Ordering::Relaxed) && self.log.is_new() {
            return self.tiers.table.close_unchanged();
        }
        // What stays is a short segment, which the next opening reads, and no other.
        self.store_dir.retire_old_segments(0);
        let begun = self.try_checkpoint();
        let checkpoint = begun.and_then(|()| self.complete_checkpoint());
        self.store_dir.retire_old_segments(0);
        let is_copied = self.tiers.table.is_copied();
        if is_full(&checkpoint) {
            // The log stays in its place, with all that was answered.
            tracing::warn!(
                "the store is closed without a checkpoint: the disk has no room for one"
            );
            self.log.sync()?;
            if is_copied {
                self.tiers.table.abandon();
                return Ok(());
            }
            return self.tiers.table.close();
        }
        let wanted = self.tiers.to_keep_free(&Need::default(), 0);
        // What is free is written down, which may be much.
        self.store_dir.reserve().shrink(0);
        let closed = self.tiers.table.close();
        // A store that is closed has room to be opened and worked with, as far as it can be had.
        self.store_dir.reserve().hold_most(wanted);
        match is_copied && is_full(&closed) {
            // The last checkpoint stands, and the next opening scans it.
            true => checkpoint,
            false => closed.and(checkpoint),
        }
    }
}
