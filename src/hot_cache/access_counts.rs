//! How often items are used, so that the coldest of them leave the table first.
//!
//! Counted are *partitions* of the items by their fingerprints: a bucket of about as many items as one
//! of the table has, and where a table that grows keeps it. Each has one byte, which counts up
//! to 255 and is halved whenever items have left (an LFU with aging, as GPHash's bucket cache, §3.3).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use gphash_pool::hash_filter::hash_seed;

/// Bytes of items in a partition, more or less.
const PARTITION: u64 = 2048;

/// Bounds of the number of partitions, as powers of two.
const PARTITIONS: (u32, u32) = (10, 26);

/// Spreads neighbouring numbers (the golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Fingerprints of items that were read below the table not long ago, at least and at most.
const REVISITS: (u64, u64) = (1 << 8, 1 << 14);

/// For so many bytes of items there is one.
const REVISIT: u64 = 1 << 10;

/// See the [module](self).
pub struct AccessCounts {
    partitions: Box<[AtomicU8]>,
    shift: u32,
    revisits: Box<[AtomicU64]>,
}

/// How many items there are of each count of reads.
pub struct Histogram([u64; 256]);

/// Which items leave.
pub struct EvictionCut {
    /// Those of partitions with fewer reads,
    below: usize,
    /// and of partitions with just so many, this share, in 256ths,
    share: u64,
    /// which each choice draws anew.
    salt: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl AccessCounts {
    /// For a table of about so many bytes of items.
    pub fn new(bytes: u64) -> Self {
        let bits = (bytes / PARTITION).max(1).ilog2() + 1;
        let bits = bits.clamp(PARTITIONS.0, PARTITIONS.1);
        Self {
            partitions: (0..1usize << bits).map(|_| AtomicU8::new(0)).collect(),
            shift: u64::BITS - bits,
            revisits: (0..(bytes / REVISIT).clamp(REVISITS.0, REVISITS.1))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    #[inline]
    fn partition(&self, fingerprint: u64) -> &AtomicU8 {
        &self.partitions[index(fingerprint >> self.shift)]
    }

    /// Counts a read. One that comes at the same time as others may not count.
    #[inline]
    pub fn count(&self, fingerprint: u64) {
        let reads = self.partition(fingerprint);
        let count = reads.load(Ordering::Relaxed);
        if count < u8::MAX {
            reads.store(count + 1, Ordering::Relaxed);
        }
    }

    /// Notes that an item was read below the table; says whether it was not long ago, too.
    pub fn is_revisit(&self, fingerprint: u64) -> bool {
        let last = &self.revisits[index(fingerprint % self.revisits.len() as u64)];
        last.swap(fingerprint, Ordering::Relaxed) == fingerprint
    }

    fn reads(&self, fingerprint: u64) -> usize {
        usize::from(self.partition(fingerprint).load(Ordering::Relaxed))
    }

    /// Takes an item into the histogram.
    pub fn enter(&self, fingerprint: u64, histogram: &mut Histogram) {
        histogram.0[self.reads(fingerprint)] += 1;
    }

    /// The coldest of the items of a histogram, about `share` of them.
    pub fn coldest(&self, histogram: &Histogram, share: f64) -> EvictionCut {
        let items: u64 = histogram.0.iter().sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "there are fewer items, and no negative number of them"
        )]
        let mut wanted = (share.clamp(0.0, 1.0) * items as f64).ceil() as u64;
        let mut below = 0;
        while below < 255 && histogram.0[below] <= wanted {
            wanted -= histogram.0[below];
            below += 1;
        }
        EvictionCut {
            below,
            share: (wanted * 256).div_ceil(histogram.0[below].max(1)),
            salt: hash_seed(),
        }
    }

    /// Whether an item leaves.
    pub fn is_cold(&self, fingerprint: u64, cold: &EvictionCut) -> bool {
        let reads = self.reads(fingerprint);
        let draw = || (fingerprint >> self.shift ^ cold.salt).wrapping_mul(MIX) >> 56;
        reads < cold.below || reads == cold.below && draw() < cold.share
    }

    /// Lets what was read long ago count less.
    pub fn age(&self) {
        for reads in &self.partitions {
            reads.store(reads.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it is below the length of a slice"
)]
const fn index(number: u64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests;
