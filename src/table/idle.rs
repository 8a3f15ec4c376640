//! Compaction of a table that rests, so that nobody has to ask for it.
//!
//! Batches that may have left free room say so. Once the table has rested for a while, what it could give back is
//! counted, and if that is much, it is compacted, with rests in between.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Table;
use super::recovery::Progress;
use crate::Domain;
use crate::Result;
use crate::pm::Medium;

/// So many operations a second are rest, too.
const REST_OPS_PER_SECOND: u32 = 10_000;

/// How often a table that may have room to give back is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Room is given back if it is more than these: one byte for so many of records in use, so many bytes an item, and
/// so many in all, of which each of several tables that are one index has a share, which is not below the least.
const KEPT_RECORDS_SHARE: u64 = 8;
const KEPT_ITEM_BYTES: u64 = 24;
const KEPT_BYTES: u64 = 32 << 20;
const KEPT_BYTES_MIN: u64 = 2 << 20;

/// No rest is longer: whoever wants to end the compaction waits for it.
const REST_MAX: Duration = Duration::from_millis(100);

/// When a table is compacted by itself.
pub(crate) struct IdleCompaction {
    /// How long it must have rested; never if none.
    after: Option<Duration>,
    /// So many bytes are kept whatever is in use.
    kept_bytes: u64,
    /// Items whose records change by so many bytes in all are a reason to check, as a power of two.
    hint_bytes_log: u32,
    /// There may be room to give back.
    is_likely: AtomicBool,
    /// That is news for whoever checks.
    is_news: AtomicBool,
    is_ending: AtomicBool,
    /// Callers who wait for the end of a compaction.
    waiting: AtomicU32,
    /// What has moved is free for good with the next checkpoint, and can go back then.
    releases_later: AtomicBool,
}

impl Default for IdleCompaction {
    fn default() -> Self {
        Self::new(None, 1)
    }
}

impl IdleCompaction {
    /// That of one of so many tables that are one index.
    pub(super) fn new(after: Option<Duration>, tables: u64) -> Self {
        let kept_bytes = (KEPT_BYTES / tables).max(KEPT_BYTES_MIN);
        Self {
            after,
            kept_bytes,
            hint_bytes_log: (kept_bytes / 2).ilog2(),
            is_likely: AtomicBool::default(),
            is_news: AtomicBool::default(),
            is_ending: AtomicBool::default(),
            waiting: AtomicU32::default(),
            releases_later: AtomicBool::default(),
        }
    }

    /// Says that there may be room to give back; `true` if that is news.
    pub(super) fn hint(&self) -> bool {
        let is_news = self.after.is_some()
            && !self.is_likely.load(Ordering::Relaxed)
            && !self.is_likely.swap(true, Ordering::Relaxed);
        if is_news {
            self.is_news.store(true, Ordering::Relaxed);
        }
        is_news
    }

    /// Whether there is a reason to [check](Table::compact_if_idle) that was not known yet.
    pub(crate) fn take_news(&self) -> bool {
        self.is_news.load(Ordering::Relaxed) && self.is_news.swap(false, Ordering::Relaxed)
    }

    /// Ends a compaction under way with its slice, and all later ones.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Has a compaction under way end, for as long as a caller waits for that.
    #[cfg(feature = "cuda")]
    pub(crate) fn hurry<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = wait();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// Notes that items have come to `now` bytes of records from `before`.
    #[inline]
    pub(super) fn note_bytes(&self, before: i64, now: i64) -> bool {
        now < before && (before ^ now) >> self.hint_bytes_log != 0 && self.hint()
    }
}

/// What is known of a table's rest.
pub(crate) struct IdleWatch {
    operations: u64,
    checked: Instant,
    rests_since: Instant,
    /// Bytes that could not be given back the last time.
    kept: u64,
}

impl Default for IdleWatch {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            operations: 0,
            checked: now,
            rests_since: now,
            kept: 0,
        }
    }
}

impl IdleWatch {
    /// The rest begins now; gives when to check again.
    pub(crate) fn begin_anew(&mut self) -> Duration {
        self.rests_since = Instant::now();
        CHECK_INTERVAL
    }
}

impl<M: Medium> Table<M> {
    /// A file that is opened may have room to give back. Says whether to check.
    pub(super) fn hint_at_opening(&self) -> bool {
        let idle = &self.maintenance.idle;
        self.medium.len() > idle.kept_bytes && idle.hint()
    }

    /// Whether it is to be found out if the table rests.
    pub(crate) fn watches_rest(&self) -> bool {
        self.maintenance.idle.is_likely.load(Ordering::Relaxed)
    }

