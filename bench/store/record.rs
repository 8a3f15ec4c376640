//! Keys and values of records, known by the record's number.

use crate::target::Failure;

/// Bytes at the front of a value that merges add to.
pub const COUNTER: usize = 8;

/// Lengths of keys and values.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub key: usize,
    pub value: usize,
}

/// Fewest bytes of a key: that of no other record begins with the same ones.
pub const LEAST_KEY: usize = 8;

/// Fewest bytes of a value: the counter and the record's number.
pub const LEAST_VALUE: usize = 2 * COUNTER;

impl Sizes {
    /// The key of a record. Records that follow each other are far apart.
    pub fn key(self, record: u64) -> Vec<u8> {
        let mut word = mix(record);
        let mut key = Vec::with_capacity(self.key);
        while key.len() < self.key {
            let len = (self.key - key.len()).min(8);
            key.extend_from_slice(&word.to_be_bytes()[..len]);
            word = mix(word);
        }
        key
    }

    /// A value of a record: a counter of 0, the record's number, bytes that do not compress.
    pub fn value(self, record: u64) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.value);
        value.extend_from_slice(&[0; COUNTER]);
        value.extend_from_slice(&record.to_le_bytes());
        let mut word = record;
        while value.len() < self.value {
            word = mix(word);
            let len = (self.value - value.len()).min(8);
            value.extend_from_slice(&word.to_le_bytes()[..len]);
        }
        value
    }

    /// Fails if a value is not that of a record.
    pub fn check(self, record: u64, value: Option<&[u8]>) -> Result<(), Failure> {
        let Some(value) = value else {
            return Err(format!("record {record} is not there").into());
        };
        match value.len() == self.value && value[COUNTER..LEAST_VALUE] == record.to_le_bytes() {
            true => Ok(()),
            false => Err(format!("record {record} has the value {value:x?}").into()),
        }
    }
}

/// The value that a merge makes of one: `operand` is added to its counter.
pub fn add(value: &mut [u8], operand: u64) {
    if let Some(counter) = value.first_chunk_mut::<COUNTER>() {
        *counter = u64::from_le_bytes(*counter)
            .wrapping_add(operand)
            .to_le_bytes();
    }
}

/// The finalizer of SplitMix64, which is one to one.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
