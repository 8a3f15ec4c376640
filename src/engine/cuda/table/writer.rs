//! What only one batch at a time may use, and whether it is known what the device has changed.

use parking_lot::MutexGuard;

use super::DeviceTable;
use super::bucket_cache::Cache;
use super::mirror::Mirror;
use super::record_pool::RecordPool;
use super::resize::Draining;
use crate::gpu::memory::DeviceMemory;
use crate::{Error, Result};

/// What only one batch at a time may use.
pub struct Writer {
    pub record_pool: RecordPool,
    pub mirror: Mirror,
    pub cache: Cache,
    /// One bit for each page of the file that was stored to since it was last saved; empty where
    /// stores need no checkpoint.
    pub dirty: DeviceMemory,
    pub draining: Draining,
    pub integrity: Integrity,
}

/// Whether it is known what the device has changed.
#[derive(Debug)]
pub enum Integrity {
    /// It is.
    Intact,
    /// The device is changing the table.
    InFlight,
    /// A call failed meanwhile, with this error. The table is recovered before it is changed again.
    Torn(Error),
}

impl Writer {
    /// Whether it is not known what the device has changed.
    pub fn is_torn(&self) -> bool {
        !matches!(self.integrity, Integrity::Intact)
    }

    /// Keeps the error of a call amid a change, for whoever comes before the table is recovered.
    pub fn keep_failure<T>(&mut self, answer: Result<T>) -> Result<T> {
        if let (Integrity::InFlight, Err(error)) = (&self.integrity, &answer) {
            self.integrity = Integrity::Torn(error.clone());
        }
        answer
    }
}

impl DeviceTable {
    /// The right to change the table.
    ///
    /// # Errors
    /// [`Error::Gpu`] if a change before has failed amid its work; then nothing was done.
    pub fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        // Of one lock alone, a thread with batch after batch would leave nothing to others.
        let _next = self.next_writer.lock();
        let writer = self.writer.lock();
        let found = match &writer.integrity {
            Integrity::Intact => return Ok(writer),
            Integrity::InFlight => "a change before that did not come to its end".into(),
            Integrity::Torn(error) => format!("a change before that failed: {error}"),
        };
        Err(Error::Gpu {
            what: "changing the table",
            found,
            expected: "try again: the table is recovered first".into(),
        })
    }
}
