//! Growing a mapped file in its place.

use std::sync::atomic::Ordering;
use std::{io, ptr};

use super::{Access, Mapping, lock};
use crate::layout::{PAGE, align_up};
use crate::pm::Medium;
use crate::pm::range::Sharing;
use crate::{Error, Result};

/// What changes when the file grows.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Bytes of the file that are mapped, a multiple of the place's unit.
    pub(super) mapped: u64,
    /// The file's length is not durable yet.
    pub(super) unsynced: bool,
}

impl Mapping {
    /// Brings the first `len` bytes of a file that exists into reach.
    pub(super) fn map(&self, len: u64) -> Result<()> {
        let mut growth = lock(&self.growth);
        let mapped = align_up(len, self.place.unit);
        let actual = self.file.len()?;
        if self.access == Access::Write && actual < mapped {
            // The file comes from a machine with smaller pages.
            self.file
                .allocate(actual, mapped)
                .map_err(|source| self.no_room(mapped - actual, source))?;
        }
        self.range
            .map(&self.file, 0, mapped, self.sharing)
            .map_err(|source| self.no_room(mapped, source))?;
        growth.mapped = mapped;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Makes the file longer and maps what is new; all or nothing.
    fn extend(&self, from: u64, to: u64) -> Result<()> {
        let extended = self.try_extend(from, to);
        extended.map_err(|source| {
            // No one has been told of the new range. Should this fail, the file stays longer
            // than its superblock says, which does no harm.
            let _ = self.range.unmap(from, to);
            let _ = self.file.set_len(from);
            self.no_room(to - from, source)
        })
    }

    fn try_extend(&self, from: u64, to: u64) -> io::Result<()> {
        // A longer file comes from a growth that a crash cut short; its bytes must not return.
        self.file.set_len(from)?;
        self.file.set_len(to)?;
        self.range.map(&self.file, from, to, self.sharing)?;
        if self.place.in_memory && self.sharing == Sharing::Shared {
            self.range.gather(&self.file, from, to);
        }
        self.file.allocate(from, to)
    }

    fn no_room(&self, needed: u64, source: io::Error) -> Error {
        use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};

        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory => Error::NoSpace {
                path: self.path().to_path_buf(),
                needed,
                source,
            },
            _ => Error::io(self.path(), "extend", source),
        }
    }

    /// See [`Medium::grow`].
    pub(super) fn grow_to(&self, len: u64) -> Result<()> {
        let limit = self.range.len();
        if len > limit {
            return Err(Error::Limit {
                path: self.path().to_path_buf(),
                what: "bytes of the file while it is open",
                needed: len,
                limit,
            });
        }
        let mut growth = lock(&self.growth);
        let len = align_up(len, PAGE);
        let old = self.len();
        if len <= old {
            return Ok(());
        }
        if self.access == Access::Look {
            return Err(self.only_looks());
        }
        let mapped = growth.mapped;
        if len > mapped {
            let to = align_up(len, self.place.unit);
            self.extend(mapped, to)?;
            *growth = Growth {
                mapped: to,
                unsynced: true,
            };
        }
        self.clear(old, mapped.min(len));
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Zeroes mapped bytes that no one has been told of: the rest of a large page, where a crashed
    /// growth may have stored something.
    fn clear(&self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (start, len) = (
            self.base().wrapping_add(from as usize),
            (to - from) as usize,
        );
        // SAFETY: the bytes are mapped and out of everyone's reach until the new length is told.
        unsafe { ptr::write_bytes(start, 0, len) };
        self.mark_dirty(from, to - from);
        if let Some(write_back) = self.write_back {
            // SAFETY: as above; the instruction was asked for at opening.
            unsafe { write_back.range(start, len) };
            write_back.fence();
        }
    }
}
