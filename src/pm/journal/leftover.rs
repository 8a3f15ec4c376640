//! The journal that a crash has left beside a file.

use super::complete::Complete;
use super::{HEAD, path_of, remove};
use crate::layout::Superblock;
use crate::pm::file::PmFile;
use crate::{Error, Result};

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
    /// [`Error::Damaged`] if the journal is another file's, [`Error::Truncated`] if the file is
    /// too short for it, or what [`Superblock::parse`] says of a file that is not ours.
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
        let (found, expected) = (home.len()?, complete.header.file_len);
        if found < expected {
            // The file was that long before its journal was written.
            return Err(Error::Truncated {
                path: home.path().to_path_buf(),
                found,
                expected,
            });
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
            // The process may have died before it had made the journal durable.
            self.file.sync()?;
            complete.runs(&self.file, |at, bytes| home.write(bytes, at))?;
            home.sync()?;
        }
        remove(&self.file)
    }
}
