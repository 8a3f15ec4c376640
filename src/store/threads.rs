//! The threads that share the work of a store: one pool for what is done for the queue, one thing at a
//! time, and one for look-ups, which take no lock there.

use std::path::Path;

use rayon::ThreadPool;

use crate::Result;
use crate::threads::pool;

/// From how many requests on nobody waits until they are dropped.
const MANY: usize = 1 << 14;

/// See the [module](self).
#[derive(Debug)]
pub struct Threads {
    /// For what the leader of the queue does.
    pub queue: ThreadPool,
    /// For look-ups whose locks the caller holds.
    pub reads: ThreadPool,
}

impl Threads {
    /// So many threads each, or one for each core if `count` is 0.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no more threads.
    pub fn start(count: usize, store: &Path) -> Result<Self> {
        Ok(Self {
            queue: pool("queue", count, store)?,
            reads: pool("reads", count, store)?,
        })
    }

    /// Does work of the leader of the queue. What takes long enough to be shared is done by the threads
    /// for it alone: all others may be waiting for the leader.
    pub fn lead<T: Send>(&self, takes_long: bool, work: impl FnOnce() -> T + Send) -> T {
        match takes_long {
            true => self.queue.install(work),
            false => work(),
        }
    }

    /// Drops so many requests, or what belongs to them. To free the memory of very many takes about as long as to
    /// carry them out, so another thread does that.
    pub fn discard<T: Send + 'static>(&self, requests: usize, them: T) {
        match requests {
            0..MANY => drop(them),
            _ => self.reads.spawn(move || drop(them)),
        }
    }
}
