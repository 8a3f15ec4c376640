//! The filter of a sorted file: says of a key that it is not there, and errs for about one in 200 that are not.
//!
//! It is a split-block Bloom filter (Putze, Sanders and Singler, 2007; that of Apache Parquet): blocks of eight words of
//! 32 bits, in each of which a key has one bit. So a lookup reads one line of the cache, and keys come in any order, from
//! any number of threads. The upper half of a key's hash says which block, the lower half times an odd number for each
//! word which bit.

use bytemuck::{cast_slice, cast_slice_mut};

/// Bits of the filter for each key.
const BITS_PER_KEY: usize = 12;

const WORDS: usize = 8;

type FilterBlock = [u32; WORDS];

/// Those of Parquet. `compaction.cu` has them, too.
const SALTS: FilterBlock = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// See the [module](self).
#[derive(Debug)]
pub struct Filter {
    blocks: Vec<FilterBlock>,
}

/// How many blocks the filter of so many keys has.
pub fn blocks_of(keys: usize) -> usize {
    (keys * BITS_PER_KEY)
        .div_ceil(8 * size_of::<FilterBlock>())
        .max(1)
}

impl Filter {
    /// The filter of these hashes.
    pub fn build(hashes: &[u64]) -> Self {
        let mut blocks = vec![[0; WORDS]; blocks_of(hashes.len())];
        for &hash in hashes {
            let (block, bits) = bits_of(hash, blocks.len());
            for (word, bit) in blocks[block].iter_mut().zip(bits) {
                *word |= bit;
            }
        }
        Self { blocks }
    }

    /// What stands in the file.
    pub fn bytes(&self) -> &[u8] {
        cast_slice(&self.blocks)
    }

    /// Reads a filter; says what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(size_of::<FilterBlock>()) {
            return Err(format!("{} bytes", bytes.len()));
        }
        let mut blocks = vec![[0; WORDS]; bytes.len() / size_of::<FilterBlock>()];
        cast_slice_mut(&mut blocks).copy_from_slice(bytes);
        Ok(Self { blocks })
    }

    /// Whether a key with this hash may be there.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        let (block, bits) = bits_of(hash, self.blocks.len());
        let words = self.blocks[block].iter().zip(bits);
        words.fold(true, |all, (word, bit)| all & (word & bit != 0))
    }
}

/// The block of a key with this hash, and its bit of each word.
#[inline]
fn bits_of(hash: u64, blocks: usize) -> (usize, FilterBlock) {
    let block = ((hash >> 32) * blocks as u64) >> 32;
    let [a, b, c, d, ..] = hash.to_le_bytes();
    let low = u32::from_le_bytes([a, b, c, d]);
    let bits = SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27));
    let block = usize::try_from(block).expect("less than the number of blocks");
    (block, bits)
}

#[cfg(test)]
mod tests;
