//! The atomic checkpoint of an ordinary file. Changed pages are copied to a journal beside it, and
//! the journal is made durable. Only then do they go home, from the journal, because in memory they
//! may have changed again. A crash at any moment leaves the last checkpoint or this one.
//!
//! The superblock goes home before all other pages, and the journal becomes idle when all of them
//! are there. So of a journal that is neither complete nor idle, the superblock at home says
//! whether it was ever sealed.
//!
//! The journal of `path` is `path.journal`. Between checkpoints it is an idle header alone. All numbers are
//! little endian:
//!
//! ```text
//!  0       8        12        16       32          40          48          56        64        72
//!  | magic | version|page size| file id| journal id|checkpoints| page count|file len | checksum|
//!  | page numbers, 8 bytes each, ascending                                                     |
//!  | pages, 4096 bytes each, in that order                                                     |
//!  | trailer, 8 bytes                                                                          |
//! ```
//!
//! - *file id* and *checkpoints* are those of the newest superblock at that moment. They tie the
//!   journal to its file, and tell one that the file has outgrown.
//! - *journal id* is random. Both copies of the superblock at home bear it, durably, before any
//!   other page goes home, and until the file is closed. So an opening without that journal is
//!   refused, whatever has become of the file's name.
//! - *page count* is zero while the journal is idle, which says that it means nothing.
//! - *checksum* is the XXH3 of the 64 bytes before it. The header lies in one sector, so no crash tears it.
//! - *trailer* is the XXH3 of all that stands before it. The journal is complete exactly when
//!   it matches; bytes behind it mean nothing.

use std::thread;

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Entry;
use super::domain::FileSystem;
use super::file::PmFile;
use crate::layout::{DATA_START, PAGE, Superblock};
use crate::process;
use crate::width::{to_usize, u32_of};
use crate::{Error, Result};

mod reader;
mod replay;
#[cfg(test)]
mod tests;

use reader::Found;
pub use replay::JournalReplay;

/// First eight bytes of every journal.
pub const MAGIC: [u8; 8] = *b"GPHJRNL\n";

/// The journal format that this build writes, and the latest that it replays.
pub const JOURNAL_VERSION: u32 = 3;

/// Bytes from the start of a file that say what it is: both copies of its superblock, the extent table.
pub const HEAD: usize = to_usize(DATA_START);

/// What errors call it.
const WHAT: &str = "journal";

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
    /// Random name of the journal, which the file's superblocks bear while they need it.
    pub journal_id: u64,
    /// Number of the checkpoint: what its superblock counts.
    pub checkpoints: u64,
    /// How many pages follow; 0 while the journal is idle.
    pub page_count: u64,
    /// Length of the file in bytes; every page lies within.
    pub file_len: u64,
    /// XXH3 of the fields before.
    pub checksum: u64,
}

const_assert_eq!(size_of::<Header>(), 72);
const_assert_eq!(std::mem::offset_of!(Header, file_id), 16);
const_assert_eq!(std::mem::offset_of!(Header, journal_id), 32);
const_assert_eq!(std::mem::offset_of!(Header, checksum), 64);

/// Bytes of a journal that is idle.
const IDLE: u64 = size_of::<Header>() as u64;

impl Header {
    fn sum(&self) -> u64 {
        xxh3_64(&bytemuck::bytes_of(self)[..std::mem::offset_of!(Header, checksum)])
    }

    /// Whether the journal means nothing.
    fn is_idle(&self) -> bool {
        self.page_count == 0
    }

    /// Makes the journal in `file`, whose header this is, an idle one, durably. It must be so before it is
    /// written over: the header of a checkpoint that is home, before pages of the next one, would pass for
    /// a damaged journal.
    fn retire(&self, file: &PmFile) -> Result<()> {
        let mut idle = Self {
            page_count: 0,
            ..*self
        };
        idle.checksum = idle.sum();
        file.write(bytemuck::bytes_of(&idle), 0)?;
        file.sync()?;
        // Only now: a journal that is cut and not idle would pass for a damaged one. What stays behind
        // an idle header means nothing.
        let _ = file.set_len(IDLE);
        Ok(())
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
    /// The newest superblock among the contents. It counts more checkpoints than the one at home, and each
    /// copy of it in `pages` counts as many.
    pub superblock: Superblock,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Numbers of the pages that differ from the last checkpoint, ascending.
    pub pages: &'a [u64],
    /// Copies contents from an offset on.
    pub read: &'a (dyn Fn(u64, &mut [u8]) + Sync),
}

impl Snapshot<'_> {
    /// Gives all that a journal with this header holds but the trailer, part by part.
    fn each_part(&self, header: &Header, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        take(bytemuck::bytes_of(header))?;
        take(bytemuck::cast_slice(self.pages))?;
        self.each_run(|_, bytes| take(bytes))
    }

