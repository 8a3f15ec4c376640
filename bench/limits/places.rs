//! The places that a batch touches.

use rand::RngExt;
use rand::rngs::SmallRng;

/// Bytes from one place to the next.
pub const STRIDE: u64 = 128;

/// Draws `count` places of a region of `len` bytes.
pub fn draw(random: &mut SmallRng, count: usize, len: u64) -> Vec<u64> {
    (0..count)
        .map(|_| random.random_range(0..len / STRIDE) * STRIDE)
        .collect()
}
