//! How long the CPU and a GPU take for work of a kind, by its size, who is faster (gLSM §5.4, H-Rocks §6.7), and whether the
//! GPU is left alone because it has failed.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Works of a size after which the slower side does one again, as it may have become the faster one: soon at first, since
/// one work may have been slow by chance, and later each time after twice as many.
const RETRY_WORKS: RangeInclusive<u64> = 8..=512;

/// In how many times what such a try has cost it comes again at the earliest: a share of the time of all works.
const TRY_SHARE: f64 = 32.0;

/// After how many works it comes again, whatever it costs.
const RETRY_WORKS_MAX: u64 = 1 << 14;

/// How many works in a row the slower side does then, unless one is noted before: the time of a work that had something
/// else to do, too, says nothing.
const TRIES: u64 = 2;

/// How much a work that was slower counts in what is known of a size. A faster one is all that counts: it says what can be
/// had.
const WEIGHT: f64 = 0.25;

/// Sizes that are told apart: each is twice the one before.
const SIZES: usize = 64;

/// How long a GPU is left alone after a failure.
pub const REST: Duration = Duration::from_secs(10);

/// Who has done a work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Threads of the CPU.
    Cpu,
    /// The GPU.
    Gpu,
}

/// See the [module](self).
pub struct Rates {
    sizes: Mutex<[OfSize; SIZES]>,
    rests_until: Mutex<Option<Instant>>,
}

/// What is known of works of a size: nanoseconds for one of its units, on the CPU and on the GPU.
#[derive(Clone, Copy, Default)]
struct OfSize {
    cpu: Option<f64>,
    gpu: Option<f64>,
    /// Works since the slower side was tried, and after how many it is tried again.
    works: u64,
    retry: u64,
    is_gpu_faster: bool,
    /// What it costs to try the slower side, in nanoseconds for a unit, since it has been due.
    tried: f64,
}

impl OfSize {
    /// After how many works the slower side is tried.
    fn due(&self) -> u64 {
        self.retry.max(*RETRY_WORKS.start())
    }

    fn choose(&mut self) -> Side {
        let is_faster = match (self.cpu, self.gpu) {
            (Some(cpu), Some(gpu)) => gpu < cpu,
            // What is not known yet is tried.
            (_, gpu) => gpu.is_none(),
        };
        if self.is_gpu_faster != is_faster {
            self.is_gpu_faster = is_faster;
            (self.works, self.retry) = (0, 0);
        }
        if self.works == self.due() + TRIES {
            self.note_retry();
        }
        self.works += 1;
        let is_retry = self.works > self.due();
        match is_faster != is_retry {
            true => Side::Gpu,
            false => Side::Cpu,
        }
    }

    /// Notes that it was.
    fn note_retry(&mut self) {
        let faster = if self.is_gpu_faster {
            self.gpu
        } else {
            self.cpu
        };
        let works = std::mem::take(&mut self.tried) / faster.unwrap_or(f64::INFINITY);
        let mut retry = (2 * self.due()).min(*RETRY_WORKS.end());
        while (retry as f64) < TRY_SHARE * works && retry < RETRY_WORKS_MAX {
            retry *= 2;
        }
        (self.works, self.retry) = (0, retry);
    }

    /// Counts what a work of this rate has cost, if it was a try of the slower side; says whether it was.
    fn count_try(&mut self, side: Side, rate: f64) -> bool {
        let is_try = self.works > self.due() && self.is_gpu_faster != (side == Side::Gpu);
        if is_try {
            self.tried += rate;
        }
        is_try
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            sizes: Mutex::new([OfSize::default(); SIZES]),
            rests_until: Mutex::new(None),
        }
    }
}

impl Rates {
    /// Who is to do the next work of so many units.
    pub fn choose(&self, units: u64) -> Side {
        self.sizes.lock()[size_of(units)].choose()
    }

    /// Who would be to do it now.
    pub fn would_choose(&self, units: u64) -> Side {
        let mut of_size = self.sizes.lock()[size_of(units)];
        of_size.choose()
    }

