//! The driver, found when the program runs.
//!
//! `cust` links `libcuda`, so a program that uses it would not even start on a machine without a
//! driver. Instead every function of the driver that `cust` and this engine call is defined here,
//! as a jump through a pointer. The pointers lead to [`absent`], which answers "no device", until
//! [`load`] finds a driver and points them into it.

#![allow(non_snake_case, non_upper_case_globals)]

use std::arch::naked_asm;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Names under which the driver is installed.
const LIBRARIES: [&CStr; 2] = [c"libcuda.so.1", c"libcuda.so"];

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;

/// Stands for every function that the driver does not have.
extern "C" fn absent() -> u32 {
    NO_DEVICE
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump_through {
    ($pointer:path) => {
        naked_asm!("jmp qword ptr [rip + {pointer}]", pointer = sym $pointer)
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump_through {
    ($pointer:path) => {
        naked_asm!(
            "adrp x16, {pointer}",
            "ldr x16, [x16, :lo12:{pointer}]",
            "br x16",
            pointer = sym $pointer
        )
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the CUDA engine runs on x86-64 and AArch64");

macro_rules! driver_functions {
    ($($name:ident)*) => {
        /// Where each function jumps to.
        mod pointers {
            use super::{AtomicPtr, absent, c_void};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(absent as *mut c_void);)*
        }

        $(
            /// The driver's function of this name. A jump leaves arguments and answer as they
            /// are, so the signature does not matter here; `cust` declares the true one.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                jump_through!(pointers::$name)
            }
        )*

        const FUNCTIONS: &[(&str, &AtomicPtr<c_void>)] =
            &[$((concat!(stringify!($name), "\0"), &pointers::$name)),*];
    };
}

driver_functions! {
    cuArray3DCreate_v2
    cuArray3DGetDescriptor_v2
    cuArrayDestroy
    cuCtxCreate_v2
    cuCtxDestroy_v2
    cuCtxGetApiVersion
    cuCtxGetCacheConfig
    cuCtxGetCurrent
    cuCtxGetDevice
    cuCtxGetFlags
    cuCtxGetLimit
    cuCtxGetSharedMemConfig
    cuCtxGetStreamPriorityRange
    cuCtxPopCurrent_v2
    cuCtxSetCacheConfig
    cuCtxSetCurrent
    cuCtxSetLimit
    cuCtxSetSharedMemConfig
    cuCtxSynchronize
    cuDestroyExternalMemory
    cuDeviceGet
    cuDeviceGetAttribute
    cuDeviceGetCount
    cuDeviceGetName
    cuDevicePrimaryCtxRelease_v2
    cuDevicePrimaryCtxReset_v2
    cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxSetFlags_v2
    cuDeviceTotalMem_v2
    cuDriverGetVersion
    cuEventCreate
    cuEventDestroy_v2
    cuEventElapsedTime
    cuEventQuery
    cuEventRecord
    cuEventSynchronize
    cuFuncGetAttribute
    cuFuncSetCacheConfig
    cuFuncSetSharedMemConfig
    cuGetErrorName
    cuGetErrorString
    cuGraphAddKernelNode
    cuGraphCreate
    cuGraphDestroy
    cuGraphExecDestroy
    cuGraphExecKernelNodeSetParams
    cuGraphInstantiateWithFlags
    cuGraphLaunch
    cuImportExternalMemory
    cuInit
    cuLaunchKernel
    cuLinkComplete
    cuLinkCreate_v2
    cuLinkDestroy
    cuMemAllocHost_v2
    cuMemAlloc_v2
    cuMemFreeHost
    cuMemFree_v2
    cuMemGetInfo_v2
    cuMemHostRegister_v2
    cuMemHostUnregister
    cuMemcpyDtoDAsync_v2
    cuMemcpyDtoHAsync_v2
    cuMemcpyDtoH_v2
    cuMemcpyHtoDAsync_v2
    cuMemcpyHtoD_v2
    cuMemsetD8Async
    cuModuleGetFunction
    cuModuleLoadData
    cuModuleLoadDataEx
    cuModuleUnload
    cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxPotentialBlockSize
    cuPointerGetAttributes
    cuStreamCreateWithPriority
    cuStreamDestroy_v2
    cuStreamGetFlags
    cuStreamGetPriority
    cuStreamSynchronize
    cuStreamWaitEvent
    cuSurfObjectCreate
    cuSurfObjectDestroy
    cuSurfObjectGetResourceDesc
    cuTexObjectCreate
    cuTexObjectDestroy
    cuTexObjectGetResourceDesc
}

/// Looks for the driver, once; says whether there is one.
pub fn load() -> bool {
    static LOADED: OnceLock<bool> = OnceLock::new();
    *LOADED.get_or_init(|| {
        // SAFETY: the names end in a zero byte. The driver's initializers may run on any thread.
        let library = LIBRARIES
            .into_iter()
            .map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
            .find(|library| !library.is_null());
        let Some(library) = library else {
            return false;
        };
        for (name, pointer) in FUNCTIONS {
            // SAFETY: the library is open and stays so; the name ends in a zero byte.
            let function = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
            if !function.is_null() {
                pointer.store(function, Ordering::Release);
            }
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use cust::error::CudaError;

    #[test]
    fn without_a_driver_every_call_says_that_there_is_no_device() {
        // On a machine with a driver this says nothing, and must not fail.
        if !super::load() {
            assert_eq!(
                cust::init(cust::CudaFlags::empty()),
                Err(CudaError::NoDevice)
            );
        }
    }
}
