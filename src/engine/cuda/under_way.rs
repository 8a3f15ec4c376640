//! Look-ups whose callers wait for them, counted so that others can wait for those that are under
//! way without keeping new ones away.

use crate::sync::{AtomicU64, Ordering, nap};

/// Look-ups under way, counted in two turns: new ones go to one while the other one runs out.
#[derive(Default)]
pub struct UnderWay {
    turn: AtomicU64,
    counts: [AtomicU64; 2],
}

/// One look-up, until it is dropped.
pub struct Visit<'u>(&'u AtomicU64);

impl UnderWay {
    /// Counts a look-up that begins.
    pub fn enter(&self) -> Visit<'_> {
        let count = &self.counts[self.turn.load(Ordering::SeqCst) as usize % 2];
        count.fetch_add(1, Ordering::SeqCst);
        Visit(count)
    }

    /// Waits until all look-ups that are under way now have ended. One caller at a time.
    pub fn wait(&self) {
        // Who has read the turn before it changed may be counted after the wait for that turn;
        // the next wait must not miss it, so both turns run out.
        for _ in 0..2 {
            let turn = self.turn.fetch_add(1, Ordering::SeqCst) as usize % 2;
            while self.counts[turn].load(Ordering::SeqCst) != 0 {
                nap();
            }
        }
    }
}

impl Drop for Visit<'_> {
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
    fn waiting_lasts_until_earlier_look_ups_have_ended() {
        let under_way = UnderWay::default();
        for _ in 0..3 {
            let earlier = under_way.enter();
            let waited = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    under_way.wait();
                    waited.store(true, Ordering::SeqCst);
                });
                thread::sleep(Duration::from_millis(5));
                assert!(!waited.load(Ordering::SeqCst));
                drop(earlier);
            });
        }
    }

    #[test]
    fn waiting_ends_although_at_every_moment_a_look_up_is_under_way() {
        let under_way = UnderWay::default();
        let waited = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut visit = under_way.enter();
            scope.spawn(|| {
                under_way.wait();
                waited.store(true, Ordering::SeqCst);
            });
            while !waited.load(Ordering::SeqCst) {
                let next = under_way.enter();
                thread::sleep(Duration::from_micros(200));
                drop(std::mem::replace(&mut visit, next));
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

    /// What a look-up reads, and what changes it once the look-ups that may have it are done.
    #[derive(Default)]
    struct Shared {
        under_way: UnderWay,
        /// Whether look-ups no longer find the entry.
        unlinked: AtomicU64,
        entry: UnsafeCell<u64>,
    }

    // SAFETY: loom ends the test if two threads are at the entry together.
    unsafe impl Sync for Shared {}

    #[test]
    fn an_entry_is_filled_anew_when_nobody_reads_it() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let shared = Arc::new(Shared::default());
            // loom lets a sequentially consistent load go back to any store that is not.
            let Shared {
                under_way,
                unlinked,
                ..
            } = &*shared;
            for word in under_way.counts.iter().chain([&under_way.turn, unlinked]) {
                word.store(0, Ordering::SeqCst);
            }
            let look_ups: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        let visit = shared.under_way.enter();
                        if shared.unlinked.load(Ordering::SeqCst) == 0 {
                            shared.entry.with(|_| ());
                        }
                        drop(visit);
                    })
                })
                .collect();
            shared.unlinked.store(1, Ordering::SeqCst);
            shared.under_way.wait();
            shared.entry.with_mut(|_| ());
            for look_up in look_ups {
                look_up.join().unwrap();
            }
        });
    }
}
