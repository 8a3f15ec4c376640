//! The record arena of a table: which records are free, and who may take which.
//!
//! None of this is in the file. Recovery rebuilds it from the records that slots refer to, so
//! taking and freeing a record writes nothing. Runs of fresh records are taken by one CAS, freed
//! ones wait in limbo until no reader can hold them (see [`epoch`]).
//!
//! Records of one size class are numbered over the extents of that class; tables of fixed values
//! have one class.

pub mod epoch;
mod extents;
mod reachable;
mod shard;
mod vacate;

use std::sync::Arc;

use gphash_layout::width::{to_usize, u32_of};
use gphash_sync::{AtomicU64, Mutex, MutexGuard, Ordering, RwLock, SegQueue};

use epoch::{GRACE, MAX_PINS};
pub use extents::{ArenaExtent, ExtentMap, Extents};
pub use reachable::ReachableRecords;
use shard::Cache;
pub use shard::Shard;
use vacate::Vacating;
pub use vacate::Victims;

/// Caches of free records, one for each operation that runs at once.
const SHARDS: usize = MAX_PINS;

/// Bytes of fresh records taken at a time, and most records.
#[cfg(not(loom))]
const RUN: (u64, u64) = (256 << 10, 256);
/// In a model records go from thread to thread one by one.
#[cfg(loom)]
const RUN: (u64, u64) = (1, 1);

/// The share of a run that is taken at a time where each of many classes has one.
const SHARED_RUN: u64 = 8;

/// The part of all records that is retired in one shard before it goes to limbo, the bounds of that in bytes, and most
/// records. What each of many threads keeps, the others must find elsewhere: a file of 64 MiB grew by a quarter.
const RETIRED_SHARE: u64 = 512;
#[cfg(not(loom))]
const RETIRE_AT: (std::ops::RangeInclusive<u64>, usize) = (32 << 10..=1 << 20, 4096);
#[cfg(loom)]
const RETIRE_AT: (std::ops::RangeInclusive<u64>, usize) = (1..=1, 1);

/// The arena of a table.
pub struct Arena {
    classes: Box<[Class]>,
    extents: RwLock<Extents>,
    vacating: Vacating,
    limbo: SegQueue<(u64, Vec<u64>)>,
    /// The epoch in which the last of them can be used again. Orders nothing.
    limbo_ends: std::sync::atomic::AtomicU64,
    shards: Box<[Mutex<Shard>]>,
    /// Bytes of records that a shard retires before they go to limbo. Orders nothing.
    retired_bytes_max: std::sync::atomic::AtomicU64,
    retired_max: usize,
}

/// The records of one size.
struct Class {
    stride: u64,
    /// Number of the next record that will be added. Orders nothing.
    end: std::sync::atomic::AtomicU64,
    /// Records that were added and are there no more; all of them had been taken. Orders nothing.
    removed: std::sync::atomic::AtomicU64,
    /// Number of the first record that was never taken.
    next: AtomicU64,
    free: SegQueue<Vec<u64>>,
    /// Records taken at a time.
    run: u64,
}

impl Arena {
    /// An arena without extents. `strides` are the bytes from one record to the next, of each size class.
    pub fn new(strides: impl ExactSizeIterator<Item = u64>) -> Self {
        let most = match strides.len() {
            1 => RUN.0,
            _ => RUN.0 / SHARED_RUN,
        };
        let class = |stride| Class {
            stride,
            end: std::sync::atomic::AtomicU64::new(0),
            removed: std::sync::atomic::AtomicU64::new(0),
            next: AtomicU64::new(0),
            free: SegQueue::new(),
            run: (most / stride).clamp(1, RUN.1),
        };
        Self {
            classes: strides.map(class).collect(),
            extents: RwLock::default(),
            vacating: Vacating::default(),
            limbo: SegQueue::new(),
            limbo_ends: std::sync::atomic::AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            retired_bytes_max: std::sync::atomic::AtomicU64::new(*RETIRE_AT.0.start()),
            retired_max: RETIRE_AT.1,
        }
    }

