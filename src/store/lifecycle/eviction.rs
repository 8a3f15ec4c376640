//! Eviction: while the table is beyond its memory budget, the items that are read least leave it for sorted
//! files, and those that are read there again come up.

#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions};
use parking_lot::{Mutex, MutexGuard};

use crate::hot_cache::access_counts::{AccessCounts, EvictionCut, Histogram};
use crate::hot_cache::cold_items::{ColdItem, ColdItems, Collector, LeavingItems};
use crate::lsm::{Entry, LsmVersion, Value, WriteEntry};
use crate::pool::heap;
use crate::store::Partition;
use crate::store::commit::queue::Work;
use crate::store::files::dir::{StoreDir, is_full};
use crate::store::files::reserve;
use crate::store::files::reserve::Purpose;
use crate::store::inner::StoreInner;
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::{EntryMeta, TieredItems};
use crate::store::shared::Shared;
use crate::table::room::Need;
use crate::width::to_usize;
use crate::{Error, Result};

/// The part of what records may take that the keys of a round take, and its bounds in bytes: they are sorted in memory.
/// Each round is a run of level 0, so the fewer there are, the less is compacted.
const KEYS_SHARE: u64 = 8;
const KEY_BYTES_MIN: u64 = 1 << 20;
const KEY_BYTES_MAX: u64 = 64 << 20;

/// Least of that for a thread, which has room for the longest key.
const THREAD_KEY_BYTES_MIN: usize = 128 << 10;

/// The part of what records may take that one thread writes into a sorted file at a time, and its bounds in bytes.
const CHUNK_SHARE: u64 = 16;
const CHUNK_BYTES_MIN: u64 = 1 << 20;
const CHUNK_BYTES_MAX: u64 = 8 << 20;

/// The part of what records may take that is written before any of it leaves, values apart as well, and its most in
/// bytes: the disk must have room for all of that. Two threads share it at least.
const GROUP_SHARE: u64 = 4;
const GROUP_BYTES_MAX: u64 = 128 << 20;

/// Items that are taken out of the table at a time, and of those for each thread; changes wait meanwhile.
const SLICE_ITEMS_MIN: usize = 1024;
const SLICE_THREAD_ITEMS: usize = 256;

/// The longest that a change waits for room, and how often it looks for that.
const STALL_TIME_MAX: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes of items that are worth a thread of their own.
const PART_BYTES_MIN: u64 = 1 << 20;

/// Bytes of memory that a thread writes files with.
const WRITER_BYTES: u64 = 1 << 20;

/// The part of what records may take that all of these may take.
const WRITERS_SHARE: u64 = 16;

/// Values that a thread copies before it writes them, in bytes, and how many at most. Nobody reuses what they are
/// copied from meanwhile.
const COPIED_BYTES: u64 = 64 << 10;
const COPIED_ITEMS_MAX: usize = 512;

/// How many bytes of values apart count as one: each chunk has a file of its own for them, and of many files those
/// that are read are rarely open.
const APART_BYTES: u64 = 16;

/// Most buckets that a thread looks through at a time.
const STRIDE_BUCKETS_MAX: u64 = 16;

/// Parts of the table. A stride of each says what is cold.
const SAMPLED_STRIDES: u64 = 64;

/// Strides of a small table, so that all threads have some.
const STRIDES_MIN: u64 = 256;

/// The share of the items that the hand passes which leaves, unless it must be more.
const COLD_SHARE: f64 = 0.5;

impl Partition {
    /// Waits while the table is far beyond its budget, for a bounded time, unless there is no way out of
    /// it for items.
    pub fn wait_for_room(self: &Arc<Self>) {
        self.wait_for_room_since(&OnceCell::new());
    }

