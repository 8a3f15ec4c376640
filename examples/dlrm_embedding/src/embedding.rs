//! What the table holds: which key a category has, and which vector belongs to it.

/// Categorical features of a Criteo row.
pub const FEATURES: usize = 26;

/// Numbers in an embedding vector.
pub const DIMENSION: usize = 32;

/// An embedding vector.
pub type Vector = [f32; DIMENSION];

/// The keys of the 26 categories of a row: a bag.
pub type Row = [u64; FEATURES];

/// The key of `category` of `feature`; `None` is the category of rows that lack the feature.
///
/// Bits 40 and up hold the feature, bit 32 is set when the row has a category, and the 32 bits
/// below are that category's hash, as it stands in the Criteo files.
pub fn key(feature: usize, category: Option<u32>) -> u64 {
    let category = category.map_or(0, |hash| 1 << 32 | u64::from(hash));
    (feature as u64) << 40 | category
}

/// The vector of `key`: numbers in -1.0..1.0 that depend on nothing else, so that each vector
/// that comes out of the table can be compared bit by bit with the one that went in.
pub fn vector(key: u64) -> Vector {
    let mixed = mix64(key);
    let [high, low] = [mixed >> 32, mixed & u64::from(u32::MAX)]
        .map(|half| u32::try_from(half).expect("half a word"));
    std::array::from_fn(|position| {
        let position = u32::try_from(position).expect("vectors are short");
        let bits = mix32(low.wrapping_add(position.wrapping_mul(0x9e37_79b9))) ^ high;
        (bits >> 8) as f32 * (2.0 / (1 << 24) as f32) - 1.0
    })
}

/// Sum of the vectors of a bag, added in the order of the features.
pub fn pool(vectors: &[Vector]) -> Vector {
    let mut sum = [0.0; DIMENSION];
    for vector in vectors {
        for (sum, number) in sum.iter_mut().zip(vector) {
            *sum += number;
        }
    }
    sum
}

/// Whether two vectors hold the same bits.
pub fn same(left: &Vector, right: &Vector) -> bool {
    left.iter()
        .zip(right)
        .all(|(left, right)| left.to_bits() == right.to_bits())
}

/// The finalizer of SplitMix64: one to one.
pub fn mix64(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A mix of 32 bits: one to one, and of 32-bit multiplications only, which vectorise.
pub fn mix32(mut word: u32) -> u32 {
    word = (word ^ (word >> 16)).wrapping_mul(0x7feb_352d);
    word = (word ^ (word >> 15)).wrapping_mul(0x846c_a68b);
    word ^ (word >> 16)
}
