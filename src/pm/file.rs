//! A file and its calls to the operating system, all in one place, so that tests can put
//! faults under them.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lock;
use crate::{Error, Result};

/// A call to the operating system about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// `open` of a file that exists.
    Open,
    /// `open` that makes the file.
    Create,
    /// `pread`.
    Read,
    /// `pwrite`.
    Write,
    /// `ftruncate`.
    SetLen,
    /// `fallocate`.
    Allocate,
    /// `fstat`.
    Inspect,
    /// `mmap` of a part of the file.
    Map,
    /// `fdatasync`.
    Sync,
    /// `unlink`.
    Remove,
    /// `rename`.
    Rename,
    /// `fsync` of the folder.
    SyncFolder,
    /// `mkdir`.
    CreateFolder,
    /// `getdents` of the folder.
    List,
}

/// What a call to the operating system has done to a file.
#[derive(Debug, Clone, Copy)]
pub enum Change<'b> {
    /// The file was made, empty.
    Created,
    /// Bytes were written from an offset on.
    Wrote(u64, &'b [u8]),
    /// The file was cut, or extended by zeros.
    SetLen(u64),
    /// The file was extended by zeros if it was shorter.
    Allocated(u64),
    /// Contents and length became durable.
    Synced,
    /// The file was removed from its folder.
    Removed,
    /// The file was given another name in its folder, in place of what had that name.
    Renamed(&'b Path),
    /// The names in the file's folder became durable.
    SyncedFolder,
}

/// What stands between an open file and the operating system in tests of faults.
pub trait Faults: Send + Sync + fmt::Debug {
    /// Asked before each call; an error is what the call answers, and nothing is done.
    ///
    /// # Errors
    /// Whatever the test wants the program to meet.
    fn before(&self, call: Call, path: &Path) -> io::Result<()>;

    /// Told what a call has done.
    fn after(&self, change: Change, path: &Path) {
        let _ = (change, path);
    }

    /// The most bytes that one `pread` or `pwrite` moves.
    fn most_bytes(&self) -> usize {
        usize::MAX
    }
}

/// An open file that knows its path, for errors. Closing it gives up its lock.
#[derive(Debug)]
pub struct PmFile {
    file: File,
    path: PathBuf,
    faults: Option<Arc<dyn Faults>>,
}

impl PmFile {
    /// Opens a file that exists, for reading and, if `write`, for writing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn open(path: &Path, write: bool, faults: Option<Arc<dyn Faults>>) -> Result<Self> {
        Self::with(
            path,
            Call::Open,
            OpenOptions::new().read(true).write(write),
            faults,
        )
    }

    /// Makes a file.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn create(path: &Path, faults: Option<Arc<dyn Faults>>) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        Self::with(path, Call::Create, &options, faults)
    }

    fn with(
        path: &Path,
        call: Call,
        options: &OpenOptions,
        faults: Option<Arc<dyn Faults>>,
    ) -> Result<Self> {
        let action = match call {
            Call::Create => "create",
            _ => "open",
        };
        before(&faults, call, path)
            .and_then(|()| options.open(path))
            .map(|file| {
                let file = Self {
                    file,
                    path: path.to_path_buf(),
                    faults,
                };
                if call == Call::Create {
                    file.tell(Change::Created);
                }
                file
            })
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => Error::AlreadyExists {
                    path: path.to_path_buf(),
                },
                _ => Error::io(path, action, source),
            })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fault layer under this file, for its siblings.
    pub fn faults(&self) -> Option<Arc<dyn Faults>> {
        self.faults.clone()
    }

    /// Takes the advisory lock, for which it waits up to half a second.
    ///
    /// # Errors
    /// [`Error::InUse`] if another handle still has it then.
    pub fn lock(&self) -> Result<()> {
        lock::take_exclusive(&self.file, &self.path)
    }

    /// Takes the advisory lock beside others that look, for which it waits up to half a second.
    ///
    /// # Errors
    /// [`Error::InUse`] if another handle still has it to change the file.
    pub fn lock_shared(&self) -> Result<()> {
        lock::take_shared(&self.file, &self.path)
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn len(&self) -> Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    /// Bytes that the file has on its disk: fewer than its length if there are holes in it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn allocated(&self) -> Result<u64> {
        self.metadata().map(|metadata| metadata.blocks() * 512)
    }

    fn metadata(&self) -> Result<Metadata> {
        before(&self.faults, Call::Inspect, &self.path)
            .and_then(|()| self.file.metadata())
            .map_err(|source| self.error("inspect", source))
    }

    /// Asks the fault layer about a mapping of the file.
    pub fn before_map(&self) -> io::Result<()> {
        before(&self.faults, Call::Map, &self.path)
    }

    fn most_bytes(&self) -> usize {
        self.faults
            .as_ref()
            .map_or(usize::MAX, |faults| faults.most_bytes().max(1))
    }

    /// Reads from `at` on until `bytes` is full or the file ends; gives how many were read.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, mut bytes: &mut [u8], mut at: u64) -> Result<usize> {
        let limit = self.most_bytes();
        let mut total = 0;
        while !bytes.is_empty() {
            let part = bytes.len().min(limit);
            let read = before(&self.faults, Call::Read, &self.path)
                .and_then(|()| self.file.read_at(&mut bytes[..part], at));
            match read {
                Ok(0) => break,
                Ok(count) => {
                    bytes = &mut bytes[count..];
                    at += count as u64;
                    total += count;
                }
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.error("read", source)),
            }
        }
        Ok(total)
    }

    /// Writes all of `bytes` at `at`. After an error, any part of them may have been written.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Io`].
    pub fn write(&self, mut bytes: &[u8], mut at: u64) -> Result<()> {
        let limit = self.most_bytes();
        while !bytes.is_empty() {
            let part = &bytes[..bytes.len().min(limit)];
            let written = before(&self.faults, Call::Write, &self.path)
                .and_then(|()| self.file.write_at(part, at));
            match written {
                Ok(0) => return Err(self.error("write", io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    self.tell(Change::Wrote(at, &bytes[..count]));
                    bytes = &bytes[count..];
                    at += count as u64;
                }
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.error("write", source)),
            }
        }
        Ok(())
    }

    /// Cuts the file, or extends it by a hole.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        before(&self.faults, Call::SetLen, &self.path)?;
        self.file.set_len(len)?;
        self.tell(Change::SetLen(len));
        Ok(())
    }

    /// Makes the disk set space aside for `from..to`, so that no store there can fail later.
    ///
    /// # Errors
    /// What the operating system answers; space may have been set aside for a part.
    pub fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        let (Ok(offset), Ok(len)) = (i64::try_from(from), i64::try_from(to - from)) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        loop {
            before(&self.faults, Call::Allocate, &self.path)?;
            // SAFETY: fallocate reads no memory of ours; the descriptor is open.
            if unsafe { libc::fallocate(self.file.as_raw_fd(), 0, offset, len) } == 0 {
                self.tell(Change::Allocated(to));
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The C library then writes to every block by itself.
                Some(libc::EOPNOTSUPP) => {
                    // SAFETY: as above.
                    let code = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), offset, len) };
                    return match code {
                        0 => {
                            self.tell(Change::Allocated(to));
                            Ok(())
                        }
                        _ => Err(io::Error::from_raw_os_error(code)),
                    };
                }
                _ => return Err(error),
            }
        }
    }

    /// Waits until contents and length are durable.
    ///
    /// # Errors
    /// [`Error::Io`]; what was written since the last success may then be lost at a power cut.
    pub fn sync(&self) -> Result<()> {
        before(&self.faults, Call::Sync, &self.path)
            .and_then(|()| self.file.sync_data())
            .inspect(|()| self.tell(Change::Synced))
            .map_err(|source| self.error("sync", source))
    }

    /// Removes the file from its folder; the open handle stays.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn remove(&self) -> Result<()> {
        before(&self.faults, Call::Remove, &self.path)
            .and_then(|()| std::fs::remove_file(&self.path))
            .inspect(|()| self.tell(Change::Removed))
            .map_err(|source| self.error("remove", source))
    }

    /// Gives the file another name in its folder, in place of what had that name.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn rename(&mut self, to: &Path) -> Result<()> {
        before(&self.faults, Call::Rename, &self.path)
            .and_then(|()| std::fs::rename(&self.path, to))
            .inspect(|()| self.tell(Change::Renamed(to)))
            .map_err(|source| self.error("rename", source))?;
        self.path = to.to_path_buf();
        Ok(())
    }

    /// Makes the names in the file's folder durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_folder(&self) -> Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        before(&self.faults, Call::SyncFolder, &self.path)
            .and_then(|()| File::open(folder)?.sync_all())
            .inspect(|()| self.tell(Change::SyncedFolder))
            .map_err(|source| self.error("sync the folder of", source))
    }

    fn tell(&self, change: Change) {
        if let Some(faults) = &self.faults {
            faults.after(change, &self.path);
        }
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(&self.path, action, source)
    }
}

impl AsRawFd for PmFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

pub(super) fn before(faults: &Option<Arc<dyn Faults>>, call: Call, path: &Path) -> io::Result<()> {
    faults
        .as_ref()
        .map_or(Ok(()), |faults| faults.before(call, path))
}
