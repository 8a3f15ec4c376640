//! A file in its persistence domain, mapped at one address for as long as it is open.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{io, ptr, slice};

use parking_lot::Mutex;
use static_assertions::const_assert_eq;

use super::address_range::{Range, Sharing};
use super::domain::FileSystem;
use super::file::{Faults, PmFile};
use super::journal::Journal;
use super::{Medium, Priority};
use crate::layout::PAGE;
use crate::pool::dirty_map::{self, DirtyMap};
use crate::pool::prefetch;
use crate::pool::write_back::WriteBack;
use crate::process::Opener;
use crate::width::to_usize;
use crate::{Domain, Error, Result};

mod checkpoint;
#[cfg(feature = "cuda")]
mod gather;
mod grow;
mod open;
#[cfg(test)]
mod tests;

use grow::Growth;

const_assert_eq!(PAGE, dirty_map::PAGE);

/// How a file is mapped.
#[derive(Debug, Clone, Default)]
pub struct MapOptions {
    /// The domain asked for.
    pub domain: Domain,
    /// Whether a file in memory passes for a DAX file.
    pub assume_dax: bool,
    /// Bytes to which a new file is expected to grow at least; addresses are reserved for them.
    pub expected_len: u64,
    /// Whether a file is opened although its journal is missing or damaged: it may be a mixture of two
    /// checkpoints then. For salvage alone.
    pub ignore_lost_journal: bool,
    /// What stands between the file and the operating system, in tests.
    pub faults: Option<Arc<dyn Faults>>,
}

/// A mapped file. Offset 0 is aligned to 2 MiB; growing moves nothing.
///
/// Every access is checked against [`len`](Medium::len): one outside of it is a broken invariant
/// of the index and stops the program.
///
/// Dropping it closes the file as it is: without a checkpoint, and without waiting for
/// write-backs.
#[derive(Debug)]
pub struct Mapping {
    range: Range,
    len: AtomicU64,
    /// Bytes of the file that are mapped, a multiple of the file system's unit. Changes under `growth`.
    mapped: AtomicU64,
    growth: Mutex<Growth>,
    /// Growths and checkpoints that wait for a running preallocation to let them go first.
    hurried: AtomicUsize,
    /// In `Checkpointed`: where stores are noted until they are saved.
    dirty: Option<DirtyMap>,
    /// In `Dax`: how stores become durable.
    write_back: Option<WriteBack>,
    pub(in crate::pm) journal: Mutex<Journal>,
    /// Why the journal that the file needs was not used.
    lost_journal: Option<Error>,
    domain: Domain,
    sharing: Sharing,
    access: Access,
    file_system: FileSystem,
    opener: Opener,
    pub(in crate::pm) file: Arc<PmFile>,
}

/// What may become of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// They reach the file as the domain says.
    Write,
    /// They never do.
    ReadOnly,
}

impl Mapping {
    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Address of offset 0. Bytes from here to [`len`](Medium::len) are mapped for as long as
    /// the mapping lives, each of them at its address for good.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.range.base()
    }

    /// Why the file's journal was not used, if it is missing or damaged: pages may be of two checkpoints.
    pub fn lost_journal(&self) -> Option<&Error> {
        self.lost_journal.as_ref()
    }

    /// Bytes that the file can have while it is open: the addresses reserved for it.
    pub fn reserved(&self) -> u64 {
        self.range.len()
    }

    /// Notes that `len` bytes from `at` on have been stored to past this type's methods, as a
    /// GPU does. Costs nothing where stores need no checkpoint.
    #[inline]
    pub fn mark_dirty(&self, at: u64, len: u64) {
        if let Some(dirty) = &self.dirty {
            dirty.mark(at, len);
        }
    }

    /// Notes pages that another processor has stored to. `words` has one bit a page, from page 64 ×
    /// `first_word` on. All of these pages are within [`len`](Medium::len), but for the rest of the
    /// last word.
    pub fn merge_dirty(&self, first_word: usize, words: &[u64]) {
        if let Some(dirty) = &self.dirty {
            dirty.merge(first_word, words);
        }
    }

    /// Bytes of the journal that a checkpoint would write once `more` pages have changed and the file has
    /// become longer by `growth` bytes; 0 where there is none.
    pub fn journal_bytes_with(&self, more: u64, growth: u64) -> u64 {
        let all = self.len().saturating_add(growth) / PAGE;
        match &self.dirty {
            None => 0,
            Some(dirty) => Journal::len_of(dirty.count().saturating_add(more).min(all)),
        }
    }

    /// Whether stores must be [noted](Self::mark_dirty) to be saved.
    #[inline]
    pub fn tracks_dirty(&self) -> bool {
        self.dirty.is_some()
    }

    /// Gives the pages from `from` to `to`, which are mapped, their frames in memory, as far as
    /// there is any to be had. Every page that is stored to gets one anyway; this is for who needs
    /// them all at once.
    #[cfg(feature = "cuda")]
    pub fn populate(&self, from: u64, to: u64, threads: usize) {
        if self.access == Access::Write {
            self.range.populate(from, to.min(self.prepared()), threads);
        }
    }

    fn opened_read_only(&self) -> Error {
        Error::ReadOnly {
            path: self.path().to_path_buf(),
            source: Arc::new(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it was opened for reading only",
            )),
        }
    }

    #[inline]
    fn bytes(&self, at: u64, len: u64) -> *mut u8 {
        let total = self.len();
        if at > total || len > total - at {
            out_of_reach(at, len, total);
        }
        self.range.base().wrapping_add(to_usize(at))
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        let address = self.bytes(at, 8);
        if !at.is_multiple_of(8) {
            out_of_reach(at, 8, self.len());
        }
        // SAFETY: the word is mapped for as long as `self` lives and aligned, because the base
        // is. Words are only ever reached through atomics; see `Medium` for byte ranges.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }
}

