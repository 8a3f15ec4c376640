//! Where the records of a store's keys are, and what values they have, asked of a GPU that has copies of its tables'
//! buckets and, as far as its memory goes, of their records (H-Rocks §4). Of the others the host compares keys and copies
//! values: it reads random memory faster than the bus does.

use std::collections::HashMap;

use crate::Result;
use crate::gpu::locator;
use crate::gpu::locator::{Answers, BucketId, LINE, Questions, TableShape, VALUE_MAX};
use crate::layout::size_class::SMALLEST_RECORD;
use crate::layout::{RecordWord, Shape};
use crate::pm::{Mapping, Medium};
use crate::pool::parallel;
use crate::table::Table;
use crate::table::levels::Levels;
use crate::width::u32_of;

/// Buckets that are copied to the device at a time.
const COPIED_AT_ONCE: usize = 1 << 13;

/// Fewest that a thread reads.
const READ_BUCKETS_MIN: usize = 1 << 8;

/// Fewest lines of records that a thread reads.
const READ_LINES_MIN: usize = 1 << 12;

/// All slots of a bucket, of which there are at most 32.
const ALL_SLOTS: u32 = u32::MAX;

/// See the [module](self). It serves the tables of one store, each by its number.
pub(crate) struct Locator {
    device: locator::Locator,
    shape: TableShape,
    copied: HashMap<u8, Copied>,
}

/// What the device has a copy of, of a table.
#[derive(Debug, Clone, Copy)]
struct Copied {
    levels: Levels,
    /// The records, too.
    has_records: bool,
}

/// A bucket that is to be copied, and the slots of it whose records are, a bit for each.
type Coming = (BucketId, u32);

/// A line of a file that is to be copied: the number of the table, and its own.
type LineId = (u8, u64);

/// What [`Locator::refresh`] has done.
pub(crate) struct Refreshed {
    /// For each table, whether its copy is up to date.
    pub(crate) usable: Vec<bool>,
    /// One was copied for the first time.
    pub(crate) is_first: bool,
}

