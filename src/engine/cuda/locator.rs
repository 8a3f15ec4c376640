//! Where the records of a store's keys are, and what values they have, asked of a GPU that has copies of its tables'
//! buckets and, as far as its memory goes, of their records (H-Rocks §4). Of the others the host compares keys and copies
//! values: it reads random memory faster than the bus does.

use std::collections::HashMap;

use crate::Result;
use crate::gpu::budget::StoreBudget;
use crate::gpu::locator;
use crate::gpu::locator::{
    Answers, BlockId, LINE, Questions, SLOT, Size, SlotId, Staging, TableShape, Terms, Usable,
    VALUE_MAX,
};
use crate::gpu::pinned_pool::PinnedBlock;
use crate::layout::size_class::SMALLEST_RECORD;
use crate::layout::{RecordWord, Shape};
use crate::pm::{Mapping, Medium};
use crate::pool::{parallel, prefetch};
use crate::sync::levels::Levels;
use crate::table::Table;
use crate::width::{to_usize, u32_of};

/// Slots, and lines of records, that are copied to the device at a time.
const SLOTS_AT_ONCE: usize = 1 << 16;
const LINES_AT_ONCE: usize = 1 << 18;

/// Fewest that a thread reads.
const READ_MIN: usize = 1 << 11;

/// How many slots, or lines of records, a thread asks for before it reads them.
const READ_AHEAD_BLOCKS: usize = 16;

/// Parts of notes that threads take at a time.
const NOTES_AT_ONCE: usize = 128;

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

/// A table that is copied.
#[derive(Clone, Copy)]
struct Source<'t> {
    table: &'t Table<Mapping>,
    /// Records are copied that end here or before.
    covered: u64,
}

/// Those of one refresh, each at its number.
type Sources<'t> = [Option<Source<'t>>];

/// A line of a file that is to be copied: the number of the table, and its own.
type LineId = (u8, u64);

/// What [`Locator::refresh`] has done.
pub(crate) struct Refreshed {
    /// For each table, whether its copy is up to date.
    pub(crate) usable: Usable,
    /// One was copied for the first time.
    pub(crate) is_first: bool,
    /// Slots that were copied.
    pub(crate) slots: usize,
    /// No item of any of them was being moved meanwhile: what is in no copied slot was not there.
    pub(crate) is_settled: bool,
}

