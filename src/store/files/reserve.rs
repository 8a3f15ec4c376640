//! Room on the disk that a store holds for what must go on when there is none: `RESERVE`, a file
//! of which nothing but its length matters.
//!
//! How much it must hold for whom, [`room`](crate::store::commit::room) says. On a full disk it is given back to the disk for what
//! takes nothing for long: deletions, a checkpoint, the manifest, closing. Others who write to the disk may be
//! quicker to take this room; then these fail as they would have without it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::layout::PAGE;
use crate::pm::Dir;
use crate::{Error, Result};

/// Its name in the store's directory.
pub const RESERVE: &str = "RESERVE";

/// Bytes beside those of journal and index that must be left after what adds to the store.
pub const ROOM_AFTER_ADDITION_BYTES: u64 = 256 << 10;

/// The part of them that deletions leave to a checkpoint: a segment and the manifest.
pub const ROOM_AFTER_DELETION_BYTES: u64 = 96 << 10;

/// What is left to a checkpoint by an index that must grow for what is in the log already.
pub const ROOM_AFTER_GROWTH_BYTES: u64 = 32 << 10;

/// What it is made longer by, if the disk has so much.
const RESERVE_STEP_BYTES: u64 = 1 << 20;

/// See the [module](self).
#[derive(Debug)]
pub struct Reserve {
    root: Dir,
    /// Bytes that it holds.
    held: AtomicU64,
    changing: Mutex<()>,
}

impl Reserve {
    /// What is there of it in the directory of a store.
    pub fn find(root: &Dir) -> Result<Self> {
        let held = match root.has(RESERVE)? {
            true => root.len_of(RESERVE)?,
            false => 0,
        };
        Ok(Self {
            root: root.clone(),
            held: AtomicU64::new(held),
            changing: Mutex::new(()),
        })
    }

    /// Bytes that it holds.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Sees to it that it holds so many bytes.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and the like; it holds what it did.
    pub fn hold(&self, bytes: u64) -> Result<()> {
        if self.held.load(Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let _changing = self.changing.lock();
        let held = self.held.load(Ordering::Relaxed);
        if held >= bytes {
            return Ok(());
        }
        let (file, held) = match self.root.has(RESERVE)? {
            true => (self.root.open_file(RESERVE, true)?, held),
            false => (self.root.create_file(RESERVE)?, 0),
        };
        let least = bytes.next_multiple_of(PAGE);
        let wanted = match held {
            0 => least,
            _ => bytes.next_multiple_of(RESERVE_STEP_BYTES),
        };
        let allocate = |to| {
            let allocated = file.allocate(held, to);
            if allocated.is_err() {
                // A part of it may have been had.
                let _ = file.set_len(held);
            }
            allocated.map(|()| to)
        };
        let allocated = allocate(wanted).or_else(|error| match wanted > least {
            true => allocate(least),
            false => Err(error),
        });
        let held = allocated.map_err(|source| {
            match Error::io(file.path(), "reserve room in", source) {
                Error::NoSpace { path, source, .. } => Error::NoSpace {
                    path,
                    needed: least - held,
                    source,
                },
                error => error,
            }
        })?;
        self.held.store(held, Ordering::Relaxed);
        Ok(())
    }

    /// Holds as much of so many bytes as the disk has.
    pub fn hold_most(&self, bytes: u64) {
        let mut missing = bytes.saturating_sub(self.held());
        while missing >= PAGE {
            let wanted = self.held() + missing.min(bytes.saturating_sub(self.held()));
            if self.hold(wanted).is_err() {
                missing /= 2;
            } else if self.held() >= bytes {
                return;
            }
        }
    }

    /// Gives back what it holds far beyond so many bytes.
    pub fn cut(&self, bytes: u64) {
        let most = bytes.next_multiple_of(RESERVE_STEP_BYTES) + RESERVE_STEP_BYTES;
        if self.held() > most {
            self.shrink(most);
        }
    }

    /// Gives the disk back what it holds beyond so many bytes; `false` if there is nothing to give.
    pub fn shrink(&self, keep: u64) -> bool {
        let _changing = self.changing.lock();
        if self.held.load(Ordering::Relaxed) <= keep {
            return false;
        }
        let cut = self.root.open_file(RESERVE, true).and_then(|file| {
            file.set_len(keep)
                .map_err(|source| Error::io(file.path(), "cut", source))
        });
        match cut {
            Ok(()) => self.held.store(keep, Ordering::Relaxed),
            Err(ref error) => tracing::warn!(%error, "the reserve stays"),
        }
        cut.is_ok()
    }
}
