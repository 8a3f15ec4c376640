//! How much of the disk changes may take, told before they are made: bounds, which most changes stay far
//! below.

use super::Table;
use super::extents::{HURRIED_GROWTH_MAX, least_growth};
use crate::layout::shape::extent_alignment;
use crate::layout::{EXTENT_TABLE_LEN, PAGE, SUPERBLOCKS, Shape, align_up};
use crate::pm::Medium;

/// From this share of full slots on, in percent, a further level is expected. Tables grow when about 93 are
/// full; a small one may sooner.
const LEVEL_AT_PERCENT: u64 = 60;

/// Pages that a change may store to, beside those of its record: of its slot, of the slot that it leaves,
/// and of overflow bits.
const PAGES_PER_CHANGE: u64 = 3;

/// Pages of what says where records stand: both areas of the extent table, and the superblock.
const PAGES_OF_EXTENTS: u64 = 2 * EXTENT_TABLE_LEN / PAGE + SUPERBLOCKS.len() as u64;

/// Changes that are to be made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Need {
    /// Size classes of the new records, one bit each.
    classes: u128,
    /// New records, and their bytes.
    records: u64,
    bytes: u64,
    /// Keys whose slots change.
    changes: u64,
}

/// What changes may take at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// Bytes by which the file becomes longer.
    pub(crate) growth: u64,
    /// Pages that are stored to.
    pub(crate) pages: u64,
}

impl Need {
    /// Adds so many records of a class, each for a key that the table may not have.
    pub(crate) fn add_records(&mut self, shape: &Shape, class: u32, records: u64) {
        self.classes |= 1 << class;
        self.records = self.records.saturating_add(records);
        let bytes = shape.record_size(class).saturating_mul(records);
        self.bytes = self.bytes.saturating_add(bytes);
        self.changes = self.changes.saturating_add(records);
    }

    /// Adds removals.
    pub(crate) fn add_removals(&mut self, removals: u64) {
        self.changes = self.changes.saturating_add(removals);
    }

    /// Whether nothing is to be made.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// The same as if slots and records were not stored to.
    pub(crate) fn without_changes(self) -> Self {
        Self { changes: 0, ..self }
    }

    /// Both together.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.classes |= other.classes;
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.changes = self.changes.saturating_add(other.changes);
        self
    }

    fn classes(&self) -> impl Iterator<Item = u32> + use<> {
        let mut left = self.classes;
        std::iter::from_fn(move || {
            let class = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(class)
        })
    }
}

impl<M: Medium> Table<M> {
    /// What changes may take at most. Nobody else may make any until they are made.
    pub(crate) fn bound(&self, need: &Need) -> Bound {
        let levels = self.levels.live();
        let items = self.len().saturating_add(need.records);
        let expected = items.saturating_mul(90) / LEVEL_AT_PERCENT;
        let top = match need.records {
            0 => levels.top,
            _ => levels
                .top
                .max(self.shape.top_level_for(expected))
                .min(Shape::MAX_LEVEL),
        };
        let mut growth = 0u64;
        let mut add = |len: u64| {
            growth = growth.saturating_add(align_up(len, PAGE) + extent_alignment(len));
        };
        (levels.top + 1..=top).for_each(|level| add(self.shape.level_len(level)));
        let (extents, least) = {
            let superblock = self.superblock();
            (superblock.extent_count, least_growth(&superblock))
        };
        let mut is_short = false;
        for class in need.classes() {
            let stride = self.shape.record_size(class);
            let fresh = self.arena.fresh(class);
            if fresh.saturating_mul(stride) < need.bytes {
                is_short = true;
                let step = self
                    .next_arena_len(class, extents)
                    .min(HURRIED_GROWTH_MAX.0);
                add(step.min(least).max(stride));
            }
        }
        if is_short {
            add(need.bytes);
        }
        let is_draining = top > levels.top || self.is_draining(levels);
        let drained: u64 = match is_draining {
            true => (levels.bottom..=top)
                .map(|level| self.shape.level_len(level) / PAGE)
                .sum(),
            false => 0,
        };
        let of_changes = need.changes.saturating_mul(PAGES_PER_CHANGE);
        let of_records = match need.changes {
            0 => 0,
            _ => need.records.saturating_mul(2) + need.bytes / PAGE,
        };
        let pages = of_changes
            .saturating_add(of_records)
            .saturating_add(if need.records == 0 && !is_draining {
                0
            } else {
                PAGES_OF_EXTENTS
            })
            .saturating_add(drained);
        Bound { growth, pages }
    }
}
