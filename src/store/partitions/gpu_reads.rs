//! Columns that a GPU helps to read (H-Rocks §4). Where it has copies of records, it answers with values. Of others it says
//! where they are, and the CPU, which reads random memory faster than the bus does, compares keys and copies values. What it
//! does not find, or finds for another key, the CPU looks up as always.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Partitions;
use super::gpu_columns::GPU_KEY_BYTES_MAX;
use super::gpu_questions::{Asked, parts_of};
use crate::engine::{DeviceBudget, Locator, locator};
use crate::gpu::locator::{ABSENT, Answers, CHUNK, EXCHANGES, Said, Size, Terms, Usable};
use crate::index::bytes::Held;
use crate::pool::parallel;
use crate::pool::rates::{Rates, Side};
use crate::store::columns::requests::ColumnBatch;
use crate::store::columns::{
    Bytes, ColumnBuilder, EndsCopy, Lent, NULL_END, PART_VALUES, ValuesPart,
};
use crate::store::inner::{PARALLEL_LOOKUPS_MIN, StoreInner};
use crate::store::partition::Partition;
use crate::store::wal::record::TOMBSTONE;
use crate::{Engine, Result};

// A part of a column begins where a chunk does.
const _: () = assert!(PART_VALUES.is_multiple_of(CHUNK));

// What the device says of ends is what a column is told.
const _: () = assert!(ABSENT == NULL_END);

/// Waves of a column for which tables are held at most: who changes their levels waits for the end.
const HELD_WAVES_MAX: usize = 8;

/// See the [module](self). All partitions of a store share one.
pub struct GpuReads {
    engine: Engine,
    budget: DeviceBudget,
    /// Nothing while somebody reads a column with it.
    idle: Mutex<Option<Gpu>>,
    /// By kinds of columns.
    rates: [Rates; 4],
    located: AtomicU64,
    /// What the last mixed column has taken before anybody waited for it.
    caught_up: Mutex<CaughtUp>,
    /// It helps with each column, however short it is and long it takes.
    #[cfg(test)]
    is_forced: AtomicBool,
}

/// What a column asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    Gets,
    /// Gets of a snapshot: what was changed since is put right by the CPU.
    SnapshotGets,
    /// Some changes, too.
    FewChanges,
    /// So many that the GPU has much to copy for each column.
    ManyChanges,
}

/// In so many requests there is a change at least, if they are many.
const MANY_CHANGES_FRACTION: usize = 8;

impl ColumnKind {
    /// That of gets of the newest values, or of a snapshot.
    pub fn of_gets(snapshot: Option<u64>) -> Self {
        match snapshot {
            Some(_) => Self::SnapshotGets,
            None => Self::Gets,
        }
    }

    /// Whether others wait for the end of such a column.
    fn is_waited_for(self) -> bool {
        matches!(self, Self::FewChanges | Self::ManyChanges)
    }

    pub fn of(columns: &ColumnBatch) -> Self {
        let changes = columns.len() - columns.count_gets();
        match changes {
            0 => Self::Gets,
            _ if changes < columns.len() / MANY_CHANGES_FRACTION => Self::FewChanges,
            _ => Self::ManyChanges,
        }
    }
}

/// What it has taken to bring copies up to date.
#[derive(Debug, Clone, Copy, Default)]
struct CaughtUp {
    took: Duration,
    /// The next column has less to do.
    is_unusual: bool,
}

/// The GPU, once it was looked for, if there is one.
type Gpu = OnceCell<Option<Locator>>;

impl GpuReads {
    /// Those of the GPU that is asked for. It is opened when there is work for it.
    pub fn new(engine: Engine, budget: &DeviceBudget) -> Self {
        Self {
            engine,
            budget: budget.clone(),
            idle: Mutex::new(Some(Gpu::new())),
            rates: Default::default(),
            located: AtomicU64::new(0),
            caught_up: Mutex::default(),
            #[cfg(test)]
            is_forced: AtomicBool::new(false),
        }
    }

