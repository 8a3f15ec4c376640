//! What becomes of the GPU's view when the file grows: new levels, emptied levels, new records.
//!
//! The order of a resize is that of `index/resize.rs`. Where the host's engine waits for epochs,
//! this one waits for the look-ups under way: whoever launches one holds the view.

use cust::stream::Stream;

use super::channel::Channel;
use super::memory::{DeviceMemory, copy_out, fill, wait};
use super::order::bin_shift;
use super::view::OrderView;
use super::{Attached, Writer};
use crate::Result;
use crate::index::directory::Levels;
use crate::index::table::Table;
use crate::layout::{PAGE, Shape};
use crate::pm::{Mapping, Medium};

/// Retired records are used again once they are one in so many: sorted by address, a batch then
/// finds as many as it needs close together.
const POOL: u64 = 16;

/// Records that are sorted at a time.
const SORTED: u64 = 1 << 22;

/// Least buckets of the bottom level that a batch empties while a resize is under way.
const SLICE: u64 = 1 << 13;

impl Attached {
    /// Makes the GPU reach all of the file.
    pub(super) fn extend(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
    ) -> Result<()> {
        let len = table.medium.len();
        if len == self.view_now().file_len {
            return Ok(());
        }
        // SAFETY: the mapping keeps what it has mapped where it is, and outlives the engine.
        unsafe { writer.registration.extend(len)? };
        if table.medium.tracks_dirty() {
            self.save_dirty(table, writer, stream)?;
            let words = len.div_ceil(PAGE).div_ceil(64) as usize;
            writer.dirty = DeviceMemory::new(words * 8)?;
            // SAFETY: the block is as long.
            unsafe { fill(stream, writer.dirty.address(), 0, words * 8)? };
            wait(stream)?;
        }
        let mut view = self.view_alone();
        view.file_len = len;
        view.dirty = writer.dirty.address();
        Ok(())
    }

    /// Adds a top level because operations found no slot.
    pub(super) fn grow(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &Channel,
    ) -> Result<()> {
        table.grow_levels(table.directory.levels())?;
        self.enter_top_level(table, writer, channel)
    }

    /// Shows the kernels the top level that the table has just got.
    fn enter_top_level(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &Channel,
    ) -> Result<()> {
        self.extend(table, writer, &channel.stream)?;
        let top = table.directory.levels().top;
        let offset = table.directory.offset(top);
        let probe = writer
            .mirror
            .add_level(table, &channel.stream, top, offset)?;
        // From here on items may move up to where a look-up with the old view does not look.
        let mut view = self.view_alone();
        view.level_offset[top as usize] = offset;
        view.level_probe[top as usize] = probe;
        view.top_level = top;
        Ok(())
    }

    /// Empties a slice of the bottom level, if a resize is under way.
    ///
    /// # Errors
    /// As [`grow`](Self::grow), when its items need yet another level above.
    pub(super) fn drain_slice(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        operations: u64,
    ) -> Result<()> {
        let levels = table.directory.levels();
        if !levels.draining(table.shape.levels) {
            table.reclaim_levels_left();
            return Ok(());
        }
        let buckets = 1u64 << levels.bottom;
        let end = (writer.drained + SLICE.max(operations)).min(buckets);
        let counters = channel.counters()?;
        // SAFETY: the view's addresses are those of the file and of the mirror, both of which
        // outlive this call; the writer's lock keeps other changes away.
        unsafe {
            self.kernels.drain(
                &channel.stream,
                self.view_now(),
                writer.drained..end,
                counters,
            )?;
        }
        channel.fetch_counters()?;
        wait(&channel.stream)?;
        let counters = channel.fetched_counters();
        self.check_damage(table, &counters)?;
        table.count_batch(0, 0, counters.touches);
        if counters.full > 0 {
            return self.grow(table, writer, channel);
        }
        writer.drained = end;
        if end == buckets {
            self.drop_bottom(table, writer, levels);
        }
        Ok(())
    }

