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
use crate::gpu::abi::{AddressSortView, BatchView, TableView};
use crate::gpu::budget::IndexBudget;
use crate::gpu::event::Event;
use crate::gpu::memory::DeviceMemory;
use crate::gpu::order::{OrderMemory, PAGE};
use crate::gpu::stream::Stream;
use crate::layout;

// What a bin has is of one page at least.
const _: () = assert!(PAGE == layout::PAGE);

/// Files below this length are not worth ordering for: all their translations are at hand.
const SORTED_FILE_BYTES_MIN: u64 = 256 << 20;

/// Lengths of batches that may be measured, from the middle one on: up as far as it takes, or down as far
/// as it pays.
const LENGTHS: [u32; 6] = [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15];

/// Batches that are timed together, so that launching them is not what takes long.
const TIMED_BATCHES: u32 = 4;

/// Most bytes of values that a measurement reads.
const MEASURED_BYTES_MAX: u64 = 64 << 20;

/// The shortest length of a batch that is read faster in order, on this device and file;
/// `u32::MAX` if none is. Whoever opens the file waits for it, and nothing else is under way.
///
/// # Errors
/// [`Error::Gpu`](crate::Error::Gpu).
pub fn measure(
    kernels: &Kernels,
    batch_stream: &mut BatchStream,
    budget: &IndexBudget,
    table: TableView,
) -> Result<u32> {
    if table.file_len < SORTED_FILE_BYTES_MIN {
        return Ok(u32::MAX);
    }
    let value_size = table.value_size as usize;
    // The stream that orders them has half of what is left at least.
    let bytes = (budget.buffers.left() / 2).min(MEASURED_BYTES_MAX);
    let most = u32::try_from(bytes / u64::from(table.value_size)).expect("its bytes are bounded");
    let is_possible =
        |&len: &u32| len <= most && OrderMemory::len_for(len) <= budget.stream_bytes_max;
    let lengths = &LENGTHS[..LENGTHS.partition_point(is_possible)];
    let Some(&longest) = lengths.last() else {
        return Ok(u32::MAX);
    };
    let values = DeviceMemory::new(&budget.buffers, longest as usize * value_size)?;
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
