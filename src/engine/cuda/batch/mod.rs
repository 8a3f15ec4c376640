//! Batches on the device: of slices of the host, which travel there in parts, and of slices that are there.

mod device;
mod host;
mod read;
mod write;

use std::sync::atomic::Ordering;

use super::table::DeviceTable;
use crate::gpu::abi::AddressSortView;
use crate::gpu::batch::part_ops;
use crate::pm::Mapping;
use crate::table::Table;
use crate::width::to_usize;

pub(crate) use device::DeviceOperands;

impl DeviceTable {
    /// Most positions of a part of a batch, up to `most`, with so many bytes of keys and of values each in its buffers.
    pub fn part_ops(&self, most: u32, key_size: usize, value_size: usize) -> u32 {
        part_ops(&self.budget, most, key_size, value_size)
    }

    /// Says whether a batch that reads or writes `len` offsets of the file is put in order.
    fn order_of(&self, order: AddressSortView, len: u32) -> AddressSortView {
        // There may be no memory for it.
        let wanted = order.bins != 0 && len >= self.ordered_from.load(Ordering::Relaxed);
        AddressSortView {
            wanted: wanted.into(),
            ..order
        }
    }
}

/// Bytes of a key and of a value.
fn sizes(table: &Table<Mapping>) -> (usize, usize) {
    (
        to_usize(table.shape.key_size),
        to_usize(table.shape.value_size),
    )
}
