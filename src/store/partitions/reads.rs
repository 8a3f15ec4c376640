//! Reads of several partitions at one moment.

use std::ops::Range;

use super::Partitions;
#[cfg(feature = "cuda")]
use super::gpu_reads::Located;
use crate::Result;
use crate::pool::{parallel, run_off_pool};
use crate::store::columns::{
    ColumnBuilder, Columns, EndsCopy, Lent, PART_VALUES, PartCopy, ValueColumns, ValuesPart, concat,
};
use crate::store::inner::{PARALLEL_LOOKUPS_MIN, UNREGISTERED_READS};
use crate::store::mvcc::old_versions::Value;
use crate::store::request::check_key;

/// Without a GPU nobody is asked.
#[cfg(not(feature = "cuda"))]
enum Located {}

#[cfg(not(feature = "cuda"))]
impl Located {
    fn at(&self, _: usize) -> u64 {
        match *self {}
    }

    fn lent(&self) -> Lent<'_> {
        match *self {}
    }

    fn extend(&self, _: &mut ColumnBuilder) -> Option<Vec<EndsCopy<'_>>> {
        match *self {}
    }

    fn lend_all(&self, _: &Range<usize>, _: &mut ValuesPart) -> bool {
        match *self {}
    }

    fn lend(&self, _: &Range<usize>, _: &mut ValuesPart) -> Vec<usize> {
        match *self {}
    }
}

/// Most values that a thread reads at a time.
const PART_VALUES_MAX: usize = 16 * PART_VALUES;

/// Parts of a column that each thread reads at a time.
const PARTS_PER_THREAD: usize = 2;

/// The same if a GPU helps: what it lends for all threads is still in a cache when they copy it.
const GPU_PART_VALUES_MAX: usize = 8 * PART_VALUES;

/// Waves of a column that a GPU helps to read, at least.
const GPU_WAVES: usize = 2;

/// Most bytes of keys that go to a GPU at a time: the host's memory for them is pinned.
pub const GPU_KEY_BYTES_MAX: usize = 16 << 20;

/// How many keys a part has at most if a GPU helps, so that those of so many parts are few bytes.
fn gpu_part_values_max(keys: &Columns, parts: usize) -> usize {
    let bytes = keys.bytes_of(&(0..keys.len())).len();
    let of_key = bytes / keys.len().max(1) + 1;
    // Some may be longer than others.
    let fits = GPU_KEY_BYTES_MAX / 2 / of_key / parts;
    (fits / PART_VALUES * PART_VALUES).clamp(PART_VALUES, GPU_PART_VALUES_MAX)
}

/// Keys that a partition has, and their positions among those that are asked for.
struct KeysOf<'k> {
    number: usize,
    keys: Vec<&'k [u8]>,
    positions: Vec<usize>,
    /// Where the keys' records may be, if a GPU was asked.
    hints: Vec<u64>,
}

