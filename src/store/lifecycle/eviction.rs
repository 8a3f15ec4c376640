//! Eviction: while the table is beyond its memory budget, the items that are read least leave it for sorted
//! files, and those that are read there again come up.

#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;
use rayon::slice::ParallelSliceMut;

use crate::lsm::{Entry, Value};
use crate::store::Partition;
use crate::store::commit::queue::Work;
use crate::store::files::reserve;
use crate::store::inner::StoreInner;
use crate::store::resident::access_counts::{AccessCounts, EvictionCut, Histogram};
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::EntryMeta;
use crate::table::room::Need;
use crate::width::to_usize;
use crate::{Error, Result, heap, prefetch};

/// Most bytes of items that leave at a time: they are sorted in memory.
const ROUND_BYTES_MAX: u64 = 64 << 20;

/// The part of what records may take that leaves at a time.
const ROUND_SHARE: u64 = 8;

/// Bytes that may leave at a time whatever the budget is.
const ROUND_BYTES_MIN: u64 = 1 << 20;

/// Items that are taken out of the table at a time; changes wait meanwhile.
const SLICE_ITEMS: usize = 1024;

/// The longest that a change waits for room.
const STALL_TIME_MAX: Duration = Duration::from_secs(1);

/// Bytes of items that are worth a thread of their own: what it writes files with takes about 1 MiB.
const PART_BYTES_MIN: u64 = 4 << 20;

/// Most buckets that a thread looks through at a time.
const STRIDE_BUCKETS_MAX: u64 = 16;

/// Strides of the table that say what is cold.
const SAMPLED_STRIDES: u64 = 256;

/// The share of the items that the hand passes which leaves, unless it must be more.
const COLD_SHARE: f64 = 0.5;

/// While items are written, the one so many further on is prefetched.
const PREFETCH_DISTANCE_ITEMS: usize = 8;

/// Items on their way out of the table.
struct EvictionBatch {
    /// Mapped, so that the system has its memory back afterwards: the allocator would keep it between small blocks
    /// that stay. Pages that are not used take none.
    bytes: MmapMut,
    items: Vec<EvictedItem>,
}

/// An item of a batch: where it is there.
#[derive(Clone, Copy)]
struct EvictedItem {
    /// How its key begins: to compare keys elsewhere takes long.
    prefix: u64,
    start: usize,
    key_len: usize,
    end: usize,
    stamp: EntryMeta,
}

/// What one thread brings for a batch, one item behind the other in its share of the memory.
struct Copier<'b> {
    room: &'b mut [u8],
    /// Where the room begins.
    at: usize,
    items: Vec<EvictedItem>,
}

impl Copier<'_> {
    /// Takes an item, unless there is no room for it.
    fn push(&mut self, key: &[u8], stamp: EntryMeta, value: &[u8]) {
        let len = key.len() + value.len();
        let Some(of_item) = self.room.split_off_mut(..len) else {
            return;
        };
        let (of_key, of_value) = of_item.split_at_mut(key.len());
        of_key.copy_from_slice(key);
        of_value.copy_from_slice(value);
        let mut prefix = [0; 8];
        let copied = key.len().min(8);
        prefix[..copied].copy_from_slice(&key[..copied]);
        let start = self.at;
        self.at += len;
        self.items.push(EvictedItem {
            prefix: u64::from_be_bytes(prefix),
            start,
            key_len: key.len(),
            end: self.at,
            stamp,
        });
    }
}

impl EvictionBatch {
    fn key(&self, item: &EvictedItem) -> &[u8] {
        &self.bytes[item.start..item.start + item.key_len]
    }

    /// Brings them into order; of an item that was met twice the newer one stays.
    fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        let keys = |a: &EvictedItem, b: &EvictedItem| {
            let rest = || self.key(a).cmp(self.key(b));
            a.prefix.cmp(&b.prefix).then_with(rest)
        };
        items.par_sort_unstable_by(|a, b| keys(a, b).then_with(|| b.stamp.0.cmp(&a.stamp.0)));
        items.dedup_by(|b, a| keys(a, b).is_eq());
        self.items = items;
    }

    fn entry(&self, item: &EvictedItem) -> Entry<'_> {
        let value = &self.bytes[item.start + item.key_len..item.end];
        Entry {
            key: self.key(item),
            sequence: item.stamp.sequence(),
            value: (!item.stamp.is_tombstone()).then_some(Value::Inline(value)),
        }
    }
}

