//! A file and its calls to the operating system, all in one module, so that tests can put
//! faults under them.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::domain::FileSystem;
use super::{Entry, lock};
use crate::pool::heap::free_memory;
use crate::width::to_usize;
use crate::{Error, Result};

/// What a file system answers that cannot make a file without a name.
const UNNAMED_UNKNOWN: [i32; 3] = [libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL];

/// Bytes that are read before they are written again.
const REWRITTEN_AT_ONCE: usize = 1 << 20;

/// A call to the operating system about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// `open` of a file that exists.
    Open,
    /// `open` that makes the file.
    Create,
    /// `pread`.
    Read,
    /// `preadv2` of what is in memory. What fails is read by `pread`.
    TryRead,
    /// `pwrite`.
    Write,
    /// `ftruncate`.
    SetLen,
    /// `fallocate`.
    Allocate,
    /// `fallocate` that gives blocks back.
    Punch,
    /// `fstatvfs` of the file's disk.
    FreeSpace,
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
    /// `fsync` of the directory.
    SyncDir,
    /// `mkdir`.
    CreateDir,
    /// `getdents` of the directory.
    List,
    /// `open` of the directory.
    OpenDir,
}

/// What a call to the operating system has done to a file or its directory.
#[derive(Debug, Clone, Copy)]
pub enum FileEvent<'b> {
    /// The file was made, empty.
    Created,
    /// Bytes were written from an offset on.
    Wrote(u64, &'b [u8]),
    /// The file was cut, or extended by zeros.
    SetLen(u64),
    /// The file was extended by zeros if it was shorter.
    Allocated(u64),
    /// Bytes from an offset on, so many of them, became zeros without blocks.
    Punched(u64, u64),
    /// Contents and length became durable.
    Synced,
    /// The file was removed from its directory.
    Removed,
    /// The file was given another name in its directory, in place of what had that name.
    Renamed(&'b Path),
    /// The names in the file's directory became durable.
    SyncedDir,
}

/// What stands between an open file and the operating system in tests of faults.
pub trait Faults: Send + Sync + fmt::Debug {
    /// Asked before each call; an error is what the call answers, and nothing is done.
    ///
    /// # Errors
    /// Whatever the test wants the program to meet.
    fn before(&self, call: Call, path: &Path) -> io::Result<()>;

    /// Told what a call has done.
    fn after(&self, event: FileEvent, path: &Path) {
        let _ = (event, path);
    }

    /// The most bytes that one `pread` or `pwrite` moves.
    fn most_bytes(&self) -> usize {
        usize::MAX
    }

    /// Up to which byte of `from..to` the disk has room when a file is written or extended. The call does
    /// what there is room for; when that is not all, an `fallocate` fails, and so does a `pwrite` of
    /// nothing at all.
    fn room(&self, call: Call, path: &Path, from: u64, to: u64) -> u64 {
        let _ = (call, path, from);
        to
    }
}

/// An open file that knows its path, to rename it and for errors. Closing it gives up its lock.
#[derive(Debug)]
pub struct PmFile {
    file: File,
    entry: Entry,
    /// It is in a directory, so that what is done to it can outlive the process.
    is_named: bool,
    /// The name that it was given when it was whole.
    published: OnceLock<Entry>,
}

impl PmFile {
    /// Opens a file that exists, for reading and, if `write`, for writing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn open(entry: &Entry, write: bool) -> Result<Self> {
        let access = match write {
            true => OFlags::RDWR,
            false => OFlags::RDONLY,
        };
        before(entry.dir.faults_ref(), Call::Open, &entry.path)
            .and_then(|()| entry.dir.open_entry(&entry.name, access))
            .map(|file| Self::of(file, entry))
            .map_err(|source| entry.error("open", source))
    }

    fn of(file: File, entry: &Entry) -> Self {
        Self {
            file,
            entry: entry.clone(),
            is_named: true,
            published: OnceLock::new(),
        }
    }

    /// Makes a file, locked, that has the name of `entry` once it is [published](Self::publish). What a
    /// creation has left there that was cut short is taken away; one that goes on is waited for, up to
    /// half a second.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if `entry` is taken, [`Error::InUse`] if somebody else is making it,
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn create_unpublished(entry: &Entry) -> Result<Self> {
        let making = entry.unpublished();
        for _ in 0..lock::TRIES {
            if entry.is_taken()? {
                return Err(Error::AlreadyExists {
                    path: entry.path.clone(),
                });
            }
            match Self::create(&making) {
                Ok(file) => {
                    // Until it is locked, somebody else may take it for what a crash has left.
                    let is_ours = file.file.try_lock().is_ok()
                        && making.leads_to(&file.file).unwrap_or(false);
                    if is_ours {
                        return Ok(file);
                    }
                }
                Err(Error::AlreadyExists { .. }) => making
                    .clear_unpublished()
                    .map_err(|source| making.error("create", source))?,
                Err(error) => return Err(error),
            }
            if making.is_taken()? {
                std::thread::sleep(lock::PAUSE);
            }
        }
        Err(Error::InUse {
            path: entry.path.clone(),
        })
    }

    /// Gives a file that was [made](Self::create_unpublished) its name, durably.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the name was taken meanwhile, [`Error::ReadOnly`], [`Error::NoSpace`]
    /// or [`Error::Io`]; it has no name then.
    pub fn publish(&self) -> Result<()> {
        let Some(path) = &self.entry.shown else {
            return Ok(());
        };
        let entry = Entry {
            name: path.file_name().unwrap_or_default().to_owned(),
            path: path.clone(),
            dir: self.entry.dir.clone(),
            shown: None,
        };
        self.before(Call::Rename)
            .and_then(|()| entry.dir.name_new(&self.entry.name, &entry.name))
            .inspect(|()| self.tell(FileEvent::Renamed(&entry.path)))
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => Error::AlreadyExists { path: path.clone() },
                _ => self.error("rename", source),
            })?;
        entry.sync_dir().inspect_err(|_| entry.discard())?;
        self.published.get_or_init(|| entry);
        Ok(())
    }

    /// Takes the file away, if that can be done. Another one that has its name by now stays.
    pub fn discard(&self) {
        if self.entry().leads_to(&self.file).unwrap_or(true) {
            self.entry().discard();
        }
    }

    /// Makes a file.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn create(entry: &Entry) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        before(entry.dir.faults_ref(), Call::Create, &entry.path)
            .and_then(|()| entry.dir.open_entry(&entry.name, flags))
            .map(|file| Self::of(file, entry))
            .inspect(|file| file.tell(FileEvent::Created))
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => Error::AlreadyExists {
                    path: entry.path.clone(),
                },
                _ => entry.error("create", source),
            })
    }

    /// Makes a file that is in no directory, on the disk of that of `entry`, whose path it has in errors. It
    /// ends with its handle, also in a crash.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn create_unnamed(entry: &Entry) -> Result<Self> {
        let opened = before(entry.dir.faults_ref(), Call::Create, &entry.path)
            .and_then(|()| entry.dir.open_unnamed());
        let mut file = match opened {
            Ok(file) => Self::of(file, entry),
            // Not every file system knows how.
            Err(error)
                if error
                    .raw_os_error()
                    .is_some_and(|code| UNNAMED_UNKNOWN.contains(&code)) =>
            {
                let file = entry.dir.create_file(&entry.name)?;
                file.remove()?;
                file
            }
            Err(source) => return Err(entry.error("create", source)),
        };
        file.is_named = false;
        Ok(file)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.entry().path()
    }

    /// Its name in its directory.
    pub fn entry(&self) -> &Entry {
        self.published.get().unwrap_or(&self.entry)
    }

    /// Takes the advisory lock, for which it waits up to half a second.
    ///
    /// # Errors
    /// [`Error::InUse`] if another handle still has it then.
    pub fn lock(&self) -> Result<()> {
        lock::take_exclusive(&self.file, self.path())
    }

    /// Takes the advisory lock beside other readers, for which it waits up to half a second.
    ///
    /// # Errors
    /// [`Error::InUse`] if another handle still has it to change the file.
    pub fn lock_shared(&self) -> Result<()> {
        lock::take_shared(&self.file, self.path())
    }

    /// Whether `entry` leads to it, links followed.
    pub(super) fn is_at(&self, entry: &Entry) -> Result<bool> {
        let answer = entry.leads_to(&self.file);
        answer.map_err(|source| entry.error("inspect", source))
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
        self.before(Call::Inspect)
            .and_then(|()| self.file.metadata())
            .map_err(|source| self.error("inspect", source))
    }

    /// Asks the fault layer about a mapping of the file.
    pub fn before_map(&self) -> io::Result<()> {
        self.before(Call::Map)
    }

    /// How many of the bytes `from..to` the disk has room for.
    fn room(&self, call: Call, from: u64, to: u64) -> u64 {
        let entry = self.entry();
        let faults = entry.dir.faults_ref().as_ref();
        let end = faults.map_or(to, |faults| faults.room(call, &entry.path, from, to));
        end.clamp(from, to) - from
    }

    /// Whether a test has put faults under it.
    pub fn has_faults(&self) -> bool {
        self.entry().dir.faults_ref().is_some()
    }

    fn most_bytes(&self) -> usize {
        let faults = self.entry().dir.faults_ref();
        faults
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
            let read = self
                .before(Call::Read)
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

    /// Reads `bytes` if the operating system has all of them in memory, and says whether it has. Else the caller has to
    /// [`read`](Self::read) them.
    ///
    /// # Errors
    /// What the operating system answers; `EOPNOTSUPP` where the file system does not know such reads.
    pub fn try_read(&self, bytes: &mut [u8], at: u64) -> io::Result<bool> {
        self.before(Call::TryRead)?;
        let len = bytes.len();
        let part = &mut bytes[..len.min(self.most_bytes())];
        let to = &mut [IoSliceMut::new(part)];
        match rustix::io::preadv2(&self.file, to, at, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN) => Ok(false),
            read => Ok(read? == len),
        }
    }

    /// Has the operating system begin to read so many bytes. It may not do so.
    pub fn prefetch(&self, at: u64, len: u64) {
        // A length of 0 would be all up to the end of the file.
        if let Some(len) = NonZeroU64::new(len) {
            // Bytes that it does not prefetch are read when they are waited for.
            let _ = rustix::fs::fadvise(&self.file, at, Some(len), Advice::WillNeed);
        }
    }

    /// Writes all of `bytes` at `at`. After an error, any part of them may have been written.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Io`].
    pub fn write(&self, mut bytes: &[u8], mut at: u64) -> Result<()> {
        let limit = self.most_bytes();
        while !bytes.is_empty() {
            let part = &bytes[..bytes.len().min(limit)];
            let room = self.room(Call::Write, at, at + part.len() as u64);
            let written = self.before(Call::Write).and_then(|()| match room {
                0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                room => self.file.write_at(&part[..to_usize(room)], at),
            });
            match written {
                Ok(0) => return Err(self.error("write", io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    self.tell(FileEvent::Wrote(at, &bytes[..count]));
                    bytes = &bytes[count..];
                    at += count as u64;
                }
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(match self.error("write", source) {
                        Error::NoSpace { path, source, .. } => Error::NoSpace {
                            path,
                            needed: bytes.len() as u64,
                            source,
                        },
                        error => error,
                    });
                }
            }
        }
        Ok(())
    }

    /// Cuts the file, or extends it by a hole.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.before(Call::SetLen)?;
        self.file.set_len(len)?;
        self.tell(FileEvent::SetLen(len));
        Ok(())
    }

    /// Makes the disk set space aside for `from..to`, so that no store there can fail later.
    ///
    /// # Errors
    /// What the operating system answers; space may have been set aside for a part.
    pub fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        match self.allocate_unwritten(from, to) {
            // The C library then writes to every block by itself.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                // SAFETY: it reads no memory of ours; the descriptor is open.
                let code = unsafe {
                    let (offset, len) = (from.cast_signed(), (to - from).cast_signed());
                    libc::posix_fallocate(self.file.as_raw_fd(), offset, len)
                };
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(code));
                }
                self.tell(FileEvent::Allocated(to));
                Ok(())
            }
            allocated => allocated,
        }
    }

    /// As [`allocate`](Self::allocate), but writes nothing, and so harms nobody who writes there meanwhile.
    ///
    /// # Errors
    /// As there; `EOPNOTSUPP` where the file system can do no such thing.
    pub fn allocate_unwritten(&self, from: u64, to: u64) -> io::Result<()> {
        let (Ok(offset), Ok(len)) = (i64::try_from(from), i64::try_from(to - from)) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        let room = self.room(Call::Allocate, from, to);
        if room < to - from {
            self.before(Call::Allocate)?;
            if room > 0 {
                self.allocate_unwritten(from, from + room)?;
            }
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        loop {
            self.before(Call::Allocate)?;
            // SAFETY: fallocate reads no memory of ours; the descriptor is open.
            if unsafe { libc::fallocate(self.file.as_raw_fd(), 0, offset, len) } == 0 {
                self.tell(FileEvent::Allocated(to));
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(error);
            }
        }
    }

    /// Gives the blocks of `from..to` back. What is read there is zeros.
    ///
    /// # Errors
    /// What the operating system answers; a part may have been given back.
    pub fn punch(&self, from: u64, to: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};

        self.before(Call::Punch)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, from, to - from)?;
        self.tell(FileEvent::Punched(from, to - from));
        Ok(())
    }

    /// Fails if the disk has fewer bytes free than so many. An allocation that cannot succeed may still take
    /// all that is left, and until it is given back, the writes of every other program fail.
    ///
    /// # Errors
    /// [`StorageFull`](io::ErrorKind::StorageFull). If the disk does not say how much is free, none.
    pub fn check_free_space(&self, needed: u64) -> io::Result<()> {
        let disk = self
            .before(Call::FreeSpace)
            .and_then(|()| Ok(rustix::fs::fstatvfs(&self.file)?));
        let Ok(disk) = disk else { return Ok(()) };
        let free = match disk.f_blocks {
            // One without blocks does not say, as some in user space. Of those in memory the ones without a limit do not:
            // nothing else would keep them from all memory. Huge pages are set aside beforehand.
            0 if FileSystem::of(self).is_ok_and(|it| it.in_memory && it.writable) => free_memory(),
            0 => None,
            _ => {
                // Blocks that are kept for root count if this is root's: allocations take them, and an allocation is what
                // comes next.
                let blocks = match may_take_reserved_blocks() {
                    true => disk.f_bfree,
                    false => disk.f_bavail,
                };
                Some(blocks.saturating_mul(disk.f_frsize))
            }
        };
        match free.is_some_and(|free| free < needed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// Whether it lives in memory that all processes share, where no sync waits.
    pub fn is_in_memory(&self) -> bool {
        FileSystem::of(self).is_ok_and(|file_system| file_system.in_memory)
    }

    /// Writes the bytes up to `end` over themselves, durably: after a sync that failed, the next one may succeed
    /// without what the first one did not write.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Io`]; the contents are the same.
    pub fn rewrite(&self, end: u64) -> Result<()> {
        let mut buffer = vec![0; REWRITTEN_AT_ONCE.min(to_usize(end))];
        let mut at = 0;
        while at < end {
            let len = buffer.len().min(to_usize(end - at));
            let read = self.read(&mut buffer[..len], at)?;
            self.write(&buffer[..read], at)?;
            at += len as u64;
        }
        self.sync()
    }

    /// Waits until contents and length are durable.
    ///
    /// # Errors
    /// [`Error::Io`]; what was written since the last success may then be lost at a power cut.
    pub fn sync(&self) -> Result<()> {
        self.before(Call::Sync)
            .and_then(|()| self.file.sync_data())
            .inspect(|()| self.tell(FileEvent::Synced))
            .map_err(|source| self.error("sync", source))
    }

    /// Removes the file from its directory; the open handle stays.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn remove(&self) -> Result<()> {
        self.entry().remove()
    }

    /// Gives the file another name in its directory, in place of what had that name.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn rename(&mut self, name: &str) -> Result<()> {
        let to = self.entry.dir.entry(name);
        self.before(Call::Rename)
            .and_then(|()| to.dir.rename(&self.entry.name, &to.name))
            .inspect(|()| self.tell(FileEvent::Renamed(&to.path)))
            .map_err(|source| self.error("rename", source))?;
        self.entry = to;
        Ok(())
    }

    /// Makes the names in the file's directory durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_dir(&self) -> Result<()> {
        self.entry().sync_dir()
    }

    fn before(&self, call: Call) -> io::Result<()> {
        let entry = self.entry();
        before(entry.dir.faults_ref(), call, &entry.path)
    }

    fn tell(&self, event: FileEvent) {
        if self.is_named {
            self.entry().tell(event);
        }
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        self.entry().error(action, source)
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

/// Whether allocations of this thread may take the blocks that a file system keeps, as far as can be told: they are kept
/// for root unless it was mounted for others, and for who may exceed limits.
fn may_take_reserved_blocks() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};

    rustix::process::geteuid().is_root()
        || capabilities(None).is_ok_and(|has| has.effective.contains(CapabilitySet::SYS_RESOURCE))
}

#[cfg(all(test, not(loom)))]
mod tests;