    /// Has the table compacted by `compact` if it has rested for long enough, and that gives back much; gives how long
    /// to rest until it is checked again. `compact` says whether it is done, or has ended early: then it is tried again,
    /// else not for what it could not give back.
    pub(crate) fn compact_if_idle(
        &self,
        watch: &mut IdleWatch,
        compact: impl FnOnce() -> Result<bool>,
    ) -> Option<Duration> {
        if !self.watches_rest() {
            return None;
        }
        let idle = &self.maintenance.idle;
        if let Some(wait) = self.until_rest(watch)? {
            return Some(wait);
        }
        idle.is_likely.store(false, Ordering::Relaxed);
        let (used, spare) = self.usage();
        watch.kept = watch.kept.min(spare);
        let least = used / KEPT_RECORDS_SHARE + self.len() * KEPT_ITEM_BYTES + idle.kept_bytes;
        if spare <= least.max(watch.kept + watch.kept / 8) {
            return None;
        }
        match compact() {
            Ok(true) => watch.kept = self.usage().1,
            Ok(false) => {
                idle.hint();
                return Some(watch.begin_anew());
            }
            Err(error) => tracing::warn!(%error, "what has moved is free with the next sync"),
        }
        tracing::debug!(
            kept = watch.kept,
            len = self.medium.len(),
            "compacted at rest"
        );
        None
    }

    /// How long to wait until this is asked again, if the table has not rested for long enough yet. `None` if nothing is done
    /// at rest.
    pub(crate) fn until_rest(&self, watch: &mut IdleWatch) -> Option<Option<Duration>> {
        let after = self.maintenance.idle.after?;
        let now = Instant::now();
        let (elapsed, interval) = (now - watch.checked, CHECK_INTERVAL.min(after));
        // Too short a time says nothing about how many operations there are.
        if elapsed < interval / 2 {
            return Some(Some(interval));
        }
        watch.checked = now;
        if self.is_busy(&mut watch.operations, elapsed) {
            watch.rests_since = now;
        }
        Some((now - watch.rests_since < after).then_some(interval))
    }

    /// Whether there were more operations than `before` in the time since than a table at rest has.
    fn is_busy(&self, before: &mut u64, elapsed: Duration) -> bool {
        let operations = self.counts.operations();
        let done = operations.wrapping_sub(std::mem::replace(before, operations));
        Duration::from_secs(done) > elapsed * REST_OPS_PER_SECOND
    }

    /// Bytes of records in use, and bytes of the file that nobody needs, as far as they were not given back yet.
    fn usage(&self) -> (u64, u64) {
        while self.read_free_list() {}
        self.pass_epochs();
        let (_, held) = self.free_extent_bytes();
        // Of fixed size each item has one record, whatever an engine keeps.
        let items = (self.shape.classes() == 1).then(|| self.len());
        let (used, spare) = (self.arena).usage(self.part_len(), self.epochs.current(), items);
        (used, held + self.spare_level_bytes() + spare)
    }

    /// A compaction that rests after each slice for as long as that has taken. It ends early when batches come, when a
    /// caller waits, or when the table is to be closed.
    pub(crate) fn paced(&self) -> impl Fn(Progress) -> bool + Sync {
        let since = Mutex::new((Instant::now(), self.counts.operations()));
        move |_| {
            let mut since = since.lock();
            let (began, before) = &mut *since;
            let took = began.elapsed();
            std::thread::sleep(took.min(REST_MAX));
            let is_busy = self.is_busy(before, began.elapsed());
            *began = Instant::now();
            let idle = &self.maintenance.idle;
            let is_awaited = idle.waiting.load(Ordering::Relaxed) > 0;
            !is_busy && !is_awaited && !idle.is_ending.load(Ordering::Relaxed)
        }
    }

    /// Gives what a compaction has freed to the file system, if that waited for the checkpoint that has just been
    /// made.
    pub(super) fn release_later(&self) {
        let idle = &self.maintenance.idle;
        if idle.releases_later.load(Ordering::Relaxed)
            && idle.releases_later.swap(false, Ordering::Relaxed)
        {
            self.release_free();
        }
    }

    /// Gives back what the table does not need, beside batches; in `Checkpointed` with a checkpoint, unless
    /// batches have changed what the last one has made durable. `false` if it has ended early.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn compact_paced(&self) -> Result<bool> {
        let is_done = self.compact(&self.paced());
        if self.medium.domain() == Domain::Checkpointed {
            let is_durable = self.sync_unchanged()?;
            let idle = &self.maintenance.idle;
            idle.releases_later.store(!is_durable, Ordering::Relaxed);
        }
        self.release_free();
        Ok(is_done)
    }
}
