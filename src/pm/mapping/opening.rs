//! Making and opening a mapped file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::Mutex;

use super::{Access, MapOptions, Mapping};
use crate::layout::Superblock;
use crate::pm::Medium;
use crate::pm::dirty::DirtyMap;
use crate::pm::domain::{self, Place};
use crate::pm::file::PmFile;
use crate::pm::flush::WriteBack;
use crate::pm::journal::{self, HEAD, Leftover};
use crate::pm::range::{Range, Sharing};
use crate::{Domain, Error, Result};

impl Mapping {
    /// Makes a file of `len` zero bytes, rounded up to whole pages, with room on the disk for
    /// all of them, and locks it. On failure no file is left.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if there is something at `path`, or a journal beside it;
    /// [`Error::Domain`], [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::Io`].
    pub fn create(path: &Path, len: u64, options: &MapOptions) -> Result<Self> {
        let journal = journal::path_of(path);
        if journal.symlink_metadata().is_ok() {
            return Err(Error::AlreadyExists { path: journal });
        }
        let file = Arc::new(PmFile::create(path, options.faults.clone())?);
        let made = Self::fill(file, len, options);
        if made.is_err() {
            // The first error is the one to tell.
            discard(path);
        }
        made
    }

    fn fill(file: Arc<PmFile>, len: u64, options: &MapOptions) -> Result<Self> {
        file.lock()?;
        let mapping = Self::over(file, len, Access::Write, options)?;
        mapping.grow(len)?;
        mapping.file.sync()?;
        mapping.file.sync_folder()?;
        Ok(mapping)
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
    pub fn open(path: &Path, options: &MapOptions) -> Result<Self> {
        check_kind(path)?;
        let file = Arc::new(PmFile::open(path, true, options.faults.clone())?);
        file.lock()?;
        let (superblock, leftover) = inspect(&file)?;
        let mapping = Self::over(file, superblock.file_len, Access::Write, options)?;
        if let Some(leftover) = leftover {
            leftover.replay(&mapping.file)?;
        }
        mapping.map(superblock.file_len)?;
        Ok(mapping)
    }

    /// Opens a file only to look at it, beside others who look. A journal is replayed in memory.
    /// Stores stay in this process; [`grow`](Medium::grow) and
    /// [`checkpoint`](Medium::checkpoint) are refused. [`domain`](Medium::domain) tells what the
    /// file could have.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub(crate) fn look(path: &Path, options: &MapOptions) -> Result<Self> {
        check_kind(path)?;
        let file = Arc::new(PmFile::open(path, false, options.faults.clone())?);
        file.lock_shared()?;
        let (superblock, leftover) = inspect(&file)?;
        let mapping = Self::over(file, superblock.file_len, Access::Look, options)?;
        mapping.map(superblock.file_len)?;
        if let Some(leftover) = leftover {
            leftover.overlay(|at, bytes| {
                let len = mapping.len().saturating_sub(at).min(bytes.len() as u64);
                mapping.write(at.min(mapping.len()), &bytes[..len as usize]);
            })?;
        }
        Ok(mapping)
    }

    /// A mapping of `file` with nothing in reach yet and addresses for `len` bytes and more.
    fn over(file: Arc<PmFile>, len: u64, access: Access, options: &MapOptions) -> Result<Self> {
        let place = Place::of(&file)?;
        let domain = domain::choose(&file, &place, options.domain, options.assume_dax)?;
        let error = |source| Error::io(file.path(), "reserve addresses for", source);
        let range = Range::reserve(len, place.unit).map_err(error)?;
        let sharing = match (access, domain) {
            (Access::Look, _) | (_, Domain::Auto | Domain::Checkpointed) => Sharing::Private,
            (_, Domain::Dax) if place.sync => Sharing::Synchronous,
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
            domain,
            sharing,
            access,
            place,
            file,
        })
    }
}

/// Takes away what a failed creation has left at `path`, as far as that can be done.
pub(crate) fn discard(path: &Path) {
    // The journal first: one that has no file is in the way of every other creation.
    for file in [&journal::path_of(path), path] {
        let _ = std::fs::remove_file(file);
    }
}

/// Refuses what is no regular file before it is opened: opening a pipe may wait for ever.
fn check_kind(path: &Path) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;

    let metadata = path
        .metadata()
        .map_err(|source| Error::io(path, "open", source))?;
    let kind = metadata.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "directory",
        () if kind.is_fifo() => "pipe",
        () if kind.is_socket() => "socket",
        () if kind.is_block_device() => "block device",
        () => "character device",
    };
    Err(Error::NotAFile {
        path: path.to_path_buf(),
        found,
    })
}

/// Checks the head of a file as it will be when its journal has been replayed. Changes nothing.
fn inspect(file: &PmFile) -> Result<(Superblock, Option<Leftover>)> {
    let mut head = vec![0; HEAD];
    let found = file.read(&mut head, 0)?;
    head.truncate(found);
    let mut leftover = Leftover::find(file)?;
    if let Some(leftover) = &mut leftover {
        leftover.overlay_head(&mut head, file)?;
    }
    let superblock = Superblock::parse(&head, file.len()?, file.path())?;
    Ok((superblock, leftover))
}
