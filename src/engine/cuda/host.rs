//! The verbs on slices of the host: parts of a batch travel to the device through pinned memory,
//! the next one while one is executed. Slices that the caller has pinned are not copied on the way.

use fixedbitset::FixedBitSet;

use super::channel::Channel;
use super::kernels::Read;
use super::memory::{is_pinned, wait};
use super::{CudaEngine, sizes};
use crate::Result;
use crate::engine::Write;
use crate::index::table::Table;
use crate::pm::Mapping;

/// Most positions that are on the device at a time; a multiple of 64.
const PART: usize = 1 << 18;

/// Most bytes of keys and values that are on the device at a time.
const PART_BYTES: usize = 64 << 20;

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
        let part = part_len(key_size + value_size);
        let stage = |channel: &mut Channel, first: usize| {
            let end = len.min(first + part);
            let values = &values[first * value_size..end * value_size];
            let keys = &keys[first * key_size..end * key_size];
            channel.stage((end - first) as u32, keys, values, values.len())
        };
        if len == 0 {
            return Ok(answers);
        }
        let mut writer = attached.writer();
        let mut channel = attached.channel()?;
        let mut operands = stage(&mut channel, 0)?;
        for first in (0..len).step_by(part) {
            // The next part travels while this one is executed.
            let batch = attached.begin_write(table, &mut writer, &mut channel, verb, operands)?;
            let next = if first + part < len {
                let mut next = attached.channel()?;
                Some((stage(&mut next, first + part)?, next))
            } else {
                None
            };
            attached.end_write(table, &mut writer, &mut channel, verb, batch)?;
            keep(&mut answers, first, channel.fetched_answers(operands.len));
            let done = match next {
                Some((staged, next)) => {
                    operands = staged;
                    std::mem::replace(&mut channel, next)
                }
                None => break,
            };
            attached.give(done);
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
        let (key_size, value_size) = sizes(table);
        let len = keys.len() / key_size;
        let pinned = is_pinned(values);
        let part = part_len(key_size + value_size);
        let mut answers = FixedBitSet::with_capacity(len);
        let view = attached.hold_view();
        let mut under_way: Option<(Channel, usize, u32)> = None;
        let mut delivering: Option<Channel> = None;
        for first in (0..len).step_by(part).map(Some).chain([None]) {
            // One part is copied to the caller while the next one is looked up.
            let next = match first {
                Some(first) => {
                    let end = len.min(first + part);
                    let mut channel = attached.channel()?;
                    let some = (end - first) as u32;
                    let room = (end - first) * value_size;
                    let keys = &keys[first * key_size..end * key_size];
                    let operands = channel.stage(some, keys, &[], room)?;
                    attached.begin_read(*view, &mut channel, Read::Get, operands)?;
                    if !pinned {
                        channel.fetch_values(room)?;
                    }
                    Some((channel, first, some))
                }
                None => None,
            };
            let Some((mut channel, first, some)) = std::mem::replace(&mut under_way, next) else {
                continue;
            };
            attached.end_read(table, &channel)?;
            keep(&mut answers, first, channel.fetched_answers(some));
            let some = some as usize;
            let to = &mut values[first * value_size..][..some * value_size];
            if pinned && answers.count_ones(first..first + some) == some {
                // SAFETY: the caller's values are borrowed until all have been delivered: the
                // channel waits for its stream, here or where it is dropped.
                unsafe { channel.deliver_values(to)? };
                if let Some(before) = delivering.replace(channel) {
                    wait(&before.stream)?;
                    attached.give(before);
                }
                continue;
            }
            if pinned {
                channel.fetch_values(to.len())?;
                wait(&channel.stream)?;
            }
            copy_found(to, channel.fetched_values(), value_size, &answers, first);
            attached.give(channel);
        }
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
        let (key_size, _) = sizes(table);
        let len = keys.len() / key_size;
        let part = part_len(key_size);
        let mut answers = FixedBitSet::with_capacity(len);
        let view = attached.hold_view();
        for first in (0..len).step_by(part) {
            let end = len.min(first + part);
            let mut channel = attached.channel()?;
            let some = (end - first) as u32;
            let operands = channel.stage(some, &keys[first * key_size..end * key_size], &[], 0)?;
            attached.begin_read(*view, &mut channel, Read::Contains, operands)?;
            attached.end_read(table, &channel)?;
            keep(&mut answers, first, channel.fetched_answers(some));
            attached.give(channel);
        }
        Ok(answers)
    }
}

/// Positions of `bytes` each that are on the device at a time: whole words of answers.
fn part_len(bytes: usize) -> usize {
    (PART_BYTES / bytes).clamp(64, PART) & !63
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
    const TOGETHER: usize = 8192;
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
    if to.len() <= size * TOGETHER {
        copy_part((0, (to, from)));
    } else {
        to.par_chunks_mut(size * TOGETHER)
            .zip(from.par_chunks(size * TOGETHER))
            .enumerate()
            .for_each(copy_part);
    }
}