impl Partition {
    /// Waits while the table is far beyond its budget, for a bounded time, unless there is no way out of
    /// it for items.
    pub fn wait_for_room(&self) {
        let Some(budget) = &self.state.budget else {
            return;
        };
        let tiers = &self.state.tiers;
        let is_full = || !budget.fails.load(Ordering::Relaxed) && budget.is_full(tiers);
        if !is_full() {
            return;
        }
        budget.worker.call_if_possible();
        budget.stalls.time(|| {
            let started = Instant::now();
            let mut left = budget.left.lock();
            while is_full() && started.elapsed() < STALL_TIME_MAX {
                let rest = STALL_TIME_MAX.saturating_sub(started.elapsed());
                budget.has_left.wait_for(&mut left, rest);
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
        let mut before = budget.stalls_before.lock();
        let stalls = budget.stalls.count();
        let is_pressed = std::mem::replace(&mut *before, stalls) != stalls;
        let kept = self.keep_within(budget, is_pressed);
        let kept = kept.and_then(|()| self.give_room_back(budget));
        budget.fails.store(kept.is_err(), Ordering::Relaxed);
        budget.has_left.notify_all();
        kept
    }

    /// Gives free room of the table's file back: records that left it had other sizes than those that came.
    fn give_room_back(self: &Arc<Self>, budget: &Budget) -> Result<()> {
        let tiers = &self.state.tiers;
        if !budget.has_free_room(tiers) {
            return Ok(());
        }
        // It takes a checkpoint, for which a full disk may have no room.
        if !self.state.store_dir.is_tight() {
            self.compact_here(&|_| true)?;
        }
        budget.keep_free_room(tiers);
        Ok(())
    }

    fn keep_within(self: &Arc<Self>, budget: &Budget, is_pressed: bool) -> Result<()> {
        let state = &self.state;
        let promotable = state.tiers.take_promotable();
        if !promotable.is_empty()
            && let Err(error) = self.submit(Work::Promote(promotable))
        {
            tracing::warn!(%error, "items that are read again stay below the index");
        }
        let table = &state.tiers.table;
        let limit = budget.limit(&state.tiers);
        // Each round leaves a file, however few leave. Where changes wait for that, more do.
        let least = match is_pressed {
            true => limit / 2,
            false => limit - limit / 8,
        };
        let mut used = table.record_bytes();
        if used <= limit {
            return Ok(());
        }
        while used > least {
            // Else each deletion meanwhile would leave a tombstone for nothing.
            state.hold_to_add(&Need::default(), 0)?;
            let most = (limit / ROUND_SHARE).clamp(ROUND_BYTES_MIN, ROUND_BYTES_MAX);
            let (batch, spilled) = {
                let _guard = state.begin_eviction();
                let batch = state.cold_items((used - least).min(most), used)?;
                if batch.items.is_empty() {
                    return Ok(());
                }
                let spilled = state.spill(&batch);
                (batch, spilled)
            };
            spilled?;
            // Else what files are written with would stay with each thread, beside a full table.
            heap::release_free();
            for slice in batch.items.chunks(SLICE_ITEMS) {
                let item = |item: &EvictedItem| (batch.key(item).to_vec(), item.stamp);
                self.submit(Work::Evict(slice.iter().map(item).collect()))?;
                budget.has_left.notify_all();
            }
            budget
                .items_evicted
                .fetch_add(batch.items.len() as u64, Ordering::Relaxed);
            let now = table.record_bytes();
            if now >= used {
                // Others bring as much; what was read long ago counts less now.
                break;
            }
            used = now;
        }
        Ok(())
    }
}

/// While this is there, what is deleted leaves a tombstone: its value may be on the way into a file.
struct EvictionGuard<'s>(&'s StoreInner);

impl Drop for EvictionGuard<'_> {
    fn drop(&mut self) {
        self.0.applying().is_evicting = false;
    }
}

impl StoreInner {
    fn begin_eviction(&self) -> EvictionGuard<'_> {
        self.applying().is_evicting = true;
        EvictionGuard(self)
    }