    /// Gives the pages in runs of neighbours, each with its offset in the file.
    fn each_run(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; CHUNK.min(self.pages.len()) * to_usize(PAGE)];
        for chunk in self.pages.chunks(CHUNK) {
            for run in neighbours(chunk) {
                let bytes = &mut buffer[..run.len() * to_usize(PAGE)];
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

/// Whether an error says that the journal of `home` is not there, or not whole. One of a later format is.
pub fn is_lost(error: &Error, home: &Entry) -> bool {
    match error {
        Error::JournalMissing { .. } => true,
        Error::Damaged { what, .. } => *what == WHAT,
        Error::Foreign { path, .. } => path == entry_of(home).path(),
        _ => false,
    }
}

/// Where the journal of the file at `home` is.
pub fn entry_of(home: &Entry) -> Entry {
    home.with_suffix(".journal")
}

/// The journal of an open file.
#[derive(Debug)]
pub struct Journal {
    id: u64,
    /// There is a file of it.
    is_made: bool,
    /// The journal's name in its directory is durable.
    is_durable: bool,
    /// Both copies of the superblock at home bear the journal's name, durably.
    is_named: bool,
    /// The journal that the file at home needs is lost, and nothing has replaced it yet.
    is_orphaned: bool,
    /// Open from the copying of a checkpoint until its end.
    file: Option<PmFile>,
    state: JournalPhase,
}

#[derive(Debug, Default)]
enum JournalPhase {
    /// The file has no name yet by which it could be opened, so that no crash leaves anything of it.
    Unpublished,
    /// The journal means nothing.
    #[default]
    Idle,
    /// All is there but the trailer.
    Written(Written),
    /// The journal is complete, and what is at home may be a mixture.
    Pending,
    /// All of the journal with this header is home, durably, and the journal is complete or idle.
    Home(Header),
}

/// What a journal without its trailer is to be.
#[derive(Debug)]
struct Written {
    pages: Vec<u64>,
    /// Where the trailer goes, and what it is.
    trailer: (u64, u64),
}

impl Default for Journal {
    /// One that has still to be made.
    fn default() -> Self {
        Self {
            // Zero is no name.
            id: process::random_number().max(1),
            is_made: false,
            is_durable: false,
            is_named: false,
            is_orphaned: false,
            file: None,
            state: JournalPhase::Idle,
        }
    }
}

impl Journal {
    /// Bytes of a journal of so many pages.
    pub fn len_of(pages: u64) -> u64 {
        pages * (8 + PAGE) + size_of::<Header>() as u64 + 8
    }

    /// That of a file that nobody can open yet: what is saved goes home at once.
    pub fn unpublished() -> Self {
        Self {
            state: JournalPhase::Unpublished,
            ..Self::default()
        }
    }

    /// That of a file that needs another one, which is lost. Until a checkpoint is [sealed](Self::seal) or
    /// the file [disowned](Self::disown), a crash leaves a file that still says so.
    pub fn orphaned() -> Self {
        Self {
            is_orphaned: true,
            ..Self::default()
        }
    }

    /// Makes a file that has lost its journal one that needs none, durably. All that is wanted of it is at
    /// home, durably.
    ///
    /// # Errors
    /// [`Error::Io`] and the like; the file still needs what is lost.
    pub fn disown(&mut self, home: &PmFile) -> Result<()> {
        if std::mem::take(&mut self.is_orphaned) {
            disown(home).inspect_err(|_| self.is_orphaned = true)?;
        }
        Ok(())
    }

    /// Says that from now on the file can be opened.
    pub fn publish(&mut self) {
        self.state = JournalPhase::Idle;
    }

    /// Whether a crash leaves nothing of the file.
    pub fn is_unpublished(&self) -> bool {
        matches!(self.state, JournalPhase::Unpublished)
    }

    /// The name that every superblock of a checkpoint must bear, and whether both at home bear it.
    pub fn name(&self) -> (u64, bool) {
        (self.id, self.is_named)
    }

    /// Copies `snapshot` to the journal of `home`, in place of one that was copied and not
    /// [sealed](Self::seal). A crash leaves the last checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Io`]. The last checkpoint stands, or, where a journal was sealed
    /// already, that one does; the next call finishes it first.
    pub fn write(&mut self, home: &PmFile, snapshot: &Snapshot) -> Result<()> {
        if self.is_unpublished() {
            return snapshot.each_run(|at, bytes| home.write(bytes, at));
        }
        self.bring_home(home)?;
        self.retire()?;
        let file = self.open(home)?;
        match write(&file, self.id, snapshot) {
            Ok(trailer) => {
                let pages = snapshot.pages.to_vec();
                self.state = JournalPhase::Written(Written { pages, trailer });
                self.file = Some(file);
                Ok(())
            }
            Err(error) => {
                self.state = JournalPhase::Idle;
                let _ = file.set_len(IDLE);
                Err(error)
            }
        }
    }

    /// Opens the journal, or makes it.
    fn open(&mut self, home: &PmFile) -> Result<PmFile> {
        if let Some(file) = self.file.take() {
            return Ok(file);
        }
        let entry = entry_of(home.entry());
        if self.is_made && entry.exists()? {
            return PmFile::open(&entry, true);
        }
        // Somebody may have removed it, which does no harm between checkpoints.
        self.is_durable = false;
        let file = PmFile::create(&entry)?;
        self.is_made = true;
        Ok(file)
    }

    /// Makes what was [written](Self::write), if anything was, a whole checkpoint, which its file must be
    /// long enough for, durably.
    ///
    /// # Errors
    /// Those of [`write`](Self::write). The last checkpoint stands, if this one is [given
    /// up](Self::give_up) then.
    pub fn seal(&mut self) -> Result<()> {
        let (Some(file), JournalPhase::Written(written)) = (&self.file, &self.state) else {
            return Ok(());
        };
        let (at, trailer) = written.trailer;
        file.write(&trailer.to_le_bytes(), at)?;
        file.sync()?;
        if !self.is_durable {
            file.sync_dir()?;
            self.is_durable = true;
        }
        self.state = JournalPhase::Pending;
        Ok(())
    }

    /// Forgets what was written and not sealed; gives its pages.
    pub fn give_up(&mut self) -> Vec<u64> {
        match std::mem::take(&mut self.state) {
            JournalPhase::Written(written) => {
                if let Some(file) = self.file.take() {
                    // Whatever stays, it is a whole checkpoint, or its header tells that none of it is home.
                    let _ = file.set_len(IDLE);
                }
                written.pages
            }
            state => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// Brings a sealed checkpoint to its end.
    ///
    /// # Errors
    /// What the operating system answers; the next call tries it again.
    pub fn bring_home(&mut self, home: &PmFile) -> Result<()> {
        if self.is_unpublished() {
            return home.sync();
        }
        if let (Some(file), JournalPhase::Pending) = (&self.file, &self.state) {
            let complete = Found::read(file)?.complete.ok_or_else(|| Error::Damaged {
                path: file.path().to_path_buf(),
                what: WHAT,
                at: 0,
                found: "it was complete and no longer is".into(),
            })?;
            complete.bring_home(file, home)?;
            self.is_named = true;
            self.is_orphaned = false;
            self.state = JournalPhase::Home(complete.header);
        }
        // The checkpoint is whole without it. Until it succeeds no other journal is written.
        let _ = self.retire();
        Ok(())
    }

    /// Makes a journal whose pages are home an idle one, durably.
    fn retire(&mut self) -> Result<()> {
        if let (Some(file), JournalPhase::Home(header)) = (&self.file, &self.state) {
            header.retire(file)?;
            self.state = JournalPhase::Idle;
            self.file = None;
        }
        Ok(())
    }

    /// Removes the journal from its directory, unless the file at home needs it. First the newest
    /// superblock at home becomes one that names no journal.
    ///
    /// # Errors
    /// [`Error::Io`] and the like; a journal without pages may stay, which the file may still need.
    pub fn close(&mut self, home: &PmFile) -> Result<()> {
        self.give_up();
        if !self.is_made || self.is_orphaned || matches!(self.state, JournalPhase::Pending) {
            return Ok(());
        }
        disown(home)?;
        let entry = entry_of(home.entry());
        if entry.exists()? {
            remove(&entry)?;
        }
        *self = Self::default();
        Ok(())
    }
}

/// The newest superblock of a file, if it has one.
fn superblock_at(home: &PmFile) -> Result<Option<Superblock>> {
    let mut head = vec![0; HEAD];
    let found = home.read(&mut head, 0)?;
    Ok(Superblock::parse(&head[..found], u64::MAX, home.path()).ok())
}

/// Writes a copy of `superblock` with another generation and another journal, durably.
fn write_superblock(
    home: &PmFile,
    superblock: Superblock,
    generation: u64,
    journal_id: u64,
) -> Result<()> {
    let mut copy = Superblock {
        generation,
        journal_id,
        ..superblock
    };
    copy.seal();
    home.write(bytemuck::bytes_of(&copy), copy.file_offset())?;
    home.sync()
}

/// Makes a file that is a whole checkpoint one that needs no journal, durably. The older copy of its
/// superblock still names it, and is the first to be written over.
pub fn disown(home: &PmFile) -> Result<()> {
    match superblock_at(home)? {
        Some(newest) if newest.journal_id != 0 => {
            write_superblock(home, newest, newest.generation + 1, 0)
        }
        // Whoever wrote that it names none may have died before it was durable. Written again: after a sync
        // that failed, the next one may succeed without it. The same bytes: the other copy may be torn.
        Some(newest) if FileSystem::of(home)?.writable => {
            let at = newest.file_offset();
            let mut bytes = vec![0; size_of::<Superblock>()];
            let read = home.read(&mut bytes, at)?;
            home.write(&bytes[..read], at)?;
            home.sync()
        }
        Some(_) => Ok(()),
        None => home.sync(),
    }
}

/// Removes a journal for good.
fn remove(entry: &Entry) -> Result<()> {
    entry.remove()?;
    entry.sync_dir()
}

/// Writes all but the trailer; gives where that goes, and what it is.
fn write(file: &PmFile, journal_id: u64, snapshot: &Snapshot) -> Result<(u64, u64)> {
    let mut header = Header {
        magic: MAGIC,
        version: JOURNAL_VERSION,
        page_size: const { u32_of(PAGE) },
        file_id: snapshot.superblock.file_id,
        journal_id,
        checkpoints: snapshot.superblock.checkpoints,
        page_count: snapshot.pages.len() as u64,
        file_len: snapshot.file_len,
        checksum: 0,
    };
    header.checksum = header.sum();
    let hash = || {
        let mut hash = Xxh3::new();
        snapshot.each_part(&header, |bytes| {
            hash.update(bytes);
            Ok(())
        })?;
        Ok(hash.digest())
    };
    let mut at = 0;
    let mut write = || {
        snapshot.each_part(&header, |bytes| {
            file.write(bytes, at)?;
            at += bytes.len() as u64;
            Ok(())
        })
    };
    // Stores wait for it, which leaves a core idle.
    let (written, digest) = thread::scope(|scope| {
        let hashing = (snapshot.pages.len() > CHUNK)
            .then(|| thread::Builder::new().spawn_scoped(scope, hash).ok())
            .flatten();
        let written = write();
        let digest = match hashing {
            Some(hashing) => hashing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => hash(),
        };
        (written, digest)
    });
    written
        .and(digest)
        .map(|digest| (at, digest))
        .map_err(|error| match error {
            Error::NoSpace { path, source, .. } => Error::NoSpace {
                path,
                needed: header.journal_len().unwrap_or(u64::MAX),
                source,
            },
            error => error,
        })
}
