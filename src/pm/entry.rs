//! A name in a directory.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, Stat};

use super::file::{Call, Faults, FileEvent, PmFile, before};
use super::{Dir, parent_of};
use crate::{Error, Result};

/// A name in a directory that is held open. What stands there, if anything, may change.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(super) dir: Dir,
    pub(super) name: OsString,
    /// Where it is, for the fault layer.
    pub(super) path: PathBuf,
    /// For errors, where it is not the path.
    pub(super) shown: Option<PathBuf>,
}

impl Entry {
    pub(super) fn new(dir: Dir, name: &OsStr) -> Self {
        Self {
            path: dir.join(name),
            name: name.to_owned(),
            dir,
            shown: None,
        }
    }

    /// The entry at `path`, whose directory is opened and held open.
    ///
    /// # Errors
    /// [`Error::NotAFile`] if no file can have the path; [`Error::ReadOnly`] or [`Error::Io`].
    pub fn at(path: &Path, faults: Option<Arc<dyn Faults>>) -> Result<Self> {
        let Some(name) = path.file_name().filter(|_| !ends_in_dir(path)) else {
            path.metadata()
                .map_err(|source| Error::io(path, "open", source))?;
            return Err(Error::NotAFile {
                path: path.to_path_buf(),
                found: "directory",
            });
        };
        let entry = Self {
            dir: Dir::at(parent_of(path).to_path_buf(), faults),
            name: name.to_owned(),
            path: path.to_path_buf(),
            shown: None,
        };
        match entry.dir.descriptor() {
            Ok(_) => Ok(entry),
            Err(source) => Err(entry.error("open the directory of", source)),
        }
    }

    /// The entry of the file itself, if this is a symbolic link to one: in the directory where the
    /// file is, and by the name that it has there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn resolve(&self) -> Result<Self> {
        /// As many as the kernel follows.
        const LINKS: usize = 40;

        let mut entry = self.clone();
        for _ in 0..LINKS {
            let error = |source| self.error("follow the link", source);
            let Some(target) = entry.dir.link(&entry.name).map_err(error)? else {
                return Ok(entry);
            };
            let Some(name) = target.file_name() else {
                return Err(error(io::ErrorKind::IsADirectory.into()));
            };
            let parent = target.parent().unwrap_or_else(|| Path::new(""));
            let dir = entry.dir.follow(parent).map_err(error)?;
            entry = Self::new(dir, name);
        }
        let source = io::Error::from_raw_os_error(libc::ELOOP);
        Err(self.error("follow the link", source))
    }

    /// Where it is, or was when its directory was opened; for errors.
    pub fn path(&self) -> &Path {
        self.shown.as_ref().unwrap_or(&self.path)
    }

    /// The entry beside this one whose name is this one's with something behind it.
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let mut name = self.name.clone();
        name.push(suffix);
        Self {
            dir: self.dir.clone(),
            path: self.path.with_file_name(&name),
            name,
            shown: None,
        }
    }

    /// The entry under which a file is made that gets this one when it is whole. Errors about it
    /// speak of this one.
    pub(super) fn unpublished(&self) -> Self {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(".making");
        Self {
            dir: self.dir.clone(),
            path: self.path.with_file_name(&name),
            name,
            shown: Some(self.path.clone()),
        }
    }

    /// Whether it leads to an open file.
    pub(super) fn leads_to(&self, file: &File) -> io::Result<bool> {
        let file = file.metadata()?;
        let found = self.dir.stat(&self.name)?;
        Ok(found.is_some_and(|found| (found.st_dev, found.st_ino) == (file.dev(), file.ino())))
    }

    /// Removes what a creation has left that was cut short. One that goes on keeps its lock.
    pub(super) fn clear_unpublished(&self) -> io::Result<()> {
        let file = match self.dir.open_entry(&self.name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        match file.try_lock() {
            // It may be another one by now.
            Ok(()) if self.leads_to(&file)? => self.dir.unlink(&self.name),
            Err(TryLockError::Error(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// What stands there, links followed; `None` if nothing does.
    pub(super) fn inspect(&self) -> io::Result<Option<Stat>> {
        before(self.dir.faults_ref(), Call::Inspect, &self.path)?;
        self.dir.stat(&self.name)
    }

    /// Whether anything stands there, be it a link that leads nowhere.
    pub(super) fn is_taken(&self) -> Result<bool> {
        before(self.dir.faults_ref(), Call::Inspect, &self.path)
            .and_then(|()| self.dir.is_taken(&self.name))
            .map_err(|source| self.error("inspect", source))
    }

    /// Whether anything stands there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`]: it may be there or not.
    pub fn exists(&self) -> Result<bool> {
        self.inspect()
            .map(|found| found.is_some())
            .map_err(|source| self.error("inspect", source))
    }

    /// Refuses what stands there, which the caller knows by `path`, if it is no regular file, before it is opened: opening
    /// a pipe may wait for ever.
    ///
    /// # Errors
    /// [`Error::NotAFile`]; [`Error::ReadOnly`] or [`Error::Io`], also if nothing stands there.
    pub fn must_be_file(&self, path: &Path) -> Result<()> {
        let found = self.inspect().and_then(|found| {
            let found = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
            Ok(FileType::from_raw_mode(found.st_mode))
        });
        let found = found.map_err(|source| self.error("open", source))?;
        let found = match found {
            FileType::RegularFile => return Ok(()),
            FileType::Directory => "directory",
            FileType::Fifo => "pipe",
            FileType::Socket => "socket",
            FileType::BlockDevice => "block device",
            _ => "character device",
        };
        Err(Error::NotAFile {
            path: path.to_path_buf(),
            found,
        })
    }

    /// Removes what stands there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn remove(&self) -> Result<()> {
        before(self.dir.faults_ref(), Call::Remove, &self.path)
            .and_then(|()| self.dir.unlink(&self.name))
            .inspect(|()| self.tell(FileEvent::Removed))
            .map_err(|source| self.error("remove", source))
    }

    /// Gives what stands there a name under which nobody looks for it, with `.damaged` behind its own,
    /// durably.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn set_aside(&self) -> Result<()> {
        let names = self.dir.names()?;
        let own = self.name.to_string_lossy();
        let aside = |nth: u32| match nth {
            1 => format!("{own}.damaged"),
            _ => format!("{own}.damaged.{nth}"),
        };
        let free = (1..).map(aside).find(|aside| !names.contains(aside));
        let mut file = PmFile::open(self, false)?;
        file.rename(&free.expect("there are more names than files"))?;
        file.sync_dir()
    }

    /// Removes what stands there as far as that can be done. The fault layer is not asked: a failure
    /// that is being tidied up must not depend on the next one.
    pub(super) fn discard(&self) {
        if self.dir.unlink(&self.name).is_ok() {
            self.tell(FileEvent::Removed);
        }
    }

    /// Makes the names in its directory durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_dir(&self) -> Result<()> {
        before(self.dir.faults_ref(), Call::SyncDir, &self.path)
            .and_then(|()| self.dir.sync())
            .inspect(|()| self.tell(FileEvent::SyncedDir))
            .map_err(|source| self.error("sync the directory of", source))
    }

    pub(super) fn tell(&self, event: FileEvent) {
        if let Some(faults) = self.dir.faults_ref() {
            faults.after(event, &self.path);
        }
    }

    pub(super) fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(self.path(), action, source)
    }
}

/// Whether only a directory can have the path, whatever its last part is.
fn ends_in_dir(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}
