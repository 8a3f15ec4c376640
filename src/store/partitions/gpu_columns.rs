//! Columns of values at one moment, a wave at a time, with what a GPU says of each.

use std::borrow::Cow;
use std::ops::Range;

use fixedbitset::FixedBitSet;

use super::Partitions;
use super::column_reads::{Known, KnownOf};
use super::gpu_questions::Asked;
use super::gpu_reads::{Located, Turn};
use crate::Result;
use crate::pool::parallel;
use crate::store::columns::{
    ColumnBuilder, Columns, EndsCopy, Lent, PART_VALUES, PartCopy, ValueColumns, ValuesPart,
};

/// Parts of a wave that each thread reads.
const PARTS_PER_THREAD: usize = 2;

/// Waves of a column, at least: all threads wait for what a GPU says of one, while it looks for the next one.
const WAVES: usize = 2;

/// Most values that a thread reads at a time: what a GPU lends for all threads is still in a cache when they copy it.
const PART_VALUES_MAX: usize = 8 * PART_VALUES;

/// Most bytes of keys that go to a GPU at a time: the host's memory for them is pinned.
pub const GPU_KEY_BYTES_MAX: usize = 16 << 20;

/// How many keys a part has at most, so that those of so many parts are few bytes.
fn part_values_max(keys: &Columns, parts: usize) -> usize {
    let bytes = keys.bytes_of(&(0..keys.len())).len();
    let of_key = bytes / keys.len().max(1) + 1;
    // Some may be longer than others.
    let fits = GPU_KEY_BYTES_MAX / 2 / of_key / parts;
    (fits / PART_VALUES * PART_VALUES).clamp(PART_VALUES, PART_VALUES_MAX)
}

/// Keys that a partition has, and their positions among those that are asked for.
struct KeysOf<'k> {
    number: usize,
    keys: Vec<&'k [u8]>,
    positions: Vec<usize>,
    /// Where the keys' records may be, or 0.
    hints: Vec<u64>,
}

enum Task {
    Lent(ValuesPart),
    Read(Range<usize>, ValuesPart),
}

impl Partitions {
    /// The values of keys in a live snapshot, or the newest ones, but for those that are `known`; `read` reads parts without
    /// the GPU. The caller is on a thread of the pool that is to share the work.
    pub(super) fn build_with_gpu(
        &self,
        keys: &Columns,
        mut builder: ColumnBuilder,
        mut gpu: Turn,
        read: &(dyn Fn(Range<usize>, ValuesPart) -> Result<ValuesPart> + Sync),
        known: Option<&KnownOf>,
        snapshot: Option<u64>,
    ) -> Result<ValueColumns> {
        gpu.begin_column(&mut builder);
        let asked = Asked::new(keys, known);
        let of_wave = PARTS_PER_THREAD * parallel::threads();
        let part = (keys.len() / WAVES / of_wave).next_multiple_of(PART_VALUES);
        let part = part.clamp(PART_VALUES, part_values_max(keys, of_wave));
        let mut idle = Vec::new();
        while builder.len() < keys.len() {
            let first = builder.len();
            let wave = first..keys.len().min(first + of_wave * part);
            let located = gpu.locate(&asked, &wave, &mut builder);
            if let Some(copies) = located.as_ref().and_then(|said| said.extend(&mut builder)) {
                parallel::map(copies, EndsCopy::run);
                continue;
            }
            let of_part = |first| {
                let positions = first..wave.end.min(first + part);
                let mut part: ValuesPart = idle.pop().unwrap_or_default();
                let is_lent = |said: &Located| said.lend_all(&positions, &mut part);
                // What a snapshot sees, or an earlier request has left, may be another value.
                let is_as_found = known.is_none() && snapshot.is_none();
                match is_as_found && located.as_ref().is_some_and(is_lent) {
                    true => Task::Lent(part),
                    false => Task::Read(positions, part),
                }
            };
            let tasks: Vec<Task> = wave.clone().step_by(part).map(of_part).collect();
            let run = |task: Task| match task {
                Task::Lent(part) => Ok(part),
                Task::Read(positions, part) => match &located {
                    Some(located) => {
                        let known = known.map(|known| known(&positions));
                        let of_part = (positions, part, known.unwrap_or_default());
                        self.read_located(keys, of_part, snapshot, located)
                    }
                    None => read(positions, part),
                },
            };
            let are_lent = tasks.iter().all(|task| matches!(task, Task::Lent(_)));
            let read: Vec<Result<ValuesPart>> = match are_lent {
                true => tasks.into_iter().map(run).collect(),
                // Not longer than that: who waits there does whatever comes.
                false => parallel::map(tasks, run),
            };
            let read: Vec<ValuesPart> = read.into_iter().collect::<Result<_>>()?;
            // What a GPU has lent is given back with what else it says of the wave.
            let lent = located.as_ref().map_or(Lent::default(), Located::lent);
            let copies = builder.add(&read, lent);
            parallel::map(copies, PartCopy::run);
            idle = read;
        }
        gpu.done(&mut builder);
        asked.complete(&mut builder);
        Ok(builder.finish().into())
    }

