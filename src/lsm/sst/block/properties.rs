//! What is known of a file as a whole.
//!
//! ```text
//!  0         8            16                  24                 32             36
//!  | entries | tombstones | smallest sequence | largest sequence | smallest len | largest len |
//!  40
//!  | smallest key ... | largest key ... | value files ... |
//!
//!  0      8       16    24
//!  | file | bytes | end |         a value file
//! ```
//!
//! Of each value file to which entries refer, in the order of their numbers: the bytes of their values, and the byte
//! behind the last one.

use bytemuck::{Pod, Zeroable};
use gphash_layout::mark::COUNT_LIMIT;

use crate::{Entry, KEY_BYTES_MAX, Value, ValueUse};

/// See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Tombstones among them.
    pub entries: u64,
    /// Deletions among the entries.
    pub tombstones: u64,
    /// Of an entry.
    pub smallest_sequence: u64,
    /// Of an entry.
    pub largest_sequence: u64,
    /// The first key.
    pub smallest: Vec<u8>,
    /// The last key.
    pub largest: Vec<u8>,
    /// What its entries have in value files, in the order of their numbers.
    pub values: Vec<ValueUse>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Fixed {
    entries: u64,
    tombstones: u64,
    smallest_sequence: u64,
    largest_sequence: u64,
    smallest_len: u32,
    largest_len: u32,
}

impl Properties {
    /// Those of a file without entries.
    pub const fn none() -> Self {
        Self {
            entries: 0,
            tombstones: 0,
            smallest_sequence: u64::MAX,
            largest_sequence: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Counts an entry with a key behind all others. The largest key is not kept up.
    pub fn count(&mut self, entry: &Entry) {
        if self.entries == 0 {
            self.smallest = entry.key.to_vec();
        }
        self.entries += 1;
        self.tombstones += u64::from(entry.value.is_none());
        self.smallest_sequence = self.smallest_sequence.min(entry.sequence);
        self.largest_sequence = self.largest_sequence.max(entry.sequence);
        if let Some(Value::Apart(value)) = entry.value {
            let nth = self.values.binary_search_by_key(&value.file, |of| of.file);
            let nth = nth.unwrap_or_else(|nth| {
                let file = value.file;
                self.values.insert(
                    nth,
                    ValueUse {
                        file,
                        ..ValueUse::default()
                    },
                );
                nth
            });
            let of = &mut self.values[nth];
            of.bytes = of.bytes.saturating_add(value.len as u64);
            of.end = of.end.max(value.end().unwrap_or(u64::MAX));
        }
    }

    /// As they stand in the file.
    ///
    /// # Panics
    /// If a key is longer than [`KEY_BYTES_MAX`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let fixed = Fixed {
            entries: self.entries,
            tombstones: self.tombstones,
            smallest_sequence: self.smallest_sequence,
            largest_sequence: self.largest_sequence,
            smallest_len: u32::try_from(self.smallest.len()).expect("keys have a longest length"),
            largest_len: u32::try_from(self.largest.len()).expect("keys have a longest length"),
        };
        let values = bytemuck::cast_slice(&self.values);
        [
            bytemuck::bytes_of(&fixed),
            &self.smallest,
            &self.largest,
            values,
        ]
        .concat()
    }

    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let (fixed, keys) = bytes
            .split_at_checked(size_of::<Fixed>())
            .ok_or_else(|| format!("{} bytes", bytes.len()))?;
        let fixed: Fixed = bytemuck::pod_read_unaligned(fixed);
        let lens = [fixed.smallest_len as usize, fixed.largest_len as usize];
        let rest = keys.len().checked_sub(lens[0] + lens[1]);
        if lens.iter().any(|&len| len > KEY_BYTES_MAX)
            || rest.is_none_or(|rest| rest % size_of::<ValueUse>() != 0)
        {
            let len = keys.len();
            return Err(format!("keys of {lens:?} bytes in {len}"));
        }
        let (keys, values) = keys.split_at(lens[0] + lens[1]);
        let values = values.chunks_exact(size_of::<ValueUse>());
        let values: Vec<ValueUse> = values.map(bytemuck::pod_read_unaligned).collect();
        if !values.is_sorted_by(|a, b| a.file < b.file) {
            return Err(format!("{values:?}"));
        }
        let (smallest, largest) = keys.split_at(lens[0]);
        if smallest > largest || fixed.entries == 0 || fixed.tombstones > fixed.entries {
            let (entries, tombstones) = (fixed.entries, fixed.tombstones);
            return Err(format!(
                "{entries} entries and {tombstones} tombstones, from {smallest:02x?} to {largest:02x?}"
            ));
        }
        if fixed.largest_sequence >= COUNT_LIMIT {
            return Err(format!("sequence number {}", fixed.largest_sequence));
        }
        Ok(Self {
            entries: fixed.entries,
            tombstones: fixed.tombstones,
            smallest_sequence: fixed.smallest_sequence,
            largest_sequence: fixed.largest_sequence,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            values,
        })
    }
}

#[cfg(test)]
mod tests;
