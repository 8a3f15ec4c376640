//! Which batches go to a GPU (H-Rocks §4, §6, §6.7): those of long queues. What is a long one adapts
//! to how fast requests come, and a rate that goes up and down does not make the batches go to and
//! fro.

use std::time::{Duration, Instant};

use crate::width::{saturating_u64, to_usize};

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

/// Who sorts the versions of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    Cpu,
    Gpu,
}

/// The threshold of the queue's length, and what it follows.
#[derive(Debug)]
pub struct Threshold {
    requests: usize,
    processor: Processor,
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
            processor: Processor::Cpu,
            taken: now,
            rate: 0.0,
            began: now,
            arrived: 0,
            switches: 0,
            arrived_before: 0,
        }
    }

    /// Where the batch of all that are waiting is to be executed.
    pub fn choose(&mut self, waiting: usize, now: Instant) -> Processor {
        let periods = now
            .saturating_duration_since(self.began)
            .div_duration_f64(SWITCH_PERIOD);
        if periods >= 1.0 {
            self.arrived_before = to_usize(saturating_u64(self.arrived as f64 / periods));
            (self.began, self.arrived, self.switches) = (now, 0, 0);
        }
        self.arrived += waiting;
        // A rate that is high at times is a high one.
        let arrived = self.arrived.max(self.arrived_before);
        let processor = match self.switches {
            ..PERIOD_SWITCHES_MAX if waiting >= self.requests => Processor::Gpu,
            ..PERIOD_SWITCHES_MAX => Processor::Cpu,
            // Requests of a period only become more, so that these are two more switches at most.
            _ if arrived < CPU_PERIOD_REQUESTS_MAX => Processor::Cpu,
            _ if arrived >= GPU_PERIOD_REQUESTS_MIN => Processor::Gpu,
            _ => self.processor,
        };
        self.switches += u32::from(processor != self.processor);
        self.processor = processor;
        self.adapt(waiting, now.saturating_duration_since(self.taken));
        self.taken = now;
        processor
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that is taken at moments after one another.
    struct Queue {
        threshold: Threshold,
        now: Instant,
    }

    impl Queue {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                threshold: Threshold::new(now),
                now,
            }
        }

        /// So many requests, this long after the queue was last taken.
        fn take(&mut self, waiting: usize, after: Duration) -> Processor {
            self.now += after;
            self.threshold.choose(waiting, self.now)
        }
    }

    const LONG_INTERVAL: Duration = Duration::from_millis(5);

    #[test]
    fn threshold_sends_long_queues_to_the_gpu() {
        let mut queue = Queue::new();
        assert_eq!(
            queue.take(THRESHOLD_REQUESTS_MIN - 1, LONG_INTERVAL),
            Processor::Cpu
        );
        assert_eq!(
            queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL),
            Processor::Gpu
        );
        assert_eq!(queue.take(1, LONG_INTERVAL), Processor::Cpu);
    }

    #[test]
    fn threshold_reached_too_soon_rises_to_its_limit() {
        let mut queue = Queue::new();
        let mut reached = THRESHOLD_REQUESTS_MIN;
        for _ in 0..6 {
            assert_eq!(
                queue.threshold.requests,
                reached.min(THRESHOLD_REQUESTS_MAX)
            );
            assert_eq!(
                queue.take(THRESHOLD_REQUESTS_MAX, RAISE_INTERVAL_MAX),
                Processor::Gpu
            );
            reached *= RAISE_FACTOR;
        }
        // Reached, but in more time.
        let mut slow = Queue::new();
        assert_eq!(
            slow.take(
                THRESHOLD_REQUESTS_MIN,
                RAISE_INTERVAL_MAX + Duration::from_nanos(1)
            ),
            Processor::Gpu
        );
        assert_eq!(slow.threshold.requests, THRESHOLD_REQUESTS_MIN);
    }

    #[test]
    fn threshold_is_halved_while_the_rate_falls() {
        let mut queue = Queue::new();
        queue.take(THRESHOLD_REQUESTS_MIN, RAISE_INTERVAL_MAX);
        assert_eq!(
            queue.threshold.requests,
            THRESHOLD_REQUESTS_MIN * RAISE_FACTOR
        );
        queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL);
        assert_eq!(
            queue.threshold.requests,
            THRESHOLD_REQUESTS_MIN * RAISE_FACTOR / 2
        );
        // The rate stays, and rises.
        queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL);
        queue.take(2 * THRESHOLD_REQUESTS_MIN, LONG_INTERVAL);
        assert_eq!(
            queue.threshold.requests,
            THRESHOLD_REQUESTS_MIN * RAISE_FACTOR / 2
        );
        for waiting in (0..9).rev() {
            queue.take(waiting, LONG_INTERVAL);
        }
        assert_eq!(queue.threshold.requests, THRESHOLD_REQUESTS_MIN);
    }

    #[test]
    fn threshold_switches_rarely_at_an_unsteady_rate() {
        let turns = saturating_u64(SWITCH_PERIOD.div_duration_f64(LONG_INTERVAL));
        let mut queue = Queue::new();
        let mut before = Processor::Cpu;
        for _ in 0..5 {
            let (mut switches, mut on_cpu) = (0, 0);
            for turn in 0..turns {
                let waiting = if turn % 2 == 0 { 100_000 } else { 10 };
                let processor = queue.take(waiting, LONG_INTERVAL);
                switches += u32::from(processor != before);
                on_cpu += u32::from(processor == Processor::Cpu);
                before = processor;
            }
            assert!(
                (1..=PERIOD_SWITCHES_MAX + 2).contains(&switches),
                "{switches}"
            );
            assert!(on_cpu <= PERIOD_SWITCHES_MAX, "{on_cpu} of {turns}");
        }
    }

    #[test]
    fn threshold_accepts_clocks_out_of_order() {
        let mut queue = Queue::new();
        assert_eq!(queue.take(0, Duration::ZERO), Processor::Cpu);
        assert_eq!(
            queue.take(THRESHOLD_REQUESTS_MIN, Duration::ZERO),
            Processor::Gpu
        );
        // Clocks of different threads may be read in the other order.
        let earlier = queue.now;
        queue.take(1, LONG_INTERVAL);
        assert_eq!(queue.threshold.choose(1, earlier), Processor::Cpu);
    }

    #[test]
    fn threshold_stays_on_the_cpu_after_many_switches() {
        let mut queue = Queue::new();
        for processor in [Processor::Gpu, Processor::Cpu, Processor::Gpu] {
            let waiting = if processor == Processor::Gpu {
                THRESHOLD_REQUESTS_MIN
            } else {
                1
            };
            assert_eq!(queue.take(waiting, LONG_INTERVAL), processor);
        }
        assert_eq!(queue.take(1, LONG_INTERVAL), Processor::Cpu);
        assert_eq!(
            queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL),
            Processor::Cpu
        );
        // In the next period the queue's length decides again.
        assert_eq!(
            queue.take(THRESHOLD_REQUESTS_MIN, SWITCH_PERIOD),
            Processor::Gpu
        );
    }
}