    /// The same of one of several partitions, which the caller waits for in all no longer than for one of them: since
    /// the first wait has `begun`.
    pub fn wait_for_room_since(self: &Arc<Self>, begun: &OnceCell<Instant>) {
        let Some(budget) = &self.state.budget else {
            return;
        };
        let tiers = &self.state.tiers;
        let is_full = || !budget.fails.load(Ordering::Relaxed) && budget.is_full(tiers);
        if !is_full() {
            return;
        }
        let called = budget.worker.call();
        budget.stalls.time(|| {
            if let Err(error) = &called {
                tracing::warn!(%error, "items leave the table on the thread of who waits for that");
                if let Err(error) = self.keep_within_budget() {
                    tracing::warn!(%error, "the table stays larger than its budget");
                }
                return;
            }
            let begun = begun.get_or_init(Instant::now);
            let mut left = budget.left.lock();
            while is_full() && begun.elapsed() < STALL_TIME_MAX {
                let rest = STALL_TIME_MAX.saturating_sub(begun.elapsed());
                // Nobody tells what has left other partitions.
                budget
                    .has_left
                    .wait_for(&mut left, rest.min(CHECK_INTERVAL));
            }
        });
    }

    /// Whether the table is beyond its budget.
    pub fn is_beyond_budget(&self) -> bool {
        let tiers = &self.state.tiers;
        let budget = self.state.budget.as_ref();
        budget.is_some_and(|budget| budget.is_exceeded(tiers))
    }

    /// Lets items leave until the table is within its budget again, and brings others up.
    ///
    /// # Errors
    /// Those of the files and of the log: then items stay.
    pub fn keep_within_budget(self: &Arc<Self>) -> Result<()> {
        let Some(budget) = &self.state.budget else {
            return Ok(());
        };
        let eviction = self.state.eviction(budget);
        let mut stalls_before = budget.stalls_before.lock();
        let stalls = budget.stalls.count();
        let have_waited = std::mem::replace(&mut *stalls_before, stalls) != stalls;
        let kept = self.keep_within(&eviction, have_waited);
        let kept = kept.and_then(|()| self.give_room_back(budget));
        budget.note_taken(&self.state.tiers);
        budget.fails.store(kept.is_err(), Ordering::Relaxed);
        budget.tell_left();
        kept
    }

    /// Gives free room of the table's file back: records that left it had other sizes than those that came.
    fn give_room_back(self: &Arc<Self>, budget: &Budget) -> Result<()> {
        let tiers = &self.state.tiers;
        if !budget.has_free_room(tiers) {
            return Ok(());
        }
        let begun = Instant::now();
        // It takes a checkpoint, for which a full disk may have no room.
        let compacted = match self.state.store_dir.is_tight() {
            true => Ok(()),
            false => self.compact_here(&|_| true).map(drop),
        };
        budget.keep_free_room(tiers, begun);
        match is_full(&compacted) {
            true => Ok(()),
            false => compacted,
        }
    }

    fn keep_within(self: &Arc<Self>, eviction: &Eviction, have_waited: bool) -> Result<()> {
        let state = &self.state;
        let promotable = state.tiers.take_promotable();
        if !promotable.is_empty() {
            let promoted = (state.read_promotion(promotable))
                .and_then(|promotion| self.submit(Work::Promote(promotion)));
            if let Err(error) = promoted {
                tracing::warn!(%error, "items that are read again stay below the index");
            }
        }
        let begin = || state.begin_eviction();
        eviction.make_room(have_waited, begin, |leaving| self.evict(leaving))
    }

    pub(super) fn evict(self: &Arc<Self>, leaving: LeavingItems) -> Result<()> {
        self.submit(Work::Evict(leaving))?;
        if let Some(budget) = &self.state.budget {
            budget.tell_left();
        }
        Ok(())
    }
}

/// What items leave with: their table, the files below it, and what all partitions share.
pub struct Eviction<'s> {
    pub tiers: &'s TieredItems,
    pub budget: &'s Budget,
    pub store_dir: &'s StoreDir,
    pub shared: &'s Shared,
}

