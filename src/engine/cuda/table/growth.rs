//! What becomes of the GPU's view when the file grows: new levels, emptied levels, new records.
//!
//! The order of a resize is that of `table/resize.rs`. Where the host's engine waits for epochs,
//! this one waits for the lookups under way: whoever launches one holds the view.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::mirror::{level_len, zeroed_level};
use super::{DeviceTable, Integrity, Writer};
use crate::engine::cuda::abi::{Counters, OrderView, RecordsView};
use crate::engine::cuda::kernels::Grid;
use crate::engine::cuda::kernels::declarations::DRAIN;
use crate::engine::cuda::stream::BatchStream;
use crate::gpu::memory::{DeviceMemory, copy_out, fill, wait};
use crate::gpu::stream::Stream;
use crate::layout::{PAGE, Shape};
use crate::pm::{Mapping, Medium};
use crate::table::Table;
use crate::table::levels::Levels;
use crate::table::maintenance::Pace;
use crate::width::{saturating_u64, to_usize, u32_of};
use crate::{Error, Result};

/// Retired records are used again once they are one in so many: sorted by address, a batch then
/// finds as many as it needs close together.
const POOL: u64 = 32;

/// Records that are sorted at a time.
const SORTED: u64 = 1 << 22;

/// How long a slice of a resize should take.
const SLICE: Duration = Duration::from_millis(4);

/// Most slices that a batch does by itself; it may have to wait for one of the maintenance before.
const MOST_SLICES: u64 = 3;

/// Operations of a batch for each bucket that it empties while a resize is under way. To fill the
/// table again takes 22 insertions for each bucket of the level.
const OPERATIONS: u64 = 8;

/// Least buckets that a slice empties: a launch takes as long.
const LEAST_SLICE: u64 = 512;

/// Most buckets that a slice empties, whatever it seems that the device can do.
const MOST_SLICE: u64 = 1 << 16;

/// Bytes that are pinned at a time while batches run: the driver keeps them waiting so long.
const PINNED_AT_ONCE: u64 = 32 << 20;

/// How far the emptying of the bottom level has come.
pub struct Draining {
    /// Buckets that are empty.
    done: u64,
    /// Buckets that the device empties in the time of a [`SLICE`], as far as was seen.
    slice: u64,
}

impl Default for Draining {
    fn default() -> Self {
        Self {
            done: 0,
            slice: 1 << 13,
        }
    }
}

impl Draining {
    /// The buckets that come next, of `all`, for a batch of `operations`.
    fn next(&self, all: u64, operations: u64) -> Range<u64> {
        let share = (operations / OPERATIONS).max(LEAST_SLICE);
        self.done..all.min(self.done + share.min(self.slice * MOST_SLICES))
    }

    /// Learns from a slice of so many buckets how many are to be emptied at a time.
    fn learn(&mut self, buckets: u64, took: Duration) {
        // A slice that was short says little of a long one.
        if buckets < self.slice / 2 && took < SLICE {
            return;
        }
        let fitting = buckets as f64 * SLICE.as_secs_f64() / took.as_secs_f64().max(1e-6);
        self.slice = saturating_u64(fitting).clamp(LEAST_SLICE, MOST_SLICE.min(2 * self.slice));
    }
}

