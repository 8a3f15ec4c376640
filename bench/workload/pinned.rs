//! Values of the host that the device reaches, so that they need not be copied on their way.

use cust::context::{Context, CurrentContext};
use cust::device::Device;
use cust::sys;

use super::target::Failure;

/// Pins memory until it is dropped.
pub struct Pinned {
    at: *mut std::ffi::c_void,
    /// Current for the thread until then.
    _context: Context,
}

impl Pinned {
    /// Pins `values`, which must stay where they are, for the first device. That stays current for the thread: an index
    /// leaves the caller's context as it is.
    pub fn new<V>(values: &mut [V]) -> Result<Option<Self>, Failure> {
        if values.is_empty() {
            return Ok(None);
        }
        let context = Context::new(Device::get_device(0)?)?;
        CurrentContext::set_current(&context)?;
        let at = values.as_mut_ptr().cast();
        // SAFETY: the range is that of the values; the driver only keeps its pages where they are.
        let answer = unsafe { sys::cuMemHostRegister_v2(at, size_of_val(values), 0) };
        match answer {
            sys::CUresult::CUDA_SUCCESS => Ok(Some(Self {
                at,
                _context: context,
            })),
            answer => Err(format!("pinning values: {answer:?}").into()),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the range was pinned by `new`. Should that fail, the pages stay pinned.
        let _ = unsafe { sys::cuMemHostUnregister(self.at) };
    }
}
