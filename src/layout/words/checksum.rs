//! The checksum of a value of fixed size, which binds it to its key.
//!
//! Every word goes through a bijection of its own before the sum, so a change within one word always
//! shows. So does one within the checksum. Other changes, words that are exchanged, and the value of another
//! key show but for one case in 2^64.

use super::hash::{KeyHash, LOCATION_STRIDE, mix};

/// The checksum of a value, given as words, the last one filled up with zeros, under a key with this hash.
#[inline]
pub fn checksum_of_words(key: KeyHash, words: impl Iterator<Item = u64>) -> u64 {
    let mut salt = key.0;
    let sum = words.fold(0u64, |sum, word| {
        salt = salt.wrapping_add(LOCATION_STRIDE);
        sum.wrapping_add(mix(word ^ salt))
    });
    mix(sum)
}

/// The checksum of `value` under a key with this hash.
#[inline]
pub fn value_checksum(key: KeyHash, value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then_some(last);
    checksum_of_words(
        key,
        words.iter().copied().chain(last).map(u64::from_le_bytes),
    )
}

#[cfg(test)]
mod tests;
