//! A reserved range of addresses into which a file is mapped, at once or piece by piece, so that nothing
//! moves when the file grows.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::file::PmFile;
use crate::layout::{HUGE_PAGE, PAGE, align_up};
use crate::pool::limits;
use crate::width::to_usize;

/// Addresses of a process.
const ADDRESSES: u64 = 1 << 47;

/// Each file gets such a part of the addresses that are left: the first one 512 GiB, others 256 GiB, and after every
/// 256 files half as much. So a process can have thousands open.
const FILES_PER_HALVING: u64 = 256;

/// Where the process may have fewer, each file gets such a part of those that are left.
const FILES_PER_HALVING_IF_LIMITED: u64 = 16;

/// Addresses that this process has reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// A file may grow to at least this many times its length while it is open, if there are so many addresses.
const HEADROOM: u64 = 8;

/// The reserved range. Dropping it unmaps all that was mapped into it.
#[derive(Debug)]
pub struct Range {
    base: *mut u8,
    len: u64,
    /// Owns the addresses, some of which stand before the base for the sake of alignment.
    _addresses: MmapRaw,
}

// SAFETY: a range hands out addresses and changes mappings by calls that any thread may make;
// what is done with the addresses is up to those who do it.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

/// Bytes of addresses for a file of at least so many bytes, which is expected to grow. A process that may have so many
/// more and no others keeps half of them for what else it does.
fn wanted(least: u64, expected: u64, limited: Option<u64>) -> u64 {
    // Powers of two fit into the gaps of those that are given back.
    let power = |bytes: u64| 1 << bytes.max(HUGE_PAGE).ilog2();
    let unlimited = ADDRESSES.saturating_sub(RESERVED.load(Ordering::Relaxed));
    let (share, most) = match limited.filter(|&limited| limited < unlimited) {
        Some(left) => (left / FILES_PER_HALVING_IF_LIMITED, power(left / 2)),
        None => (unlimited / FILES_PER_HALVING, u64::MAX),
    };
    let grown = least.saturating_mul(HEADROOM).min(ADDRESSES);
    let expected = expected.min(ADDRESSES / 4).next_power_of_two();
    let len = grown.next_power_of_two().max(power(share)).max(expected);
    len.min(most).max(least)
}

/// How stores reach a mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All processes see them at once.
    Shared,
    /// The same, and a fence makes them durable (`MAP_SYNC`).
    Synchronous,
    /// They stay in this process.
    Private,
}

impl Drop for Range {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Range {
    /// Reserves addresses for a file of `file_len` bytes, expected to grow to `expected`, that is
    /// mapped in pieces of `unit` bytes, a power of two.
    ///
    /// # Errors
    /// What the operating system answers when even the file itself is too much.
    pub fn reserve(file_len: u64, expected: u64, unit: u64) -> io::Result<Self> {
        let align = unit.max(HUGE_PAGE);
        let least = align_up(file_len.max(1), align).min(ADDRESSES);
        let mut len = wanted(least, expected, limits::addresses_left());
        loop {
            match Self::try_reserve(len, align) {
                Err(_) if len > least => len = (len / 2).max(least),
                answer => return answer,
            }
        }
    }

