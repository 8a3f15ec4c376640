//! The records that launches may take, and those that they have retired.
//!
//! A ring of offsets in device memory holds both: free ones, then retired ones, which become free
//! when no launch and no reader of the host can hold them. Runs of fresh records that lie one
//! behind the other come on top, so that inserts write sequentially.

use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::gpu::abi::{Counters, RecordsView};
use crate::gpu::budget::{IndexBudget, Quota};
use crate::gpu::memory::{DeviceMemory, copy_in, copy_out, wait};
use crate::gpu::stream::Stream;
use crate::pm::Mapping;
use crate::table::Table;
use crate::table::alloc::epoch::GRACE;
use crate::width::to_usize;

/// Where the counts of the ring begin: records that were freed earlier go before the head.
const START: u64 = 1 << 40;

/// Fresh records taken at a time, at least, if the arena has them.
const RUN: u64 = 1 << 14;

/// Least entries of the ring.
const RING_RECORDS_MIN: usize = 1 << 16;

/// The pool of records of one table.
pub struct RecordPool {
    ring: DeviceMemory,
    view: RecordsView,
    /// The epoch in which the oldest retired record was retired.
    retired_in: u64,
    quota: Arc<Quota>,
    /// Entries that the ring may have.
    entries_max: u64,
}

/// Records that were taken for values which the host writes.
pub struct Taken {
    /// Those of the ring, which come first.
    from_ring: usize,
    /// The runs that the others are of.
    view: RecordsView,
}

impl Taken {
    /// Enters those records of the positions from `first` on that are of runs.
    pub fn enter_runs(&self, first: usize, records: &mut [u64]) {
        let (offsets, counts) = (self.view.bump_offset, self.view.bump_count);
        for (position, record) in (first..).zip(records) {
            let Some(nth) = position.checked_sub(self.from_ring) else {
                continue;
            };
            let nth = nth as u64;
            *record = match nth.checked_sub(counts[0]) {
                None => offsets[0] + nth * self.view.bump_stride,
                Some(nth) => offsets[1] + nth * self.view.bump_stride,
            };
        }
    }
}

impl RecordPool {
    /// An empty pool.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) when the device has no room.
    pub fn new(stride: u64, budget: &IndexBudget) -> Result<Self> {
        let quota = Arc::clone(&budget.buffers);
        let ring = DeviceMemory::new(&quota, RING_RECORDS_MIN * 8)?;
        let view = RecordsView {
            ring: ring.address(),
            ring_capacity: RING_RECORDS_MIN as u64,
            head: START,
            tail: START,
            retired_tail: START,
            bump_stride: stride,
            ..RecordsView::default()
        };
        Ok(Self {
            ring,
            view,
            retired_in: 0,
            quota,
            entries_max: budget.ring_records_max,
        })
    }

    /// What the next launch is told.
    pub fn view(&self) -> RecordsView {
        self.view
    }

    /// Records that a launch may take.
    pub fn available(&self) -> u64 {
        self.view.tail - self.view.head + self.view.bump_count.iter().sum::<u64>()
    }

    /// Records that wait for their readers.
    pub fn retired(&self) -> u64 {
        self.view.retired_tail - self.view.tail
    }

