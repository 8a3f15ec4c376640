//! Work in parts, on the threads of the caller's pool or [crew], or of rayon's own if he is in none.
//!
//! All of it goes through one function without type parameters: what rayon made of each closure by itself was
//! a quarter of this crate's machine code.

use std::cmp;
use std::error::Error;
use std::ops::Range;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

use super::affinity::Unpinned;
use super::{cores, crew, is_in_foreign_pool};

/// Parts for each thread: one that has other things to do leaves some to the others.
const PARTS_PER_THREAD: usize = 4;

/// Most threads that wait side by side.
const WAITING_THREADS: usize = 64;

/// A part of the work.
enum Part<T, R> {
    Waiting(T),
    Taken,
    Done(R),
}

/// What `work` makes of each part, in their order. Each part should be worth some microseconds.
pub fn map<T: Send, R: Send>(
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    map_by(run, parts, work)
}

/// As [`map`], on threads that are started for it, as many as there are cores: a thread does nothing else until it is
/// done with a part, which may take locks and wait. Where there are parts for all of them, a part is done by its thread
/// alone. Each should be worth some milliseconds. In a pool of others the caller does all of them: those threads would share
/// work with the pool, whose own may all wait for them.
pub fn map_on_threads<T: Send, R: Send>(
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    map_by(run_on_threads, parts, work)
}

/// As [`map_on_threads`], for parts that wait more than they work: there may be more threads than cores.
pub fn map_waiting<T: Send, R: Send>(
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    map_by(
        |parts, part| run_on(WAITING_THREADS, parts, part),
        parts,
        work,
    )
}

/// [`map`], by what has each of so many parts done.
fn map_by<T: Send, R: Send>(
    run: fn(usize, &(dyn Fn(usize) + Sync)),
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let waiting = |part| Mutex::new(Part::Waiting(part));
    let parts: Vec<Mutex<Part<T, R>>> = parts.into_iter().map(waiting).collect();
    run(parts.len(), &|nth| {
        let part = std::mem::replace(&mut *parts[nth].lock(), Part::Taken);
        let Part::Waiting(part) = part else {
            unreachable!("each part is done once");
        };
        let done = work(part);
        *parts[nth].lock() = Part::Done(done);
    });
    let done = |part: Mutex<Part<T, R>>| match part.into_inner() {
        Part::Done(done) => done,
        _ => unreachable!("all parts are done"),
    };
    parts.into_iter().map(done).collect()
}

/// As [`map`], on the caller's thread alone if the work is no longer than `least`: waking others would take
/// more time than they save.
pub fn map_if_long<T: Send, R: Send>(
    (len, least): (u64, u64),
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    match len <= least {
        true => parts.into_iter().map(work).collect(),
        false => map(parts, work),
    }
}

/// As [`map`], on the caller's thread alone if there are no threads for his work.
pub fn map_if_shared<T: Send, R: Send>(
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    match is_shared() {
        true => map(parts, work),
        false => parts.into_iter().map(work).collect(),
    }
}

/// Does `work`, all parts of which the caller's thread does: the others have enough to do.
pub fn alone<T>(work: impl FnOnce() -> T) -> T {
    crew::alone(work)
}

/// Sorts items, which several threads do if they are at least so many.
pub fn sort_unstable_by<T: Send>(
    items: &mut [T],
    least: usize,
    compare: impl Fn(&T, &T) -> cmp::Ordering + Sync,
) {
    match items.len() < least || crew::threads().is_some() || !has_threads() {
        true => items.sort_unstable_by(compare),
        false => items.par_sort_unstable_by(compare),
    }
}

/// As [`sort_unstable_by`], by keys of the items.
pub fn sort_unstable_by_key<T: Send, K: Ord>(
    items: &mut [T],
    least: usize,
    key: impl Fn(&T) -> K + Sync,
) {
    sort_unstable_by(items, least, |a, b| key(a).cmp(&key(b)));
}

/// What `make` makes of each position below `len`. A part has at least `least` of them.
pub fn collect<R: Send>(len: usize, least: usize, make: impl Fn(usize) -> R + Sync) -> Vec<R> {
    if len <= least {
        return (0..len).map(make).collect();
    }
    let of_part = |part: Range<usize>| part.map(&make).collect::<Vec<R>>();
    let mut made = Vec::with_capacity(len);
    made.extend(map(parts(len, least), of_part).into_iter().flatten());
    made
}

