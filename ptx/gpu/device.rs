//! A GPU and its context.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr;

use crate::gpu::driver;
use crate::gpu::driver::{
    CAN_MAP_HOST_MEMORY, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR, DeviceHandle, Handle,
    MULTIPROCESSOR_COUNT, Status, UNIFIED_ADDRESSING, check,
};
use crate::gpu::error::{Error, Result};

/// Least compute capability: Volta, whose warps the kernels are written for.
const CAPABILITY_MIN: (i32, i32) = (7, 0);

/// An open GPU.
pub struct Device {
    context: Primary,
    name: String,
    processors: u32,
}

/// The device's primary context, which its other users have as well: retained once here, and released
/// once.
struct Primary {
    context: Handle,
    device: DeviceHandle,
}

// SAFETY: the driver takes a context's handle on any thread.
unsafe impl Send for Primary {}
// SAFETY: as above; nothing is changed through it.
unsafe impl Sync for Primary {}

impl Primary {
    fn retain(device: DeviceHandle) -> Result<Self> {
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes the handle.
        let answer = unsafe { driver::cuDevicePrimaryCtxRetain(&mut context, device) };
        check("opening the device (cuDevicePrimaryCtxRetain)", answer)?;
        Ok(Self { context, device })
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: it was retained once. Who else uses the context has retained it, too.
        let _ = unsafe { driver::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// The device is current for the calling thread until this is dropped; then what was current before is so
/// again.
#[must_use = "the device is left when this is dropped"]
pub struct Entered {
    pushed: bool,
    /// What is current is so for one thread.
    of_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.pushed {
            let mut left = ptr::null_mut();
            // SAFETY: the context was pushed by this thread.
            let mut pop = || unsafe { driver::cuCtxPopCurrent_v2(&mut left) };
            // The caller's context is not to stay hidden. A driver that fails twice is gone for good.
            if pop() != Status::SUCCESS {
                let _ = pop();
            }
        }
    }
}

impl Device {
    /// Opens the device with this ordinal; it is still to be [entered](Self::enter).
    ///
    /// # Errors
    /// [`Error`] if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32) -> Result<Self> {
        let refuse = |found: String, expected: &str| {
            Err(Error {
                what: "opening the device",
                found,
                expected: expected.into(),
            })
        };
        if !driver::is_there() {
            return refuse(
                "no driver (libcuda.so.1) on this machine".into(),
                "install the NVIDIA driver, or use Engine::Cpu",
            );
        }
        let count = count()?;
        let device = match c_int::try_from(ordinal) {
            Ok(device) if device < count => handle(device)?,
            _ => {
                return refuse(
                    format!("device {ordinal} asked of a machine with {count}"),
                    "give the ordinal of a device that is there, or use Engine::Cpu",
                );
            }
        };
        let capability = (
            attribute(device, COMPUTE_CAPABILITY_MAJOR)?,
            attribute(device, COMPUTE_CAPABILITY_MINOR)?,
        );
        let shared_addresses = attribute(device, UNIFIED_ADDRESSING)? != 0
            && attribute(device, CAN_MAP_HOST_MEMORY)? != 0;
        let processors = attribute(device, MULTIPROCESSOR_COUNT)?;
        let name = name(device)?;
        if capability < CAPABILITY_MIN {
            return refuse(
                format!(
                    "{name} of compute capability {}.{}",
                    capability.0, capability.1
                ),
                "compute capability 7.0 or later",
            );
        }
        if !shared_addresses {
            return refuse(
                format!("{name} cannot map host memory at its own addresses"),
                "a device with unified addressing",
            );
        }
        Ok(Self {
            context: Primary::retain(device)?,
            name,
            processors: processors.max(1).unsigned_abs(),
        })
    }

    /// Makes the device current for the calling thread for as long as what comes back lives; to be called
    /// before any other use.
    ///
    /// # Errors
    /// [`Error`].
    pub fn enter(&self) -> Result<Entered> {
        let mut current = ptr::null_mut();
        // SAFETY: the driver writes the handle.
        let answer = unsafe { driver::cuCtxGetCurrent(&mut current) };
        check("entering the device (cuCtxGetCurrent)", answer)?;
        let pushed = current != self.context.context;
        if pushed {
            // SAFETY: the context is retained for as long as the device is open.
            let answer = unsafe { driver::cuCtxPushCurrent_v2(self.context.context) };
            check("entering the device (cuCtxPushCurrent)", answer)?;
        }
        Ok(Entered {
            pushed,
            of_thread: PhantomData,
        })
    }

    /// What the device is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its multiprocessors.
    pub fn processors(&self) -> u32 {
        self.processors
    }
}

/// How many devices the driver shows.
fn count() -> Result<c_int> {
    // SAFETY: the flags must be zero, and are.
    match unsafe { driver::cuInit(0) } {
        // All of them may be hidden (CUDA_VISIBLE_DEVICES).
        Status::NO_DEVICE => return Ok(0),
        status => check("starting the driver (cuInit)", status)?,
    }
    let mut count = 0;
    // SAFETY: the driver writes the number.
    let status = unsafe { driver::cuDeviceGetCount(&mut count) };
    check("counting the devices (cuDeviceGetCount)", status)?;
    Ok(count)
}

fn handle(ordinal: c_int) -> Result<DeviceHandle> {
    let mut device = 0;
    // SAFETY: the driver writes the handle.
    let status = unsafe { driver::cuDeviceGet(&mut device, ordinal) };
    check("finding the device (cuDeviceGet)", status)?;
    Ok(device)
}

fn attribute(device: DeviceHandle, attribute: c_int) -> Result<c_int> {
    let mut value = 0;
    // SAFETY: the driver writes the value.
    let status = unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, device) };
    check(
        "asking the device what it can do (cuDeviceGetAttribute)",
        status,
    )?;
    Ok(value)
}

fn name(device: DeviceHandle) -> Result<String> {
    const LEN: c_int = 256;
    let mut name = [0_u8; LEN as usize];
    // SAFETY: the driver writes no more than it is told, a zero byte at the end.
    let status = unsafe { driver::cuDeviceGetName(name.as_mut_ptr().cast(), LEN, device) };
    check("asking the device for its name (cuDeviceGetName)", status)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"unnamed");
    Ok(name.to_string_lossy().into_owned())
}
