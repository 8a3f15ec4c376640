//! One batch on its stream, from its operands in device memory to its answers there.

mod device;
mod host;

use std::sync::atomic::Ordering;

use bytemuck::Zeroable;

use super::abi::{BatchView, GroupsView, OrderView, TableView};
use super::kernels::declarations::{REPORT, write};
use super::kernels::{Grid, Read};
use super::stream::{BatchStream, Operands};
use super::table::{DeviceTable, Integrity, WHOLE, Writer};
use crate::engine::Write;
use crate::gpu::launch::Launch;
use crate::gpu::memory::Address;
use crate::gpu::memory::wait;
use crate::pm::Mapping;
use crate::table::Table;
use crate::width::{to_usize, u32_of};
use crate::{Error, Result};

pub(crate) use device::DeviceOperands;

/// A batch on its stream.
pub struct WriteBatch {
    operands: Operands,
    groups: Option<GroupsView>,
    view: BatchView,
}

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
    /// Puts a batch that changes the table on its stream.
    pub fn begin_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        verb: Write,
        operands: Operands,
    ) -> Result<WriteBatch> {
        let begun = self.launch_write(table, writer, channel, verb, operands);
        writer.keep_failure(begun)
    }

    fn launch_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        verb: Write,
        operands: Operands,
    ) -> Result<WriteBatch> {
        self.follow(table, writer, &channel.stream)?;
        let len = operands.len;
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::SeqCst);
        if operands.stored {
            // Already the launch that finds the slots retires records.
            writer
                .record_pool
                .make_room(&channel.stream, u64::from(len))?;
        }
        let pending = channel.pending(len)?;
        let groups = (len > 1).then(|| channel.groups(len)).transpose()?;
        let view = BatchView {
            keys: operands.keys,
            values: operands.values,
            answers: operands.answers,
            pending,
            entry: groups.map_or(0, |groups| groups.entry),
            first: groups.map_or(0, |groups| groups.first),
            last: groups.map_or(0, |groups| groups.last),
            len,
            tile: self.kernels.tile(len),
            retry: 0,
            depth: self.kernels.depth(len),
            sample: 0,
            stored: operands.stored.into(),
            order: self.order_of(channel.order(len, self.view_now().file_len)?, len),
        };
        let counters = channel.counters_address();
        // From the first claim of a slot on, until it is known what was stored.
        writer.integrity = Integrity::InFlight;
        let mut launches = channel.launches();
        // SAFETY: the channel's buffers have been made for `len` positions, and stay until the
        // batch is done, as do the file and the mirror; the writer's lock keeps other changes away.
        unsafe {
            self.kernels.begin(&mut launches, groups, view, counters)?;
            let (table, records) = (self.view_now(), writer.record_pool.view());
            self.kernels
                .resolve(&mut launches, verb, table, records, view, counters)?;
            launches.submit()?;
        }
        let batch = WriteBatch {
            operands,
            groups,
            view,
        };
        self.store_changes(table, writer, channel, verb, &batch)?;
        Ok(batch)
    }

    /// Puts the launches on the stream that store what a batch changes, whose slots are found.
    fn store_changes(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        verb: Write,
        batch: &WriteBatch,
    ) -> Result<()> {
        let WriteBatch {
            operands,
            groups,
            view,
        } = *batch;
        let len = u64::from(operands.len);
        if !operands.stored {
            if verb != Write::Remove {
                self.stock_wanted(table, writer, channel, len)?;
            }
            writer.record_pool.make_room(&channel.stream, len)?;
        }
        let (words, to) = channel.outcome(&operands)?;
        let counters = channel.counters_address();
        let records = writer.record_pool.view();
        let mut launches = channel.launches();
        // SAFETY: as in `begin_write`; nobody looks at the outcome before the stream has come past.
        unsafe {
            let arguments = (self.view_now(), records, view, counters);
            self.kernels
                .launch(&mut launches, write(verb), Grid::tiles(&view), arguments)?;
            if let (Write::Update, Some(groups)) = (verb, groups) {
                self.kernels.spread(&mut launches, groups, view, 0)?;
            }
            let arguments = (counters, operands.answers, words, to);
            self.kernels
                .launch(&mut launches, REPORT, Grid::Threads(words), arguments)?;
            launches.submit()
        }
    }

    /// Makes records available for a batch of `len` operations whose slots are found, if it wants so many.
    fn stock_wanted(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        len: u64,
    ) -> Result<()> {
        self.stock_at_hand(table, writer, &channel.stream, len)?;
        if writer.record_pool.available() < len {
            // A batch may need fewer records than it has operations. What cannot be had stays
            // pending, and whoever ends the batch says why.
            self.fetch_counters(channel)?;
            wait(&channel.stream)?;
            let wanted = channel.fetched_counters().wanted;
            match self.stock(table, writer, &channel.stream, wanted) {
                Err(error @ Error::Gpu { .. }) => return Err(error),
                Err(error) => tracing::debug!(%error, "fewer records than a batch wants"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Waits for a batch, and grows the table as long as some of its operations need that.
    pub fn end_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        verb: Write,
        batch: WriteBatch,
    ) -> Result<()> {
        let ended = self.complete_write(table, writer, channel, verb, batch);
        writer.keep_failure(ended)
    }

    fn complete_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        verb: Write,
        mut batch: WriteBatch,
    ) -> Result<()> {
        loop {
            wait(&channel.stream)?;
            let counters = channel.fetched_counters();
            writer.record_pool.settle(table, &counters);
            writer.integrity = Integrity::Intact;
            let done = counters.operations - counters.full - counters.out_of_records;
            table.count_batch(done, counters.items.cast_signed(), counters.touches);
            if done > 0 {
                table.maintenance.expect_batches(done);
                table.check_room(done);
            }
            self.check_damage(table, &counters)?;
            if counters.full + counters.out_of_records == 0 {
                return Ok(());
            }
            if counters.out_of_records > 0 {
                self.feed(table, writer, &channel.stream, counters.out_of_records)?;
            }
            if counters.full > 0 {
                self.grow(table, writer, channel)?;
            }
            batch.view.retry = 1;
            let counters = channel.counters()?;
            writer.integrity = Integrity::InFlight;
            // SAFETY: as in `begin_write`.
            unsafe {
                let (table, records) = (self.view_now(), writer.record_pool.view());
                self.kernels.resolve(
                    &channel.stream,
                    verb,
                    table,
                    records,
                    batch.view,
                    counters,
                )?;
            }
            self.store_changes(table, writer, channel, verb, &batch)?;
        }
    }

    /// Puts a lookup on its stream. What it finds comes back to the host.
    pub fn begin_read(
        &self,
        table: TableView,
        channel: &mut BatchStream,
        verb: Read,
        mut operands: Operands,
    ) -> Result<ReadBatch> {
        let counters = channel.counters()?;
        let (words, to) = channel.outcome(&operands)?;
        let mut order = OrderView::zeroed();
        let size = match verb {
            Read::Get => {
                order = channel.order(operands.len, table.file_len)?;
                table.value_size
            }
            Read::Locate => {
                operands.values = channel.room_for_places(operands.len)?;
                const { u32_of(size_of::<Address>() as u64) }
            }
            Read::Contains => 0,
        };
        // In this order: of a change that was counted already the lock is still held, or it has ended.
        let changes = self.changes.load(Ordering::SeqCst);
        let beside = self.writer.is_locked();
        let mut launches = channel.launches();
        // SAFETY: the channel's buffers have been made for the batch; whoever holds the table's
        // view keeps what it names alive. Nobody looks at the outcome before the stream has come
        // past.
        unsafe {
            self.launch_read(&mut launches, table, verb, operands, order, counters)?;
            let arguments = (counters, operands.answers, words, to);
            self.kernels
                .launch(&mut launches, REPORT, Grid::Threads(words), arguments)?;
            launches.submit()?;
        }
        if verb == Read::Get {
            channel.fetch_values(operands.len, size)?;
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
        channel: &mut BatchStream,
        batch: &ReadBatch,
    ) -> Result<()> {
        wait(&channel.stream)?;
        let counters = channel.fetched_counters();
        table.count_batch(counters.operations, 0, counters.touches);
        self.count_cache(counters.cache_lookups, counters.cache_hits);
        self.check_damage(table, &counters)?;
        let len = batch.operands.len;
        if len == 1 || batch.changes == Some(self.changes.load(Ordering::SeqCst)) {
            return Ok(());
        }
        // Equal keys may have been told of different changes, and not in the order given.
        let groups = channel.groups(len)?;
        let (words, to) = channel.outcome(&batch.operands)?;
        let mut found = BatchView::zeroed();
        found.keys = batch.operands.keys;
        found.values = batch.operands.values;
        found.answers = batch.operands.answers;
        found.len = len;
        let counters = channel.counters_address();
        let mut launches = channel.launches();
        // SAFETY: as in `begin_read`.
        unsafe {
            self.kernels
                .agree(&mut launches, groups, found, batch.size, counters)?;
            let arguments = (counters, found.answers, words, to);
            self.kernels
                .launch(&mut launches, REPORT, Grid::Threads(words), arguments)?;
            launches.submit()?;
        }
        if batch.verb == Read::Get {
            channel.fetch_values(len, batch.size)?;
        }
        wait(&channel.stream)
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
        order: OrderView,
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
        // SAFETY: as the caller says.
        unsafe { self.kernels.read(on, verb, table, view, counters) }
    }

    /// Says whether a batch that reads or writes `len` places of the file is put in order.
    fn order_of(&self, order: OrderView, len: u32) -> OrderView {
        let wanted = len >= self.ordered_from.load(Ordering::Relaxed);
        OrderView {
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
