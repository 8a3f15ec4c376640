//! Batches on the device: of slices of the host, which travel there in parts, and of slices that are there.

mod device;
mod host;
mod read;
mod write;

use std::sync::atomic::Ordering;

use super::table::DeviceTable;
use crate::gpu::abi::AddressSortView;
use crate::pm::Mapping;
use crate::table::Table;
use crate::width::to_usize;

pub(crate) use device::DeviceOperands;

impl DeviceTable {
    /// Says whether a batch that reads or writes `len` offsets of the file is put in order.
    fn order_of(&self, order: AddressSortView, len: u32) -> AddressSortView {
        let wanted = len >= self.ordered_from.load(Ordering::Relaxed);
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