impl Partitions {
    /// Which partition has which of these keys.
    fn share_out_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Vec<KeysOf<'k>> {
        self.share_out(keys.map(|key| (key, self.number_of(key), None)))
    }

    /// The same of keys whose partitions are known, and perhaps where their records may be.
    fn share_out<'k>(
        &self,
        keys: impl Iterator<Item = (&'k [u8], usize, Option<u64>)>,
    ) -> Vec<KeysOf<'k>> {
        let none = |number| KeysOf {
            number,
            keys: Vec::new(),
            positions: Vec::new(),
            hints: Vec::new(),
        };
        let mut shares: Vec<KeysOf> = (0..self.all().len()).map(none).collect();
        let (len, _) = keys.size_hint();
        let of_each = len / shares.len();
        if of_each > 4 {
            // Most partitions have no more than that.
            let room = of_each + of_each / 4;
            for share in &mut shares {
                share.keys.reserve(room);
                share.positions.reserve(room);
            }
        }
        for (position, (key, number, hint)) in keys.enumerate() {
            let share = &mut shares[number];
            share.keys.push(key);
            share.positions.push(position);
            share.hints.extend(hint);
        }
        shares.retain(|share| !share.keys.is_empty());
        shares
    }

    /// What `read` finds in all partitions at one moment. It is given none, and reads what is newest, and if that
    /// changes meanwhile the number of a live snapshot.
    fn at_one_moment<T>(&self, mut read: impl FnMut(Option<u64>) -> Result<T>) -> Result<T> {
        if let Some(only) = self.only() {
            return only.state.at_one_moment(read);
        }
        let newest = || -> Vec<u64> {
            let partitions = self.all().iter();
            partitions.map(|one| one.state.published.newest()).collect()
        };
        for _ in 0..UNREGISTERED_READS {
            let before = newest();
            let found = read(None);
            let clock = &self.shared().clock;
            // A commit that some of them have and others do not is published all the while.
            let is_whole = !(0..self.all().len()).any(|number| clock.is_publishing(number));
            if is_whole && newest() == before {
                return found;
            }
        }
        let snapshot = self.snapshot();
        read(Some(snapshot.commit_seq))
    }

    /// The values of keys at one moment, in their order. `parallel` keys or more are asked for by several threads.
    pub fn get_many(&self, keys: &[&[u8]], parallel: usize) -> Result<Vec<Value>> {
        if let Some(partition) = self.of_all(keys.iter().copied()) {
            return partition.state.get_many(keys, parallel);
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        let shares = self.share_out_keys(keys.iter().copied());
        let read = |is_shared: bool| {
            self.at_one_moment(|snapshot| self.lookup(&shares, keys.len(), snapshot, is_shared))
        };
        match keys.len() < parallel {
            true => read(false),
            false => run_off_pool(|| self.shared().threads.reads.install(|| read(true))),
        }
    }

    /// The values that keys had in a live snapshot, in their order.
    pub fn get_many_at(&self, keys: &[&[u8]], commit_seq: u64) -> Result<Vec<Value>> {
        if let Some(partition) = self.of_all(keys.iter().copied()) {
            return partition.state.get_many_at(keys, commit_seq);
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        let shares = self.share_out_keys(keys.iter().copied());
        let read = |is_shared| self.lookup(&shares, keys.len(), Some(commit_seq), is_shared);
        match keys.len() {
            0..PARALLEL_LOOKUPS_MIN => read(false),
            _ => run_off_pool(|| self.shared().threads.reads.install(|| read(true))),
        }
    }

    /// The values of so many keys in a live snapshot, or the newest ones. With `is_shared`, the threads of the pool in
    /// which the caller is do it side by side.
    fn lookup(
        &self,
        shares: &[KeysOf],
        len: usize,
        snapshot: Option<u64>,
        is_shared: bool,
    ) -> Result<Vec<Value>> {
        let read = |share: &KeysOf| {
            let state = &self.all()[share.number].state;
            state.lookup(&share.keys, &[], snapshot, usize::MAX)
        };
        let found: Vec<Result<Vec<Value>>> = match is_shared {
            true => parallel::map(shares, read),
            false => shares.iter().map(read).collect(),
        };
        let mut values = vec![None; len];
        for (share, found) in shares.iter().zip(found) {
            for (&position, value) in share.positions.iter().zip(found?) {
                values[position] = value;
            }
        }
        Ok(values)
    }

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

    /// The values of keys in a live snapshot, or the newest ones. If they are many, threads of the store read some while
    /// others put those that have been read into the column.
    fn build(
        &self,
        keys: &Columns,
        mut builder: ColumnBuilder,
        snapshot: Option<u64>,
    ) -> Result<ValueColumns> {
        enum Task<'b> {
            Lent(ValuesPart),
            Read(Range<usize>, ValuesPart),
            Copy(PartCopy<'b>),
        }
        let pool = &self.shared().threads.reads;
        let is_short = keys.len() < PARALLEL_LOOKUPS_MIN;
        let threads = match is_short {
            true => 1,
            false => pool.install(parallel::threads),
        };
        let of_wave = PARTS_PER_THREAD * threads;
        #[cfg(feature = "cuda")]
        let began = std::time::Instant::now();
        #[cfg(feature = "cuda")]
        let mut gpu = self.shared().gpu_reads.begin(self, keys.len());
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &mut gpu {
            gpu.begin_column(&mut builder, snapshot.is_none());
        }
        #[cfg(not(feature = "cuda"))]
        let gpu = None::<Located>;
        // All threads wait for what a GPU says of a wave, while it looks for the next one.
        let (waves, most) = match gpu.is_some() {
            true => (GPU_WAVES, gpu_part_values_max(keys, of_wave)),
            false => (1, self.part_values_max()),
        };
        let part = (keys.len() / waves / of_wave).next_multiple_of(PART_VALUES);
        let part = part.clamp(PART_VALUES, most);
        let (mut next, mut read, mut idle) = (0, Vec::new(), Vec::new());
        while next < keys.len() || !read.is_empty() {
            let wave = next..keys.len().min(next + of_wave * part);
            let firsts = wave.clone().step_by(part);
            #[cfg(feature = "cuda")]
            let located = match &mut gpu {
                Some(gpu) if !wave.is_empty() => {
                    let wants_values = snapshot.is_none();
                    pool.install(|| gpu.locate(keys, &wave, wants_values, &mut builder))
                }
                _ => None,
            };
            #[cfg(not(feature = "cuda"))]
            let located = None;
            let located: Option<&Located> = located.as_ref();
            if let Some(copies) = located.and_then(|located| located.extend(&mut builder)) {
                pool.install(|| parallel::map(copies, EndsCopy::run));
                next = wave.end;
                continue;
            }
            let of_part = |first| {
                let positions = first..keys.len().min(first + part);
                let mut part = idle.pop().unwrap_or_default();
                match located.is_some_and(|located| located.lend_all(&positions, &mut part)) {
                    true => Task::Lent(part),
                    false => Task::Read(positions, part),
                }
            };
            let mut tasks: Vec<Task> = firsts.map(of_part).collect();
            next += tasks.len() * part;
            let copies = builder.add(&read, Lent::default()).into_iter();
            tasks.extend(copies.map(Task::Copy));
            let run = |task: Task| match task {
                Task::Lent(part) => Some(Ok(part)),
                Task::Read(positions, part) => {
                    Some(self.read_part(keys, positions, part, snapshot, located))
                }
                Task::Copy(copy) => {
                    copy.run();
                    None
                }
            };
            let are_lent = tasks.iter().all(|task| matches!(task, Task::Lent(_)));
            let done: Vec<Option<Result<ValuesPart>>> = match is_short || are_lent {
                true => tasks.into_iter().map(run).collect(),
                // Not longer than that: who waits there does whatever comes.
                false => pool.install(|| parallel::map(tasks, run)),
            };
            let next_read = done.into_iter().flatten().collect::<Result<_>>()?;
            idle = std::mem::replace(&mut read, next_read);
            if let Some(located) = located {
                // What a GPU has lent is given back with what else it says of the wave.
                let copies = builder.add(&read, located.lent());
                match is_short {
                    true => copies.into_iter().for_each(PartCopy::run),
                    false => drop(pool.install(|| parallel::map(copies, PartCopy::run))),
                }
                idle = std::mem::take(&mut read);
            }
            if let [only] = &read[..]
                && next >= keys.len()
                && only.len() == keys.len()
                && !builder.has_room(only.bytes_len())
            {
                return Ok(concat(read).into());
            }
        }
        #[cfg(feature = "cuda")]
        match gpu {
            Some(gpu) => gpu.done(&mut builder),
            None => {
                let took = began.elapsed();
                self.shared().gpu_reads.note_cpu(keys.len(), took);
            }
        }
        Ok(builder.finish().into())
    }

    /// Notes what a GPU has said: so many values, and hints.
    #[cfg(feature = "cuda")]
    fn note_located(&self, shares: &[KeysOf], values: usize) {
        let hints = shares.iter().flat_map(|share| &share.hints);
        let known = hints.filter(|hint| **hint != 0).count();
        self.shared().gpu_reads.note_located(known + values);
    }

    /// How many keys a thread reads at a time at most: so many of each partition that it has some of them under way all
    /// the time.
    fn part_values_max(&self) -> usize {
        const OF_PARTITION: usize = 256;
        (OF_PARTITION * self.all().len()).clamp(PART_VALUES, PART_VALUES_MAX)
    }

    /// The values of the keys at these positions in a live snapshot, or the newest ones, in place of those of `part`. A GPU
    /// may have been asked where they are.
    fn read_part(
        &self,
        keys: &Columns,
        positions: Range<usize>,
        mut part: ValuesPart,
        snapshot: Option<u64>,
        located: Option<&Located>,
    ) -> Result<ValuesPart> {
        part.clear(positions.len());
        let first = positions.start;
        let shares = match located {
            None => self.share_out_keys(positions.map(|nth| keys.at(nth))),
            Some(located) => {
                let left = match snapshot {
                    None => located.lend(&positions, &mut part),
                    Some(_) => positions.collect(),
                };
                let hinted = left.iter().map(|&nth| {
                    let key = keys.at(nth);
                    (key, self.number_of(key), Some(located.at(nth)))
                });
                let mut shares = self.share_out(hinted);
                for position in shares.iter_mut().flat_map(|share| &mut share.positions) {
                    *position = left[*position] - first;
                }
                #[cfg(feature = "cuda")]
                self.note_located(&shares, part.len() - left.len());
                shares
            }
        };
        for share in shares {
            let (keys, hints) = (&share.keys, &share.hints);
            let state = &self.all()[share.number].state;
            match snapshot {
                None => state.read_up_to(keys, hints, u64::MAX, usize::MAX, |nth, value| {
                    part.set(share.positions[nth], &value);
                })?,
                Some(_) => {
                    let values = state.lookup(keys, hints, snapshot, usize::MAX)?;
                    for (&position, value) in share.positions.iter().zip(values) {
                        if let Some(value) = value {
                            part.set(position, &value);
                        }
                    }
                }
            }
        }
        Ok(part)
    }
}
