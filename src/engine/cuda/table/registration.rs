//! The file in the GPU's address space.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Mutex, MutexGuard};

use crate::Result;
use crate::gpu::driver;
use crate::gpu::driver::{Handle, REGISTER_DEVICE_MAP, REGISTER_PORTABLE, Status, check};
use crate::layout::{HUGE_PAGE, align_up};
use crate::pm::{Mapping, Medium};
use crate::pool;
use crate::width::to_usize;

/// Least bytes that a thread pins when a whole file is registered. Copies may not cross from one
/// part to the next, so parts should be few.
const PIN_PART_BYTES_MIN: u64 = 64 << 20;

/// Most threads that pin a file. They wait for memory and for the driver, so more do not help.
const PIN_THREADS_MAX: usize = 8;

/// Parts of a mapped file that are pinned and mapped for the GPU, at the addresses that they have
/// for the process. Unregistered when dropped, which must be before the file is unmapped.
#[derive(Default)]
pub struct Registration {
    /// They lie one behind the other from the start of the file on.
    parts: Mutex<Vec<Part>>,
}

/// A registered part of the file.
struct Part {
    start: *mut u8,
    bytes: Range<u64>,
}

// SAFETY: the pointer is only handed to the driver, which takes it from any thread.
unsafe impl Send for Part {}

impl Part {
    /// Registers `bytes` of a file.
    ///
    /// # Safety
    /// The bytes must be mapped, and stay so for as long as this lives.
    unsafe fn register(medium: &Mapping, bytes: Range<u64>) -> Result<Self> {
        let start = medium.base().wrapping_add(to_usize(bytes.start));
        let flags = REGISTER_PORTABLE | REGISTER_DEVICE_MAP;
        let len = to_usize(bytes.end - bytes.start);
        // SAFETY: the bytes are mapped from `start` on, and the caller keeps them so until the part is
        // dropped, which unregisters them.
        let answer = unsafe { driver::cuMemHostRegister_v2(start.cast(), len, flags) };
        check("pinning the file for the GPU (cuMemHostRegister)", answer)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: the part was registered from exactly this address. Whoever drops it has waited for
        // what uses it.
        let unregister = || unsafe { driver::cuMemHostUnregister(self.start.cast()) };
        // What stays registered cannot be registered anew. That it fails again means that the context is
        // gone, and the registration with it.
        if unregister() != Status::SUCCESS {
            let _ = unregister();
        }
    }
}

impl Registration {
    /// Registers all bytes up to `len` that are not yet, as one part.
    ///
    /// # Safety
    /// All calls must be for the same file; the bytes must be mapped, and stay so for as long as
    /// this lives.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the driver refuses the memory; what was registered
    /// before stays.
    pub unsafe fn extend(&self, medium: &Mapping, len: u64) -> Result<()> {
        let mut parts = self.parts();
        let start = parts.last().map_or(0, |part| part.bytes.end);
        if start < len {
            if len - start > PIN_PART_BYTES_MIN {
                // So much has not been preallocated, and a batch waits for it.
                medium.populate(start, len, threads());
            }
            // SAFETY: the caller keeps all bytes up to `len` mapped for as long as this lives, which drops
            // the part.
            parts.push(unsafe { Part::register(medium, start..len)? });
        }
        Ok(())
    }

    /// Registers a whole file, of which nothing is registered yet, with several threads: first
    /// each page gets its frame in memory, which is what takes longest, then the driver pins them.
    ///
    /// # Safety
    /// As [`extend`](Self::extend).
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    pub unsafe fn of_file(medium: &Mapping) -> Result<Self> {
        let len = medium.len();
        let threads = threads();
        let step = align_up(len.div_ceil(threads as u64), HUGE_PAGE).max(PIN_PART_BYTES_MIN);
        let starts: Vec<u64> = (0..len).step_by(to_usize(step)).collect();
        let next = AtomicUsize::new(0);
        let context = current_context();
        let work = || -> Result<Vec<Part>> {
            enter(context)?;
            let mut mine = Vec::new();
            while let Some(&start) = starts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let end = len.min(start + step);
                medium.populate(start, end, 1);
                // SAFETY: the bytes lie within the file, all of which the caller keeps mapped for as long
                // as the registration lives, which drops the part. So does an early return.
                mine.push(unsafe { Part::register(medium, start..end)? });
            }
            Ok(mine)
        };
        let mut parts = Vec::new();
        thread::scope(|scope| -> Result<()> {
            let others: Vec<_> = (1..starts.len().min(threads))
                .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let mut answers = vec![work()];
            answers.extend(others.into_iter().map(|other| {
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }));
            for answer in answers {
                parts.append(&mut answer?);
            }
            Ok(())
        })?;
        parts.sort_unstable_by_key(|part| part.bytes.start);
        Ok(Self {
            parts: Mutex::new(parts),
        })
    }

    /// Bytes that the GPU can reach.
    pub fn len(&self) -> u64 {
        self.parts().last().map_or(0, |part| part.bytes.end)
    }

    /// Cuts a range of the file where one part ends and the next begins: the driver copies no
    /// range that goes across.
    pub fn cut(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let parts = self.parts();
        let within = parts.iter().map(|part| {
            let (start, end) = (part.bytes.start, part.bytes.end);
            bytes.start.max(start)..bytes.end.min(end)
        });
        within.filter(|range| range.start < range.end).collect()
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock()
    }
}

fn threads() -> usize {
    pool::cores().min(PIN_THREADS_MAX)
}

/// The context of the calling thread, as a number that other threads may have.
fn current_context() -> usize {
    let mut context = ptr::null_mut();
    // SAFETY: the driver writes the context. Should it fail, entering none fails as well.
    let _ = unsafe { driver::cuCtxGetCurrent(&mut context) };
    context as usize
}

fn enter(context: usize) -> Result<()> {
    // SAFETY: the context is that of the thread which waits for this one, so it stays meanwhile.
    let answer = unsafe { driver::cuCtxSetCurrent(context as Handle) };
    Ok(check("entering the device (cuCtxSetCurrent)", answer)?)
}
