//! What serves a partition of an open store: its state, the queue of its changes, and its threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::metrics::calls::TimedPath;
use crate::pool::{is_in_foreign_pool, parallel, run_off_pool};
use crate::store::commit::queue::{Answer, Job, Leader, Queue, Work};
use crate::store::commit::user_code;
use crate::store::files::dir::is_full;
use crate::store::inner::StoreInner;
use crate::store::lifecycle::background::Background;
use crate::store::options::{Durability, StoreOptions, WhenFull};
use crate::table::compact::{Between, reporting};
use crate::{Error, Progress, Result};

/// A partition and the queue to it.
pub struct Partition {
    pub(in crate::store) state: StoreInner,
    pub(in crate::store) queue: CachePadded<Queue>,
    pub(in crate::store) background: Background,
    /// Only of the first one: the others, whose groups its log decides.
    pub(in crate::store) others: Vec<Weak<Partition>>,
    /// Callers whose batches wait or are being executed.
    pub(in crate::store) callers: CachePadded<AtomicUsize>,
    /// Held by who takes a checkpoint.
    checkpointing: Mutex<()>,
}

/// How often deletions are tried again on a full disk, each time after a checkpoint.
const DELETE_RETRIES: u32 = 32;

/// More pages than a slice of a compaction of the index stores to, in changes: of 256 buckets, and of a record for each of
/// their slots.
const CHANGES_PER_SLICE: usize = 1024;

/// How often a deletion is tried again while all logs are empty.
const EMPTY_LOG_RETRIES: u32 = 3;

/// How often something is tried again on a full disk.
pub fn retries(work: &Work) -> u32 {
    // The room that is made may go to others who delete.
    match work.only_deletes() {
        true => DELETE_RETRIES,
        false => 1,
    }
}

/// What others are about to let go of: a thread that has led until now may still have it.
pub fn last_of<T>(mut shared: Arc<T>) -> T {
    loop {
        match Arc::try_unwrap(shared) {
            Ok(last) => return last,
            Err(others) => shared = others,
        }
        std::thread::yield_now();
    }
}

impl Leader for Arc<Partition> {
    fn commit_group(&self, group: &mut [Job]) -> Vec<Answer> {
        let answers = self.state.commit_group(group);
        self.background.wake(&self.state);
        answers
    }

    fn broke(&self, words: String) -> Error {
        let error = self.state.broke(words.clone());
        // What the others change could not be kept up: no log is given up while one takes no checkpoint.
        if let Some(all) = self.state.shared.all.get().and_then(Weak::upgrade) {
            all.all_broke(&words);
        }
        error
    }

    fn share(&self) {
        let partition = Arc::clone(self);
        let work = move || partition.queue.run_long_groups(&partition);
        self.state.threads.queue.spawn(work);
    }

    fn waits_for_disk(&self) -> bool {
        self.state.durably
    }

    fn when_full(&self) -> WhenFull {
        self.state.shared.when_full
    }

    fn discard(&self, work: Work) {
        work.discard(&self.state.threads);
    }

    fn serve_others(&self) {
        self.serve_if_nobody_does();
    }

    fn lacks_server(&self) -> &AtomicBool {
        &self.state.shared.lacks_server
    }
}

impl Partition {
    /// Serves a partition: starts its threads, and gives it a queue. The first one must know the `others`.
    pub fn start(state: StoreInner, options: &StoreOptions, others: &[Arc<Self>]) -> Arc<Self> {
        let interval = match options.durability {
            Durability::Interval(interval) if !state.durably => Some(interval),
            _ => None,
        };
        let number = state.number().into();
        let partition = Arc::new(Self {
            state,
            queue: Queue::new(true, (options, number)).into(),
            others: others.iter().map(Arc::downgrade).collect(),
            background: Background::new(interval, options),
            callers: AtomicUsize::new(0).into(),
            checkpointing: Mutex::new(()),
        });
        partition.background.attend(&partition);
        Queue::attend(&partition, |partition| &partition.queue);
        partition
    }

    /// Has something done, and waits for the answer.
    pub fn submit(self: &Arc<Self>, work: Work) -> Answer {
        user_code::may_change()?;
        let is_long = work.is_long();
        let submit = || {
            let (work, answer) = self.submit_with_room(work);
            self.discard(work);
            answer
        };
        match is_in_foreign_pool() && !is_long {
            // A thread of its own for each request would take longer than the request.
            true => parallel::alone(submit),
            false => run_off_pool(submit),
        }
    }

    /// Has something done; again, on a full disk, once a checkpoint has made room.
    fn submit_with_room(self: &Arc<Self>, mut work: Work) -> (Work, Answer) {
        let mut left = retries(&work);
        let only_deletes = work.only_deletes();
        loop {
            let seen = self.state.shared.checkpoints();
            let (back, answer) = self.queue.submit(work, self);
            if !is_full(&answer) || !back.can_be_repeated() || left == 0 {
                return (back, answer);
            }
            left -= 1;
            let stalls = &self.state.shared.metrics.full_disk_stalls;
            let is_early = left + EMPTY_LOG_RETRIES >= DELETE_RETRIES;
            if !stalls.time(|| self.make_room(seen, only_deletes, is_early)) {
                return (back, answer);
            }
            work = back;
        }
    }