    fn try_reserve(len: u64, align: u64) -> io::Result<Self> {
        let total = usize::try_from(len + align).map_err(io::Error::other)?;
        let range = MmapOptions::new().len(total).no_reserve_swap().map_anon()?;
        let addresses = MmapRaw::from(range);
        let first = addresses.as_mut_ptr();
        // SAFETY: the range is ours alone and nothing has been stored in it.
        if unsafe { libc::mprotect(first.cast(), total, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        RESERVED.fetch_add(len, Ordering::Relaxed);
        Ok(Self {
            base: first.map_addr(|address| to_usize(align_up(address as u64, align))),
            len,
            _addresses: addresses,
        })
    }

    /// Address of offset 0, aligned to 2 MiB at least.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes that the file can have.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Maps the bytes `from..to` of the file at their addresses.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn map(&self, file: &PmFile, from: u64, to: u64, sharing: Sharing) -> io::Result<()> {
        let flags = match sharing {
            Sharing::Shared => libc::MAP_SHARED,
            Sharing::Synchronous => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            // Private pages cost memory when they are stored to, not before.
            Sharing::Private => libc::MAP_PRIVATE | libc::MAP_NORESERVE,
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        file.before_map()?;
        self.map_fixed(from, to, access, flags, file.as_raw_fd(), from)
    }

    /// Maps zeros, private to this process, at the addresses of the bytes `from..to` of the file: what a
    /// file holds there that has just been made longer. Unlike pages of a file on a disk they can be
    /// huge: random access to a large table is bound by address translation.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn map_zeros(&self, file: &PmFile, from: u64, to: u64) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        file.before_map()?;
        self.map_fixed(from, to, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        self.advise(from, to, libc::MADV_HUGEPAGE);
        Ok(())
    }

    /// Takes the bytes `from..to` out of the range again; no one may have used them.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn unmap(&self, from: u64, to: u64) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.map_fixed(from, to, libc::PROT_NONE, flags, -1, 0)
    }

    fn map_fixed(
        &self,
        from: u64,
        to: u64,
        access: libc::c_int,
        flags: libc::c_int,
        descriptor: libc::c_int,
        offset: u64,
    ) -> io::Result<()> {
        assert!(from <= to && to <= self.len, "{from}..{to} of {}", self.len);
        if from == to {
            return Ok(());
        }
        // SAFETY: the assertion keeps the mapping inside the range, which is ours; callers only
        // replace what no one has a reference into.
        let address = unsafe {
            libc::mmap(
                self.base().wrapping_add(to_usize(from)).cast(),
                to_usize(to - from),
                access,
                flags | libc::MAP_FIXED,
                descriptor,
                offset.cast_signed(),
            )
        };
        match address {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Gives every page in `from..to` of a file in memory its memory. Backs the whole huge pages by
    /// huge ones, if the system has some, because address translation limits random access to a
    /// large table. Small pages do as well, so a failure is not reported.
    ///
    /// Only this call asks for them whatever the mount options of the tmpfs say; it wants at least
    /// one small page in each of them to begin with.
    pub fn gather(&self, file: &PmFile, from: u64, to: u64, threads: usize) {
        let (first, last) = whole(from, to, HUGE_PAGE);
        in_parts(first, last, threads, |first, last| {
            let mut whole = (first..last).step_by(to_usize(HUGE_PAGE));
            if whole.all(|at| file.allocate(at, at + PAGE).is_ok()) {
                self.advise(first, last, libc::MADV_COLLAPSE);
            }
            self.advise(first, last, libc::MADV_POPULATE_WRITE);
        });
        self.populate(from, first, 1);
        self.populate(last, to, 1);
    }

    /// Gives every page in `from..to` its memory, so that the first store there need not wait for
    /// it. A page for which there is none is left as it is.
    pub fn populate(&self, from: u64, to: u64, threads: usize) {
        in_parts(from, to, threads, |from, to| {
            self.advise(from, to, libc::MADV_POPULATE_WRITE);
        });
    }

    /// Gives the memory of what is whole in `from..to` back, in pieces of `unit` bytes private to this process. It
    /// holds then what the file does, or zeros where [zeros](Self::map_zeros) were mapped; nobody may use it meanwhile.
    pub fn discard(&self, from: u64, to: u64, unit: u64) {
        let (first, last) = whole(from, to, unit);
        self.advise(first, last, libc::MADV_DONTNEED);
    }

    fn advise(&self, from: u64, to: u64, advice: libc::c_int) {
        assert!(from <= to && to <= self.len, "{from}..{to} of {}", self.len);
        let start = self.base().wrapping_add(to_usize(from));
        // SAFETY: the addresses are ours. No such advice changes what their pages hold, but that of `discard`,
        // whose callers let nobody use them.
        unsafe { libc::madvise(start.cast(), to_usize(to - from), advice) };
    }
}

/// What is whole in `from..to` of pieces of `unit` bytes: the system takes one that is cut for whole, with its neighbour's
/// bytes.
fn whole(from: u64, to: u64, unit: u64) -> (u64, u64) {
    let first = align_up(from, unit).min(to);
    (first, (to / unit * unit).max(first))
}

/// Does `work` on `from..to`, in parts of whole huge pages that `threads` threads share.
fn in_parts(from: u64, to: u64, threads: usize, work: impl Fn(u64, u64) + Sync) {
    if from >= to {
        return;
    }
    let part = align_up((to - from).div_ceil(threads.max(1) as u64), HUGE_PAGE);
    std::thread::scope(|scope| {
        let mut parts = (from..to)
            .step_by(to_usize(part))
            .map(|first| (first, to.min(first + part)));
        let mine = parts.next();
        for (first, last) in parts {
            let work = &work;
            let run = move || work(first, last);
            if std::thread::Builder::new()
                .spawn_scoped(scope, run)
                .is_err()
            {
                run();
            }
        }
        if let Some((first, last)) = mine {
            work(first, last);
        }
    });
}

#[cfg(test)]
mod tests;
