//! The threads that compact.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::spill::levels::Levels;
use crate::{Error, Result};

/// How often it is looked for readers who held files that are obsolete.
const GLANCE: Duration = Duration::from_millis(100);

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
        levels.cache().sweep();
        let mut plan = levels.plan();
        if plan.is_stopping {
            return;
        }
        if let Some(rest) = plan.rest() {
            levels.changed.wait_for(&mut plan, rest);
            continue;
        }
        match plan.pick(&levels.version(), levels.options().level_bytes) {
            None if levels.cache().has_obsolete() => {
                levels.changed.wait_for(&mut plan, GLANCE);
            }
            None => levels.changed.wait(&mut plan),
            Some(job) => {
                drop(plan);
                if let Err(error) = levels.finish(&job) {
                    tracing::warn!(%error, "a compaction failed; it is tried again later");
                }
            }
        }
    }
}
