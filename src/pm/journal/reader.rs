//! Reading a journal back.

use std::ops::Range;
use std::path::Path;

use bytemuck::Zeroable;
use xxhash_rust::xxh3::Xxh3;

use super::{CHUNK, Header, JOURNAL_VERSION, MAGIC, WHAT, neighbours};
use crate::layout::superblock;
use crate::layout::superblock::Superblock;
use crate::layout::{PAGE, SUPERBLOCKS};
use crate::pm::file::PmFile;
use crate::width::to_usize;
use crate::{Error, Result};

/// What a journal is found to be.
#[derive(Debug)]
pub(super) struct Found {
    /// Its header, if one was ever written.
    pub(super) header: Option<Header>,
    /// What it holds, if it is complete.
    pub(super) complete: Option<CompleteJournal>,
}

/// A complete journal, all of it checked.
#[derive(Debug)]
pub(super) struct CompleteJournal {
    pub(super) header: Header,
    pages: Vec<u64>,
}

impl Found {
    /// Reads a journal.
    pub(super) fn read(file: &PmFile) -> Result<Self> {
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
        let own = Header {
            version: JOURNAL_VERSION,
            ..header
        };
        // A flipped bit is no later build.
        let is_own = own.checksum == own.sum();
        if header.magic == MAGIC && header.version > JOURNAL_VERSION && !is_own {
            return Err(Error::NewerFormat {
                path: file.path().to_path_buf(),
                found: header.version,
                supported: JOURNAL_VERSION,
            });
        }
        if found < size_of::<Header>() || header.magic != MAGIC || header.version == 0 {
            return Ok(Self {
                header: None,
                complete: None,
            });
        }
        if header.version < JOURNAL_VERSION {
            return Err(Error::Damaged {
                path: file.path().to_path_buf(),
                what: WHAT,
                at: 8,
                found: format!(
                    "version {} of an earlier build; open and close the file with that one first",
                    header.version
                ),
            });
        }
        if header.checksum != header.sum() {
            return Err(Error::Damaged {
                path: file.path().to_path_buf(),
                what: WHAT,
                at: std::mem::offset_of!(Header, checksum) as u64,
                found: "the header's checksum does not match; put back a whole copy of the journal"
                    .into(),
            });
        }
        Ok(Self {
            header: Some(header),
            complete: match header.is_idle() {
                true => None,
                false => CompleteJournal::read(file, header)?,
            },
        })
    }
}

