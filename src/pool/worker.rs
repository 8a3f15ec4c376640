//! Threads that are there while there is work for them: what rests has none.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::affinity::{Affinity, Unpinned};

/// How long a thread waits for more work before it ends. To start one takes far less.
pub const REST: Duration = Duration::from_secs(1);

/// One round of work: gives how long to rest before the next one, or `None` if there is nothing to do
/// until the next call.
type Round = Box<dyn FnMut() -> Option<Duration> + Send>;

/// What is done by a thread of its own whenever it is [called](Self::call). Its clones are the same one.
#[derive(Clone)]
pub struct Worker(Arc<Shared>);

struct Shared {
    name: &'static str,
    /// Where its thread runs, and which number that has there.
    runs_on: (Affinity, usize),
    /// There has been a call since the last round began.
    called: AtomicBool,
    /// There has been one that can wait until the thread looks up.
    called_later: AtomicBool,
    state: Mutex<WorkerState>,
    changed: Condvar,
}

#[derive(Default)]
struct WorkerState {
    /// Until the work is given, and while the thread has it, there is none.
    round: Option<Round>,
    is_stopped: bool,
    thread: Option<JoinHandle<()>>,
    /// The thread has not decided to end.
    is_there: bool,
}

impl Worker {
    /// One that has nothing to do yet.
    pub fn new(name: &'static str) -> Self {
        Self::on(name, Affinity::default(), 0)
    }

    /// As [`new`](Self::new), with a thread of this number on these cores.
    pub fn on(name: &'static str, affinity: Affinity, number: usize) -> Self {
        Self(Arc::new(Shared {
            name,
            runs_on: (affinity, number),
            called: AtomicBool::new(false),
            called_later: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Says what to do in each round. It must not own this, unless it is [stopped](Self::stop).
    pub fn set_work(&self, round: impl FnMut() -> Option<Duration> + Send + 'static) {
        self.0.state.lock().round = Some(Box::new(round));
    }

    /// Has a round done soon. Costs next to nothing if one was asked for already.
    ///
    /// # Errors
    /// What the operating system answers if there is no thread to be had: the next call tries again.
    pub fn call(&self) -> io::Result<()> {
        let shared = &self.0;
        self.ask(&shared.called, || {
            shared.changed.notify_all();
        })
    }

    /// As [`call`](Self::call), within a second: nobody is woken for it.
    ///
    /// # Errors
    /// As there.
    pub fn call_later(&self) -> io::Result<()> {
        self.ask(&self.0.called_later, || ())
    }

    fn ask(&self, called: &AtomicBool, wake: impl Fn()) -> io::Result<()> {
        let shared = &self.0;
        // In one order with the thread that takes note of it: what was done before is there for that round.
        if called.load(Ordering::SeqCst) || called.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut state = shared.state.lock();
        if state.is_there || state.is_stopped {
            wake();
            return Ok(());
        }
        // The last thread has done its work.
        drop(state.thread.take());
        let Some(round) = state.round.take() else {
            called.store(false, Ordering::Relaxed);
            return Ok(());
        };
        let given = Arc::new(Mutex::new(Some(round)));
        let (taken, life) = (Arc::clone(&given), Arc::clone(shared));
        let unpinned = Unpinned::of_caller();
        let started = thread::Builder::new()
            .name(shared.name.into())
            .spawn(move || {
                unpinned.restore();
                if let Some(round) = taken.lock().take() {
                    life.live(round);
                }
            });
        match started {
            Ok(thread) => {
                state.thread = Some(thread);
                state.is_there = true;
                Ok(())
            }
            Err(error) => {
                state.round = given.lock().take();
                called.store(false, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// As [`call`](Self::call), for work that may wait for the next call.
    pub fn call_if_possible(&self) {
        if let Err(error) = self.call() {
            tracing::warn!(%error, name = self.0.name, "there is no thread to be had");
        }
    }

    /// Ends the thread after the round that it is in, and lets go of its work. Later calls do nothing.
    pub fn stop(&self) {
        let mut state = self.0.state.lock();
        state.is_stopped = true;
        self.0.changed.notify_all();
        let thread = state.thread.take();
        let round = state.round.take();
        drop(state);
        drop(round);
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // Panics are caught.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn live(&self, mut round: Round) {
        let (affinity, number) = &self.runs_on;
        affinity.pin(*number);
        loop {
            self.called.swap(false, Ordering::SeqCst);
            self.called_later.swap(false, Ordering::SeqCst);
            let rest = catch_unwind(AssertUnwindSafe(&mut round)).unwrap_or_else(|panic| {
                let words = words(&*panic);
                tracing::error!(words, name = self.name, "a thread has panicked");
                None
            });
            let until = Instant::now() + rest.unwrap_or(REST);
            let mut state = self.state.lock();
            while !self.called.load(Ordering::Acquire) && !state.is_stopped {
                if self.changed.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
            let is_called = |called: &AtomicBool| called.load(Ordering::Acquire);
            let has_calls = is_called(&self.called) || is_called(&self.called_later);
            let is_idle = rest.is_none() && !has_calls;
            if state.is_stopped || is_idle {
                return self.end(state, round);
            }
        }
    }

    fn end(&self, mut state: MutexGuard<'_, WorkerState>, round: Round) {
        state.is_there = false;
        if !state.is_stopped {
            state.round = Some(round);
            return;
        }
        drop(state);
        drop(round);
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_tuple("Worker").field(&self.0.name).finish()
    }
}

/// What a panic said.
pub fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .map(|words| (*words).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "without words".into())
}

#[cfg(all(test, not(loom)))]
mod tests;
