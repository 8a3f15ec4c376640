//! Columns of values at one moment.

use std::borrow::Cow;
use std::ops::Range;

use super::Partitions;
#[cfg(feature = "cuda")]
use super::gpu_reads::ColumnKind;
use super::reads::Seen;
use crate::Result;
use crate::pool::split::{CHUNK_REQUESTS, Split};
use crate::pool::{parallel, run_off_pool};
use crate::store::columns::{
    ColumnBuilder, Columns, PART_VALUES, ValueColumns, ValuesPart, assemble,
};
use crate::store::commit::requests::Batch;
use crate::store::inner::PARALLEL_LOOKUPS_MIN;
use crate::width::low_byte;

/// A position of a column of which something is known before it is read: its value, or that it has none.
pub(super) type Known<'v> = (usize, Option<&'v [u8]>);

/// What is known of some positions, in their order.
pub(super) type KnownOf<'c, 'v> = dyn Fn(&Range<usize>) -> Vec<Known<'v>> + Sync + 'c;

/// Keys of a column that a thread reads at a time.
const PART_KEYS: usize = 2 * PART_VALUES;

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
        let is_long = keys.len() >= PARALLEL_LOOKUPS_MIN;
        let read = || match snapshot {
            Some(_) => read_at(snapshot),
            None => self.at_one_moment(is_long, &mut read_at),
        };
        match is_long {
            // The threads of the caller's pool may have other things to do for him.
            false => parallel::alone(read),
            true => run_off_pool(read),
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
            let kind = ColumnKind::of_gets(snapshot);
            if let Some(turn) = gpu_reads.begin(self, keys.len(), kind) {
                let read = |positions, part| self.read_part(keys, positions, part, snapshot);
                let build = || self.build_with_gpu(keys, builder, turn, &read, None, snapshot);
                return self.shared().threads.reads.install(build);
            }
            let began = std::time::Instant::now();
            let built = self.build_on_cpu(keys, builder, snapshot)?;
            gpu_reads.note_cpu(keys.len(), kind, began.elapsed());
            Ok(built)
        }
        #[cfg(not(feature = "cuda"))]
        self.build_on_cpu(keys, builder, snapshot)
    }

    fn build_on_cpu(
        &self,
        keys: &Columns,
        builder: ColumnBuilder,
        snapshot: Option<u64>,
    ) -> Result<ValueColumns> {
        let read = |positions, part| self.read_part(keys, positions, part, snapshot);
        let is_long = keys.len() >= PARALLEL_LOOKUPS_MIN;
        let build = || assemble((keys.len(), PART_KEYS), is_long, builder, &read).map(Into::into);
        match is_long {
            true => self.shared().threads.reads.install(build),
            false => build(),
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
        part.clear(positions.len());
        let key = |nth| keys.at(positions.start + nth);
        let numbers = self.numbers(positions.len(), key);
        let read = self.read(&numbers, key, snapshot, |nth, value| part.set(nth, &value));
        match snapshot {
            Some(snapshot) => self.see(&numbers, key, snapshot, read, &mut part)?,
            None => read?,
        }
        Ok(part)
    }

    /// Gives a part, whose keys partitions of these numbers have, what a live snapshot sees, where that is not what the
    /// part was given since, if it was `given` that.
    ///
    /// # Errors
    /// As [`seen`](Self::seen).
    pub(super) fn see<'k>(
        &self,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8] + Copy,
        snapshot: u64,
        given: Result<()>,
        part: &mut ValuesPart,
    ) -> Result<()> {
        match self.seen(numbers, key, snapshot, given)? {
            Seen::Some(seen) => part.replace(&seen),
            Seen::All(values) => {
                part.clear(numbers.len());
                let values = values.iter().enumerate();
                let values = values.filter_map(|(nth, value)| Some((nth, value.as_ref()?)));
                values.for_each(|(nth, value)| part.set(nth, value));
            }
        }
        Ok(())
    }

    /// The values for the gets of a batch in columns, in the order of its requests and in the buffers of a column. `earlier`
    /// knows what an earlier request of the batch has left of the key of the one at a position. Nobody changes the partitions meanwhile, whose
    /// tables have all commits.
    pub(super) fn answer_columns<'v>(
        &self,
        batch: Batch,
        split: &Split,
        buffers: ValueColumns,
        earlier: impl Fn(usize, &[u8]) -> Option<Option<&'v [u8]>> + Sync,
    ) -> Result<ValueColumns> {
        let known = |positions: &Range<usize>| {
            let known = |position| match batch.at(position) {
                get if get.is_get() => Some((position, earlier(position, get.key())?)),
                _ => Some((position, None)),
            };
            positions.clone().filter_map(known).collect()
        };
        let read = |positions: Range<usize>, part| {
            self.read_unknown((batch, split), positions, part, &known)
        };
        let len = split.requests();
        let builder = ColumnBuilder::new(len, buffers.into_buffers());
        #[cfg(feature = "cuda")]
        let began = std::time::Instant::now();
        #[cfg(feature = "cuda")]
        if let Batch::Columns(columns) = batch {
            let (gpu_reads, kind) = (&self.shared().gpu_reads, ColumnKind::of(columns));
            if let Some(turn) = gpu_reads.begin(self, len, kind) {
                let (keys, known) = (columns.keys(), Some(&known as &KnownOf));
                return self.build_with_gpu(keys, builder, turn, &read, known, None);
            }
        }
        let is_shared = len > CHUNK_REQUESTS && parallel::is_shared();
        let column = assemble((len, CHUNK_REQUESTS), is_shared, builder, &read)?.into();
        #[cfg(feature = "cuda")]
        if let Batch::Columns(columns) = batch {
            let (gpu_reads, kind) = (&self.shared().gpu_reads, ColumnKind::of(columns));
            gpu_reads.note_cpu(len, kind, began.elapsed());
        }
        Ok(column)
    }

    /// The values at these positions of a column of requests, in place of those of `part`: what is known, and the newest
    /// ones.
    fn read_unknown(
        &self,
        (batch, split): (Batch, &Split),
        positions: Range<usize>,
        mut part: ValuesPart,
        known: &KnownOf,
    ) -> Result<ValuesPart> {
        part.clear(positions.len());
        let (mut asked, mut numbers) = (Vec::new(), Vec::new());
        // The user's partitioner is not asked again: a panic of it here would be one of the store.
        let mut known = known(&positions).into_iter().peekable();
        for (nth, position) in positions.enumerate() {
            match known.next_if(|&(known, _)| known == position) {
                Some((_, Some(value))) => part.set(nth, value),
                Some((_, None)) => {}
                None => {
                    asked.push((nth, batch.key(position)));
                    let (number, _) = split.counts()[split.rank(position)];
                    numbers.push(low_byte(number as u64));
                }
            }
        }
        let key = |of_asked: usize| asked[of_asked].1;
        let found = |of_asked: usize, value: Cow<'_, [u8]>| part.set(asked[of_asked].0, &value);
        self.read_tables(&numbers, key, found)?;
        Ok(part)
    }
}
