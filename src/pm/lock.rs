//! The advisory lock that keeps a file from being open twice.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::{Error, Result};

/// Takes the lock of an open file without waiting: exclusive to change it, shared to look at it.
/// It is given up when the file is closed, also by the death of the process.
pub(super) fn take(file: &File, exclusive: bool, path: &Path) -> Result<()> {
    let taken = if exclusive {
        file.try_lock()
    } else {
        file.try_lock_shared()
    };
    taken.map_err(|error| match error {
        TryLockError::WouldBlock => Error::InUse {
            path: path.to_path_buf(),
        },
        TryLockError::Error(source) => Error::io(path, "lock", source),
    })
}
