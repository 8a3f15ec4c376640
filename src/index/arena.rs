//! The record arena of a table: which records are free, and who may take which.
//!
//! None of this is in the file. Recovery rebuilds it from the records that slots refer to, so
//! taking and freeing a record writes nothing. Runs of fresh records are taken by one CAS, freed
//! ones wait in limbo until no reader can hold them (see [`epoch`](super::epoch)).

use std::sync::{OnceLock, TryLockError};

use super::epoch::{GRACE, MAX_PINS};
use crate::layout::extent::MAX_EXTENTS;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, SegQueue};

/// Caches of free records, one for each operation that runs at once.
const SHARDS: usize = MAX_PINS;

/// Bytes of fresh records taken at a time, and most records.
#[cfg(not(loom))]
const RUN: (u64, u64) = (256 << 10, 256);
/// In a model records go from thread to thread one by one.
#[cfg(loom)]
const RUN: (u64, u64) = (1, 1);

/// Bytes of records retired in one shard before they go to limbo, and most records.
#[cfg(not(loom))]
const RETIRE_AT: (u64, u64) = (1 << 20, 4096);
#[cfg(loom)]
const RETIRE_AT: (u64, u64) = (1, 1);

/// A range of records in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaExtent {
    /// Offset of the first record.
    pub offset: u64,
    /// Number of the first record, counted over all arena extents in order.
    pub first: u64,
    /// How many records.
    pub count: u64,
}

/// The arena of fixed-size records.
pub struct Arena {
    stride: u64,
    extents: Box<[OnceLock<ArenaExtent>]>,
    /// Extents that are set.
    extent_count: AtomicU64,
    /// Number of the first record that was never taken.
    next: AtomicU64,
    free: SegQueue<Vec<u64>>,
    limbo: SegQueue<(u64, Vec<u64>)>,
    shards: Box<[Mutex<Shard>]>,
    run: u64,
    retire_at: usize,
}

/// What one running batch has taken and given back.
#[derive(Default)]
pub struct Shard {
    free: Vec<u64>,
    run: std::ops::Range<u64>,
    retired: Vec<u64>,
    taken_run: bool,
}

impl Arena {
    /// An arena without extents.
    pub fn new(stride: u64) -> Self {
        Self {
            stride,
            extents: (0..MAX_EXTENTS).map(|_| OnceLock::new()).collect(),
            extent_count: AtomicU64::new(0),
            next: AtomicU64::new(0),
            free: SegQueue::new(),
            limbo: SegQueue::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            run: (RUN.0 / stride).clamp(1, RUN.1),
            retire_at: (RETIRE_AT.0 / stride).clamp(1, RETIRE_AT.1) as usize,
        }
    }

