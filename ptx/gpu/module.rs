//! Modules of kernels.

use std::ffi::CString;
use std::ptr;

use super::driver;
use super::driver::{Handle, check};
use crate::gpu::error::{Error, Result};

/// Compiled kernels, unloaded when dropped.
#[derive(Debug)]
pub struct Module(Handle);

// SAFETY: the driver takes a module's handle on any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a module, which stays loaded as long as whoever launches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(pub Handle);

// SAFETY: the driver takes a kernel's handle on any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads PTX into the current context.
    ///
    /// # Errors
    /// [`Error`] if the driver is too old for it.
    pub fn load(ptx: &str) -> Result<Self> {
        const LOAD: &str = "loading the kernels (cuModuleLoadDataEx)";
        let ptx = text(LOAD, ptx)?;
        let mut module = ptr::null_mut();
        // SAFETY: the text ends in a zero byte; there are no options.
        let status = unsafe {
            let (options, values) = (ptr::null_mut(), ptr::null_mut());
            driver::cuModuleLoadDataEx(&mut module, ptx.as_ptr().cast(), 0, options, values)
        };
        check(LOAD, status)?;
        Ok(Self(module))
    }

    /// The kernel of this name.
    ///
    /// # Errors
    /// [`Error`].
    pub fn function(&self, name: &str) -> Result<Function> {
        const FIND: &str = "finding a kernel (cuModuleGetFunction)";
        let name = text(FIND, name)?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, and the name ends in a zero byte.
        let status = unsafe { driver::cuModuleGetFunction(&mut function, self.0, name.as_ptr()) };
        check(FIND, status)?;
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the module is ours, and none of its kernels runs.
        let _ = unsafe { driver::cuModuleUnload(self.0) };
    }
}

fn text(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error {
        what,
        found: error.to_string(),
        expected: "text without zero bytes".into(),
    })
}
