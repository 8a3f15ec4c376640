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
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn reader_gate_waits_for_earlier_lookups() {
        let reader_gate = ReaderGate::default();
        for _ in 0..3 {
            let earlier = reader_gate.enter();
            let waited = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    reader_gate.wait();
                    waited.store(true, Ordering::SeqCst);
                });
                thread::sleep(Duration::from_millis(5));
                assert!(!waited.load(Ordering::SeqCst));
                drop(earlier);
            });
        }
    }

    #[test]
    fn reader_gate_does_not_wait_for_later_lookups() {
        let reader_gate = ReaderGate::default();
        let waited = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut read_guard = reader_gate.enter();
            scope.spawn(|| {
                reader_gate.wait();
                waited.store(true, Ordering::SeqCst);
            });
            while !waited.load(Ordering::SeqCst) {
                let next = reader_gate.enter();
                thread::sleep(Duration::from_micros(200));
                drop(std::mem::replace(&mut read_guard, next));
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// What a lookup reads, and what changes it once the lookups that may have it are done.
    #[derive(Default)]
    struct Shared {
        reader_gate: ReaderGate,
        /// Whether lookups no longer find the entry.
        unlinked: AtomicU64,
        entry: UnsafeCell<u64>,
    }

    // SAFETY: loom ends the test if two threads are at the entry together.
    unsafe impl Sync for Shared {}

    #[test]
    fn reader_gate_reuses_an_entry_without_readers() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let shared = Arc::new(Shared::default());
            // loom lets a sequentially consistent load go back to any store that is not.
            let Shared {
                reader_gate,
                unlinked,
                ..
            } = &*shared;
            for word in reader_gate
                .counts
                .iter()
                .chain([&reader_gate.turn, unlinked])
            {
                word.store(0, Ordering::SeqCst);
            }
            let lookups: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        let read_guard = shared.reader_gate.enter();
                        if shared.unlinked.load(Ordering::SeqCst) == 0 {
                            shared.entry.with(|_| ());
                        }
                        drop(read_guard);
                    })
                })
                .collect();
            shared.unlinked.store(1, Ordering::SeqCst);
            shared.reader_gate.wait();
            shared.entry.with_mut(|_| ());
            for lookup in lookups {
                lookup.join().unwrap();
            }
        });
    }
}
