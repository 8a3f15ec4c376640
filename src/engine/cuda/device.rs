//! A GPU and its context.

use cust::CudaFlags;
use cust::context::{Context, CurrentContext};
use cust::device::DeviceAttribute;
use cust::error::CudaError;
use cust::sys;

use super::driver;
use crate::{Error, Result};

/// Least compute capability: Volta, whose warps the kernels are written for.
const LEAST_CAPABILITY: (i32, i32) = (7, 0);

/// An open GPU.
pub struct Device {
    context: Context,
    name: String,
    processors: u32,
}

impl Device {
    /// Opens the device with this ordinal and makes it current for the calling thread.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32) -> Result<Self> {
        let refuse = |found: String, expected: &str| {
            Err(Error::Gpu {
                what: "opening the device",
                found,
                expected: expected.into(),
            })
        };
        if !driver::load() {
            return refuse(
                "no driver (libcuda.so.1) on this machine".into(),
                "install the NVIDIA driver, or use Engine::Cpu",
            );
        }
        cust::init(CudaFlags::empty()).map_err(|error| failed("starting the driver", error))?;
        let count = cust::device::Device::num_devices()
            .map_err(|error| failed("counting the devices", error))?;
        if ordinal >= count {
            return refuse(
                format!("device {ordinal} asked of a machine with {count}"),
                "give the ordinal of a device that is there, or use Engine::Cpu",
            );
        }
        let opened = (|| {
            let device = cust::device::Device::get_device(ordinal)?;
            let capability = (
                device.get_attribute(DeviceAttribute::ComputeCapabilityMajor)?,
                device.get_attribute(DeviceAttribute::ComputeCapabilityMinor)?,
            );
            let shared_addresses = device.get_attribute(DeviceAttribute::UnifiedAddressing)? != 0
                && device.get_attribute(DeviceAttribute::CanMapHostMemory)? != 0;
            let processors = device.get_attribute(DeviceAttribute::MultiprocessorCount)?;
            Ok((
                device,
                device.name()?,
                capability,
                shared_addresses,
                processors,
            ))
        })();
        let (device, name, capability, shared_addresses, processors) =
            opened.map_err(|error| failed("asking the device for its properties", error))?;
        if capability < LEAST_CAPABILITY {
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
        let context = Context::new(device).map_err(|error| failed("opening the device", error))?;
        Ok(Self {
            context,
            name,
            processors: processors.max(1) as u32,
        })
    }

    /// Makes the device current for the calling thread; to be called before any other use.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn enter(&self) -> Result<()> {
        CurrentContext::set_current(&self.context)
            .map_err(|error| failed("entering the device", error))
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

/// The crate's error for an answer of the driver.
pub fn failed(what: &'static str, error: CudaError) -> Error {
    answered(what, error as u32, format!("{error:?}"))
}

/// The error for an answer to a direct call of the driver, if it is one.
pub fn check(what: &'static str, answer: sys::CUresult) -> Result<()> {
    match answer {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        answer => Err(answered(what, answer as u32, format!("{answer:?}"))),
    }
}

fn answered(what: &'static str, code: u32, found: String) -> Error {
    const OUT_OF_MEMORY: u32 = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
    const NO_DEVICE: u32 = sys::CUresult::CUDA_ERROR_NO_DEVICE as u32;
    const UNSUPPORTED_PTX: u32 = sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as u32;
    let expected = match code {
        OUT_OF_MEMORY => "more free memory; Options::device_mirror(false) needs less of the device",
        NO_DEVICE => "a CUDA device; without one use Engine::Cpu",
        UNSUPPORTED_PTX => "a driver of the 550 series or later",
        _ => "a device and a driver in working order",
    };
    Error::Gpu {
        what,
        found,
        expected: expected.into(),
    }
}
