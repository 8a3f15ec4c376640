//! Which cores threads run on.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

thread_local! {
    /// Where this thread could run before it was pinned, if it was.
    static BEFORE: Cell<Option<CpuSet>> = const { Cell::new(None) };
}

/// Where a thread may run that the caller starts: where the caller could before he was pinned. The system would have it
/// run where the caller runs.
#[derive(Debug, Clone, Copy)]
pub struct Unpinned(Option<CpuSet>);

impl Unpinned {
    /// What holds for threads that the caller starts.
    pub fn of_caller() -> Self {
        Self(BEFORE.try_with(Cell::get).unwrap_or_default())
    }

    /// Has the calling thread run there, which has just been started.
    pub fn restore(self) {
        if let Self(Some(set)) = self
            && let Err(error) = sched_setaffinity(None, &set)
        {
            tracing::warn!(%error, "a thread runs where the one runs that has started it");
        }
    }
}

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
        let allowed = match Unpinned::of_caller() {
            Unpinned(Some(before)) => before,
            Unpinned(None) => sched_getaffinity(None)?,
        };
        let is_allowed = |&core: &usize| core < CpuSet::MAX_CPU && allowed.is_set(core);
        let missing = self.0.iter().find(|core| !is_allowed(core));
        Ok(missing.map(|core| (*core, (0..CpuSet::MAX_CPU).filter(is_allowed).collect())))
    }

    /// Has the calling thread, which is the one of this number, run on one of them alone. If it cannot, it runs anywhere.
    pub(crate) fn pin(&self, number: usize) {
        let Some(nth) = number.checked_rem(self.0.len()) else {
            return;
        };
        let core = self.0[nth];
        if core >= CpuSet::MAX_CPU {
            return tracing::warn!(
                core,
                "a thread is not pinned: the system knows no such core"
            );
        }
        let before = sched_getaffinity(None);
        let mut set = CpuSet::new();
        set.set(core);
        match sched_setaffinity(None, &set) {
            Ok(()) => BEFORE.set(before.ok()),
            Err(error) => tracing::warn!(%error, core, "a thread is not pinned"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
