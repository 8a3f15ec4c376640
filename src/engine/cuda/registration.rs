//! The file in the GPU's address space.

use cust::sys;

use super::device::check;
use crate::Result;

/// Parts of a mapped file that are pinned and mapped for the GPU, at the addresses that they have
/// for the process. Unregistered when dropped, which must be before the file is unmapped.
pub struct Registration {
    base: *mut u8,
    /// Ends of the registered parts, which lie one behind the other from `base` on.
    ends: Vec<usize>,
}

// SAFETY: the pointer is only handed to the driver, which takes it from any thread.
unsafe impl Send for Registration {}

// SAFETY: what takes `&self` does not even look at what the pointer leads to.
unsafe impl Sync for Registration {}

impl Registration {
    /// Nothing of the file at `base` yet.
    pub fn new(base: *mut u8) -> Self {
        Self {
            base,
            ends: Vec::new(),
        }
    }

    /// Bytes that the GPU can reach.
    pub fn len(&self) -> u64 {
        self.ends.last().map_or(0, |&end| end as u64)
    }

    /// Registers all bytes up to `len` that are not yet.
    ///
    /// # Safety
    /// The bytes must be mapped, and stay so for as long as this lives.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the driver refuses the memory; what was registered before stays.
    pub unsafe fn extend(&mut self, len: u64) -> Result<()> {
        let start = self.len() as usize;
        let len = len as usize;
        if len <= start {
            return Ok(());
        }
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let part = self.base.wrapping_add(start).cast();
        // SAFETY: the caller vouches for the bytes.
        let answer = unsafe { sys::cuMemHostRegister_v2(part, len - start, flags) };
        check("pinning the file for the GPU", answer)?;
        self.ends.push(len);
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut start = 0;
        for &end in &self.ends {
            // SAFETY: each part was registered from exactly this address. A failure means that
            // the context is gone, and the registration with it.
            let _ = unsafe { sys::cuMemHostUnregister(self.base.wrapping_add(start).cast()) };
            start = end;
        }
    }
}
