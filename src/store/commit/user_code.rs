//! Code of the user that threads of a store run: callbacks and merge operators. They may panic, and they
//! may call the store whose thread they hold up. What would wait for this thread is refused.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::pool::worker::words;
use crate::{Error, Result};

/// What the current thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    OwnCode,
    Callback,
    MergeOperator,
}

thread_local! {
    static RUNNING: Cell<Running> = const { Cell::new(Running::OwnCode) };
}

fn run<T>(running: Running, code: impl FnOnce() -> T) -> Result<T, String> {
    let before = RUNNING.replace(running);
    let done = caught(code);
    RUNNING.set(before);
    done
}

/// Runs code, and gives the words of its panic.
fn caught<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let words = words(&*panic);
        // It is the user's, too, and may panic when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        words
    })
}

/// Runs a callback. A panic of it is told, and nobody else's business.
pub fn call_back(callback: impl FnOnce()) {
    if let Err(words) = run(Running::Callback, callback) {
        tracing::error!(words, "a callback panicked");
    }
}

/// Runs a callback on the thread of its caller, which goes on to be what it is.
pub fn refuse(callback: impl FnOnce()) {
    if let Err(words) = caught(callback) {
        tracing::error!(words, "a callback panicked");
    }
}

/// Runs a merge operator.
///
/// # Errors
/// The words of its panic.
pub fn merge<T>(operator: impl FnOnce() -> T) -> Result<T, String> {
    run(Running::MergeOperator, operator)
}

/// Whether the thread that makes room for asynchronous requests would wait for this one.
pub fn is_callback() -> bool {
    RUNNING.get() == Running::Callback
}

/// Whether the thread may run callbacks. In one of them it calls the others afterwards.
pub fn may_call_back() -> bool {
    RUNNING.get() == Running::OwnCode
}

/// Refuses what waits for the leader of a queue if he waits for the caller.
///
/// # Errors
/// [`Error::Reentrant`].
pub fn may_change() -> Result<()> {
    match RUNNING.get() {
        Running::OwnCode | Running::Callback => Ok(()),
        Running::MergeOperator => Err(Error::Reentrant {
            caller: "a merge operator",
            action: "change a store",
            advice: "let it read, and make changes outside of it",
        }),
    }
}

/// Refuses what waits for all threads of a store on one of them.
///
/// # Errors
/// [`Error::Reentrant`].
pub fn may_close() -> Result<()> {
    let caller = match RUNNING.get() {
        Running::OwnCode => return Ok(()),
        Running::Callback => "a callback",
        Running::MergeOperator => "a merge operator",
    };
    Err(Error::Reentrant {
        caller,
        action: "wait until the store is closed",
        advice: "a thread of its own closes it, and logs what fails",
    })
}
