//! A lookup of keys of the host, in parts.

use std::collections::VecDeque;
use std::ops::Range;

use fixedbitset::FixedBitSet;
use rayon::ThreadPool;

use super::{copied, keep, len_of, parts};
use crate::Result;
use crate::engine::cuda::batch::read::ReadBatch;
use crate::engine::cuda::batch::sizes;
use crate::engine::cuda::kernels::Read;
use crate::engine::cuda::stream::{BatchStream, Payload, event_on};
use crate::engine::cuda::table::DeviceTable;
use crate::gpu::abi::TableView;
use crate::gpu::event::Event;
use crate::pm::Mapping;
use crate::pool::parallel;
use crate::table::Table;
use crate::table::record::ValuePart;

/// Parts that are looked up at a time.
const PARTS_IN_FLIGHT: usize = 2;

impl DeviceTable {
    /// Looks up a batch in parts, and copies what is `wanted` of each value. While the values of one are
    /// copied, the next ones are under way.
    pub(super) fn lookup(
        &self,
        table: &Table<Mapping>,
        verb: Read,
        wanted: ValuePart,
        keys: &[u8],
        mut values: &mut [u8],
    ) -> Result<FixedBitSet> {
        let device_table = self;
        let (key_size, value_size) = (sizes(table).0, wanted.len as usize);
        let fetched_size = if verb == Read::Get { value_size } else { 0 };
        let len = keys.len() / key_size;
        let mut answers = FixedBitSet::with_capacity(len);
        let _permit = device_table.lookups.take();
        // What was found is not used again while this is held.
        let view = device_table.hold_view();
        let view_of_part = TableView {
            value_offset: wanted.offset,
            value_size: wanted.len,
            ..*view
        };
        let mut before: Option<Event> = None;
        let mut begin = |range: Range<usize>, copiers: Option<&ThreadPool>| {
            let mut batch_stream = device_table.batch_stream()?;
            let keys = &keys[range.start * key_size..range.end * key_size];
            let fetched = range.len() * fetched_size;
            let (len_of_part, room) = (len_of(&range), Payload::Room(fetched));
            // SAFETY: this call borrows the keys, and ends when each stream was waited for: at its part's
            // end, or where it is dropped after an error.
            let operands = unsafe { batch_stream.stage(copiers, len_of_part, keys, room)? };
            if let Some(before) = before.take() {
                // Of equal keys, the later ones are told what is so later.
                batch_stream.stream.wait_for(&before)?;
            }
            // SAFETY: the operands are buffers of this stream, which goes on to another batch only after
            // this one has ended, and frees them only after a wait. The view is held meanwhile.
            let batch = unsafe {
                device_table.begin_read(view_of_part, &mut batch_stream, verb, operands)?
            };
            if range.end < len {
                before = Some(event_on(&batch_stream.stream)?);
            }
            Ok((batch_stream, batch, range))
        };
        let mut parts = parts(device_table, len, (key_size, fetched_size));
        let copiers: &ThreadPool = &device_table.copiers;
        let first = parts.by_ref().take(PARTS_IN_FLIGHT);
        let mut in_flight: VecDeque<(BatchStream, ReadBatch, Range<usize>)> = first
            .map(|range| begin(range, Some(copiers)))
            .collect::<Result<_>>()?;
        while let Some((mut batch_stream, batch, range)) = in_flight.pop_front() {
            device_table.end_read(table, &mut batch_stream, &batch)?;
            let words = batch_stream.fetched_answers(len_of(&range));
            keep(&mut answers, range.start, words);
            let of_part = values.len().min(range.len() * value_size);
            let (to, behind) = std::mem::take(&mut values).split_at_mut(of_part);
            values = behind;
            let part_keys = &keys[range.start * key_size..range.end * key_size];
            let mut gathered = Ok(());
            let next = copiers.in_place_scope(|scope| {
                let mut sharers = Some(copiers);
                match verb {
                    Read::Contains => {}
                    Read::Get => copy_found(to, batch_stream.fetched_values(), range, &answers),
                    Read::Locate => {
                        let offsets = batch_stream.offsets(len_of(&range));
                        scope.spawn(|_| gathered = gather(table, wanted, part_keys, offsets, to));
                        // They have enough to do.
                        sharers = None;
                    }
                }
                parts.next().map(|range| begin(range, sharers)).transpose()
            });
            in_flight.extend(next?);
            gathered?;
            device_table.give(batch_stream);
        }
        Ok(answers)
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

/// Copies what is `wanted` of the values of a part from their offsets in the file, 0 for none, on several
/// threads, and compares their checksums if the table wants that.
fn gather(
    table: &Table<Mapping>,
    wanted: ValuePart,
    keys: &[u8],
    offsets: &[u64],
    values: &mut [u8],
) -> Result<()> {
    let (key_size, size) = (sizes(table).0, wanted.len as usize);
    let record = |at: u64| at - u64::from(wanted.offset);
    let copied = copied(size);
    let keys = keys.chunks(copied * key_size);
    let parts = values.chunks_mut(copied * size).zip(offsets.chunks(copied));
    let gathered = parallel::map(parts.zip(keys), |((values, offsets), keys)| {
        table.medium.gather(offsets, values);
        if !table.verifies_values() {
            return Ok(());
        }
        let keys = keys.chunks_exact(key_size);
        let mut found = offsets.iter().zip(keys).filter(|&(&at, _)| at != 0);
        match found.find(|&(&at, key)| !table.value_is_whole(record(at), table.target(key).hash)) {
            None => Ok(()),
            Some((&at, _)) => Err(table.spoilt(record(at))),
        }
    });
    gathered.into_iter().collect()
}