    /// The size classes.
    ///
    /// # Panics
    /// If there are 2³² of them.
    pub fn classes(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.classes.len()).expect("classes are few")
    }

    #[inline]
    fn class(&self, class: u32) -> &Class {
        &self.classes[class as usize]
    }

    /// All extents that there are now, in order.
    pub fn extents(&self) -> Extents {
        self.extents.read().clone()
    }

    /// How many extents there are.
    pub fn extent_count(&self) -> u32 {
        u32_of(self.extents.read().len() as u64)
    }

    /// The extents that there are now, for who asks of many records what they are.
    pub fn map(&self) -> ExtentMap {
        self.extents().iter().collect()
    }

    /// Number behind that of the last record of a class.
    #[inline]
    pub fn end(&self, class: u32) -> u64 {
        self.class(class)
            .end
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    fn removed(&self, class: u32) -> u64 {
        self.class(class)
            .removed
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Records of a class in all extents.
    pub fn total(&self, class: u32) -> u64 {
        self.end(class) - self.removed(class)
    }

    /// Adds the records of `class` that fit into `len` bytes from `offset`. One caller at a time.
    pub fn add_extent(&self, class: u32, offset: u64, len: u64) {
        let Class { stride, end, .. } = self.class(class);
        let extent = ArenaExtent {
            offset,
            len,
            class,
            stride: *stride,
            first: self.end(class),
            count: len / stride,
        };
        self.change_extents(|extents| extents.iter().chain([extent]).collect());
        end.fetch_add(extent.count, std::sync::atomic::Ordering::Relaxed);
    }

    fn change_extents(&self, change: impl FnOnce(&Extents) -> Arc<[ArenaExtent]>) {
        let mut extents = self.extents.write();
        *extents = Extents(change(&extents));
        let bytes: u64 = extents.iter().map(|extent| extent.len).sum();
        let (least, most) = RETIRE_AT.0.into_inner();
        let retired = (bytes / RETIRED_SHARE).clamp(least, most);
        self.retired_bytes_max.store(retired, Ordering::Relaxed);
    }

    /// Records of a class taken at least once.
    #[inline]
    pub fn high_water(&self, class: u32) -> u64 {
        self.class(class).next.load(Ordering::Acquire)
    }

    /// Records of a class that were never taken. An extent may be added, and its records taken, meanwhile.
    pub fn fresh(&self, class: u32) -> u64 {
        let taken = self.high_water(class);
        self.end(class).saturating_sub(taken)
    }

    /// Records of a class that are there and were taken at least once.
    pub fn taken(&self, class: u32) -> u64 {
        self.high_water(class) - self.removed(class)
    }

    /// Bytes of all records that were taken and not given back to everyone. No operation may run
    /// beside it.
    pub fn taken_bytes(&self) -> u64 {
        let bytes = |class: u32| {
            let Class { stride, free, .. } = self.class(class);
            let mut records = self.taken(class);
            let batches: Vec<_> = std::iter::from_fn(|| free.pop()).collect();
            for batch in batches {
                records = records.saturating_sub(batch.len() as u64);
                free.push(batch);
            }
            records * stride
        };
        self.classes().map(bytes).sum()
    }

    /// Bytes of records in use, and bytes that emptying parts of about `part_len` bytes would free. What batches
    /// keep for themselves counts as in use, unless it is said how many `items` there are. `epoch` is the current one.
    pub fn usage(&self, part_len: u64, epoch: u64, items: Option<u64>) -> (u64, u64) {
        self.leave_limbo(epoch);
        let usage = |class: u32| {
            let Class { stride, free, .. } = self.class(class);
            let total = self.total(class);
            let used = items.unwrap_or_else(|| {
                let mut used = total.saturating_sub(self.fresh(class));
                for _ in 0..free.len() {
                    let Some(batch) = free.pop() else { break };
                    used = used.saturating_sub(batch.len() as u64);
                    free.push(batch);
                }
                used
            });
            let kept = (used / vacate::SPARE_SHARE * stride).max(match used {
                0 => 0,
                _ => part_len,
            });
            let unused = total.saturating_sub(used) * stride;
            (used * stride, unused.saturating_sub(kept))
        };
        let sum = |(used, spare), (used_too, spare_too)| (used + used_too, spare + spare_too);
        self.classes().map(usage).fold((0, 0), sum)
    }

    /// Says that the first `ordinal` records of a class have been taken. While opening only.
    pub fn set_high_water(&self, class: u32, ordinal: u64) {
        self.class(class).next.store(ordinal, Ordering::Release);
    }

    /// The class that can use `len` bytes best: the one that has most bytes, of those whose
    /// records are not longer.
    pub fn class_for(&self, len: u64) -> Option<u32> {
        self.classes()
            .filter(|&class| self.class(class).stride <= len)
            .max_by_key(|&class| {
                let bytes = self.total(class) * self.class(class).stride;
                (bytes, std::cmp::Reverse(class))
            })
    }

    /// Takes one fresh record at a time, and lets go of each retired one at once, so that records
    /// are soon used again. For tests.
    #[doc(hidden)]
    pub fn hurry(&mut self) {
        self.classes.iter_mut().for_each(|class| class.run = 1);
        self.retired_max = 1;
    }

    /// Takes up to `most` fresh records of a class that lie one behind the other; gives their byte
    /// range, or `None` when the arena must grow.
    pub fn take_run(&self, class: u32, most: u64) -> Option<std::ops::Range<u64>> {
        let Class { stride, next, .. } = self.class(class);
        let extents = self.extents();
        let mut first = next.load(Ordering::Acquire);
        loop {
            let extent = extents
                .iter()
                .find(|extent| extent.class == class && first < extent.end())?;
            let end = first.saturating_add(most).min(extent.end());
            match next.compare_exchange(first, end, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let start = extent.offset + (first - extent.first) * stride;
                    return Some(start..start + (end - first) * stride);
                }
                Err(current) => first = current,
            }
        }
    }

    /// Gives records that no one can hold back to everyone. They need not be of one class.
    pub fn give(&self, records: Vec<u64>) {
        let records = self.vacating.divert(records);
        if records.is_empty() {
            return;
        }
        if let [only] = &self.classes[..] {
            only.free.push(records);
            return;
        }
        let map = self.map();
        let mut of_class = vec![Vec::new(); self.classes.len()];
        for record in records {
            // A damaged file may name what is no record.
            if let Some((class, _)) = map.record(record) {
                of_class[class as usize].push(record);
            }
        }
        for (class, records) in self.classes.iter().zip(of_class) {
            if !records.is_empty() {
                class.free.push(records);
            }
        }
    }

    /// Takes every record that is free for certain: what a clean close writes down, or what
    /// an engine takes over. No operation may run beside it.
    pub fn take_all(&self) -> Vec<u64> {
        let mut records = self.take_batches();
        while let Some((_, batch)) = self.limbo.pop() {
            records.extend(batch);
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            records.append(&mut shard.retired);
            self.take_free(&mut shard, &mut records);
        }
        records
    }

    /// As [`take_all`](Self::take_all) beside readers, at an `epoch`: without what they may still hold.
    pub fn take_passed(&self, epoch: u64) -> Vec<u64> {
        self.leave_limbo(epoch);
        self.take_batches()
    }

    /// Takes what is free and no thread's.
    fn take_batches(&self) -> Vec<u64> {
        let free = self.classes.iter().map(|class| &class.free);
        free.flat_map(|free| std::iter::from_fn(|| free.pop()))
            .flatten()
            .collect()
    }

    /// Takes what a shard has free.
    fn take_free(&self, shard: &mut Shard, records: &mut Vec<u64>) {
        for (cache, class) in shard.caches.iter_mut().zip(&self.classes) {
            records.append(&mut cache.free);
            let run = std::mem::take(&mut cache.run);
            records.extend(run.step_by(to_usize(class.stride)));
        }
    }

    /// Gives back what has been in limbo for long enough.
    fn leave_limbo(&self, epoch: u64) {
        while let Some((retired_in, records)) = self.limbo.pop() {
            if retired_in + GRACE > epoch {
                self.limbo.push((retired_in, records));
                break;
            }
            self.give(records);
        }
    }

    /// A shard for the caller alone. `hint` picks where to look first. No one waits here: with
    /// all shards in use the search goes round.
    #[inline]
    pub fn shard(&self, hint: usize) -> MutexGuard<'_, Shard> {
        let mut index = hint;
        let mut shard = loop {
            match self.shards[index % SHARDS].try_lock() {
                Some(shard) => break shard,
                None => index += 1,
            }
        };
        if shard.caches.is_empty() {
            shard.caches = vec![Cache::default(); self.classes.len()].into();
        }
        shard
    }

    /// Takes a record of a class, or `None` when the arena must grow. `epoch` is the current one.
    #[inline]
    pub fn allocate(&self, shard: &mut Shard, class: u32, epoch: impl Fn() -> u64) -> Option<u64> {
        let cache = &shard.caches[class as usize];
        if cache.free.is_empty() && cache.run.is_empty() {
            self.refill(shard, class, epoch());
        }
        let cache = &mut shard.caches[class as usize];
        if !cache.run.is_empty() {
            let record = cache.run.start;
            cache.run.start += self.class(class).stride;
            return Some(record);
        }
        cache.free.pop()
    }

    fn refill(&self, shard: &mut Shard, class: u32, epoch: u64) {
        self.leave_limbo(epoch);
        let cache = &mut shard.caches[class as usize];
        if let Some(records) = self.class(class).free.pop() {
            cache.free = records;
        } else if let Some(run) = self.take_run(class, self.class(class).run) {
            cache.run = run;
            shard.taken_run = true;
        }
    }

    /// Makes what shards hold that no batch uses everyone's: free records at once, retired ones,
    /// also those of the caller's shard `mine`, when their epoch has passed. `epoch` must be read
    /// after they were unlinked. Gives how many shards batches use, the caller's included.
    pub fn collect(&self, mine: &mut Shard, epoch: impl Fn() -> u64) -> usize {
        self.retire(mine.take_retired(), &epoch);
        self.collect_idle(epoch)
    }

    /// As [`collect`](Self::collect), for who has no shard.
    pub fn collect_idle(&self, epoch: impl Fn() -> u64) -> usize {
        let mut in_use = 0;
        for shard in &self.shards {
            let Some(mut shard) = shard.try_lock() else {
                in_use += 1;
                continue;
            };
            let mut free = Vec::new();
            self.take_free(&mut shard, &mut free);
            let retired = shard.take_retired();
            drop(shard);
            self.give(free);
            self.retire(retired, &epoch);
        }
        in_use
    }

    /// Gives records up that readers may still hold. `epoch` must be read after they were unlinked.
    pub fn retire(&self, records: Vec<u64>, epoch: impl Fn() -> u64) {
        if !records.is_empty() {
            let epoch = epoch();
            self.limbo.push((epoch, records));
            self.limbo_ends.fetch_max(epoch + GRACE, Ordering::Relaxed);
        }
    }

    /// Whether there are retired records in limbo.
    #[inline]
    pub fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Whether some of those wait for an epoch after this one. An advance is dear: it looks at all pins.
    #[inline]
    pub fn awaits_epoch(&self, epoch: impl Fn() -> u64) -> bool {
        self.has_limbo() && epoch() < self.limbo_ends.load(Ordering::Relaxed)
    }

    /// Sends what the shard has retired to limbo once it is much. `epoch` must be read after the
    /// records were unlinked.
    #[inline]
    pub fn flush(&self, shard: &mut Shard, epoch: impl Fn() -> u64) {
        let bytes = self.retired_bytes_max.load(Ordering::Relaxed);
        if shard.retired_bytes >= bytes || shard.retired.len() >= self.retired_max {
            self.retire(shard.take_retired(), epoch);
        }
    }
}

#[cfg(test)]
mod tests;
