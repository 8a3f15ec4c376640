//! Threads that share work for whoever holds locks meanwhile.
//!
//! A thread of a pool does other tasks of its pool while it waits for the parts of its own. If it held
//! a lock meanwhile, and such a task wanted that lock, it would wait for itself. So such work is shared
//! among the threads of a pool of its own, and who comes on a thread of another pool is served on a
//! thread outside of that.

use std::io;
use std::path::Path;
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Error, Result};

/// A pool of `count` threads for the file or store at `path`, or of one for each core if `count` is 0.
///
/// # Errors
/// [`Error::Io`] if the system gives no more threads.
pub fn pool(kind: &'static str, count: usize, path: &Path) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(count)
        .thread_name(move |nth| format!("gphash-{kind}-{nth}"));
    let failed = |error| Error::io(path, "start the threads of", io::Error::other(error));
    pool.build().map_err(failed)
}

/// Does work that waits for others, on a thread that does nothing else until it is done.
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