    /// Gives a full disk back what a checkpoint of all partitions frees, unless one has since `seen` was the
    /// [count](crate::store::shared::Shared::checkpoints) of them; `false` if there is nothing. `is_early` looks beyond logs.
    fn make_room(self: &Arc<Self>, seen: (u64, u64), only_deletes: bool, is_early: bool) -> bool {
        let shared = &self.state.shared;
        // What this one lacks may be in the logs of others.
        let first = shared.first.get().and_then(Weak::upgrade);
        let first = first.as_ref().unwrap_or(self);
        // One that has freed the log already may not have been counted yet.
        let _alone = first.checkpointing.lock();
        let taken = shared.checkpoints();
        // What a deletion lacks may be in any log. For all else one checkpoint is enough, whichever.
        if taken.0 != seen.0 || !only_deletes && taken != seen {
            return true;
        }
        let is_taken = || {
            first.take_checkpoint().is_ok()
                || !Arc::ptr_eq(first, self) && self.checkpoint_here().is_ok()
        };
        // Also without a log a deletion may have lacked what somebody had for a moment, or what the journal takes.
        match is_early || shared.has_records() {
            // What adds nothing may go on without a checkpoint if the disk has no room for one.
            true => is_taken() || self.state.is_unsaved(),
            false => taken != seen,
        }
    }

    /// As [`Partitions::serve_if_nobody_does`], on a thread of this one.
    pub(in crate::store) fn serve_if_nobody_does(&self) {
        let shared = &self.state.shared;
        if shared.lacks_server.load(Ordering::Relaxed)
            && let Some(all) = shared.all.get().and_then(Weak::upgrade)
        {
            all.serve_if_nobody_does();
        }
    }

    /// Ends the threads beside its callers. Nobody calls it any more.
    pub fn stop(&self) {
        self.state.tiers.table.end_compaction();
        self.background.stop(&self.state);
    }

    /// What it has served, once all partitions have [stopped](Self::stop). Waits for what is left to do.
    pub fn into_state(self: Arc<Self>) -> StoreInner {
        self.queue.end(&self);
        last_of(self).state
    }

    fn take_checkpoint(self: &Arc<Self>) -> Result<()> {
        self.state.shared.metrics.time(TimedPath::Checkpoint, || {
            let (_, begun) = self.queue.submit(Work::Checkpoint, self);
            begun?;
            // What its log decides must be in the indexes of the others before that is gone. Those that can take one
            // free their logs.
            let others: Vec<_> = self.others.iter().filter_map(Weak::upgrade).collect();
            let take = |other: &Arc<Self>| {
                let _alone = other.checkpointing.lock();
                other.take_checkpoint()
            };
            let mut all_taken = Ok(());
            for taken in self.state.store_dir.each_partition(&others, take) {
                if is_full(&taken) {
                    self.state.is_unsaved.store(true, Ordering::Relaxed);
                }
                all_taken = all_taken.and(taken);
            }
            all_taken?;
            self.state.shared.sync_groups()?;
            self.state.complete_checkpoint()
        })?;
        let shared = &self.state.shared;
        shared.checkpoints.fetch_add(1, Ordering::Relaxed);
        if self.state.number() == 0 {
            shared.full_checkpoints.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives room of the index, of the log and of files back.
    pub fn compact(self: &Arc<Self>, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
        user_code::may_change()?;
        run_off_pool(|| {
            // None of them needs the ones before: on a full disk some make room.
            let hiding = self.evict_hiding();
            let index = self.compact_here(&reporting(progress));
            // Whoever asks for it may have repaired them.
            self.state.tiers.spill.try_damaged();
            let files = self.compact_files(&reporting(progress));
            hiding.and(index).and(files).map(|_| ())
        })
    }

    /// As [`compact`](Self::compact), for a thread of no pool. `false` if `between` has ended it early.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) if the disk has no room for the journal of all that would move: some has moved.
    pub(in crate::store) fn compact_here(self: &Arc<Self>, between: Between<'_>) -> Result<bool> {
        // The index is closed as after changes.
        self.state.has_changed.store(true, Ordering::Relaxed);
        // Of the next slice, too, a checkpoint must have room for the journal.
        let hold = || self.state.hold_to_remove(CHANGES_PER_SLICE);
        if is_full(&hold()) {
            self.checkpoint_here()?;
            self.state.tiers.table.release_free();
            hold()?;
        }
        let refused = Mutex::new(None);
        let has_room = |progress: Progress| {
            let held = match progress.phase {
                "compact" => hold(),
                _ => Ok(()),
            };
            between(progress) && held.map_err(|error| *refused.lock() = Some(error)).is_ok()
        };
        let is_done = self.state.tiers.table.compact(&has_room);
        self.checkpoint_here()?;
        self.state.tiers.table.release_free();
        if let Some(budget) = &self.state.budget {
            budget.note_taken(&self.state.tiers);
        }
        refused.into_inner().map_or(Ok(is_done), Err)
    }

    /// As [`checkpoint`](Self::checkpoint), for a thread of no pool.
    pub fn checkpoint_here(self: &Arc<Self>) -> Result<()> {
        let _alone = self.checkpointing.lock();
        self.take_checkpoint()
    }

    /// Makes all that was answered durable in the index.
    pub fn checkpoint(self: &Arc<Self>) -> Result<()> {
        user_code::may_change()?;
        run_off_pool(|| self.checkpoint_here())
    }
}
