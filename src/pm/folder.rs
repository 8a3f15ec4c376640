//! A folder with files of its own, and its calls to the operating system.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{Call, Faults, PmFile, before};
use crate::{Error, Result};

/// A folder that knows the fault layer under its files.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    faults: Option<Arc<dyn Faults>>,
}

impl Folder {
    /// The folder at `path`, which need not exist yet.
    pub fn at(path: PathBuf, faults: Option<Arc<dyn Faults>>) -> Self {
        Self { path, faults }
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fault layer under its files.
    pub fn faults(&self) -> Option<Arc<dyn Faults>> {
        self.faults.clone()
    }

    /// Where the file `name` is, or would be.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the folder, and its name durable, unless it exists.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`]
    /// or [`Error::Io`].
    pub fn create(&self) -> Result<()> {
        if self.path.is_dir() {
            return Ok(());
        }
        before(&self.faults, Call::CreateFolder, &self.path)
            .and_then(|()| std::fs::create_dir(&self.path))
            .and_then(|()| match self.path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => {
                    before(&self.faults, Call::SyncFolder, &self.path)?;
                    std::fs::File::open(parent)?.sync_all()
                }
                _ => Ok(()),
            })
            .map_err(|source| self.error("create the directory", source))
    }

    /// Names of all that is in it, in no order; none if it does not exist.
    ///
    /// # Errors
    /// [`Error::Io`] and the like.
    pub fn names(&self) -> Result<Vec<String>> {
        let list = || -> io::Result<Vec<String>> {
            before(&self.faults, Call::List, &self.path)?;
            std::fs::read_dir(&self.path)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
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
        let path = self.join(name);
        before(&self.faults, Call::Inspect, &path)
            .and_then(|()| path.try_exists())
            .map_err(|source| Error::io(&path, "inspect", source))
    }

    /// Makes the file `name`, in place of one that a crash has left there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`] or [`Error::Io`].
    pub fn create_file(&self, name: &str) -> Result<PmFile> {
        let path = self.join(name);
        match PmFile::create(&path, self.faults()) {
            Err(Error::AlreadyExists { .. }) => {
                self.remove_file(name)?;
                PmFile::create(&path, self.faults())
            }
            made => made,
        }
    }

    /// Opens the file `name`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn open_file(&self, name: &str, write: bool) -> Result<PmFile> {
        PmFile::open(&self.join(name), write, self.faults())
    }

    /// Removes the file `name`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] or [`Error::Io`].
    pub fn remove_file(&self, name: &str) -> Result<()> {
        self.open_file(name, false)?.remove()
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(&self.path, action, source)
    }
}
