//! Extents: the file grows by whole ones, which are entered in the extent table.

use super::Table;
use crate::layout::extent::MAX_EXTENTS;
use crate::layout::shape::extent_alignment;
use crate::layout::{ExtentEntry, ExtentKind, KeyClass, Shape, Superblock, align_up};
use crate::pm::Medium;
use crate::{Error, Result};

/// Least bytes by which the arena grows, if the disk has them.
const ARENA_GROWTH_BYTES_MIN: u64 = 64 << 10;

/// With size classes, no extent of records is a smaller share of the file.
const EXTENT_SHARE_MIN: u64 = 2048;

/// Most bytes, and the share of the arena, by which it grows while a batch waits for that.
pub(super) const HURRIED_GROWTH_MAX: (u64, u64) = (16 << 20, 64);

/// What is free serves a growth if it is this share of what is wanted, or if the disk has no more.
const FREE_SHARE_MIN: u64 = 8;

/// The least bytes by which the arena of a file may grow. The entries that the extent table has
/// left, less those of further levels, must do until the file has its greatest length. Shorter
/// extents on a disk that is nearly full would use the table up, and the file could never grow
/// again.
pub(crate) fn least_growth(superblock: &Superblock) -> u64 {
    let levels = 2 * (Shape::MAX_LEVEL - superblock.top_level);
    let left = MAX_EXTENTS.saturating_sub(superblock.extent_count + levels);
    // Growth by the nth part, n times, doubles a length at least.
    let doublings = crate::layout::MAX_FILE.ilog2() - superblock.file_len.ilog2();
    superblock.file_len / u64::from(left.max(1)) * u64::from(doublings)
}

