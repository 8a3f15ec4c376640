//! Slices and streams of the caller's in the memory of a GPU, for the verbs on them: see
//! [`Index::get_device`](crate::Index::get_device) and those beside it.
//!
//! They are made from raw addresses and handles, whichever library they come from, or with the feature
//! `cust` from that crate's types:
//!
//! ```no_run
//! # fn main() -> Result<(), gphash::Error> {
//! use gphash::device::{DeviceSlice, DeviceSliceMut, Stream, answer_words};
//! use gphash::{Engine, Index, Options};
//!
//! # let (stream, keys_at, values_at, answers_at) = (std::ptr::null_mut(), 0, 0, 0);
//! let options = Options::new().engine(Engine::Cuda { device: 0 });
//! let index = Index::<u64, u32>::open_or_create("counters", &options)?;
//! let len = 1000;
//! // SAFETY: the addresses are those of as long blocks in the primary context of device 0, which nobody
//! // else uses, and the stream is of that context; all of them outlive the call.
//! unsafe {
//!     index.get_device(
//!         Stream::from_raw(stream),
//!         DeviceSlice::from_raw(keys_at, len),
//!         DeviceSliceMut::from_raw(values_at, len),
//!         DeviceSliceMut::from_raw(answers_at, answer_words(len)),
//!     )?;
//! }
//! # Ok(())
//! # }
//! ```

use std::ffi::c_void;
use std::marker::PhantomData;

use crate::gpu::driver::DeviceAddress;

/// Words of answers of a batch of `len` operations: bit *i* mod 64 of word *i* / 64 is the answer
/// of operation *i*.
pub const fn answer_words(len: usize) -> usize {
    len.div_ceil(64)
}

/// Memory of a device, borrowed as `B` says: a [`DeviceSlice`] or a [`DeviceSliceMut`].
#[derive(Debug, Clone, Copy)]
pub struct DeviceMemory<B> {
    address: DeviceAddress,
    len: usize,
    borrow: PhantomData<B>,
}

/// Values in device memory, which are read.
pub type DeviceSlice<'s, T> = DeviceMemory<&'s [T]>;

/// Values in device memory, which are written. They need not be initialized.
pub type DeviceSliceMut<'s, T> = DeviceMemory<&'s mut [T]>;

impl<B> DeviceMemory<B> {
    /// The `len` values from a device address (`CUdeviceptr`) on.
    ///
    /// # Safety
    /// They must be memory of the primary context of the device that it is used on, and stay so for as
    /// long as this lives. Meanwhile
    ///
    /// - keys and answers must be aligned to 8 bytes, which the verbs check;
    /// - those of a [`DeviceSlice`] must be values of their type, which nobody changes;
    /// - nobody else may use those of a [`DeviceSliceMut`].
    pub const unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self {
            address,
            len,
            borrow: PhantomData,
        }
    }

    /// Where the first value is.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many values there are, or there is room for.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A stream of the caller's.
#[derive(Debug, Clone, Copy)]
pub struct Stream<'s> {
    handle: *mut c_void,
    stream: PhantomData<&'s ()>,
}

impl Stream<'_> {
    /// The stream with this handle (`CUstream`); null is the legacy default stream, and `CU_STREAM_PER_THREAD` that of
    /// the thread that calls.
    ///
    /// # Safety
    /// It must be a stream of the primary context of the device that it is used on, for as long as this
    /// lives, and until the lookups on it are done.
    pub const unsafe fn from_raw(handle: *mut c_void) -> Self {
        Self {
            handle,
            stream: PhantomData,
        }
    }

    /// The driver's handle.
    pub const fn handle(&self) -> *mut c_void {
        self.handle
    }
}

#[cfg(feature = "cust")]
impl<'s, T: cust::memory::DeviceCopy> From<&'s cust::memory::DeviceSlice<T>>
    for DeviceSlice<'s, T>
{
    fn from(slice: &'s cust::memory::DeviceSlice<T>) -> Self {
        // SAFETY: cust's slice is of such memory. The borrow keeps it alive and unchanged.
        unsafe { Self::from_raw(slice.as_device_ptr().as_raw(), slice.len()) }
    }
}

#[cfg(feature = "cust")]
impl<'s, T: cust::memory::DeviceCopy> From<&'s mut cust::memory::DeviceSlice<T>>
    for DeviceSliceMut<'s, T>
{
    fn from(slice: &'s mut cust::memory::DeviceSlice<T>) -> Self {
        // SAFETY: cust's slice is of such memory. The exclusive borrow keeps it alive, and others away.
        unsafe { Self::from_raw(slice.as_device_ptr().as_raw(), slice.len()) }
    }
}

#[cfg(feature = "cust")]
impl<'s> From<&'s cust::stream::Stream> for Stream<'s> {
    fn from(stream: &'s cust::stream::Stream) -> Self {
        // SAFETY: cust's stream is of such a context. The borrow keeps it alive.
        unsafe { Self::from_raw(stream.as_inner().cast()) }
    }
}
