//! Threads of the store that have something to do now and then.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Core;
use crate::{Error, Result};

/// How often the length of the log is looked at, and a checkpoint that failed is tried again.
const GLANCE: Duration = Duration::from_millis(100);

/// A thread that is called at intervals. It ends when this is dropped.
pub struct Upkeep {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// Calls a thread before its time.
#[derive(Default)]
pub struct Bell {
    call: Mutex<Call>,
    rung: Condvar,
}

/// What the thread is told.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Call {
    #[default]
    Wait,
    Work,
    Stop,
}

impl Bell {
    /// Calls the thread.
    pub fn ring(&self) {
        let mut call = self.call.lock();
        if *call == Call::Wait {
            *call = Call::Work;
            self.rung.notify_all();
        }
    }

    /// Waits for a time, or for a call; `false` if it is time to stop.
    fn wait(&self, period: Duration) -> bool {
        let mut call = self.call.lock();
        self.rung
            .wait_while_for(&mut call, |call| *call == Call::Wait, period);
        if *call == Call::Work {
            *call = Call::Wait;
        }
        *call != Call::Stop
    }
}

impl Upkeep {
    /// Starts a thread that does `work` every `period` and when the bell rings.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no thread to be had.
    fn start(
        name: &str,
        path: &Path,
        period: Duration,
        bell: Arc<Bell>,
        mut work: impl FnMut() + Send + 'static,
    ) -> Result<Self> {
        let called = Arc::clone(&bell);
        let life = move || {
            while called.wait(period) {
                work();
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(life)
            .map_err(|source| Error::io(path, "start a thread of the store", source))?;
        Ok(Self {
            bell,
            thread: Some(thread),
        })
    }

    /// Starts the thread that syncs the log every `interval`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn of_log(core: Arc<Core>, interval: Duration) -> Result<Self> {
        let path = core.state.directory.path().to_path_buf();
        let bell = Arc::default();
        Self::start("gphash-store-log", &path, interval, bell, move || {
            if let Err(error) = core.state.log.sync() {
                tracing::warn!(%error, "the log is not durable yet");
            }
        })
    }

    /// Starts the thread that takes a checkpoint whenever the log has `bytes`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn of_index(core: Arc<Core>, bytes: u64) -> Result<Self> {
        let path = core.state.directory.path().to_path_buf();
        let bell = Arc::default();
        Self::start("gphash-store-index", &path, GLANCE, bell, move || {
            if core.state.log.bytes() > bytes
                && let Err(error) = core.checkpoint()
            {
                tracing::warn!(%error, "there is no checkpoint yet");
            }
        })
    }

    /// Starts the thread that keeps the table within its budget.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn of_table(core: Arc<Core>, bell: Arc<Bell>) -> Result<Self> {
        let path = core.state.directory.path().to_path_buf();
        Self::start("gphash-store-table", &path, GLANCE, bell, move || {
            if let Err(error) = core.keep_within_budget() {
                tracing::warn!(%error, "the table stays larger than its budget");
            }
        })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        *self.bell.call.lock() = Call::Stop;
        self.bell.rung.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}