    /// Threads for so many bytes of items.
    fn eviction_threads(&self, bytes: u64) -> usize {
        to_usize(bytes / PART_BYTES_MIN).clamp(1, self.shared.threads.eviction.count())
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
    /// was left.
    ///
    /// # Errors
    /// What the operating system answers.
    fn cold_items(&self, bytes: u64, used: u64) -> Result<EvictionBatch> {
        let threads = self.eviction_threads(bytes);
        let pool = &self.shared.threads.eviction;
        // Others may put some beside it.
        let room = to_usize(2 * used.max(ROUND_BYTES_MIN));
        let mapped = MmapOptions::new()
            .len(threads * room)
            .no_reserve_swap()
            .map_anon();
        let mut mapped =
            mapped.map_err(|source| Error::io(self.store_dir.path(), "map memory for", source))?;
        let mut items = Vec::new();
        if let (Some(access_counts), Some(budget)) = (&self.tiers.access_counts, &self.budget) {
            let table = &self.tiers.table;
            let share = (bytes as f64 / used as f64).min(1.0);
            let cold = self.cut(access_counts, share.max(COLD_SHARE));
            let buckets = table.bucket_numbers();
            let turn = buckets.end - buckets.start;
            let stride = (turn / SAMPLED_STRIDES).clamp(1, STRIDE_BUCKETS_MAX);
            let strides = turn.div_ceil(stride);
            let hand = budget.hand.load(Ordering::Relaxed);
            let (passed, damaged) = (AtomicU64::new(0), Mutex::new(None));
            let copy = |mut copier: Copier<'_>| {
                // Bytes, not items: cold ones may be much longer than others.
                let left = Cell::new(bytes / threads as u64);
                while left.get() > 0 {
                    let nth = passed.fetch_add(1, Ordering::Relaxed);
                    if nth >= strides {
                        break;
                    }
                    let from = buckets.start + (hand + nth) % strides * stride;
                    let leaves =
                        |fingerprint| left.get() > 0 && access_counts.is_cold(fingerprint, &cold);
                    table.for_each_within(from..from + stride, leaves, |item| match item {
                        Ok((key, stamp, value)) if left.get() > 0 => {
                            let len = table.record_len(key.len(), value.len());
                            left.set(left.get().saturating_sub(len));
                            copier.push(key, EntryMeta(stamp), value);
                        }
                        Ok(_) => {}
                        Err(error) => *damaged.lock() = Some(error),
                    });
                }
                copier.items
            };
            let rooms = mapped.chunks_mut(room).enumerate();
            let copiers = rooms.map(|(nth, of_thread)| Copier {
                room: of_thread,
                at: nth * room,
                items: Vec::new(),
            });
            items = pool.map(copiers.collect(), copy).concat();
            if let Some(error) = damaged.into_inner() {
                // In a file it would have a checksum that matches.
                tracing::warn!(%error, "damaged items stay in the index");
            }
            let next = (hand + passed.into_inner()) % strides;
            budget.hand.store(next, Ordering::Relaxed);
            access_counts.age();
        }
        let mut batch = EvictionBatch {
            bytes: mapped,
            items,
        };
        pool.install(|| batch.sort());
        Ok(batch)
    }

    /// Writes items into new files, but for those that a file has already.
    fn spill(&self, batch: &EvictionBatch) -> Result<()> {
        let mut need = Need::default();
        let mut bytes = 0;
        for item in &batch.items {
            let table = &self.tiers.table;
            table.needs_record(&mut need, item.key_len, 0, 1);
            bytes += (item.end - item.start) as u64;
        }
        // A file is about as long as what it holds.
        self.hold_to_add(
            &need.without_changes(),
            bytes + bytes / 8 + reserve::ROOM_AFTER_DELETION_BYTES,
        )?;
        self.store_dir
            .reserve()
            .shrink(self.tiers.to_keep_free(&need.without_changes(), 0));
        // What a file holds is durable, so what came before it must be, and all of the groups that it is part of.
        self.shared.sync_logs()?;
        let version = self.tiers.spill.version();
        let is_new = |item: &&EvictedItem| {
            // A file may have been repaired, and have lost it.
            !item.stamp.was_promoted() || !version.may_have(batch.key(item))
        };
        let part = batch.items.len().div_ceil(self.eviction_threads(bytes));
        let parts = batch.items.chunks(part.max(1)).map(|items| {
            // In the order of their keys they are anywhere.
            let ask = |item: &EvictedItem| prefetch::lines(&batch.bytes[item.start..item.end]);
            let items = prefetch::in_turn(items.iter(), PREFETCH_DISTANCE_ITEMS, ask);
            let new = items.filter(is_new);
            new.map(|item| batch.entry(item))
        });
        let pool = &self.shared.threads.eviction;
        self.tiers.spill.add(pool, parts.collect())?;
        // Before an item leaves that is nowhere but in a file of this manifest.
        self.mark(None);
        Ok(())
    }
}
