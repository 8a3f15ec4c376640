//! The verbs on slices of the host: parts of a batch travel to the device through pinned memory,
//! the next one while one is executed. Slices that the caller has pinned are not copied on the way.

use std::collections::VecDeque;
use std::ops::Range;

use fixedbitset::FixedBitSet;

use super::channel::{Channel, event_on};
use super::kernels::Read;
use super::memory::{is_pinned, wait};
use super::{CudaEngine, sizes};
use crate::Result;
use crate::engine::Write;
use crate::index::table::Table;
use crate::pm::Mapping;

/// Most positions of a part; a multiple of 64. The more there are, the closer together are the places
/// that they touch.
const PART: usize = 1 << 18;

/// The same of parts whose values the device itself delivers: no thread of the host has to be woken
/// for each, and the sooner the first ones are found, the sooner the bus is busy.
const DELIVERED_PART: usize = 1 << 16;

/// Most bytes of keys and values of a part.
const PART_BYTES: usize = 96 << 20;

/// Parts that are looked up, or on their way back, at a time.
const UNDER_WAY: usize = 3;

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
        let attached = self.attached()?;
        let (key_size, value_size) = sizes(table);
        let value_size = if verb == Write::Remove { 0 } else { value_size };
        let len = keys.len() / key_size;
        let mut answers = FixedBitSet::with_capacity(len);
        let mut parts = parts(len, key_size + value_size, PART);
        let stage = |channel: &mut Channel, range: &Range<usize>| {
            let values = &values[range.start * value_size..range.end * value_size];
            let keys = &keys[range.start * key_size..range.end * key_size];
            channel.stage(range.len() as u32, keys, values, values.len())
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
        let attached = self.attached()?;
        let (_, value_size) = sizes(table);
        let pinned = is_pinned(values);
        let mut delivering: Option<Channel> = None;
        let answers = self.look_up(table, Read::Get, keys, value_size, !pinned, |part| {
            let Part {
                mut channel,
                range,
                answers,
            } = part;
            let to = &mut values[range.start * value_size..range.end * value_size];
            if pinned && answers.count_ones(range.clone()) == range.len() {
                // SAFETY: the caller's values are borrowed until all have been delivered: the
                // channel waits for its stream, here or where it is dropped.
                unsafe { channel.deliver_values(to)? };
                if let Some(before) = delivering.replace(channel) {
                    wait(&before.stream)?;
                    attached.give(before);
                }
                return Ok(());
            }
            if pinned {
                channel.fetch_values(to.len(), value_size)?;
            }
            let (mut first, mut rest) = (range.start, to);
            while let Some(arrived) = channel.await_values()? {
                let (to, behind) = rest.split_at_mut(arrived.len());
                copy_found(to, arrived, value_size, answers, first);
                first += to.len() / value_size;
                rest = behind;
            }
            attached.give(channel);
            Ok(())
        })?;
        if let Some(last) = delivering {
            wait(&last.stream)?;
            attached.give(last);
        }
        Ok(answers)
    }

    /// Says which keys are there.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu), [`Error::Damaged`](crate::Error::Damaged).
    pub(crate) fn contains(&self, table: &Table<Mapping>, keys: &[u8]) -> Result<FixedBitSet> {
        let attached = self.attached()?;
        self.look_up(table, Read::Contains, keys, 0, false, |part| {
            attached.give(part.channel);
            Ok(())
        })
    }

    /// Looks up a batch in parts, some of them under way while `finish` has the one before: it finds
    /// the values on the device, and in pinned memory if they are `fetched`.
    fn look_up(
        &self,
        table: &Table<Mapping>,
        verb: Read,
        keys: &[u8],
        value_size: usize,
        fetched: bool,
        mut finish: impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<FixedBitSet> {
        let attached = self.attached()?;
        let (key_size, _) = sizes(table);
        let len = keys.len() / key_size;
        let mut answers = FixedBitSet::with_capacity(len);
        let view = attached.hold_view();
        let longest = match verb {
            Read::Get if !fetched => DELIVERED_PART,
            Read::Get | Read::Contains => PART,
        };
        let mut parts = parts(len, key_size + value_size, longest).peekable();
        let mut under_way = VecDeque::with_capacity(UNDER_WAY);
        let mut looked_up = None;
        loop {
            while under_way.len() < UNDER_WAY
                && let Some(range) = parts.next()
            {
                let mut channel = attached.channel()?;
                let some = range.len() as u32;
                let keys = &keys[range.start * key_size..range.end * key_size];
                let operands = channel.stage(some, keys, &[], range.len() * value_size)?;
                if let Some(before) = looked_up.take() {
                    // Side by side, both would be late.
                    channel.wait_for(before)?;
                }
                attached.begin_read(*view, &mut channel, verb, operands)?;
                if parts.peek().is_some() {
                    looked_up = Some(event_on(&channel.stream)?);
                }
                if fetched {
                    channel.fetch_values(range.len() * value_size, value_size)?;
                }
                under_way.push_back((channel, range));
            }
            let Some((mut channel, range)) = under_way.pop_front() else {
                return Ok(answers);
            };
            attached.end_read(table, &mut channel)?;
            let words = channel.fetched_answers(range.len() as u32);
            keep(&mut answers, range.start, words);
            finish(Part {
                channel,
                range,
                answers: &answers,
            })?;
        }
    }
}

/// A part of a batch that was looked up.
struct Part<'a> {
    channel: Channel,
    range: Range<usize>,
    /// Those of the whole batch, as far as they are known.
    answers: &'a FixedBitSet,
}

/// The parts of a batch of `len` positions of so many bytes, in whole words of answers.
fn parts(len: usize, bytes: usize, longest: usize) -> impl Iterator<Item = Range<usize>> {
    let part = (PART_BYTES / bytes).clamp(64, longest) & !63;
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

/// Copies those values that were found.
fn copy_found(to: &mut [u8], from: &[u8], size: usize, answers: &FixedBitSet, first: usize) {
    use rayon::prelude::*;
    const TOGETHER: usize = 2048;
    let copy_part = |(part, (to, from)): (usize, (&mut [u8], &[u8]))| {
        let first = first + part * TOGETHER;
        let len = to.len() / size;
        if answers.count_ones(first..first + len) == len {
            to.copy_from_slice(&from[..to.len()]);
            return;
        }
        for (nth, value) in to.chunks_exact_mut(size).enumerate() {
            if answers.contains(first + nth) {
                value.copy_from_slice(&from[nth * size..][..size]);
            }
        }
    };
    // Waking other threads takes longer than copying a small batch.
    if to.len() <= 4 * size * TOGETHER {
        copy_part((0, (to, from)));
    } else {
        to.par_chunks_mut(size * TOGETHER)
            .zip(from.par_chunks(size * TOGETHER))
            .enumerate()
            .for_each(copy_part);
    }
}
