//! The places that a batch touches.

use rand::RngExt;
use rand::rngs::SmallRng;

/// Bytes from one record to the next, and of the words of a bucket of eight slots.
pub const STRIDE: u64 = 128;

/// What a table takes of a region: its records, and behind them its buckets.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Records of [`STRIDE`] bytes.
    pub records: u64,
    /// Bytes of a key. Those of more than 8 stand behind the words of their bucket.
    pub key_size: u64,
}

impl Layout {
    /// Bytes of a key beside the words of its slot.
    pub fn key_bytes(self) -> u64 {
        match self.key_size {
            8 => 0,
            size => size,
        }
    }

    /// Bytes from one bucket to the next.
    pub fn bucket(self) -> u64 {
        STRIDE + 8 * self.key_bytes()
    }

    /// Buckets of eight slots, at the load factor of a table of 16 million.
    pub fn buckets(self) -> u64 {
        self.records.div_ceil(5)
    }

    /// Bytes of the records.
    pub fn records_len(self) -> u64 {
        self.records * STRIDE
    }

    /// Bytes of the buckets.
    pub fn buckets_len(self) -> u64 {
        self.buckets() * self.bucket()
    }
}

/// Draws `count` places of a region of `len` bytes, each `stride` bytes from the next.
pub fn draw(random: &mut SmallRng, count: usize, len: u64, stride: u64) -> Vec<u64> {
    (0..count)
        .map(|_| random.random_range(0..len / stride) * stride)
        .collect()
}
