//! Putting batches in the order of the offsets that they touch in the file, and finding out from
//! which length on that pays.
//!
//! Address translation limits random access to host memory. So the limit depends on the machine and
//! on the size of the file, and is measured on both. Batches of made-up offsets are read once in
//! random order and once in order, sorting included.

use bytemuck::Zeroable;

use super::BatchStream;
use crate::Result;
use crate::engine::cuda::kernels::Kernels;
use crate::gpu::abi::{AddressSortView, BIN_CHUNK, BatchView, MOST_CHUNKS, TableView};
use crate::gpu::event::Event;
use crate::gpu::memory::{DeviceMemory, fill};
use crate::gpu::stream::Stream;
use crate::layout;

/// Files below this length are not worth ordering for: all their translations are at hand.
const SORTED_FILE_BYTES_MIN: u64 = 256 << 20;

/// Lengths of batches that may be measured, from the middle one on: up as far as it takes, or down as far
/// as it pays.
const LENGTHS: [u32; 6] = [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15];

/// Batches that are timed together, so that launching them is not what takes long.
const TIMED_BATCHES: u32 = 4;

/// Bins for each offset of a batch: so many that hardly two share one.
const BINS_PER_OFFSET: u64 = 4;

/// Most bins of a batch.
const BINS_MAX: u32 = BIN_CHUNK * MOST_CHUNKS;

/// Most bytes of values that a measurement reads.
const MEASURED_BYTES_MAX: usize = 64 << 20;

/// Device memory in which a batch is put in order.
pub struct OrderMemory {
    block: DeviceMemory,
    bins: DeviceMemory,
    starts: DeviceMemory,
    sums: DeviceMemory,
}

/// The bins of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bins {
    count: u32,
    /// Bits of an offset that do not choose its bin.
    shift: u32,
}

impl Bins {
    /// Those for `len` offsets in a file of `file_len` bytes: some for each offset, but none smaller
    /// than a page, which is what the address of is translated.
    pub fn of(len: u32, file_len: u64) -> Self {
        let bits = u64::BITS - (file_len - 1).leading_zeros();
        let pages = bits.saturating_sub(layout::PAGE.ilog2());
        let offsets = (u64::from(len) * BINS_PER_OFFSET)
            .next_power_of_two()
            .ilog2();
        let wanted = pages
            .min(offsets)
            .clamp(BIN_CHUNK.ilog2(), BINS_MAX.ilog2());
        Self {
            count: 1 << wanted,
            shift: bits.saturating_sub(wanted),
        }
    }
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
            starts: DeviceMemory::new(0)?,
            sums: DeviceMemory::new(0)?,
        })
    }

    /// Whether `len` positions, and these bins, fit into what there is.
    pub fn fits(&self, len: u32, bins: Bins) -> bool {
        self.block.len() >= len as usize * 16 && self.bins.len() >= bins.count as usize * 4
    }

    /// Memory for `len` positions, on `stream`; if it does not [fit](Self::fits), nothing may be
    /// using it.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn view(&mut self, stream: &Stream, len: u32, bins: Bins) -> Result<AddressSortView> {
        let bytes = bins.count as usize * 4;
        if self.bins.len() < bytes {
            let bins = DeviceMemory::new(bytes)?;
            let starts = DeviceMemory::new(bytes)?;
            let sums = DeviceMemory::new((MOST_CHUNKS + 1) as usize * 4)?;
            for counts in [&bins, &sums] {
                // SAFETY: the block is as long. From here on whoever has counted into it leaves
                // it zero.
                unsafe { fill(stream, counts.address(), 0, counts.len())? };
            }
            // All of them, or none.
            (self.bins, self.starts, self.sums) = (bins, starts, sums);
        }
        let positions = u64::from(len);
        self.block.reserve(len as usize * 16)?;
        let offsets = self.block.address();
        Ok(AddressSortView {
            offsets,
            ranks: offsets + positions * 8,
            positions: offsets + positions * 12,
            bins: self.bins.address(),
            starts: self.starts.address(),
            sums: self.sums.address(),
            bin_count: bins.count,
            shift: bins.shift,
            ..AddressSortView::default()
        })
    }
}

/// The shortest length of a batch that is read faster in order, on this device and file;
/// `u32::MAX` if none is. Whoever opens the file waits for it.
///
/// # Errors
/// [`Error::Gpu`](crate::Error::Gpu).
pub fn measure(kernels: &Kernels, batch_stream: &mut BatchStream, table: TableView) -> Result<u32> {
    if table.file_len < SORTED_FILE_BYTES_MIN {
        return Ok(u32::MAX);
    }
    let value_size = table.value_size as usize;
    let most = u32::try_from(MEASURED_BYTES_MAX / value_size).expect("its bytes are bounded");
    let lengths = &LENGTHS[..LENGTHS.partition_point(|&len| len <= most)];
    let Some(&longest) = lengths.last() else {
        return Ok(u32::MAX);
    };
    let values = DeviceMemory::new(longest as usize * value_size)?;
    let mut is_faster =
        |len| is_faster_in_order(kernels, batch_stream, table, values.address(), len);
    let (short, long) = lengths.split_at(lengths.len() / 2);
    let mut shortest = u32::MAX;
    for &len in long {
        if is_faster(len)? {
            shortest = len;
            break;
        }
    }
    if shortest == long[0] {
        for &len in short.iter().rev() {
            if !is_faster(len)? {
                break;
            }
            shortest = len;
        }
    }
    Ok(shortest)
}

/// Whether batches of this length, whose values go to `values`, are read faster in order.
fn is_faster_in_order(
    kernels: &Kernels,
    batch_stream: &mut BatchStream,
    table: TableView,
    values: u64,
    len: u32,
) -> Result<bool> {
    let order = batch_stream.order(len, table.file_len)?;
    let mut view = BatchView::zeroed();
    view.values = values;
    view.len = len;
    view.tile = kernels.tile(len);
    view.sample = len;
    let mut took = [0.0; 2];
    for (wanted, took) in (0..).zip(&mut took) {
        view.order = AddressSortView { wanted, ..order };
        // Not the first run, which finds nothing ready, and no offset twice, whose translation
        // would be at hand.
        for _ in 0..2 {
            view.sample += TIMED_BATCHES;
            *took = timed(kernels, &batch_stream.stream, table, view)?;
        }
    }
    tracing::debug!(
        len,
        unordered_us = took[0],
        ordered_us = took[1],
        "address order measured"
    );
    Ok(took[1] <= took[0])
}

/// Microseconds for reading some batches of made-up offsets, one after another.
fn timed(kernels: &Kernels, stream: &Stream, table: TableView, batch: BatchView) -> Result<f32> {
    let begin = Event::timed()?;
    let end = Event::timed()?;
    begin.record(stream)?;
    let launched = (0..TIMED_BATCHES).try_for_each(|nth| {
        let sample = batch.sample + nth;
        // SAFETY: the batch's memory is as long as its views say, and the table's file is mapped;
        // the events below wait for the end.
        unsafe { kernels.read_made_up(stream, table, BatchView { sample, ..batch }) }
    });
    end.record(stream)?;
    end.wait()?;
    let took = end.since(&begin)? * 1e3;
    launched.map(|()| took)
}

#[cfg(test)]
mod tests;
