//! The threads that share the work of a store. One pool executes what the queue has, one group at a
//! time. Another one is for lookups, which take no lock there.

use super::affinity::Affinity;
use super::{Pool, run_off_pool};

/// From how many requests on several threads execute them: others wait for the batch.
pub const PARALLEL_REQUESTS_MIN: usize = 384;

/// Requests or changes that a thread looks through at least: to ask another one takes as long as some
/// thousands.
pub const REQUESTS_PER_THREAD_MIN: usize = 1 << 12;

/// From how many requests on nobody waits until they are dropped.
const DROPPED_BY_CALLER_MIN: usize = 1 << 14;

/// See the [module](self).
#[derive(Debug)]
pub struct Threads {
    /// For what the leader of the queue does.
    pub queue: Pool,
    /// For lookups.
    pub reads: Pool,
}

impl Threads {
    /// So many threads each, on these cores; if `count` is 0, one for each of them, or of those of the machine.
    pub fn new(count: usize, affinity: &Affinity) -> Self {
        let count = match count {
            0 => affinity.cores().len(),
            count => count,
        };
        Self {
            queue: Pool::on("queue", count, affinity.clone()),
            reads: Pool::on("reads", count, affinity.clone()),
        }
    }

    /// Does work of the leader of the queue. What takes long enough to be shared is done by the threads
    /// for it alone: all others may be waiting for the leader.
    pub fn run_for_leader<T: Send>(&self, takes_long: bool, work: impl FnOnce() -> T + Send) -> T {
        match takes_long {
            true => self.queue.install(work),
            false => work(),
        }
    }

    /// Does what a caller has to do for so many requests before they queue, or afterwards. Threads for lookups share
    /// it if they are many, and those of a pool that the caller is in never do: they may wait for him. What is done
    /// for few is in one part.
    pub fn run_for_caller<T: Send>(&self, requests: usize, work: impl FnOnce() -> T + Send) -> T {
        match requests {
            0..=REQUESTS_PER_THREAD_MIN => work(),
            _ => run_off_pool(|| self.reads.install(work)),
        }
    }

    /// Drops so many requests, or what belongs to them. To free the memory of very many takes about as long as to
    /// execute them, so another thread does that.
    pub fn discard<T: Send + 'static>(&self, requests: usize, them: T) {
        match requests {
            0..DROPPED_BY_CALLER_MIN => drop(them),
            _ => self.reads.spawn(move || drop(them)),
        }
    }
}