    /// Has it help with each column, or as always.
    #[cfg(all(test, not(loom)))]
    pub fn force(&self, is_forced: bool) {
        self.is_forced.store(is_forced, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn is_forced(&self) -> bool {
        self.is_forced.load(Ordering::Relaxed)
    }

    #[cfg(not(test))]
    fn is_forced(&self) -> bool {
        false
    }

    /// Keys whose values it has given, or whose records it has said where they are, or that there are none.
    pub fn located(&self) -> u64 {
        self.located.load(Ordering::Relaxed)
    }

    /// Notes of how many more it has.
    pub fn note_located(&self, known: usize) {
        if known > 0 {
            self.located.fetch_add(known as u64, Ordering::Relaxed);
        }
    }

    /// The GPU for a column of so many keys, if it is to help with that and helps nobody else. Of a mixed column others wait
    /// for the end: so it helps with that only if it has [caught up](Self::catch_up) once.
    pub fn begin<'p>(
        &'p self,
        partitions: &'p Partitions,
        keys: usize,
        kind: ColumnKind,
    ) -> Option<Turn<'p>> {
        let has_records = |gpu: &Gpu| matches!(gpu.get(), Some(Some(gpu)) if gpu.has_records());
        let is_worth_it = |gpu: &Gpu| {
            (!kind.is_waited_for() || has_records(gpu))
                && self.is_worth_it(kind, |rates| rates.choose(keys as u64))
        };
        let mut turn = self.take(partitions, keys, kind, is_worth_it)?;
        if kind.is_waited_for() {
            let CaughtUp { took, is_unusual } = std::mem::take(&mut *self.caught_up.lock());
            turn.began = turn.began.checked_sub(took).unwrap_or(turn.began);
            turn.is_settling = is_unusual;
        }
        Some(turn)
    }

    /// Has the GPU copy what has changed, if it is to help with a mixed column. To be called before anybody waits for
    /// that column.
    pub fn catch_up(&self, partitions: &Partitions, columns: &ColumnBatch) {
        let (keys, kind) = (columns.len(), ColumnKind::of(columns));
        let is_worth_it = |_: &Gpu| self.is_worth_it(kind, |rates| rates.would_choose(keys as u64));
        if let Some(turn) = self.take(partitions, keys, kind, is_worth_it) {
            partitions
                .shared()
                .threads
                .reads
                .install(|| turn.catch_up());
        }
    }

    fn take<'p>(
        &'p self,
        partitions: &'p Partitions,
        keys: usize,
        kind: ColumnKind,
        is_worth_it: impl FnOnce(&Gpu) -> bool,
    ) -> Option<Turn<'p>> {
        if self.engine == Engine::Cpu || keys < PARALLEL_LOOKUPS_MIN && !self.is_forced() {
            return None;
        }
        let mut idle = self.idle.lock();
        let gpu = idle.as_ref()?;
        if matches!(gpu.get(), Some(None)) || !is_worth_it(gpu) {
            return None;
        }
        Some(Turn {
            of: self,
            partitions,
            gpu: idle.take()?,
            session: None,
            began: Instant::now(),
            keys,
            kind,
            given: 0,
            is_settling: false,
            has_failed: false,
        })
    }

    fn is_worth_it(&self, kind: ColumnKind, choose: impl Fn(&Rates) -> Side) -> bool {
        let is_rested = self.rates.iter().all(Rates::is_rested);
        self.is_forced() || is_rested && choose(&self.rates[kind as usize]) == Side::Gpu
    }

    /// Notes how long a column took without it.
    pub fn note_cpu(&self, keys: usize, kind: ColumnKind, took: Duration) {
        if self.engine != Engine::Cpu && keys >= PARALLEL_LOOKUPS_MIN {
            self.rates[kind as usize].note(Side::Cpu, keys as u64, took);
        }
    }
}

/// The GPU, for one column.
pub struct Turn<'p> {
    of: &'p GpuReads,
    partitions: &'p Partitions,
    gpu: Gpu,
    session: Option<Session<'p>>,
    began: Instant,
    keys: usize,
    kind: ColumnKind,
    /// Keys that it was not asked for.
    given: usize,
    /// It has done what is not done for each column.
    is_settling: bool,
    has_failed: bool,
}

