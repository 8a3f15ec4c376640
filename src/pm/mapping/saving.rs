//! The checkpoint of a mapped file.

use super::growth::Growth;
use super::{Access, Mapping};
use crate::Result;
use crate::layout::Superblock;
use crate::pm::Medium;
use crate::pm::journal::{HEAD, Journal, Snapshot};

impl Mapping {
    /// See [`Medium::checkpoint`].
    pub(super) fn save(&self) -> Result<()> {
        let Some(dirty) = &self.dirty else {
            return match self.access {
                Access::Write => Ok(()),
                Access::Look => Err(self.only_looks()),
            };
        };
        let mut journal = self.journal.lock();
        let mut growth = self.growth_now();
        let pages = dirty.take(self.len());
        let saved = self.save_pages(&mut journal, &mut growth, &pages);
        if saved.is_err() {
            dirty.put_back(&pages);
        }
        saved
    }

    fn save_pages(&self, journal: &mut Journal, growth: &mut Growth, pages: &[u64]) -> Result<()> {
        if pages.is_empty() {
            return journal.settle(&self.file);
        }
        if growth.unsynced {
            // A power cut must not leave a journal whose pages lie beyond the end of the file.
            self.file.sync()?;
            growth.unsynced = false;
        }
        let len = self.len();
        let mut head = [0; HEAD];
        let head = &mut head[..HEAD.min(len as usize)];
        self.read(0, head);
        // A checkpoint that no one could open again must not replace the last one.
        let superblock = Superblock::parse(head, len, self.path())?;
        let snapshot = Snapshot {
            superblock,
            file_len: len,
            pages,
            read: &|at, bytes| self.read(at, bytes),
        };
        journal.checkpoint(&self.file, &snapshot)
    }
}
