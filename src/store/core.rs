//! What serves an open store: its state, the queue of its changes, and its threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::pool::run_off_pool;
use crate::store::commit::queue::{Answer, Job, Leader, Queue, Work};
use crate::store::commit::requests::Batch;
use crate::store::commit::user_code;
use crate::store::files::dir::is_full;
use crate::store::inner::StoreInner;
use crate::store::lifecycle::background::Background;
use crate::store::metrics::TimedPath;
use crate::store::options::{Durability, StoreOptions};
use crate::table::compact::{Between, reporting};
use crate::{Error, Progress, Result};

/// The store and the queue to it.
pub struct Core {
    pub(in crate::store) state: StoreInner,
    pub(in crate::store) queue: Queue,
    pub(in crate::store) background: Background,
    /// Callers whose batches wait or are being executed.
    pub(in crate::store) callers: AtomicUsize,
    /// Held by who takes a checkpoint.
    checkpointing: Mutex<()>,
    /// Checkpoints that were taken.
    checkpoints: AtomicU64,
}

/// How often deletions are tried again on a full disk, each time after a checkpoint.
const DELETE_RETRIES: u32 = 32;

impl Leader for Arc<Core> {
    fn commit_group(&self, group: &mut [Job]) -> Vec<Answer> {
        let answers = self.state.commit_group(group);
        self.background.wake(&self.state);
        answers
    }

    fn broke(&self, words: String) -> Error {
        self.state.broke(words)
    }

    fn share(&self) {
        let core = Arc::clone(self);
        let work = move || core.queue.run_long_groups(&core);
        self.state.threads.queue.spawn(work);
    }

    fn discard(&self, work: Work) {
        let requests = match work.joined() {
            Some(Batch::Owned(requests)) => requests.len(),
            // Columns are few blocks of memory, and their caller may want them back at once.
            Some(Batch::Columns(_)) | None => 0,
        };
        self.state.threads.discard(requests, work);
    }
}

impl Core {
    /// Serves an open store: starts its threads, and gives it a queue.
    pub fn start(state: StoreInner, options: &StoreOptions) -> Arc<Self> {
        let interval = match options.durability {
            Durability::Interval(interval) if !state.durably => Some(interval),
            _ => None,
        };
        let core = Arc::new(Self {
            state,
            queue: Queue::default(),
            background: Background::new(interval, options.checkpoint_bytes),
            callers: AtomicUsize::new(0),
            checkpointing: Mutex::new(()),
            checkpoints: AtomicU64::new(0),
        });
        core.background.attend(&core);
        let served = Arc::downgrade(&core);
        core.queue.server().set_work(move || {
            let core = served.upgrade()?;
            core.queue.serve(&core);
            None
        });
        core
    }

    /// Has something done, and waits for the answer.
    pub fn submit(self: &Arc<Self>, work: Work) -> Answer {
        user_code::may_change()?;
        run_off_pool(|| {
            let (work, answer) = self.submit_with_room(work);
            self.discard(work);
            answer
        })
    }

    /// Has something done; again, on a full disk, once a checkpoint has made room.
    fn submit_with_room(self: &Arc<Self>, mut work: Work) -> (Work, Answer) {
        // What it makes may go to others who delete.
        let mut left = match work.only_deletes() {
            true => DELETE_RETRIES,
            false => 1,
        };
        loop {
            let seen = self.checkpoints.load(Ordering::Relaxed);
            let (back, answer) = self.queue.submit(work, self);
            if !is_full(&answer) || !back.can_be_repeated() || left == 0 {
                return (back, answer);
            }
            left -= 1;
            let stalls = &self.state.metrics.full_disk_stalls;
            if !stalls.time(|| self.make_room(seen)) {
                return (back, answer);
            }
            work = back;
        }
    }

    /// Gives a full disk back what a checkpoint frees, unless one has since there were `seen` of them; `false`
    /// if there is nothing.
    fn make_room(self: &Arc<Self>, seen: u64) -> bool {
        // One that has freed the log already may not have been counted yet.
        let _alone = self.checkpointing.lock();
        if self.checkpoints.load(Ordering::Relaxed) != seen {
            return true;
        }
        // What adds nothing may go on without a checkpoint if the disk has no room for one.
        self.state.log.bytes() > 0
            && (self.take_checkpoint().is_ok() || self.state.is_unsaved.load(Ordering::Relaxed))
    }

    /// Ends all threads, waits for what is left to do, and closes the files. Nobody calls it any more.
    pub fn end(self: Arc<Self>) -> Result<()> {
        self.state.tiers.table.end_compaction();
        self.background.stop(&self.state);
        self.queue.end(&self);
        // A thread that has led until now may be about to let go of it.
        let mut shared = self;
        loop {
            match Arc::try_unwrap(shared) {
                Ok(core) => return core.state.close(),
                Err(others) => shared = others,
            }
            std::thread::yield_now();
        }
    }

    fn take_checkpoint(self: &Arc<Self>) -> Result<()> {
        self.state.metrics.time(TimedPath::Checkpoint, || {
            let (_, begun) = self.queue.submit(Work::Checkpoint, self);
            begun?;
            self.state.complete_checkpoint()
        })?;
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives room of the index back.
    pub fn compact(self: &Arc<Self>, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
        user_code::may_change()?;
        run_off_pool(|| self.compact_here(&reporting(progress)).map(|_| ()))
    }

    /// As [`compact`](Self::compact), for a thread of no pool. `false` if `between` has ended it early.
    pub(in crate::store) fn compact_here(self: &Arc<Self>, between: Between<'_>) -> Result<bool> {
        // The index is closed as after changes.
        self.state.has_changed.store(true, Ordering::Relaxed);
        let is_done = self.state.tiers.table.compact(between);
        {
            let _alone = self.checkpointing.lock();
            self.take_checkpoint()?;
        }
        self.state.tiers.table.release_free();
        Ok(is_done)
    }

    /// Makes all that was answered durable in the index.
    pub fn checkpoint(self: &Arc<Self>) -> Result<()> {
        user_code::may_change()?;
        run_off_pool(|| {
            let _alone = self.checkpointing.lock();
            self.take_checkpoint()
        })
    }
}
