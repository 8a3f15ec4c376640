//! A batch that changes the table, from its operands in device memory to its answers there.

use std::sync::atomic::Ordering;

use crate::engine::Write;
use crate::engine::cuda::abi::{BatchView, GroupsView};
use crate::engine::cuda::kernels::Grid;
use crate::engine::cuda::kernels::declarations::{REPORT, write};
use crate::engine::cuda::stream::{BatchStream, Operands};
use crate::engine::cuda::table::{DeviceTable, Integrity, Writer};
use crate::gpu::memory::wait;
use crate::pm::Mapping;
use crate::table::Table;
use crate::{Error, Result};

/// A batch on its stream.
pub struct WriteBatch {
    operands: Operands,
    groups: Option<GroupsView>,
    view: BatchView,
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
}
