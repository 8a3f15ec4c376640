//! How often items are read, so that the coldest of them leave the table first.
//!
//! Counted are *partitions* of the items by their fingerprints: a bucket of about as many items as one
//! of the table has, and where a table that grows keeps it. Each has one byte, which counts up
//! to 255 and is halved whenever items have left (an LFU with aging, as GPHash's bucket cache, §3.3).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes of items in a partition, more or less.
const PARTITION: u64 = 2048;

/// Bounds of the number of partitions, as powers of two.
const PARTITIONS: (u32, u32) = (10, 26);

/// Fingerprints of items that were read below the table not long ago.
const REVISITS: usize = 1 << 16;

/// See the [module](self).
pub struct Heat {
    partitions: Box<[AtomicU8]>,
    shift: u32,
    revisits: Box<[AtomicU64]>,
}

/// Which items leave.
pub struct Cold {
    /// Partitions with fewer reads leave.
    below: usize,
    /// Of the partitions with just so many, this share, in 256ths.
    share: u32,
}

impl Heat {
    /// For a table of about so many bytes of items.
    pub fn new(bytes: u64) -> Self {
        let bits = (bytes / PARTITION).max(1).ilog2() + 1;
        let bits = bits.clamp(PARTITIONS.0, PARTITIONS.1);
        Self {
            partitions: (0..1usize << bits).map(|_| AtomicU8::new(0)).collect(),
            shift: u64::BITS - bits,
            revisits: (0..REVISITS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn partition(&self, fingerprint: u64) -> &AtomicU8 {
        &self.partitions[(fingerprint >> self.shift) as usize]
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
        let place = &self.revisits[fingerprint as usize % REVISITS];
        place.swap(fingerprint, Ordering::Relaxed) == fingerprint
    }

    /// The coldest partitions, `share` of them all.
    pub fn coldest(&self, share: f64) -> Cold {
        let mut of_count = [0u64; 256];
        for reads in &self.partitions {
            of_count[usize::from(reads.load(Ordering::Relaxed))] += 1;
        }
        let mut wanted = (share.clamp(0.0, 1.0) * self.partitions.len() as f64).ceil() as u64;
        let mut below = 0;
        while below < 255 && of_count[below] <= wanted {
            wanted -= of_count[below];
            below += 1;
        }
        let share = wanted * 256 / of_count[below].max(1);
        Cold {
            below,
            share: share.min(256) as u32,
        }
    }

    /// Whether an item leaves.
    pub fn is_cold(&self, fingerprint: u64, cold: &Cold) -> bool {
        let reads = usize::from(self.partition(fingerprint).load(Ordering::Relaxed));
        // Bits that partitions of one count do not share.
        let lot = (fingerprint >> self.shift).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        reads < cold.below || reads == cold.below && (lot as u32) < cold.share
    }

    /// Lets what was read long ago count less.
    pub fn age(&self) {
        for reads in &self.partitions {
            reads.store(reads.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coldest_leave_first() {
        let heat = Heat::new(1 << 21);
        let partitions = heat.partitions.len() as u64;
        let fingerprint = |partition: u64| partition << heat.shift;
        // The second half is read, its end more often.
        for partition in partitions / 2..partitions {
            heat.count(fingerprint(partition));
        }
        for _ in 0..300 {
            heat.count(fingerprint(partitions - 1));
        }
        for share in [0.25, 0.5, 0.75, 1.0] {
            let cold = heat.coldest(share);
            let is_cold = |partition: &u64| heat.is_cold(fingerprint(*partition), &cold);
            let left: Vec<u64> = (0..partitions).filter(is_cold).collect();
            let wanted = share * partitions as f64;
            let found = left.len() as f64;
            assert!((found - wanted).abs() <= 0.1 * partitions as f64, "{share}: {found}");
            if share <= 0.5 {
                assert!(left.iter().all(|partition| *partition < partitions / 2));
            } else {
                let cold_half = left.iter().filter(|each| **each < partitions / 2).count();
                assert_eq!(cold_half as u64, partitions / 2);
            }
            assert_eq!(left.contains(&(partitions - 1)), share == 1.0);
        }
        heat.age();
        let cold = heat.coldest(0.9);
        assert!(!heat.is_cold(fingerprint(partitions - 1), &cold));
    }

    #[test]
    fn the_second_read_is_a_revisit() {
        let heat = Heat::new(0);
        assert!(!heat.is_revisit(77));
        assert!(heat.is_revisit(77));
        assert!(!heat.is_revisit(77 + REVISITS as u64));
        assert!(!heat.is_revisit(77));
    }
}
