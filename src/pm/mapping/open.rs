//! Making and opening a mapped file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use bytemuck::Zeroable;
use parking_lot::Mutex;

use super::{Access, MapOptions, Mapping};
use crate::layout::{ExtentEntry, Superblock};
use crate::pm::address_range::{Range, Sharing};
use crate::pm::domain;
use crate::pm::domain::FileSystem;
use crate::pm::file::PmFile;
use crate::pm::journal;
use crate::pm::journal::{HEAD, Journal, JournalReplay};
use crate::pm::{Entry, Medium};
use crate::pool::dirty_map::DirtyMap;
use crate::pool::write_back::WriteBack;
use crate::process::Opener;
use crate::width::to_usize;
use crate::{Domain, Error, Result};

impl Mapping {
    /// Makes a file of `len` zero bytes, rounded up to whole pages, with room on the disk for
    /// all of them, and locks it. On failure no file is left.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if there is something at `path`, or a journal beside it;
    /// [`Error::Domain`], [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Io`].
    pub(crate) fn create(path: &Path, len: u64, options: &MapOptions) -> Result<Self> {
        let mapping = Self::create_at(&Entry::at(path, options.faults.clone())?, len, options)?;
        mapping.publish()?;
        Ok(mapping)
    }

    /// As [`create`](Self::create), for programs beside the crate that measure what a mapping is worth.
    ///
    /// # Safety
    /// [`read`](Medium::read) and [`write`](Medium::write) are plain copies: nobody may write bytes, or store
    /// to words among them, while another thread reads or writes the same bytes.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    #[doc(hidden)]
    pub unsafe fn create_unsynchronized(
        path: &Path,
        len: u64,
        options: &MapOptions,
    ) -> Result<Self> {
        Self::create(path, len, options)
    }

    /// As [`create`](Self::create), in a directory that is held open. The file has no name by which it can be
    /// opened until it is [published](Self::publish): dropped before, it is gone, and a crash leaves only
    /// what the next creation takes away.
    pub(crate) fn create_at(entry: &Entry, len: u64, options: &MapOptions) -> Result<Self> {
        let journal = journal::entry_of(entry);
        if journal.exists()? {
            return Err(Error::AlreadyExists {
                path: journal.path().to_path_buf(),
            });
        }
        let file = Arc::new(PmFile::create_unpublished(entry)?);
        let made = Self::over(Arc::clone(&file), len, Access::Write, options);
        // The first error is the one to tell.
        let mut mapping = made.inspect_err(|_| file.discard())?;
        mapping.journal = Mutex::new(Journal::unpublished());
        mapping.grow(len)?;
        Ok(mapping)
    }

    /// Gives a file that was created its name, durably, with all that was stored so far; nothing is
    /// stored meanwhile.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if somebody else has made something there meanwhile, or what the operating
    /// system answers; the file is gone then, when it is dropped.
    pub(crate) fn publish(&self) -> Result<()> {
        let mut journal = self.journal.lock();
        self.file.sync()?;
        self.file.publish()?;
        journal.publish();
        Ok(())
    }

    /// Opens and locks a file; replays the journal that a crash has left.
    ///
    /// What a growth has allocated and no superblock speaks of is out of reach, and comes back
    /// as zeros when the file grows there.
    ///
    /// # Errors
    /// [`Error::NotAFile`], [`Error::InUse`], [`Error::ReadOnly`], [`Error::Domain`], what
    /// [`Superblock::parse`] says of the file's head, the same of a journal that cannot be its
    /// own, [`Error::Io`]. The file is untouched.
    pub(crate) fn open(path: &Path, options: &MapOptions) -> Result<Self> {
        Self::open_at(&Entry::at(path, options.faults.clone())?, options)
    }

    /// As [`open`](Self::open), with the file's name in a directory that is held open.
    pub(crate) fn open_at(entry: &Entry, options: &MapOptions) -> Result<Self> {
        let file = Arc::new(open_file(entry, true)?);
        let (superblock, replay, lost_journal) = inspect(&file, options)?;
        let mut mapping = Self::over(file, superblock.file_len, Access::Write, options)?;
        let keeps_journal = mapping.domain == Domain::Checkpointed;
        if lost_journal.is_some() {
            let journal = journal::entry_of(mapping.file.entry());
            if journal.exists()? {
                journal.set_aside()?;
            }
            mapping.journal = Mutex::new(Journal::orphaned());
            mapping.lost_journal = lost_journal;
        } else if let Some(replay) = replay {
            let journal = replay.replay(&mapping.file, &superblock, keeps_journal)?;
            mapping.journal = Mutex::new(journal);
        } else if !keeps_journal {
            journal::disown(&mapping.file)?;
        }
        let free = free_ranges(&mapping.file, &superblock)?;
        mapping.map(superblock.file_len, &free)?;
        Ok(mapping)
    }

