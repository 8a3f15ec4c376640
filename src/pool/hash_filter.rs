//! A filter of hashes, which tells most of those that are not there by one word, and seeds of hashes.

use std::hash::{BuildHasher, RandomState};

/// Bits for each hash: one in so many others is taken for one that is there, or fewer.
const BITS_PER_HASH: usize = 16;

/// Hashes that have room at first.
const ROOM_HASHES: usize = 1 << 12;

/// How much longer each further part is than the one before.
const GROWTH: usize = 4;

/// A seed that nobody foresees for hashes in memory, which a child of the process may have, too. A thread may ask for it
/// while its own data is being dropped, when `rand` may have none.
pub fn hash_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// See the [module](self). It grows by parts, so that an insertion never waits for all that are there. The top bits of a hash
/// are not used, so they may choose something else.
#[derive(Debug, Default)]
pub struct HashFilter {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// A power of two of them.
    words: Vec<u64>,
    /// How many more hashes have room.
    room: usize,
}

impl Part {
    fn new(hashes: usize) -> Self {
        let bits = (hashes * BITS_PER_HASH).next_power_of_two();
        let words = bits.div_ceil(u64::BITS as usize);
        Self {
            words: vec![0; words],
            room: words * u64::BITS as usize / BITS_PER_HASH,
        }
    }

    fn bit(&self, hash: u64) -> (usize, u64) {
        let bits = u64::from(u64::BITS);
        let last = self.words.len() as u64 - 1;
        let nth = usize::try_from((hash / bits) & last).expect("less than the number of words");
        (nth, hash % bits)
    }
}

impl HashFilter {
    /// Takes every hash for one that is there.
    pub fn any() -> Self {
        let all = Part {
            words: vec![u64::MAX],
            room: 0,
        };
        Self { parts: vec![all] }
    }

    /// One without any, which has room for so many at first.
    pub fn with_room(hashes: usize) -> Self {
        Self {
            parts: vec![Part::new(hashes)],
        }
    }

    /// One of these hashes.
    pub fn of(hashes: impl ExactSizeIterator<Item = u64>) -> Self {
        let mut filter = Self::with_room(hashes.len());
        hashes.for_each(|hash| filter.insert(hash));
        filter
    }

    /// Adds a hash.
    pub fn insert(&mut self, hash: u64) {
        if self.parts.last().is_none_or(|part| part.room == 0) {
            let parts = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
            let room = ROOM_HASHES.saturating_mul(GROWTH.saturating_pow(parts));
            self.parts.push(Part::new(room));
        }
        if let Some(part) = self.parts.last_mut() {
            let (nth, bit) = part.bit(hash);
            part.words[nth] |= 1 << bit;
            part.room -= 1;
        }
    }

    /// Whether a hash may be there.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.parts.iter().any(|part| {
            let (nth, bit) = part.bit(hash);
            part.words[nth] >> bit & 1 == 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(nth: u64) -> u64 {
        (nth + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    }

    /// How many of 100,000 others are taken for hashes that are there.
    fn others(filter: &HashFilter) -> usize {
        let others = 1 << 40..(1 << 40) + 100_000;
        others.filter(|&nth| filter.may_have(hash(nth))).count()
    }

    #[test]
    fn hashes_that_are_there_are_found_and_few_others() {
        let filter = HashFilter::of((0..1000).map(hash).collect::<Vec<u64>>().into_iter());
        assert!((0..1000).all(|nth| filter.may_have(hash(nth))));
        assert!(others(&filter) < 100_000 / BITS_PER_HASH * 5 / 4);
        assert_eq!(others(&HashFilter::default()), 0);
        assert_eq!(others(&HashFilter::any()), 100_000);
    }

    #[test]
    fn filter_grows_with_its_hashes() {
        let mut filter = HashFilter::default();
        for nth in 0..20_000 {
            filter.insert(hash(nth));
        }
        assert!((0..20_000).all(|nth| filter.may_have(hash(nth))));
        assert_eq!(filter.parts.len(), 2);
        assert!(others(&filter) < 2 * 100_000 / BITS_PER_HASH * 5 / 4);
    }
}
