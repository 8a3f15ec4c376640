//! The atomic checkpoint of an ordinary file: changed pages are copied to a journal beside it, the
//! journal is made durable, and only then do they go home, from the journal: in memory they may have
//! changed again. A crash at any moment leaves the last checkpoint or this one.
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
use std::thread;

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::Xxh3;

use super::file::PmFile;
use crate::layout::{PAGE, Superblock};
use crate::{Error, Result};

mod complete;
mod leftover;
#[cfg(test)]
mod tests;

use complete::Complete;
pub use leftover::Leftover;

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
    pub read: &'a (dyn Fn(u64, &mut [u8]) + Sync),
}

impl Snapshot<'_> {
    /// Gives all that a journal with this header holds but the trailer, part by part.
    fn each_part(&self, header: &Header, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        take(bytemuck::bytes_of(header))?;
        take(bytemuck::cast_slice(self.pages))?;
        let mut buffer = vec![0; CHUNK.min(self.pages.len()) * PAGE as usize];
        for chunk in self.pages.chunks(CHUNK) {
            for run in neighbours(chunk) {
                let bytes = &mut buffer[..run.len() * PAGE as usize];
                (self.read)(run[0] * PAGE, bytes);
                take(bytes)?;
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
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// The journal means nothing.
    #[default]
    Idle,
    /// All is there but the trailer.
    Written(Written),
    /// The journal is complete, and what is at home may be a mixture.
    Pending,
}

/// What a journal without its trailer is to be.
#[derive(Debug)]
struct Written {
    pages: Vec<u64>,
    /// Where the trailer goes, and what it is.
    trailer: (u64, u64),
}

impl Journal {
    /// Copies `snapshot` to the journal of `home`, in place of one that was copied and not
    /// [sealed](Self::seal). A crash leaves the last checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Io`]. The last checkpoint stands, or, where a journal was sealed
    /// already, that one does; the next call finishes it first.
    pub fn write(&mut self, home: &PmFile, snapshot: &Snapshot) -> Result<()> {
        self.bring_home(home)?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(PmFile::create(&path_of(home.path()), home.faults())?),
        };
        match write(file, snapshot) {
            Ok(trailer) => {
                let pages = snapshot.pages.to_vec();
                self.state = State::Written(Written { pages, trailer });
                Ok(())
            }
            Err(error) => {
                self.state = State::Idle;
                let _ = file.set_len(0);
                Err(error)
            }
        }
    }

    /// Makes what was [written](Self::write), if anything was, a whole checkpoint, which `home` must be
    /// long enough for, durably.
    ///
    /// # Errors
    /// Those of [`write`](Self::write). The last checkpoint stands, if this one is [given
    /// up](Self::give_up) then.
    pub fn seal(&mut self) -> Result<()> {
        let (Some(file), State::Written(written)) = (&self.file, &self.state) else {
            return Ok(());
        };
        if !self.named {
            file.sync_folder()?;
            self.named = true;
        }
        let (at, trailer) = written.trailer;
        file.write(&trailer.to_le_bytes(), at)?;
        file.sync()?;
        self.state = State::Pending;
        Ok(())
    }

    /// Forgets what was written and not sealed; gives its pages.
    pub fn give_up(&mut self) -> Vec<u64> {
        match std::mem::take(&mut self.state) {
            State::Written(written) => {
                if let Some(file) = &self.file {
                    // Should this fail, the journal holds a whole checkpoint or none.
                    let _ = file.set_len(0);
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
        let (Some(file), State::Pending) = (&self.file, &self.state) else {
            return Ok(());
        };
        let complete = Complete::read(file)?.ok_or_else(|| Error::Damaged {
            path: file.path().to_path_buf(),
            what: "journal",
            at: 0,
            found: "it was complete and no longer is".into(),
        })?;
        complete.runs(file, |at, bytes| home.write(bytes, at))?;
        home.sync()?;
        self.state = State::Idle;
        // Replaying a journal that stays only writes what is at home already.
        let _ = file.set_len(0);
        Ok(())
    }

    /// Removes the journal from its folder, unless the file at home needs it.
    ///
    /// # Errors
    /// [`Error::Io`] and the like; an empty journal may stay, which means nothing.
    pub fn close(&mut self) -> Result<()> {
        let is_needed = matches!(self.state, State::Pending);
        match self.file.take_if(|_| !is_needed) {
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

/// Writes all but the trailer; gives where that goes, and what it is.
fn write(file: &PmFile, snapshot: &Snapshot) -> Result<(u64, u64)> {
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
