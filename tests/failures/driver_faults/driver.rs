//! The emulated driver, told which of its calls fail.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::path::Path;
use std::sync::OnceLock;

use gphash_test_support::compiler::compile;

/// Which calls fail.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    first: u64,
    last: u64,
    is_lost: bool,
}

impl Fault {
    pub const NEVER: Self = Self {
        first: u64::MAX,
        last: u64::MAX,
        is_lost: false,
    };

    /// This one.
    pub fn once(call: u64) -> Self {
        Self {
            first: call,
            last: call + 1,
            is_lost: false,
        }
    }

    /// All from this one on; if it is a launch, it is accepted and does nothing.
    pub fn for_good(call: u64) -> Self {
        Self {
            first: call,
            last: u64::MAX,
            is_lost: true,
        }
    }

    pub fn is_for_good(&self) -> bool {
        self.last == u64::MAX && self.first != u64::MAX
    }
}

/// The driver, loaded for the life of the program.
pub struct Driver {
    fail: extern "C" fn(u64, u64, c_int),
    calls: extern "C" fn() -> u64,
    failures: extern "C" fn() -> u64,
    failed: extern "C" fn() -> *const c_char,
    strays: extern "C" fn() -> u64,
    retained: extern "C" fn() -> c_long,
    serialized: extern "C" fn() -> u64,
    unfinished: extern "C" fn(*mut c_void) -> u64,
    retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    release: extern "C" fn(c_int) -> c_int,
    allocate: extern "C" fn(*mut u64, usize) -> c_int,
    free: extern "C" fn(u64) -> c_int,
    make_stream: extern "C" fn(*mut *mut c_void, u32, c_int) -> c_int,
    get_current: extern "C" fn(*mut *mut c_void) -> c_int,
    set_current: extern "C" fn(*mut c_void) -> c_int,
}

