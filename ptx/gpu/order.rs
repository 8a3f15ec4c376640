//! Device memory in which a batch is put in the order of the offsets that it touches in a file.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::abi::{AddressSortView, BIN_CHUNK, MOST_CHUNKS};
use super::budget::Quota;
use super::error::Result;
use super::memory::{DeviceMemory, fill};
use super::stream::Stream;

/// Bytes of a page, which is what an address is translated by.
pub const PAGE: u64 = 4096;

/// Bins for each offset of a batch: so many that hardly two share one.
const BINS_PER_OFFSET: u64 = 4;

/// Most bins of a batch.
const BINS_MAX: u32 = BIN_CHUNK * MOST_CHUNKS;

/// Bytes of the sums of chunks.
const SUMS_LEN: usize = (MOST_CHUNKS + 1) as usize * 4;

/// Device memory in which a batch is put in order.
pub struct OrderMemory {
    block: DeviceMemory,
    bins: DeviceMemory,
    starts: DeviceMemory,
    sums: DeviceMemory,
    quota: Arc<Quota>,
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
        let pages = bits.saturating_sub(PAGE.ilog2());
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
    /// None yet.
    pub fn new(quota: &Arc<Quota>) -> Self {
        Self {
            block: DeviceMemory::empty(quota),
            bins: DeviceMemory::empty(quota),
            starts: DeviceMemory::empty(quota),
            sums: DeviceMemory::empty(quota),
            quota: Arc::clone(quota),
        }
    }

    /// Bytes of device memory.
    pub fn device_bytes(&self) -> u64 {
        let blocks = [&self.block, &self.bins, &self.starts, &self.sums];
        blocks.map(|block| block.len() as u64).iter().sum()
    }

    /// Bytes for `len` positions, as they are [made](Self::view), and as many bins as a file may need.
    pub fn len_for(len: u32) -> u64 {
        let bins = u64::from(Bins::of(len, u64::MAX).count) * 4;
        (u64::from(len) * 16).next_power_of_two() + 2 * bins + SUMS_LEN as u64
    }

    /// Whether `len` positions, and these bins, fit into what there is.
    pub fn fits(&self, len: u32, bins: Bins) -> bool {
        self.block.len() >= len as usize * 16 && self.bins.len() >= bins.count as usize * 4
    }

    /// Memory for `len` positions, on `stream`; if it does not [fit](Self::fits), nothing may be
    /// using it.
    ///
    /// # Errors
    /// [`Error`](crate::gpu::error::Error).
    pub fn view(&mut self, stream: &Stream, len: u32, bins: Bins) -> Result<AddressSortView> {
        let bytes = bins.count as usize * 4;
        if self.bins.len() < bytes {
            // The old ones go first: there may not be room for both.
            *self = Self::new(&self.quota);
            let bins = DeviceMemory::new(&self.quota, bytes)?;
            let starts = DeviceMemory::new(&self.quota, bytes)?;
            let sums = DeviceMemory::new(&self.quota, SUMS_LEN)?;
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
