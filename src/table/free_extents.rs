//! Free extents: ranges of the file that hold nothing, and that an arena of any class may take.
//!
//! Whenever one comes or goes, the extent table is rewritten in its other area (`docs/format.md`, Extent
//! table). Both copies of the superblock name the new one before anybody uses what it says.

use super::Table;
use crate::Result;
use crate::layout::extent::MAX_EXTENTS;
use crate::layout::shape::extent_alignment;
use crate::layout::superblock::Features;
use crate::layout::{EXTENT_TABLE_LEN, ExtentEntry, ExtentKind, LINE, PAGE, Superblock, align_up};
use crate::pm::Medium;
use crate::sync::{MutexGuard, Ordering};
use crate::table::alloc::arena::Victims;
use crate::width::{to_usize, u32_of};
use crate::{Domain, Error};

/// Nothing shorter is split off what is taken.
const LEAST_REST: u64 = 64 << 10;

/// Entries of the extent table that are left to growth.
const SPARE_ENTRIES: u32 = 128;

/// Extents are emptied in parts of this share of the file.
const PART_SHARE: u64 = 512;

/// No part is shorter.
#[cfg(not(test))]
const PART_BYTES_MIN: u64 = 1 << 20;
#[cfg(test)]
const PART_BYTES_MIN: u64 = 16 << 10;

/// By this share of its length the file grows before growth looks again for extents that are empty.
const LOOK_AGAIN_SHARE: u64 = 8;

/// Free extents that have less than this share of their blocks are as good as without.
const BLOCKS_SHARE: u64 = 8;

/// What a new level is cleared with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How far a free extent has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// After a crash it may be an arena again.
    Fresh,
    /// A checkpoint that has been begun makes it free for good.
    Captured,
    /// That checkpoint is being made durable.
    Saving,
    /// It is free for good, and may have blocks and memory.
    Settled,
    /// The file system is taking it.
    Leaving,
    /// It has blocks: the file system does not take them.
    Kept,
    /// As [`Settled`](Self::Settled), but it may lack blocks: an opening found it.
    Found,
    /// It has neither.
    Released,
}

#[derive(Debug, Clone, Copy)]
struct FreeExtent {
    offset: u64,
    len: u64,
    stage: Stage,
}

impl Stage {
    /// Whether it may lack blocks.
    fn may_lack_blocks(self) -> bool {
        matches!(self, Self::Found | Self::Released)
    }
}

impl FreeExtent {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// The free extents of a table, by their offsets. Changes while the superblock is held.
#[derive(Debug, Default)]
pub(crate) struct FreeExtents {
    extents: Vec<FreeExtent>,
    /// Length of the file from which growth looks again for extents that are empty.
    look_from: u64,
}

impl FreeExtents {
    /// Those that an opening finds in a file of `file_len` bytes, and the gaps between extents. They may have blocks if the
    /// file has more that are `allocated` than all else takes, whether it was closed or not: who closed it may not have
    /// come to give them back, and a copy may have them again.
    pub(crate) fn found(
        ranges: Vec<(u64, u64)>,
        gaps: Vec<(u64, u64)>,
        file_len: u64,
        allocated: Option<u64>,
    ) -> Self {
        let all: u64 = ranges.iter().map(|(_, len)| len).sum();
        let may_have = |blocks: u64| blocks > file_len.saturating_sub(all) + all / BLOCKS_SHARE;
        let mut free = Self {
            extents: Vec::new(),
            look_from: file_len + file_len / LOOK_AGAIN_SHARE,
        };
        let stage = match allocated.is_none_or(may_have) {
            true => Stage::Found,
            false => Stage::Released,
        };
        for (offset, len) in ranges {
            free.add(offset, len, stage);
        }
        for (offset, len) in gaps {
            free.add(offset, len, Stage::Found);
        }
        free
    }

    /// Bytes of all of them, and of those that the file system may still have to take.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let all = self.extents.iter().map(|extent| extent.len).sum();
        let held = (self.extents.iter())
            .filter(|extent| extent.stage != Stage::Released)
            .map(|extent| extent.len);
        (all, held.sum())
    }

    fn add(&mut self, offset: u64, len: u64, stage: Stage) {
        self.extents.push(FreeExtent { offset, len, stage });
        self.join();
    }

