//! Numbers of one width as numbers of another. What a conversion may lose stands in its name; all
//! others in the crate lose nothing (`From`) or answer for it (`TryFrom`).

/// An offset, a length or a count of the file as the processor's. Nothing is lost: a pointer has 64
/// bits on every target that this crate is built for.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the crate is not built for narrower pointers"
)]
#[inline]
pub const fn to_usize(number: u64) -> usize {
    number as usize
}

/// The low 32 bits of a word.
#[inline]
pub const fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The low 8 bits of a word.
#[inline]
pub const fn low_byte(word: u64) -> u8 {
    word.to_le_bytes()[0]
}

/// The high 64 bits of the product of two words: below `whole`, and spread over it as `fraction` is over
/// all words.
#[inline]
pub const fn product_top(fraction: u64, whole: u64) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = (fraction as u128 * whole as u128).to_le_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// A number that has 32 bits: a constant, or one that what it counts keeps small.
///
/// # Panics
/// If it has more; of a constant, the crate does not build.
#[inline]
#[track_caller]
pub const fn u32_of(number: u64) -> u32 {
    assert!(number <= u32::MAX as u64, "a number that has 32 bits");
    low_half(number)
}

/// The whole part of a number; 0 below that and for no number, the largest above.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, as the name says"
)]
#[inline]
pub const fn saturating_u64(number: f64) -> u64 {
    number as u64
}
