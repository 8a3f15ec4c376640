//! Records for launches: retired ones that are free again, and new ones.

use std::ops::Range;

use super::exclusive::Exclusive;
use super::{DeviceTable, Integrity};
use crate::Result;
use crate::engine::cuda::stream::BatchStream;
use crate::gpu::abi::{AddressSortView, RecordsView};
use crate::gpu::memory::wait;
use crate::width::{to_usize, u32_of};

/// Retired records are used again once they are one in so many: sorted by address, a batch then
/// finds as many as it needs close together.
const POOL: u64 = 32;

/// Records that are sorted at a time.
const SORTED: u64 = 1 << 22;

impl Exclusive<'_> {
    /// Makes `records` available to the next launch, or as many as there are without growth.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn refill_without_growth(&mut self, records: u64) -> Result<()> {
        if self.writer.record_pool.available() >= records {
            return Ok(());
        }
        // No record is handed out that the GPU does not reach.
        self.follow()?;
        if self.has_pool() {
            self.recycle()?;
        }
        if self.writer.record_pool.is_half_full() {
            self.spill()?;
        }
        let pool = &mut self.writer.record_pool;
        pool.prepare(self.table, &self.batch_stream.stream, records)
    }

    /// Makes room in the ring for `more` entries, as many as a launch has operations.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn make_ring_room(&mut self, more: u64) -> Result<()> {
        if self.writer.record_pool.is_crowded(more) {
            self.spill()?;
        }
        let pool = &mut self.writer.record_pool;
        pool.make_room(&self.batch_stream.stream, more)
    }

    /// Gives records back to the arena: the budget leaves too little room for others in the ring.
    fn spill(&mut self) -> Result<()> {
        // Lookups under way may still copy from retired records.
        drop(self.device_table.view_alone());
        let pool = &mut self.writer.record_pool;
        pool.spill(self.table, &self.batch_stream.stream)
    }

    /// Makes `records` available to the next launch.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like; as many as there are are available.
    pub fn refill(&mut self, records: u64) -> Result<()> {
        loop {
            self.refill_without_growth(records)?;
            let available = self.writer.record_pool.available();
            if available >= records {
                return Ok(());
            }
            self.find_records(records - available)?;
            if self.writer.record_pool.available() > available {
                continue;
            }
            self.refill_without_growth(records)?;
            if self.writer.record_pool.available() == available {
                // The pool holds as many runs as it can.
                return Ok(());
            }
        }
    }

    /// Finds `missing` records: retired ones, if they are many, else new ones.
    pub fn find_records(&mut self, missing: u64) -> Result<()> {
        if self.has_pool() && self.recycle()? {
            return Ok(());
        }
        let table = self.table;
        let grown =
            table
                .maintenance
                .holding_up("adding records", || match table.grow_arena(0, missing) {
                    Ok(()) => self.follow().map(|()| None),
                    Err(error) => Ok(Some(error)),
                });
        match grown? {
            None => Ok(()),
            Some(error) => {
                if self.recycle()? {
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Whether so many records are retired that using them again serves batches well.
    fn has_pool(&self) -> bool {
        self.writer.record_pool.retired() >= (self.table.arena.total(0) / POOL).max(1)
    }

    /// Makes retired records free; says whether there were any.
    fn recycle(&mut self) -> Result<bool> {
        let (device_table, writer) = (self.device_table, &mut *self.writer);
        if writer.record_pool.retired() == 0 {
            return Ok(false);
        }
        // Lookups under way may still copy from retired records.
        let file_len = device_table.view_alone().file_len;
        let freed = writer.record_pool.recycle(self.table);
        // Memory that cannot be had is no reason to tear the table: the records are free, in any order.
        let sorted = u64::from(device_table.part_ops(u32_of(SORTED), 0, 0));
        let most = u32_of((freed.end - freed.start).min(sorted));
        let batch_stream = device_table.batch_stream().and_then(|mut batch_stream| {
            batch_stream.make_way(most, 0, 0);
            batch_stream.order(most, file_len)?;
            Ok(batch_stream)
        });
        let mut batch_stream = match batch_stream {
            Ok(batch_stream) => batch_stream,
            Err(error) => {
                tracing::debug!(%error, "free records are not put in order");
                return Ok(!freed.is_empty());
            }
        };
        // A batch may be amid its work.
        let was = std::mem::replace(&mut writer.integrity, Integrity::InFlight);
        let records = writer.record_pool.view();
        let sorted = device_table.sort_freed(
            &mut batch_stream,
            records,
            freed.clone(),
            (file_len, sorted),
        );
        writer.keep_failure(sorted)?;
        writer.integrity = was;
        device_table.give(batch_stream);
        Ok(!freed.is_empty())
    }
}

impl DeviceTable {
    /// Puts these entries of the ring of free records in the order of their addresses, so many at a time.
    fn sort_freed(
        &self,
        batch_stream: &mut BatchStream,
        records: RecordsView,
        freed: Range<u64>,
        (file_len, sorted): (u64, u64),
    ) -> Result<()> {
        for first in freed.clone().step_by(to_usize(sorted)) {
            let len = u32_of((freed.end - first).min(sorted));
            let order = AddressSortView {
                wanted: 1,
                ..batch_stream.order(len, file_len)?
            };
            // SAFETY: the ring holds these entries, no launch uses them, and the order's memory
            // stays with the stream.
            unsafe {
                let mut launches = batch_stream.launches();
                self.kernels
                    .sort_free(&mut launches, records, first, len, order)?;
                launches.submit()?;
            }
        }
        Ok(wait(&batch_stream.stream)?)
    }
}
