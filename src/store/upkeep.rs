//! The thread that syncs the log at its intervals, and takes a checkpoint when it is long.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Core;
use super::queue::Work;
use crate::{Error, Result};

/// How often the length of the log is looked at, and a checkpoint that failed is tried again.
const GLANCE: Duration = Duration::from_millis(100);

/// See the [module](self). It ends when this is dropped.
pub struct Upkeep {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// Starts the thread. It syncs the log every `interval`, if there is one, and takes checkpoints
    /// after `checkpoint_bytes`.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no thread to be had.
    pub fn start(
        core: Arc<Core>,
        interval: Option<Duration>,
        checkpoint_bytes: u64,
    ) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let period = interval.map_or(GLANCE, |interval| interval.min(GLANCE));
        let path = core.state.directory.path().to_path_buf();
        let life = move || {
            let mut waited = Duration::ZERO;
            while !wait(&stopped, period) {
                waited += period;
                if interval.is_some_and(|interval| waited >= interval) {
                    waited = Duration::ZERO;
                    if let Err(error) = core.state.log.sync() {
                        tracing::warn!(%error, "the log is not durable yet");
                    }
                }
                if core.state.log.bytes() > checkpoint_bytes
                    && let Err(error) = core.submit(Work::Checkpoint)
                {
                    tracing::warn!(%error, "there is no checkpoint yet");
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("gphash-store-upkeep".into())
            .spawn(life)
            .map_err(|source| Error::io(&path, "start the thread that keeps up", source))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

/// Waits for a time, or until it is time to stop: then it says so.
fn wait((stop, changed): &(Mutex<bool>, Condvar), period: Duration) -> bool {
    let stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = changed.wait_timeout_while(stopped, period, |stopped| !*stopped);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}