    /// Makes one of neighbours that are equally far.
    fn join(&mut self) {
        self.extents.sort_unstable_by_key(|extent| extent.offset);
        self.extents.dedup_by(|next, extent| {
            // Whoever has one leave knows it by its range.
            let joins = extent.end() == next.offset
                && extent.stage == next.stage
                && extent.stage != Stage::Leaving;
            if joins {
                extent.len += next.len;
            }
            joins
        });
    }

    /// Takes `wanted` bytes, or, where there are not so many in one range, the most that there are, but at
    /// least `least`; where blocks are needed, of what has them.
    fn take(&mut self, least: u64, wanted: u64, needs_blocks: bool) -> Option<FreeExtent> {
        let ready = || {
            let extents = self.extents.iter().enumerate();
            extents.filter(|(_, extent)| {
                let has_blocks = !extent.stage.may_lack_blocks();
                extent.stage != Stage::Leaving && (has_blocks || !needs_blocks)
            })
        };
        let enough = ready()
            .filter(|(_, extent)| extent.len >= wanted)
            .min_by_key(|(_, extent)| extent.len);
        let most = || {
            ready()
                .filter(|(_, extent)| extent.len >= least)
                .max_by_key(|(_, extent)| extent.len)
        };
        let (index, &extent) = enough.or_else(most)?;
        if extent.len < wanted + LEAST_REST {
            return Some(self.extents.remove(index));
        }
        let rest = &mut self.extents[index];
        rest.offset += wanted;
        rest.len -= wanted;
        Some(FreeExtent {
            len: wanted,
            ..extent
        })
    }

    /// Takes `len` bytes from a multiple of `alignment` on, of the shortest range that has them.
    fn take_aligned(&mut self, len: u64, alignment: u64) -> Option<FreeExtent> {
        let start = |extent: &FreeExtent| align_up(extent.offset, alignment);
        let fits = |extent: &&FreeExtent| {
            extent.stage != Stage::Leaving && start(extent) + len <= extent.end()
        };
        let found = *(self.extents.iter().filter(fits)).min_by_key(|extent| extent.len)?;
        let taken = FreeExtent {
            offset: start(&found),
            len,
            ..found
        };
        self.extents.retain(|extent| extent.offset != found.offset);
        for (offset, end) in [(found.offset, taken.offset), (taken.end(), found.end())] {
            if offset < end {
                self.add(offset, end - offset, found.stage);
            }
        }
        Some(taken)
    }

    fn advance(&mut self, from: Stage, to: Stage) {
        for extent in &mut self.extents {
            if extent.stage == from {
                extent.stage = to;
            }
        }
        self.join();
    }

    /// All of the file has pages again, because a device pins it. `false` if some still go to the file system.
    #[cfg(feature = "cuda")]
    pub(super) fn fill(&mut self) -> bool {
        self.advance(Stage::Released, Stage::Found);
        (self.extents.iter()).all(|extent| extent.stage != Stage::Leaving)
    }

    /// The checkpoint that has been begun has the extent table as it is.
    pub(super) fn capture(&mut self) {
        self.advance(Stage::Fresh, Stage::Captured);
    }

    /// What has been captured is being made durable.
    pub(super) fn save(&mut self) {
        self.advance(Stage::Captured, Stage::Saving);
    }

    /// It is durable, or could not be made so.
    pub(super) fn saved(&mut self, is_durable: bool) {
        let stage = if is_durable {
            Stage::Settled
        } else {
            Stage::Captured
        };
        self.advance(Stage::Saving, stage);
    }

    /// Takes the one that ends where the file ends.
    fn take_last(&mut self, file_len: u64) -> Option<u64> {
        let mut start = None;
        while let Some(last) = self.extents.last() {
            if last.end() != start.unwrap_or(file_len) || last.stage == Stage::Leaving {
                break;
            }
            start = Some(last.offset);
            self.extents.pop();
        }
        start
    }

    /// Those parts of a range that are not free, in order.
    fn without(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let (mut at, end) = (offset, offset + len);
        let mut rest = Vec::new();
        for free in &self.extents {
            if free.end() <= at || free.offset >= end {
                continue;
            }
            if free.offset > at {
                rest.push((at, free.offset - at));
            }
            at = free.end();
        }
        if at < end {
            rest.push((at, end - at));
        }
        rest
    }

