//! The maintenance of the table: room is preallocated, and pinned, between batches.

use std::time::{Duration, Instant};

use super::exclusive::Exclusive;
use super::mirror::{level_len, zeroed_level};
use super::resize::OPS_PER_DRAINED_BUCKET;
use super::{DeviceTable, Writer};
use crate::Result;
use crate::layout::Shape;
use crate::pm::{Mapping, Medium};
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::maintenance::Pace;

/// Bytes that are pinned at a time while batches run: the driver keeps them waiting so long.
const PIN_STEP_BYTES: u64 = 32 << 20;

impl DeviceTable {
    /// One round of the table's maintenance: room is preallocated and pinned, and a resize driven on by a
    /// slice. Gives how long to rest.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), and those of [`drain_slice`](Exclusive::drain_slice).
    pub fn maintain(&self, table: &Table<Mapping>, pace: &mut Pace) -> Result<Option<Duration>> {
        loop {
            let more = table.make_room();
            self.pin_preallocated(table)?;
            if !more {
                break;
            }
        }
        self.preallocate_mirror(table)?;
        // What lookups of device slices have done is counted on the device alone.
        let launched = self.launches.load(Ordering::Relaxed);
        if table.watches_rest() && self.watched.swap(launched, Ordering::Relaxed) != launched {
            self.count_lookups(table)?;
        }
        if !table.levels.live().draining(table.shape.levels) {
            return Ok(None);
        }
        let started = Instant::now();
        self.exclusively(table, |exclusive| {
            let slice = exclusive.writer.draining.slice * OPS_PER_DRAINED_BUCKET;
            exclusive.drain_slice(slice)
        })?;
        Ok(Some(pace.rest(table, started.elapsed())))
    }

    /// Pins room that was preallocated.
    fn pin_preallocated(&self, table: &Table<Mapping>) -> Result<()> {
        let ready = table.medium.prepared();
        while self.registration.len() < ready {
            let end = ready.min(self.registration.len() + PIN_STEP_BYTES);
            // SAFETY: what is prepared is mapped, and stays so until the table is closed, which is
            // after the engine has given it back.
            unsafe { self.registration.extend(&table.medium, end)? };
        }
        Ok(())
    }

    /// Makes the copy of the level that will soon be added.
    fn preallocate_mirror(&self, table: &Table<Mapping>) -> Result<()> {
        let Some(level) = table.coming_level() else {
            return Ok(());
        };
        // Small levels are copied in no time, and would only take memory from others.
        let len = level_len(table, level);
        {
            let writer = self.writer()?;
            let has_room = || writer.mirror.has_room(len);
            if len < PIN_STEP_BYTES || !writer.mirror.awaits(level) || !has_room()? {
                return Ok(());
            }
        }
        let batch_stream = self.plain_stream()?;
        let copy = zeroed_level(&self.budget.copies, table, &batch_stream.stream, level)?;
        self.give(batch_stream);
        let mut writer = self.writer()?;
        // The level may have come meanwhile.
        if table.levels.live().top < level {
            writer.mirror.expect(level, copy);
        }
        Ok(())
    }
}

impl Exclusive<'_> {
    /// Makes room for `additional` more items: slots and records.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) and [`Error::Limit`](crate::Error::Limit) where there is
    /// no room for all of it; the table is as it was. [`Error::Gpu`](crate::Error::Gpu).
    pub fn reserve(&mut self, additional: u64) -> Result<()> {
        let table = self.table;
        let top = table
            .shape
            .top_level_for(table.len().saturating_add(additional));
        if top > Shape::MAX_LEVEL {
            return Err(table.limit("the top level", u64::from(top), u64::from(Shape::MAX_LEVEL)));
        }
        let missing = |writer: &Writer| additional.saturating_sub(writer.record_pool.available());
        table.make_room_for(top, missing(self.writer))?;
        self.follow()?;
        while table.levels.live().top < top {
            table.add_level(table.levels.live())?;
            self.follow()?;
            self.finish_draining()?;
        }
        // Records that the arena has are as good as those at hand.
        table.grow_arena(0, missing(self.writer))?;
        self.follow()
    }
}
