//! A lookup, from its keys in device memory to its answers there.

use std::sync::atomic::Ordering;

use bytemuck::Zeroable;

use crate::Result;
use crate::engine::cuda::kernels::declarations::REPORT;
use crate::engine::cuda::kernels::{Grid, Read};
use crate::engine::cuda::stream::{BatchStream, Operands};
use crate::engine::cuda::table::{DeviceTable, WHOLE, check_damage};
use crate::gpu::abi::{AddressSortView, BatchView, TableView};
use crate::gpu::launch::Launch;
use crate::gpu::memory::{Address, wait};
use crate::pm::Mapping;
use crate::table::Table;
use crate::width::u32_of;

/// A lookup on its stream.
pub struct ReadBatch {
    verb: Read,
    operands: Operands,
    /// Bytes that are found for a position.
    size: u32,
    /// Changes that had begun when it was put there, if none was under way.
    changes: Option<u64>,
}

impl DeviceTable {
    /// Puts a lookup on its stream. What it finds comes back to the host.
    ///
    /// # Safety
    /// The operands must be addresses of this device that are valid for their lengths, and nobody else's
    /// to change, until [`end_read`](Self::end_read) has ended the lookup. As long, what `table` names
    /// must stay.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub unsafe fn begin_read(
        &self,
        table: TableView,
        batch_stream: &mut BatchStream,
        verb: Read,
        mut operands: Operands,
    ) -> Result<ReadBatch> {
        let counters = batch_stream.counters()?;
        let (words, to) = batch_stream.outcome(&operands)?;
        let mut order = AddressSortView::zeroed();
        let size = match verb {
            Read::Get => {
                order = batch_stream.order(operands.len, table.file_len)?;
                table.value_size
            }
            Read::Locate => {
                operands.values = batch_stream.room_for_offsets(operands.len)?;
                const { u32_of(size_of::<Address>() as u64) }
            }
            Read::Contains => 0,
        };
        // In this order: of a change that was counted already the lock is still held, or it has ended.
        let changes = self.changes.load(Ordering::SeqCst);
        let beside = self.writer.is_locked();
        let mut launches = batch_stream.launches();
        // SAFETY: the caller keeps the operands and what the view names valid. The other buffers are
        // this stream's, and were made for as many positions. Nobody looks at the outcome before the
        // stream has come past.
        unsafe {
            self.launch_read(&mut launches, table, verb, operands, order, counters)?;
            let arguments = (counters, operands.answers, words, to);
            self.kernels
                .launch(&mut launches, REPORT, Grid::Threads(words), arguments)?;
            launches.submit()?;
        }
        if verb == Read::Get {
            batch_stream.fetch_values(operands.len, size)?;
        }
        Ok(ReadBatch {
            verb,
            operands,
            size,
            changes: (!beside).then_some(changes),
        })
    }

    /// Waits for a lookup.
    pub fn end_read(
        &self,
        table: &Table<Mapping>,
        batch_stream: &mut BatchStream,
        batch: &ReadBatch,
    ) -> Result<()> {
        wait(&batch_stream.stream)?;
        let counters = batch_stream.fetched_counters();
        table.count_batch(counters.operations, 0, counters.touches);
        self.count_cache(counters.cache_lookups, counters.cache_hits);
        check_damage(table, &counters)?;
        let len = batch.operands.len;
        if len == 1 || batch.changes == Some(self.changes.load(Ordering::SeqCst)) {
            return Ok(());
        }
        // Equal keys may have been told of different changes, and not in the order given.
        let groups = batch_stream.groups(len)?;
        let (words, to) = batch_stream.outcome(&batch.operands)?;
        let mut found = BatchView::zeroed();
        found.keys = batch.operands.keys;
        found.values = batch.operands.values;
        found.answers = batch.operands.answers;
        found.len = len;
        let counters = batch_stream.counters_address();
        let mut launches = batch_stream.launches();
        // SAFETY: whoever began the lookup keeps its operands valid until this call ends. The groups
        // were made for its positions, on this stream.
        unsafe {
            self.kernels
                .agree(&mut launches, groups, found, batch.size, counters)?;
            let arguments = (counters, found.answers, words, to);
            self.kernels
                .launch(&mut launches, REPORT, Grid::Threads(words), arguments)?;
            launches.submit()?;
        }
        if batch.verb == Read::Get {
            batch_stream.fetch_values(len, batch.size)?;
        }
        Ok(wait(&batch_stream.stream)?)
    }

    /// Launches a batch that looks up.
    ///
    /// # Safety
    /// The operands, the order's memory and what the view names must stay until the stream has
    /// come past.
    pub unsafe fn launch_read(
        &self,
        on: impl Launch,
        table: TableView,
        verb: Read,
        operands: Operands,
        order: AddressSortView,
        counters: Address,
    ) -> Result<()> {
        let mut view = BatchView::zeroed();
        view.keys = operands.keys;
        view.values = operands.values;
        view.answers = operands.answers;
        view.len = operands.len;
        view.tile = self.kernels.tile(operands.len);
        view.sample = self.launches.fetch_add(1, Ordering::Relaxed);
        // What the cache answers needs no order.
        let missed = u64::from(self.missed.load(Ordering::Relaxed)) * u64::from(operands.len);
        let missed = u32::try_from(missed / u64::from(WHOLE)).expect("a share of the batch");
        view.order = self.order_of(order, missed);
        // SAFETY: the caller keeps everything valid that the arguments name; a lookup changes only
        // answers, values and counters, which are the batch's.
        unsafe { self.kernels.read(on, verb, table, view, counters) }
    }
}
