//! Memory of the device and pinned memory of the host, and copies between them on a stream.

use std::sync::Arc;

use crate::gpu::budget::Quota;
use crate::gpu::driver;
use crate::gpu::driver::{
    POINTER_DEVICE_POINTER, POINTER_RANGE_SIZE, POINTER_RANGE_START, Status, check,
};
use crate::gpu::error::{Error, Result};
use crate::gpu::stream::Stream;

/// An address in the address space that the GPU and the process share.
pub type Address = u64;

/// A block of device memory, which counts against a quota.
pub struct DeviceMemory {
    address: Address,
    len: usize,
    quota: Arc<Quota>,
}

impl DeviceMemory {
    /// No bytes.
    pub fn empty(quota: &Arc<Quota>) -> Self {
        Self {
            address: 0,
            len: 0,
            quota: Arc::clone(quota),
        }
    }

    /// Allocates `len` bytes, whatever they hold. The device must have been entered.
    ///
    /// # Errors
    /// [`Error`] when the device has no such block left, or the quota.
    pub fn new(quota: &Arc<Quota>, len: usize) -> Result<Self> {
        let mut memory = Self::empty(quota);
        if len > 0 {
            if !quota.take(len) {
                return Err(Error {
                    what: "allocating device memory",
                    found: format!("{len} bytes, of which the budget leaves {}", quota.left()),
                    expected: "a larger device_memory_budget".into(),
                });
            }
            // From here on whoever drops it gives the bytes back.
            memory.len = len;
            // SAFETY: the driver writes the address.
            let answer = unsafe { driver::cuMemAlloc_v2(&mut memory.address, len) };
            check("allocating device memory (cuMemAlloc)", answer)?;
        }
        Ok(memory)
    }

    /// Makes room for at least `len` bytes; what the block held is lost if it was shorter.
    /// Nothing may be using it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        if self.len < len {
            // The old block goes first: there may not be room for both.
            *self = Self::empty(&self.quota);
            *self = Self::new(&self.quota, len.next_power_of_two())?;
        }
        Ok(())
    }

    /// Where the block is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.address != 0 {
            // SAFETY: the block is ours. A failure means that the context is gone, and it with it.
            let _ = unsafe { driver::cuMemFree_v2(self.address) };
        }
        self.quota.give_back(self.len);
    }
}

/// A block of host memory that the device copies from and to at full speed.
pub struct PinnedMemory {
    start: *mut u8,
    len: usize,
}

// SAFETY: the block belongs to the value alone.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// No bytes.
    pub const fn empty() -> Self {
        Self {
            start: std::ptr::null_mut(),
            len: 0,
        }
    }

    /// Allocates `len` bytes, all of them zero.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error) when the host cannot pin so much.
    pub fn new(len: usize) -> Result<Self> {
        let mut start = std::ptr::null_mut();
        // SAFETY: the driver writes the address.
        let answer = unsafe { driver::cuMemAllocHost_v2(&mut start, len) };
        check("allocating pinned memory (cuMemAllocHost)", answer)?;
        let start = start.cast::<u8>();
        // SAFETY: `len` bytes are ours from here on; zeroed, so that they may be read.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { start, len })
    }

    /// Makes room for at least `len` bytes; what the block held is lost if it was shorter.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        if self.len < len {
            // The old block goes first: there may not be room for both.
            *self = Self::empty();
            *self = Self::new(len.next_power_of_two())?;
        }
        Ok(())
    }

    /// Where the device has the block.
    pub fn address(&self) -> Address {
        self.start as Address
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `len` initialized bytes are ours. The device writes to them only between a
        // copy and the end of its stream, when the owner does not look.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes, to write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if !self.start.is_null() {
            // SAFETY: the block is ours.
            let _ = unsafe { driver::cuMemFreeHost(self.start.cast()) };
        }
    }
}

