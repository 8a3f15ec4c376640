//! Asking the CPU's caches for memory that is read soon.

/// Bytes of a line of the CPU's caches.
pub const LINE: usize = 64;

/// Asks for the line of an address, which need not be one of anything.
#[inline]
pub fn line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the first `most` lines of some bytes.
#[inline]
pub fn lines(bytes: &[u8], most: usize) {
    if bytes.is_empty() {
        return;
    }
    let first = bytes.as_ptr();
    let within = first.addr() % LINE;
    for nth in 0..(within + bytes.len()).div_ceil(LINE).min(most) {
        line(first.wrapping_add(nth * LINE));
    }
}
