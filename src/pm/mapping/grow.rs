//! Growing a mapped file where it is.

use std::sync::atomic::Ordering;
use std::{io, ptr};

use parking_lot::MutexGuard;

use super::{Access, Mapping};
use crate::layout::{HUGE_PAGE, PAGE, align_up};
use crate::pm::address_range::Sharing;
use crate::pm::{Medium, Priority};
use crate::pool;
use crate::width::to_usize;
use crate::{Error, Result};

/// Bytes that one thread prepares at a time: a growth beside it waits for no more than that.
const PREALLOCATE_STEP_BYTES: u64 = 2 * HUGE_PAGE;

/// What changes when the file grows.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// End of the mapped bytes in which a crashed growth may have stored something.
    stale: u64,
    /// All that the file may grow to is mapped.
    is_ahead: bool,
    /// A process that has died left the file longer than what is mapped.
    is_longer: bool,
    /// The file's length is not durable yet.
    pub(super) unsynced: bool,
}

impl Mapping {
    /// Brings the first `len` bytes of a file that exists into reach. Nobody stores to the ranges that are `free`, in
    /// the order of their offsets.
    pub(super) fn map(&self, len: u64, free: &[(u64, u64)]) -> Result<()> {
        let mut growth = self.growth.lock();
        let mapped = align_up(len, self.file_system.unit);
        if self.access == Access::Write {
            let actual = self.file.len()?;
            growth.is_longer = actual > mapped;
            // A store into a hole of a file that is mapped as it is would kill the process where
            // the disk is full. (A copy may have holes where the file had zeros.)
            let allocated = self.file.allocated()?;
            // What is behind the end, a hole before it may lack.
            let may_lack = allocated < mapped || actual > mapped;
            let has_holes = self.sharing != Sharing::Private && may_lack;
            // A shorter one comes from a machine with smaller pages.
            if has_holes || actual < mapped {
                let from = if has_holes { 0 } else { actual };
                self.fill_holes(from, mapped, free, allocated)
                    .and_then(|()| match actual < mapped {
                        true => self.file.set_len(mapped),
                        false => Ok(()),
                    })
                    .map_err(|source| self.no_room(mapped - from, source))?;
            }
        }
        self.bring_into_reach(&mut growth, 0, mapped)
            .map_err(|source| self.no_room(mapped, source))?;
        growth.stale = mapped;
        self.mapped.store(mapped, Ordering::Release);
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Gives blocks to all of `from..to` but what is free.
    fn fill_holes(
        &self,
        from: u64,
        to: u64,
        free: &[(u64, u64)],
        allocated: u64,
    ) -> io::Result<()> {
        let without: u64 = free.iter().map(|(_, len)| len).sum();
        let needed = (to - from).saturating_sub(allocated + without);
        self.file.check_free_space(needed)?;
        let mut at = from;
        for &(offset, len) in free.iter().chain([&(to, 0)]) {
            if offset > at {
                self.file.allocate(at, offset)?;
            }
            at = at.max(offset + len);
        }
        Ok(())
    }

    /// The lock of growth, which a running preallocation gives up for this caller.
    pub(super) fn growth_now(&self) -> MutexGuard<'_, Growth> {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        let growth = self.growth.lock();
        self.hurried.fetch_sub(1, Ordering::Relaxed);
        growth
    }

    /// Makes the file longer, up to `to`, and maps what is new; all or nothing.
    fn extend(&self, growth: &mut Growth, to: u64, threads: usize) -> Result<()> {
        let from = self.prepared();
        let extended = self.try_extend(growth, from, to, threads);
        extended.map_err(|source| {
            // No one has been told of the new range. Should this fail, the file stays longer
            // than its superblock says, which does no harm.
            let _ = self.put_out_of_reach(growth, from, to);
            let _ = self.file.set_len(from);
            self.no_room(to - from, source)
        })?;
        growth.unsynced = true;
        self.mapped.store(to, Ordering::Release);
        Ok(())
    }

