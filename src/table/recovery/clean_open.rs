//! What an opening takes from the file without a scan, once it has been checked: extents, and the
//! counts of a file that was cleanly closed.

use bytemuck::Zeroable;

use crate::Result;
use crate::layout::size_class::{CLASS_TABLE, ClassTable};
use crate::layout::{DATA_START, ExtentEntry, ExtentKind, KeyClass, PAGE, Superblock, align_up};
use crate::pm::Medium;
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::alloc::free_list::FreeList;
use crate::table::free_extents::FreeExtents;

/// The whole pages of a file that none of these ranges has, which are in order.
fn gaps(ranges: &[(u64, u64)], file_len: u64) -> Vec<(u64, u64)> {
    let mut at = DATA_START;
    let mut gaps = Vec::new();
    for &(offset, len) in ranges.iter().chain([&(file_len, 0)]) {
        let start = align_up(at, PAGE);
        if start < offset {
            gaps.push((start, offset - start));
        }
        at = offset + len;
    }
    gaps
}

/// One of `ranges` that has bytes of this one.
fn overlapping(ranges: &[(u64, u64)], (from, len): (u64, u64)) -> Option<(u64, u64)> {
    let end = from.saturating_add(len);
    let is_other = |&(offset, len): &(u64, u64)| offset < end && from < offset + len;
    ranges.iter().copied().find(is_other)
}

impl<M: Medium> Table<M> {
    /// Makes an entry one that stands for nothing.
    fn write_nothing(&self, at: u64) {
        let nothing = ExtentEntry::new(ExtentKind::Arena, 0, DATA_START, 0);
        self.persist_later(at, bytemuck::bytes_of(&nothing));
    }

    /// Where an entry of the extent table is, and what it says.
    pub(super) fn extent_entry(&self, superblock: &Superblock, index: u32) -> (u64, ExtentEntry) {
        let at = superblock.entry_offset(index);
        let mut entry = ExtentEntry::zeroed();
        self.medium.read(at, bytemuck::bytes_of_mut(&mut entry));
        (at, entry)
    }

