//! Which batches go to a GPU (H-Rocks §4, §6, §6.7): those of long queues. What is a long one adapts
//! to how fast requests come, and a rate that goes up and down does not make the batches go to and
//! fro.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::rates::Side;

/// The threshold at first, and its least: from so many requests on a launch is worth its while.
const THRESHOLD_REQUESTS_MIN: usize = 10_000;

/// The highest threshold.
const THRESHOLD_REQUESTS_MAX: usize = 10_000_000;

/// A threshold that is reached within this time is too low.
const RAISE_INTERVAL_MAX: Duration = Duration::from_millis(1);

/// The factor by which it is raised then.
const RAISE_FACTOR: usize = 10;

/// How long switches are counted for.
const SWITCH_PERIOD: Duration = Duration::from_secs(1);

/// Switches of a period after which the length of the queue decides no more.
const PERIOD_SWITCHES_MAX: u32 = 3;

/// Requests of a period below which the CPU then does all of them.
const CPU_PERIOD_REQUESTS_MAX: usize = 50_000;

/// Requests of a period from which on the GPU then does.
const GPU_PERIOD_REQUESTS_MIN: usize = 1_000_000;

/// The threshold of the queue's length, and what it follows.
#[derive(Debug)]
pub struct Threshold {
    requests: usize,
    side: Side,
    /// When the queue was last taken, and the requests a second up to then.
    taken: Instant,
    rate: f64,
    /// The period under way, and requests of the one before.
    began: Instant,
    arrived: usize,
    switches: u32,
    arrived_before: usize,
}

impl Threshold {
    /// The least threshold, and an empty queue.
    pub fn new(now: Instant) -> Self {
        Self {
            requests: THRESHOLD_REQUESTS_MIN,
            side: Side::Cpu,
            taken: now,
            rate: 0.0,
            began: now,
            arrived: 0,
            switches: 0,
            arrived_before: 0,
        }
    }

    /// Where the batch of all that are waiting is to be executed.
    pub fn choose(&mut self, waiting: usize, now: Instant) -> Side {
        let took = now.saturating_duration_since(self.began);
        if took >= SWITCH_PERIOD {
            let arrived = self.arrived as u128 * SWITCH_PERIOD.as_nanos() / took.as_nanos();
            self.arrived_before = usize::try_from(arrived).unwrap_or(usize::MAX);
            (self.began, self.arrived, self.switches) = (now, 0, 0);
        }
        self.arrived += waiting;
        // A rate that is high at times is a high one.
        let arrived = self.arrived.max(self.arrived_before);
        let side = match self.switches {
            ..PERIOD_SWITCHES_MAX if waiting >= self.requests => Side::Gpu,
            ..PERIOD_SWITCHES_MAX => Side::Cpu,
            // Requests of a period only become more, so that these are two more switches at most.
            _ if arrived < CPU_PERIOD_REQUESTS_MAX => Side::Cpu,
            _ if arrived >= GPU_PERIOD_REQUESTS_MIN => Side::Gpu,
            _ => self.side,
        };
        self.switches += u32::from(side != self.side);
        self.side = side;
        self.adapt(waiting, now.saturating_duration_since(self.taken));
        self.taken = now;
        side
    }

    /// Raises the threshold if so many requests, which came in this time, have reached it too soon, and
    /// lowers it while their rate falls.
    fn adapt(&mut self, waiting: usize, took: Duration) {
        let rate = waiting as f64 / took.as_secs_f64();
        if waiting >= self.requests && took <= RAISE_INTERVAL_MAX {
            self.requests = (self.requests * RAISE_FACTOR).min(THRESHOLD_REQUESTS_MAX);
        } else if rate < self.rate {
            self.requests = (self.requests / 2).max(THRESHOLD_REQUESTS_MIN);
        }
        self.rate = rate;
    }
}
