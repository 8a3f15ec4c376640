//! Asking the CPU's caches for memory that is read soon.

/// Bytes of a line of the CPU's caches.
pub const LINE: usize = 64;

/// Most lines that are asked for of what lies together; the processor sees the pattern of longer ones.
pub const LINES_MAX: usize = 8;

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

/// Items in their order. Of each, `ask` asks for what it names while the item so many before it has its turn.
pub fn in_turn<I: Iterator + Clone>(
    items: I,
    distance: usize,
    ask: impl Fn(I::Item),
) -> impl Iterator<Item = I::Item> {
    let mut coming = items.clone();
    coming.by_ref().take(distance).for_each(&ask);
    items.inspect(move |_| {
        if let Some(item) = coming.next() {
            ask(item);
        }
    })
}

/// Asks for the lines of some bytes, at most [`LINES_MAX`].
#[inline]
pub fn lines(bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let first = bytes.as_ptr();
    let within = first.addr() % LINE;
    for nth in 0..(within + bytes.len()).div_ceil(LINE).min(LINES_MAX) {
        line(first.wrapping_add(nth * LINE));
    }
}