#[cold]
fn out_of_reach(at: u64, len: u64, total: u64) -> ! {
    panic!("access to {len} bytes at {at} of a file of {total}, or to a misaligned word");
}

impl Medium for Mapping {
    #[inline]
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    #[inline]
    fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, at: u64, word: u64) {
        self.word(at).store(word, Ordering::Release);
        self.mark_dirty(at, 8);
    }

    #[inline]
    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        let answer =
            self.word(at)
                .compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst);
        if answer.is_ok() {
            self.mark_dirty(at, 8);
        }
        answer
    }

    #[inline]
    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        let before = self.word(at).fetch_or(bits, Ordering::SeqCst);
        self.mark_dirty(at, 8);
        before
    }

    #[inline]
    fn read(&self, at: u64, bytes: &mut [u8]) {
        let from = self.bytes(at, bytes.len() as u64);
        // SAFETY: the source is mapped, the target is the caller's alone; callers of `Medium`
        // keep writes away from bytes that are being read.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    #[inline]
    fn show<R>(&self, at: u64, len: u64, read: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: as in `read`, until `read` returns.
        read(unsafe { slice::from_raw_parts(self.bytes(at, len), to_usize(len)) })
    }

    #[inline]
    fn write(&self, at: u64, bytes: &[u8]) {
        let to = self.bytes(at, bytes.len() as u64);
        // SAFETY: as in `read`, the other way round.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.mark_dirty(at, bytes.len() as u64);
    }

    #[inline]
    fn write_back(&self, at: u64, len: u64) {
        if let Some(write_back) = self.write_back {
            let start = self.bytes(at, len);
            // SAFETY: the bytes are mapped, and the instruction was asked for at opening.
            unsafe { write_back.range(start, to_usize(len)) };
        }
    }

    #[inline]
    fn fence(&self) {
        if let Some(write_back) = self.write_back {
            write_back.fence();
        }
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        prefetch::line(self.range.base().wrapping_add(to_usize(at)));
    }

    fn grow(&self, len: u64) -> Result<()> {
        self.grow_to(len)
    }

    fn prepare(&self, len: u64, priority: Priority) -> Result<()> {
        self.prepare_to(len, priority)
    }

    fn allocated(&self) -> Option<u64> {
        self.file.allocated().ok()
    }

    fn check_room(&self, len: u64) -> Result<()> {
        let more = len.saturating_sub(self.prepared());
        let checked = self.file.check_free_space(more);
        checked.map_err(|source| self.no_room(more, source))
    }

    #[inline]
    fn prepared(&self) -> u64 {
        self.mapped.load(Ordering::Acquire)
    }

    fn trim(&self) {
        self.cut_off();
    }

    fn release(&self, at: u64, len: u64) -> bool {
        self.release_to_system(at, len)
    }

    fn refill(&self, at: u64, len: u64) -> Result<()> {
        self.refill_from_system(at, len)
    }

    fn cut(&self, len: u64) {
        self.cut_to(len);
    }

    fn capture(&self) -> Result<()> {
        self.copy_changes()
    }

    fn complete(&self) -> Result<()> {
        self.save_copy()
    }

    fn finish(&self) -> Result<()> {
        let mut journal = self.journal.lock();
        if journal.is_unpublished() {
            return Ok(());
        }
        if self.dirty.is_none() {
            journal.disown(&self.file)?;
        }
        journal.close(&self.file)
    }

    #[inline]
    fn domain(&self) -> Domain {
        self.domain
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.opener.is_here() {
            return;
        }
        let mut journal = self.journal.lock();
        if journal.is_unpublished() {
            return self.file.discard();
        }
        // What stays is an idle journal, or one that the file needs.
        let _ = journal.close(&self.file);
    }
}
