//! From a key to its buckets: one 64-bit hash gives the state word of wide keys and the hash
//! locations.
//!
//! The hash is XXH3 with the file's random seed. [`KeyHash::location`] gives location 0 from the
//! hash itself and every further one from a full mix of it, so that locations are independent of
//! each other. Levels take the **top** bits of a location. So the bucket of level *i* − 1 is the
//! bucket of level *i* shifted right by one: the inter-level sharing of GPHash §3.1.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{BUSY, EMPTY};

/// Number of the hash function in the superblock.
pub const XXH3: u32 = 1;

/// How many further sets of hash locations an item may go to when the buckets of all nearer
/// sets are full (see the overflow map of `Shape`).
pub const OVERFLOW_ROUNDS: u32 = 3;

/// The hash of a key under a file's seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hash of an 8-byte key.
    #[inline]
    pub fn of_word(key: u64, seed: u64) -> Self {
        Self(xxh3_64_with_seed(&key.to_le_bytes(), seed))
    }

    /// Hash of a key of any other length; it doubles as the fingerprint, so it is never a slot
    /// state.
    #[inline]
    pub fn of_bytes(key: &[u8], seed: u64) -> Self {
        let hash = xxh3_64_with_seed(key, seed);
        Self(match hash {
            EMPTY => MIX[0],
            BUSY => MIX[1],
            _ => hash,
        })
    }

    /// The `nth` hash location: a number whose top bits select a bucket in each level.
    #[inline]
    pub fn location(self, nth: u32) -> u64 {
        if nth == 0 {
            self.0
        } else {
            mix(self.0 ^ u64::from(nth).wrapping_mul(LOCATION_STRIDE))
        }
    }

    /// Bucket of `location` in `level`, which has 2^`level` buckets.
    #[inline]
    pub fn bucket(location: u64, level: u32) -> u64 {
        (location >> 1) >> (63 - level)
    }
}

/// Odd constant that sets the locations apart (2^64 divided by the golden ratio).
pub(super) const LOCATION_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Multipliers of [`mix`]; any two words that are no slot state also serve for the remapping.
const MIX: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];

/// SplitMix64's finalizer: every input bit moves every output bit with probability one half.
#[inline]
pub(super) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(MIX[0]);
    word = (word ^ (word >> 27)).wrapping_mul(MIX[1]);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
