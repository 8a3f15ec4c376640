//! The advisory lock that keeps a file from being open twice.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::{Error, Result};

/// How often a lock that someone else has is asked for again, and how long after the last time:
/// half a second in all. After the death of a process a GPU's driver may hold its files so long. A
/// child that another thread has just begun has all files until it becomes another program.
pub(super) const TRIES: u32 = 100;
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// Takes the lock of an open file to change it, once nobody else has it, if that is within half a
/// second. It is given up when the file is closed, also by the death of the process.
pub(super) fn take_exclusive(file: &File, path: &Path) -> Result<()> {
    take(|| file.try_lock(), || thread::sleep(PAUSE), path)
}

/// Takes it to read the file, beside other readers, once nobody changes it, if that is within
/// half a second.
pub(super) fn take_shared(file: &File, path: &Path) -> Result<()> {
    take(|| file.try_lock_shared(), || thread::sleep(PAUSE), path)
}

fn take(
    try_lock: impl Fn() -> std::result::Result<(), TryLockError>,
    mut pause: impl FnMut(),
    path: &Path,
) -> Result<()> {
    for _ in 0..TRIES {
        match try_lock() {
            Err(TryLockError::WouldBlock) => pause(),
            taken => return taken.map_err(|error| refusal(error, path)),
        }
    }
    try_lock().map_err(|error| refusal(error, path))
}

fn refusal(error: TryLockError, path: &Path) -> Error {
    match error {
        TryLockError::WouldBlock => Error::InUse {
            path: path.to_path_buf(),
        },
        TryLockError::Error(source) => Error::io(path, "lock", source),
    }
}

#[cfg(test)]
mod tests;
