//! Eviction: while the table is beyond its memory budget, the items that are read least leave it for sorted
//! files, and those that are read there again come up.

#[cfg(all(test, not(loom)))]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions};

use crate::lsm::{Entry, Value};
use crate::store::Partition;
use crate::store::commit::queue::Work;
use crate::store::files::reserve;
use crate::store::inner::StoreInner;
use crate::store::resident::access_counts::Histogram;
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::EntryMeta;
use crate::table::room::Need;
use crate::width::to_usize;
use crate::{Error, Result};

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

/// Items on their way out of the table, one behind the other.
struct EvictionBatch {
    /// Mapped, so that the system has its memory back afterwards: the allocator would keep it between small blocks
    /// that stay. Pages that are not used take none.
    bytes: MmapMut,
    /// Bytes of the items.
    len: usize,
    /// Where each begins, the length of its key, the end of its value, its stamp.
    items: Vec<(usize, usize, usize, EntryMeta)>,
}

impl EvictionBatch {
    /// An empty one with room for so many bytes.
    fn with_room(bytes: u64) -> io::Result<Self> {
        Ok(Self {
            bytes: MmapOptions::new()
                .len(to_usize(bytes))
                .no_reserve_swap()
                .map_anon()?,
            len: 0,
            items: Vec::new(),
        })
    }

    /// Takes an item, unless there is no room for it.
    fn push(&mut self, key: &[u8], stamp: EntryMeta, value: &[u8]) {
        let start = self.len;
        let end = start + key.len() + value.len();
        if let Some(room) = self.bytes.get_mut(start..end) {
            let (of_key, of_value) = room.split_at_mut(key.len());
            of_key.copy_from_slice(key);
            of_value.copy_from_slice(value);
            self.len = end;
            self.items.push((start, key.len(), end, stamp));
        }
    }

    fn key(&self, &(start, len, ..): &(usize, usize, usize, EntryMeta)) -> &[u8] {
        &self.bytes[start..start + len]
    }

    /// Brings them into order; of an item that was met twice the newer one stays.
    fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by(|a, b| {
            let newer = b.3.0.cmp(&a.3.0);
            self.key(a).cmp(self.key(b)).then(newer)
        });
        items.dedup_by(|b, a| self.key(a) == self.key(b));
        self.items = items;
    }

    fn entries(&self) -> impl Iterator<Item = (&[u8], EntryMeta, &[u8])> {
        self.items.iter().map(|item| {
            let &(start, len, end, stamp) = item;
            (self.key(item), stamp, &self.bytes[start + len..end])
        })
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
        // A round scans all items, however few leave. Where changes wait for that, more do.
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
            for slice in batch.items.chunks(SLICE_ITEMS) {
                let item = |item| (batch.key(item).to_vec(), item.3);
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

    /// The coldest items of the table, about so many bytes of the `used` ones.
    ///
    /// # Errors
    /// What the operating system answers.
    fn cold_items(&self, bytes: u64, used: u64) -> Result<EvictionBatch> {
        // Others may put some beside it.
        let mut batch = EvictionBatch::with_room(2 * used.max(ROUND_BYTES_MIN))
            .map_err(|source| Error::io(self.store_dir.path(), "map memory for", source))?;
        let Some(access_counts) = &self.tiers.access_counts else {
            return Ok(batch);
        };
        let mut histogram = Histogram::default();
        let enter = |fingerprint| {
            access_counts.enter(fingerprint, &mut histogram);
            false
        };
        self.tiers.table.for_each_of(enter, |_| {});
        let cold = access_counts.coldest(&histogram, bytes as f64 / used as f64);
        let mut damaged = None;
        self.tiers.table.for_each_of(
            |fingerprint| access_counts.is_cold(fingerprint, &cold),
            |item| match item {
                Ok((key, stamp, value)) => batch.push(key, EntryMeta(stamp), value),
                Err(error) => damaged = Some(error),
            },
        );
        if let Some(error) = damaged {
            // In a file it would have a checksum that matches.
            tracing::warn!(%error, "damaged items stay in the index");
        }
        access_counts.age();
        batch.sort();
        Ok(batch)
    }

    /// Writes items into new files, but for those that a file has already.
    fn spill(&self, batch: &EvictionBatch) -> Result<()> {
        let mut need = Need::default();
        for (key, ..) in batch.entries() {
            self.tiers.table.needs_record(&mut need, key.len(), 0, 1);
        }
        // A file is about as long as what it holds.
        let bytes = batch.len as u64;
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
        let is_new = |(key, stamp, _): &(&[u8], EntryMeta, &[u8])| {
            // A file may have been repaired, and have lost it.
            !stamp.was_promoted() || !version.may_have(key)
        };
        let entries = batch.entries().filter(is_new);
        let entries = entries.map(|(key, stamp, value)| Entry {
            key,
            sequence: stamp.sequence(),
            value: (!stamp.is_tombstone()).then_some(Value::Inline(value)),
        });
        self.tiers.spill.add(entries)?;
        // Before an item leaves that is nowhere but in a file of this manifest.
        self.mark(None);
        Ok(())
    }
}