impl Eviction<'_> {
    /// Lets items leave while records take more than they may: at most a quarter of that each time, or half if changes
    /// have waited for it, or would have had it not begun early. While there is what `begin` gives, deletions leave
    /// tombstones. `remove` takes items out of the table, unless they have changed.
    ///
    /// # Errors
    /// Those of the files, of the log and of `remove`: then items stay.
    pub fn make_room<G>(
        &self,
        have_waited: bool,
        begin: impl Fn() -> G,
        mut remove: impl FnMut(LeavingItems) -> Result<()>,
    ) -> Result<()> {
        let limit = self.budget.limit(self.tiers);
        let mut used = self.tiers.table.record_bytes();
        while used > self.budget.begins_at(limit) {
            // Each round leaves a run of files, however few leave. Where changes press, more do.
            let share = match have_waited || self.budget.is_late(limit) {
                true => limit / 2,
                false => limit / 4,
            };
            // Else each deletion meanwhile would leave a tombstone for nothing.
            self.hold(0)?;
            // What is hot stays, also where nothing comes any more.
            let most = used.saturating_sub(limit / 4);
            let bytes = most.min(share + used.saturating_sub(limit));
            let cold = self.cold_items(bytes, used)?;
            if cold.items.is_empty() {
                self.budget.note_brought(0);
                return Ok(());
            }
            let left = self.evict(cold, || Some(begin()), &mut remove)?;
            let now = self.tiers.table.record_bytes();
            // What was overwritten meanwhile is still there, and counts as brought.
            self.budget.note_brought((now + left).saturating_sub(used));
            if now >= used {
                // Others bring as much; what was read long ago counts less now.
                break;
            }
            used = now;
        }
        Ok(())
    }

    /// Writes items into files, and has `remove` take them out of the table; gives how many bytes have left. As many
    /// chunks of them are written at a time as there are threads and memory for, until `begin` gives nothing.
    ///
    /// # Errors
    /// As [`make_room`](Self::make_room).
    pub(super) fn evict<G>(
        &self,
        cold: ColdItems,
        begin: impl Fn() -> Option<G>,
        mut remove: impl FnMut(LeavingItems) -> Result<()>,
    ) -> Result<u64> {
        let mut left = 0;
        let chunks = self.chunks(&cold);
        let cold = Arc::new(cold);
        let slice = SLICE_THREAD_ITEMS * self.shared.threads.queue.count();
        let slice = slice.max(SLICE_ITEMS_MIN);
        for chunks in self.side_by_side(&cold, &chunks) {
            let filed = {
                let Some(_guard) = begin() else { break };
                self.spill(&cold, chunks)?
            };
            // Else what files are written with would stay with each thread, beside a full table.
            heap::release_free();
            let mut remove = |numbers: &[usize]| remove(LeavingItems::new(&cold, numbers));
            for numbers in filed.chunks(slice) {
                let removed = remove(numbers);
                match is_full(&removed) {
                    // A few at a time the disk may have room for. Else they would be written once more.
                    true => numbers.chunks(SLICE_ITEMS_MIN).try_for_each(&mut remove)?,
                    false => removed?,
                }
            }
            self.budget
                .items_evicted
                .fetch_add(filed.len() as u64, Ordering::Relaxed);
            let items = filed.iter().map(|&nth| &cold.items[nth]);
            left += items.map(|item| self.record_len(item)).sum::<u64>();
        }
        Ok(left)
    }

    /// Items in chunks, each of which a thread writes.
    fn chunks(&self, cold: &ColdItems) -> Vec<Range<usize>> {
        let limit = self.budget.limit(self.tiers);
        let weight_max = (limit / CHUNK_SHARE).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let bytes_max = group_bytes(limit) / 2;
        let (mut weight, mut bytes) = (0, 0);
        let ends = |item: &ColdItem, is_first: bool| {
            if is_first {
                (weight, bytes) = (0, 0);
            }
            weight += self.weight(item);
            bytes += item.bytes();
            weight >= weight_max || bytes >= bytes_max
        };
        cold.chunks(ends, &self.tiers.spill.cuts())
    }

    /// Chunks of items in groups that are written at a time: as many as there are threads and memory for.
    fn side_by_side<'c>(
        &self,
        cold: &ColdItems,
        chunks: &'c [Range<usize>],
    ) -> Vec<&'c [Range<usize>]> {
        let limit = self.budget.limit(self.tiers);
        let bytes_max = group_bytes(limit);
        let writers = to_usize(limit / WRITERS_SHARE / WRITER_BYTES);
        let memory_max = WRITER_BYTES * writers.clamp(1, self.writers()) as u64;
        let (mut groups, mut rest) = (Vec::new(), chunks);
        while !rest.is_empty() {
            let (mut bytes, mut memory) = (0, 0);
            let fits = |chunk: &&Range<usize>| {
                let items = &cold.items[(*chunk).clone()];
                bytes += items.iter().map(ColdItem::bytes).sum::<u64>();
                let lens = items.iter().map(|item| u64::from(item.value_len));
                // A thread copies one value at least.
                memory += WRITER_BYTES + lens.max().unwrap_or(0).saturating_sub(COPIED_BYTES);
                memory <= memory_max && bytes <= bytes_max
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (group, others) = rest.split_at(count);
            groups.push(group);
            rest = others;
        }
        groups
    }

    /// Threads that write.
    fn writers(&self) -> usize {
        self.shared.eviction.count()
    }

    /// Bytes of an item's record.
    fn record_len(&self, item: &ColdItem) -> u64 {
        let (key, value) = (item.key_len as usize, item.value_len as usize);
        self.tiers.table.record_len(key, value)
    }

    /// What of an item a sorted file takes, in bytes, and of a value apart a small part.
    fn weight(&self, item: &ColdItem) -> u64 {
        let apart_min = self.tiers.spill.value_bytes_min() as u64;
        match u64::from(item.value_len) {
            len if len < apart_min => item.bytes(),
            len => u64::from(item.key_len) + len / APART_BYTES,
        }
    }

    /// Sees to it that the disk has room for so many bytes of files, for what is added meanwhile, and for deleting all
    /// afterwards.
    fn hold(&self, files: u64) -> Result<()> {
        let bytes = self.tiers.to_keep_free(&Need::default(), files);
        let purpose = Purpose::Eviction { files };
        self.tiers.hold(self.store_dir, bytes, purpose)
    }
}

