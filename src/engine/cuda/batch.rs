//! One batch on its stream, from its operands in device memory to its answers there.

use std::sync::atomic::Ordering;

use bytemuck::Zeroable;
use cust::stream::Stream;

use super::channel::{Channel, Operands, answer_words};
use super::kernels::Read;
use super::memory::wait;
use super::view::{Address, BatchView, Counters, GroupsView, OrderView, TableView};
use super::{Attached, WHOLE, Writer};
use crate::Result;
use crate::engine::Write;
use crate::index::table::Table;
use crate::pm::Mapping;

/// A batch on its stream.
pub(super) struct WriteBatch {
    operands: Operands,
    groups: Option<GroupsView>,
    view: BatchView,
}

impl Attached {
    /// Puts a batch that changes the table on its stream.
    pub(super) fn begin_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        verb: Write,
        operands: Operands,
    ) -> Result<WriteBatch> {
        let len = operands.len;
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.drain_slice(table, writer, channel, u64::from(len))?;
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
            reserved: 0,
            order: self.order_of(channel.order(len, self.view_now().file_len)?, len),
        };
        // SAFETY: the channel's buffers have been made for `len` positions, and stay until the
        // batch is done.
        unsafe {
            let counters = channel.counters_address();
            self.kernels
                .begin(&channel.stream, groups, view, counters)?;
        }
        let batch = WriteBatch {
            operands,
            groups,
            view,
        };
        self.launch_write(table, writer, channel, verb, &batch)?;
        Ok(batch)
    }

    /// Puts the launches of a batch on its stream, whose counters are zero.
    fn launch_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        verb: Write,
        batch: &WriteBatch,
    ) -> Result<()> {
        let len = batch.operands.len;
        let counters = channel.counters_address();
        // SAFETY: the view's addresses are those of the file and of the mirror, which stay until
        // the batch is done; the writer's lock keeps other changes away.
        unsafe {
            self.kernels
                .resolve(&channel.stream, verb, self.view_now(), batch.view, counters)?;
        }
        if verb != Write::Remove {
            self.stock_at_hand(table, writer, &channel.stream, u64::from(len))?;
            if writer.supply.available() < u64::from(len) {
                // A batch may need fewer records than it has operations. What cannot be had stays
                // pending, and whoever ends the batch says why.
                self.fetch_counters(channel)?;
                wait(&channel.stream)?;
                let wanted = channel.fetched_counters().wanted;
                if let Err(error) = self.stock(table, writer, &channel.stream, wanted) {
                    tracing::debug!(%error, "fewer records than a batch wants");
                }
            }
        }
        let stream = &channel.stream;
        writer.supply.make_room(stream, u64::from(len))?;
        // SAFETY: as above.
        unsafe {
            let (table, records) = (self.view_now(), writer.supply.view());
            self.kernels
                .write(stream, verb, table, records, batch.view, counters)?;
            if let (Write::Update, Some(groups)) = (verb, batch.groups) {
                self.kernels
                    .spread(&channel.stream, groups, batch.operands.answers, len)?;
            }
        }
        self.fetch_outcome(channel, &batch.operands)
    }

    /// Waits for a batch, and grows the table as long as some of its operations need that.
    pub(super) fn end_write(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        verb: Write,
        mut batch: WriteBatch,
    ) -> Result<()> {
        loop {
            wait(&channel.stream)?;
            let counters = channel.fetched_counters();
            writer.supply.settle(table, &counters);
            let done = counters.operations - counters.full - counters.starved;
            table.count_batch(done, counters.items as i64, counters.touches);
            self.check_damage(table, &counters)?;
            if counters.full + counters.starved == 0 {
                return Ok(());
            }
            if counters.starved > 0 {
                self.feed(table, writer, &channel.stream, counters.starved)?;
            }
            if counters.full > 0 {
                self.grow(table, writer, channel)?;
            }
            batch.view.retry = 1;
            channel.counters()?;
            self.launch_write(table, writer, channel, verb, &batch)?;
        }
    }

    pub(super) fn begin_read(
        &self,
        table: TableView,
        channel: &mut Channel,
        verb: Read,
        operands: Operands,
    ) -> Result<()> {
        let counters = channel.counters()?;
        let order = channel.order(operands.len, table.file_len)?;
        // SAFETY: the channel's buffers have been made for the batch; whoever holds the table's
        // view keeps what it names alive.
        unsafe { self.launch_read(&channel.stream, table, verb, operands, order, counters)? };
        self.fetch_outcome(channel, &operands)
    }

    /// Sends the counters, and the answers if the host wants them, on their way back.
    fn fetch_outcome(&self, channel: &mut Channel, operands: &Operands) -> Result<()> {
        if !operands.on_host {
            return self.fetch_counters(channel);
        }
        let words = answer_words(operands.len);
        let to = channel.outcome(words)?;
        let counters = channel.counters_address();
        // SAFETY: the blocks are as long, and nobody looks before the stream has come past.
        unsafe {
            self.kernels
                .report(&channel.stream, counters, operands.answers, words, to)
        }
    }

    /// Sends the counters on their way back.
    pub(super) fn fetch_counters(&self, channel: &mut Channel) -> Result<()> {
        let to = channel.outcome(0)?;
        let counters = channel.counters_address();
        // SAFETY: as above.
        unsafe { self.kernels.report(&channel.stream, counters, 0, 0, to) }
    }

    /// Puts a batch that looks up on a stream.
    ///
    /// # Safety
    /// The operands, the order's memory and what the view names must stay until the stream has
    /// come past.
    pub(super) unsafe fn launch_read(
        &self,
        stream: &Stream,
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
        view.order = self.order_of(order, (missed / u64::from(WHOLE)) as u32);
        // SAFETY: as the caller says.
        unsafe { self.kernels.read(stream, verb, table, view, counters) }
    }

    /// Says whether a batch that reads or writes `len` places of the file is put in order.
    fn order_of(&self, order: OrderView, len: u32) -> OrderView {
        let wanted = len >= self.ordered_from.load(Ordering::Relaxed);
        OrderView {
            wanted: wanted.into(),
            ..order
        }
    }

    pub(super) fn end_read(&self, table: &Table<Mapping>, channel: &mut Channel) -> Result<()> {
        channel.await_outcome()?;
        let counters = channel.fetched_counters();
        table.count_batch(counters.operations, 0, counters.touches);
        self.count_cache(counters.cache_lookups, counters.cache_hits);
        self.check_damage(table, &counters)
    }

    pub(super) fn check_damage(&self, table: &Table<Mapping>, counters: &Counters) -> Result<()> {
        if counters.damaged == 0 {
            return Ok(());
        }
        let found = "a record outside the file".into();
        Err(table.damaged("slot", counters.damaged, found))
    }
}
