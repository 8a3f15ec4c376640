//! Runs a plan against a target, and measures it.

use std::sync::Barrier;
use std::time::Duration;

use gphash::Index;

use super::case::Case;
use super::latency::Latencies;
#[cfg(feature = "cust")]
use super::pinned::Pinned;
use super::plan::{Batch, Change, Plan, Words, Workload};
use super::reload::while_reloading;
use super::target::{Failure, Target};

/// What a run took.
pub struct Measured {
    /// Operations done.
    pub operations: u64,
    /// What the verbs of the busiest thread took in all.
    pub elapsed: Duration,
    /// Of each batch: the calls it consists of.
    pub latencies: Latencies,
}

impl Measured {
    /// Of a plan that has been run.
    pub fn new<K>(plan: &Plan<K>, mode: Mode, elapsed: Duration, batches: Vec<Duration>) -> Self {
        let operations = plan
            .iter()
            .flatten()
            .map(|batch| batch.operations(mode.write) as u64)
            .sum();
        Self {
            operations,
            elapsed,
            latencies: Latencies::new(batches),
        }
    }

    /// Million operations in a second.
    pub fn mops(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64() / 1e6
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
    /// Whether the values of the host are pinned (engine cuda).
    pub pinned: bool,
}

impl Mode {
    /// The load phase.
    pub const LOADING: Mode = Mode {
        write: Change::Insert,
        present: true,
        loading: true,
        pinned: false,
    };

    /// A workload on a loaded table.
    pub fn of(workload: Workload) -> Self {
        Self {
            write: workload.write(),
            present: workload != Workload::Negative,
            loading: false,
            pinned: false,
        }
    }
}

/// Runs the batches of each thread, all threads at once.
///
/// Every answer's count is checked against what it has to be, and one value in `STRIDE`
/// against its key, so that no table can be fast by being wrong.
pub fn drive<const K: usize, const V: usize>(
    target: &dyn Target<Words<K>, Words<V>>,
    plan: &Plan<Words<K>>,
    mode: Mode,
) -> Result<Measured, Failure> {
    let barrier = Barrier::new(plan.len());
    let threads = on_threads(plan, |batches| {
        drive_thread(target, batches, mode, &barrier)
    })?;
    let elapsed = threads.iter().map(|batches| batches.iter().sum()).max();
    let latencies = threads.into_iter().flatten().collect();
    Ok(Measured::new(
        plan,
        mode,
        elapsed.unwrap_or_default(),
        latencies,
    ))
}

/// Does `work` on each of `parts`, all at the same time on a thread each.
pub fn on_threads<P: Send, T: Send>(
    parts: impl IntoIterator<Item = P>,
    work: impl Fn(P) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(move || work(part)))
            .collect();
        let done: Vec<_> = running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        done.into_iter().collect()
    })
}

/// Runs a plan on an index, from host or from device memory.
pub fn drive_index<const K: usize, const V: usize>(
    index: &Index<Words<K>, Words<V>>,
    on_device: bool,
    plan: &Plan<Words<K>>,
    mode: Mode,
) -> Result<Measured, Failure> {
    if !on_device {
        return drive(index, plan, mode);
    }
    #[cfg(feature = "cust")]
    return super::device::drive(index, plan, mode);
    #[cfg(not(feature = "cust"))]
    Err("batches in device memory in a build without the feature `cust`".into())
}

/// Runs what is to be measured of a case on an index.
pub fn drive_case<const K: usize, const V: usize>(
    index: &Index<Words<K>, Words<V>>,
    case: &Case,
    plan: &Plan<Words<K>>,
    mode: Mode,
) -> Result<Measured, Failure> {
    let mode = Mode {
        pinned: case.pinned,
        ..mode
    };
    let run = || drive_index(index, case.on_device, plan, mode);
    if case.reload_during {
        while_reloading(|| Ok(index.reload_cache()?), run)
    } else {
        run()
    }
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
    #[cfg(feature = "cust")]
    let _pinned = if mode.pinned {
        [Pinned::new(&mut read)?, Pinned::new(&mut written)?]
    } else {
        [None, None]
    };
    #[cfg(not(feature = "cust"))]
    if mode.pinned {
        return Err("pinned values in a build without the feature `cust`".into());
    }
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

/// Checks some values against their keys.
pub fn check_values<const K: usize, const V: usize>(
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

/// Fails if there are not as many as there have to be.
pub fn agree(what: &str, found: usize, expected: usize) -> Result<(), Failure> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what} in a batch: {found}; expected {expected}").into())
    }
}
