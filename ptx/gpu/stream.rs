//! Streams: what is put on one is done in order.

use std::mem::ManuallyDrop;
use std::ptr;

use super::driver;
use super::driver::{Handle, STREAM_NON_BLOCKING, check};
use super::event::Event;
use crate::gpu::error::Result;

/// A stream, destroyed when it is dropped.
#[derive(Debug)]
pub struct Stream(Handle);

// SAFETY: the driver takes a stream's handle on any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of the current device that does not wait for the legacy default stream, nor lets it wait.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn new() -> Result<Self> {
        let mut stream = ptr::null_mut();
        // SAFETY: the driver writes the handle.
        let status =
            unsafe { driver::cuStreamCreateWithPriority(&mut stream, STREAM_NON_BLOCKING, 0) };
        check("making a stream (cuStreamCreateWithPriority)", status)?;
        Ok(Self(stream))
    }

    /// A stream of someone else's, who destroys it.
    pub fn of(handle: Handle) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self(handle))
    }

    /// The driver's handle.
    pub fn handle(&self) -> Handle {
        self.0
    }

    /// Waits until all that was put on the stream is done.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream is there.
        let status = unsafe { driver::cuStreamSynchronize(self.0) };
        check("waiting for the device (cuStreamSynchronize)", status)
    }

    /// Lets what comes next wait for an event of another stream.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: both are there. The event may go before the stream has come to it.
        let status = unsafe { driver::cuStreamWaitEvent(self.0, event.handle(), 0) };
        check("ordering two streams (cuStreamWaitEvent)", status)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is ours. What is on it is done all the same.
        let _ = unsafe { driver::cuStreamDestroy_v2(self.0) };
    }
}
