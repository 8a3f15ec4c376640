//! Runs operations against a store, and measures it.
//!
//! The clock runs while calls execute. It stands still while the calls of the next batches are made
//! and the answers of the last ones are looked at, which all threads do at the same time.

use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::plan::Operation;
use crate::target::{Failure, Manner, Target};

/// Records that a thread asks for between two stops of the clock, more or less.
const WINDOW: usize = 1 << 15;

/// What a run took.
pub struct Measured {
    pub operations: u64,
    /// What all windows took.
    pub elapsed: Duration,
    /// Of batches, in nanoseconds.
    pub latencies: Histogram<u64>,
}

impl Measured {
    /// Thousand operations in a second.
    pub fn kops(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64() / 1e3
    }

    /// Microseconds that so many percent of the batches stayed within.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.latencies.value_at_percentile(percent) as f64 / 1e3
    }
}

/// How batches follow each other.
#[derive(Clone, Copy)]
pub enum Arrival {
    /// One when the one before is answered.
    Closed,
    /// So many operations a second from all threads, whether those before are answered or not: at
    /// random times, and latencies count from these.
    Open(f64),
}

/// Runs the operations of each thread in batches of `batch`.
///
/// # Errors
/// Those of the store, and answers that are wrong.
pub fn drive<T: Target>(
    target: &T,
    plan: &[Vec<Operation>],
    batch: usize,
    manner: Manner,
    arrival: Arrival,
) -> Result<Measured, Failure> {
    let window = match arrival {
        Arrival::Closed => {
            let longest = plan.iter().flatten().map(Operation::records).max();
            (WINDOW / (batch * longest.unwrap_or(1))).max(1)
        }
        // A stop of the clock would give the store time to catch up.
        Arrival::Open(_) => usize::MAX,
    };
    let longest = plan.iter().map(Vec::len).max().unwrap_or(0).div_ceil(batch);
    let windows = longest.div_ceil(window);
    let barrier = Barrier::new(plan.len());
    let run = |nth: usize, operations: &[Operation]| -> Result<_, Failure> {
        let mut latencies = histogram()?;
        let mut random = SmallRng::seed_from_u64(nth as u64);
        let mut elapsed = Duration::ZERO;
        // A thread that fails still meets the others.
        let mut outcome = Ok(());
        let mut batches = operations.chunks(batch);
        for _ in 0..windows {
            let window: Vec<&[Operation]> = batches.by_ref().take(window).collect();
            let calls: Vec<_> = window
                .iter()
                .map(|operations| target.prepare(operations, manner))
                .collect();
            let mut answers = Vec::with_capacity(calls.len());
            barrier.wait();
            let began = Instant::now();
            let mut due = began;
            for calls in calls {
                let start = match arrival {
                    Arrival::Closed => Instant::now(),
                    Arrival::Open(rate) => {
                        let gap = batch as f64 * plan.len() as f64 / rate;
                        let share: f64 = random.random();
                        due += Duration::from_secs_f64(-gap * (1.0 - share).ln());
                        wait_until(due);
                        due
                    }
                };
                match target.execute(calls) {
                    Ok(answer) => answers.push(answer),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
                let nanos = start.elapsed().as_nanos();
                latencies.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
            }
            barrier.wait();
            elapsed += began.elapsed();
            for (operations, answers) in window.into_iter().zip(answers) {
                outcome = outcome.and_then(|()| target.check(operations, answers));
            }
        }
        outcome.map(|()| (latencies, elapsed))
    };
    let threads: Vec<(Histogram<u64>, Duration)> = std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = plan
            .iter()
            .enumerate()
            .map(|(nth, operations)| scope.spawn(move || run(nth, operations)))
            .collect();
        running.into_iter().map(join).collect::<Result<_, _>>()
    })?;
    let mut measured = Measured {
        operations: plan.iter().map(|operations| operations.len() as u64).sum(),
        elapsed: Duration::ZERO,
        latencies: histogram()?,
    };
    for (latencies, elapsed) in threads {
        measured.latencies.add(latencies)?;
        measured.elapsed = measured.elapsed.max(elapsed);
    }
    Ok(measured)
}

/// Three digits, from 1 ns to 100 s.
pub fn histogram() -> Result<Histogram<u64>, Failure> {
    Ok(Histogram::new_with_bounds(1, 100_000_000_000, 3)?)
}

/// What a thread has come to; its panic is the caller's.
pub fn join<T>(thread: ScopedJoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns at a time, or at once if it has passed. Sleeps are late, so the end is waited out awake.
fn wait_until(due: Instant) {
    const LATE: Duration = Duration::from_micros(100);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(LATE) {
            Some(early) => std::thread::sleep(early),
            None => std::thread::yield_now(),
        }
    }
}
