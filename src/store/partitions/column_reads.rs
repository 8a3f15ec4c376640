//! Columns of values at one moment. Threads read parts of a column, and copy each to where it belongs once all before it
//! have come. No thread waits for another one.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;

use super::Partitions;
use crate::Result;
use crate::pool::{parallel, run_off_pool};
use crate::store::columns::{
    ColumnBuilder, ColumnRoom, Columns, Lent, PART_VALUES, PartCopy, PartTarget, ValueColumns,
    ValuesPart, concat,
};
use crate::store::inner::PARALLEL_LOOKUPS_MIN;

/// Keys that a thread reads at a time.
const PART_KEYS: usize = 2 * PART_VALUES;

/// Parts for each thread that may have come before one that is still being read: they are memory.
const EARLY_PARTS_PER_THREAD: usize = 8;

/// What a thread does next.
enum Task<'b> {
    Read(Range<usize>, ValuesPart),
    Copy(PartTarget<'b>, ValuesPart),
}

/// A column on its way, as far as there is room for it.
struct Assembly<'b> {
    room: ColumnRoom<'b>,
    len: usize,
    /// The first position that nobody reads yet, and that has no target yet.
    next: usize,
    aimed: usize,
    /// By their first positions: parts that have come, of which one before has not.
    early: BTreeMap<usize, ValuesPart>,
    early_max: usize,
    /// Parts that have targets.
    ready: Vec<(PartTarget<'b>, ValuesPart)>,
    /// To be filled again.
    idle: Vec<ValuesPart>,
    /// Nothing more is read for now.
    has_ended: bool,
    outcome: Result<()>,
}

impl<'b> Assembly<'b> {
    /// One of the positions that are left of `len`, from `first` on.
    fn new(
        room: ColumnRoom<'b>,
        (first, len): (usize, usize),
        early_max: usize,
        idle: Vec<ValuesPart>,
    ) -> Self {
        Self {
            room,
            len,
            next: first,
            aimed: first,
            early: BTreeMap::new(),
            early_max,
            ready: Vec::new(),
            idle,
            has_ended: false,
            outcome: Ok(()),
        }
    }

    fn next(&mut self) -> Option<Task<'b>> {
        if let Some((target, part)) = self.ready.pop() {
            return Some(Task::Copy(target, part));
        }
        // A thread that reads an early part takes long. Who waited for it would keep the others from what they may do.
        self.has_ended |= self.early.len() >= self.early_max;
        if self.has_ended || self.next == self.len {
            return None;
        }
        let positions = self.next..self.len.min(self.next + PART_KEYS);
        self.next = positions.end;
        Some(Task::Read(positions, self.idle.pop().unwrap_or_default()))
    }

    /// Notes what a thread has read from a position on.
    fn note(&mut self, first: usize, read: Result<ValuesPart>) {
        match read {
            Ok(part) => drop(self.early.insert(first, part)),
            Err(error) => {
                self.outcome = Err(error);
                self.has_ended = true;
            }
        }
        while let Some(entry) = self.early.first_entry()
            && *entry.key() == self.aimed
        {
            let Some(target) = self.room.take(entry.get()) else {
                self.has_ended = true;
                return;
            };
            self.aimed += entry.get().len();
            self.ready.push((target, entry.remove()));
        }
    }
}

impl Partitions {
    /// The values of keys in columns in a live snapshot, or at one moment, in the buffers of a column.
    pub fn read_columns(
        &self,
        keys: &Columns,
        snapshot: Option<u64>,
        mut buffers: ValueColumns,
    ) -> Result<ValueColumns> {
        let mut read_at = |at: Option<u64>| {
            let buffers = std::mem::take(&mut buffers).into_buffers();
            let builder = ColumnBuilder::new(keys.len(), buffers);
            self.build(keys, builder, at)
        };
        let read = || match snapshot {
            Some(_) => read_at(snapshot),
            None => self.at_one_moment(&mut read_at),
        };
        match keys.len() < PARALLEL_LOOKUPS_MIN {
            // The threads of the caller's pool may have other things to do for him.
            true => parallel::alone(read),
            false => run_off_pool(read),
        }
    }

    /// The values of keys in a live snapshot, or the newest ones.
    fn build(
        &self,
        keys: &Columns,
        builder: ColumnBuilder,
        snapshot: Option<u64>,
    ) -> Result<ValueColumns> {
        #[cfg(feature = "cuda")]
        {
            let gpu_reads = &self.shared().gpu_reads;
            if let Some(turn) = gpu_reads.begin(self, keys.len()) {
                return self.build_with_gpu(keys, builder, snapshot, turn);
            }
            let began = std::time::Instant::now();
            let built = self.build_on_cpu(keys, builder, snapshot)?;
            gpu_reads.note_cpu(keys.len(), began.elapsed());
            Ok(built)
        }
        #[cfg(not(feature = "cuda"))]
        self.build_on_cpu(keys, builder, snapshot)
    }

    fn build_on_cpu(
        &self,
        keys: &Columns,
        mut builder: ColumnBuilder,
        snapshot: Option<u64>,
    ) -> Result<ValueColumns> {
        let pool = &self.shared().threads.reads;
        let is_short = keys.len() < PARALLEL_LOOKUPS_MIN;
        let threads = match is_short {
            true => 1,
            false => pool.install(parallel::threads),
        };
        let mut idle = Vec::new();
        while builder.len() < keys.len() {
            let first = builder.len();
            let early_max = EARLY_PARTS_PER_THREAD * threads;
            let assembly = Assembly::new(builder.room(), (first, keys.len()), early_max, idle);
            let assembly = Mutex::new(assembly);
            let work = || self.work(&assembly, keys, snapshot);
            match is_short {
                true => work(),
                false => drop(pool.install(|| parallel::map(0..threads, |_| work()))),
            }
            let left = assembly.into_inner();
            left.outcome?;
            idle = left.idle;
            let parts: Vec<ValuesPart> = left.early.into_values().collect();
            if let [only] = &parts[..]
                && only.len() == keys.len()
                && !builder.has_room(only.bytes_len())
            {
                return Ok(concat(parts).into());
            }
            let copies = builder.add(&parts, Lent::default());
            match is_short {
                true => copies.into_iter().for_each(PartCopy::run),
                false => drop(pool.install(|| parallel::map(copies, PartCopy::run))),
            }
            idle.extend(parts);
        }
        Ok(builder.finish().into())
    }

    /// Does what there is to do for a column, until there is nothing.
    fn work(&self, assembly: &Mutex<Assembly>, keys: &Columns, snapshot: Option<u64>) {
        let mut task = assembly.lock().next();
        while let Some(doing) = task {
            task = match doing {
                Task::Read(positions, part) => {
                    let first = positions.start;
                    let read = self.read_part(keys, positions, part, snapshot);
                    let mut assembly = assembly.lock();
                    assembly.note(first, read);
                    assembly.next()
                }
                Task::Copy(target, part) => {
                    target.fill(&part);
                    let mut assembly = assembly.lock();
                    assembly.idle.push(part);
                    assembly.next()
                }
            };
        }
    }

    /// The values of the keys at these positions in a live snapshot, or the newest ones, in place of those of `part`.
    pub(super) fn read_part(
        &self,
        keys: &Columns,
        positions: Range<usize>,
        mut part: ValuesPart,
        snapshot: Option<u64>,
    ) -> Result<ValuesPart> {
        let len = positions.len();
        part.clear(len);
        let key = |nth| keys.at(positions.start + nth);
        self.read(len, key, snapshot, |nth, value| part.set(nth, &value))?;
        Ok(part)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
