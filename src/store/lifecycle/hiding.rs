//! Items of the index that hide those of files, which then take room for nothing: how they leave, and when they do so by
//! themselves.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::background::wants_checkpoint;
use super::eviction::Eviction;
use crate::Result;
use crate::hot_cache::cold_items::ColdItems;
use crate::lsm::{LevelStats, LsmVersion};
use crate::pool::demands::Demands;
use crate::pool::rate_limiter::{Lift, RateLimiter};
use crate::pool::worker::Worker;
use crate::store::Partition;
use crate::store::inner::StoreInner;
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::{EntryMeta, TieredItems};
use crate::table::idle::IdleWatch;
use crate::table::recovery::Progress;

/// What is hidden is estimated anew after one change for so many items of files, and so many at least.
const CHANGES_SHARE: u64 = 16;
const CHANGES_MIN: u64 = 1 << 12;

/// It is removed if it is more than one byte for so many of files, and so many in all, of which each partition has a
/// share.
const KEPT_SHARE: u64 = 8;
const KEPT_BYTES: u64 = 16 << 20;

/// Hidden items that are looked up for an estimate, at most.
const SAMPLES: usize = 256;

/// Buckets that are gone through at a time: none of their records is reused meanwhile.
const BUCKETS: usize = 1024;

/// The budget by which items leave that hide others, in a store without one.
const UNBOUND_BUDGET: u64 = 256 << 20;

/// When the files of a partition are compacted by themselves.
pub struct IdleFiles {
    kept_bytes: u64,
    /// The sequence number from which on an estimate is due.
    due: AtomicU64,
    /// Whoever makes it knows.
    is_known: AtomicBool,
    /// What hides others has left the index, and not all compactions that it is worth were made.
    has_begun: AtomicBool,
    compaction: Mutex<FileCompaction>,
}

/// What the thread of the index does with files.
enum FileCompaction {
    None,
    /// It compacts them.
    Running,
    /// It does, and is wanted for other work.
    Hurried(#[expect(dead_code, reason = "while it is there, nobody waits")] Lift),
}

/// Notes that no files are compacted any more, also if that has panicked.
struct Ends<'i>(&'i IdleFiles);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        *self.0.compaction.lock() = FileCompaction::None;
    }
}

impl IdleFiles {
    /// Those of one of so many partitions. A store that is opened may have what hides others.
    pub fn new(partitions: u64) -> Self {
        Self {
            kept_bytes: KEPT_BYTES / partitions,
            due: AtomicU64::new(0),
            is_known: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            compaction: Mutex::new(FileCompaction::None),
        }
    }

    /// Has a compaction that waits for its rate end soon, because the thread has other work that cannot wait: it goes on in
    /// the next rest.
    pub fn hurry(&self, rate: &Arc<RateLimiter>) {
        if !rate.has_bound() {
            return;
        }
        let mut compaction = self.compaction.lock();
        if matches!(*compaction, FileCompaction::Running) {
            *compaction = FileCompaction::Hurried(rate.lift());
        }
    }

    fn is_hurried(&self) -> bool {
        matches!(*self.compaction.lock(), FileCompaction::Hurried(_))
    }

    /// Whether there may be much that is hidden, which nobody knows yet; `next` is the sequence number of the next change.
    pub fn take_news(&self, state: &StoreInner, next: u64) -> bool {
        if next < self.due.load(Ordering::Relaxed) || self.is_known.load(Ordering::Relaxed) {
            return false;
        }
        if state.tiers.spill.version_if_any().is_none() {
            self.put_off(0, next);
            return false;
        }
        !self.is_known.swap(true, Ordering::Relaxed)
    }

    /// Nothing is due while so many items of files have few changes from the `next` one on.
    fn put_off(&self, items: u64, next: u64) {
        let due = next + (items / CHANGES_SHARE).max(CHANGES_MIN);
        self.due.store(due, Ordering::Relaxed);
    }
}

impl Partition {
    /// Lets all items leave that hide others of files, so that compaction can remove both.
    ///
    /// # Errors
    /// As [`keep_within_budget`](Self::keep_within_budget).
    pub fn evict_hiding(self: &Arc<Self>) -> Result<()> {
        self.evict_hiding_while(|| true).map(|_| ())
    }

