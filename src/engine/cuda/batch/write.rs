//! A batch that changes the table, from its operands in device memory to its answers there.

use std::sync::atomic::Ordering;

use crate::engine::Write;
use crate::engine::cuda::kernels::Grid;
use crate::engine::cuda::kernels::declarations::{REPORT, write};
use crate::engine::cuda::stream::Operands;
use crate::engine::cuda::table::{Exclusive, Integrity, check_damage};
use crate::gpu::abi::{BatchView, GroupsView};
use crate::gpu::memory::{copy_out, wait};
use crate::layout::{BUSY, EMPTY, KeyClass};
use crate::{Error, Result};

/// A batch on its stream.
pub struct WriteBatch {
    operands: Operands,
    groups: Option<GroupsView>,
    view: BatchView,
}

impl Exclusive<'_> {
    /// Puts a batch that changes the table on its stream.
    ///
    /// # Safety
    /// The operands must be addresses of this device that are valid for their lengths, and nobody else's
    /// to change, until [`end_write`](Self::end_write) has ended the batch.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub unsafe fn begin_write(&mut self, verb: Write, operands: Operands) -> Result<WriteBatch> {
        let begun = self.launch_write(verb, operands);
        self.writer.keep_failure(begun)
    }

    fn launch_write(&mut self, verb: Write, operands: Operands) -> Result<WriteBatch> {
        self.follow()?;
        let len = operands.len;
        self.device_table.launches.fetch_add(1, Ordering::Relaxed);
        self.device_table.changes.fetch_add(1, Ordering::SeqCst);
        if operands.stored {
            // Already the launch that finds the slots retires records.
            self.make_ring_room(u64::from(len))?;
        }
        let Self {
            device_table,
            writer,
            batch_stream,
            ..
        } = self;
        let kernels = &device_table.kernels;
        let pending = batch_stream.pending(len)?;
        let groups = (len > 1).then(|| batch_stream.groups(len)).transpose()?;
        let order = batch_stream.order(len, device_table.view_now().file_len)?;
        let view = BatchView {
            keys: operands.keys,
            values: operands.values,
            answers: operands.answers,
            pending,
            entry: groups.map_or(0, |groups| groups.entry),
            first: groups.map_or(0, |groups| groups.first),
            last: groups.map_or(0, |groups| groups.last),
            len,
            tile: kernels.changed_tile(len),
            retry: 0,
            depth: kernels.depth(len),
            sample: 0,
            stored: operands.stored.into(),
            order: device_table.order_of(order, len),
        };
        let counters = batch_stream.counters_address();
        // From the first claim of a slot on, until it is known what was stored.
        writer.integrity = Integrity::InFlight;
        let mut launches = batch_stream.launches();
        // SAFETY: the caller of `begin_write` keeps the operands valid. The other buffers are this
        // stream's, and were made for `len` positions; the mirror, the ring and the file are freed only
        // by whoever holds the writer's lock. It keeps other changes away.
        unsafe {
            kernels.begin(&mut launches, groups, view, counters)?;
            let (table, records) = (device_table.view_now(), writer.record_pool.view());
            kernels.resolve(&mut launches, verb, table, records, view, counters)?;
            launches.submit()?;
        }
        let batch = WriteBatch {
            operands,
            groups,
            view,
        };
        self.store_changes(verb, &batch)?;
        Ok(batch)
    }

    /// Puts the launches on the stream that store what a batch changes, whose slots are found.
    fn store_changes(&mut self, verb: Write, batch: &WriteBatch) -> Result<()> {
        let WriteBatch {
            operands,
            groups,
            view,
        } = *batch;
        let len = u64::from(operands.len);
        if !operands.stored {
            // Before records are taken: it may give those at hand away.
            self.make_ring_room(len)?;
            if verb != Write::Remove {
                self.refill_wanted(len)?;
                let pool = &mut self.writer.record_pool;
                pool.make_room(&self.batch_stream.stream, len)?;
            }
        }
        let (device_table, batch_stream) = (self.device_table, &mut *self.batch_stream);
        let kernels = &device_table.kernels;
        let (words, to) = batch_stream.outcome(&operands)?;
        let counters = batch_stream.counters_address();
        let records = self.writer.record_pool.view();
        let mut launches = batch_stream.launches();
        // SAFETY: as in `launch_write`, whose buffers these are. Nobody looks at the outcome before the
        // stream has come past.
        unsafe {
            let arguments = (device_table.view_now(), records, view, counters);
            kernels.launch(&mut launches, write(verb), Grid::tiles(&view), arguments)?;
            if let (Write::Update, Some(groups)) = (verb, groups) {
                kernels.spread(&mut launches, groups, view, 0)?;
            }
            let arguments = (counters, operands.answers, words, to);
            kernels.launch(&mut launches, REPORT, Grid::Threads(words), arguments)?;
            launches.submit()?;
        }
        Ok(())
    }

    /// Makes records available for a batch of `len` operations whose slots are found, if it wants so many.
    fn refill_wanted(&mut self, len: u64) -> Result<()> {
        self.refill_without_growth(len)?;
        if self.writer.record_pool.available() < len {
            // A batch may need fewer records than it has operations. What cannot be had stays
            // pending, and whoever ends the batch says why.
            self.fetch_counters()?;
            wait(&self.batch_stream.stream)?;
            let wanted = self.batch_stream.fetched_counters().wanted;
            match self.refill(wanted) {
                Err(error @ Error::Gpu { .. }) => return Err(error),
                Err(error) => tracing::debug!(%error, "fewer records than a batch wants"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Checks that a batch with operations that found no slot has no key whose one bucket is full of no items: no
    /// growth would help it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it has: nobody else is about to empty the bucket.
    fn check_reserved(&self, operands: Operands) -> Result<()> {
        if self.table.shape.key_class() != KeyClass::Word {
            return Ok(());
        }
        for key in [EMPTY, BUSY] {
            let checked = self.table.check_reserved(key);
            if checked.is_err() {
                let stream = &self.batch_stream.stream;
                let mut keys = vec![0u64; operands.len as usize];
                // SAFETY: the batch has as many keys, and nobody looks before the wait.
                unsafe { copy_out(stream, bytemuck::cast_slice_mut(&mut keys), operands.keys)? };
                wait(stream)?;
                if keys.contains(&key) {
                    return checked;
                }
            }
        }
        Ok(())
    }

    /// Waits for a batch, and grows the table as long as some of its operations need that.
    pub fn end_write(&mut self, verb: Write, batch: WriteBatch) -> Result<()> {
        let ended = self.complete_write(verb, batch);
        self.writer.keep_failure(ended)
    }

    fn complete_write(&mut self, verb: Write, mut batch: WriteBatch) -> Result<()> {
        let (device_table, table) = (self.device_table, self.table);
        loop {
            wait(&self.batch_stream.stream)?;
            let counters = self.batch_stream.fetched_counters();
            self.writer.record_pool.apply_counters(table, &counters);
            self.writer.integrity = Integrity::Intact;
            let done = counters.operations - counters.full - counters.out_of_records;
            table.count_batch(done, counters.items.cast_signed(), counters.touches);
            if done > 0 {
                table.maintenance.expect_batches(done);
                table.check_room(done);
            }
            check_damage(table, &counters)?;
            if counters.full + counters.out_of_records == 0 {
                return Ok(());
            }
            if counters.out_of_records > 0 {
                self.find_records(counters.out_of_records)?;
            }
            if counters.full > 0 {
                self.check_reserved(batch.operands)?;
                self.grow()?;
            }
            batch.view.retry = 1;
            let counters = self.batch_stream.counters()?;
            self.writer.integrity = Integrity::InFlight;
            let (view, records) = (device_table.view_now(), self.writer.record_pool.view());
            let (kernels, stream) = (&device_table.kernels, &self.batch_stream.stream);
            // SAFETY: as in `launch_write`: the batch has not ended, and the lock is still held.
            unsafe { kernels.resolve(stream, verb, view, records, batch.view, counters)? };
            self.store_changes(verb, &batch)?;
        }
    }
}
