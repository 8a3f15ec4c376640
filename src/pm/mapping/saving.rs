//! The checkpoint of a mapped file.

use super::{Access, Mapping};
use crate::Result;
use crate::layout::Superblock;
use crate::pm::Medium;
use crate::pm::journal::{HEAD, Snapshot};

impl Mapping {
    /// See [`Medium::capture`].
    pub(super) fn copy_changes(&self) -> Result<()> {
        let Some(dirty) = &self.dirty else {
            return match self.access {
                Access::Write => Ok(()),
                Access::Look => Err(self.only_looks()),
            };
        };
        let mut journal = self.journal.lock();
        dirty.put_back(&journal.give_up());
        let len = self.len();
        let pages = dirty.take(len);
        if pages.is_empty() {
            return Ok(());
        }
        let mut head = [0; HEAD];
        let head = &mut head[..HEAD.min(len as usize)];
        self.read(0, head);
        // A checkpoint that no one could open again must not replace the last one.
        let written = Superblock::parse(head, len, self.path()).and_then(|superblock| {
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

#[cfg(test)]
impl Mapping {
    /// Makes one checkpoint of all stores so far; none runs beside it.
    pub(in crate::pm) fn checkpoint(&self) -> Result<()> {
        self.capture()?;
        self.complete()
    }
}