    /// The entries that say so.
    fn entries(&self) -> Vec<ExtentEntry> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &FreeExtent { offset, len, .. } in &self.extents {
            match ranges.last_mut() {
                Some((start, before)) if *start + *before == offset => *before += len,
                _ => ranges.push((offset, len)),
            }
        }
        let entry = |(offset, len)| ExtentEntry::new(ExtentKind::Free, 0, offset, len);
        ranges.into_iter().map(entry).collect()
    }
}

impl<M: Medium> Table<M> {
    pub(super) fn free_extents(&self) -> MutexGuard<'_, FreeExtents> {
        self.free_extents.lock()
    }

    /// Bytes that are free in whole extents, and those of them that the file system may still have to take.
    pub(crate) fn free_extent_bytes(&self) -> (u64, u64) {
        self.free_extents().bytes()
    }

    /// Bytes of the parts in which extents are emptied.
    pub(super) fn part_len(&self) -> u64 {
        (self.medium.len() / PART_SHARE).max(PART_BYTES_MIN)
    }

    /// How many parts may be emptied: each takes two further entries of the extent table at most.
    pub(super) fn parts_max(&self, superblock: &Superblock) -> usize {
        let left = MAX_EXTENTS.saturating_sub(superblock.extent_count + SPARE_ENTRIES);
        left as usize / 2
    }

    /// Enters ranges that nobody uses any more as free.
    pub(super) fn add_free(&self, ranges: &[(u64, u64)]) {
        let _gate = self.store_gate();
        let mut superblock = self.superblock();
        self.enter_free(&mut superblock, ranges);
    }

    /// Ends the emptying of parts of the arena, and enters those that are empty as free.
    pub(super) fn free_vacated(&self) {
        let _gate = self.store_gate();
        let mut superblock = self.superblock();
        // Others may have taken entries meanwhile. Each part takes two at most.
        let most = MAX_EXTENTS.saturating_sub(superblock.extent_count) / 2;
        let ranges = self
            .arena
            .end_vacating(most as usize, || self.epochs.current());
        self.enter_free(&mut superblock, &ranges);
    }

    /// Frees those parts of the arena that are empty by themselves, if the file has grown by much since the last
    /// time. The caller is not pinned.
    pub(super) fn free_empty_parts(&self) {
        let most = {
            let superblock = self.superblock();
            if !self.should_free_parts(&superblock) {
                return;
            }
            self.free_extents().look_from =
                superblock.file_len + superblock.file_len / LOOK_AGAIN_SHARE;
            self.parts_max(&superblock)
        };
        self.epochs.try_advance();
        let epoch = || self.epochs.current();
        let part_len = self.part_len();
        let begun = self
            .arena
            .begin_vacating(Victims::Empty, part_len, most, epoch);
        if begun.is_some() {
            self.free_vacated();
        }
    }

    /// Whether the file has grown so much that it is time to look for parts of the arena that are empty.
    pub(super) fn should_free_parts(&self, superblock: &Superblock) -> bool {
        self.shape.classes() > 1 && superblock.file_len >= self.free_extents().look_from
    }

    fn enter_free(&self, superblock: &mut Superblock, ranges: &[(u64, u64)]) {
        if ranges.is_empty() {
            return;
        }
        let mut free = self.free_extents();
        self.note_free(&mut free, ranges);
        self.rewrite_extents(superblock, &free, None);
    }

    /// Notes a gap in front of an extent as free. It has an entry when the table is next rewritten.
    pub(super) fn note_gap(&self, from: u64, to: u64) {
        let from = align_up(from, PAGE);
        if from < to {
            self.note_free(&mut self.free_extents(), &[(from, to - from)]);
        }
    }

    fn note_free(&self, free: &mut FreeExtents, ranges: &[(u64, u64)]) {
        let stage = match self.medium.domain() {
            Domain::Checkpointed => Stage::Fresh,
            _ => Stage::Settled,
        };
        for &(offset, len) in ranges {
            free.add(offset, len, stage);
        }
    }

    /// Gives a class of records room that is free: `wanted` bytes, or what there is, but at least `least`. Says
    /// whether there was any. The caller holds the superblock, and keeps checkpoints away.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) if the disk has no blocks for it; the table is as it was.
    pub(super) fn grow_arena_by_free(
        &self,
        superblock: &mut Superblock,
        class: u32,
        least: u64,
        wanted: u64,
    ) -> Result<bool> {
        if !Self::may_split_free(superblock) {
            return Ok(false);
        }
        let (least, wanted) = (align_up(least, PAGE), align_up(wanted.max(least), PAGE));
        let mut free = self.free_extents();
        let mut needs_blocks = false;
        let (offset, len) = loop {
            let Some(extent) = free.take(least, wanted, needs_blocks) else {
                return Ok(false);
            };
            let FreeExtent { offset, len, stage } = extent;
            if !stage.may_lack_blocks() {
                break (offset, len);
            }
            match self.medium.refill(offset, len) {
                Ok(()) => break (offset, len),
                Err(error) => {
                    free.add(offset, len, stage);
                    // What has blocks, or a longer file, may do.
                    if !matches!(error, Error::NoSpace { .. }) {
                        return Err(error);
                    }
                    needs_blocks = true;
                }
            }
        };
        let entry = ExtentEntry::new(ExtentKind::Arena, class, offset, len);
        self.rewrite_extents(superblock, &free, Some(entry));
        self.arena.add_extent(class, offset, len);
        Ok(true)
    }

    /// Takes room for a level out of what is free; gives its offset, or `None` if there is none. It has no entry until
    /// it is [cleared](Self::clear) and [entered](Self::enter_free_level), and is free again after a crash.
    pub(super) fn take_free_level(&self, superblock: &Superblock, len: u64) -> Option<u64> {
        if !Self::may_split_free(superblock) {
            return None;
        }
        let mut free = self.free_extents();
        let FreeExtent { offset, len, stage } = free.take_aligned(len, extent_alignment(len))?;
        if stage.may_lack_blocks()
            && let Err(error) = self.medium.refill(offset, len)
        {
            tracing::debug!(%error, "a level is not made of what is free");
            free.add(offset, len, stage);
            return None;
        }
        Some(offset)
    }

    /// Clears a range that nobody uses. The caller keeps checkpoints away.
    pub(super) fn clear(&self, offset: u64, len: u64) {
        for at in (offset..offset + len).step_by(ZEROS.len()) {
            let len = (offset + len - at).min(ZEROS.len() as u64);
            self.persist_later(at, &ZEROS[..to_usize(len)]);
        }
    }

    /// Enters what was [taken](Self::take_free_level) for a level. The caller keeps checkpoints away.
    pub(super) fn enter_free_level(&self, superblock: &mut Superblock, level: u32, offset: u64) {
        let len = self.shape.level_len(level);
        let entry = ExtentEntry::new(ExtentKind::Level, level, offset, len);
        self.rewrite_extents(superblock, &self.free_extents(), Some(entry));
    }

    /// Whether the extent table has room for what is made of free extents.
    fn may_split_free(superblock: &Superblock) -> bool {
        superblock.extent_count + SPARE_ENTRIES / 2 <= MAX_EXTENTS
    }

    /// Writes the extent table anew: without what is free or no longer there, and with `added` behind all other
    /// arenas. The caller keeps checkpoints away.
    fn rewrite_extents(
        &self,
        superblock: &mut Superblock,
        free: &FreeExtents,
        added: Option<ExtentEntry>,
    ) {
        if !superblock.has_free_extents() {
            // In both copies, before anything relies on it.
            superblock.features |= Features::FREE_EXTENTS.bits();
            self.commit(superblock);
            self.commit(superblock);
        }
        let entries: Vec<ExtentEntry> = (0..superblock.extent_count)
            .map(|index| {
                let mut entry = ExtentEntry::new(ExtentKind::Arena, 0, 0, 0);
                let at = superblock.entry_offset(index);
                self.medium.read(at, bytemuck::bytes_of_mut(&mut entry));
                entry
            })
            .collect();
        let mut table = Vec::with_capacity(entries.len() + 2);
        for (index, entry) in entries.iter().enumerate() {
            match entry.kind() {
                Some(ExtentKind::Free) => {}
                Some(ExtentKind::Level) => {
                    let is_arena = || {
                        entries[index..].iter().any(|later| {
                            later.kind() == Some(ExtentKind::Arena) && later.offset == entry.offset
                        })
                    };
                    let is_live = superblock.level_directory.contains(&entry.offset);
                    let is_free = free.without(entry.offset, entry.len).is_empty();
                    if is_live || !is_free && !is_arena() {
                        table.push(*entry);
                    }
                }
                Some(ExtentKind::Arena) => {
                    for (offset, len) in free.without(entry.offset, entry.len) {
                        self.push_arena(&mut table, entry.class, offset, len);
                    }
                }
                None => table.push(*entry),
            }
        }
        table.extend(added);
        table.extend(free.entries());
        // What is free and has no entry is found by nobody, until there is room for one.
        table.truncate(MAX_EXTENTS as usize);
        let count = u32_of(table.len() as u64);
        let mut bytes = bytemuck::cast_slice::<_, u8>(&table).to_vec();
        bytes.resize(to_usize(EXTENT_TABLE_LEN), 0);
        let area = 1 - superblock.extent_table;
        let start = ExtentEntry::entry_offset(area, 0);
        let mut line = [0; to_usize(LINE)];
        for (at, new) in (start..).step_by(line.len()).zip(bytes.chunks(line.len())) {
            self.medium.read(at, &mut line);
            if line != new {
                self.medium.write(at, new);
            }
        }
        // A process that died may have written what is the same, and a power cut could take it back.
        self.medium.write_back(start, EXTENT_TABLE_LEN);
        superblock.extent_table = area;
        superblock.extent_count = count;
        self.commit(superblock);
        self.commit(superblock);
    }

    /// Adds an arena behind the others, as one with the last if its records follow at once.
    fn push_arena(&self, table: &mut Vec<ExtentEntry>, class: u32, offset: u64, len: u64) {
        let mut entry = ExtentEntry::new(ExtentKind::Arena, class, offset, len);
        if let Some(last) = table.last().copied()
            && last.kind() == Some(ExtentKind::Arena)
            && (last.class, last.offset + last.len) == (class, offset)
            && last.len.is_multiple_of(self.shape.record_size(class))
        {
            table.pop();
            entry = ExtentEntry::new(ExtentKind::Arena, class, last.offset, last.len + len);
        }
        table.push(entry);
    }

    /// Gives the file system what is preallocated, unless a device has pinned it.
    pub(super) fn give_back_preallocated(&self) {
        if !self.is_pinned.load(Ordering::Relaxed) {
            self.medium.trim();
        }
    }

    /// Gives the file system the blocks, and the memory, of what is free for good, and of what is preallocated.
    pub(crate) fn release_free(&self) {
        self.give_back_preallocated();
        loop {
            let next = {
                let mut free = self.free_extents();
                // What a device has pinned would stay with it, and be another page than the file's.
                if self.is_pinned.load(Ordering::Relaxed) {
                    return;
                }
                let mut extents = free.extents.iter_mut();
                let next =
                    extents.find(|extent| matches!(extent.stage, Stage::Settled | Stage::Found));
                next.map(|extent| {
                    let before = std::mem::replace(&mut extent.stage, Stage::Leaving);
                    (extent.offset, extent.len, before)
                })
            };
            let Some((offset, len, before)) = next else {
                return;
            };
            let is_gone = self.medium.release(offset, len) || before == Stage::Found;
            let stage = if is_gone {
                Stage::Released
            } else {
                Stage::Kept
            };
            let mut free = self.free_extents();
            for extent in &mut free.extents {
                if extent.offset == offset {
                    extent.stage = stage;
                }
            }
            free.join();
        }
    }

    /// Cuts what is free off the end of the file, as far as the superblock says where that is.
    pub(super) fn cut_free_end(&self, superblock: &mut Superblock) {
        let mut free = self.free_extents();
        if let Some(file_len) = free.take_last(superblock.file_len) {
            superblock.file_len = file_len;
            self.rewrite_extents(superblock, &free, None);
        }
    }
}
