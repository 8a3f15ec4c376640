//! The driver (`libcuda.so.1`), found when the program runs. All calls of it are here.
//!
//! Nothing of it is needed to build, and a program starts on a machine without one. There every call
//! answers [`Status::NO_DEVICE`]. A function that a driver does not have answers [`Status::NOT_FOUND`].

// Names and arguments are the driver's.
#![allow(non_snake_case, clippy::too_many_arguments)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use crate::gpu::error::{Error, Result};

/// Names under which the driver is installed.
const LIBRARIES: [&CStr; 2] = [c"libcuda.so.1", c"libcuda.so"];

/// What a call answers (`CUresult`).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(c_uint);

impl Status {
    pub const SUCCESS: Self = Self(0);
    pub const OUT_OF_MEMORY: Self = Self(2);
    pub const NO_DEVICE: Self = Self(100);
    pub const UNSUPPORTED_PTX_VERSION: Self = Self(222);
    pub const NOT_FOUND: Self = Self(500);
    pub const NOT_READY: Self = Self(600);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = ptr::null();
        // SAFETY: the driver writes the address of a name that stays.
        let found = unsafe { cuGetErrorName(*self, &mut name) };
        if found != Self::SUCCESS || name.is_null() {
            return write!(f, "CUDA error {}", self.0);
        }
        // SAFETY: as above; names end in a zero byte.
        let name = unsafe { CStr::from_ptr(name) };
        f.write_str(&name.to_string_lossy())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address in the GPU's address space (`CUdeviceptr`).
pub type DeviceAddress = u64;

/// The driver's handles.
pub type Handle = *mut c_void;

/// `CUdevice`.
pub type DeviceHandle = c_int;

/// Attributes of a device (`CUdevice_attribute`).
pub const MULTIPROCESSOR_COUNT: c_int = 16;
pub const CAN_MAP_HOST_MEMORY: c_int = 19;
pub const UNIFIED_ADDRESSING: c_int = 41;
pub const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub const COMPUTE_CAPABILITY_MINOR: c_int = 76;

/// Attributes of an address (`CUpointer_attribute`).
pub const POINTER_DEVICE_POINTER: c_uint = 3;
pub const POINTER_RANGE_START: c_uint = 11;
pub const POINTER_RANGE_SIZE: c_uint = 12;

/// Flags of a stream that does not wait for the legacy default stream (`CUstream_flags`).
pub const STREAM_NON_BLOCKING: c_uint = 1;

/// Flags of an event that notes no time (`CUevent_flags`).
pub const EVENT_DISABLE_TIMING: c_uint = 2;

/// Flags of registered memory: for all contexts, and in the GPU's address space.
pub const REGISTER_PORTABLE: c_uint = 1;
pub const REGISTER_DEVICE_MAP: c_uint = 2;

/// `CUDA_KERNEL_NODE_PARAMS` of the functions without `_v2`.
#[repr(C)]
pub struct KernelNodeParameters {
    pub function: Handle,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub parameters: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

static_assertions::assert_eq_size!(KernelNodeParameters, [u64; 7]);

macro_rules! driver_functions {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// Where each function is.
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> Status,)*
        }

        impl Functions {
            /// Those that `find` finds; `MISSING` for the others, a [`Status`].
            fn found<const MISSING: c_uint>(find: impl Fn(&CStr) -> *mut c_void) -> Self {
                $(
                    extern "C" fn $name<const MISSING: c_uint>($(_: $type),*) -> Status {
                        Status(MISSING)
                    }
                )*
                Self {
                    $($name: {
                        const NAME: &CStr = symbol(concat!(stringify!($name), "\0"));
                        let found = find(NAME);
                        if found.is_null() {
                            $name::<MISSING>
                        } else {
                            // SAFETY: the driver's function of this name has this signature.
                            unsafe {
                                std::mem::transmute::<
                                    *mut c_void,
                                    unsafe extern "C" fn($($type),*) -> Status,
                                >(found)
                            }
                        }
                    },)*
                }
            }
        }

        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            /// The driver's manual says what the function asks of its arguments.
            pub unsafe fn $name($($argument: $type),*) -> Status {
                // SAFETY: the function found has this signature, and the caller keeps to its manual. One
                // that was not found does nothing.
                unsafe { (driver().functions.$name)($($argument),*) }
            }
        )*
    };
}

/// A name as the dynamic linker takes it.
const fn symbol(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends in its only zero byte"),
    }
}

