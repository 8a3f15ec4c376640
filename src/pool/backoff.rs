//! When to try again what has failed.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

/// The shortest and the longest time that nothing is tried after a failure.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Tries of something: after each failure in a row they rest for twice as long.
#[derive(Debug, Default)]
pub struct Backoff {
    /// How long they rest after the last failure; zero if there is none since the last success.
    interval: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// Notes how a try has ended.
    pub fn note(&mut self, succeeded: bool) {
        if succeeded {
            *self = Self::default();
            return;
        }
        self.interval = (2 * self.interval).clamp(INTERVALS.0, INTERVALS.1);
        self.until = Some(Instant::now() + self.interval);
    }

    /// Whether the last try has failed.
    pub fn is_failing(&self) -> bool {
        self.until.is_some()
    }

    /// How long not to try.
    pub fn rest(&self) -> Option<Duration> {
        let rest = self.until?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }
}