    fn try_extend(
        &self,
        growth: &mut Growth,
        from: u64,
        to: u64,
        threads: usize,
    ) -> io::Result<()> {
        // A longer file comes from a growth that a crash cut short; its bytes must not return.
        self.file.set_len(from)?;
        self.file.check_free_space(to - from)?;
        self.file.set_len(to)?;
        match self.sharing {
            // No store reaches the file through the mapping, so what is new there stays zero.
            Sharing::Private => self.range.map_zeros(&self.file, from, to)?,
            _ => self.bring_into_reach(growth, from, to)?,
        }
        if self.is_gathered() {
            // With the small pages before, if they are a whole huge one together with these, and if there is room for
            // what was given back of them.
            let first = from / HUGE_PAGE * HUGE_PAGE;
            let is_whole = to >= first + HUGE_PAGE;
            let has_room = || self.file.check_free_space(to - first).is_ok();
            let from = if is_whole && has_room() { first } else { from };
            self.range.gather(&self.file, from, to, threads);
        }
        self.file.allocate(from, to)
    }

    /// Whether what is new lies in huge pages, wherever the system has some.
    pub(super) fn is_gathered(&self) -> bool {
        self.file_system.in_memory && self.sharing == Sharing::Shared
    }

    /// Maps the bytes `from..to`. Of a file in memory it maps all that it may grow to at once: a call that maps waits for
    /// all threads of the process that ask for memory, and they for it. Of 16 files that grew side by side, each waited a
    /// third of its time.
    fn bring_into_reach(&self, growth: &mut Growth, from: u64, to: u64) -> io::Result<()> {
        if growth.is_ahead {
            return Ok(());
        }
        // hugetlbfs sets aside what is mapped of it.
        let is_ahead = self.is_gathered() && self.file_system.writable;
        let to = if is_ahead { self.range.len() } else { to };
        self.range.map(&self.file, from, to, self.sharing)?;
        growth.is_ahead = is_ahead;
        Ok(())
    }

    /// Takes the bytes `from..to` out of reach, of which nobody was told, or which are not in use.
    fn put_out_of_reach(&self, growth: &Growth, from: u64, to: u64) -> io::Result<()> {
        match growth.is_ahead {
            // They go when the file is cut.
            true => Ok(()),
            false => self.range.unmap(from, to),
        }
    }

