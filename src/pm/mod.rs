//! Persistent memory: a file that is used in place, and what a store into it is worth.

mod address_range;
mod dir;
mod domain;
mod entry;
mod file;
mod journal;
mod lock;
mod mapping;
#[cfg(all(test, not(loom)))]
pub(crate) mod sim;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod sim_disk;
mod window;

pub(crate) use dir::{Dir, parent_of};
pub(crate) use entry::Entry;
pub(crate) use file::PmFile;
#[doc(hidden)]
pub use file::{Call, Faults, FileEvent};
pub use mapping::{MapOptions, Mapping};
pub(crate) use window::Window;

use crate::width::to_usize;
use crate::{Domain, Result};

/// How much of the machine may be used to prepare room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// All of it: a batch waits.
    WaitedFor,
    /// What batches beside it do not need.
    Beside,
    /// As much, for a step before others.
    Step,
}

impl Priority {
    /// That of a step beside batches.
    pub fn of_step(is_last: bool) -> Self {
        match is_last {
            true => Self::Beside,
            false => Self::Step,
        }
    }
}

/// The one door through which the index reaches its file.
///
/// Offsets are bytes from the start of the file. Words are 8-byte aligned and atomic; byte
/// ranges are not, and callers never let a write race with a read of the same bytes.
///
/// A store is **persistent** once its line has been [written back](Self::write_back) and a
/// [`fence`](Self::fence) has followed on the same thread. In domains where stores are durable
/// at once, or only at a checkpoint, both cost nothing.
#[expect(
    clippy::len_without_is_empty,
    reason = "a file with a superblock is not empty"
)]
pub trait Medium: Send + Sync {
    /// Bytes that can be accessed.
    fn len(&self) -> u64;

    /// Loads a word (acquire).
    fn load(&self, at: u64) -> u64;

    /// Stores a word (release).
    fn store(&self, at: u64, word: u64);

    /// Replaces a word if it is `current` (sequentially consistent), else gives what it is.
    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> std::result::Result<u64, u64>;

    /// Sets bits of a word and gives what it was.
    fn fetch_or(&self, at: u64, bits: u64) -> u64;

    /// Copies bytes out.
    fn read(&self, at: u64, bytes: &mut [u8]);

    /// Shows bytes to `read`, where they are if it can.
    #[inline]
    fn show<R>(&self, at: u64, len: u64, read: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = vec![0; to_usize(len)];
        self.read(at, &mut bytes);
        read(&bytes)
    }

    /// Copies bytes in.
    fn write(&self, at: u64, bytes: &[u8]);

    /// Starts the write-back of every line of a range.
    fn write_back(&self, at: u64, len: u64);

    /// Waits until all that this thread has written back is durable.
    fn fence(&self);

    /// Prefetches the line at `at`.
    #[inline]
    fn prefetch(&self, at: u64) {
        let _ = at;
    }

    /// Makes at least `len` bytes accessible, the new ones zero, with room on the disk for them.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like; the medium is as it was.
    fn grow(&self, len: u64) -> Result<()>;

    /// Preallocates what a [`grow`](Self::grow) to `len` bytes would have to wait for, with
    /// as many threads as the `priority` allows. The bytes stay out of reach, and zero, until it comes.
    /// May take long, but holds up a growth or a checkpoint beside it only for a moment.
    ///
    /// # Errors
    /// Those of [`grow`](Self::grow); what could be prepared stays so.
    fn prepare(&self, len: u64, priority: Priority) -> Result<()>;

    /// Checks, changing nothing, that there is room for [`prepare`](Self::prepare) to go as far as `len`.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) if not.
    fn check_room(&self, len: u64) -> Result<()> {
        let _ = len;
        Ok(())
    }

    /// Bytes to which the medium can grow at once; at least [`len`](Self::len).
    fn prepared(&self) -> u64;

    /// Gives back what was prepared and is still out of reach.
    fn trim(&self);

    /// Gives the blocks and the memory of a range of whole pages back, as far as the system takes them. What is
    /// there means nothing from now on, and nothing is stored there until it is [filled](Self::refill) again.
    /// Where stores need a checkpoint, one that says so is durable. Says whether the blocks are gone.
    fn release(&self, at: u64, len: u64) -> bool {
        let _ = (at, len);
        false
    }

    /// Bytes of all blocks that it has, if that is known.
    fn allocated(&self) -> Option<u64> {
        None
    }

    /// Gives a range that was [released](Self::release) room on the disk again.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like; the range is as it was.
    fn refill(&self, at: u64, len: u64) -> Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// Makes the medium `len` bytes long, if it is longer. Nobody uses what is behind, and the file durably says so.
    fn cut(&self, len: u64) {
        let _ = len;
    }

    /// Begins a checkpoint of all stores so far, where the domain needs one; one that was begun before
    /// and not [completed](Self::complete) is part of it. No store may run beside it. The superblock counts more
    /// checkpoints than at the one before.
    ///
    /// # Errors
    /// What the disk answers; the last checkpoint stands.
    fn capture(&self) -> Result<()>;

    /// Makes the checkpoint that was begun durable, atomically. Stores may run beside it, and are no
    /// part of it.
    ///
    /// # Errors
    /// What the disk answers; the last checkpoint stands, or this one, and the next call goes on.
    fn complete(&self) -> Result<()>;

    /// Gives up what only a crash would have needed, after the last checkpoint.
    ///
    /// # Errors
    /// What the disk answers; the last checkpoint stands, and the next opening gives it up.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// What a store is worth here; never [`Domain::Auto`].
    fn domain(&self) -> Domain;
}