    fn drop_bottom(&self, table: &Table<Mapping>, writer: &mut Writer, levels: Levels) {
        {
            let mut view = self.view_alone();
            view.bottom_level = levels.bottom + 1;
            view.level_offset[levels.bottom as usize] = 0;
            view.level_probe[levels.bottom as usize] = 0;
        }
        table.leave_bottom_level(levels);
        writer.mirror.remove_level(levels.bottom);
        writer.drained = 0;
    }

    /// Drives a resize under way to its end.
    pub(super) fn finish_draining(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
    ) -> Result<()> {
        while table.directory.levels().draining(table.shape.levels) {
            self.drain_slice(table, writer, channel, SLICE)?;
        }
        Ok(())
    }

    /// Makes room for `additional` more items: slots and records.
    pub(super) fn reserve(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut Channel,
        additional: u64,
    ) -> Result<()> {
        let top = table
            .shape
            .top_level_for(table.len().saturating_add(additional));
        if top > Shape::MAX_LEVEL {
            return Err(table.limit("the top level", u64::from(top), u64::from(Shape::MAX_LEVEL)));
        }
        while table.directory.levels().top < top {
            table.add_level(table.directory.levels())?;
            self.enter_top_level(table, writer, channel)?;
            self.finish_draining(table, writer, channel)?;
        }
        if writer.supply.available() < additional {
            table.grow_arena(additional - writer.supply.available())?;
            self.extend(table, writer, &channel.stream)?;
        }
        Ok(())
    }

    /// Makes `records` available to the next launch.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like; as many as there are are available.
    pub(super) fn stock(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
        records: u64,
    ) -> Result<()> {
        loop {
            writer.supply.prepare(table, stream, records)?;
            let available = writer.supply.available();
            if available >= records {
                return Ok(());
            }
            self.feed(table, writer, stream, records - available)?;
            if writer.supply.available() > available {
                continue;
            }
            writer.supply.prepare(table, stream, records)?;
            if writer.supply.available() == available {
                // The supply holds as many runs as it can.
                return Ok(());
            }
        }
    }

    /// Finds `missing` records: retired ones, if they are many, else new ones.
    pub(super) fn feed(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
        missing: u64,
    ) -> Result<()> {
        let pool = (table.arena.total() / POOL).max(missing);
        if writer.supply.retired() >= pool && self.recycle(table, writer)? {
            return Ok(());
        }
        match table.grow_arena(missing) {
            Ok(()) => self.extend(table, writer, stream),
            Err(error) => {
                if self.recycle(table, writer)? {
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Makes retired records free; says whether there were any.
    fn recycle(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
    ) -> Result<bool> {
        if writer.supply.retired() == 0 {
            return Ok(false);
        }
        // Look-ups under way may still copy from retired records.
        let file_len = self.view_alone().file_len;
        let freed = writer.supply.recycle(table);
        let mut channel = self.channel()?;
        for first in freed.clone().step_by(SORTED as usize) {
            let len = (freed.end - first).min(SORTED) as u32;
            let order = OrderView {
                shift: bin_shift(file_len),
                wanted: 1,
                ..channel.order(len)?
            };
            let records = writer.supply.view();
            // SAFETY: the ring holds these entries, no launch uses them, and the order's memory
            // stays with the channel.
            unsafe {
                self.kernels
                    .sort_free(&channel.stream, records, first, len, order)?;
            }
        }
        wait(&channel.stream)?;
        self.give(channel);
        Ok(!freed.is_empty())
    }

    /// Hands the pages that the GPU has stored to over to the next checkpoint.
    pub(super) fn save_dirty(
        &self,
        table: &Table<Mapping>,
        writer: &Writer,
        stream: &Stream,
    ) -> Result<()> {
        let len = writer.dirty.len();
        if len == 0 {
            return Ok(());
        }
        let mut words = vec![0u64; len / 8];
        // SAFETY: the block is as long, and nobody looks before the wait.
        unsafe {
            copy_out(
                stream,
                bytemuck::cast_slice_mut(&mut words),
                writer.dirty.address(),
            )?;
            fill(stream, writer.dirty.address(), 0, len)?;
        }
        wait(stream)?;
        table.medium.merge_dirty(0, &words);
        Ok(())
    }
}
