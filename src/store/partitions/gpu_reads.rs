//! Columns that a GPU helps to read: it says where the records of keys are, and the CPU, which reads random memory faster
//! than the bus does, compares keys and copies values (H-Rocks §4). What it does not find, or finds for another key, the
//! CPU looks up as always.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Partitions;
use crate::engine::{Locator, locator};
use crate::index::bytes::Held;
use crate::pool::parallel;
use crate::pool::rates::{Rates, Side};
use crate::store::columns::Columns;
use crate::store::inner::{PARALLEL_LOOKUPS_MIN, StoreInner};
use crate::store::partition::Partition;
use crate::{Engine, Result};

/// Keys that a thread asks for at least.
const ASKED_MIN: usize = 4096;

/// See the [module](self). All partitions of a store share one.
pub struct GpuReads {
    engine: Engine,
    /// Nothing while somebody reads a column with it.
    idle: Mutex<Option<Gpu>>,
    rates: Rates,
    located: AtomicU64,
    /// It helps with each column, however short it is and long it takes.
    #[cfg(test)]
    is_forced: AtomicBool,
}

/// The GPU, once it was looked for, if there is one.
type Gpu = OnceCell<Option<Locator>>;

impl GpuReads {
    /// Those of the GPU that is asked for. It is opened when there is work for it.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            idle: Mutex::new(Some(Gpu::new())),
            rates: Rates::default(),
            located: AtomicU64::new(0),
            #[cfg(test)]
            is_forced: AtomicBool::new(false),
        }
    }

    /// Has it help with each column.
    #[cfg(test)]
    pub fn force(&self) {
        self.is_forced.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn is_forced(&self) -> bool {
        self.is_forced.load(Ordering::Relaxed)
    }

    #[cfg(not(test))]
    fn is_forced(&self) -> bool {
        false
    }

    /// Keys whose records it has said where they are.
    pub fn located(&self) -> u64 {
        self.located.load(Ordering::Relaxed)
    }

    /// Notes what it has said of some keys.
    pub fn note_located(&self, records: &[u64]) {
        let known = records.iter().filter(|record| **record != 0).count();
        if known > 0 {
            self.located.fetch_add(known as u64, Ordering::Relaxed);
        }
    }

    /// The GPU for a column of so many keys, if it is to help with that and helps nobody else.
    pub fn begin(&self, keys: usize) -> Option<Turn<'_>> {
        if self.engine == Engine::Cpu || keys < PARALLEL_LOOKUPS_MIN && !self.is_forced() {
            return None;
        }
        let mut idle = self.idle.lock();
        let has_none = matches!(idle.as_ref()?.get(), Some(None));
        if has_none || !self.is_forced() && !self.is_worth_it(keys as u64) {
            return None;
        }
        Some(Turn {
            of: self,
            gpu: idle.take()?,
            began: Instant::now(),
            keys: keys as u64,
            is_settling: false,
            has_failed: false,
        })
    }

    fn is_worth_it(&self, keys: u64) -> bool {
        self.rates.is_rested() && self.rates.choose(keys) == Side::Gpu
    }

    /// Notes how long a column took without it.
    pub fn note_cpu(&self, keys: usize, took: Duration) {
        if self.engine != Engine::Cpu && keys >= PARALLEL_LOOKUPS_MIN {
            self.rates.note(Side::Cpu, keys as u64, took);
        }
    }
}

/// The GPU, for one column.
pub struct Turn<'g> {
    of: &'g GpuReads,
    gpu: Gpu,
    began: Instant,
    keys: u64,
    /// It has done what is not done for each column.
    is_settling: bool,
    has_failed: bool,
}

