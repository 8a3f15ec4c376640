//! Which cores threads run on.

use std::io;
use std::sync::Arc;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores, by the numbers that the system gives them. Without any, threads run where the scheduler puts them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity(Arc<[usize]>);

impl Affinity {
    /// These cores.
    pub fn new(cores: Vec<usize>) -> Self {
        Self(cores.into())
    }

    /// The cores.
    pub fn cores(&self) -> &[usize] {
        &self.0
    }

    /// The first of them that the calling thread may not run on, and those that it may.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn missing(&self) -> io::Result<Option<(usize, Vec<usize>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let allowed = sched_getaffinity(None)?;
        let is_allowed = |&core: &usize| core < CpuSet::MAX_CPU && allowed.is_set(core);
        let missing = self.0.iter().find(|core| !is_allowed(core));
        Ok(missing.map(|core| (*core, (0..CpuSet::MAX_CPU).filter(is_allowed).collect())))
    }

    /// Has the calling thread, which is the one of this number, run on one of them alone. If it cannot, it runs anywhere.
    pub(crate) fn pin(&self, number: usize) {
        let Some(nth) = number.checked_rem(self.0.len()) else {
            return;
        };
        let mut set = CpuSet::new();
        set.set(self.0[nth]);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!(%error, core = self.0[nth], "a thread is not pinned");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
