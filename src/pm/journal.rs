//! The atomic checkpoint of an ordinary file: changed pages go to a journal beside it, the
//! journal is made durable, and only then do they go home. A crash at any moment leaves the last
//! checkpoint or this one.
//!
//! The journal of `path` is `path.journal`. It is empty or absent but for the time of a
//! checkpoint. All numbers are little endian:
//!
//! ```text
//!  0        8        12        16        32          40          48        56        64
//!  | magic  | version|page size| file id | generation| page count|file len | checksum|
//!  | page numbers, 8 bytes each, ascending                                          |
//!  | pages, 4096 bytes each, in that order                                          |
//!  | trailer, 8 bytes                                                               |
//! ```
//!
//! - *file id* and *generation* are those of the newest superblock at that moment. They tie the
//!   journal to its file, and tell one that the file has outgrown.
//! - *checksum* is the XXH3 of the 56 bytes before it and of the page numbers.
//! - *trailer* is the XXH3 of all that stands before it. The journal is complete exactly when
//!   it matches; bytes behind it mean nothing.

use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::Xxh3;

use super::file::PmFile;
use crate::layout::superblock::{self, Superblock};
use crate::layout::{PAGE, SUPERBLOCKS};
use crate::{Error, Result};

/// First eight bytes of every journal.
pub const MAGIC: [u8; 8] = *b"GPHJRNL\n";

/// The journal format that this build writes, and the latest that it replays.
pub const JOURNAL_VERSION: u32 = 1;

/// Bytes from the start of a file that hold both copies of its superblock.
pub const HEAD: usize = 2 * PAGE as usize;

/// Pages that are held in memory at a time.
const CHUNK: usize = 256;

/// First bytes of a journal.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`JOURNAL_VERSION`].
    pub version: u32,
    /// [`PAGE`].
    pub page_size: u32,
    /// Name of the file that the pages belong to.
    pub file_id: [u64; 2],
    /// Generation of the superblock that the checkpoint ends in.
    pub generation: u64,
    /// How many pages follow.
    pub page_count: u64,
    /// Length of the file in bytes; every page lies within.
    pub file_len: u64,
    /// XXH3 of the fields before and the page numbers.
    pub checksum: u64,
}

const_assert_eq!(size_of::<Header>(), 64);
const_assert_eq!(std::mem::offset_of!(Header, file_id), 16);
const_assert_eq!(std::mem::offset_of!(Header, checksum), 56);

impl Header {
    fn sum(&self, pages: &[u64]) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(&bytemuck::bytes_of(self)[..std::mem::offset_of!(Header, checksum)]);
        hash.update(bytemuck::cast_slice(pages));
        hash.digest()
    }

    /// Length of the whole journal in bytes, if it can be said.
    fn journal_len(&self) -> Option<u64> {
        self.page_count
            .checked_mul(8 + PAGE)?
            .checked_add(size_of::<Self>() as u64 + 8)
    }
}

/// What a checkpoint saves.
pub struct Snapshot<'a> {
    /// The newest superblock among the contents.
    pub superblock: Superblock,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Numbers of the pages that differ from the last checkpoint, ascending.
    pub pages: &'a [u64],
    /// Copies contents from an offset on.
    pub read: &'a dyn Fn(u64, &mut [u8]),
}

impl Snapshot<'_> {
    /// Gives the pages in runs of neighbours, each with its offset in the file.
    fn runs(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; CHUNK * PAGE as usize];
        for chunk in self.pages.chunks(CHUNK) {
            for run in neighbours(chunk) {
                let bytes = &mut buffer[..run.len() * PAGE as usize];
                (self.read)(run[0] * PAGE, bytes);
                take(run[0] * PAGE, bytes)?;
            }
        }
        Ok(())
    }
}

fn neighbours(pages: &[u64]) -> impl Iterator<Item = &[u64]> {
    pages.chunk_by(|a, b| a + 1 == *b)
}

/// Where the journal of the file at `home` is.
pub fn path_of(home: &Path) -> PathBuf {
    let mut name = home.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

/// The journal of an open file.
#[derive(Debug, Default)]
pub struct Journal {
    file: Option<PmFile>,
    /// The journal's name in its folder is durable.
    named: bool,
    /// The journal is complete, and what is at home may be a mixture.
    pending: bool,
}

impl Journal {
    /// Saves `snapshot` to `home`, atomically.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Io`]. The last checkpoint stands, or, where the journal
    /// was complete already, this one does; the next call finishes it first.
    pub fn checkpoint(&mut self, home: &PmFile, snapshot: &Snapshot) -> Result<()> {
        self.settle(home)?;
        if snapshot.pages.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(PmFile::create(&path_of(home.path()), home.faults())?),
        };
        if !self.named {
            file.sync_folder()?;
            self.named = true;
        }
        if let Err(error) = write(file, snapshot).and_then(|()| file.sync()) {
            // Should this fail too, the journal holds a whole checkpoint or none.
            let _ = file.set_len(0);
            return Err(error);
        }
        self.pending = true;
        snapshot.runs(|at, bytes| home.write(bytes, at))?;
        self.finish(home)
    }

    /// Brings an interrupted checkpoint of this handle to its end.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint).
    pub fn settle(&mut self, home: &PmFile) -> Result<()> {
        let Some(file) = self.file.take_if(|_| self.pending) else {
            return Ok(());
        };
        let read = Complete::read(&file);
        let applied = match read {
            Ok(Some(complete)) => complete.runs(&file, |at, bytes| home.write(bytes, at)),
            Ok(None) => Err(Error::Damaged {
                path: file.path().to_path_buf(),
                what: "journal",
                at: 0,
                found: "it was complete and no longer is".into(),
            }),
            Err(error) => Err(error),
        };
        self.file = Some(file);
        applied?;
        self.finish(home)
    }

    fn finish(&mut self, home: &PmFile) -> Result<()> {
        home.sync()?;
        self.pending = false;
        if let Some(file) = &self.file {
            // Replaying a journal that stays only writes what is at home already.
            let _ = file.set_len(0);
        }
        Ok(())
    }

    /// Removes the journal from its folder, unless the file at home needs it.
    ///
    /// # Errors
    /// [`Error::Io`] and the like; an empty journal may stay, which means nothing.
    pub fn close(&mut self) -> Result<()> {
        match self.file.take_if(|_| !self.pending) {
            Some(file) => remove(&file),
            None => Ok(()),
        }
    }
}

