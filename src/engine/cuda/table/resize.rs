//! A resize: a level is added on top, and the bottom one emptied slice by slice.
//!
//! The order is that of `table/resize.rs`. Where the host's engine waits for epochs, this one waits
//! for the lookups under way: whoever launches one holds the view.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::Integrity;
use super::counts::check_damage;
use super::exclusive::Exclusive;
use crate::engine::cuda::kernels::Grid;
use crate::engine::cuda::kernels::declarations::DRAIN;
use crate::gpu::abi::Counters;
use crate::gpu::memory::wait;
use crate::sync::levels::Levels;
use crate::width::saturating_u64;
use crate::{Error, Result};

/// How long a slice of a resize should take.
const SLICE_TIME: Duration = Duration::from_millis(4);

/// Most slices that a batch does by itself; it may have to wait for one of the maintenance before.
const BATCH_SLICES_MAX: u64 = 3;

/// Operations of a batch for each bucket that it empties while a resize is under way. To fill the
/// table again takes 22 insertions for each bucket of the level.
pub const OPS_PER_DRAINED_BUCKET: u64 = 8;

/// Least buckets that a slice empties: a launch takes as long.
const SLICE_BUCKETS_MIN: u64 = 512;

/// Most buckets that a slice empties, whatever it seems that the device can do.
const SLICE_BUCKETS_MAX: u64 = 1 << 16;

/// How far the emptying of the bottom level has come.
pub struct Draining {
    /// Buckets that are empty.
    done: u64,
    /// Buckets that the device empties in the time of a [`SLICE_TIME`], as far as was seen.
    pub slice: u64,
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
        let share = (operations / OPS_PER_DRAINED_BUCKET).max(SLICE_BUCKETS_MIN);
        self.done..all.min(self.done + share.min(self.slice * BATCH_SLICES_MAX))
    }

    /// Learns from a slice of so many buckets how many are to be emptied at a time.
    fn learn(&mut self, buckets: u64, took: Duration) {
        // A slice that was short says little of a long one.
        if buckets < self.slice / 2 && took < SLICE_TIME {
            return;
        }
        let fitting = buckets as f64 * SLICE_TIME.as_secs_f64() / took.as_secs_f64().max(1e-6);
        self.slice =
            saturating_u64(fitting).clamp(SLICE_BUCKETS_MIN, SLICE_BUCKETS_MAX.min(2 * self.slice));
    }
}

impl Exclusive<'_> {
    /// Adds a top level because operations found no slot.
    pub fn grow(&mut self) -> Result<()> {
        let table = self.table;
        table.maintenance.holding_up("adding a level", || {
            table.grow_levels(table.levels.live())?;
            self.follow()
        })
    }

    /// As [`drain_slice`](Self::drain_slice), before a batch. Items that find no room above stay where they are: what the batch
    /// itself has no room for it will be told.
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Damaged`].
    pub fn drain_slice_if_possible(&mut self, operations: u64) -> Result<()> {
        match self.drain_slice(operations) {
            Err(Error::Limit { .. } | Error::NoSpace { .. }) => Ok(()),
            drained => drained,
        }
    }

    /// Empties a slice of the bottom level, if a resize is under way.
    ///
    /// # Errors
    /// As [`grow`](Self::grow), when its items need yet another level above.
    pub fn drain_slice(&mut self, operations: u64) -> Result<()> {
        let table = self.table;
        self.follow()?;
        let levels = table.levels.live();
        if !levels.draining(table.shape.levels) {
            table.reclaim_retired_levels();
            return Ok(());
        }
        let buckets = 1u64 << levels.bottom;
        let slice = self.writer.draining.next(buckets, operations);
        let counters = table
            .maintenance
            .holding_up("emptying a slice", || self.drain(levels, slice.clone()))?;
        check_damage(table, &counters)?;
        table.count_batch(0, 0, counters.touches);
        if counters.full > 0 {
            return self.grow();
        }
        self.writer.draining.done = slice.end;
        if slice.end == buckets {
            self.drop_bottom(levels)?;
        }
        Ok(())
    }

    /// Empties these buckets of the bottom level.
    fn drain(&mut self, levels: Levels, slice: Range<u64>) -> Result<Counters> {
        let device_table = self.device_table;
        let started = Instant::now();
        let len = slice.end - slice.start;
        let counters = self.batch_stream.counters()?;
        let view = device_table.view_now();
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
        let was = std::mem::replace(&mut self.writer.integrity, Integrity::InFlight);
        // SAFETY: the view's addresses are those of the file and of the mirror, both of which
        // outlive this call; the writer's lock keeps other changes away.
        let launched = unsafe {
            let stream = &self.batch_stream.stream;
            let arguments = (view, slice.start, slice.end, counters);
            let kernels = &device_table.kernels;
            kernels.launch(stream, DRAIN, Grid::Warps(len), arguments)
        };
        let drained = launched
            .and_then(|()| self.fetch_counters())
            .and_then(|()| Ok(wait(&self.batch_stream.stream)?));
        self.writer.keep_failure(drained)?;
        self.writer.integrity = was;
        self.writer.draining.learn(len, started.elapsed());
        Ok(self.batch_stream.fetched_counters())
    }

    fn drop_bottom(&mut self, levels: Levels) -> Result<()> {
        self.uncache_level(levels.bottom)?;
        {
            let mut view = self.device_table.view_alone();
            view.bottom_level = levels.bottom + 1;
            view.level_offset[levels.bottom as usize] = 0;
            view.level_probe[levels.bottom as usize] = 0;
        }
        self.table.retire_bottom_level(levels);
        self.writer.mirror.remove_level(levels.bottom);
        self.writer.draining.done = 0;
        Ok(())
    }

    /// Drives a resize under way to its end.
    pub fn finish_draining(&mut self) -> Result<()> {
        while self.table.levels.live().draining(self.table.shape.levels) {
            self.drain_slice(u64::MAX)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
