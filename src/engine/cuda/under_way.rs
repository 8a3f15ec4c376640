//! Look-ups whose callers wait for them, counted so that others can wait for those that are under
//! way without keeping new ones away.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How long whoever waits looks away.
const NAP: Duration = Duration::from_micros(50);

/// Look-ups under way, counted in two turns: new ones go to one while the other one runs out.
#[derive(Default)]
pub struct UnderWay {
    turn: AtomicUsize,
    counts: [AtomicU64; 2],
}

/// One look-up, until it is dropped.
pub struct Visit<'u>(&'u AtomicU64);

impl UnderWay {
    /// Counts a look-up that begins.
    pub fn enter(&self) -> Visit<'_> {
        let count = &self.counts[self.turn.load(Ordering::SeqCst) % 2];
        count.fetch_add(1, Ordering::SeqCst);
        Visit(count)
    }

    /// Waits until all look-ups that are under way now have ended. One caller at a time.
    pub fn wait(&self) {
        // Who has read the turn before it changed may be counted after the wait for that turn;
        // the next wait must not miss it, so both turns run out.
        for _ in 0..2 {
            let turn = self.turn.fetch_add(1, Ordering::SeqCst) % 2;
            while self.counts[turn].load(Ordering::SeqCst) != 0 {
                thread::sleep(NAP);
            }
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

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