impl Locator {
    /// Opens the device, for tables of one shape.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn open(ordinal: u32, shape: &Shape, budget: &StoreBudget) -> Result<Self> {
        let shape = TableShape {
            bucket_size: u32_of(shape.bucket_size),
            slots: shape.slots,
            locations: shape.locations,
        };
        Ok(Self {
            device: locator::Locator::open(ordinal, shape, budget)?,
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
        let mut before = before;
        let mut copied = HashMap::new();
        let mut sources = vec![None; tables.len()];
        // Levels first: without them records are of no use.
        let mut fitting: Vec<(u8, &Table<Mapping>, Levels)> = Vec::new();
        for (number, table) in (0..=u8::MAX).zip(tables) {
            let Some(table) = *table else { continue };
            let levels = table.levels.live();
            if self.copy_levels(number, (table, levels), &mut before)? {
                fitting.push((number, table, levels));
            }
        }
        for (number, table, levels) in fitting {
            let source = &mut sources[usize::from(number)];
            let known = before.get(&number);
            let covered = match known.is_none_or(|known| known.has_records) {
                true => self.cover(number, table)?,
                false => 0,
            };
            let has_records = covered > 0;
            *source = Some(Source { table, covered });
            let is = Copied {
                levels,
                has_records,
            };
            copied.insert(number, is);
        }
        let of_bucket = self.shape.bucket_size / SLOT;
        let (mut noted, mut whole) = (Vec::new(), Vec::new());
        let mut copied_slots = 0;
        for (number, source) in (0..=u8::MAX).zip(&sources) {
            let Some(Source { table, .. }) = *source else {
                continue;
            };
            let levels = copied[&number].levels;
            let kept = levels.kept_of(before.get(&number).map(|known| known.levels));
            for part in table.changed_parts(levels) {
                match kept.contains(&part.level) {
                    true => noted.push((number, table, part)),
                    // They are read with all others of the level.
                    false => table.take_changed_slots(&part, |_, _| {}),
                }
            }
            for level in (levels.bottom..=levels.top).filter(|level| !kept.contains(level)) {
                for bucket in 0..1 << level {
                    whole.push(SlotId {
                        partition: number,
                        level,
                        bucket,
                        number: 0,
                    });
                    copied_slots += of_bucket as usize;
                    if whole.len() == SLOTS_AT_ONCE / of_bucket as usize {
                        self.copy(&sources, &whole, of_bucket)?;
                        whole.clear();
                    }
                }
            }
            self.copy(&sources, &whole, of_bucket)?;
            whole.clear();
        }
        let mut single: Vec<SlotId> = Vec::new();
        for parts in noted.chunks(NOTES_AT_ONCE) {
            let taken = parallel::map_if_shared(parts, |(number, table, part)| {
                let mut slots = Vec::new();
                table.take_changed_slots(part, |bucket, slot| {
                    slots.push(SlotId {
                        partition: *number,
                        level: part.level,
                        bucket,
                        number: slot,
                    });
                });
                slots
            });
            single.extend(taken.into_iter().flatten());
            if single.len() >= SLOTS_AT_ONCE {
                copied_slots += self.copy_singly(&sources, &mut single)?;
            }
        }
        copied_slots += self.copy_singly(&sources, &mut single)?;
        // An item that moves on may have left its slot before that was copied, and have come to one that was not. Levels are only
        // added while the caller keeps them, so as many as before are the same.
        let is_settled = (0..=u8::MAX).zip(&sources).all(|(number, source)| {
            source.is_none_or(|Source { table, .. }| {
                let levels = table.levels.live();
                levels == copied[&number].levels && !levels.draining(table.shape.levels)
            })
        });
        let is_first = copied.keys().any(|number| !before.contains_key(number));
        let mut usable = Usable::default();
        for (number, _) in sources.iter().enumerate().filter(|(_, one)| one.is_some()) {
            usable[number / 64] |= 1 << (number % 64);
        }
        self.copied = before;
        self.copied.extend(copied);
        Ok(Refreshed {
            usable,
            is_first,
            slots: copied_slots,
            is_settled,
        })
    }

    /// Makes room for the levels of a table, those of records if it must. Says whether the budget has any; the table has no
    /// copy otherwise.
    fn copy_levels(
        &mut self,
        number: u8,
        (table, levels): (&Table<Mapping>, Levels),
        before: &mut HashMap<u8, Copied>,
    ) -> Result<bool> {
        let had = before.get(&number).map(|known| known.levels);
        if had == Some(levels) {
            return Ok(true);
        }
        let live = levels.bottom..=levels.top;
        let kept = levels.kept_of(had);
        // Records that would not make enough room stay.
        let records = self.device.record_bytes();
        let has_room = self.device.has_levels_room(number, &live, &kept, records);
        while !self.device.has_levels_room(number, &live, &kept, 0) {
            let with_records = before.iter_mut().find(|(_, known)| known.has_records);
            let Some((&other, known)) = with_records.filter(|_| has_room) else {
                self.device.give_up(number, false)?;
                before.remove(&number);
                return Ok(false);
            };
            tracing::info!(
                number = other,
                "the GPU has no memory for a table's records"
            );
            known.has_records = false;
            self.device.give_up(other, true)?;
        }
        self.device
            .make_room(number, &live, &kept, table.hash_seed)?;
        Ok(true)
    }

    /// Makes room for the records of a table; gives up to where.
    fn cover(&mut self, number: u8, table: &Table<Mapping>) -> Result<u64> {
        let len = table.medium.len();
        let covered = self.device.cover(number, len, table.verifies_records())?;
        if covered == 0 {
            tracing::info!(number, len, "the GPU has no memory for a table's records");
        }
        Ok(covered)
    }

    /// Copies single slots to the device, which are then not asked for any more; gives how many.
    fn copy_singly(&mut self, sources: &Sources, slots: &mut Vec<SlotId>) -> Result<usize> {
        slots
            .chunks(SLOTS_AT_ONCE)
            .try_for_each(|slots| self.copy(sources, slots, 1))?;
        Ok(slots.drain(..).len())
    }

    /// Copies slots to the device, each with those behind it up to `count`, and the records that they name: they are read
    /// together. The device takes no other slot from a bucket, whose record may lie where it has an older one.
    fn copy(&mut self, sources: &Sources, slots: &[SlotId], count: u32) -> Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        let size = (count * SLOT) as usize;
        let words = size / size_of::<u64>();
        let staging = self.device.staging(slots.len(), size)?;
        let parts = slots.chunks(READ_MIN);
        let parts = parts.zip(staging.words.chunks_mut(READ_MIN * words));
        let parts = parts.zip(staging.ids.chunks_mut(READ_MIN));
        let lines = parallel::map_if_shared(parts, |((slots, staged), ids)| {
            let mut lines = Vec::new();
            let source = |slot: &SlotId| sources[usize::from(slot.partition)];
            let ask = |slot| source(slot).into_iter().for_each(|one| one.ask_slot(slot));
            let mut asked = prefetch::in_turn(slots.iter(), READ_AHEAD_BLOCKS, ask).zip(ids);
            for some in staged.chunks_mut(READ_AHEAD_BLOCKS * words) {
                let named = asked.by_ref().take(some.len() / words);
                let named: Vec<&SlotId> = named
                    .zip(some.chunks_mut(words))
                    .map(|((slot, id), words)| {
                        *id = BlockId::slot(*slot, staging.units_per_bucket);
                        if let Some(source) = source(slot) {
                            source.read_slots(slot, words);
                        }
                        slot
                    })
                    .collect();
                for (slot, words) in named.into_iter().zip(some.chunks_mut(words)) {
                    if let Some(source) = source(slot) {
                        source.find_lines(*slot, words, &mut lines);
                    }
                }
            }
            lines
        });
        self.device.store_slots()?;
        let block = u64::from(LINE) + size_of::<BlockId>() as u64;
        let most = to_usize(self.device.staged_bytes_max() / block).min(LINES_AT_ONCE);
        let parts = lines.iter().flat_map(|part| part.chunks(most));
        let parts: Vec<&[LineId]> = parts.collect();
        let (mut first, mut count) = (0, 0);
        for (nth, part) in parts.iter().enumerate() {
            if count + part.len() > most {
                self.copy_lines(sources, &parts[first..nth])?;
                (first, count) = (nth, 0);
            }
            count += part.len();
        }
        match count {
            0 => Ok(()),
            _ => self.copy_lines(sources, &parts[first..]),
        }
    }

