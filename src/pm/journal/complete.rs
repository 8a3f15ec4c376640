//! Reading a journal back.

use std::path::Path;

use bytemuck::Zeroable;
use xxhash_rust::xxh3::Xxh3;

use super::{CHUNK, Header, JOURNAL_VERSION, MAGIC, neighbours};
use crate::layout::superblock::{self, Superblock};
use crate::layout::{PAGE, SUPERBLOCKS};
use crate::pm::file::PmFile;
use crate::{Error, Result};

/// A complete journal, all of it checked.
#[derive(Debug)]
pub(super) struct Complete {
    pub(super) header: Header,
    pages: Vec<u64>,
}

impl Complete {
    /// Checks a journal from end to end; `None` if it is torn.
    pub(super) fn read(file: &PmFile) -> Result<Option<Self>> {
        let mut header = Header::zeroed();
        let found = file.read(bytemuck::bytes_of_mut(&mut header), 0)?;
        // What was never written reads as zeros.
        if !may_become(&header.magic, &MAGIC) {
            return Err(Error::Foreign {
                path: file.path().to_path_buf(),
                found: format!(
                    "a journal would begin with {MAGIC:02x?}, not {:02x?}",
                    header.magic
                ),
            });
        }
        if header.magic == MAGIC && header.version > JOURNAL_VERSION {
            return Err(Error::NewerFormat {
                path: file.path().to_path_buf(),
                found: header.version,
                supported: JOURNAL_VERSION,
            });
        }
        let len = file.len()?;
        let whole = header.journal_len().is_some_and(|expected| expected <= len);
        if found < size_of::<Header>() || header.magic != MAGIC || !whole {
            return Ok(None);
        }
        let mut pages = vec![0; header.page_count as usize];
        file.read(
            bytemuck::cast_slice_mut(&mut pages),
            size_of::<Header>() as u64,
        )?;
        if header.checksum != header.sum(&pages) {
            return Ok(None);
        }
        let complete = Self { header, pages };
        complete.check(file.path())?;
        let mut hash = Xxh3::new();
        hash.update(bytemuck::bytes_of(&complete.header));
        hash.update(bytemuck::cast_slice(&complete.pages));
        complete.runs(file, |_, bytes| {
            hash.update(bytes);
            Ok(())
        })?;
        let mut trailer = [0; 8];
        file.read(&mut trailer, complete.page_at(complete.pages.len()))?;
        Ok((trailer == hash.digest().to_le_bytes()).then_some(complete))
    }

    /// Checks what the checksum vouches for but another build may have meant otherwise.
    fn check(&self, path: &Path) -> Result<()> {
        let ascending = self.pages.is_sorted_by(|a, b| a < b);
        let within = |&last: &u64| last < self.header.file_len / PAGE;
        if u64::from(self.header.page_size) == PAGE
            && ascending
            && self.pages.last().is_none_or(within)
        {
            return Ok(());
        }
        Err(Error::Damaged {
            path: path.to_path_buf(),
            what: "journal",
            at: 0,
            found: format!(
                "pages of {} bytes, {} of them for a file of {} bytes, ascending: {ascending}",
                self.header.page_size, self.header.page_count, self.header.file_len
            ),
        })
    }

    /// Offset of the `nth` page in the journal.
    fn page_at(&self, nth: usize) -> u64 {
        size_of::<Header>() as u64 + 8 * self.header.page_count + PAGE * nth as u64
    }

    /// Gives the pages in runs of neighbours, each with its offset in the file.
    pub(super) fn runs(
        &self,
        file: &PmFile,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = vec![0; CHUNK.min(self.pages.len()) * PAGE as usize];
        for (nth, chunk) in self.pages.chunks(CHUNK).enumerate() {
            let mut bytes = &mut buffer[..chunk.len() * PAGE as usize];
            file.read(bytes, self.page_at(nth * CHUNK))?;
            for run in neighbours(chunk) {
                let (head, rest) = bytes.split_at_mut(run.len() * PAGE as usize);
                take(run[0] * PAGE, head)?;
                bytes = rest;
            }
        }
        Ok(())
    }

    /// Whether the journal's file is the one that begins with `head`, which may be torn by an
    /// interrupted replay: magic and file id never change, so a byte of them that stands is
    /// theirs, and one that was never written is zero.
    pub(super) fn belongs_to(&self, head: &[u8]) -> bool {
        let id = std::mem::offset_of!(Superblock, file_id);
        SUPERBLOCKS.into_iter().all(|copy| {
            let copy = head.get(copy as usize..).unwrap_or_default();
            let magic = &copy[..copy.len().min(superblock::MAGIC.len())];
            let found = &copy[copy.len().min(id)..copy.len().min(id + 16)];
            may_become(magic, &superblock::MAGIC)
                && may_become(found, bytemuck::bytes_of(&self.header.file_id))
        })
    }
}

/// Whether `found` can be the beginning of `wanted` with some bytes not yet written.
fn may_become(found: &[u8], wanted: &[u8]) -> bool {
    found
        .iter()
        .zip(wanted)
        .all(|(&found, &wanted)| found == 0 || found == wanted)
}
