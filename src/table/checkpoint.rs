//! What makes a table durable: its superblock, checkpoints, and a clean close.

use std::path::Path;

use super::Table;
use crate::layout::size_class::{CLASS_TABLE, ClassTable, SIZE_CLASSES};
use crate::layout::superblock::Flags;
use crate::layout::{DATA_START, KeyClass, Superblock};
use crate::pm::{Mapping, Medium};
use crate::sync::{MutexGuard, Ordering, RwLockReadGuard};
use crate::width::to_usize;
use crate::{Domain, Result};

impl<M: Medium> Table<M> {
    /// The superblock; whoever holds it may change the file's structure.
    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock()
    }

    /// Keeps checkpoints away, in the domain that has them.
    pub(crate) fn store_gate(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (self.medium.domain() == Domain::Checkpointed).then(|| self.gate.read())
    }

    /// Stores bytes and starts their write-back.
    pub(crate) fn persist_later(&self, at: u64, bytes: &[u8]) {
        self.medium.write(at, bytes);
        self.medium.write_back(at, bytes.len() as u64);
    }

    /// Writes the next generation of the superblock, durably as far as the domain goes.
    pub(crate) fn commit(&self, superblock: &mut Superblock) {
        superblock.generation += 1;
        superblock.seal();
        // What the superblock speaks of must be durable before it.
        self.medium.fence();
        self.persist_later(superblock.file_offset(), bytemuck::bytes_of(superblock));
        self.medium.fence();
    }

    /// Makes everything so far durable, as far as the domain needs it said. Stores wait only while it
    /// is copied.
    pub(crate) fn sync(&self) -> Result<()> {
        let _alone = self.syncing.lock();
        self.capture()?;
        self.complete()
    }

    /// As [`sync`](Self::sync), but only if batches have changed nothing since the last version; `false` if they have.
    pub(super) fn sync_unchanged(&self) -> Result<bool> {
        let _alone = self.syncing.lock();
        {
            let _gate = self.gate.write();
            if self.is_changed.load(Ordering::Acquire) {
                return Ok(false);
            }
            self.capture_alone()?;
        }
        self.complete().map(|()| true)
    }

    /// The second half of [`sync`](Self::sync).
    pub(crate) fn complete(&self) -> Result<()> {
        self.free_extents().save();
        let completed = self.medium.complete();
        self.free_extents().saved(completed.is_ok());
        completed
    }

    /// The first half of [`sync`](Self::sync), and what may wait for the second.
    pub(crate) fn capture(&self) -> Result<()> {
        let _gate = self.gate.write();
        self.capture_alone()
    }

    /// As [`capture`](Self::capture), while nobody stores.
    fn capture_alone(&self) -> Result<()> {
        self.medium.fence();
        if self.medium.domain() == Domain::Checkpointed {
            let mut superblock = self.superblock();
            superblock.checkpoints += 1;
            self.commit(&mut superblock);
        }
        self.medium.capture()?;
        self.free_extents().capture();
        Ok(())
    }

    /// Writes down how many records of each class were ever taken, where there are several; gives
    /// the sum.
    fn write_class_table(&self) -> u64 {
        let taken = self.arena.classes().map(|class| self.arena.taken(class));
        if self.shape.key_class() == KeyClass::Variable {
            let mut table = [0; SIZE_CLASSES as usize];
            taken
                .clone()
                .zip(&mut table)
                .for_each(|(taken, count)| *count = taken);
            self.persist_later(CLASS_TABLE, bytemuck::bytes_of(&ClassTable::new(table)));
        }
        taken.sum()
    }

    /// Writes down what a clean open needs, and says so in the superblock.
    pub(crate) fn close(&self) -> Result<()> {
        self.finish_draining_quietly();
        while self.read_free_list() {}
        let mut free = self.arena.take_all();
        // A damaged file may have named what is no record.
        let map = self.arena.map();
        free.retain(|&record| map.record(record).is_some());
        let mut superblock = self.superblock();
        self.cut_free_end(&mut superblock);
        superblock.items = self.len();
        superblock.arena_high_water = self.write_class_table();
        superblock.free_count = free.len() as u64;
        superblock.free_list = self.write_free_list(&free);
        superblock.set_flag(Flags::CLEAN, true);
        self.commit(&mut superblock);
        drop(superblock);
        self.medium.trim();
        self.sync()?;
        self.medium.finish()?;
        self.release_free();
        self.medium.cut(self.superblock().file_len);
        Ok(())
    }
}

/// Reads the superblock of a file that is mapped.
pub(crate) fn read_superblock(medium: &Mapping, path: &Path) -> Result<Superblock> {
    let mut head = vec![0; to_usize(DATA_START.min(medium.len()))];
    medium.read(0, &mut head);
    Superblock::parse(&head, medium.len(), path)
}