/// While this is there, what is deleted leaves a tombstone: its value may be on the way into a file.
pub(super) struct EvictionGuard<'s> {
    state: &'s StoreInner,
    _evicting: MutexGuard<'s, ()>,
}

impl Drop for EvictionGuard<'_> {
    fn drop(&mut self) {
        self.state.applying().is_evicting = false;
        self.state.tiers.note_leaving(Need::default());
    }
}

impl StoreInner {
    pub(super) fn eviction<'s>(&'s self, budget: &'s Budget) -> Eviction<'s> {
        Eviction {
            tiers: &self.tiers,
            budget,
            store_dir: &self.store_dir,
            shared: &self.shared,
        }
    }

    pub(super) fn begin_eviction(&self) -> EvictionGuard<'_> {
        let _evicting = self.evicting.lock();
        self.applying().is_evicting = true;
        EvictionGuard {
            state: self,
            _evicting,
        }
    }
}

impl Eviction<'_> {
    /// Threads for so many bytes of items.
    fn eviction_threads(&self, bytes: u64) -> usize {
        to_usize(bytes / PART_BYTES_MIN).clamp(1, self.writers())
    }

    /// What counts as cold, by a sample of the table: about `share` of its items.
    fn cut(&self, access_counts: &AccessCounts, share: f64) -> EvictionCut {
        let table = &self.tiers.table;
        let mut histogram = Histogram::default();
        let buckets = table.bucket_numbers();
        let step = (buckets.end - buckets.start).div_ceil(SAMPLED_STRIDES);
        for from in buckets.step_by(to_usize(step)) {
            let enter = |fingerprint| {
                access_counts.enter(fingerprint, &mut histogram);
                false
            };
            let stride = from..from + step.min(STRIDE_BUCKETS_MAX);
            table.for_each_within(stride, enter, |_| {});
        }
        access_counts.coldest(&histogram, share)
    }

    /// Cold items of the table, about so many bytes of the `used` ones: those that the hand comes to, from where it
    /// was left. Fewer if their keys would take too much memory. The log has them durably.
    ///
    /// # Errors
    /// What the operating system answers, and those of the log.
    fn cold_items(&self, bytes: u64, used: u64) -> Result<ColdItems> {
        let Some(access_counts) = &self.tiers.access_counts else {
            let keys = self.map(0)?;
            return Ok(ColdItems::of(keys, Vec::new()));
        };
        let share = (bytes as f64 / used as f64).min(1.0);
        let cut = self.cut(access_counts, share.max(COLD_SHARE));
        let is_cold = |fingerprint| access_counts.is_cold(fingerprint, &cut);
        let cold = self.collect(bytes, is_cold, |_, _| true)?;
        access_counts.age();
        Ok(cold)
    }

    /// Items of the table, of about so many bytes, that are `cold` by their fingerprints and `wanted` by the rest.
    pub(super) fn collect(
        &self,
        bytes: u64,
        cold: impl Fn(u64) -> bool + Sync,
        wanted: impl Fn(&[u8], EntryMeta) -> bool + Sync,
    ) -> Result<ColdItems> {
        let pool = &self.shared.eviction;
        let most = self.budget.limit(self.tiers) / KEYS_SHARE;
        let most = to_usize(most.clamp(KEY_BYTES_MIN, KEY_BYTES_MAX));
        let threads = self
            .eviction_threads(bytes)
            .min(most / THREAD_KEY_BYTES_MIN);
        let room = most / threads;
        let mut keys = self.map(threads * room)?;
        let table = &self.tiers.table;
        let buckets = table.bucket_numbers();
        let turn = buckets.end - buckets.start;
        let stride = (turn / STRIDES_MIN).clamp(1, STRIDE_BUCKETS_MAX);
        let strides = turn.div_ceil(stride);
        let hand = self.budget.hand.load(Ordering::Relaxed);
        let (passed, damaged) = (AtomicU64::new(0), Mutex::new(None));
        let collect = |mut collector: Collector<'_>| {
            // Bytes, not items: cold ones may be much longer than others.
            let left = Cell::new(bytes / threads as u64);
            while left.get() > 0 {
                let nth = passed.fetch_add(1, Ordering::Relaxed);
                if nth >= strides {
                    break;
                }
                let from = buckets.start + (hand + nth) % strides * stride;
                let leaves = |fingerprint| left.get() > 0 && cold(fingerprint);
                table.for_each_key_within(from..from + stride, leaves, |item| match item {
                    Ok((key, stamp, value_bytes))
                        if left.get() > 0 && wanted(key, EntryMeta(stamp)) =>
                    {
                        let len = table.record_len(key.len(), to_usize(value_bytes));
                        match collector.push(key, stamp, value_bytes) {
                            true => left.set(left.get().saturating_sub(len)),
                            false => left.set(0),
                        }
                    }
                    Ok(_) => {}
                    Err(error) => *damaged.lock() = Some(error),
                });
            }
            collector.into_items()
        };
        let rooms = keys.chunks_mut(room).enumerate();
        let collectors = rooms.map(|(nth, of_thread)| Collector::new(of_thread, nth * room));
        let items = pool.map(collectors.collect(), collect).concat();
        note_damaged(damaged.into_inner());
        let next = (hand + passed.into_inner()) % strides;
        self.budget.hand.store(next, Ordering::Relaxed);
        let found = pool.install(|| ColdItems::of(keys, items));
        // What a file holds is durable, so what came before it must be, and all of the groups that it is part of. Items
        // that change from now on are left out.
        self.shared.sync_logs()?;
        Ok(found)
    }

    /// Memory that the system has back when it is dropped.
    ///
    /// # Errors
    /// What the operating system answers.
    fn map(&self, len: usize) -> Result<MmapMut> {
        let mut options = MmapOptions::new();
        let mapped = options.len(len.max(1)).no_reserve_swap().map_anon();
        mapped.map_err(|source| Error::io(self.store_dir.path(), "map memory for", source))
    }

    /// Writes the items of some chunks into new files, but for those that a file has already; gives the numbers of all
    /// that files have then. Each chunk is written by one thread.
    fn spill(&self, cold: &ColdItems, chunks: &[Range<usize>]) -> Result<Vec<usize>> {
        let version = self.tiers.spill.version();
        let (mut filed, mut new) = (Vec::new(), Vec::with_capacity(chunks.len()));
        for chunk in chunks {
            let (there, others) = divide(cold, chunk, &version);
            // A flipped bit may have one say that a file has it, so all are checked as those that are written.
            filed.extend(self.copy(cold, &there, &mut |_| Ok(()))?);
            new.push(others);
        }
        self.hold_for(new.iter().flatten().map(|&nth| &cold.items[nth]))?;
        let copy = |numbers: Vec<usize>| move |write: WriteEntry| self.copy(cold, &numbers, write);
        let parts = new.into_iter().map(copy).collect();
        let pool = &self.shared.eviction;
        let written = self.tiers.spill.add(pool, parts)?;
        // Before an item leaves that is nowhere but in a file of this manifest.
        self.tiers.mark(self.store_dir, None);
        filed.extend(written.into_iter().flatten());
        Ok(filed)
    }

    /// Sees to it that the disk has room for files of these items.
    fn hold_for<'i>(&self, items: impl Iterator<Item = &'i ColdItem>) -> Result<()> {
        let mut need = Need::default();
        let mut bytes = 0;
        for item in items {
            let key_len = item.key_len as usize;
            self.tiers.table.needs_record(&mut need, key_len, 0, 1);
            bytes += item.bytes();
        }
        // A file is about as long as what it holds.
        let files = bytes + bytes / 8 + reserve::ROOM_AFTER_DELETION_BYTES;
        self.tiers.note_leaving(need);
        self.hold(files)?;
        self.store_dir.reserve().release(files);
        Ok(())
    }

    /// Gives `write` the items with these numbers, but for damaged ones and those that have changed since they were
    /// found; gives the numbers of those that were written.
    fn copy(&self, cold: &ColdItems, numbers: &[usize], write: WriteEntry) -> Result<Vec<usize>> {
        let mut written = Vec::with_capacity(numbers.len());
        let (mut values, mut copied) = (Vec::new(), Vec::new());
        let mut rest = numbers;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |nth: &&usize| {
                let before = bytes;
                bytes += u64::from(cold.items[**nth].value_len);
                before < COPIED_BYTES
            };
            let count = rest.iter().take(COPIED_ITEMS_MAX).take_while(fits).count();
            let (some, others) = rest.split_at(count);
            rest = others;
            let keys: Vec<&[u8]> = some.iter().map(|&nth| cold.key(&cold.items[nth])).collect();
            let mut damaged = None;
            self.tiers
                .table
                .copy_many(&keys, |found, item| match item {
                    Ok((stamp, value)) if stamp == cold.items[some[found]].stamp => {
                        values.extend_from_slice(value);
                        copied.push((some[found], values.len()));
                    }
                    Ok(_) => {}
                    Err(error) => damaged = Some(error),
                })?;
            note_damaged(damaged);
            let mut start = 0;
            for (nth, end) in copied.drain(..) {
                let item = &cold.items[nth];
                let value = &values[start..end];
                write(Entry {
                    key: cold.key(item),
                    sequence: EntryMeta(item.stamp).sequence(),
                    value: (!EntryMeta(item.stamp).is_tombstone()).then_some(Value::Inline(value)),
                })?;
                written.push(nth);
                start = end;
            }
            values.clear();
        }
        Ok(written)
    }
}

/// The most bytes of items that are written before any of them leaves.
fn group_bytes(limit: u64) -> u64 {
    (limit / GROUP_SHARE).min(GROUP_BYTES_MAX)
}

/// The numbers of a chunk's items that files have already, and those of the others.
fn divide(
    cold: &ColdItems,
    chunk: &Range<usize>,
    version: &LsmVersion,
) -> (Vec<usize>, Vec<usize>) {
    chunk.clone().partition(|&nth| {
        let item = &cold.items[nth];
        // A file may have been repaired, and have lost it. Who cannot read its filter writes the item once more.
        EntryMeta(item.stamp).was_promoted() && version.may_have(cold.key(item)).unwrap_or(false)
    })
}

/// In a file a damaged item would have a checksum that matches.
fn note_damaged(error: Option<Error>) {
    if let Some(error) = error {
        tracing::warn!(%error, "damaged items stay in the index");
    }
}
