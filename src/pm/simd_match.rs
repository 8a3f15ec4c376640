//! Finding a word among eight neighbours, as a bucket's slots are.

/// Which of the eight words from `words` on equal `word`: bit *i* for the *i*th.
///
/// SSE2 is part of every x86-64 CPU, so this is a few instructions in line. Wider registers
/// would save some of them and cost a call or a dispatch, for code that waits for memory.
///
/// # Safety
/// 64 bytes from `words` on are mapped, aligned to 8.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn match_eight(words: *const u64, word: u64) -> u8 {
    use std::arch::x86_64::*;

    // SAFETY: the caller vouches for the memory. Another thread may be storing to one of the
    // words meanwhile: aligned halves of words are never torn by an x86 CPU, these loads are
    // opaque to the compiler, and the answer is a hint that callers confirm by an atomic load.
    unsafe {
        let wanted = _mm_set1_epi64x(word.cast_signed());
        let pair = |i: usize| {
            _mm_castsi128_ps(_mm_cmpeq_epi32(
                _mm_loadu_si128(words.add(2 * i).cast()),
                wanted,
            ))
        };
        // A word equals when both its halves do: low halves of four words in one register,
        // high halves in another.
        let four = |a: __m128, b: __m128| {
            _mm_castps_si128(_mm_and_ps(
                _mm_shuffle_ps::<0b10_00_10_00>(a, b),
                _mm_shuffle_ps::<0b11_01_11_01>(a, b),
            ))
        };
        let eight = _mm_packs_epi32(four(pair(0), pair(1)), four(pair(2), pair(3)));
        _mm_movemask_epi8(_mm_packs_epi16(eight, _mm_setzero_si128())).to_le_bytes()[0]
    }
}

/// Which of the eight words from `words` on equal `word`: bit *i* for the *i*th.
///
/// # Safety
/// 64 bytes from `words` on are mapped, aligned to 8.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub unsafe fn match_eight(words: *const u64, word: u64) -> u8 {
    use std::sync::atomic::{AtomicU64, Ordering};

    (0..8).fold(0, |mask, i| {
        // SAFETY: the caller vouches for the memory, and every access to it is atomic.
        let found = unsafe { AtomicU64::from_ptr(words.add(i).cast_mut()) }.load(Ordering::Relaxed);
        mask | u8::from(found == word) << i
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simd_match_finds_every_pattern_of_equal_words() {
        let word = 0x0123_4567_89AB_CDEF;
        // Words that share one half with the wanted one must not pass for it.
        let others = [0, word & 0xFFFF_FFFF, word & !0xFFFF_FFFF, !word];
        for mask in 0..=255u8 {
            for other in others {
                let words: [u64; 8] =
                    std::array::from_fn(|i| if mask >> i & 1 == 1 { word } else { other });
                // SAFETY: eight words.
                assert_eq!(unsafe { match_eight(words.as_ptr(), word) }, mask);
            }
        }
    }
}
