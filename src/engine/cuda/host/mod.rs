//! The verbs on slices of the host: parts of a batch travel to the device through pinned memory,
//! the next one while one is executed. Slices that the caller has pinned are not copied on the way.
//!
//! The values of a long batch do not travel at all. The file is in the host's memory, so threads of the
//! host copy them from the records that the device has found, and into those that it will be told of.

mod change;
mod look_up;

use std::ops::Range;

use fixedbitset::FixedBitSet;

use super::kernels::Read;
use super::{CudaEngine, sizes};
use crate::Result;
use crate::engine::Write;
use crate::index::table::Table;
use crate::pm::Mapping;
use crate::threads::undisturbed;
use change::Transfer;

/// Most positions of a part; a multiple of 64. The more there are, the closer together are the places
/// that they touch.
const PART: usize = 1 << 18;

/// Most bytes of keys and values of a part.
const PART_BYTES: usize = 96 << 20;

/// Most positions, and most bytes of keys and values, of a batch that the caller's thread serves alone:
/// waking others would take longer.
const SHORT: (usize, usize) = (8192, 1 << 20);

/// Values that one thread copies at a time, and about how many bytes of them at most.
const COPIED: (usize, usize) = (2048, 1 << 18);

impl CudaEngine {
    /// Executes a batch that changes the table. `values` is empty for [`Write::Remove`].
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`], and those of a table that cannot grow.
    pub(crate) fn write(
        &self,
        table: &Table<Mapping>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
    ) -> Result<FixedBitSet> {
        match self.is_short(table, keys, values) {
            true => self.change(table, verb, keys, values, Transfer::Sent),
            false => undisturbed(|| self.change(table, verb, keys, values, Transfer::Stored)),
        }
    }

    /// Copies the values of the keys that are there.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged).
    pub(crate) fn get(
        &self,
        table: &Table<Mapping>,
        keys: &[u8],
        values: &mut [u8],
    ) -> Result<FixedBitSet> {
        match self.is_short(table, keys, values) {
            true => self.look_up(table, Read::Get, keys, values),
            false => undisturbed(|| self.look_up(table, Read::Locate, keys, values)),
        }
    }

    /// Says which keys are there.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged).
    pub(crate) fn contains(&self, table: &Table<Mapping>, keys: &[u8]) -> Result<FixedBitSet> {
        let contains = || self.look_up(table, Read::Contains, keys, &mut []);
        match self.is_short(table, keys, &[]) {
            true => contains(),
            false => undisturbed(contains),
        }
    }

    /// Whether the caller's thread serves a batch alone.
    fn is_short(&self, table: &Table<Mapping>, keys: &[u8], values: &[u8]) -> bool {
        let watch = self.options.store_watch.as_ref();
        let most = watch.map_or(SHORT.0, |watch| watch.short());
        keys.len() / sizes(table).0 <= most && keys.len() + values.len() <= SHORT.1
    }
}

/// The parts of a batch of `len` positions of so many bytes, in whole words of answers.
fn parts(len: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let part = (PART_BYTES / bytes).clamp(64, PART) & !63;
    (0..len)
        .step_by(part)
        .map(move |first| first..len.min(first + part))
}

/// Enters the answer words of the positions from `first`, a multiple of 64, on.
fn keep(answers: &mut FixedBitSet, first: usize, words: impl Iterator<Item = u64>) {
    let blocks = &mut answers.as_mut_slice()[first / 64..];
    for (block, word) in blocks.iter_mut().zip(words) {
        *block = word as usize;
    }
}

/// How many values of so many bytes one thread copies at a time.
fn copied(size: usize) -> usize {
    (COPIED.1 / size).clamp(1, COPIED.0)
}
