//! A batch of the host that changes the table, in parts.

use std::collections::VecDeque;
use std::ops::Range;

use fixedbitset::FixedBitSet;
use parking_lot::MutexGuard;

use super::{copied, keep, len_of, parts};
use crate::engine::Write;
use crate::engine::cuda::batch::sizes;
use crate::engine::cuda::stream::{BatchStream, Operands, Payload};
use crate::engine::cuda::table::{DeviceTable, Integrity, Taken, Writer};
use crate::layout::checksum::value_checksum;
use crate::layout::shape::CHECKSUM_BYTES;
use crate::pm::{Mapping, Medium};
use crate::pool::parallel;
use crate::table::Table;
use crate::width::to_usize;
use crate::{Error, Result};

/// How values come to their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    /// They are sent to the device, which writes them.
    Sent,
    /// Threads of the host write them, as far as there are records at hand.
    Stored,
}

/// The batch.
struct Changes<'b> {
    device_table: &'b DeviceTable,
    table: &'b Table<Mapping>,
    verb: Write,
    keys: &'b [u8],
    values: &'b [u8],
    transfer: Transfer,
    writer: MutexGuard<'b, Writer>,
    /// The part under way, then the next one.
    in_flight: VecDeque<Part>,
    answers: FixedBitSet,
}

/// A part of it.
struct Part {
    range: Range<usize>,
    batch_stream: BatchStream,
    /// The records that the host writes the values to, where the device does not do that; the stream has
    /// their offsets.
    records: Option<Taken>,
    /// Whether the device has been told of them.
    launched: bool,
}

impl DeviceTable {
    /// Executes a batch that changes the table.
    pub(super) fn change(
        &self,
        table: &Table<Mapping>,
        verb: Write,
        keys: &[u8],
        values: &[u8],
        transfer: Transfer,
    ) -> Result<FixedBitSet> {
        let mut batch = Changes {
            device_table: self,
            table,
            verb,
            keys,
            values,
            transfer,
            writer: self.writer()?,
            in_flight: VecDeque::new(),
            answers: FixedBitSet::with_capacity(keys.len() / sizes(table).0),
        };
        let executed = batch.execute();
        if executed.is_err() {
            batch.give_back();
        }
        executed.map(|()| batch.answers)
    }
}

