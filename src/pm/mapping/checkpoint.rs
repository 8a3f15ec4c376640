//! The checkpoint of a mapped file.

use super::{Access, Mapping};
use crate::Result;
use crate::layout::{PAGE, SUPERBLOCKS, Superblock};
use crate::pm::Medium;
use crate::pm::journal::{HEAD, Snapshot};
use crate::width::to_usize;

impl Mapping {
    /// See [`Medium::capture`].
    pub(super) fn copy_changes(&self) -> Result<()> {
        self.opener.check(self.path())?;
        let Some(dirty) = &self.dirty else {
            return match self.access {
                Access::Write => Ok(()),
                Access::ReadOnly => Err(self.opened_read_only()),
            };
        };
        let mut journal = self.journal.lock();
        dirty.put_back(&journal.give_up());
        let len = self.len();
        let mut pages = dirty.take(len);
        if pages.is_empty() {
            return Ok(());
        }
        if !journal.is_unpublished() {
            self.name_journal(journal.name(), &pages);
            pages.extend(dirty.take(len));
            pages.sort_unstable();
            pages.dedup();
        }
        let mut head = vec![0; HEAD.min(to_usize(len))];
        self.read(0, &mut head);
        // A checkpoint that no one could open again must not replace the last one.
        let written = Superblock::parse(&head, len, self.path()).and_then(|superblock| {
            let snapshot = Snapshot {
                superblock,
                file_len: len,
                pages: &pages,
                read: &|at, bytes| self.read(at, bytes),
            };
            journal.write(&self.file, &snapshot)
        });
        if written.is_err() {
            dirty.put_back(&pages);
        }
        written
    }

    /// See [`Medium::complete`].
    pub(super) fn save_copy(&self) -> Result<()> {
        self.opener.check(self.path())?;
        let Some(dirty) = &self.dirty else {
            return Ok(());
        };
        let mut journal = self.journal.lock();
        // A power cut must not leave a journal whose pages lie beyond the end of the file.
        let sealed = self.sync_growth().and_then(|()| journal.seal());
        if let Err(error) = sealed {
            dirty.put_back(&journal.give_up());
            return Err(error);
        }
        journal.bring_home(&self.file)
    }

    /// Lets both copies of the superblock in memory name the journal, as those at home will before
    /// pages go there. While those at home do not yet, both are part of the checkpoint. A copy that is part of it,
    /// as its page is among `pages`, counts as many checkpoints as the newest one: whichever of them has come
    /// home tells from which journal.
    fn name_journal(&self, (id, is_named): (u64, bool), pages: &[u64]) {
        let copies = SUPERBLOCKS.map(|at| {
            let mut bytes = [0; size_of::<Superblock>()];
            self.read(at, &mut bytes);
            Some(bytemuck::pod_read_unaligned::<Superblock>(&bytes)).filter(Superblock::is_whole)
        });
        let newest = copies.iter().flatten().max_by_key(|copy| copy.generation);
        for (at, copy) in SUPERBLOCKS.into_iter().zip(&copies) {
            let goes_home = !is_named || pages.binary_search(&(at / PAGE)).is_ok();
            if let (Some(copy), Some(newest)) = (copy, newest) {
                let checkpoints = if goes_home { newest } else { copy }.checkpoints;
                if (copy.journal_id, copy.checkpoints) != (id, checkpoints) {
                    let mut named = Superblock {
                        journal_id: id,
                        checkpoints,
                        ..*copy
                    };
                    named.seal();
                    self.write(at, bytemuck::bytes_of(&named));
                }
            }
            if !is_named {
                self.mark_dirty(at, 8);
            }
        }
    }

    /// Makes the length of the file durable.
    fn sync_growth(&self) -> Result<()> {
        if !std::mem::take(&mut self.growth_now().unsynced) {
            return Ok(());
        }
        // The file may grow meanwhile, which is another length.
        self.file
            .sync()
            .inspect_err(|_| self.growth_now().unsynced = true)
    }
}
