//! Lookups whose callers wait for them, counted so that others can wait for those that are under
//! way without keeping new ones away.

use crate::sync::{AtomicU64, Ordering, nap};
use crate::width::to_usize;

/// Lookups under way, counted in two turns: new ones go to one while the other one runs out.
#[derive(Default)]
pub struct ReaderGate {
    turn: AtomicU64,
    counts: [AtomicU64; 2],
}

/// One lookup, until it is dropped.
pub struct ReadGuard<'u>(&'u AtomicU64);

impl ReaderGate {
    /// Counts a lookup that begins.
    pub fn enter(&self) -> ReadGuard<'_> {
        let count = &self.counts[to_usize(self.turn.load(Ordering::SeqCst)) % 2];
        count.fetch_add(1, Ordering::SeqCst);
        ReadGuard(count)
    }

    /// Waits until all lookups that are under way now have ended. One caller at a time.
    pub fn wait(&self) {
        // Who has read the turn before it changed may be counted after the wait for that turn;
        // the next wait must not miss it, so both turns run out.
        for _ in 0..2 {
            let turn = to_usize(self.turn.fetch_add(1, Ordering::SeqCst)) % 2;
            while self.counts[turn].load(Ordering::SeqCst) != 0 {
                nap();
            }
        }
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