    /// Leaves the GPU alone for a while: it has failed.
    pub fn rest(&self) {
        *self.rests_until.lock() = Some(Instant::now() + REST);
    }

    /// Whether it is not left alone, or not any more.
    pub fn is_rested(&self) -> bool {
        let until = *self.rests_until.lock();
        until.is_none_or(|until| until <= Instant::now())
    }

    /// Notes how long a work took.
    pub fn note(&self, side: Side, units: u64, took: Duration) {
        let rate = rate(units, took);
        let of_size = &mut self.sizes.lock()[size_of(units)];
        let known = match side {
            Side::Cpu => &mut of_size.cpu,
            Side::Gpu => &mut of_size.gpu,
        };
        let slower = |known: f64| known + WEIGHT * (rate - known);
        *known = Some(known.map_or(rate, |known| slower(known).min(rate)));
        if of_size.count_try(side, rate) {
            of_size.note_retry();
        }
    }

    /// Notes how long a work took that had something to do for which the next ones are quicker. It says what it costs to try
    /// that side, and nothing else.
    pub fn note_unusual(&self, side: Side, units: u64, took: Duration) {
        self.sizes.lock()[size_of(units)].count_try(side, rate(units, took));
    }
}

fn rate(units: u64, took: Duration) -> f64 {
    took.as_nanos() as f64 / units.max(1) as f64
}

fn size_of(units: u64) -> usize {
    units.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_faster_does_the_next_work_and_the_other_one_at_times() {
        let rates = Rates::default();
        let took = Duration::from_micros;
        assert_eq!(rates.choose(1000), Side::Gpu, "not known yet");
        rates.note(Side::Gpu, 1000, took(10));
        assert_eq!(rates.choose(1000), Side::Cpu, "nor is this");
        rates.note(Side::Cpu, 1000, took(20));
        let chosen: Vec<Side> = (0..500).map(|_| rates.choose(1000)).collect();
        let retried: Vec<usize> = (0..500).filter(|&nth| chosen[nth] == Side::Cpu).collect();
        assert_eq!(retried, [8, 9, 26, 27, 60, 61, 126, 127, 256, 257]);
        assert_eq!(rates.choose(1 << 20), Side::Gpu, "another size");
        for _ in 0..20 {
            rates.note(Side::Gpu, 1000, took(40));
        }
        assert_eq!(rates.choose(1000), Side::Cpu);
    }

    #[test]
    fn tries_that_cost_much_come_seldom() {
        let rates = Rates::default();
        let took = Duration::from_micros;
        rates.note(Side::Gpu, 1000, took(30));
        rates.note(Side::Cpu, 1000, took(20));
        let choose = |_| {
            let side = rates.choose(1000);
            match side {
                Side::Cpu => rates.note(side, 1000, took(20)),
                Side::Gpu => rates.note_unusual(side, 1000, took(200)),
            }
            side
        };
        let chosen: Vec<Side> = (0..1100).map(choose).collect();
        let tried: Vec<usize> = (0..1100).filter(|&nth| chosen[nth] == Side::Gpu).collect();
        // Both have cost as much as twenty works.
        assert_eq!(tried, [8, 9, 1034, 1035]);
    }

    #[test]
    fn one_slow_work_does_not_decide_for_long() {
        let rates = Rates::default();
        let took = |side| match side {
            Side::Gpu => Duration::from_micros(10),
            Side::Cpu => Duration::from_micros(20),
        };
        for side in [Side::Gpu, Side::Cpu] {
            rates.note(side, 1000, took(side));
        }
        rates.note(Side::Gpu, 1000, Duration::from_secs(1));
        let choose = |_| {
            let side = rates.choose(1000);
            rates.note(side, 1000, took(side));
            side
        };
        let chosen: Vec<Side> = (0..20).map(choose).collect();
        assert!(chosen[..8].iter().all(|side| *side == Side::Cpu));
        assert!(chosen[9..17].iter().all(|side| *side == Side::Gpu));
    }
}
