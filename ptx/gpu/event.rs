//! Events: points of a stream that others wait for.

use std::ptr;

use super::driver;
use super::driver::{EVENT_DISABLE_TIMING, Handle, Status, check};
use super::stream::Stream;
use crate::gpu::error::Result;

/// An event, destroyed when it is dropped.
#[derive(Debug)]
pub struct Event(Handle);

// SAFETY: the driver takes an event's handle on any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that notes no time, and has come to pass until it is recorded.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn new() -> Result<Self> {
        Self::with_flags(EVENT_DISABLE_TIMING)
    }

    /// An event that notes when it comes to pass.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn timed() -> Result<Self> {
        Self::with_flags(0)
    }

    fn with_flags(flags: u32) -> Result<Self> {
        let mut event = ptr::null_mut();
        // SAFETY: the driver writes the handle.
        let status = unsafe { driver::cuEventCreate(&mut event, flags) };
        check("making an event (cuEventCreate)", status)?;
        Ok(Self(event))
    }

    /// The driver's handle.
    pub fn handle(&self) -> Handle {
        self.0
    }

    /// Comes to pass when `stream` has done what is on it now.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are there.
        let status = unsafe { driver::cuEventRecord(self.0, stream.handle()) };
        check("recording an event (cuEventRecord)", status)
    }

    /// Whether it has come to pass, or cannot any more.
    pub fn is_done(&self) -> bool {
        // SAFETY: the event is there.
        unsafe { driver::cuEventQuery(self.0) != Status::NOT_READY }
    }

    /// Waits until it has come to pass.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event is there.
        let status = unsafe { driver::cuEventSynchronize(self.0) };
        check("waiting for an event (cuEventSynchronize)", status)
    }

    /// Milliseconds since `before`; both are timed and have come to pass.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn since(&self, before: &Self) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both are there; the driver writes the time.
        let status = unsafe { driver::cuEventElapsedTime(&mut milliseconds, before.0, self.0) };
        check("measuring the device (cuEventElapsedTime)", status)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is ours.
        let _ = unsafe { driver::cuEventDestroy_v2(self.0) };
    }
}
