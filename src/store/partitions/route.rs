//! Which partition has a key.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::width::to_usize;

/// Tells keys apart by a hash whose seed is the store's own: it says nothing of the place of a key in the table.
pub struct Route {
    seed: u64,
    partitions: u32,
}

impl Route {
    /// That of a store with so many partitions.
    pub fn new(store_id: [u64; 2], partitions: u32) -> Self {
        Self {
            seed: store_id[0] ^ store_id[1].rotate_left(32),
            partitions,
        }
    }

    /// The number of the partition that has a key.
    #[inline]
    pub fn number_of(&self, key: &[u8]) -> usize {
        if self.partitions == 1 {
            return 0;
        }
        let hash = u128::from(xxh3_64_with_seed(key, self.seed));
        // The upper half of the product is below the number of partitions.
        let number = (hash * u128::from(self.partitions)) >> 64;
        to_usize(u64::try_from(number).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_gets_its_share_of_keys() {
        let route = Route::new([3, 4], 7);
        let mut counts = [0u32; 7];
        (0..70_000u32).for_each(|key| counts[route.number_of(&key.to_le_bytes())] += 1);
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
        assert!((0..100u8).all(|key| Route::new([5, 6], 1).number_of(&[key]) == 0));
    }
}
