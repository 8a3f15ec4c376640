//! The threads that share the work of a store.
//!
//! A thread of a pool does other tasks of its pool while it waits for the parts of its own. If it held
//! a lock of the store meanwhile, or led the queue, and such a task wanted that lock, it would wait for
//! itself. So the store has two pools of its own: one for what is done for the queue, one thing at a
//! time, and one for look-ups, which take no lock there. Who comes on a thread of another pool is
//! served on a thread outside of that.

use std::io;
use std::path::Path;
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Error, Result};

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
        let pool = |kind| {
            let name = move |nth| format!("gphash-{kind}-{nth}");
            let pool = ThreadPoolBuilder::new()
                .num_threads(count)
                .thread_name(name);
            let failed = |error| Error::io(store, "start the threads of", io::Error::other(error));
            pool.build().map_err(failed)
        };
        Ok(Self {
            queue: pool("queue")?,
            reads: pool("reads")?,
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

/// Does work that waits for others of the store, on a thread that does nothing else until it is done.
pub fn undisturbed<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if rayon::current_thread_index().is_none() {
        return work();
    }
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