impl Turn<'_> {
    fn locator(&mut self) -> Option<&mut Locator> {
        self.gpu.get_mut().and_then(Option::as_mut)
    }

    /// Brings the copies of all tables up to date.
    fn catch_up(mut self) {
        let Self {
            of,
            partitions,
            gpu,
            keys,
            is_settling,
            ..
        } = &mut self;
        let opened = open(of, gpu, is_settling, partitions);
        let caught_up = opened.and_then(|locator| match locator {
            Some(locator) => {
                let session = Session::begin(partitions, locator, *keys)?;
                Ok(session.is_catching_up)
            }
            None => Ok(false),
        });
        match caught_up {
            Ok(is_catching_up) => {
                *self.of.caught_up.lock() = CaughtUp {
                    took: self.began.elapsed(),
                    is_unusual: is_catching_up || self.is_settling,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the CPU reads a column that the GPU could not");
                self.of.rates[self.kind as usize].rest();
            }
        }
    }

    /// Begins the column. If there is pinned memory for its values, the GPU puts them there, unless they are of a snapshot.
    pub fn begin_column(&mut self, builder: &mut ColumnBuilder) {
        let (keys, kind) = (self.keys, self.kind);
        // Who opens it does not know yet how long values are.
        let Some(locator) = self.locator() else {
            return;
        };
        let (block, is_new) = match kind {
            ColumnKind::SnapshotGets => (None, false),
            _ => {
                builder.return_bytes();
                locator.block_for(keys)
            }
        };
        locator.begin_column(block);
        self.is_settling |= is_new;
    }

    /// Gives the column the pinned memory with the values that the GPU has put there, if it has not got it yet.
    fn leave_column(&mut self, builder: &mut ColumnBuilder) {
        let used = builder.filled();
        let taken = self.locator().and_then(|gpu| gpu.take_block(used));
        match taken {
            Some(Ok(block)) => builder.set_bytes(Bytes::lent(block)),
            Some(Err(bytes)) => builder.set_bytes(bytes.into()),
            None => {}
        }
    }

    /// Notes that the column is read, of which the `builder` has all but what is in pinned memory.
    pub fn done(mut self, builder: &mut ColumnBuilder) {
        self.leave_column(builder);
        if self.has_failed {
            return;
        }
        let keys = self.keys;
        let asked = keys.saturating_sub(self.given);
        if let Some(locator) = self.locator() {
            locator.end_column(keys, asked);
        }
        let (rates, took) = (&self.of.rates[self.kind as usize], self.began.elapsed());
        match self.is_settling {
            true => rates.note_unusual(Side::Gpu, keys as u64, took),
            false => rates.note(Side::Gpu, keys as u64, took),
        }
    }

    /// Where the records of the keys of a wave are, and what values they have if it has copies, for as long as the answer is
    /// kept; `None` if nobody knows. Waves come in order, each as long as the one before, or the last one. The next two are
    /// asked for while the caller does what is left of this one. He is on a thread of the pool that is to share the work.
    /// The `builder` has pinned memory from the first wave on whose values the GPU has not put there.
    pub fn locate(
        &mut self,
        asked: &Asked,
        wave: &Range<usize>,
        builder: &mut ColumnBuilder,
    ) -> Option<Located<'_>> {
        let exchange = self.exchange_of(asked, wave);
        let is_placed = |exchange: usize| {
            let locator = self.gpu.get().and_then(Option::as_ref);
            locator.is_some_and(|gpu| gpu.answers(exchange).placed().is_some())
        };
        if !exchange.is_some_and(is_placed) {
            self.leave_column(builder);
        }
        let session = self.session.as_ref()?;
        self.given += session.given[exchange?];
        Some(Located {
            first: wave.start,
            answers: self.gpu.get()?.as_ref()?.answers(exchange?),
            given: session.given[exchange?],
            session,
        })
    }

    /// The exchange that has answered a wave; `None` if nobody does.
    fn exchange_of(&mut self, asked: &Asked, wave: &Range<usize>) -> Option<usize> {
        if self.has_failed {
            self.session = None;
            return None;
        }
        if asked.keys.bytes_of(wave).len() > GPU_KEY_BYTES_MAX {
            self.session = None;
            // The time that it takes is not the GPU's.
            self.is_settling = true;
            return None;
        }
        let Self {
            of,
            partitions,
            gpu,
            session,
            kind,
            is_settling,
            has_failed,
            ..
        } = self;
        let found = match open(of, gpu, is_settling, partitions) {
            Ok(None) => return None,
            Ok(Some(locator)) => Session::advance(session, partitions, locator, (asked, wave)),
            Err(error) => Err(error),
        };
        match found {
            Ok(Some(exchange)) => {
                *is_settling |= session
                    .as_ref()
                    .is_some_and(|session| session.is_catching_up);
                Some(exchange)
            }
            Ok(None) => {
                *is_settling = true;
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the CPU reads a column that the GPU could not");
                *has_failed = true;
                of.rates[*kind as usize].rest();
                None
            }
        }
    }
}

/// The GPU, opened if it was not yet, if there is one.
fn open<'g>(
    of: &GpuReads,
    gpu: &'g mut Gpu,
    is_settling: &mut bool,
    partitions: &Partitions,
) -> Result<Option<&'g mut Locator>> {
    if gpu.get().is_none() {
        *is_settling = true;
        let shape = partitions.all()[0].state.tiers.table.shape();
        *gpu = Gpu::from(locator(of.engine, shape, &of.budget)?);
    }
    Ok(gpu.get_mut().and_then(Option::as_mut))
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.session = None;
        if let Some(locator) = self.locator() {
            // Whoever fails has not taken it.
            drop(locator.take_block(0));
        }
        *self.of.idle.lock() = Some(std::mem::take(&mut self.gpu));
    }
}

