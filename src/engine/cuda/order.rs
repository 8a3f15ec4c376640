//! Putting batches in the order of the places that they touch in the file, and finding out from
//! which length on that pays.
//!
//! What limits random access to host memory is address translation, so it depends on the machine
//! and on the size of the file, and is measured on both: batches of made-up places are read once in
//! random order and once in order, sorting included.

use cust::event::{Event, EventFlags};
use cust::stream::Stream;

use super::channel::Channel;
use super::device::failed;
use super::kernels::Kernels;
use super::memory::{DeviceMemory, fill};
use super::view::{BINS, BatchView, OrderView, TableView};
use crate::Result;
use bytemuck::Zeroable;

/// Files below this length are not worth ordering for: all their translations are at hand.
const SHORT_FILE: u64 = 256 << 20;

/// Lengths of batches that are measured.
const LENGTHS: [u32; 4] = [1 << 12, 1 << 14, 1 << 16, 1 << 17];

/// Most bytes of values that a measurement reads.
const MOST_VALUES: usize = 64 << 20;

/// Device memory in which a batch is put in order.
pub struct OrderMemory {
    block: DeviceMemory,
    bins: DeviceMemory,
}

impl OrderMemory {
    /// None yet. The device must have been entered.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn new() -> Result<Self> {
        Ok(Self {
            block: DeviceMemory::new(0)?,
            bins: DeviceMemory::new(0)?,
        })
    }

    /// Whether `len` positions fit into what there is.
    pub fn fits(&self, len: u32) -> bool {
        self.block.len() >= len as usize * 16
    }

    /// Memory for `len` positions, on `stream`; nothing may be using it.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn view(&mut self, stream: &Stream, len: u32) -> Result<OrderView> {
        if self.bins.len() == 0 {
            let bytes = (BINS as usize + 1) * 4;
            self.bins.reserve(bytes)?;
            // SAFETY: the block is as long. From here on whoever has counted into the bins
            // leaves them zero.
            unsafe { fill(stream, self.bins.address(), 0, bytes)? };
        }
        let positions = u64::from(len);
        self.block.reserve(len as usize * 16)?;
        let places = self.block.address();
        Ok(OrderView {
            places,
            ranks: places + positions * 8,
            positions: places + positions * 12,
            bins: self.bins.address(),
            shift: 0,
            wanted: 0,
        })
    }
}

/// The bits of a place that do not choose its bin, in a file of this length.
pub fn bin_shift(file_len: u64) -> u32 {
    let bins = BINS.ilog2();
    (u64::BITS - (file_len - 1).leading_zeros()).saturating_sub(bins)
}

/// The shortest length of a batch that is read faster in order, on this device and file;
/// `u32::MAX` if none is.
///
/// # Errors
/// [`Error::Gpu`](crate::Error::Gpu).
pub fn measure(kernels: &Kernels, channel: &mut Channel, table: TableView) -> Result<u32> {
    if table.file_len < SHORT_FILE {
        return Ok(u32::MAX);
    }
    let value_size = table.value_size as usize;
    let longest = LENGTHS[LENGTHS.len() - 1].min((MOST_VALUES / value_size) as u32);
    let values = DeviceMemory::new(longest as usize * value_size)?;
    let mut shortest = u32::MAX;
    for len in LENGTHS.into_iter().filter(|&len| len <= longest).rev() {
        let mut order = channel.order(len)?;
        order.shift = bin_shift(table.file_len);
        let mut view = BatchView::zeroed();
        view.values = values.address();
        view.len = len;
        view.tile = kernels.tile(len);
        let mut took = [0.0; 2];
        for (wanted, took) in (0..).zip(&mut took) {
            view.order = OrderView { wanted, ..order };
            // The first run fills the device's caches of translations, as other batches do.
            timed(kernels, &channel.stream, table, view)?;
            *took = timed(kernels, &channel.stream, table, view)?;
        }
        tracing::debug!(
            len,
            unordered_us = took[0],
            ordered_us = took[1],
            "address order measured"
        );
        if took[1] > took[0] {
            break;
        }
        shortest = len;
    }
    Ok(shortest)
}

/// Microseconds for reading a batch of made-up places.
fn timed(kernels: &Kernels, stream: &Stream, table: TableView, batch: BatchView) -> Result<f32> {
    let run = || {
        let begin = Event::new(EventFlags::DEFAULT)?;
        let end = Event::new(EventFlags::DEFAULT)?;
        begin.record(stream)?;
        // SAFETY: the batch's memory is as long as its views say, and the table's file is mapped;
        // the events below wait for the end.
        let launched = unsafe { kernels.read_made_up(stream, table, batch) };
        end.record(stream)?;
        end.synchronize()?;
        Ok((launched, end.elapsed_time_f32(&begin)? * 1e3))
    };
    let (launched, took) = run().map_err(|error| failed("measuring the device", error))?;
    launched.map(|()| took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_file_has_a_bin() {
        for file_len in [1u64 << 16, 1 << 28, 3_000_000_000, (1 << 33) + 1] {
            assert!((file_len - 1) >> bin_shift(file_len) < BINS);
            assert!(file_len < 1 << 24 || (file_len - 1) >> bin_shift(file_len) >= BINS / 2);
        }
    }
}