    /// Copies lines of records to the device, of which threads have found a part each.
    fn copy_lines(&mut self, sources: &Sources, lines: &[&[LineId]]) -> Result<()> {
        const WORDS: usize = LINE as usize / size_of::<u64>();
        let count = lines.iter().map(|part| part.len()).sum();
        let Staging { words, ids, .. } = self.device.staging(count, LINE as usize)?;
        let (mut words, mut ids) = (words, ids);
        let parts = lines.iter().map(|lines| {
            let words = words.split_off_mut(..lines.len() * WORDS);
            let ids = ids.split_off_mut(..lines.len());
            (lines, words.unwrap_or_default(), ids.unwrap_or_default())
        });
        parallel::map_if_shared(parts.collect::<Vec<_>>(), |(lines, staged, ids)| {
            let source = |number: u8| sources[usize::from(number)];
            let ask = |&(number, line): &LineId| {
                if let Some(source) = source(number) {
                    source.table.medium.prefetch(line * u64::from(LINE));
                }
            };
            let lines = prefetch::in_turn(lines.iter(), READ_AHEAD_BLOCKS, ask);
            let blocks = lines.zip(staged.chunks_mut(WORDS)).zip(ids);
            for ((&(number, line), words), id) in blocks {
                *id = BlockId::line(number, line);
                if let Some(source) = source(number) {
                    source.table.copy_words(line * u64::from(LINE), words);
                }
            }
        });
        Ok(self.device.store_lines()?)
    }

