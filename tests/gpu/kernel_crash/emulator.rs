//! A device on the CPU (`ptx/emulator/driver.cpp`), taken for the driver.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gphash_test_support::compiler::compile;

/// Where a process finds the library if another one has compiled it.
pub const LIBRARY: &str = "GPHASH_EMULATED_DRIVER";

/// The emulated device, loaded for the life of the program.
pub struct Emulator {
    path: PathBuf,
    seed: extern "C" fn(u64),
}

impl Emulator {
    /// Compiles it and loads it, once. No index may have opened a device before.
    pub fn get() -> &'static Self {
        static LOADED: OnceLock<Emulator> = OnceLock::new();
        LOADED.get_or_init(|| {
            // Who looks for a library of this name is given the one that is loaded.
            let name = "-Wl,-soname,libcuda.so.1";
            let options = ["-DGPHASH_WRITE_TRACE", "-shared", "-fPIC", name];
            let compiled = std::env::var_os(LIBRARY).map(PathBuf::from);
            let library = compiled.unwrap_or_else(|| {
                let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda.so.1");
                compile("ptx/emulator/driver.cpp", &target, &options);
                target
            });
            let path = CString::new(library.to_str().unwrap()).unwrap();
            // SAFETY: both are names that end in a zero byte. The library has no initializers but
            // those of its own tables.
            let function = unsafe {
                let loaded = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
                assert!(!loaded.is_null(), "{path:?} does not load");
                libc::dlsym(loaded, c"gphash_emulation_seed".as_ptr())
            };
            assert!(!function.is_null(), "it cannot be seeded");
            // SAFETY: this is how driver.cpp defines it.
            let seed =
                unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(u64)>(function) };
            Emulator {
                path: library,
                seed,
            }
        })
    }

    /// Where the library is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Draws the order of lanes and warps anew, for launches of the calling thread.
    pub fn seed(&self, seed: u64) {
        (self.seed)(seed);
    }
}
