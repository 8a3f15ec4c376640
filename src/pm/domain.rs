//! Which persistence domain a file can have.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use super::file::PmFile;
use crate::layout::PAGE;
use crate::width::{low_half, to_usize};
use crate::{Domain, Error, Result};

/// What the file system under a file is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// The file lives in memory that all processes share: tmpfs, ramfs, hugetlbfs, memfd.
    pub in_memory: bool,
    /// Mapped stores become durable at a fence: `MAP_SYNC` works.
    pub sync: bool,
    /// The file can be written by calls, not only through a mapping (hugetlbfs cannot).
    pub writable: bool,
    /// Granularity of mappings and of the file's length in bytes, a power of two.
    pub unit: u64,
}

impl FileSystem {
    /// Asks the file system.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn of(file: &PmFile) -> Result<Self> {
        // SAFETY: statfs is plain data, for which zeros are a value.
        let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open, and `answer` outlives the call.
        if unsafe { libc::fstatfs(file.as_raw_fd(), &mut answer) } != 0 {
            return Err(Error::io(
                file.path(),
                "inspect the file system of",
                io::Error::last_os_error(),
            ));
        }
        let system = u64::from(low_half(answer.f_type.cast_unsigned()));
        let huge = system == HUGETLBFS;
        // SAFETY: sysconf only reads its argument.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
            .max(0)
            .cast_unsigned();
        let unit = if huge {
            answer.f_bsize.max(0).cast_unsigned()
        } else {
            page
        };
        Ok(Self {
            in_memory: huge || system == TMPFS || system == RAMFS,
            sync: can_sync(file),
            writable: !huge,
            unit: unit.max(PAGE),
        })
    }
}

const TMPFS: u64 = libc::TMPFS_MAGIC as u64;
const HUGETLBFS: u64 = libc::HUGETLBFS_MAGIC as u64 & 0xFFFF_FFFF;
const RAMFS: u64 = 0x8584_58F6;

/// Whether the kernel maps the file with `MAP_SYNC`, which only DAX files allow.
fn can_sync(file: &PmFile) -> bool {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    unsafe {
        let address = libc::mmap(
            ptr::null_mut(),
            to_usize(PAGE),
            libc::PROT_READ,
            libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            file.as_raw_fd(),
            0,
        );
        if address == libc::MAP_FAILED {
            return false;
        }
        libc::munmap(address, to_usize(PAGE));
    }
    true
}

/// The domain that a file of `file_system` gets when `wanted` is asked for. With `assume_dax`, a
/// file in memory passes for a DAX file.
///
/// # Errors
/// [`Error::Domain`] if the file cannot have the domain that was asked for by name.
pub fn choose(
    file: &PmFile,
    file_system: &FileSystem,
    wanted: Domain,
    assume_dax: bool,
) -> Result<Domain> {
    let refuse = |reason: &str| {
        Err(Error::Domain {
            path: file.path().to_path_buf(),
            wanted,
            reason: reason.into(),
        })
    };
    let flushes = cfg!(target_arch = "x86_64");
    let wants_dax = matches!(wanted, Domain::Auto | Domain::Dax);
    if wants_dax && assume_dax && !file_system.in_memory && !file_system.sync {
        return refuse("only a file on tmpfs, ramfs or hugetlbfs can pass for DAX; put it there");
    }
    let dax = flushes && (file_system.sync || assume_dax && file_system.in_memory);
    match wanted {
        Domain::Auto if dax => Ok(Domain::Dax),
        Domain::Auto if file_system.in_memory => Ok(Domain::Shared),
        Domain::Checkpointed if !file_system.writable => {
            refuse("a file on hugetlbfs cannot be written page by page; ask for shared")
        }
        Domain::Auto | Domain::Checkpointed => Ok(Domain::Checkpointed),
        Domain::Dax if dax => Ok(Domain::Dax),
        Domain::Dax if !flushes => refuse("it needs an x86-64 CPU; ask for auto or checkpointed"),
        Domain::Dax => refuse(
            "the file system does not map it with MAP_SYNC; put it on a file system mounted \
             with -o dax on persistent memory, or ask for auto",
        ),
        Domain::Shared if file_system.in_memory => Ok(Domain::Shared),
        Domain::Shared => refuse(
            "the file is not in memory; put it on tmpfs (/dev/shm) or hugetlbfs, or ask for \
             checkpointed",
        ),
    }
}