/// Some waves that are read of what tables have at one moment.
struct Session<'p> {
    gpu_reads: &'p GpuReads,
    /// The partitions whose tables the GPU has.
    usable: Usable,
    /// It has copied one of them for the first time, or more slots than a column of changes leaves: the next one has less
    /// to do.
    is_catching_up: bool,
    /// What it has no slot of is in none of them.
    is_settled: bool,
    _held: Vec<Option<Held<'p>>>,
    /// How many waves have been asked for, and where the last one ends.
    waves: usize,
    end: usize,
    /// Of these, how many have been fetched, and the caller has had.
    fetched: usize,
    current: usize,
    /// Keys of each exchange that the GPU was not asked for.
    given: [usize; EXCHANGES],
}

impl<'p> Session<'p> {
    /// Waits for a wave that the last session has asked for, or a new one does. Gives the exchange that has answered;
    /// nothing if the GPU has no table.
    fn advance(
        last: &mut Option<Self>,
        partitions: &'p Partitions,
        locator: &mut Locator,
        (asked, wave): (&Asked, &Range<usize>),
    ) -> Result<Option<usize>> {
        let session = match last.take() {
            Some(session) if session.is_ahead() => last.insert(session),
            // Nothing is held while this waits.
            other => {
                drop(other);
                let size = size_of(partitions, asked, wave);
                if !locator.has_room(size) {
                    return Ok(None);
                }
                let begun = Self::begin(partitions, locator, asked.keys.len())?;
                if begun.usable == Usable::default() {
                    return Ok(None);
                }
                let session = last.insert(begun);
                session.ask(partitions, locator, (asked, wave))?;
                session
            }
        };
        let exchange = session.current % EXCHANGES;
        session.ask_next(partitions, locator, (asked, wave.len()))?;
        session.fetch_up_to(session.current, locator)?;
        session.ask_next(partitions, locator, (asked, wave.len()))?;
        // Whose values come while the caller does what is left of this wave.
        session.fetch_up_to(session.current + 1, locator)?;
        locator.arrive(exchange)?;
        session.current += 1;
        Ok(Some(exchange))
    }

    /// Holds the tables that the GPU can serve, of which it then has what they have, for a column of so many keys.
    fn begin(partitions: &'p Partitions, locator: &mut Locator, keys: usize) -> Result<Self> {
        let all = partitions.all();
        // Files are slow to read, and whoever changes a table waits for records that are held.
        let is_in_memory = |state: &StoreInner| state.tiers.spill.version_if_any().is_none();
        // Who changes a table meanwhile is waited for, while none is held.
        let watched: Vec<bool> = all
            .iter()
            .map(|one| is_in_memory(&one.state) && one.state.tiers.table.watch())
            .collect();
        let hold = |(one, &is_watched): (&'p Arc<Partition>, &bool)| {
            // The table has all that is published before it is held, so that the copy has, too.
            let is_ready = is_watched && one.state.published.is_quiet();
            is_ready.then(|| one.state.tiers.table.hold())?
        };
        let held: Vec<Option<Held>> = all.iter().zip(&watched).map(hold).collect();
        let refreshed = Held::refresh(&held, locator)?;
        Ok(Self {
            gpu_reads: &partitions.shared().gpu_reads,
            usable: refreshed.usable,
            is_catching_up: refreshed.is_first || refreshed.slots > keys,
            is_settled: refreshed.is_settled,
            _held: held,
            waves: 0,
            end: 0,
            fetched: 0,
            current: 0,
            given: [0; EXCHANGES],
        })
    }

    /// Whether it has asked for a wave that the caller has not had.
    fn is_ahead(&self) -> bool {
        self.current < self.waves
    }

    /// Asks for the next wave, unless all exchanges are under way.
    fn ask_next(
        &mut self,
        partitions: &Partitions,
        locator: &mut Locator,
        (asked, len): (&Asked, usize),
    ) -> Result<()> {
        let next = self.end..asked.keys.len().min(self.end + len);
        let is_short = asked.keys.bytes_of(&next).len() <= GPU_KEY_BYTES_MAX;
        let is_idle = self.waves < HELD_WAVES_MAX.min(self.current + EXCHANGES);
        let size = size_of(partitions, asked, &next);
        match !next.is_empty() && is_short && is_idle && locator.has_room(size) {
            true => self.ask(partitions, locator, (asked, &next)),
            false => Ok(()),
        }
    }

