//! Where the records of a store's keys are, asked of a GPU that has copies of its tables' buckets (H-Rocks §4; the
//! keys themselves are compared by the host, which reads random memory faster than the bus does).

use std::collections::HashMap;

use crate::Result;
use crate::gpu::locator;
use crate::gpu::locator::{BucketId, TableShape};
use crate::layout::Shape;
use crate::pm::Mapping;
use crate::pool::parallel;
use crate::table::Table;
use crate::table::levels::Levels;
use crate::width::u32_of;

/// Buckets that are copied to the device at a time.
const COPIED_AT_ONCE: usize = 1 << 15;

/// Fewest that a thread reads.
const READ_BUCKETS_MIN: usize = 1 << 10;

/// See the [module](self). It serves the tables of one store, each by its number.
pub(crate) struct Locator {
    device: locator::Locator,
    shape: TableShape,
    /// The levels of each table that the device has a copy of.
    copied: HashMap<u8, Levels>,
}

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
            let known = before.get(&number).copied();
            let kept = levels.kept_of(known);
            if known != Some(levels) {
                let live = levels.bottom..=levels.top;
                self.device.make_room(number, &live, &kept)?;
            }
            is_first |= known.is_none();
            let mut add = |level, bucket| {
                coming.push(BucketId {
                    partition: number,
                    level,
                    number: bucket,
                });
                match coming.len() {
                    COPIED_AT_ONCE => self.copy(tables, &mut coming),
                    _ => Ok(()),
                }
            };
            table.take_changed_buckets(levels, |level, bucket| match kept.contains(&level) {
                true => add(level, bucket),
                // It is read with all others of the level.
                false => Ok(()),
            })?;
            for level in (levels.bottom..=levels.top).filter(|level| !kept.contains(level)) {
                (0..1 << level).try_for_each(|bucket| add(level, bucket))?;
            }
            copied.insert(number, levels);
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

    /// Copies buckets to the device.
    fn copy(
        &mut self,
        tables: &[Option<&Table<Mapping>>],
        buckets: &mut Vec<BucketId>,
    ) -> Result<()> {
        if buckets.is_empty() {
            return Ok(());
        }
        let words = self.shape.bucket_size as usize / size_of::<u64>();
        let staging = self.device.staging(buckets.len())?;
        let parts = buckets.chunks(READ_BUCKETS_MIN);
        let parts = parts.zip(staging.chunks_mut(READ_BUCKETS_MIN * words));
        parallel::map_if_shared(parts, |(ids, staged)| {
            for (id, bucket) in ids.iter().zip(staged.chunks_mut(words)) {
                if let Some(table) = tables[usize::from(id.partition)] {
                    table.copy_bucket(id.level, id.number, bucket);
                }
            }
        });
        self.device.store(buckets)?;
        buckets.clear();
        Ok(())
    }

    /// Asks for `len` keys. `ask` fills in the fingerprint of each, and the number of its table. Gives the offset of the
    /// record that a slot names beside each fingerprint, in the file of its table, and those numbers. The offset is 0
    /// if there is none nearby, and means nothing for a table that was not [brought up to date](Self::refresh). Another
    /// key may have the fingerprint.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn find(
        &mut self,
        len: usize,
        ask: impl FnOnce(&mut [u64], &mut [u8]),
    ) -> Result<(&[u64], &[u8])> {
        let (fingerprints, tables) = self.device.questions(len)?;
        ask(fingerprints, tables);
        Ok(self.device.find(len)?)
    }
}
