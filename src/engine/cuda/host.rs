//! The verbs on slices of the host: parts of a batch travel to the device through pinned memory,
//! the next one while one is executed. Slices that the caller has pinned are not copied on the way.
//!
//! The values of a long batch of gets do not travel at all. The file is in the host's memory, so the
//! device only says where each value is, and threads of the host copy them from there.

use std::collections::VecDeque;
use std::ops::Range;

use cust::event::Event;
use fixedbitset::FixedBitSet;
use rayon::ThreadPool;
use rayon::prelude::*;

use super::batch::ReadBatch;
use super::channel::{Channel, event_on};
use super::kernels::Read;
use super::{CudaEngine, sizes};
use crate::Result;
use crate::engine::Write;
use crate::index::table::Table;
use crate::pm::Mapping;
use crate::threads::undisturbed;

/// Most positions of a part; a multiple of 64. The more there are, the closer together are the places
/// that they touch.
const PART: usize = 1 << 18;

/// Most bytes of keys and values of a part.
const PART_BYTES: usize = 96 << 20;

/// Parts that are looked up at a time.
const UNDER_WAY: usize = 2;

/// Most positions, and most bytes of keys and values, of a batch that the caller's thread serves alone:
/// waking others would take longer.
const SHORT: (usize, usize) = (8192, 1 << 20);

/// Values that one thread copies at a time, and about how many bytes of them at most.
const COPIED: (usize, usize) = (2048, 1 << 18);

