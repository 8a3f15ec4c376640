//! The journal that a crash has left beside a file.

use super::reader::{CompleteJournal, Found};
use super::{HEAD, Header, Journal, WHAT, disown, entry_of, remove};
use crate::layout::Superblock;
use crate::pm::file::PmFile;
use crate::width::to_usize;
use crate::{Error, Result};

/// What an opening found beside the file.
#[derive(Debug)]
pub struct JournalReplay {
    file: PmFile,
    /// Its header, if it was written.
    header: Option<Header>,
    /// What has to go home.
    complete: Option<CompleteJournal>,
}

impl JournalReplay {
    /// Looks for the journal of `home`, whose first [`HEAD`] bytes are `head`, and makes those what they
    /// will be after the replay. A journal that `home` does not name means nothing.
    ///
    /// # Errors
    /// Nothing was changed.
    ///
    /// - [`Error::JournalMissing`] if the file needs another journal than what is there
    /// - [`Error::Foreign`] if another program's file stands there
    /// - [`Error::Damaged`] if the journal is another file's or older than the file
    /// - [`Error::Truncated`] if the file is too short for it
    /// - [`Error::NewerFormat`] and [`Error::Io`]
    /// - what [`Superblock::parse`] says of a file that is not ours
    pub fn find(home: &PmFile, head: &mut Vec<u8>) -> Result<Option<Self>> {
        let entry = entry_of(home.entry());
        let at_home = Superblock::parse(head, u64::MAX, home.path());
        let wanted = at_home.as_ref().map_or(0, |found| found.journal_id);
        let missing = |found| Error::JournalMissing {
            path: home.path().to_path_buf(),
            journal: entry.path().to_path_buf(),
            found,
        };
        if !entry.exists()? {
            return match wanted {
                0 => Ok(None),
                _ => Err(missing("is not there")),
            };
        }
        entry.must_be_file(entry.path())?;
        let file = PmFile::open(&entry, false)?;
        let Found { header, complete } = Found::read(&file)?;
        let damaged = |at, found: &str| Error::Damaged {
            path: entry.path().to_path_buf(),
            what: WHAT,
            at,
            found: found.into(),
        };
        let mut replay = Self {
            file,
            header,
            complete,
        };
        match (at_home, header) {
            (Ok(superblock), Some(header)) if header.file_id != superblock.file_id => {
                return Err(damaged(16, "it belongs to another file; move it away"));
            }
            (Ok(_), _) if replay.id() != wanted => {
                if wanted != 0 {
                    return Err(missing("is that of another time"));
                }
                replay.complete = None;
            }
            (Ok(superblock), Some(header)) if header.checkpoints < superblock.checkpoints => {
                return Err(damaged(
                    40,
                    "it is older than the file; put the last one back",
                ));
            }
            // The superblock came home from it, so it was complete, and other pages may have come, too.
            (Ok(superblock), Some(header))
                if header.checkpoints == superblock.checkpoints
                    && replay.complete.is_none()
                    && !header.is_idle() =>
            {
                let found = format!(
                    "it was complete and no longer is, and a part of its {} pages may be in the file; \
                     put back a whole copy of it",
                    header.page_count
                );
                return Err(damaged(size_of::<Header>() as u64, &found));
            }
            // It is idle, or torn before it was sealed.
            (Ok(_), _) => {}
            (Err(error), _) => match &replay.complete {
                // No crash tears both copies. The journal holds whole ones all the same.
                Some(complete) if complete.belongs_to(head) => {}
                _ => return Err(error),
            },
        }
        replay.overlay_head(head, home)?;
        Ok(Some(replay))
    }

    /// The journal's name, if it was written.
    fn id(&self) -> u64 {
        self.header.map_or(0, |header| header.journal_id)
    }

    fn overlay_head(&self, head: &mut Vec<u8>, home: &PmFile) -> Result<()> {
        let Some(complete) = &self.complete else {
            return Ok(());
        };
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
            if let Some(room) = head.get_mut(to_usize(at)..) {
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
            Some(complete) => complete.runs(&self.file, 0..complete.len(), |at, bytes| {
                take(at, bytes);
                Ok(())
            }),
            None => Ok(()),
        }
    }

    /// Brings the pages of a complete journal home. Then `home` is a whole checkpoint whose superblock is
    /// `superblock`. Gives its journal, which stays the same one if `keep` and `home` names it, and it is of no
    /// later checkpoint; else it is removed.
    ///
    /// # Errors
    /// [`Error::Io`] and the like; the journal stays, and can be replayed again.
    pub fn replay(self, home: &PmFile, superblock: &Superblock, keep: bool) -> Result<Journal> {
        if let Some(complete) = &self.complete {
            // The process may have died before it had made the journal durable.
            complete.rewrite(&PmFile::open(self.file.entry(), true)?)?;
            self.file.sync_dir()?;
            complete.bring_home(&self.file, home)?;
        }
        if let Some(header) = self.header
            && keep
            && header.journal_id != 0
            && header.journal_id == superblock.journal_id
            // The next checkpoint gets the number of the torn one. Under the same name, a copy of what stands
            // here now would pass for its journal.
            && header.checkpoints <= superblock.checkpoints
        {
            header.retire(&PmFile::open(self.file.entry(), true)?)?;
            return Ok(Journal {
                id: header.journal_id,
                is_made: true,
                ..Journal::default()
            });
        }
        disown(home)?;
        remove(self.file.entry())?;
        Ok(Journal::default())
    }
}