impl Changes<'_> {
    fn execute(&mut self) -> Result<()> {
        let (device_table, table, verb) = (self.device_table, self.table, self.verb);
        let sizes = (self.key_size(), self.value_size());
        let mut parts = parts(device_table, self.answers.len(), sizes);
        let Some(range) = parts.next() else {
            return Ok(());
        };
        self.take(range)?;
        let mut operands = self.stage(0)?;
        loop {
            let part = &mut self.in_flight[0];
            device_table
                .exclusive(table, &mut self.writer, &mut part.batch_stream)
                .drain_slice_if_possible(part.range.len() as u64)?;
            // Records are taken while nothing is launched that retires some.
            if let Some(range) = parts.next() {
                self.take(range)?;
            }
            let part = &mut self.in_flight[0];
            let mut exclusive =
                device_table.exclusive(table, &mut self.writer, &mut part.batch_stream);
            // SAFETY: the operands are buffers of the part's stream, which reuses them for no other
            // batch before this one has ended, and frees them only after a wait.
            let batch = unsafe { exclusive.begin_write(verb, operands)? };
            part.launched = true;
            // The values of the next part are written while this one is executed.
            let next = (self.in_flight.len() > 1).then(|| self.stage(1));
            let batch_stream = &mut self.in_flight[0].batch_stream;
            device_table
                .exclusive(table, &mut self.writer, batch_stream)
                .end_write(verb, batch)?;
            if let Some(part) = self.in_flight.pop_front() {
                let words = part.batch_stream.fetched_answers(operands.len);
                keep(&mut self.answers, part.range.start, words);
                device_table.give(part.batch_stream);
            }
            match next {
                Some(next) => operands = next?,
                None => return Ok(()),
            }
        }
    }

    fn key_size(&self) -> usize {
        sizes(self.table).0
    }

    /// Bytes of a value, if the verb has any.
    fn value_size(&self) -> usize {
        match self.verb {
            Write::Remove => 0,
            _ => sizes(self.table).1,
        }
    }

    /// Makes a part the next one, with records if they are at hand.
    fn take(&mut self, range: Range<usize>) -> Result<()> {
        let mut part = Part {
            batch_stream: self.device_table.batch_stream()?,
            records: None,
            launched: false,
            range,
        };
        if self.transfer == Transfer::Stored && self.value_size() > 0 {
            // The part before takes what it wants when it is executed.
            let before = self.in_flight.front();
            let before = before.filter(|before| before.records.is_none());
            let wanted = part.range.len();
            let all = (wanted + before.map_or(0, |before| before.range.len())) as u64;
            let table = self.table;
            let mut exclusive =
                self.device_table
                    .exclusive(table, &mut self.writer, &mut part.batch_stream);
            exclusive.refill_without_growth(all)?;
            let missing = all.saturating_sub(exclusive.writer.record_pool.available());
            let has_room = table.medium.prepared() > table.medium.len();
            if missing > 0 && has_room {
                match exclusive.find_records(missing) {
                    Ok(()) => exclusive.refill_without_growth(all)?,
                    Err(error @ Error::Gpu { .. }) => return Err(error),
                    // The launch that misses them fails as well, unless it needs fewer.
                    Err(_) => {}
                }
            }
            let pool = &mut self.writer.record_pool;
            if pool.available() >= all {
                let (stream, offsets) = part.batch_stream.offsets_mut(len_of(&part.range))?;
                part.records = Some(pool.take(stream, offsets)?);
            }
        }
        self.in_flight.push_back(part);
        Ok(())
    }

    /// Sends a part on its way to the device, and writes its values into its records.
    fn stage(&mut self, nth: usize) -> Result<Operands> {
        let (key_size, value_size) = (self.key_size(), self.value_size());
        let part = &mut self.in_flight[nth];
        let len = len_of(&part.range);
        let keys = &self.keys[part.range.start * key_size..part.range.end * key_size];
        let values = &self.values[part.range.start * value_size..part.range.end * value_size];
        let copiers = &self.device_table.copiers;
        let batch_stream = &mut part.batch_stream;
        let Some(records) = &part.records else {
            // SAFETY: the batch borrows keys and values for longer than its parts live. A part that is
            // dropped waits for its stream.
            return unsafe {
                batch_stream.stage(Some(copiers), len, keys, Payload::Values(values))
            };
        };
        let (table, copied) = (self.table, copied(value_size));
        let (_, offsets) = batch_stream.offsets_mut(len)?;
        copiers.install(|| {
            let values = values.chunks(copied * value_size);
            let operands = values.zip(keys.chunks(copied * key_size));
            let parts = offsets.chunks_mut(copied).zip(operands).enumerate();
            parallel::map(parts, |(nth, (offsets, (values, keys)))| {
                records.enter_runs(nth * copied, offsets);
                match table.shape.checksum_offset() {
                    None => table.medium.scatter(offsets, values),
                    Some(_) => {
                        let records = with_checksums(table, keys, values);
                        table.medium.scatter(offsets, &records);
                    }
                }
            });
        });
        // SAFETY: as above.
        unsafe { batch_stream.stage(Some(copiers), len, keys, Payload::Offsets) }
    }

    /// Gives back the records that an error has left without an item.
    fn give_back(&mut self) {
        if self.writer.is_torn() {
            // Who has which record, the recovery finds out.
            return;
        }
        for mut part in self.in_flight.drain(..) {
            let given = part.unused().and_then(|records| {
                self.device_table
                    .exclusive(self.table, &mut self.writer, &mut part.batch_stream)
                    .make_ring_room(records.len() as u64)?;
                let stream = &part.batch_stream.stream;
                self.writer.record_pool.give(stream, &records)
            });
            if let Err(error) = given {
                tracing::warn!(%error, "records are lost until the next recovery");
                self.writer.integrity = Integrity::Torn(error);
            }
        }
    }
}

/// The records of values, each with the checksum of its value and its key.
fn with_checksums(table: &Table<Mapping>, keys: &[u8], values: &[u8]) -> Vec<u8> {
    let (key_size, value_size) = sizes(table);
    let record_len = to_usize(table.shape.value_record_len());
    let items = keys
        .chunks_exact(key_size)
        .zip(values.chunks_exact(value_size));
    let mut records = vec![0; items.len() * record_len];
    for (record, (key, value)) in records.chunks_exact_mut(record_len).zip(items) {
        record[..value_size].copy_from_slice(value);
        let sum = value_checksum(table.target(key).hash, value);
        record[record_len - to_usize(CHECKSUM_BYTES)..].copy_from_slice(&sum.to_le_bytes());
    }
    records
}

impl Part {
    /// The records that nothing leads to, once the device is done with the part.
    fn unused(&mut self) -> Result<Vec<u64>> {
        let Some(taken) = &self.records else {
            return Ok(Vec::new());
        };
        let (_, offsets) = self.batch_stream.offsets_mut(len_of(&self.range))?;
        taken.enter_runs(0, offsets);
        let mut records = offsets.to_vec();
        if self.launched {
            let mut pending = self.batch_stream.fetch_pending(records.len())?.into_iter();
            records.retain(|_| pending.next() == Some(1));
        }
        Ok(records)
    }
}