impl Locator {
    /// Opens the device, for tables of one shape.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn open(ordinal: u32, shape: &Shape) -> Result<Self> {
        let shape = TableShape {
            bucket_size: u32_of(shape.bucket_size),
            slots: shape.slots,
            locations: shape.locations,
        };
        Ok(Self {
            device: locator::Locator::open(ordinal, shape)?,
            shape,
            copied: HashMap::new(),
        })
    }

    /// Brings the copies of tables up to date, each at its number, as far as they are given. From then on these
    /// name no record that is used again while the caller, who is pinned to the tables and keeps their levels, stays so.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu). All are copied anew then.
    pub(crate) fn refresh(&mut self, tables: &[Option<&Table<Mapping>>]) -> Result<Refreshed> {
        let before = std::mem::take(&mut self.copied);
        let mut copied = HashMap::new();
        let mut is_first = false;
        let mut coming = Vec::new();
        for (number, table) in (0..=u8::MAX).zip(tables) {
            let Some(table) = table else { continue };
            let levels = table.levels.live();
            let known = before.get(&number);
            let had = known.map(|known| known.levels);
            let kept = levels.kept_of(had);
            if had != Some(levels) {
                let live = levels.bottom..=levels.top;
                self.device.make_room(number, &live, &kept)?;
            }
            is_first |= known.is_none();
            let had_records = known.is_none_or(|known| known.has_records);
            let has_records = had_records && self.cover(number, table)?;
            let mut add = |level, bucket, slots| {
                let id = BucketId {
                    partition: number,
                    level,
                    number: bucket,
                };
                coming.push((id, if has_records { slots } else { 0 }));
                match coming.len() {
                    COPIED_AT_ONCE => self.copy(tables, &mut coming),
                    _ => Ok(()),
                }
            };
            table.take_changed_slots(levels, |level, bucket, slots| {
                match kept.contains(&level) {
                    true => add(level, bucket, slots),
                    // It is read with all others of the level.
                    false => Ok(()),
                }
            })?;
            for level in (levels.bottom..=levels.top).filter(|level| !kept.contains(level)) {
                (0..1 << level).try_for_each(|bucket| add(level, bucket, ALL_SLOTS))?;
            }
            let is = Copied {
                levels,
                has_records,
            };
            copied.insert(number, is);
        }
        self.copy(tables, &mut coming)?;
        let is_copied = |number| copied.contains_key(&number);
        let usable = (0..=u8::MAX)
            .zip(tables)
            .map(|(number, _)| is_copied(number))
            .collect();
        self.copied = before;
        self.copied.extend(copied);
        Ok(Refreshed { usable, is_first })
    }

    /// Makes room for the records of a table; `false` if the device has not so much.
    fn cover(&mut self, number: u8, table: &Table<Mapping>) -> Result<bool> {
        let len = table.medium.len();
        let is_covered = self.device.cover(number, len, table.verifies_records())?;
        if !is_covered {
            tracing::info!(number, len, "the GPU has no memory for a table's records");
        }
        Ok(is_covered)
    }

    /// Copies buckets and records to the device.
    fn copy(
        &mut self,
        tables: &[Option<&Table<Mapping>>],
        buckets: &mut Vec<Coming>,
    ) -> Result<()> {
        if buckets.is_empty() {
            return Ok(());
        }
        let size = self.shape.bucket_size as usize;
        let words = size / size_of::<u64>();
        let staging = self.device.staging(buckets.len(), size)?;
        let parts = buckets.chunks(READ_BUCKETS_MIN);
        let parts = parts.zip(staging.chunks_mut(READ_BUCKETS_MIN * words));
        let lines = parallel::map_if_shared(parts, |(coming, staged)| {
            let mut lines = Vec::new();
            for ((id, slots), bucket) in coming.iter().zip(staged.chunks_mut(words)) {
                if let Some(table) = tables[usize::from(id.partition)] {
                    table.copy_bucket(id.level, id.number, bucket);
                    add_lines(table, id.partition, (bucket, *slots), &mut lines);
                }
            }
            lines
        });
        let ids: Vec<BucketId> = buckets.drain(..).map(|(id, _)| id).collect();
        self.device.store(&ids)?;
        self.copy_lines(tables, &lines.concat())
    }

    /// Copies lines of records to the device.
    fn copy_lines(&mut self, tables: &[Option<&Table<Mapping>>], lines: &[LineId]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        const WORDS: usize = LINE as usize / size_of::<u64>();
        let staging = self.device.staging(lines.len(), LINE as usize)?;
        let parts = lines.chunks(READ_LINES_MIN);
        let parts = parts.zip(staging.chunks_mut(READ_LINES_MIN * WORDS));
        parallel::map_if_shared(parts, |(lines, staged)| {
            for (&(number, line), words) in lines.iter().zip(staged.chunks_mut(WORDS)) {
                if let Some(table) = tables[usize::from(number)] {
                    table.copy_words(line * u64::from(LINE), words);
                }
            }
        });
        Ok(self.device.store_lines(lines)?)
    }

    /// Asks for `len` keys, which have `key_bytes` in all if their values are wanted. `ask` says which. What is answered
    /// means nothing for a table that was not [brought up to date](Self::refresh). A value that is given is whole, and of
    /// a record without a bit of `excluded` in its sequence number.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn find(
        &mut self,
        len: usize,
        key_bytes: Option<usize>,
        excluded: u64,
        ask: impl FnOnce(Questions<'_>),
    ) -> Result<Answers<'_>> {
        let lens = (len, key_bytes.unwrap_or(0));
        ask(self.device.questions(lens.0, lens.1)?);
        Ok(self.device.find(lens, key_bytes.is_some(), excluded)?)
    }
}

/// Adds the lines of the records that some slots of a bucket name. Of a record whose value is longer than the device
/// copies, which must not be taken for the one before there, these are the first ones.
fn add_lines(
    table: &Table<Mapping>,
    number: u8,
    (bucket, slots): (&[u64], u32),
    lines: &mut Vec<LineId>,
) {
    for (nth, slot) in bucket.chunks_exact(2).enumerate() {
        let record = RecordWord(slot[1]);
        if slots >> nth & 1 == 0 || !record.is_member() {
            continue;
        }
        let at = record.offset();
        let Some(lengths) = table.lengths(at) else {
            continue;
        };
        let len = match lengths.value <= VALUE_MAX {
            true => lengths.record(),
            false => SMALLEST_RECORD,
        };
        let line = u64::from(LINE);
        lines.extend((at / line..(at + len).div_ceil(line)).map(|line| (number, line)));
    }
}