impl DeviceTable {
    /// Brings what the kernels are told of the table up to what it is: how much of the file they reach,
    /// and which levels there are. Whoever changes the table begins with this. What fails leaves them with
    /// what they knew, and the next call goes on from there.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn follow(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
    ) -> Result<()> {
        self.extend(table, writer, stream)?;
        loop {
            let known = self.view.read().top_level;
            if known >= table.levels.live().top {
                return Ok(());
            }
            self.enter_level(table, writer, stream, known + 1)?;
        }
    }

    /// Makes the GPU reach all of the file.
    fn extend(&self, table: &Table<Mapping>, writer: &mut Writer, stream: &Stream) -> Result<()> {
        let len = table.medium.len();
        if len == self.view.read().file_len {
            return Ok(());
        }
        // SAFETY: the mapping keeps what it has mapped where it is, and outlives the engine.
        unsafe { self.registration.extend(&table.medium, len)? };
        let mut dirty = None;
        if table.medium.tracks_dirty() {
            self.save_dirty(table, writer, stream)?;
            let words = to_usize(len.div_ceil(PAGE).div_ceil(64));
            let map = DeviceMemory::new(words * 8)?;
            // SAFETY: the block is as long.
            unsafe { fill(stream, map.address(), 0, words * 8)? };
            wait(stream)?;
            dirty = Some(map);
        }
        let mut view = self.view_alone();
        view.file_len = len;
        if let Some(dirty) = dirty {
            view.dirty = dirty.address();
            writer.dirty = dirty;
        }
        Ok(())
    }

    /// Adds a top level because operations found no slot.
    pub fn grow(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &BatchStream,
    ) -> Result<()> {
        table.maintenance.holding_up("adding a level", || {
            table.grow_levels(table.levels.live())?;
            self.follow(table, writer, &channel.stream)
        })
    }

    /// Shows the kernels the level that comes on top of those that they know. The GPU reaches it.
    fn enter_level(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
        top: u32,
    ) -> Result<()> {
        let offset = table.levels.offset(top);
        // The copy of a level saves more than cached values do.
        let cached = writer.cache.len();
        if writer.mirror.awaits(top) && !writer.mirror.has_room(level_len(table, top), cached)? {
            drop(self.give_up_entries(writer, stream)?);
        }
        let probe = writer.mirror.add_level(table, stream, top, offset)?;
        let now = self.view_now().cache;
        let (cache, outgrown) = writer.cache.reach(stream, top, now)?;
        // From here on items may move up to where a lookup with the old view does not look.
        let mut view = self.view_alone();
        view.level_offset[top as usize] = offset;
        view.level_probe[top as usize] = probe;
        view.top_level = top;
        view.cache = cache;
        drop(view);
        drop(outgrown);
        Ok(())
    }

    /// Empties a slice of the bottom level, if a resize is under way.
    ///
    /// # Errors
    /// As [`grow`](Self::grow), when its items need yet another level above.
    pub fn drain_slice(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        operations: u64,
    ) -> Result<()> {
        self.follow(table, writer, &channel.stream)?;
        let levels = table.levels.live();
        if !levels.draining(table.shape.levels) {
            table.reclaim_levels_left();
            return Ok(());
        }
        let buckets = 1u64 << levels.bottom;
        let slice = writer.draining.next(buckets, operations);
        let counters = table.maintenance.holding_up("emptying a slice", || {
            self.drain(writer, channel, levels, slice.clone())
        })?;
        self.check_damage(table, &counters)?;
        table.count_batch(0, 0, counters.touches);
        if counters.full > 0 {
            return self.grow(table, writer, channel);
        }
        writer.draining.done = slice.end;
        if slice.end == buckets {
            self.drop_bottom(table, writer, channel, levels)?;
        }
        Ok(())
    }

    /// Empties these buckets of the bottom level.
    fn drain(
        &self,
        writer: &mut Writer,
        channel: &mut BatchStream,
        levels: Levels,
        slice: Range<u64>,
    ) -> Result<Counters> {
        let started = Instant::now();
        let len = slice.end - slice.start;
        let counters = channel.counters()?;
        let view = self.view_now();
        // Kernels that do not know the level above would take each item for its own copy there.
        if (view.bottom_level, view.top_level) != (levels.bottom, levels.top) {
            return Err(Error::Gpu {
                what: "emptying a level",
                found: format!(
                    "kernels that know levels {} to {} of {} to {}",
                    view.bottom_level, view.top_level, levels.bottom, levels.top
                ),
                expected: "the same levels; try again".into(),
            });
        }
        let was = std::mem::replace(&mut writer.integrity, Integrity::InFlight);
        // SAFETY: the view's addresses are those of the file and of the mirror, both of which
        // outlive this call; the writer's lock keeps other changes away.
        let launched = unsafe {
            let arguments = (view, slice.start, slice.end, counters);
            self.kernels
                .launch(&channel.stream, DRAIN, Grid::Warps(len), arguments)
        };
        let drained = launched
            .and_then(|()| self.fetch_counters(channel))
            .and_then(|()| wait(&channel.stream));
        writer.keep_failure(drained)?;
        writer.integrity = was;
        writer.draining.learn(len, started.elapsed());
        Ok(channel.fetched_counters())
    }

    fn drop_bottom(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &BatchStream,
        levels: Levels,
    ) -> Result<()> {
        self.uncache_level(writer, &channel.stream, levels.bottom)?;
        {
            let mut view = self.view_alone();
            view.bottom_level = levels.bottom + 1;
            view.level_offset[levels.bottom as usize] = 0;
            view.level_probe[levels.bottom as usize] = 0;
        }
        table.leave_bottom_level(levels);
        writer.mirror.remove_level(levels.bottom);
        writer.draining.done = 0;
        Ok(())
    }

    /// Drives a resize under way to its end.
    pub fn finish_draining(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
    ) -> Result<()> {
        while table.levels.live().draining(table.shape.levels) {
            self.drain_slice(table, writer, channel, u64::MAX)?;
        }
        Ok(())
    }

    /// One round of the table's maintenance: room is preallocated and pinned, and a resize driven on by a
    /// slice. Gives how long to rest.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), and those of [`drain_slice`](Self::drain_slice).
    pub fn maintain(&self, table: &Table<Mapping>, pace: &mut Pace) -> Result<Option<Duration>> {
        loop {
            let more = table.make_room();
            self.pin_ahead(table)?;
            if !more {
                break;
            }
        }
        self.mirror_ahead(table)?;
        if !table.levels.live().draining(table.shape.levels) {
            return Ok(None);
        }
        let started = Instant::now();
        let mut writer = self.writer()?;
        let mut channel = self.channel()?;
        let slice = writer.draining.slice * OPERATIONS;
        self.drain_slice(table, &mut writer, &mut channel, slice)?;
        self.give(channel);
        drop(writer);
        Ok(Some(pace.rest(table, started.elapsed())))
    }

    /// Pins room that was preallocated.
    fn pin_ahead(&self, table: &Table<Mapping>) -> Result<()> {
        let ready = table.medium.prepared();
        while self.registration.len() < ready {
            let end = ready.min(self.registration.len() + PINNED_AT_ONCE);
            // SAFETY: what is prepared is mapped, and stays so until the table is closed, which is
            // after the engine has given it back.
            unsafe { self.registration.extend(&table.medium, end)? };
        }
        Ok(())
    }

    /// Makes the copy of the level that will soon be added.
    fn mirror_ahead(&self, table: &Table<Mapping>) -> Result<()> {
        let Some(level) = table.coming_level() else {
            return Ok(());
        };
        // Small levels are copied in no time, and would only take memory from others.
        let len = level_len(table, level);
        {
            let writer = self.writer()?;
            let has_room = || writer.mirror.has_room(len, writer.cache.len());
            if len < PINNED_AT_ONCE || !writer.mirror.awaits(level) || !has_room()? {
                return Ok(());
            }
        }
        let channel = self.channel()?;
        let copy = zeroed_level(table, &channel.stream, level)?;
        self.give(channel);
        let mut writer = self.writer()?;
        // The level may have come meanwhile.
        if table.levels.live().top < level {
            writer.mirror.expect(level, copy);
        }
        Ok(())
    }

    /// Makes room for `additional` more items: slots and records.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and [`Error::Limit`](crate::Error::Limit) where there is
    /// no room for all of it; the table is as it was. [`Error::Gpu`](crate::Error::Gpu).
    pub fn reserve(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        channel: &mut BatchStream,
        additional: u64,
    ) -> Result<()> {
        let top = table
            .shape
            .top_level_for(table.len().saturating_add(additional));
        if top > Shape::MAX_LEVEL {
            return Err(table.limit("the top level", u64::from(top), u64::from(Shape::MAX_LEVEL)));
        }
        let missing = |writer: &Writer| additional.saturating_sub(writer.record_pool.available());
        table.make_room_for(top, missing(writer))?;
        self.follow(table, writer, &channel.stream)?;
        while table.levels.live().top < top {
            table.add_level(table.levels.live())?;
            self.follow(table, writer, &channel.stream)?;
            self.finish_draining(table, writer, channel)?;
        }
        // Records that the arena has are as good as those at hand.
        table.grow_arena(0, missing(writer))?;
        self.follow(table, writer, &channel.stream)
    }

    /// Makes `records` available to the next launch, or as many as there are without growth.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn stock_at_hand(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
        records: u64,
    ) -> Result<()> {
        if writer.record_pool.available() >= records {
            return Ok(());
        }
        // No record is handed out that the GPU does not reach.
        self.follow(table, writer, stream)?;
        if Self::has_pool(table, writer) {
            self.recycle(table, writer)?;
        }
        writer.record_pool.prepare(table, stream, records)
    }

    /// Makes `records` available to the next launch.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and the like; as many as there are are available.
    pub fn stock(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
        records: u64,
    ) -> Result<()> {
        loop {
            self.stock_at_hand(table, writer, stream, records)?;
            let available = writer.record_pool.available();
            if available >= records {
                return Ok(());
            }
            self.feed(table, writer, stream, records - available)?;
            if writer.record_pool.available() > available {
                continue;
            }
            self.stock_at_hand(table, writer, stream, records)?;
            if writer.record_pool.available() == available {
                // The pool holds as many runs as it can.
                return Ok(());
            }
        }
    }

    /// Finds `missing` records: retired ones, if they are many, else new ones.
    pub fn feed(
        &self,
        table: &Table<Mapping>,
        writer: &mut Writer,
        stream: &Stream,
        missing: u64,
    ) -> Result<()> {
        if Self::has_pool(table, writer) && self.recycle(table, writer)? {
            return Ok(());
        }
        let grown =
            table
                .maintenance
                .holding_up("adding records", || match table.grow_arena(0, missing) {
                    Ok(()) => self.follow(table, writer, stream).map(|()| None),
                    Err(error) => Ok(Some(error)),
                });
        match grown? {
            None => Ok(()),
            Some(error) => {
                if self.recycle(table, writer)? {
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Whether so many records are retired that using them again serves batches well.
    fn has_pool(table: &Table<Mapping>, writer: &Writer) -> bool {
        writer.record_pool.retired() >= (table.arena.total(0) / POOL).max(1)
    }

    /// Makes retired records free; says whether there were any.
    fn recycle(&self, table: &Table<Mapping>, writer: &mut Writer) -> Result<bool> {
        if writer.record_pool.retired() == 0 {
            return Ok(false);
        }
        // Lookups under way may still copy from retired records.
        let file_len = self.view_alone().file_len;
        let freed = writer.record_pool.recycle(table);
        let mut channel = self.channel()?;
        // A batch may be amid its work.
        let was = std::mem::replace(&mut writer.integrity, Integrity::InFlight);
        let records = writer.record_pool.view();
        let sorted = self.sort_freed(&mut channel, records, freed.clone(), file_len);
        writer.keep_failure(sorted)?;
        writer.integrity = was;
        self.give(channel);
        Ok(!freed.is_empty())
    }

    /// Puts these entries of the ring of free records in the order of their addresses.
    fn sort_freed(
        &self,
        channel: &mut BatchStream,
        records: RecordsView,
        freed: Range<u64>,
        file_len: u64,
    ) -> Result<()> {
        for first in freed.clone().step_by(to_usize(SORTED)) {
            let len = u32_of((freed.end - first).min(SORTED));
            let order = OrderView {
                wanted: 1,
                ..channel.order(len, file_len)?
            };
            // SAFETY: the ring holds these entries, no launch uses them, and the order's memory
            // stays with the channel.
            unsafe {
                let mut launches = channel.launches();
                self.kernels
                    .sort_free(&mut launches, records, first, len, order)?;
                launches.submit()?;
            }
        }
        wait(&channel.stream)
    }

    /// Hands the pages that the GPU has stored to over to the next checkpoint.
    pub fn save_dirty(
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
        }
        wait(stream)?;
        table.medium.merge_dirty(0, &words);
        // Not before they are noted: pages that nobody knows of would not be saved.
        // SAFETY: as above; the writer's lock keeps changes away.
        unsafe { fill(stream, writer.dirty.address(), 0, len)? };
        wait(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_fit_the_batch_and_the_time() {
        let mut draining = Draining::default();
        assert_eq!(draining.next(1 << 20, 0), 0..LEAST_SLICE);
        assert_eq!(draining.next(1 << 20, 1 << 13), 0..1 << 10);
        assert_eq!(draining.next(100, u64::MAX), 0..100);
        // A device that takes ten times too long is given a tenth, one that is quick soon more.
        draining.learn(1 << 13, 10 * SLICE);
        assert_eq!(
            draining.next(1 << 20, u64::MAX),
            0..(1 << 13) / 10 * MOST_SLICES
        );
        for _ in 0..100 {
            let next = draining.next(1 << 20, u64::MAX);
            draining.learn(next.end, SLICE / 100);
        }
        assert_eq!(draining.slice, MOST_SLICE);
        // A short slice, which mostly waits for its launch, says nothing.
        draining.learn(LEAST_SLICE, SLICE / 2);
        assert_eq!(draining.slice, MOST_SLICE);
    }

    #[test]
    fn a_level_is_empty_before_the_table_is_full_again() {
        let (bottom, slots) = (1u64 << 20, 8);
        // The levels at rest are then twice and four times as large, and were half and once.
        let insertions = (2 + 4 - 1 - 2) * bottom * slots * 9 / 10;
        for batch in [1 << 12, 1 << 16, 1 << 20] {
            let mut draining = Draining::default();
            for _ in 0..insertions / batch {
                let next = draining.next(bottom, batch);
                let buckets = next.end - next.start;
                // A bucket takes some thirty accesses to host memory, of which a PCIe link does
                // two hundred million a second.
                draining.learn(buckets, Duration::from_nanos(150 * buckets + 10_000));
                draining.done = next.end;
            }
            assert_eq!(draining.done, bottom, "batches of {batch}");
        }
    }
}
