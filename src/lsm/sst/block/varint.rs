//! Numbers of one to ten bytes: seven bits in each, the lowest first; the top bit says that more
//! follow.

use gphash_layout::width::{low_byte, to_usize};

/// Writes a number behind `bytes`.
pub fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(low_byte(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_byte(number));
}

/// Takes a number off `bytes` at `at`; `None` if there is none.
#[inline]
pub fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            // Of the tenth byte only one bit is a number's.
            return (shift < 63 || byte <= 1).then_some(number);
        }
    }
    None
}

/// Takes a length of at most `most` off `bytes`.
#[inline]
pub fn take_len(bytes: &[u8], at: &mut usize, most: usize) -> Option<usize> {
    take(bytes, at)
        .filter(|&len| len <= most as u64)
        .map(to_usize)
}

#[cfg(test)]
mod tests;
