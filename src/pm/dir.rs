//! A directory that is held open, and its calls to the operating system.
//!
//! Names are relative to an open descriptor. So a directory stays the same one when the process
//! changes its own directory, or when the path by which it was found is renamed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::Entry;
use super::file::{Call, Faults, PmFile, before};
use crate::{Error, Result};

/// Permissions of a new file and of a new directory, less what the process masks out.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIR_MODE: Mode = Mode::from_raw_mode(0o777);

/// A directory that knows the fault layer under its files. Its clones, and the directories
/// [within](Self::within) it, share one descriptor.
#[derive(Debug, Clone)]
pub struct Dir {
    root: Arc<Root>,
    /// Path from the root; empty for the root itself.
    within: PathBuf,
    /// For errors, and for the fault layer.
    path: PathBuf,
    faults: Option<Arc<dyn Faults>>,
}

/// The directory that is held open.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    descriptor: OnceLock<OwnedFd>,
}

/// The directory that a path is in.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Dir {
    /// The directory at `path`, which need not exist yet. It is opened when it is first used, and held
    /// open from then on.
    pub fn at(path: PathBuf, faults: Option<Arc<dyn Faults>>) -> Self {
        Self {
            root: Arc::new(Root {
                path: path.clone(),
                descriptor: OnceLock::new(),
            }),
            within: PathBuf::new(),
            path,
            faults,
        }
    }

    /// The directory `name` in this one, which need not exist yet. It is no descriptor more.
    pub fn within(&self, name: &str) -> Self {
        Self {
            within: self.within.join(name),
            path: self.path.join(name),
            ..self.clone()
        }
    }

    /// Where the directory is, or was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fault layer under its files.
    pub fn faults(&self) -> Option<Arc<dyn Faults>> {
        self.faults.clone()
    }

    pub(super) fn faults_ref(&self) -> &Option<Arc<dyn Faults>> {
        &self.faults
    }

    /// Where the file `name` is, or would be.
    pub fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// The entry `name`, which need not exist.
    pub fn entry(&self, name: impl AsRef<OsStr>) -> Entry {
        Entry::new(self.clone(), name.as_ref())
    }

    pub(super) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        use std::os::fd::AsFd;

        let Root { path, descriptor } = &*self.root;
        if descriptor.get().is_none() {
            before(&self.faults, Call::OpenDir, &self.path)?;
            let opened = beyond_standard(rustix::fs::open(path, dir_flags(), Mode::empty())?)?;
            // Of two threads that open it at once one is enough.
            descriptor.get_or_init(|| opened);
        }
        descriptor
            .get()
            .map(AsFd::as_fd)
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// The directory itself, opened anew.
    fn opened(&self) -> io::Result<OwnedFd> {
        let (root, within) = (self.descriptor()?, self.path_in_root());
        let opened = rustix::fs::openat(root, within, dir_flags(), Mode::empty());
        Ok(opened?)
    }

    /// Its path from the root.
    fn path_in_root(&self) -> &Path {
        match self.within.as_os_str().is_empty() {
            true => Path::new("."),
            false => &self.within,
        }
    }

    /// Makes the directory, and its name durable, unless it exists.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`]
    /// or [`Error::Io`].
    pub fn create(&self) -> Result<()> {
        self.try_create()
            .map_err(|source| self.error("create the directory", source))
    }

    fn try_create(&self) -> io::Result<()> {
        let is_root = self.within.as_os_str().is_empty();
        let exists = match is_root {
            true => self.path.is_dir(),
            false => match rustix::fs::statat(self.descriptor()?, &self.within, AtFlags::empty()) {
                Ok(found) => FileType::from_raw_mode(found.st_mode) == FileType::Directory,
                Err(Errno::NOENT) => false,
                Err(error) => return Err(error.into()),
            },
        };
        if exists {
            return Ok(());
        }
        before(&self.faults, Call::CreateDir, &self.path)?;
        if !is_root {
            let root = self.descriptor()?;
            rustix::fs::mkdirat(root, &self.within, DIR_MODE)?;
            // The root may be further up than the directory that has the name.
            let above = Self {
                within: parent_of(&self.within).into(),
                ..self.clone()
            };
            let synced = before(&self.faults, Call::SyncDir, &self.path)
                .and_then(|()| Ok(rustix::fs::fsync(above.opened()?)?));
            if synced.is_err() {
                // Who finds it takes its name for durable.
                let _ = rustix::fs::unlinkat(root, &self.within, AtFlags::REMOVEDIR);
            }
            return synced;
        }
        match std::fs::create_dir(&self.path) {
            // Somebody else has made it just now.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && self.path.is_dir() => Ok(()),
            made => made,
        }
    }

    /// Makes the name of the directory durable, whoever has made it. Where the one above cannot be read or synced, as above
    /// some mount points, that was somebody else.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn sync_name(&self) -> Result<()> {
        let parent = parent_of(&self.path);
        let sync = || {
            before(&self.faults, Call::SyncDir, &self.path)?;
            let synced = File::open(parent).and_then(|parent| parent.sync_all());
            synced.or_else(|error| match error.kind() {
                ErrorKind::PermissionDenied
                | ErrorKind::InvalidInput
                | ErrorKind::Unsupported
                | ErrorKind::ReadOnlyFilesystem => Ok(()),
                _ => Err(error),
            })
        };
        sync().map_err(|source| self.error("sync the directory above", source))
    }

    /// Names of all that is in it, in no order; none if it does not exist.
    ///
    /// # Errors
    /// [`Error::Io`] and the like.
    pub fn names(&self) -> Result<Vec<String>> {
        let list = || -> io::Result<Vec<String>> {
            before(&self.faults, Call::List, &self.path)?;
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::new(self.opened()?)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            Ok(names)
        };
        match list() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(|source| self.error("list the directory", source)),
        }
    }

    /// Whether there is a file `name`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`]: it may be there or not.
    pub fn has(&self, name: &str) -> Result<bool> {
        let entry = self.entry(name);
        let found = entry.inspect().map(|found| found.is_some());
        found.map_err(|source| Error::io(entry.path(), "inspect", source))
    }

    /// Bytes of the file `name`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn len_of(&self, name: &str) -> Result<u64> {
        let entry = self.entry(name);
        entry
            .inspect()
            .and_then(|found| found.ok_or_else(|| ErrorKind::NotFound.into()))
            .map(|found| u64::try_from(found.st_size).unwrap_or(0))
            .map_err(|source| Error::io(entry.path(), "inspect", source))
    }

    /// Makes the file `name`, in place of one that a crash has left there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> Result<PmFile> {
        let entry = self.entry(name);
        match PmFile::create(&entry) {
            Err(Error::AlreadyExists { .. }) => {
                entry.remove()?;
                PmFile::create(&entry)
            }
            made => made,
        }
    }

    /// Opens the file `name` to write it, and makes it if there is none. Of several who do so at once all
    /// get the same file.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn open_or_create_file(&self, name: &str) -> Result<PmFile> {
        let entry = self.entry(name);
        if !entry.exists()? {
            match PmFile::create(&entry) {
                Err(Error::AlreadyExists { .. }) => {}
                made => return made,
            }
        }
        PmFile::open(&entry, true)
    }

    /// Opens the file `name`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn open_file(&self, name: &str, write: bool) -> Result<PmFile> {
        PmFile::open(&self.entry(name), write)
    }

    /// Removes the file `name`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn remove_file(&self, name: &str) -> Result<()> {
        self.entry(name).remove()
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(&self.path, action, source)
    }

    /// What stands under `name`, links followed; `None` if nothing does.
    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        let found = self.descriptor().and_then(|root| {
            let name = self.within.join(name);
            Ok(rustix::fs::statat(root, name, AtFlags::empty())?)
        });
        match found {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Where the symbolic link `name` leads; `None` if it is none.
    pub(super) fn link(&self, name: &OsStr) -> io::Result<Option<PathBuf>> {
        use std::os::unix::ffi::OsStringExt;

        let target = rustix::fs::readlinkat(self.descriptor()?, self.within.join(name), Vec::new());
        match target {
            Ok(target) => {
                let target = std::ffi::OsString::from_vec(target.into_bytes());
                Ok(Some(target.into()))
            }
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory at `path`, seen from this one.
    pub(super) fn follow(&self, path: &Path) -> io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Ok(self.clone());
        }
        let followed = Self::at(self.path.join(path), self.faults.clone());
        before(&self.faults, Call::OpenDir, &followed.path)?;
        let path = self.within.join(path);
        let opened = rustix::fs::openat(self.descriptor()?, path, dir_flags(), Mode::empty())?;
        let opened = beyond_standard(opened)?;
        followed.root.descriptor.get_or_init(|| opened);
        Ok(followed)
    }

    pub(super) fn open_entry(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let (root, name) = (self.descriptor()?, self.within.join(name));
        let flags = flags | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(root, name, flags, FILE_MODE)?;
        Ok(beyond_standard(opened)?.into())
    }

    /// Makes a file on the directory's disk that is in no directory.
    pub(super) fn open_unnamed(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.descriptor()?, self.path_in_root(), flags, FILE_MODE);
        Ok(beyond_standard(opened?)?.into())
    }

    pub(super) fn unlink(&self, name: &OsStr) -> io::Result<()> {
        let (root, name) = (self.descriptor()?, self.within.join(name));
        Ok(rustix::fs::unlinkat(root, name, AtFlags::empty())?)
    }

    /// Renames a file within the directory, in place of what has the name `to`.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let root = self.descriptor()?;
        let (from, to) = (self.within.join(from), self.within.join(to));
        Ok(rustix::fs::renameat(root, from, root, to)?)
    }

    /// Gives a file another name that nothing in the directory has.
    pub(super) fn name_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let root = self.descriptor()?;
        let (from, to) = (self.within.join(from), self.within.join(to));
        match rustix::fs::renameat_with(root, &from, root, &to, RenameFlags::NOREPLACE) {
            // Not every file system knows how. A crash between the two steps leaves the other name as
            // that of a creation which was cut short; to remove it is all that is done about it.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let remove = |name| rustix::fs::unlinkat(root, name, AtFlags::empty());
                rustix::fs::linkat(root, &from, root, &to, AtFlags::empty())?;
                let removed = remove(&from);
                if removed.is_err() {
                    let _ = remove(&to);
                }
                Ok(removed?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Whether anything has a name, be it a link that leads nowhere.
    pub(super) fn is_taken(&self, name: &OsStr) -> io::Result<bool> {
        let (root, name) = (self.descriptor()?, self.within.join(name));
        match rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            found => Ok(found.map(|_| true)?),
        }
    }

    /// Makes the names in the directory durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self.within.as_os_str().is_empty() {
            true => Ok(rustix::fs::fsync(self.descriptor()?)?),
            false => Ok(rustix::fs::fsync(self.opened()?)?),
        }
    }
}

/// A descriptor that is not one of standard input, output or errors. A program that has closed these would print into
/// our file, or put another in its place.
fn beyond_standard(opened: OwnedFd) -> io::Result<OwnedFd> {
    match opened.as_raw_fd() {
        ..=libc::STDERR_FILENO => {
            let beyond = libc::STDERR_FILENO + 1;
            Ok(rustix::io::fcntl_dupfd_cloexec(&opened, beyond)?)
        }
        _ => Ok(opened),
    }
}

fn dir_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}