    /// Checks the extent table and gives the arena its extents; free ones stay free. Gives the ranges of emptied
    /// levels that a crash kept from becoming part of the arena. With `may_lack`, entries that are not whole, or
    /// contradict the superblock or those before them, are made such as stand for nothing; gives how many were.
    pub(in crate::table) fn read_extents(
        &self,
        superblock: &Superblock,
        may_lack: bool,
    ) -> Result<(Vec<(u64, u64)>, u32)> {
        let mut emptied = Vec::new();
        let mut free = Vec::new();
        // Where the entries of both are.
        let mut spare = Vec::new();
        let mut lacking = 0;
        let mut ranges: Vec<(u64, u64)> = (superblock.bottom_level..=superblock.top_level)
            .map(|level| {
                let offset = superblock.level_directory[level as usize];
                (offset, self.shape.level_len(level))
            })
            .collect();
        // Extents that lie one behind the other are one for the arena: what looks for the extent
        // of a record goes through all of them.
        let mut run: Option<(u32, u64, u64)> = None;
        for index in 0..superblock.extent_count {
            let (at, entry) = self.extent_entry(superblock, index);
            let inside = entry.offset >= DATA_START
                && entry.offset.is_multiple_of(PAGE)
                && entry.offset <= superblock.file_len
                && entry.len <= superblock.file_len - entry.offset;
            let range = (entry.offset, entry.len);
            let contradicts = || match entry.kind() {
                None => true,
                Some(ExtentKind::Level) => {
                    (0..)
                        .zip(&superblock.level_directory)
                        .any(|(level, &offset)| {
                            offset == entry.offset && entry.len != self.shape.level_len(level)
                        })
                }
                Some(ExtentKind::Arena) => overlapping(&ranges, range).is_some(),
                Some(ExtentKind::Free) => false,
            };
            match entry.kind() {
                Some(ExtentKind::Arena) if entry.len == 0 => {}
                _ if may_lack && contradicts() => {
                    self.write_nothing(at);
                    lacking += 1;
                }
                Some(ExtentKind::Level) if inside => {
                    let mut levels = (0..).zip(&superblock.level_directory);
                    let level = levels.find(|&(_, &offset)| offset == entry.offset);
                    match level.map(|(level, _)| level) {
                        None => {
                            emptied.push(range);
                            spare.push((at, range, false));
                        }
                        Some(level) if entry.len == self.shape.level_len(level) => {}
                        Some(level) => {
                            return Err(self.damaged(
                                "extent table",
                                at,
                                format!("entry {index} is not as long as level {level}: {entry:?}"),
                            ));
                        }
                    }
                }
                Some(ExtentKind::Free) if inside && superblock.has_free_extents() => {
                    free.push(range);
                    spare.push((at, range, true));
                }
                Some(ExtentKind::Arena)
                    if inside && self.arena.classes().contains(&entry.class) =>
                {
                    free.retain(|&range| range != (entry.offset, entry.len));
                    ranges.push((entry.offset, entry.len));
                    run = match run {
                        Some((class, offset, len))
                            if class == entry.class
                                && offset + len == entry.offset
                                && len.is_multiple_of(self.shape.record_size(class)) =>
                        {
                            Some((class, offset, len + entry.len))
                        }
                        _ => {
                            if let Some((class, offset, len)) = run {
                                self.arena.add_extent(class, offset, len);
                            }
                            Some((entry.class, entry.offset, entry.len))
                        }
                    };
                }
                _ => {
                    return Err(self.damaged(
                        "extent table",
                        at,
                        format!("entry {index} is torn or lies outside the file: {entry:?}"),
                    ));
                }
            }
        }
        if let Some((class, offset, len)) = run {
            self.arena.add_extent(class, offset, len);
        }
        if may_lack {
            // Of a torn table, what holds nothing gives way.
            let mut kept = ranges.clone();
            (free, emptied) = Default::default();
            for (at, range, is_free) in spare {
                if overlapping(&kept, range).is_some() {
                    self.write_nothing(at);
                    lacking += 1;
                    continue;
                }
                kept.push(range);
                match is_free {
                    true => free.push(range),
                    false => emptied.push(range),
                }
            }
        }
        ranges.extend(&free);
        emptied.retain(|level| !ranges.contains(level));
        // What becomes part of the arena must be nobody's, too.
        ranges.extend(&emptied);
        ranges.sort_unstable();
        match ranges
            .windows(2)
            .find(|pair| pair[0].0 + pair[0].1 > pair[1].0)
        {
            Some(pair) => Err(self.damaged(
                "extent table",
                superblock.entry_offset(0),
                format!("extents at bytes {} and {} overlap", pair[0].0, pair[1].0),
            )),
            None => {
                let gaps = match lacking {
                    0 => gaps(&ranges, superblock.file_len),
                    // An entry may have spoken of what seems to be one.
                    _ => Vec::new(),
                };
                *self.free_extents() =
                    FreeExtents::found(free, gaps, superblock.file_len, self.medium.allocated());
                Ok((emptied, lacking))
            }
        }
    }

    /// Takes the counts of a file that was cleanly closed.
    pub(in crate::table) fn restore_counts(&self, superblock: &Superblock) -> Result<()> {
        let total: u64 = self
            .arena
            .classes()
            .map(|class| self.arena.total(class))
            .sum();
        let (items, taken, free) = (
            superblock.items,
            superblock.arena_high_water,
            superblock.free_count,
        );
        if taken > total || items.checked_add(free).is_none_or(|used| used > taken) {
            return Err(self.damaged(
                "superblock",
                superblock.file_offset(),
                format!("{items} items and {free} free records among {taken} of {total} records"),
            ));
        }
        self.items.store(items.cast_signed(), Ordering::Relaxed);
        self.restore_class_counts(superblock)?;
        *self.free_list.lock() = FreeList::new(superblock.free_list, free);
        Ok(())
    }

    /// Takes the counts of records ever taken.
    fn restore_class_counts(&self, superblock: &Superblock) -> Result<()> {
        if self.shape.key_class() != KeyClass::Variable {
            self.arena.set_high_water(0, superblock.arena_high_water);
            return Ok(());
        }
        let mut table = ClassTable::zeroed();
        self.medium
            .read(CLASS_TABLE, bytemuck::bytes_of_mut(&mut table));
        let damaged = |found: String| Err(self.damaged("class table", CLASS_TABLE, found));
        if !table.is_whole() {
            return damaged("its checksum does not match".into());
        }
        let mut sum = 0u64;
        for (class, &taken) in (0..).zip(&table.taken) {
            let total = self.arena.total(class);
            if taken > total {
                return damaged(format!("{taken} of {total} records of class {class} taken"));
            }
            self.arena.set_high_water(class, taken);
            sum += taken;
        }
        if sum != superblock.arena_high_water {
            return damaged(format!(
                "{sum} records taken; the superblock says {}",
                superblock.arena_high_water
            ));
        }
        Ok(())
    }
}