impl Turn<'_> {
    /// Where the records of the keys at some positions are, for as long as it is held; `None` if nobody knows. The caller
    /// is on a thread of the pool that is to share the work.
    pub fn locate<'t>(
        &'t mut self,
        partitions: &'t Partitions,
        keys: &Columns,
        positions: &Range<usize>,
    ) -> Option<Located<'t>> {
        if self.has_failed {
            return None;
        }
        let Self {
            of,
            gpu,
            is_settling,
            has_failed,
            ..
        } = self;
        let found = match open(of.engine, gpu, is_settling, partitions) {
            Ok(None) => return None,
            Ok(Some(locator)) => Located::find(partitions, locator, keys, positions),
            Err(error) => Err(error),
        };
        match found {
            Ok((located, is_first)) => {
                *is_settling |= is_first;
                Some(located)
            }
            Err(error) => {
                tracing::warn!(%error, "the CPU reads a column that the GPU could not");
                *has_failed = true;
                of.rates.rest();
                None
            }
        }
    }
}

/// The GPU, opened if it was not yet, if there is one.
fn open<'g>(
    engine: Engine,
    gpu: &'g mut Gpu,
    is_settling: &mut bool,
    partitions: &Partitions,
) -> Result<Option<&'g mut Locator>> {
    if gpu.get().is_none() {
        *is_settling = true;
        let shape = partitions.all()[0].state.tiers.table.shape();
        *gpu = Gpu::from(locator(engine, shape)?);
    }
    Ok(gpu.get_mut().and_then(Option::as_mut))
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_settling {
            self.of
                .rates
                .note(Side::Gpu, self.keys, self.began.elapsed());
        }
        *self.of.idle.lock() = Some(std::mem::take(&mut self.gpu));
    }
}

/// What the GPU says of some keys.
pub struct Located<'t> {
    first: usize,
    records: &'t [u64],
    partitions: &'t [u8],
    /// For each partition, whether that means something.
    usable: Vec<bool>,
    _held: Vec<Option<Held<'t>>>,
}

impl<'t> Located<'t> {
    /// What it says, and whether it has copied a partition for the first time.
    fn find(
        partitions: &'t Partitions,
        locator: &'t mut Locator,
        keys: &Columns,
        positions: &Range<usize>,
    ) -> Result<(Self, bool)> {
        let all = partitions.all();
        // Files are slow to read, and whoever changes a table waits for records that are held.
        let is_in_memory = |state: &StoreInner| state.tiers.spill.version_if_any().is_none();
        // Who changes a table meanwhile is waited for, while none is held.
        let watched: Vec<bool> = all
            .iter()
            .map(|one| is_in_memory(&one.state) && one.state.tiers.table.watch())
            .collect();
        let hold = |(one, &is_watched): (&'t Arc<Partition>, &bool)| {
            // The table has all that is published before it is held, so that the copy has, too.
            let is_ready = is_watched && one.state.published.is_quiet();
            is_ready.then(|| one.state.tiers.table.hold())?
        };
        let held: Vec<Option<Held>> = all.iter().zip(&watched).map(hold).collect();
        let refreshed = Held::refresh(&held, locator)?;
        let (records, numbers) = locator.find(positions.len(), |fingerprints, numbers| {
            let parts = fingerprints
                .chunks_mut(ASKED_MIN)
                .zip(numbers.chunks_mut(ASKED_MIN));
            let firsts = (positions.start..).step_by(ASKED_MIN);
            parallel::map(firsts.zip(parts), |(first, (fingerprints, numbers))| {
                let asked = fingerprints.iter_mut().zip(numbers);
                for (nth, (fingerprint, number)) in (first..).zip(asked) {
                    let key = keys.at(nth);
                    let partition = partitions.number_of(key);
                    *number = all[partition].state.number();
                    *fingerprint = all[partition].state.tiers.table.fingerprint(key);
                }
            });
        })?;
        let located = Self {
            first: positions.start,
            records,
            partitions: numbers,
            usable: refreshed.usable,
            _held: held,
        };
        Ok((located, refreshed.is_first))
    }

    /// The partition of the key at a position, and the offset of its record there, or 0.
    pub fn at(&self, position: usize) -> (usize, u64) {
        let nth = position - self.first;
        let partition = usize::from(self.partitions[nth]);
        let record = if self.usable[partition] {
            self.records[nth]
        } else {
            0
        };
        (partition, record)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