    /// As [`evict_hiding`](Self::evict_hiding), as long as it `goes_on`; else `false`.
    pub(super) fn evict_hiding_while(self: &Arc<Self>, goes_on: impl Fn() -> bool) -> Result<bool> {
        let state = &self.state;
        if state.tiers.spill.version_if_any().is_none() {
            return Ok(true);
        }
        let unbound = OnceCell::new();
        let budget = budget_of(state, &unbound);
        let eviction = state.eviction(budget);
        let is_ended = Cell::new(false);
        let begin = || {
            is_ended.set(!goes_on());
            (!is_ended.get()).then(|| state.begin_eviction())
        };
        // Else what is changed again and again would be found each time.
        let next = state.log.next_sequence();
        loop {
            // One lets items leave at a time.
            let _alone = budget.stalls_before.lock();
            // As many as there is memory for. Damaged ones are among them, and stay.
            let hiding = eviction.hiding_items(next)?;
            let left = eviction.evict(hiding, begin, |leaving| self.evict(leaving))?;
            if left == 0 || is_ended.get() {
                return Ok(!is_ended.get());
            }
        }
    }

    /// Has hidden items removed if they take much, once the store rests; gives when to check again. What `pace` gives
    /// says before each eviction and after each compaction whether to go on.
    pub fn compact_files_if_idle<P: Fn(Progress) -> bool>(
        self: &Arc<Self>,
        watch: &mut IdleWatch,
        pace: impl Fn() -> P,
    ) -> Option<Duration> {
        let (idle, state) = (&self.background.idle_files, &self.state);
        if !idle.is_known.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(wait) = state.tiers.table.until_rest(watch)? {
            return Some(wait);
        }
        idle.put_off(
            state.tiers.spill.version().entries(),
            state.log.next_sequence(),
        );
        idle.is_known.store(false, Ordering::Relaxed);
        // It takes room, which a full disk has not.
        if state.store_dir.is_tight() {
            return None;
        }
        match self.compact_files_if_worth_while(pace) {
            Ok(true) => None,
            Ok(false) => {
                idle.is_known.store(true, Ordering::Relaxed);
                Some(watch.begin_anew())
            }
            Err(error) => {
                tracing::warn!(%error, "what is hidden in files stays there for now");
                None
            }
        }
    }

    /// About how many bytes of files the items of the index hide, and its tombstones take.
    fn hidden_bytes(&self) -> Result<u64> {
        let TieredItems { table, spill, .. } = &self.state.tiers;
        let version = spill.version();
        let (mut own, mut count, mut step) = (0, 0, 1);
        let mut samples: Vec<Vec<u8>> = Vec::new();
        let mut visit = |item: Result<(&[u8], u64, u64)>| {
            // Whoever reads a damaged record is told.
            let Ok((key, stamp, _)) = item else { return };
            if !hides(&version, key, EntryMeta(stamp)) {
                return;
            }
            if EntryMeta(stamp).is_tombstone() {
                own += table.record_len(key.len(), 0);
            }
            if count % step == 0 {
                samples.push(key.to_vec());
            }
            count += 1;
            if samples.len() == SAMPLES {
                samples = samples.drain(..).step_by(2).collect();
                step *= 2;
            }
        };
        let all = table.bucket_numbers();
        for from in all.clone().step_by(BUCKETS) {
            let buckets = from..all.end.min(from + BUCKETS as u64);
            table.for_each_key_within(buckets, |_| true, &mut visit);
        }
        let mut bytes = 0;
        for key in &samples {
            match version.find(key) {
                Ok(found) => {
                    bytes += key.len() as u64 + found.and_then(|(_, len)| len).unwrap_or(0)
                }
                Err(error) if error.is_refusal() => return Err(error),
                // A compaction goes around what is damaged.
                Err(_) => {}
            }
        }
        Ok(own + count * bytes / (samples.len() as u64).max(1))
    }