    /// Opens a file only to read it, beside other readers. A journal is replayed in memory.
    /// Stores stay in this process; [`grow`](Medium::grow) and
    /// [`checkpoint`](Medium::checkpoint) are refused. [`domain`](Medium::domain) tells what the
    /// file could have.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    #[cfg(test)]
    pub(crate) fn open_read_only(path: &Path, options: &MapOptions) -> Result<Self> {
        Self::open_read_only_at(&Entry::at(path, options.faults.clone())?, options)
    }

    /// As [`open_read_only`](Self::open_read_only), with the file's name in a directory that is held open.
    pub(crate) fn open_read_only_at(entry: &Entry, options: &MapOptions) -> Result<Self> {
        let file = Arc::new(open_file(entry, false)?);
        let (superblock, replay, lost_journal) = inspect(&file, options)?;
        let mut mapping = Self::over(file, superblock.file_len, Access::ReadOnly, options)?;
        mapping.lost_journal = lost_journal;
        mapping.map(superblock.file_len, &[])?;
        if let Some(replay) = replay {
            replay.overlay(|at, bytes| {
                let len = mapping.len().saturating_sub(at).min(bytes.len() as u64);
                mapping.write(at.min(mapping.len()), &bytes[..to_usize(len)]);
            })?;
        }
        Ok(mapping)
    }

    /// A mapping of `file` with nothing in reach yet and addresses for `len` bytes and more.
    fn over(file: Arc<PmFile>, len: u64, access: Access, options: &MapOptions) -> Result<Self> {
        let file_system = FileSystem::of(&file)?;
        let domain = domain::choose(&file, &file_system, options.domain, options.assume_dax)?;
        let error = |source| Error::io(file.path(), "reserve addresses for", source);
        let range = Range::reserve(len, options.expected_len, file_system.unit).map_err(error)?;
        let sharing = match (access, domain) {
            (Access::ReadOnly, _) | (_, Domain::Auto | Domain::Checkpointed) => Sharing::Private,
            (_, Domain::Dax) if file_system.sync => Sharing::Synchronous,
            (_, Domain::Dax | Domain::Shared) => Sharing::Shared,
        };
        let writes = access == Access::Write;
        let dirty = (writes && domain == Domain::Checkpointed)
            .then(|| DirtyMap::new(range.len()).map_err(error))
            .transpose()?;
        Ok(Self {
            range,
            len: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            hurried: AtomicUsize::new(0),
            growth: Mutex::default(),
            dirty,
            write_back: (writes && domain == Domain::Dax).then(WriteBack::detect),
            journal: Mutex::default(),
            lost_journal: None,
            domain,
            sharing,
            access,
            file_system,
            opener: Opener::this(),
            file,
        })
    }
}

/// Opens and locks the file itself where `entry` is a link to it, and refuses what is no regular file.
fn open_file(entry: &Entry, write: bool) -> Result<PmFile> {
    const TRIES: u32 = 10;

    for _ in 0..TRIES {
        let resolved = entry.resolve()?;
        resolved.must_be_file(entry.path())?;
        let file = PmFile::open(&resolved, write)?;
        match write {
            true => file.lock()?,
            false => file.lock_shared()?,
        }
        // Whoever had the lock may have put another file there.
        if file.is_at(entry)? {
            return Ok(file);
        }
    }
    Err(Error::InUse {
        path: entry.path().to_path_buf(),
    })
}

/// The ranges that the extent table calls free, by their offsets.
fn free_ranges(file: &PmFile, superblock: &Superblock) -> Result<Vec<(u64, u64)>> {
    if !superblock.has_free_extents() {
        return Ok(Vec::new());
    }
    let mut table = vec![ExtentEntry::zeroed(); superblock.extent_count as usize];
    file.read(
        bytemuck::cast_slice_mut(&mut table),
        superblock.entry_offset(0),
    )?;
    Ok(ExtentEntry::free_ranges(&table, superblock.file_len))
}

/// Checks the head of a file as it will be when its journal has been replayed. Where the journal is
/// lost and need not be there, it checks the head as it is. Tells what is wrong with the journal,
/// too. Changes nothing.
fn inspect(
    file: &PmFile,
    options: &MapOptions,
) -> Result<(Superblock, Option<JournalReplay>, Option<Error>)> {
    let mut head = vec![0; HEAD];
    let found = file.read(&mut head, 0)?;
    head.truncate(found);
    let len = file.len()?;
    let (replay, lost) = match JournalReplay::find(file, &mut head) {
        // A file that was cut needs more than its journal.
        Err(error @ Error::JournalMissing { .. }) if !options.ignore_lost_journal => {
            return Err(Superblock::parse(&head, len, file.path())
                .err()
                .unwrap_or(error));
        }
        Err(error) if options.ignore_lost_journal && journal::is_lost(&error, file.entry()) => {
            (None, Some(error))
        }
        found => (found?, None),
    };
    let superblock = Superblock::parse(&head, len, file.path())?;
    Ok((superblock, replay, lost))
}