    /// The values of the keys at these positions in a live snapshot, or the newest ones, in place of those of `part`, but for
    /// those that are `known`, if any are. A GPU was asked where they are.
    fn read_located(
        &self,
        keys: &Columns,
        (positions, mut part, known): (Range<usize>, ValuesPart, Vec<Known>),
        snapshot: Option<u64>,
        located: &Located,
    ) -> Result<ValuesPart> {
        part.clear(positions.len());
        let first = positions.start;
        let mut is_known = FixedBitSet::with_capacity(positions.len());
        for &(position, known) in &known {
            is_known.insert(position - first);
            known
                .into_iter()
                .for_each(|value| part.set(position - first, value));
        }
        let is_known = |nth: usize| is_known.contains(nth);
        let left = located.lend(&positions, &mut part, is_known);
        let hinted = left.iter().map(|&nth| (keys.at(nth), located.at(nth)));
        let mut shares = self.share_out(hinted);
        for position in shares.iter_mut().flat_map(|share| &mut share.positions) {
            *position = left[*position] - first;
        }
        self.note_located(&shares, part.len() - left.len() - known.len());
        let mut read = shares.iter().map(|share| {
            let found = |nth: usize, value: Cow<'_, [u8]>| part.set(nth, &value);
            self.read_share(share, snapshot, found)
        });
        let read = read.try_for_each(|read| read);
        match snapshot {
            Some(snapshot) => {
                let key = |nth| keys.at(first + nth);
                let numbers = self.numbers(part.len(), key);
                self.see(&numbers, key, snapshot, read, &mut part)?;
            }
            None => read?,
        }
        Ok(part)
    }

    /// Which partition has which of these keys, where their records may be, or 0.
    fn share_out<'k>(&self, keys: impl Iterator<Item = (&'k [u8], u64)>) -> Vec<KeysOf<'k>> {
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
                share.hints.reserve(room);
            }
        }
        for (position, (key, hint)) in keys.enumerate() {
            let share = &mut shares[self.number_of(key)];
            share.keys.push(key);
            share.positions.push(position);
            share.hints.push(hint);
        }
        shares.retain(|share| !share.keys.is_empty());
        shares
    }

    /// Gives `found` position and value of each key of one partition that has one: the newest one or, with a live snapshot,
    /// that of its moment or of a later one.
    fn read_share(
        &self,
        share: &KeysOf,
        snapshot: Option<u64>,
        mut found: impl FnMut(usize, Cow<'_, [u8]>) + Send,
    ) -> Result<()> {
        let KeysOf {
            keys,
            positions,
            hints,
            ..
        } = share;
        let found = |nth: usize, value: Cow<'_, [u8]>| found(positions[nth], value);
        let moment = snapshot.unwrap_or(u64::MAX);
        let state = &self.all()[share.number].state;
        state.read_up_to(keys, hints, moment, found)
    }

    /// Notes what a GPU has said: so many values, and hints.
    fn note_located(&self, shares: &[KeysOf], values: usize) {
        let hints = shares.iter().flat_map(|share| &share.hints);
        let known = hints.filter(|hint| **hint != 0).count();
        self.shared().gpu_reads.note_located(known + values);
    }
}