    /// All extents, in order.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = ArenaExtent> + '_ {
        let count = self.extent_count.load(Ordering::Acquire) as usize;
        self.extents[..count]
            .iter()
            .filter_map(|extent| extent.get().copied())
    }

    /// Records in all extents.
    pub fn total(&self) -> u64 {
        self.extents()
            .next_back()
            .map_or(0, |last| last.first + last.count)
    }

    /// Adds the records that fit into `len` bytes from `offset`. One caller at a time.
    pub fn add_extent(&self, offset: u64, len: u64) {
        let index = self.extent_count.load(Ordering::Acquire) as usize;
        let extent = ArenaExtent {
            offset,
            first: self.total(),
            count: len / self.stride,
        };
        let _ = self.extents[index].set(extent);
        self.extent_count.store(index as u64 + 1, Ordering::Release);
    }

    /// Number of the record at `offset`, or `None` if no record starts there.
    #[inline]
    pub fn ordinal(&self, offset: u64) -> Option<u64> {
        // The newest extents are the largest, so most records are found at once from the back.
        let extent = self.extents().rev().find(|extent| {
            offset >= extent.offset && offset - extent.offset < extent.count * self.stride
        })?;
        let inside = offset - extent.offset;
        inside
            .is_multiple_of(self.stride)
            .then(|| extent.first + inside / self.stride)
    }

    /// Offset of the record with number `ordinal`.
    pub fn offset(&self, ordinal: u64) -> Option<u64> {
        let extent = self
            .extents()
            .rev()
            .find(|extent| ordinal >= extent.first)?;
        let inside = ordinal - extent.first;
        (inside < extent.count).then(|| extent.offset + inside * self.stride)
    }

    /// Records taken at least once.
    pub fn high_water(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Says that the first `ordinal` records have been taken. While opening only.
    pub fn set_high_water(&self, ordinal: u64) {
        self.next.store(ordinal, Ordering::Release);
    }

    /// Takes one fresh record at a time, and lets go of each retired one at once, so that records
    /// are soon used again.
    #[cfg(all(test, not(loom)))]
    pub fn hurry(&mut self) {
        (self.run, self.retire_at) = (1, 1);
    }

    /// Takes up to `most` fresh records that lie one behind the other; gives their byte range,
    /// or `None` when the arena must grow.
    pub fn take_run(&self, most: u64) -> Option<std::ops::Range<u64>> {
        let mut next = self.next.load(Ordering::Acquire);
        loop {
            let extent = self
                .extents()
                .find(|extent| next < extent.first + extent.count)?;
            let end = (next + most).min(extent.first + extent.count);
            match self
                .next
                .compare_exchange(next, end, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    let start = extent.offset + (next - extent.first) * self.stride;
                    return Some(start..start + (end - next) * self.stride);
                }
                Err(current) => next = current,
            }
        }
    }

    /// Gives records that no one can hold back to everyone.
    pub fn give(&self, records: Vec<u64>) {
        if !records.is_empty() {
            self.free.push(records);
        }
    }

    /// Takes every record that is free for certain: what a close in order writes down, or what
    /// an engine takes over. No operation may run beside it.
    pub fn take_all(&self) -> Vec<u64> {
        let mut records = Vec::new();
        while let Some(batch) = self.free.pop() {
            records.extend(batch);
        }
        while let Some((_, batch)) = self.limbo.pop() {
            records.extend(batch);
        }
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(|poison| poison.into_inner());
            records.append(&mut shard.free);
            records.append(&mut shard.retired);
            let run = std::mem::take(&mut shard.run);
            records.extend(run.step_by(self.stride as usize));
        }
        records
    }

    /// A shard for the caller alone. `hint` picks where to look first. No one waits here: with
    /// all shards in use the search goes round.
    pub fn shard(&self, hint: usize) -> MutexGuard<'_, Shard> {
        let mut index = hint;
        loop {
            match self.shards[index % SHARDS].try_lock() {
                Ok(shard) => return shard,
                Err(TryLockError::Poisoned(poison)) => return poison.into_inner(),
                Err(TryLockError::WouldBlock) => index += 1,
            }
        }
    }

    /// Takes a record, or `None` when the arena must grow. `epoch` is the current one.
    #[inline]
    pub fn allocate(&self, shard: &mut Shard, epoch: impl Fn() -> u64) -> Option<u64> {
        if shard.free.is_empty() && shard.run.is_empty() {
            self.refill(shard, epoch());
        }
        if !shard.run.is_empty() {
            let record = shard.run.start;
            shard.run.start += self.stride;
            return Some(record);
        }
        shard.free.pop()
    }

    fn refill(&self, shard: &mut Shard, epoch: u64) {
        while let Some((retired_in, records)) = self.limbo.pop() {
            if retired_in + GRACE > epoch {
                self.limbo.push((retired_in, records));
                break;
            }
            self.free.push(records);
        }
        if let Some(records) = self.free.pop() {
            shard.free = records;
        } else if let Some(run) = self.take_run(self.run) {
            shard.run = run;
            shard.taken_run = true;
        }
    }

    /// Makes what shards hold that no batch uses everyone's: free records at once, retired ones,
    /// also those of the caller's shard `mine`, when their epoch has passed. `epoch` must be read
    /// after they were unlinked. Gives how many shards batches use, the caller's included.
    pub fn collect(&self, mine: &mut Shard, epoch: impl Fn() -> u64) -> usize {
        let retired = std::mem::take(&mut mine.retired);
        self.retire(retired, &epoch);
        let mut in_use = 0;
        for shard in &self.shards {
            let Ok(mut shard) = shard.try_lock() else {
                in_use += 1;
                continue;
            };
            let mut free = std::mem::take(&mut shard.free);
            free.extend(std::mem::take(&mut shard.run).step_by(self.stride as usize));
            let retired = std::mem::take(&mut shard.retired);
            drop(shard);
            self.give(free);
            self.retire(retired, &epoch);
        }
        in_use
    }

    fn retire(&self, records: Vec<u64>, epoch: impl Fn() -> u64) {
        if !records.is_empty() {
            self.limbo.push((epoch(), records));
        }
    }

    /// Whether retired records wait for their epoch to pass.
    pub fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Sends what the shard has retired to limbo once it is much. `epoch` must be read after the
    /// records were unlinked.
    pub fn flush(&self, shard: &mut Shard, epoch: impl Fn() -> u64) {
        if shard.retired.len() >= self.retire_at {
            self.retire(std::mem::take(&mut shard.retired), epoch);
        }
    }
}

impl Shard {
    /// Gives back a record that was never visible to anyone.
    pub fn put_back(&mut self, record: u64) {
        self.free.push(record);
    }

    /// The record that will be taken after `ahead` others, as far as the shard has so many.
    #[inline]
    pub fn upcoming(&self, ahead: usize, stride: u64) -> Option<u64> {
        if self.run.is_empty() {
            let place = self.free.len().checked_sub(ahead + 1)?;
            return Some(self.free[place]);
        }
        let record = self.run.start + ahead as u64 * stride;
        (record < self.run.end).then_some(record)
    }

    /// Whether fresh records were taken since this was last asked.
    pub fn has_taken_run(&mut self) -> bool {
        std::mem::take(&mut self.taken_run)
    }

    /// Gives up a record that readers may still hold.
    #[inline]
    pub fn retire(&mut self, record: u64) {
        self.retired.push(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_and_offsets_are_each_others_inverse() {
        let arena = Arena::new(24);
        arena.add_extent(4096, 100);
        arena.add_extent(65536, 4096);
        assert_eq!(arena.total(), 4 + 170);
        for ordinal in 0..arena.total() {
            assert_eq!(arena.ordinal(arena.offset(ordinal).unwrap()), Some(ordinal));
        }
        assert_eq!(arena.offset(arena.total()), None);
        for nowhere in [0, 4095, 4097, 4096 + 96, 65536 + 170 * 24] {
            assert_eq!(arena.ordinal(nowhere), None);
        }
    }

    #[test]
    fn every_record_is_handed_out_once_and_retired_ones_only_after_grace() {
        let arena = Arena::new(1 << 20);
        arena.add_extent(4096, 10 << 20);
        let mut shard = arena.shard(3);
        let mut taken: Vec<_> = std::iter::from_fn(|| arena.allocate(&mut shard, || 1)).collect();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 10);
        shard.retire(taken[0]);
        arena.flush(&mut shard, || 5);
        assert_eq!(arena.allocate(&mut shard, || 5), None);
        assert_eq!(arena.allocate(&mut shard, || 6), None);
        assert_eq!(arena.allocate(&mut shard, || 7), Some(taken[0]));
    }
}