impl CudaEngine {
    /// Executes a batch that changes the table. `values` is empty for [`Write::Remove`].
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`], and those of a table that cannot grow.
    pub(crate) fn write(
        &self,
        table: &Table<Mapping>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
    ) -> Result<FixedBitSet> {
        match is_short(table, keys, values) {
            true => self.write_parts(table, verb, keys, values),
            false => undisturbed(|| self.write_parts(table, verb, keys, values)),
        }
    }

    fn write_parts(
        &self,
        table: &Table<Mapping>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
    ) -> Result<FixedBitSet> {
        let attached = self.attached()?;
        let (key_size, value_size) = sizes(table);
        let value_size = if verb == Write::Remove { 0 } else { value_size };
        let len = keys.len() / key_size;
        let mut answers = FixedBitSet::with_capacity(len);
        let mut parts = parts(len, key_size + value_size);
        let stage = |channel: &mut Channel, range: &Range<usize>| {
            let values = &values[range.start * value_size..range.end * value_size];
            let keys = &keys[range.start * key_size..range.end * key_size];
            let copiers = &attached.copiers;
            channel.stage(
                Some(copiers),
                range.len() as u32,
                keys,
                values,
                values.len(),
            )
        };
        let Some(mut range) = parts.next() else {
            return Ok(answers);
        };
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        let mut operands = stage(&mut channel, &range)?;
        loop {
            // The next part travels while this one is executed.
            let batch = attached.begin_write(table, &mut writer, &mut channel, verb, operands)?;
            let next = parts.next().map(|range| {
                let mut next = attached.channel()?;
                Ok((stage(&mut next, &range)?, next, range))
            });
            attached.end_write(table, &mut writer, &mut channel, verb, batch)?;
            let words = channel.fetched_answers(operands.len);
            keep(&mut answers, range.start, words);
            let Some(next) = next.transpose()? else {
                break;
            };
            attached.give(std::mem::replace(&mut channel, next.1));
            (operands, range) = (next.0, next.2);
        }
        attached.give(channel);
        Ok(answers)
    }

    /// Copies the values of the keys that are there.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged).
    pub(crate) fn get(
        &self,
        table: &Table<Mapping>,
        keys: &[u8],
        values: &mut [u8],
    ) -> Result<FixedBitSet> {
        match is_short(table, keys, values) {
            true => self.look_up(table, Read::Get, keys, values),
            false => undisturbed(|| self.look_up(table, Read::Locate, keys, values)),
        }
    }

    /// Says which keys are there.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged).
    pub(crate) fn contains(&self, table: &Table<Mapping>, keys: &[u8]) -> Result<FixedBitSet> {
        let contains = || self.look_up(table, Read::Contains, keys, &mut []);
        match is_short(table, keys, &[]) {
            true => contains(),
            false => undisturbed(contains),
        }
    }

    /// Looks up a batch in parts. While the values of one are copied, the next ones are under way.
    fn look_up(
        &self,
        table: &Table<Mapping>,
        verb: Read,
        keys: &[u8],
        mut values: &mut [u8],
    ) -> Result<FixedBitSet> {
        let attached = self.attached()?;
        let (key_size, value_size) = sizes(table);
        let fetched_size = if verb == Read::Get { value_size } else { 0 };
        let len = keys.len() / key_size;
        let mut answers = FixedBitSet::with_capacity(len);
        // What was found is not used again while this is held.
        let view = attached.hold_view();
        let mut before: Option<Event> = None;
        let mut begin = |range: Range<usize>, copiers: Option<&ThreadPool>| {
            let mut channel = attached.channel()?;
            let keys = &keys[range.start * key_size..range.end * key_size];
            let fetched = range.len() * fetched_size;
            let operands = channel.stage(copiers, range.len() as u32, keys, &[], fetched)?;
            if let Some(before) = before.take() {
                // Of equal keys, the later ones are told what is so later.
                channel.wait_for(before)?;
            }
            let batch = attached.begin_read(*view, &mut channel, verb, operands)?;
            if range.end < len {
                before = Some(event_on(&channel.stream)?);
            }
            Ok((channel, batch, range))
        };
        let mut parts = parts(len, key_size + fetched_size);
        let copiers = &attached.copiers;
        let first = parts.by_ref().take(UNDER_WAY);
        let mut under_way: VecDeque<(Channel, ReadBatch, Range<usize>)> = first
            .map(|range| begin(range, Some(copiers)))
            .collect::<Result<_>>()?;
        while let Some((mut channel, batch, range)) = under_way.pop_front() {
            attached.end_read(table, &mut channel, &batch)?;
            let words = channel.fetched_answers(range.len() as u32);
            keep(&mut answers, range.start, words);
            let of_part = values.len().min(range.len() * value_size);
            let (to, behind) = std::mem::take(&mut values).split_at_mut(of_part);
            values = behind;
            let next = copiers.in_place_scope(|scope| {
                let mut sharers = Some(copiers);
                match verb {
                    Read::Contains => {}
                    Read::Get => copy_found(to, channel.fetched_values(), range, &answers),
                    Read::Locate => {
                        let places = channel.fetched_places(range.len() as u32);
                        scope.spawn(|_| gather(&table.medium, places, to));
                        // They have enough to do.
                        sharers = None;
                    }
                }
                parts.next().map(|range| begin(range, sharers)).transpose()
            });
            under_way.extend(next?);
            attached.give(channel);
        }
        Ok(answers)
    }
}

/// Whether the caller's thread serves a batch alone.
fn is_short(table: &Table<Mapping>, keys: &[u8], values: &[u8]) -> bool {
    keys.len() / sizes(table).0 <= SHORT.0 && keys.len() + values.len() <= SHORT.1
}

/// The parts of a batch of `len` positions of so many bytes, in whole words of answers.
fn parts(len: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let part = (PART_BYTES / bytes).clamp(64, PART) & !63;
    (0..len)
        .step_by(part)
        .map(move |first| first..len.min(first + part))
}

/// Enters the answer words of the positions from `first`, a multiple of 64, on.
fn keep(answers: &mut FixedBitSet, first: usize, words: impl Iterator<Item = u64>) {
    let blocks = &mut answers.as_mut_slice()[first / 64..];
    for (block, word) in blocks.iter_mut().zip(words) {
        *block = word as usize;
    }
}

/// Copies the values of those positions of a part that have one.
fn copy_found(to: &mut [u8], from: &[u8], part: Range<usize>, answers: &FixedBitSet) {
    let size = to.len() / part.len();
    let values = to.chunks_exact_mut(size).zip(from.chunks_exact(size));
    for (position, (to, from)) in part.zip(values) {
        if answers.contains(position) {
            to.copy_from_slice(from);
        }
    }
}

/// Copies the values of a part from their places in the file, 0 for none, on several threads.
fn gather(file: &Mapping, places: &[u64], values: &mut [u8]) {
    let size = values.len() / places.len();
    let copied = (COPIED.1 / size).clamp(1, COPIED.0);
    values
        .par_chunks_mut(copied * size)
        .zip(places.par_chunks(copied))
        .for_each(|(values, places)| file.gather(places, values));
}