/// Whether `holds` holds of each position below `len`. A part has at least `least` of them.
pub fn all(len: usize, least: usize, holds: impl Fn(usize) -> bool + Sync) -> bool {
    if len <= least {
        return (0..len).all(holds);
    }
    !map(parts(len, least), |mut part| part.all(&holds)).contains(&false)
}

/// The first position below `len` of which `holds` holds. A part has at least `least` of them.
pub fn find_first(len: usize, least: usize, holds: impl Fn(usize) -> bool + Sync) -> Option<usize> {
    if len <= least {
        return (0..len).find(|&nth| holds(nth));
    }
    let first = |mut part: Range<usize>| part.find(|&nth| holds(nth));
    map(parts(len, least), first).into_iter().flatten().next()
}

/// The positions below `len` in parts of at least `least`, some for each thread if they are many.
pub fn parts(len: usize, least: usize) -> impl Iterator<Item = Range<usize>> {
    let most = PARTS_PER_THREAD * threads();
    let part = len.div_ceil(most).max(least).max(1);
    (0..len)
        .step_by(part)
        .map(move |start| start..len.min(start + part))
}

/// Threads among which the caller's work is shared.
pub fn threads() -> usize {
    crew::threads().unwrap_or_else(|| match has_threads() {
        true => rayon::current_num_threads(),
        false => 1,
    })
}

/// The process was forked, and has no thread of rayon's own pool that its parent had.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Notes that this process has just been forked. It does nothing else than to write to memory.
pub fn note_fork() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Whether rayon has threads for the caller: those of the pool that he is in, or its own. It panics if it is asked for these,
/// and the system gives it none.
pub(super) fn has_threads() -> bool {
    static HAS_OWN: LazyLock<bool> = LazyLock::new(|| {
        let unpinned = Unpinned::of_caller();
        let builder = ThreadPoolBuilder::new().start_handler(move |_| unpinned.restore());
        let Err(error) = builder.build_global() else {
            return true;
        };
        match error.source() {
            // They have been asked for before.
            None => catch_unwind(rayon::current_num_threads).is_ok(),
            Some(error) => {
                tracing::warn!(%error, "work is not shared: there are no threads to be had");
                false
            }
        }
    });
    rayon::current_thread_index().is_some() || !IS_CHILD.load(Ordering::Relaxed) && *HAS_OWN
}

/// Whether the caller's work is shared with other threads: those of his crew, or of the pool that he is in.
pub fn is_shared() -> bool {
    match crew::threads() {
        Some(threads) => threads > 1,
        None => rayon::current_thread_index().is_some(),
    }
}

/// Has each of so many parts done.
fn run(parts: usize, part: &(dyn Fn(usize) + Sync)) {
    match parts {
        0..2 => (0..parts).for_each(part),
        _ if crew::run(parts, part) => {}
        _ if !has_threads() => (0..parts).for_each(part),
        _ => (0..parts).into_par_iter().with_max_len(1).for_each(part),
    }
}

/// Has each of so many parts done by threads of their own, one of which is the caller's.
fn run_on_threads(parts: usize, part: &(dyn Fn(usize) + Sync)) {
    run_on(cores(), parts, part);
}

/// The same, by so many threads at most.
fn run_on(threads: usize, parts: usize, part: &(dyn Fn(usize) + Sync)) {
    if is_in_foreign_pool() {
        return (0..parts).for_each(part);
    }
    let cores = cores();
    let next = AtomicUsize::new(0);
    let each = || {
        while let nth = next.fetch_add(1, Ordering::Relaxed)
            && nth < parts
        {
            match parts < cores {
                true => part(nth),
                false => alone(|| part(nth)),
            }
        }
    };
    let unpinned = Unpinned::of_caller();
    let work = || {
        unpinned.restore();
        each();
    };
    thread::scope(|scope| {
        let builder = || thread::Builder::new().name("gphash-parts".into());
        let start = |_| builder().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads.min(parts)).map_while(start).collect();
        each();
        for other in others {
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

#[cfg(test)]
mod tests;
