//! Eviction: while the table is beyond its memory budget, the items that are read least leave it for sorted
//! files, and those that are read there again come up.

#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions};
use parking_lot::{Mutex, MutexGuard};

use crate::hot_cache::access_counts::{AccessCounts, EvictionCut, Histogram};
use crate::lsm::{Entry, Value};
use crate::pool::heap;
use crate::store::Partition;
use crate::store::commit::queue::Work;
use crate::store::files::dir::StoreDir;
use crate::store::files::reserve;
use crate::store::files::reserve::Purpose;
use crate::store::inner::StoreInner;
use crate::store::resident::budget::Budget;
use crate::store::resident::cold_items::{ColdItem, ColdItems, Collector};
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

/// The part of what records may take whose values are copied and written at a time, and its bounds in bytes. Changes get
/// room after each.
const CHUNK_SHARE: u64 = 16;
const CHUNK_BYTES_MIN: u64 = 1 << 20;
const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// Items that are taken out of the table at a time; changes wait meanwhile.
const SLICE_ITEMS: usize = 1024;

/// The longest that a change waits for room.
const STALL_TIME_MAX: Duration = Duration::from_secs(1);

/// Bytes of items that are worth a thread of their own: what it writes files with takes about 1 MiB.
const PART_BYTES_MIN: u64 = 1 << 20;

/// How many bytes of values apart count as one: each thread writes them into a file of its own, and of many files those
/// that are read are rarely open.
const APART_BYTES: u64 = 16;

/// Most buckets that a thread looks through at a time.
const STRIDE_BUCKETS_MAX: u64 = 16;

/// Strides of the table that say what is cold.
const SAMPLED_STRIDES: u64 = 256;

/// The share of the items that the hand passes which leaves, unless it must be more.
const COLD_SHARE: f64 = 0.5;

/// Items on their way out of the table, by the threads that have copied their values.
struct EvictionBatch<'c> {
    cold: &'c ColdItems,
    parts: Vec<EvictionPart>,
}

struct EvictionPart {
    /// See [`ColdItems`].
    values: MmapMut,
    /// The items to be written, and where their values are.
    new: Vec<(usize, Range<usize>)>,
    /// Those that a file has.
    filed: Vec<usize>,
}

impl EvictionBatch<'_> {
    /// Keys and stamps of all.
    fn items(&self) -> impl Iterator<Item = (&[u8], EntryMeta)> {
        let numbers = self.parts.iter().flat_map(|part| {
            let new = part.new.iter().map(|(nth, _)| *nth);
            new.chain(part.filed.iter().copied())
        });
        numbers.map(|nth| {
            let item = &self.cold.items[nth];
            (self.cold.key(item), item.stamp)
        })
    }

    /// What files get of a part.
    fn entries<'b>(&'b self, part: &'b EvictionPart) -> impl Iterator<Item = Entry<'b>> {
        part.new.iter().map(|(nth, value)| {
            let item = &self.cold.items[*nth];
            let value = &part.values[value.clone()];
            Entry {
                key: self.cold.key(item),
                sequence: item.stamp.sequence(),
                value: (!item.stamp.is_tombstone()).then_some(Value::Inline(value)),
            }
        })
    }
}

