//! Write-back of cache lines to persistent memory, for the `Dax` domain.

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// The instruction that writes a line back, the best that the CPU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// `clwb`: keeps the line in the cache.
    Clwb,
    /// `clflushopt`: drops the line; ordered by a fence only.
    ClflushOpt,
    /// `clflush`: drops the line; each waits for the one before.
    Clflush,
}

#[cfg(target_arch = "x86_64")]
impl WriteBack {
    /// Asks the CPU (leaf 7 of `cpuid`).
    pub fn detect() -> Self {
        use std::arch::x86_64::{__cpuid, __cpuid_count};

        let features = match __cpuid(0).eax {
            0..7 => 0,
            _ => __cpuid_count(7, 0).ebx,
        };
        if features & 1 << 24 != 0 {
            WriteBack::Clwb
        } else if features & 1 << 23 != 0 {
            WriteBack::ClflushOpt
        } else {
            WriteBack::Clflush
        }
    }

    /// Starts the write-back of every line that `len` bytes from `start` on touch.
    ///
    /// # Safety
    /// The bytes are mapped, and the CPU has the instruction.
    #[inline]
    pub unsafe fn range(self, start: *const u8, len: usize) {
        use std::arch::asm;

        if len == 0 {
            return;
        }
        let end = start.wrapping_add(len);
        let mut line = start.map_addr(|address| address & !(LINE - 1));
        while line < end {
            // SAFETY: the line holds a mapped byte, so all of it is mapped; the instructions
            // change no register and no contents. They count as memory accesses, so that the
            // compiler keeps them behind the stores that they write back.
            unsafe {
                match self {
                    WriteBack::Clwb => {
                        asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                    WriteBack::ClflushOpt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    WriteBack::Clflush => {
                        asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                }
            }
            line = line.wrapping_add(LINE);
        }
    }

    /// Waits for all write-backs that this thread has started.
    #[inline]
    pub fn fence(self) {
        fence();
    }
}

/// Waits for all that this thread has written back, or written past the caches.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn fence() {
    // SAFETY: every x86-64 CPU has SSE, and a fence touches no memory.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// Writes whole lines past the caches, which would read them first. They come in no order with other
/// stores, and are durable, when the thread has called [`fence`].
///
/// # Safety
/// As for a copy of the bytes to `to`, which is aligned to a line; so is their number.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn stream(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    for (nth, part) in bytes.chunks_exact(16).enumerate() {
        // SAFETY: every x86-64 CPU has SSE2; the rest is as the caller says.
        unsafe {
            let part = _mm_loadu_si128(part.as_ptr().cast());
            _mm_stream_si128(to.cast::<__m128i>().add(nth), part);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl WriteBack {
    /// Never used: other CPUs have no `Dax` domain.
    pub fn detect() -> Self {
        WriteBack::Clflush
    }

    /// Never used: other CPUs have no `Dax` domain.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn range(self, _start: *const u8, _len: usize) {
        unreachable!("no Dax domain on this CPU");
    }

    /// Never used: other CPUs have no `Dax` domain.
    pub fn fence(self) {
        unreachable!("no Dax domain on this CPU");
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
