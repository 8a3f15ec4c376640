//! Runs a plan against a target, and measures it.

use std::sync::Barrier;
use std::time::Duration;

use crate::target::{Failure, Target};
use crate::workload::{Batch, Change, Plan, Words};

/// What a run took.
pub struct Measured {
    /// Operations done.
    pub operations: u64,
    /// What the verbs of the busiest thread took in all.
    pub elapsed: Duration,
    /// Of each batch: the calls it consists of.
    latencies: Vec<Duration>,
}

impl Measured {
    /// Million operations in a second.
    pub fn mops(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64() / 1e6
    }

    /// The latency in microseconds that `percent` of the batches stay within.
    pub fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.latencies.len() * percent)
            .div_ceil(100)
            .saturating_sub(1);
        self.latencies
            .get(rank)
            .map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// Which way a plan is run.
#[derive(Clone, Copy)]
pub struct Mode {
    /// What the writes do.
    pub write: Change,
    /// Whether the keys that are read are there.
    pub present: bool,
    /// Whether inserts are those of the load phase.
    pub loading: bool,
}

/// Runs the batches of each thread, all threads at once.
///
/// Every answer's count is checked against what it has to be, and one value in [`STRIDE`]
/// against its key, so that no table can be fast by being wrong.
pub fn drive<const K: usize, const V: usize>(
    target: &dyn Target<Words<K>, Words<V>>,
    plan: &Plan<Words<K>>,
    mode: Mode,
) -> Result<Measured, Failure> {
    let barrier = Barrier::new(plan.len());
    let threads: Vec<Result<Vec<Duration>, Failure>> = std::thread::scope(|scope| {
        let running: Vec<_> = plan
            .iter()
            .map(|batches| scope.spawn(|| drive_thread(target, batches, mode, &barrier)))
            .collect();
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let threads = threads
        .into_iter()
        .collect::<Result<Vec<Vec<Duration>>, Failure>>()?;
    let elapsed = threads.iter().map(|batches| batches.iter().sum()).max();
    let mut latencies: Vec<Duration> = threads.into_iter().flatten().collect();
    latencies.sort_unstable();
    let operations = plan
        .iter()
        .flatten()
        .map(|batch| batch.operations(mode.write) as u64)
        .sum();
    Ok(Measured {
        operations,
        elapsed: elapsed.unwrap_or_default(),
        latencies,
    })
}

/// Runs the batches of one thread; gives what the verbs of each took.
fn drive_thread<const K: usize, const V: usize>(
    target: &dyn Target<Words<K>, Words<V>>,
    batches: &[Batch<Words<K>>],
    mode: Mode,
    barrier: &Barrier,
) -> Result<Vec<Duration>, Failure> {
    let widest = |width: fn(&Batch<Words<K>>) -> usize| batches.iter().map(width).max();
    let mut read = vec![[0; V]; widest(|batch| batch.reads.len()).unwrap_or(0)];
    let mut written = vec![[7; V]; widest(|batch| batch.writes.len()).unwrap_or(0)];
    let mut latencies = Vec::with_capacity(batches.len());
    barrier.wait();
    for batch in batches {
        let read = &mut read[..batch.reads.len()];
        let written = &mut written[..batch.writes.len()];
        for (value, key) in written.iter_mut().zip(&batch.writes) {
            value[0] = key[0];
        }
        let mut took = Duration::ZERO;
        if !batch.reads.is_empty() {
            let found = target.get(&batch.reads, read)?;
            let expected = if mode.present { batch.reads.len() } else { 0 };
            agree("reads that found a value", found.count, expected)?;
            took += found.took;
        }
        if !batch.writes.is_empty() {
            let done = match mode.write {
                Change::Insert if mode.loading => target.load(&batch.writes, written)?,
                Change::Insert => target.insert(&batch.writes, written)?,
                Change::Update => target.update(&batch.writes, written)?,
                Change::Modify => {
                    let old = &read[read.len() - written.len()..];
                    for (new, old) in written.iter_mut().zip(old) {
                        *new = modify(old);
                    }
                    target.update(&batch.writes, written)?
                }
                Change::Remove => target.remove(&batch.writes)?,
            };
            agree("writes that did something", done.count, batch.writes.len())?;
            took += done.took;
        }
        latencies.push(took);
        if mode.present {
            check_values(&batch.reads, read)?;
        }
    }
    Ok(latencies)
}

/// The first word of a value is the first word of its key, whatever was written.
fn modify<const V: usize>(old: &Words<V>) -> Words<V> {
    let mut new = *old;
    for word in &mut new[1..] {
        *word = word.wrapping_add(1);
    }
    new
}

const STRIDE: usize = 64;

fn check_values<const K: usize, const V: usize>(
    keys: &[Words<K>],
    values: &[Words<V>],
) -> Result<(), Failure> {
    for (key, value) in keys.iter().zip(values).step_by(STRIDE) {
        if key[0] != value[0] {
            return Err(format!("wrong value {value:x?} for key {key:x?}").into());
        }
    }
    Ok(())
}

fn agree(what: &str, found: usize, expected: usize) -> Result<(), Failure> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what} in a batch: {found}; expected {expected}").into())
    }
}