    /// Whether what is hidden takes so much that it should go.
    fn hides_much(&self) -> Result<bool> {
        let stats = self.state.tiers.spill.stats();
        let sum = |of: fn(&LevelStats) -> u64| stats.levels.iter().map(of).sum::<u64>();
        let (sorted, entries) = (sum(|level| level.bytes), sum(|level| level.entries));
        let each = (sorted + stats.live_value_bytes) / entries.max(1);
        // What is on level 0 may hide anything below.
        let newest = stats.levels.first().map_or(0, |level| level.bytes);
        let newest = if newest < sorted { newest } else { 0 };
        let hidden = self.hidden_bytes()? + sum(|level| level.tombstones) * each + newest;
        let all = sorted + stats.value_bytes;
        tracing::debug!(hidden, all, "bytes below the index");
        Ok(hidden > all / KEPT_SHARE + self.background.idle_files.kept_bytes)
    }

    /// `false` if it was ended early.
    fn compact_files_if_worth_while<P: Fn(Progress) -> bool>(
        self: &Arc<Self>,
        pace: impl Fn() -> P,
    ) -> Result<bool> {
        let idle = &self.background.idle_files;
        let has_begun = &idle.has_begun;
        if !has_begun.load(Ordering::Relaxed) {
            if !self.hides_much()? {
                return Ok(true);
            }
            let told = Progress {
                phase: "compact files",
                done: 0,
                total: 0,
            };
            // A new pace each time: that items leave is no work of others.
            if !self.evict_hiding_while(|| pace()(told))? {
                return Ok(false);
            }
            has_begun.store(true, Ordering::Relaxed);
        }
        *idle.compaction.lock() = FileCompaction::Running;
        let _ends = Ends(idle);
        // Nobody could hurry it before.
        self.state.forget_unseen();
        if wants_checkpoint(self) {
            return Ok(false);
        }
        let pace = pace();
        let is_done = self.compact_files(&|progress| pace(progress) && !idle.is_hurried());
        // What has failed is estimated anew before it is tried again.
        has_begun.store(matches!(is_done, Ok(false)), Ordering::Relaxed);
        is_done
    }

    /// Compacts what hides others in files, then makes a checkpoint, after which the reserve needs less. `false` if `between`
    /// has ended it early.
    ///
    /// # Errors
    /// The first one of the two. None of them needs the other: on a full disk either may make room.
    pub fn compact_files(self: &Arc<Self>, between: &dyn Fn(Progress) -> bool) -> Result<bool> {
        let mut is_done = true;
        let mut told = |done, total| {
            is_done = between(Progress {
                phase: "compact files",
                done,
                total,
            });
            is_done
        };
        let files = self.state.tiers.spill.compact_all(&mut told);
        let last = self.checkpoint_here();
        self.state.store_dir.retire_old_segments(0);
        files.and(last).map(|()| is_done)
    }
}

impl Eviction<'_> {
    /// Tombstones, and items of whose keys files may have others, but for those that are the same in a file, of requests
    /// before the `next` one. As many as there is memory for.
    ///
    /// # Errors
    /// As [`cold_items`](Self::cold_items).
    fn hiding_items(&self, next: u64) -> Result<ColdItems> {
        let version = self.tiers.spill.version();
        let is_due =
            |key: &[u8], stamp: EntryMeta| stamp.sequence() < next && hides(&version, key, stamp);
        self.collect(u64::MAX, |_| true, is_due)
    }
}

/// Where filters have no room in memory, what the table hides is little beside what the files have.
fn hides(version: &LsmVersion, key: &[u8], stamp: EntryMeta) -> bool {
    let may_hide = || version.may_have_unread(key).unwrap_or(false);
    stamp.is_tombstone() || !stamp.was_promoted() && may_hide()
}

/// The budget of a store, or the one by which items leave a store that has none.
fn budget_of<'b>(state: &'b StoreInner, unbound: &'b OnceCell<Budget>) -> &'b Budget {
    let new = || {
        let demands = Arc::new(Demands::new(1, UNBOUND_BUDGET));
        Budget::new(demands, 0, Worker::new("gphash-store-table"))
    };
    state
        .budget
        .as_ref()
        .unwrap_or_else(|| unbound.get_or_init(new))
}

#[cfg(all(test, not(loom)))]
mod tests;