    /// Whether so much can be asked in each of the exchanges: the budget may have no room for it.
    pub(crate) fn has_room(&self, size: Size) -> bool {
        self.device.has_room(size)
    }

    /// Whether the device has records of any table.
    pub(crate) fn has_records(&self) -> bool {
        self.copied.values().any(|copied| copied.has_records)
    }

    /// Asks for keys in one of the exchanges, of which it then gives the [answers](Self::answers). `ask` says which keys.
    /// The tables that are usable were [brought up to date](Self::refresh). A value that is given is whole.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn ask(
        &mut self,
        exchange: usize,
        size: Size,
        terms: &Terms,
        ask: impl FnOnce(Questions<'_>),
    ) -> Result<()> {
        ask(self.device.questions(exchange, size)?);
        Ok(self.device.ask(exchange, terms)?)
    }

    /// See [`locator::Locator::block_for`].
    pub(crate) fn block_for(&self, values: usize) -> (Option<PinnedBlock>, bool) {
        self.device.block_for(values)
    }

    /// See [`locator::Locator::begin_column`].
    pub(crate) fn begin_column(&mut self, block: Option<PinnedBlock>) {
        self.device.begin_column(block);
    }

    /// See [`locator::Locator::take_block`].
    pub(crate) fn take_block(
        &mut self,
        used: usize,
    ) -> Option<std::result::Result<PinnedBlock, Vec<u8>>> {
        self.device.take_block(used)
    }

    /// See [`locator::Locator::end_column`].
    pub(crate) fn end_column(&mut self, keys: usize, asked: usize) {
        self.device.end_column(keys, asked);
    }

    /// Waits for the answers of an exchange but for values, which are then on their way.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn fetch(&mut self, exchange: usize) -> Result<()> {
        Ok(self.device.fetch(exchange)?)
    }

    /// Waits for the values of an exchange, which were [fetched](Self::fetch).
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub(crate) fn arrive(&mut self, exchange: usize) -> Result<()> {
        Ok(self.device.arrive(exchange)?)
    }

    /// What an exchange has answered, all of which has [arrived](Self::arrive).
    pub(crate) fn answers(&self, exchange: usize) -> Answers<'_> {
        self.device.answers(exchange)
    }
}

impl Source<'_> {
    /// Asks for a slot.
    fn ask_slot(self, id: &SlotId) {
        let at = self.table.slot_offset(id.level, (id.bucket, id.number));
        self.table.medium.prefetch(at);
    }

    /// Puts the words of some slots into `words`, and asks for the lengths of the records that they name.
    fn read_slots(self, id: &SlotId, words: &mut [u64]) {
        self.table
            .copy_slots(id.level, (id.bucket, id.number), words);
        for slot in words.chunks_exact(2) {
            let record = RecordWord(slot[1]);
            if self.covered > 0 && record.is_member() {
                self.table.medium.prefetch(record.offset());
            }
        }
    }

    /// Adds the lines of the records that some slots name to `lines`. A slot whose record the device cannot have becomes
    /// empty: the device may have an older one where that lies.
    fn find_lines(self, id: SlotId, words: &mut [u64], lines: &mut Vec<LineId>) {
        if self.covered == 0 {
            return;
        }
        for (number, slot) in (id.number..).zip(words.chunks_exact_mut(2)) {
            let record = RecordWord(slot[1]);
            if !record.is_member() {
                continue;
            }
            let at = record.offset();
            let Some(lengths) = self.table.lengths(at) else {
                slot[1] = RecordWord::NONE.0;
                continue;
            };
            // Of one with a longer value than the device copies, so much that it is not taken for an older one.
            let len = match lengths.value <= VALUE_MAX {
                true => lengths.record(),
                false => SMALLEST_RECORD,
            };
            if at + len > self.covered {
                // The file has become longer since.
                slot[1] = RecordWord::NONE.0;
                self.table.note_slot_again(id.level, (id.bucket, number));
                continue;
            }
            let line = u64::from(LINE);
            let all = at / line..(at + len).div_ceil(line);
            lines.extend(all.map(|line| (id.partition, line)));
        }
    }
}
