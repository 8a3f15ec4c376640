//! Threads that share work for whoever holds locks meanwhile.
//!
//! A thread of a pool does other tasks of its pool while it waits for the parts of its own. If it
//! held a lock meanwhile, and such a task wanted that lock, it would wait for itself. So such work
//! is shared among the threads of a pool of its own. A caller on a thread of another pool is served
//! on a thread outside of that.

pub mod affinity;
pub mod async_order;
pub mod backoff;
pub mod bloom_filter;
pub mod changed;
pub mod clock;
pub mod crew;
pub mod demands;
pub mod dirty_map;
pub mod forgiven;
pub mod hash_filter;
pub mod heap;
pub mod key_writes;
pub mod limits;
pub mod old_versions;
pub mod parallel;
pub mod partition;
pub mod permits;
pub mod prefetch;
pub mod rate_limiter;
pub mod rates;
pub mod snapshots;
pub mod split;
pub mod threads;
pub mod threshold;
pub mod worker;
pub mod write_back;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use affinity::{Affinity, Unpinned};
use worker::{REST, Worker};

/// Threads that are there from the first work on until there was none for a while.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    /// Lets the threads go.
    rest: Worker,
}

#[derive(Debug)]
struct Shared {
    kind: &'static str,
    count: usize,
    affinity: Affinity,
    pool: Mutex<Option<Arc<ThreadPool>>>,
    /// There was work since it was looked for last.
    was_used: AtomicBool,
}

impl Pool {
    /// A pool of `count` threads, or of one for each core if `count` is 0.
    pub fn new(kind: &'static str, count: usize) -> Self {
        Self::on(kind, count, Affinity::default())
    }

    /// As [`new`](Self::new), each thread on one of these cores.
    pub fn on(kind: &'static str, count: usize, affinity: Affinity) -> Self {
        let shared = Arc::new(Shared {
            kind,
            count,
            affinity,
            pool: Mutex::new(None),
            was_used: AtomicBool::new(false),
        });
        let rest = Worker::new("gphash-rest");
        let resting = Arc::clone(&shared);
        rest.set_work(move || {
            let mut pool = resting.pool.lock();
            let is_used = pool
                .as_ref()
                .is_some_and(|pool| Arc::strong_count(pool) > 1);
            if resting.was_used.swap(false, Ordering::Relaxed) || is_used {
                return Some(REST);
            }
            drop(pool.take());
            None
        });
        Self { shared, rest }
    }

    /// The threads, if the system gives any.
    fn threads(&self) -> Option<Arc<ThreadPool>> {
        let mut pool = self.shared.pool.lock();
        self.shared.was_used.store(true, Ordering::Relaxed);
        if pool.is_none() {
            let Shared { kind, count, .. } = *self.shared;
            let affinity = self.shared.affinity.clone();
            let unpinned = Unpinned::of_caller();
            let start = move |nth| {
                IS_OURS.set(true);
                unpinned.restore();
                affinity.pin(nth);
            };
            let builder = ThreadPoolBuilder::new()
                .num_threads(count)
                .start_handler(start)
                .thread_name(move |nth| format!("gphash-{kind}-{nth}"));
            match builder.build() {
                Ok(built) => {
                    *pool = Some(Arc::new(built));
                    self.rest.call_if_possible();
                }
                Err(error) => tracing::warn!(%error, kind, "work is done without its own threads"),
            }
        }
        pool.clone()
    }

    /// Has `shared` do work with the threads, or `alone` without: if there are none to be had, or none to wait for them.
    fn with_threads<W: Send, T: Send>(
        &self,
        work: W,
        shared: impl FnOnce(&ThreadPool, W) -> T + Send,
        alone: impl FnOnce(W) -> T + Send,
    ) -> T {
        let threads = self.threads();
        let run = || match threads.filter(|_| !is_in_foreign_pool()) {
            Some(threads) => shared(&threads, work),
            None => alone(work),
        };
        // The caller's thread would do tasks of others meanwhile, which may call us again.
        match is_in_foreign_pool() {
            true => run_off_pool(run),
            false => run(),
        }
    }

    /// Has work done by the threads, and waits for it. Without any, the caller does it.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.with_threads(work, |threads, work| threads.install(work), |work| work())
    }

    /// How many threads there are when there is work.
    pub fn count(&self) -> usize {
        match self.shared.count {
            0 => cores(),
            count => count,
        }
    }

    /// What `work` makes of each part, in their order. The caller waits and does nothing else, and no thread does
    /// another caller's work while it is at a part. Without any threads, the caller does it.
    pub fn map<T: Send, R: Send>(&self, parts: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let work = &work;
        let shared = |threads: &ThreadPool, parts: Vec<T>| {
            let mut results: Vec<Option<R>> = parts.iter().map(|_| None).collect();
            threads.in_place_scope(|scope| {
                for (part, result) in parts.into_iter().zip(&mut results) {
                    scope.spawn(move |_| *result = Some(work(part)));
                }
            });
            let done = |result: Option<R>| result.expect("each part was done");
            results.into_iter().map(done).collect()
        };
        self.with_threads(parts, shared, |parts| parts.into_iter().map(work).collect())
    }

    /// Has work done by one of the threads. Without any, the caller does it.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        match self.threads() {
            Some(threads) => threads.spawn(work),
            None => work(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.rest.stop();
    }
}

/// How many threads run at a time. The system is asked once: it reads a dozen files for an answer.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    *CORES
}

/// A small number that stays with the thread: where it looks first for what others use, too.
#[inline]
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

thread_local! {
    /// This is a thread of a [`Pool`].
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller is a thread of a pool of others, as in a parallel loop of a program. Whatever it shares with that
/// pool may have it call us again.
pub fn is_in_foreign_pool() -> bool {
    rayon::current_thread_index().is_some() && !IS_OURS.get()
}

/// Does two works side by side; one after the other in a pool of others, in a part that is done alone, or without
/// threads.
pub fn join<A: Send, B: Send>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    match is_in_foreign_pool() || crew::is_alone() || !parallel::has_threads() {
        true => (first(), second()),
        false => rayon::join(first, second),
    }
}

/// Does work that waits for others, on a thread that does nothing else until it is done. If there is no thread to be had, the
/// caller does all of it alone, and so waits for no pool.
pub fn run_off_pool<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if rayon::current_thread_index().is_none() {
        return work();
    }
    let given = Mutex::new(Some(work));
    let take = || given.lock().take().expect("it is done once");
    let unpinned = Unpinned::of_caller();
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, || {
            unpinned.restore();
            take()()
        });
        match started {
            Ok(worker) => worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => {
                tracing::warn!(%error, "work is not shared: there is no thread to be had");
                parallel::alone(take())
            }
        }
    })
}
