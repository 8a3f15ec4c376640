//! The process that has opened something, and the children that it forks.
//!
//! A forked child has a copy of every handle, but none of the threads, and shares the file, its lock and its
//! journal with its parent. What it does with a copy must not disturb the parent.

use std::hash::{BuildHasher, RandomState};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::SystemTime;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::pool::parallel;
use crate::{Error, Result};

/// A number that nobody foresees, nor draws once more: for what files are told apart by. It is the system's own, as children
/// have copies of what a process draws numbers from. A thread may ask for it while its own data is being dropped.
pub(crate) fn random_number() -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(len) if len == bytes.len() => u64::from_ne_bytes(bytes),
        // Linux has it from 3.17 on; a filter of calls may refuse it.
        _ => RandomState::new().hash_one((Opener::this(), SystemTime::now())),
    }
}

/// Two of them.
pub(crate) fn random_id() -> [u64; 2] {
    [random_number(), random_number()]
}

/// How often this process, and those that it is a child of, have forked since something was opened first.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// What the system calls in each child that `fork` makes.
extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    parallel::note_fork();
}

/// Has forks counted from now on.
fn count_forks() {
    static ARE_COUNTED: AtomicBool = AtomicBool::new(false);
    // Others may do so, too: then a fork counts twice.
    if !ARE_COUNTED.load(Ordering::Acquire) {
        // SAFETY: the function lives as long as the process, and does what a child may do: it writes to its own memory.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        match refused {
            0 => ARE_COUNTED.store(true, Ordering::Release),
            _ => tracing::warn!(
                "no memory to tell children of their birth: they must not use handles of this process"
            ),
        }
    }
}

/// The process that has opened something.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Opener {
    pid: u32,
    forks: u32,
}

impl Opener {
    /// The process that calls.
    pub(crate) fn this() -> Self {
        count_forks();
        Self {
            pid: std::process::id(),
            forks: FORKS.load(Ordering::Relaxed),
        }
    }

    /// Refuses what would disturb it in a child that it has forked.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub(crate) fn check(self, path: &Path) -> Result<()> {
        Self::refuse_unless(self.is_here(), path)
    }

    /// As [`check`](Self::check), for verbs: without a system call, and not of children of whose birth the system does not
    /// tell (`clone` without `fork`).
    #[inline]
    fn check_forks(self, path: &Path) -> Result<()> {
        Self::refuse_unless(self.forks == FORKS.load(Ordering::Relaxed), path)
    }

    #[inline]
    fn refuse_unless(is_here: bool, path: &Path) -> Result<()> {
        match is_here {
            true => Ok(()),
            false => Err(Error::Forked {
                path: path.to_path_buf(),
            }),
        }
    }

    /// Whether this process is the one, not a child that it has forked.
    pub(crate) fn is_here(self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed) && self.pid == std::process::id()
    }
}

/// What only the process that made it gives up: a child leaks its copy.
#[derive(Debug)]
pub(crate) struct Own<T> {
    value: ManuallyDrop<T>,
    opener: Opener,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: ManuallyDrop::new(value),
            opener: Opener::this(),
        }
    }

    /// It, for a verb.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child of the process that made it.
    #[inline]
    pub(crate) fn here(&self, path: &Path) -> Result<&T> {
        self.opener.check_forks(path)?;
        Ok(&self.value)
    }

    /// The process that made it.
    pub(crate) fn opener(&self) -> Opener {
        self.opener
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Own<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.opener.is_here() {
            // SAFETY: nobody has the value after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
