//! Where a caller waits for whoever leads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Outcome;
use crate::pool::crew::Crew;

/// How long a caller waits for an answer before it sleeps, while nobody leads a crew.
const AWAKE_MAX: Duration = Duration::from_micros(50);

/// How long it waits for parts to do before it sleeps, while groups of a crew follow each other: who sleeps does not
/// help, and has to be woken up in the end.
const HELPER_AWAKE_MAX: Duration = Duration::from_micros(300);

/// Where a caller waits.
#[derive(Default)]
pub(super) struct Ticket {
    state: Mutex<TicketState>,
    changed: Condvar,
    /// The state has changed, for a caller who does not sleep yet.
    is_changed: AtomicBool,
}

#[derive(Default)]
pub(super) enum TicketState {
    #[default]
    Waiting,
    /// The caller does what is in the queue, its own job first.
    Leads,
    Done(Box<Outcome>),
}

impl Ticket {
    pub(super) fn set(&self, state: TicketState) {
        *self.state.lock() = state;
        self.is_changed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Waits for the end, and helps whoever leads the `crew` meanwhile; `None` if the caller becomes the leader.
    pub(super) fn wait(&self, crew: &Crew) -> Option<Box<Outcome>> {
        // A short group takes less time than waking a thread up.
        let mut now = Instant::now();
        let (mut led, mut helped) = (now, now);
        crew.stand_by(|| {
            while !self.is_changed.load(Ordering::Acquire)
                && now - led < AWAKE_MAX
                && now - helped < HELPER_AWAKE_MAX
            {
                let has_helped = crew.help();
                if !has_helped {
                    std::thread::yield_now();
                }
                now = Instant::now();
                if has_helped {
                    helped = now;
                }
                // Not between two groups, which takes no longer than the time of a caller alone.
                if has_helped || crew.is_led() {
                    led = now;
                }
            }
        });
        let mut state = self.state.lock();
        self.is_changed.store(false, Ordering::Relaxed);
        loop {
            match std::mem::take(&mut *state) {
                TicketState::Waiting => {}
                TicketState::Leads => return None,
                TicketState::Done(outcome) => return Some(outcome),
            }
            self.changed.wait(&mut state);
        }
    }
}