    pub(super) fn no_room(&self, needed: u64, source: io::Error) -> Error {
        use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};

        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory => Error::NoSpace {
                path: self.path().to_path_buf(),
                needed,
                source: source.into(),
            },
            _ => Error::io(self.path(), "extend", source),
        }
    }

    /// See [`Medium::grow`].
    pub(super) fn grow_to(&self, len: u64) -> Result<()> {
        let len = self.within_limits(len)?;
        let mut growth = self.growth_now();
        let old = self.len();
        if len <= old {
            return Ok(());
        }
        if len > self.prepared() {
            self.extend(&mut growth, align_up(len, self.file_system.unit), cores())?;
        }
        self.sync_length(&mut growth)?;
        self.clear(old, growth.stale.min(len));
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Makes the length of the file durable, where a superblock is as soon as it is stored: it must not name what a
    /// power cut takes back.
    fn sync_length(&self, growth: &mut Growth) -> Result<()> {
        if self.sharing == Sharing::Synchronous && growth.unsynced {
            self.file.sync()?;
            growth.unsynced = false;
        }
        Ok(())
    }

    /// See [`Medium::prepare`].
    pub(super) fn prepare_to(&self, len: u64, priority: Priority) -> Result<()> {
        // What is gathered begins and ends with whole huge pages, however it is asked for.
        let unit = match self.is_gathered() {
            true => self.file_system.unit.max(HUGE_PAGE),
            false => self.file_system.unit,
        };
        let len = align_up(self.within_limits(len)?, unit).min(self.range.len());
        let threads = match priority {
            Priority::WaitedFor => cores(),
            // The batches that run beside it need the other cores.
            Priority::Beside | Priority::Step => (cores() / 4).max(1),
        };
        let step = PREALLOCATE_STEP_BYTES * threads as u64;
        loop {
            let mut growth = if len <= self.prepared() + step {
                self.growth_now()
            } else {
                // The mutex knows no turns, so that one who waits might have to wait for the end.
                while self.hurried.load(Ordering::Relaxed) > 0 {
                    std::thread::yield_now();
                }
                self.growth.lock()
            };
            let mapped = self.prepared();
            if len <= mapped {
                // Once, and while no batch waits: else the growth does it that comes first.
                return match priority {
                    Priority::Beside => self.sync_length(&mut growth),
                    Priority::Step | Priority::WaitedFor => Ok(()),
                };
            }
            let to = align_up(mapped + step, unit).min(len);
            self.extend(&mut growth, to, threads)?;
            if !self.is_gathered() && self.sharing != Sharing::Synchronous {
                self.range.populate(mapped, to, threads);
            }
        }
    }

    /// See [`Medium::release`].
    pub(super) fn release_to_system(&self, at: u64, len: u64) -> bool {
        if self.access == Access::ReadOnly || self.opener.check(self.path()).is_err() {
            return false;
        }
        if self.sharing == Sharing::Private {
            if let Some(dirty) = &self.dirty {
                dirty.clear(at, at + len);
            }
            self.range.discard(at, at + len, self.file_system.unit);
        }
        // Should this fail, as on a file system that knows no holes, the blocks stay.
        let punched = self.file.punch(at, at + len);
        if let Err(error) = &punched {
            tracing::debug!(%error, at, len, "the file keeps blocks that it does not need");
        }
        punched.is_ok()
    }

    /// See [`Medium::refill`].
    pub(super) fn refill_from_system(&self, at: u64, len: u64) -> Result<()> {
        self.opener.check(self.path())?;
        self.file
            .check_free_space(len)
            .and_then(|()| self.file.allocate(at, at + len))
            .map_err(|source| self.no_room(len, source))
    }

    /// See [`Medium::cut`].
    pub(super) fn cut_to(&self, len: u64) {
        if len < self.len() {
            self.len.store(len, Ordering::Release);
            self.cut_off();
        }
    }

    /// See [`Medium::trim`].
    pub(super) fn cut_off(&self) {
        if self.access == Access::ReadOnly {
            return;
        }
        let mut growth = self.growth_now();
        let (mapped, needed) = (self.prepared(), align_up(self.len(), self.file_system.unit));
        // Should this fail, the file stays longer than its superblock says, which does no harm.
        if needed < mapped && self.put_out_of_reach(&growth, needed, mapped).is_ok() {
            self.mapped.store(needed, Ordering::Release);
            growth.is_longer = self.file.set_len(needed).is_err();
        } else if growth.is_longer {
            growth.is_longer = self.file.set_len(mapped).is_err();
        }
    }

    /// `len` in whole pages, if the file may have it.
    fn within_limits(&self, len: u64) -> Result<u64> {
        let limit = self.range.len();
        if len > limit {
            return Err(Error::Limit {
                path: self.path().to_path_buf(),
                what: "the length of the file (more is possible once it is opened anew)",
                needed: len,
                limit,
            });
        }
        self.opener.check(self.path())?;
        let len = align_up(len, PAGE);
        if len > self.len() && self.access == Access::ReadOnly {
            return Err(self.opened_read_only());
        }
        Ok(len)
    }

    /// Zeroes mapped bytes that no one has been told of: the rest of a large page, where a crashed
    /// growth may have stored something.
    fn clear(&self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (start, len) = (
            self.base().wrapping_add(to_usize(from)),
            to_usize(to - from),
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

/// Threads that a growth may use which somebody waits for.
fn cores() -> usize {
    // More of them only wait for the memory.
    const GROW_THREADS_MAX: usize = 16;
    pool::cores().min(GROW_THREADS_MAX)
}