driver_functions! {
    fn cuGetErrorName(error: Status, name: *mut *const c_char);
    fn cuInit(flags: c_uint);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGet(device: *mut DeviceHandle, ordinal: c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: DeviceHandle);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: DeviceHandle);
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: DeviceHandle);
    fn cuDevicePrimaryCtxRelease_v2(device: DeviceHandle);
    fn cuCtxGetCurrent(context: *mut Handle);
    fn cuCtxSetCurrent(context: Handle);
    fn cuCtxPushCurrent_v2(context: Handle);
    fn cuCtxPopCurrent_v2(context: *mut Handle);
    fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(stream: Handle);
    fn cuStreamSynchronize(stream: Handle);
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    fn cuEventCreate(event: *mut Handle, flags: c_uint);
    fn cuEventDestroy_v2(event: Handle);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuEventQuery(event: Handle);
    fn cuEventSynchronize(event: Handle);
    fn cuEventElapsedTime(milliseconds: *mut f32, begin: Handle, end: Handle);
    fn cuMemAlloc_v2(address: *mut DeviceAddress, len: usize);
    fn cuMemFree_v2(address: DeviceAddress);
    fn cuMemAllocHost_v2(start: *mut *mut c_void, len: usize);
    fn cuMemFreeHost(start: *mut c_void);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemHostRegister_v2(start: *mut c_void, len: usize, flags: c_uint);
    fn cuMemHostUnregister(start: *mut c_void);
    fn cuPointerGetAttributes(
        count: c_uint,
        attributes: *mut c_uint,
        values: *mut *mut c_void,
        address: DeviceAddress,
    );
    fn cuMemcpyHtoDAsync_v2(to: DeviceAddress, from: *const c_void, len: usize, stream: Handle);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: DeviceAddress, len: usize, stream: Handle);
    fn cuMemcpyDtoDAsync_v2(to: DeviceAddress, from: DeviceAddress, len: usize, stream: Handle);
    fn cuMemsetD8Async(to: DeviceAddress, byte: u8, len: usize, stream: Handle);
    fn cuModuleLoadDataEx(
        module: *mut Handle,
        image: *const c_void,
        count: c_uint,
        options: *mut c_int,
        values: *mut *mut c_void,
    );
    fn cuModuleUnload(module: Handle);
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    fn cuGraphCreate(graph: *mut Handle, flags: c_uint);
    fn cuGraphDestroy(graph: Handle);
    fn cuGraphAddKernelNode(
        node: *mut Handle,
        graph: Handle,
        before: *const Handle,
        count: usize,
        parameters: *const KernelNodeParameters,
    );
    fn cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64);
    fn cuGraphExecDestroy(executable: Handle);
    fn cuGraphExecKernelNodeSetParams(
        executable: Handle,
        node: Handle,
        parameters: *const KernelNodeParameters,
    );
    fn cuGraphLaunch(executable: Handle, stream: Handle);
}

struct Driver {
    functions: Functions,
    is_there: bool,
}

/// The driver, looked for by the first call.
fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let library = LIBRARIES
            .into_iter()
            // SAFETY: the names end in a zero byte. The driver's initializers may run on any thread.
            .map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
            .find(|library| !library.is_null());
        let functions = match library {
            None => Functions::found::<{ Status::NO_DEVICE.0 }>(|_| ptr::null_mut()),
            Some(library) => Functions::found::<{ Status::NOT_FOUND.0 }>(|name| {
                // SAFETY: the library is open and stays so; the name ends in a zero byte.
                unsafe { libc::dlsym(library, name.as_ptr()) }
            }),
        };
        Driver {
            functions,
            is_there: library.is_some(),
        }
    })
}

/// Whether this machine has a driver.
pub fn is_there() -> bool {
    driver().is_there
}

/// The crate's error for an answer of the driver, if it is one.
///
/// # Errors
/// [`Error`].
pub fn check(what: &'static str, status: Status) -> Result<()> {
    let expected = match status {
        Status::SUCCESS => return Ok(()),
        Status::OUT_OF_MEMORY => {
            "more free memory; Options::device_mirror(false) needs less of the device"
        }
        Status::NO_DEVICE => "a CUDA device; without one use Engine::Cpu",
        Status::UNSUPPORTED_PTX_VERSION | Status::NOT_FOUND => {
            "a driver of the 550 series or later"
        }
        _ => "a device and a driver in working order",
    };
    Err(Error {
        what,
        found: status.to_string(),
        expected: expected.into(),
    })
}

#[cfg(test)]
mod tests;