impl Partition {
    /// Waits while the table is far beyond its budget, for a bounded time, unless there is no way out of
    /// it for items.
    pub fn wait_for_room(self: &Arc<Self>) {
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
        let eviction = self.state.eviction(budget);
        let mut before = budget.stalls_before.lock();
        let stalls = budget.stalls.count();
        let is_pressed = std::mem::replace(&mut *before, stalls) != stalls;
        let kept = self.keep_within(&eviction, is_pressed);
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

    fn keep_within(self: &Arc<Self>, eviction: &Eviction, is_pressed: bool) -> Result<()> {
        let state = &self.state;
        let promotable = state.tiers.take_promotable();
        if !promotable.is_empty()
            && let Err(error) = self.submit(Work::Promote(promotable))
        {
            tracing::warn!(%error, "items that are read again stay below the index");
        }
        let begin = || state.begin_eviction();
        eviction.make_room(is_pressed, begin, |items| self.evict(items))
    }

    pub(super) fn evict(self: &Arc<Self>, items: &[(&[u8], EntryMeta)]) -> Result<()> {
        let item = |(key, stamp): &(&[u8], EntryMeta)| (key.to_vec(), *stamp);
        self.submit(Work::Evict(items.iter().map(item).collect()))?;
        if let Some(budget) = &self.state.budget {
            budget.has_left.notify_all();
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
    /// Lets items leave if records take more than they may, until they take a quarter less, or half if changes have
    /// waited for that. While there is what `begin` gives, deletions leave tombstones. `remove` takes items out of the
    /// table, unless they have changed.
    ///
    /// # Errors
    /// Those of the files, of the log and of `remove`: then items stay.
    pub fn make_room<G>(
        &self,
        is_pressed: bool,
        begin: impl Fn() -> G,
        mut remove: impl FnMut(&[(&[u8], EntryMeta)]) -> Result<()>,
    ) -> Result<()> {
        let limit = self.budget.limit(self.tiers);
        // Each round leaves a run of files, however few leave. Where changes wait for that, more do.
        let least = match is_pressed {
            true => limit / 2,
            false => limit - limit / 4,
        };
        let mut used = self.tiers.table.record_bytes();
        if used <= limit {
            return Ok(());
        }
        while used > least {
            // Else each deletion meanwhile would leave a tombstone for nothing.
            self.hold(0)?;
            let cold = self.cold_items(used - least, used)?;
            if cold.items.is_empty() {
                return Ok(());
            }
            self.evict(&cold, &begin, &mut remove)?;
            let now = self.tiers.table.record_bytes();
            if now >= used {
                // Others bring as much; what was read long ago counts less now.
                break;
            }
            used = now;
        }
        Ok(())
    }

    /// Writes items into files, chunk by chunk, and has `remove` take them out of the table.
    pub(super) fn evict<G>(
        &self,
        cold: &ColdItems,
        begin: impl Fn() -> G,
        mut remove: impl FnMut(&[(&[u8], EntryMeta)]) -> Result<()>,
    ) -> Result<()> {
        let chunk = self.budget.limit(self.tiers) / CHUNK_SHARE;
        let chunk = chunk.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        for chunk in cold.chunks(chunk, &self.tiers.spill.cuts()) {
            let batch = {
                let _guard = begin();
                let batch = self.copy(cold, chunk)?;
                self.spill(&batch)?;
                batch
            };
            // Else what files are written with would stay with each thread, beside a full table.
            heap::release_free();
            let items: Vec<_> = batch.items().collect();
            items.chunks(SLICE_ITEMS).try_for_each(&mut remove)?;
            self.budget
                .items_evicted
                .fetch_add(items.len() as u64, Ordering::Relaxed);
        }
        Ok(())
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
    /// Threads for these items.
    fn threads_for(&self, items: &[ColdItem]) -> usize {
        let apart_min = self.tiers.spill.value_bytes_min() as u64;
        let bytes = |item: &ColdItem| match u64::from(item.value_len) {
            len if len < apart_min => item.bytes(),
            len => u64::from(item.key_len) + len / APART_BYTES,
        };
        self.eviction_threads(items.iter().map(bytes).sum())
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
        let threads = self.eviction_threads(bytes);
        let pool = &self.shared.threads.eviction;
        let most = self.budget.limit(self.tiers) / KEYS_SHARE;
        let room = to_usize(most.clamp(KEY_BYTES_MIN, KEY_BYTES_MAX)) / threads;
        let mut keys = self.map(threads * room)?;
        let table = &self.tiers.table;
        let buckets = table.bucket_numbers();
        let turn = buckets.end - buckets.start;
        let stride = (turn / SAMPLED_STRIDES).clamp(1, STRIDE_BUCKETS_MAX);
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
                        match collector.push(key, EntryMeta(stamp), value_bytes) {
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

    /// The values of some items that are to leave, but for those of damaged ones, and of those that have changed since
    /// they were found.
    ///
    /// # Errors
    /// What the operating system answers.
    fn copy<'c>(&self, cold: &'c ColdItems, chunk: Range<usize>) -> Result<EvictionBatch<'c>> {
        let threads = self.threads_for(&cold.items[chunk.clone()]);
        let part = chunk.len().div_ceil(threads).max(1);
        let parts = chunk.clone().step_by(part);
        let parts = parts.map(|start| start..chunk.end.min(start + part));
        let copied = self
            .shared
            .threads
            .eviction
            .map(parts.collect(), |part| self.copy_part(cold, part));
        let parts = copied.into_iter().collect::<Result<_>>()?;
        Ok(EvictionBatch { cold, parts })
    }

    fn copy_part(&self, cold: &ColdItems, part: Range<usize>) -> Result<EvictionPart> {
        let version = self.tiers.spill.version();
        // A file may have been repaired, and have lost it.
        let is_filed = |nth: &usize| {
            let item = &cold.items[*nth];
            item.stamp.was_promoted() && version.may_have(cold.key(item))
        };
        let (filed, others): (Vec<usize>, Vec<usize>) = part.partition(is_filed);
        let keys: Vec<&[u8]> = others
            .iter()
            .map(|&nth| cold.key(&cold.items[nth]))
            .collect();
        let lens = others.iter().map(|&nth| cold.items[nth].value_len as usize);
        let mut values = self.map(lens.sum())?;
        let (mut at, mut damaged) = (0, None);
        let mut new = Vec::with_capacity(keys.len());
        self.tiers
            .table
            .copy_many(&keys, |found, item| match item {
                Ok((stamp, value)) if EntryMeta(stamp) == cold.items[others[found]].stamp => {
                    let end = at + value.len();
                    values[at..end].copy_from_slice(value);
                    new.push((others[found], at..end));
                    at = end;
                }
                Ok(_) => {}
                Err(error) => damaged = Some(error),
            })?;
        note_damaged(damaged);
        Ok(EvictionPart { values, new, filed })
    }

    /// Writes items into new files, but for those that a file has already.
    fn spill(&self, batch: &EvictionBatch<'_>) -> Result<()> {
        let mut need = Need::default();
        let mut bytes = 0;
        for part in &batch.parts {
            for (nth, value) in &part.new {
                let key_len = batch.cold.items[*nth].key_len as usize;
                self.tiers.table.needs_record(&mut need, key_len, 0, 1);
                bytes += (key_len + value.len()) as u64;
            }
        }
        // A file is about as long as what it holds.
        let files = bytes + bytes / 8 + reserve::ROOM_AFTER_DELETION_BYTES;
        self.tiers.note_leaving(need);
        self.hold(files)?;
        self.store_dir.reserve().release(files);
        let parts = batch.parts.iter().map(|part| batch.entries(part));
        let pool = &self.shared.threads.eviction;
        self.tiers.spill.add(pool, parts.collect())?;
        // Before an item leaves that is nowhere but in a file of this manifest.
        self.tiers.mark(self.store_dir, None);
        Ok(())
    }
}

/// In a file a damaged item would have a checksum that matches.
fn note_damaged(error: Option<Error>) {
    if let Some(error) = error {
        tracing::warn!(%error, "damaged items stay in the index");
    }
}