impl CompleteJournal {
    /// Checks a journal from end to end; `None` if it is torn or damaged.
    fn read(file: &PmFile, header: Header) -> Result<Option<Self>> {
        let len = file.len()?;
        if header.journal_len().is_none_or(|expected| expected > len) {
            return Ok(None);
        }
        let mut pages = vec![0; to_usize(header.page_count)];
        file.read(
            bytemuck::cast_slice_mut(&mut pages),
            size_of::<Header>() as u64,
        )?;
        let complete = Self { header, pages };
        let mut hash = Xxh3::new();
        hash.update(bytemuck::bytes_of(&complete.header));
        hash.update(bytemuck::cast_slice(&complete.pages));
        complete.chunks(file, 0..complete.pages.len(), |_, bytes| {
            hash.update(bytes);
            Ok(())
        })?;
        let mut trailer = [0; 8];
        file.read(&mut trailer, complete.page_at(complete.pages.len()))?;
        if trailer != hash.digest().to_le_bytes() {
            return Ok(None);
        }
        complete.check(file.path())?;
        Ok(Some(complete))
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
            what: WHAT,
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

    /// Gives the numbers and the contents of a range of the pages, so many at a time as fit into memory.
    fn chunks(
        &self,
        file: &PmFile,
        nths: Range<usize>,
        mut take: impl FnMut(&[u64], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = vec![0; CHUNK.min(nths.len()) * to_usize(PAGE)];
        let mut nth = nths.start;
        for chunk in self.pages[nths].chunks(CHUNK) {
            let bytes = &mut buffer[..chunk.len() * to_usize(PAGE)];
            file.read(bytes, self.page_at(nth))?;
            take(chunk, bytes)?;
            nth += chunk.len();
        }
        Ok(())
    }

    /// Gives a range of the pages in runs of neighbours, each with its offset in the file.
    pub(super) fn runs(
        &self,
        file: &PmFile,
        nths: Range<usize>,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.chunks(file, nths, |chunk, mut bytes| {
            for run in neighbours(chunk) {
                let (head, rest) = bytes.split_at(run.len() * to_usize(PAGE));
                take(run[0] * PAGE, head)?;
                bytes = rest;
            }
            Ok(())
        })
    }

    /// How many pages there are.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// [Writes the journal over itself](PmFile::rewrite), durably.
    pub(super) fn rewrite(&self, file: &PmFile) -> Result<()> {
        file.rewrite(self.page_at(self.pages.len()) + 8)
    }

    /// Writes the pages to their offsets in `home`, durably: those of the superblock before all others, and of
    /// these the one that the last checkpoint can spare. So a torn copy leaves either the last checkpoint,
    /// of which no page was written over, or a copy that names this journal.
    pub(super) fn bring_home(&self, file: &PmFile, home: &PmFile) -> Result<()> {
        let is_superblock = |page: &u64| SUPERBLOCKS.contains(&(page * PAGE));
        let superblocks = self.pages.partition_point(is_superblock);
        let mut order = Vec::new();
        for (nth, page) in self.pages[..superblocks].iter().enumerate() {
            order.push((self.spared_until(home, page * PAGE)?, nth));
        }
        order.sort_unstable();
        if superblocks == SUPERBLOCKS.len() {
            // The copy that is spared may be of a session that died before it was durable.
            home.sync()?;
        }
        let write = |at, bytes: &[u8]| home.write(bytes, at);
        for (_, nth) in order {
            self.runs(file, nth..nth + 1, write)?;
            home.sync()?;
        }
        self.runs(file, superblocks..self.len(), write)?;
        home.sync()
    }

    /// The generation of the last checkpoint's copy of the superblock that stands at `offset` in `home`; 0 if
    /// there is none. A copy from this journal is none either: it may not have been durable, and is written
    /// first again.
    fn spared_until(&self, home: &PmFile, offset: u64) -> Result<u64> {
        let mut copy = Superblock::zeroed();
        home.read(bytemuck::bytes_of_mut(&mut copy), offset)?;
        let is_ours = (copy.journal_id, copy.checkpoints)
            == (self.header.journal_id, self.header.checkpoints);
        Ok(match copy.is_whole() && !is_ours {
            true => copy.generation,
            false => 0,
        })
    }

    /// Whether the journal's file is the one that begins with `head`, in which no copy of the superblock is
    /// whole. Magic and file id stand in the first sector of a copy and never change:
    /// one copy at least bears them, and the other one does or was never written.
    pub(super) fn belongs_to(&self, head: &[u8]) -> bool {
        let id = std::mem::offset_of!(Superblock, file_id);
        let copies = SUPERBLOCKS.map(|copy| {
            let copy = head.get(to_usize(copy)..).unwrap_or_default();
            let magic = &copy[..copy.len().min(superblock::MAGIC.len())];
            let found = &copy[copy.len().min(id)..copy.len().min(id + 16)];
            (magic, found)
        });
        let wanted = (
            &superblock::MAGIC[..],
            bytemuck::bytes_of(&self.header.file_id),
        );
        copies.contains(&wanted)
            && copies
                .iter()
                .all(|(magic, found)| may_become(magic, wanted.0) && may_become(found, wanted.1))
    }
}

/// Whether `found` can be the beginning of `wanted` with some bytes not yet written.
fn may_become(found: &[u8], wanted: &[u8]) -> bool {
    found
        .iter()
        .zip(wanted)
        .all(|(&found, &wanted)| found == 0 || found == wanted)
}