/// Whether the owner of these bytes of the host has pinned them, all at once, so that the device
/// copies them at full speed.
pub fn is_pinned(bytes: &[u8]) -> bool {
    let start = bytes.as_ptr() as Address;
    let (mut device, mut from, mut len) = (0u64, 0u64, 0usize);
    let mut attributes = [
        POINTER_DEVICE_POINTER,
        POINTER_RANGE_START,
        POINTER_RANGE_SIZE,
    ];
    let mut found = [
        (&raw mut device).cast(),
        (&raw mut from).cast(),
        (&raw mut len).cast(),
    ];
    // SAFETY: each attribute fills eight bytes, and leaves them zero where it does not know the
    // address.
    let answer = unsafe {
        driver::cuPointerGetAttributes(3, attributes.as_mut_ptr(), found.as_mut_ptr(), start)
    };
    let end = start + bytes.len() as u64;
    answer == Status::SUCCESS && device != 0 && from <= start && end <= from + len as u64
}

/// Copies `bytes` to device address `to`, in the order of `stream`.
///
/// # Safety
/// `to` must be an address of the current device with room for the bytes. These must stay as they are
/// until the stream has come past.
pub unsafe fn copy_in(stream: &Stream, to: Address, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller vouches for the room at `to`, and keeps `bytes` until the stream has come past.
    let answer = unsafe {
        driver::cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), stream.handle())
    };
    check("copying to the device (cuMemcpyHtoDAsync)", answer)
}

/// Copies `bytes.len()` bytes from device address `from`, in the order of `stream`.
///
/// # Safety
/// So many bytes must be at `from`, an address of the current device. `bytes` must stay, and nobody may
/// look at them, until the stream has come past.
pub unsafe fn copy_out(stream: &Stream, bytes: &mut [u8], from: Address) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller vouches for the bytes at `from`; nobody looks at `bytes` before the stream has come past.
    let answer = unsafe {
        driver::cuMemcpyDtoHAsync_v2(
            bytes.as_mut_ptr().cast(),
            from,
            bytes.len(),
            stream.handle(),
        )
    };
    check("copying from the device (cuMemcpyDtoHAsync)", answer)
}

/// Copies `len` bytes from one device address to another, in the order of `stream`.
///
/// # Safety
/// Both must be addresses of the current device with blocks as long, which do not overlap and stay until
/// the stream has come past.
pub unsafe fn copy_on_device(
    stream: &Stream,
    to: Address,
    from: Address,
    len: usize,
) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the caller vouches for both blocks, which do not overlap.
    let answer = unsafe { driver::cuMemcpyDtoDAsync_v2(to, from, len, stream.handle()) };
    check("copying on the device (cuMemcpyDtoDAsync)", answer)
}

/// Bytes of the device that are free.
///
/// # Errors
/// [`Error`](crate::gpu::error::Error).
pub fn free_memory() -> Result<u64> {
    memory().map(|(free, _)| free)
}

/// Bytes of the device that are free, and all of them.
///
/// # Errors
/// [`Error`](crate::gpu::error::Error).
pub fn memory() -> Result<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the driver writes both numbers.
    let answer = unsafe { driver::cuMemGetInfo_v2(&mut free, &mut total) };
    check("asking for free memory (cuMemGetInfo)", answer)?;
    Ok((free as u64, total as u64))
}

/// Fills `len` bytes at device address `to`, in the order of `stream`.
///
/// # Safety
/// `to` must be an address of the current device with room for the bytes, which stays until the stream has
/// come past.
pub unsafe fn fill(stream: &Stream, to: Address, byte: u8, len: usize) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the caller vouches for the room at `to`.
    let answer = unsafe { driver::cuMemsetD8Async(to, byte, len, stream.handle()) };
    check("filling device memory (cuMemsetD8Async)", answer)
}

/// Waits until `stream` has done all that was put on it.
pub fn wait(stream: &Stream) -> Result<()> {
    stream.wait()
}