    /// Has the values of all waves that were asked for come, up to this one.
    fn fetch_up_to(&mut self, wave: usize, locator: &mut Locator) -> Result<()> {
        while self.fetched < self.waves.min(wave + 1) {
            locator.fetch(self.fetched % EXCHANGES)?;
            self.fetched += 1;
        }
        Ok(())
    }

    fn ask(
        &mut self,
        partitions: &Partitions,
        locator: &mut Locator,
        (asked, wave): (&Asked, &Range<usize>),
    ) -> Result<()> {
        // Where reads are counted, the CPU does them.
        let is_counted = partitions.all()[0].state.tiers.access_counts.is_some();
        let route = partitions.by_hash();
        let values_wanted = locator.has_records() && !is_counted;
        let terms = Terms {
            values_wanted,
            // Where reads are counted, items also leave the tables for files.
            absence_known: values_wanted && self.is_settled,
            excluded: TOMBSTONE,
            usable: self.usable,
            route: route.unwrap_or_default(),
        };
        let size = size_of(partitions, asked, wave);
        let exchange = self.waves % EXCHANGES;
        locator.ask(exchange, size, &terms, |questions| {
            let parts = parts_of(questions, asked.keys, wave);
            let given = parallel::map(parts, |part| part.fill(partitions, asked));
            self.given[exchange] = given.iter().sum();
        })?;
        self.waves += 1;
        self.end = wave.end;
        Ok(())
    }
}

/// How much a wave asks.
fn size_of(partitions: &Partitions, asked: &Asked, wave: &Range<usize>) -> Size {
    Size {
        len: wave.len(),
        key_bytes: asked.keys.bytes_of(wave).len(),
        has_given: asked.known.is_some(),
        has_partitions: partitions.by_hash().is_none(),
    }
}

/// What the GPU says of some keys.
pub struct Located<'t> {
    first: usize,
    answers: Answers<'t>,
    /// Keys that the GPU was not asked for.
    given: usize,
    /// Its tables are held.
    session: &'t Session<'t>,
}

impl Located<'_> {
    /// The offset of the record of the key at a position in the file of its partition, or 0.
    pub fn at(&self, position: usize) -> u64 {
        self.answers.records[position - self.first]
    }

    /// The values that it knows, and where they end.
    pub fn lent(&self) -> Lent<'_> {
        Lent {
            values: self.answers.values(),
            ends: self.answers.ends(),
        }
    }

    /// Adds all values of the wave to the column, if they are in its pinned memory; gives what notes where they end.
    pub fn extend<'b>(&'b self, builder: &'b mut ColumnBuilder) -> Option<Vec<EndsCopy<'b>>> {
        let bytes = self.answers.placed()?;
        let ends = self.answers.ends();
        self.session.gpu_reads.note_located(ends.len() - self.given);
        Some(builder.extend(ends, bytes))
    }

    /// Lends these to `part`, which begins with a position that a chunk begins with, if all of its positions have one.
    pub fn lend_all(&self, positions: &Range<usize>, part: &mut ValuesPart) -> bool {
        part.clear(0);
        let from = positions.start - self.first;
        for first in (from..positions.end - self.first).step_by(CHUNK) {
            let chunk = self.answers.chunk(first / CHUNK);
            let Some(chunk) = chunk.filter(|chunk| chunk.left == 0) else {
                return false;
            };
            part.extend_lent((first, chunk.len()), (chunk.start, chunk.bytes));
        }
        self.session.gpu_reads.note_located(part.len());
        true
    }

    /// Lends these to the positions of `part`, which begins at one that a chunk begins with, but for those that are known. Gives
    /// the positions that nobody knows anything of.
    pub fn lend(
        &self,
        positions: &Range<usize>,
        part: &mut ValuesPart,
        is_known: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut left = Vec::new();
        for first in positions.clone().step_by(CHUNK) {
            let chunk = first..positions.end.min(first + CHUNK);
            let nth = first - self.first;
            let Some(known) = self.answers.chunk(nth / CHUNK) else {
                left.extend(chunk.filter(|position| !is_known(position - positions.start)));
                continue;
            };
            for (position, said) in chunk.zip(known.said()) {
                let nth = position - positions.start;
                match said {
                    _ if is_known(nth) => {}
                    Said::Value(span) => part.set_lent(nth, span),
                    Said::Absent => {}
                    Said::Nothing => left.push(position),
                }
            }
        }
        left
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
