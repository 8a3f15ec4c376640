//! The filter of a file: says of a key that it is not there, and errs for one in 256 that are not.
//!
//! ```text
//!  0      8                12                 16                     20
//!  | seed | segment length | segment length-1 | segment count length | fingerprints ... |
//! ```
//!
//! It is a binary fuse filter (Graf and Lemire) over the hashes of the keys, as the library gives it. A
//! file whose filter could not be made has one without fingerprints, to which all keys may be there.

use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable, Filter as _, FilterRef};

/// See the [module](self).
#[derive(Debug)]
pub struct Filter {
    descriptor: [u8; DESCRIPTOR],
    fingerprints: Box<[u8]>,
}

const DESCRIPTOR: usize = BinaryFuse8::DESCRIPTOR_LEN;

impl Filter {
    /// The filter of these hashes, which may have equal ones among them.
    pub fn build(hashes: &mut Vec<u64>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        let mut descriptor = [0; DESCRIPTOR];
        let mut fingerprints = Box::default();
        if let Ok(filter) = BinaryFuse8::try_from(&*hashes) {
            filter.dma_copy_descriptor_to(&mut descriptor);
            fingerprints = filter.fingerprints;
        }
        Self {
            descriptor,
            fingerprints,
        }
    }

    /// What stands in the file, in two pieces.
    pub fn pieces(&self) -> [&[u8]; 2] {
        [&self.descriptor, &self.fingerprints]
    }

    /// Reads a filter; says what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let (descriptor, fingerprints) = bytes
            .split_first_chunk::<DESCRIPTOR>()
            .ok_or_else(|| format!("{} bytes", bytes.len()))?;
        let word = |at| {
            let word = descriptor[at..at + 4].try_into().expect("four bytes");
            u64::from(u32::from_le_bytes(word))
        };
        let (segment, mask, front) = (word(8), word(12), word(16));
        // What a lookup needs to stay among the fingerprints.
        let fits = segment.is_power_of_two()
            && mask == segment - 1
            && front > 0
            && front.is_multiple_of(segment)
            && front + 2 * segment == fingerprints.len() as u64
            && front + 2 * segment <= u64::from(u32::MAX);
        if !fits && !fingerprints.is_empty() {
            let len = fingerprints.len();
            return Err(format!(
                "{len} fingerprints; segments of {segment}, {front} in all but two"
            ));
        }
        Ok(Self {
            descriptor: *descriptor,
            fingerprints: fingerprints.into(),
        })
    }

    /// Whether a key with this hash may be there.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.fingerprints.is_empty()
            || BinaryFuse8Ref::from_dma(&self.descriptor, &self.fingerprints).contains(&hash)
    }

    /// Bytes in memory.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }
}

#[cfg(test)]
mod tests;
