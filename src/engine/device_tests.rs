//! What tests of a device share: they pass by without a GPU, and without the emulated device for its driver
//! (docs/testing.md).

use parking_lot::{Mutex, MutexGuard};
use rand::{Rng, RngExt};

use super::{DeviceBudget, version_sorter};
use crate::Engine;

/// The device.
pub const GPU: Engine = Engine::Cuda { device: 0 };

/// The driver is one for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Keeps other tests from the device, if there is one.
pub fn alone() -> Option<MutexGuard<'static, ()>> {
    // Not earlier: calls that another test lets fail are for it alone.
    let alone = ALONE.lock();
    match version_sorter(GPU, &DeviceBudget::new(None)) {
        Ok(_) => Some(alone),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Of so many calls, those that fail in turn: all, or as many as `GPHASH_DRIVER_FAULTS` says, one of each stretch.
pub fn failing_calls(calls: u64, random: &mut impl Rng) -> Vec<u64> {
    let sample = match std::env::var("GPHASH_DRIVER_FAULTS").as_deref() {
        Ok(count) if count != "all" => count.parse().expect("GPHASH_DRIVER_FAULTS"),
        _ => calls,
    };
    let sample = calls.min(sample);
    let stretch = |nth| nth * calls / sample..(nth + 1) * calls / sample;
    (0..sample)
        .map(|nth| random.random_range(stretch(nth)))
        .collect()
}

/// Lets calls of the emulated driver fail, from the first one to before the last one, and says how many there were since
/// the last time; `None` on a GPU.
pub fn fail_calls(first: u64, last: u64) -> Option<u64> {
    // SAFETY: the library is loaded already, and stays.
    let driver =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    assert!(!driver.is_null());
    // SAFETY: the handle is one.
    let [calls, fail] = [c"gphash_emulation_calls", c"gphash_emulation_fail"]
        .map(|name| unsafe { libc::dlsym(driver, name.as_ptr()) });
    if calls.is_null() || fail.is_null() {
        return None;
    }
    // SAFETY: so ptx/emulator/driver.cpp has it.
    let calls: extern "C" fn() -> u64 = unsafe { std::mem::transmute(calls) };
    // SAFETY: as above.
    let fail: extern "C" fn(u64, u64, libc::c_int) = unsafe { std::mem::transmute(fail) };
    let before = calls();
    // A launch that is accepted and does nothing is heard of by what fails after it.
    fail(first, last, libc::c_int::from(last == u64::MAX));
    Some(before)
}