/// Removes a journal for good: one that came back after a power cut would undo what other
/// domains have stored since.
fn remove(file: &PmFile) -> Result<()> {
    file.remove()?;
    file.sync_folder()
}

fn write(file: &PmFile, snapshot: &Snapshot) -> Result<()> {
    let mut header = Header {
        magic: MAGIC,
        version: JOURNAL_VERSION,
        page_size: PAGE as u32,
        file_id: snapshot.superblock.file_id,
        generation: snapshot.superblock.generation,
        page_count: snapshot.pages.len() as u64,
        file_len: snapshot.file_len,
        checksum: 0,
    };
    header.checksum = header.sum(snapshot.pages);
    let mut hash = Xxh3::new();
    let mut at = 0;
    let mut append = |bytes: &[u8]| {
        hash.update(bytes);
        file.write(bytes, at)?;
        at += bytes.len() as u64;
        Ok(())
    };
    append(bytemuck::bytes_of(&header))
        .and_then(|()| append(bytemuck::cast_slice(snapshot.pages)))
        .and_then(|()| snapshot.runs(|_, bytes| append(bytes)))
        .and_then(|()| file.write(&hash.digest().to_le_bytes(), at))
        .map_err(|error| match error {
            Error::NoSpace { path, source, .. } => Error::NoSpace {
                path,
                needed: header.journal_len().unwrap_or(u64::MAX),
                source,
            },
            error => error,
        })
}

/// What an opening found beside the file.
#[derive(Debug)]
pub struct Leftover {
    file: PmFile,
    complete: Option<Complete>,
}

impl Leftover {
    /// Looks for the journal of `home`.
    ///
    /// # Errors
    /// [`Error::Foreign`] if another program's file stands in its place,
    /// [`Error::NewerFormat`], [`Error::Damaged`] or [`Error::Io`]; nothing was changed.
    pub fn find(home: &PmFile) -> Result<Option<Self>> {
        let file = match PmFile::open(&path_of(home.path()), false, home.faults()) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened?,
        };
        let complete = Complete::read(&file)?;
        Ok(Some(Self { file, complete }))
    }

    /// Makes `head`, the first [`HEAD`] bytes of `home`, what they will be after the replay;
    /// forgets a journal that the file has outgrown.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the journal is another file's, or what [`Superblock::parse`] says
    /// of a file that is not ours.
    pub fn overlay_head(&mut self, head: &mut Vec<u8>, home: &PmFile) -> Result<()> {
        let Some(complete) = &self.complete else {
            return Ok(());
        };
        let at_home = Superblock::parse(head, u64::MAX, home.path());
        if !complete.belongs_to(head) {
            at_home?;
            return Err(Error::Damaged {
                path: self.file.path().to_path_buf(),
                what: "journal",
                at: 16,
                found: "it belongs to another file; move it away".into(),
            });
        }
        if at_home.is_ok_and(|superblock| superblock.generation > complete.header.generation) {
            self.complete = None;
            return Ok(());
        }
        head.resize(HEAD, 0);
        self.overlay(|at, bytes| {
            if let Some(room) = head.get_mut(at as usize..) {
                let len = room.len().min(bytes.len());
                room[..len].copy_from_slice(&bytes[..len]);
            }
        })
    }

    /// Gives the pages of a complete journal in runs, each with its offset in the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn overlay(&self, mut take: impl FnMut(u64, &[u8])) -> Result<()> {
        match &self.complete {
            Some(complete) => complete.runs(&self.file, |at, bytes| {
                take(at, bytes);
                Ok(())
            }),
            None => Ok(()),
        }
    }

    /// Brings the pages of a complete journal home, and removes the journal.
    ///
    /// # Errors
    /// [`Error::Io`] and the like; the journal stays, and can be replayed again.
    pub fn replay(self, home: &PmFile) -> Result<()> {
        if let Some(complete) = &self.complete {
            complete.runs(&self.file, |at, bytes| home.write(bytes, at))?;
            home.sync()?;
        }
        remove(&self.file)
    }
}

/// A complete journal, all of it checked.
#[derive(Debug)]
struct Complete {
    header: Header,
    pages: Vec<u64>,
}

impl Complete {
    /// Checks a journal from end to end; `None` if it is torn.
    fn read(file: &PmFile) -> Result<Option<Self>> {
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

    fn runs(&self, file: &PmFile, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
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
    fn belongs_to(&self, head: &[u8]) -> bool {
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
