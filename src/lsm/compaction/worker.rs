//! The threads that compact.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::lsm::levels::Levels;
use crate::pool::worker::Worker;

/// How often it is looked for readers who held files that are obsolete.
const READERS_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often it is looked whether a full disk has room again.
const FULL_DISK_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// See the [module](self). They end when this is dropped, what they are at being left undone.
pub struct Workers {
    levels: Arc<Levels>,
}

impl Workers {
    /// Lets the threads of the levels compact, whenever there is something to compact.
    pub fn start(levels: Arc<Levels>) -> Self {
        for worker in levels.workers() {
            let levels = Arc::downgrade(&levels);
            worker.set_work(move || levels.upgrade().as_deref().and_then(compact_due));
        }
        // What was due when the store was left still is.
        levels.wake();
        Self { levels }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.levels.plan().is_stopping = true;
        self.levels.changed.notify_all();
        let _lift = self.levels.options().rate.lift();
        self.levels.workers().iter().for_each(Worker::stop);
    }
}

/// Compacts until nothing is due; gives when to look again.
pub fn compact_due(levels: &Levels) -> Option<Duration> {
    loop {
        levels.cache().sweep();
        let mut plan = levels.plan();
        if plan.is_stopping {
            return None;
        }
        if let Some(rest) = plan.rest() {
            return Some(rest);
        }
        if !levels.may_compact() {
            return Some(FULL_DISK_POLL_INTERVAL);
        }
        let Some(job) = plan.pick(
            &levels.version(),
            levels.options().level_bytes,
            &HashSet::new(),
        ) else {
            let poll = levels.cache().has_obsolete();
            let poll = poll.then_some(READERS_POLL_INTERVAL);
            return poll.into_iter().chain(plan.retry()).min();
        };
        drop(plan);
        if let Err(error) = levels.finish(&job) {
            tracing::warn!(%error, "a compaction failed; it is tried again later");
        }
    }
}
