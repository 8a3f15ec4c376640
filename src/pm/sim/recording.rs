//! What a crash would have left at every step: where it began, and what happened since. A state is made
//! when it is asked for. Most never are, and one may have thousands of pending words.

use super::crash::CrashState;
use super::durable::{Durable, Event};

/// The states before the first step of a memory and after each one.
#[derive(Debug, Clone)]
pub struct Recording {
    start: Durable,
    events: Vec<Event>,
    /// Steps among the events.
    steps: usize,
}

impl Recording {
    pub(super) fn new(start: Durable) -> Self {
        Self {
            start,
            events: Vec::new(),
            steps: 0,
        }
    }

    pub(super) fn add(&mut self, event: Event) {
        self.steps += usize::from(event.is_step());
        self.events.push(event);
    }

    /// How many events there are.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// Stores of words and fences so far, those before the start included.
    pub(super) fn steps(&self) -> u64 {
        self.start.steps() + self.steps as u64
    }

    /// Begins where `crash` was.
    pub(super) fn resume(&mut self, crash: &CrashState) {
        self.start.resume(crash);
    }

    /// Begins anew at the end.
    pub(super) fn conclude(&mut self) {
        let events = self.events.drain(..);
        events.for_each(|event| self.start.apply(&event));
        self.steps = 0;
    }

    /// The state after all events.
    pub(super) fn last(&self) -> CrashState {
        let mut now = self.start.clone();
        self.events.iter().for_each(|event| now.apply(event));
        now.crash_state()
    }

    /// How many states there are, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.steps + 1
    }

    /// All states, in order.
    pub fn states(&self) -> impl Iterator<Item = CrashState> {
        let mut events = self.events.iter();
        let mut now = Some(self.start.clone());
        std::iter::from_fn(move || {
            let state = now.as_ref()?.crash_state();
            if !now.as_mut().is_some_and(|now| step(now, &mut events)) {
                now = None;
            }
            Some(state)
        })
    }

    /// The states of these numbers, which ascend.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn states_at(&self, numbers: &[usize]) -> Vec<CrashState> {
        let mut events = self.events.iter();
        let (mut now, mut at) = (self.start.clone(), 0);
        let state = |&number: &usize| {
            while at < number {
                assert!(step(&mut now, &mut events), "state {number} of {at}");
                at += 1;
            }
            now.crash_state()
        };
        numbers.iter().map(state).collect()
    }
}

/// Goes on to the end of the next step; `false` if there is none.
fn step<'e>(now: &mut Durable, events: &mut impl Iterator<Item = &'e Event>) -> bool {
    for event in events {
        now.apply(event);
        if event.is_step() {
            return true;
        }
    }
    false
}