impl<M: Medium> Table<M> {
    /// Makes room for an extent behind the last one and enters it; takes effect with the next
    /// [`commit`](Self::commit), which follows at once. Gives its offset.
    pub(crate) fn append_extent(
        &self,
        superblock: &mut Superblock,
        kind: ExtentKind,
        class: u32,
        len: u64,
    ) -> Result<u64> {
        let limit = MAX_EXTENTS;
        if superblock.extent_count >= limit {
            return Err(self.limit(
                "the number of extents",
                u64::from(limit) + 1,
                u64::from(limit),
            ));
        }
        let offset = align_up(superblock.file_len, extent_alignment(len));
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= crate::layout::MAX_FILE);
        let Some(end) = end else {
            return Err(self.limit("the file length", u64::MAX, crate::layout::MAX_FILE));
        };
        self.medium.grow(end)?;
        self.note_gap(superblock.file_len, offset);
        superblock.file_len = end;
        self.enter_extent(superblock, ExtentEntry::new(kind, class, offset, len));
        Ok(offset)
    }

    /// Appends an entry to the extent table.
    pub(crate) fn enter_extent(&self, superblock: &mut Superblock, entry: ExtentEntry) {
        self.persist_later(
            superblock.entry_offset(superblock.extent_count),
            bytemuck::bytes_of(&entry),
        );
        superblock.extent_count += 1;
    }

    /// Appends an extent of `len` bytes for records of a class, rounded up so that the next extent
    /// can follow at once. Gives its range, which is for the arena once it is committed: others take
    /// records there at once, and no item may become durable before what its record stands in.
    pub(super) fn append_arena(
        &self,
        superblock: &mut Superblock,
        class: u32,
        len: u64,
    ) -> Result<(u64, u64)> {
        let len = len.max(self.shape.record_size(class));
        let len = align_up(len, extent_alignment(len));
        let offset = self.append_extent(superblock, ExtentKind::Arena, class, len)?;
        Ok((offset, len))
    }

    /// Bytes by which a class of records grows when it can, the extent table having `extents`
    /// entries: an eighth at a time keeps the extents few. With size classes shorter steps waste less; as
    /// classes share the table, steps get longer as it fills, and none is a small part of a large file.
    pub(super) fn next_arena_len(&self, class: u32, extents: u32) -> u64 {
        let stride = self.shape.record_size(class);
        let total = self.arena.total(class);
        if self.shape.classes() == 1 {
            return (total / 8 * stride).max(ARENA_GROWTH_BYTES_MIN);
        }
        let share = match extents / (MAX_EXTENTS / 4) {
            0 => 32,
            1 => 8,
            2 => 4,
            _ => 1,
        };
        let least = self.medium.len() / EXTENT_SHARE_MIN;
        (total / share * stride)
            .max(least)
            .max(ARENA_GROWTH_BYTES_MIN)
    }

    /// Makes room for at least `records` more records of a class.
    ///
    /// # Errors
    /// [`Error::NoSpace`], which names the least that would do, and [`Error::Limit`]; the table is as it
    /// was.
    pub(crate) fn grow_arena(&self, class: u32, records: u64) -> Result<()> {
        let _gate = self.store_gate();
        let mut superblock = self.superblock();
        let before = self.arena.total(class);
        let missing = records.saturating_sub(self.arena.fresh(class));
        if missing == 0 {
            return Ok(());
        }
        let stride = self.shape.record_size(class);
        let least = missing
            .checked_mul(stride)
            .ok_or_else(|| self.limit("the file length", u64::MAX, crate::layout::MAX_FILE))?;
        // What is ready keeps the extents few and costs nothing. What is not holds up a batch,
        // and is kept short.
        let next = self.next_arena_len(class, superblock.extent_count);
        let is_ready =
            superblock.file_len + next + crate::layout::HUGE_PAGE <= self.medium.prepared();
        let hurried = (before * stride / HURRIED_GROWTH_MAX.1).max(HURRIED_GROWTH_MAX.0);
        let wanted = least.max(if is_ready { next } else { next.min(hurried) });
        let useful = least.max(wanted.min(least_growth(&superblock)));
        // Small pieces would soon be followed by further ones.
        let piece = least.max(wanted / FREE_SHARE_MIN);
        if self.grow_arena_by_free(&mut superblock, class, piece, wanted)? {
            return Ok(());
        }
        // A disk that is nearly full gives what it has, but not in pieces that use up the extent table.
        let mut len = wanted;
        let (offset, len) = loop {
            match self.append_arena(&mut superblock, class, len) {
                Ok(range) => break range,
                Err(Error::NoSpace { .. } | Error::Limit { .. }) if len > useful => {
                    len = (len / 2).max(useful);
                }
                Err(Error::NoSpace { .. } | Error::Limit { .. })
                    if self.grow_arena_by_free(&mut superblock, class, least, wanted)? =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        };
        self.commit(&mut superblock);
        self.arena.add_extent(class, offset, len);
        // Other classes may have what this one needs.
        let is_news = self.shape.classes() > 1 && self.maintenance.idle.hint();
        if is_news || self.should_free_parts(&superblock) {
            self.maintenance.wake();
        }
        Ok(())
    }

    /// Makes the file so long that it can have all levels up to `top` and `records` more records of
    /// fixed size, before anything of it changes. A level that is emptied gives its space to records.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::Limit`]; the table is as it was.
    pub(crate) fn make_room_for(&self, top: u32, records: u64) -> Result<()> {
        let _gate = self.store_gate();
        let superblock = self.superblock();
        let mut end = superblock.file_len;
        let mut add = |len: u64| {
            let from = align_up(end, extent_alignment(len));
            end = from.saturating_add(len).min(crate::layout::MAX_FILE + 1);
        };
        for level in superblock.top_level + 1..=top {
            add(self.shape.level_len(level));
        }
        if self.shape.key_class() != KeyClass::Variable {
            let stride = self.shape.record_stride;
            let emptied = superblock.bottom_level..(top + 1).saturating_sub(self.shape.levels);
            let gained: u64 = emptied
                .map(|level| self.shape.level_len(level) / stride)
                .sum();
            let fresh = self.arena.fresh(0) + gained;
            let missing = records.saturating_sub(fresh);
            if missing > 0 {
                add(missing.saturating_mul(stride).min(crate::layout::MAX_FILE));
            }
        }
        if end > crate::layout::MAX_FILE {
            return Err(self.limit("the file length", end, crate::layout::MAX_FILE));
        }
        self.medium.grow(end)
    }
}