    /// Makes `records` available, or as many as the arena has without growing.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn prepare(&mut self, table: &Table<Mapping>, stream: &Stream, records: u64) -> Result<()> {
        if self.available() >= records {
            return Ok(());
        }
        self.take_free(table, stream)?;
        self.take_runs(table, records);
        while self.available() < records && table.read_free_list() {
            self.take_free(table, stream)?;
        }
        Ok(())
    }

    /// Takes what the arena has free, and what the host's engine has retired, if no reader of the host can hold it.
    fn take_free(&mut self, table: &Table<Mapping>, stream: &Stream) -> Result<()> {
        let epoch = || table.epochs.current();
        table.arena.collect_idle(epoch);
        while table.arena.awaits_epoch(epoch) {
            let before = epoch();
            if table.epochs.try_advance() == before {
                break;
            }
        }
        let mut free = table.arena.take_passed(epoch());
        // The other half is for records that are retired. A launch wants less than a half.
        let room = (self.entries_max / 2).saturating_sub(self.used());
        if free.len() as u64 > room {
            table.arena.give(free.split_off(to_usize(room)));
        }
        let given = self.give(stream, &free);
        if given.is_err() {
            table.arena.give(free);
        }
        given
    }

    /// Takes runs of fresh records until `operations` are available or the arena has no more.
    fn take_runs(&mut self, table: &Table<Mapping>, operations: u64) {
        let stride = self.view.bump_stride;
        while self.available() < operations {
            // A run is only put where none is left, so at most two extents serve one launch.
            let Some(at) = self.view.bump_count.iter().position(|&count| count == 0) else {
                return;
            };
            let missing = operations - self.available();
            let Some(run) = table.arena.take_run(0, missing.max(RUN)) else {
                return;
            };
            self.view.bump_offset[at] = run.start;
            self.view.bump_count[at] = (run.end - run.start) / stride;
        }
    }

    /// Makes retired records free, if no reader of the host can hold them. The caller sees to it
    /// that no launch can, either. Gives their entries of the ring.
    pub fn recycle(&mut self, table: &Table<Mapping>) -> Range<u64> {
        let before = self.view.tail;
        while table.epochs.current() < self.retired_in + GRACE {
            let epoch = table.epochs.current();
            if table.epochs.try_advance() == epoch {
                return before..before;
            }
        }
        self.view.tail = self.view.retired_tail;
        before..self.view.tail
    }

    /// Takes a record for each of `offsets`, all of which must be available, for values that the host
    /// writes, and enters those of the ring. No launch that takes records is under way.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn take(&mut self, stream: &Stream, offsets: &mut [u64]) -> Result<Taken> {
        let (view, all) = (self.view, offsets.len() as u64);
        let from_ring = to_usize(all.min(view.tail - view.head));
        self.read(stream, view.head, &mut offsets[..from_ring])?;
        self.advance(all);
        Ok(Taken { from_ring, view })
    }

    /// Takes note of what a launch has taken and retired.
    pub fn apply_counters(&mut self, table: &Table<Mapping>, counters: &Counters) {
        self.advance(counters.taken);
        if counters.retired > 0 {
            self.view.retired_tail += counters.retired;
            self.retired_in = table.epochs.current();
        }
    }

    /// Goes past records that were taken.
    fn advance(&mut self, mut taken: u64) {
        let view = &mut self.view;
        let from_ring = taken.min(view.tail - view.head);
        view.head += from_ring;
        taken -= from_ring;
        for (offset, count) in view.bump_offset.iter_mut().zip(&mut view.bump_count) {
            let from_run = taken.min(*count);
            *offset += from_run * view.bump_stride;
            *count -= from_run;
            taken -= from_run;
        }
    }

    /// Gives all records back to the arena, retired ones once their epoch has passed. No launch is under way, and none
    /// follows.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn hand_back(&mut self, table: &Table<Mapping>, stream: &Stream) -> Result<()> {
        self.spill(table, stream)?;
        let view = &mut self.view;
        let mut records = Vec::new();
        for (offset, count) in view.bump_offset.iter().zip(&mut view.bump_count) {
            records.extend((0..std::mem::take(count)).map(|nth| offset + nth * view.bump_stride));
        }
        table.arena.give(records);
        Ok(())
    }

    /// Puts free records before the head. No launch is under way.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn give(&mut self, stream: &Stream, records: &[u64]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.make_room(stream, records.len() as u64)?;
        let head = self.view.head - records.len() as u64;
        self.write(&self.view, stream, head, records)?;
        self.view.head = head;
        Ok(())
    }

    /// Entries that free and retired records have.
    fn used(&self) -> u64 {
        self.view.retired_tail - self.view.head
    }

    /// Whether there is no [room](Self::make_room) for `more` entries, or none for free records because of retired ones: what
    /// the ring has is to be [spilled](Self::spill) before.
    pub fn is_crowded(&self, more: u64) -> bool {
        let used = self.used();
        used.saturating_add(more) > self.entries_max
            || self.retired() > 0 && used > self.entries_max / 2
    }

    /// Whether retired records leave no room for those that the arena has free: without them it would grow.
    pub fn is_half_full(&self) -> bool {
        self.retired() > 0 && self.used() >= self.entries_max / 2
    }

    /// Gives all records of the ring back to the arena. No launch is under way that takes or retires some, and no lookup
    /// that may read retired ones.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn spill(&mut self, table: &Table<Mapping>, stream: &Stream) -> Result<()> {
        let mut records = self.entries(stream)?;
        let retired = records.split_off(to_usize(self.view.tail - self.view.head));
        self.view.head = self.view.retired_tail;
        self.view.tail = self.view.retired_tail;
        table.arena.give(records);
        table.arena.retire(retired, || table.epochs.current());
        Ok(())
    }

    /// Makes the ring larger until `more` entries fit behind the retired ones: a launch needs as many
    /// as it has operations.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn make_room(&mut self, stream: &Stream, more: u64) -> Result<()> {
        let used = self.used();
        if used + more <= self.view.ring_capacity {
            return Ok(());
        }
        let entries = self.entries(stream)?;
        let capacity = (used + more).next_power_of_two();
        let ring = DeviceMemory::new(&self.quota, to_usize(capacity) * 8)?;
        let view = RecordsView {
            ring: ring.address(),
            ring_capacity: capacity,
            ..self.view
        };
        self.write(&view, stream, view.head, &entries)?;
        self.view = view;
        self.ring = ring;
        Ok(())
    }

    /// All entries, from the head to the end of the retired ones.
    fn entries(&self, stream: &Stream) -> Result<Vec<u64>> {
        let mut entries = vec![0u64; to_usize(self.view.retired_tail - self.view.head)];
        self.read(stream, self.view.head, &mut entries)?;
        Ok(entries)
    }

    /// Copies entries of the ring from number `from` on, and waits for them.
    fn read(&self, stream: &Stream, mut from: u64, mut rest: &mut [u64]) -> Result<()> {
        while !rest.is_empty() {
            let at = from % self.view.ring_capacity;
            let some = rest.len().min(to_usize(self.view.ring_capacity - at));
            let (part, later) = rest.split_at_mut(some);
            // SAFETY: the ring has these entries, and nobody looks before the wait below.
            unsafe {
                copy_out(
                    stream,
                    bytemuck::cast_slice_mut(part),
                    self.view.ring + at * 8,
                )?
            };
            from += some as u64;
            rest = later;
        }
        Ok(wait(stream)?)
    }

    /// Copies entries to the ring of a view from number `to` on, and waits for them.
    fn write(
        &self,
        view: &RecordsView,
        stream: &Stream,
        mut to: u64,
        mut entries: &[u64],
    ) -> Result<()> {
        while !entries.is_empty() {
            let at = to % view.ring_capacity;
            let some = entries.len().min(to_usize(view.ring_capacity - at));
            let (part, later) = entries.split_at(some);
            // SAFETY: the ring has room for them; they stay until the wait below.
            unsafe { copy_in(stream, view.ring + at * 8, bytemuck::cast_slice(part))? };
            to += some as u64;
            entries = later;
        }
        Ok(wait(stream)?)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
