//! The verbs on slices of the host: parts of a batch travel to the device through pinned memory,
//! the next one while one is executed. Slices that the caller has pinned are not copied on the way.
//!
//! The values of a long batch do not travel at all. The file is in the host's memory, so threads of the
//! host copy them from the records that the device has found, and into those that it will be told of.

mod change;
mod lookup;

use std::ops::Range;

use fixedbitset::FixedBitSet;

use super::sizes;
use crate::Result;
use crate::engine::Write;
use crate::engine::cuda::CudaEngine;
use crate::engine::cuda::kernels::Read;
use crate::engine::cuda::service::Server;
use crate::engine::cuda::stream::CALLER_ALONE_BYTES_MAX;
use crate::engine::cuda::table::DeviceTable;
use crate::gpu::memory::Address;
use crate::pm::Mapping;
use crate::pool::run_off_pool;
use crate::table::Table;
use crate::table::record::ValuePart;
use crate::width::{to_usize, u32_of};
use change::Transfer;

/// Most positions of a part; a multiple of 64. The more there are, the closer together are the offsets
/// that they touch.
const PART_OPS_MAX: usize = 1 << 18;

/// Most bytes of keys and values of a part.
const PART_BYTES_MAX: usize = 96 << 20;

/// Most positions of a batch that the caller's thread serves alone: waking others would take longer.
const CALLER_ALONE_OPS_MAX: usize = 8192;

/// Values that one thread copies at a time.
const COPY_VALUES_MAX: usize = 2048;

/// About how many bytes of them at most.
const COPY_BYTES_MAX: usize = 1 << 18;

impl CudaEngine {
    /// Executes a batch that changes the table. `values` is empty for [`Write::Remove`].
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged), and those of a table that cannot grow.
    pub(crate) fn write(
        &self,
        table: &Table<Mapping>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
    ) -> Result<FixedBitSet> {
        let is_short = self.is_short(table, keys, values);
        self.serve(table, is_short, |server| match server {
            Server::Host(engine) => engine.write(table, verb, keys, values),
            Server::Device(device_table) => {
                let transfer = if is_short {
                    Transfer::Sent
                } else {
                    Transfer::Stored
                };
                let changed = device_table.change(table, verb, keys, values, transfer);
                // Also after an error, which some changes may have come before.
                table.note_change();
                changed
            }
        })
    }

    /// Copies a part of the values of the keys that are there. `values` holds such parts.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged).
    pub(crate) fn get(
        &self,
        table: &Table<Mapping>,
        wanted: ValuePart,
        keys: &[u8],
        values: &mut [u8],
    ) -> Result<FixedBitSet> {
        // Checksums are compared where the host copies the values, which threads share.
        let is_short = self.is_short(table, keys, values) && !table.verifies_values();
        self.serve(table, is_short, |server| match server {
            Server::Host(engine) => engine.get(table, wanted, keys, values),
            Server::Device(device_table) => {
                let verb = match is_short {
                    true => Read::Get,
                    false => Read::Locate,
                };
                device_table.lookup(table, verb, wanted, keys, values)
            }
        })
    }

    /// Says which keys are there.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged).
    pub(crate) fn contains(&self, table: &Table<Mapping>, keys: &[u8]) -> Result<FixedBitSet> {
        let is_short = self.is_short(table, keys, &[]);
        self.serve(table, is_short, |server| match server {
            Server::Host(engine) => engine.contains(table, keys),
            Server::Device(device_table) => {
                let whole = ValuePart::whole(&table.shape);
                device_table.lookup(table, Read::Contains, whole, keys, &mut [])
            }
        })
    }

    /// Serves a batch, which if it is not short is shared with other threads.
    fn serve(
        &self,
        table: &Table<Mapping>,
        is_short: bool,
        call: impl FnOnce(Server<'_>) -> Result<FixedBitSet> + Send,
    ) -> Result<FixedBitSet> {
        // Within a budget lookups wait for each other, and must not be executed by one that waits.
        match is_short && !self.service.budget().is_bounded() {
            true => self.service.serve(table, call),
            false => run_off_pool(|| self.service.serve(table, call)),
        }
    }

    /// Whether the caller's thread serves a batch alone.
    fn is_short(&self, table: &Table<Mapping>, keys: &[u8], values: &[u8]) -> bool {
        let watch = self.service.options().write_trace.as_ref();
        let most = watch.map_or(CALLER_ALONE_OPS_MAX, |watch| watch.short());
        keys.len() / sizes(table).0 <= most && keys.len() + values.len() <= CALLER_ALONE_BYTES_MAX
    }
}

/// The parts of a batch of `len` positions, with so many bytes of keys and of values each, in whole words of answers.
fn parts(
    device_table: &DeviceTable,
    len: usize,
    (key_size, value_size): (usize, usize),
) -> impl Iterator<Item = Range<usize>> + use<> {
    let part = (PART_BYTES_MAX / (key_size + value_size)).clamp(64, PART_OPS_MAX) & !63;
    // In place of values there may be where they are.
    let value_size = value_size.max(size_of::<Address>());
    let part = device_table.part_ops(u32_of(part as u64), key_size, value_size) as usize;
    (0..len)
        .step_by(part)
        .map(move |first| first..len.min(first + part))
}

/// The length of a [part](parts), as the kernels take it.
fn len_of(part: &Range<usize>) -> u32 {
    u32::try_from(part.len()).expect("a part is short")
}

/// Enters the answer words of the positions from `first`, a multiple of 64, on.
fn keep(answers: &mut FixedBitSet, first: usize, words: impl Iterator<Item = u64>) {
    let blocks = &mut answers.as_mut_slice()[first / 64..];
    for (block, word) in blocks.iter_mut().zip(words) {
        *block = to_usize(word);
    }
}

/// How many values of so many bytes one thread copies at a time.
fn copied(size: usize) -> usize {
    (COPY_BYTES_MAX / size).clamp(1, COPY_VALUES_MAX)
}