impl Driver {
    /// Compiles it and loads it, once. No index may have opened a device before.
    pub fn get() -> &'static Self {
        static LOADED: OnceLock<Driver> = OnceLock::new();
        LOADED.get_or_init(|| {
            // Who looks for a library of this name is given the one that is loaded.
            let options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
            let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda-faults.so");
            compile("ptx/emulator/driver.cpp", &library, &options);
            let path = CString::new(library.to_str().unwrap()).unwrap();
            // SAFETY: the path ends in a zero byte. The library has no initializers but those of its
            // own tables.
            let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            assert!(!loaded.is_null(), "{path:?} does not load");
            let find = |name: &CStr| {
                // SAFETY: the library is open, and the name ends in a zero byte.
                let function = unsafe { libc::dlsym(loaded, name.as_ptr()) };
                assert!(!function.is_null(), "{name:?} is not there");
                function
            };
            // SAFETY: this is how driver.cpp defines them.
            unsafe {
                Driver {
                    fail: std::mem::transmute::<*mut c_void, extern "C" fn(u64, u64, c_int)>(find(
                        c"gphash_emulation_fail",
                    )),
                    calls: number(find(c"gphash_emulation_calls")),
                    failures: number(find(c"gphash_emulation_failures")),
                    failed: std::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_char>(
                        find(c"gphash_emulation_failed"),
                    ),
                    strays: number(find(c"gphash_emulation_strays")),
                    retained: std::mem::transmute::<*mut c_void, extern "C" fn() -> c_long>(find(
                        c"gphash_emulation_retained",
                    )),
                    serialized: number(find(c"gphash_emulation_serialized")),
                    unfinished: std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(*mut c_void) -> u64,
                    >(find(c"gphash_emulation_unfinished")),
                    retain: std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(*mut *mut c_void, c_int) -> c_int,
                    >(find(c"cuDevicePrimaryCtxRetain")),
                    release: std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(
                        find(c"cuDevicePrimaryCtxRelease_v2"),
                    ),
                    allocate: std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(*mut u64, usize) -> c_int,
                    >(find(c"cuMemAlloc_v2")),
                    free: std::mem::transmute::<*mut c_void, extern "C" fn(u64) -> c_int>(find(
                        c"cuMemFree_v2",
                    )),
                    make_stream: std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(*mut *mut c_void, u32, c_int) -> c_int,
                    >(find(c"cuStreamCreateWithPriority")),
                    get_current: std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(*mut *mut c_void) -> c_int,
                    >(find(c"cuCtxGetCurrent")),
                    set_current: std::mem::transmute::<
                        *mut c_void,
                        extern "C" fn(*mut c_void) -> c_int,
                    >(find(c"cuCtxSetCurrent")),
                }
            }
        })
    }

    /// Counts calls from here on, and lets some of them fail.
    pub fn arm(&self, fault: Fault) {
        (self.fail)(fault.first, fault.last, fault.is_lost.into());
    }

    /// Calls since then.
    pub fn calls(&self) -> u64 {
        (self.calls)()
    }

    /// Those of them that failed.
    pub fn failures(&self) -> u64 {
        (self.failures)()
    }

    /// The name of the last one, as the manuals have it.
    pub fn failed(&self) -> String {
        // SAFETY: the driver gives a name that stays.
        let name = unsafe { CStr::from_ptr((self.failed)()) };
        let name = name.to_str().unwrap();
        name.strip_suffix("_v2").unwrap_or(name).into()
    }

    /// Launches so far that were told of memory which the device does not reach.
    pub fn strays(&self) -> u64 {
        (self.strays)()
    }

    /// The calling thread's context.
    pub fn current(&self) -> *mut c_void {
        let mut current = std::ptr::null_mut();
        assert_eq!((self.get_current)(&mut current), 0);
        current
    }

    /// Gives the calling thread a context.
    pub fn set_current(&self, context: *mut c_void) {
        assert_eq!((self.set_current)(context), 0);
    }

    /// Calls so far that waited for the legacy default stream, or let it wait.
    pub fn serialized(&self) -> u64 {
        (self.serialized)()
    }

    /// How much was put on a stream that nobody has waited for.
    pub fn unfinished(&self, stream: *mut c_void) -> u64 {
        (self.unfinished)(stream)
    }

    /// Retains the primary context, as a caller with memory of its own does.
    pub fn retain(&self) {
        let mut context = std::ptr::null_mut();
        assert_eq!((self.retain)(&mut context, 0), 0);
    }

    pub fn release(&self) {
        assert_eq!((self.release)(0), 0);
    }

    /// Device memory with these words, which lies in the host's.
    pub fn allocate(&self, words: &[u64]) -> u64 {
        let mut address = 0;
        assert_eq!((self.allocate)(&mut address, size_of_val(words)), 0);
        // SAFETY: the driver has made a block of that length, for nobody else.
        unsafe { std::ptr::copy(words.as_ptr(), address as *mut u64, words.len()) };
        address
    }

    /// The words from a device address on.
    ///
    /// # Safety
    /// They must be there.
    pub unsafe fn read(&self, address: u64, len: usize) -> Vec<u64> {
        // SAFETY: as the caller says.
        unsafe { std::slice::from_raw_parts(address as *const u64, len).to_vec() }
    }

    /// Whether the block was there.
    pub fn free(&self, address: u64) -> bool {
        (self.free)(address) == 0
    }

    /// A stream that does not wait for the legacy default stream.
    pub fn stream(&self) -> *mut c_void {
        let mut stream = std::ptr::null_mut();
        assert_eq!((self.make_stream)(&mut stream, 1, 0), 0);
        stream
    }

    /// How often the primary context was retained and not released.
    pub fn retained(&self) -> i64 {
        (self.retained)()
    }
}

/// # Safety
/// The function must be one that takes nothing and gives a number.
unsafe fn number(function: *mut c_void) -> extern "C" fn() -> u64 {
    // SAFETY: as the caller says.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(function) }
}
