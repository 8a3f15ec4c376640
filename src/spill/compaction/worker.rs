//! The threads that compact.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use crate::spill::levels::Levels;
use crate::{Error, Result};

/// See the [module](self). They end when this is dropped, what they are at being left undone.
pub struct Workers {
    levels: Arc<Levels>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no thread to be had.
    pub fn start(levels: Arc<Levels>, count: usize) -> Result<Self> {
        let mut workers = Self {
            levels,
            threads: Vec::new(),
        };
        for _ in 0..count {
            let levels = Arc::clone(&workers.levels);
            let thread = std::thread::Builder::new()
                .name("gphash-compaction".into())
                .spawn(move || work(&levels))
                .map_err(|source| {
                    let path = workers.levels.folder().path();
                    Error::io(path, "start a thread that compacts", source)
                })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.levels.plan().is_stopping = true;
        self.levels.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}

fn work(levels: &Levels) {
    loop {
        let mut plan = levels.plan();
        if plan.is_stopping {
            return;
        }
        if let Some(rest) = plan.rest() {
            let waited = levels.changed.wait_timeout(plan, rest);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        match plan.pick(&levels.version(), levels.options().level_bytes) {
            None => {
                let waited = levels.changed.wait(plan);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            Some(job) => {
                drop(plan);
                if let Err(error) = levels.finish(&job) {
                    tracing::warn!(%error, "a compaction failed; it is tried again later");
                }
            }
        }
    }
}
