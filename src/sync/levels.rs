//! Which levels are live, and where they are: the volatile copy of the superblock's directory,
//! read by every operation without a lock.

use std::ops::RangeInclusive;

use gphash_layout::DIRECTORY;
use gphash_layout::width::low_half;

use crate::{AtomicU64, Ordering};

/// The live levels at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// The level that hash locations address.
    pub top: u32,
    /// The lowest level that may hold items.
    pub bottom: u32,
    /// How often they [began anew](LevelTable::begin_anew): the same numbers may stand for other offsets then.
    era: u32,
}

impl Levels {
    /// The levels from `bottom` to `top`.
    pub fn new(top: u32, bottom: u32) -> Self {
        Self {
            top,
            bottom,
            era: 0,
        }
    }

    /// The levels of those `before`, if there were any, that are still there, at the same offsets.
    pub fn kept_of(self, before: Option<Self>) -> RangeInclusive<u32> {
        match before.filter(|before| before.era == self.era) {
            Some(before) => self.bottom.max(before.bottom)..=self.top.min(before.top),
            None => RangeInclusive::new(1, 0),
        }
    }

    /// Whether a resize has levels to empty, in a table of `levels` levels at rest.
    #[inline]
    pub fn draining(self, levels: u32) -> bool {
        self.top + 1 > self.bottom + levels
    }

    /// The lowest level that takes new items.
    #[inline]
    pub fn lowest_insertable(self, levels: u32) -> u32 {
        self.bottom.max((self.top + 1).saturating_sub(levels))
    }
}

/// Offsets of all levels, and which of them are live.
///
/// Level numbers only grow while anyone uses them, so an entry never changes its meaning meanwhile.
pub struct LevelTable {
    levels: AtomicU64,
    offsets: [AtomicU64; DIRECTORY],
}

impl LevelTable {
    /// The directory of a superblock.
    pub fn new(levels: Levels, offsets: &[u64]) -> Self {
        Self {
            levels: AtomicU64::new(pack(levels)),
            offsets: std::array::from_fn(|level| {
                AtomicU64::new(offsets.get(level).copied().unwrap_or(0))
            }),
        }
    }

    /// The live levels. Loaded anew by each operation: see the resize for why that suffices.
    #[inline]
    pub fn live(&self) -> Levels {
        let word = self.levels.load(Ordering::SeqCst);
        Levels {
            top: low_half(word >> 8 & 0xFF),
            bottom: low_half(word & 0xFF),
            era: low_half(word >> 32),
        }
    }

    /// Offset of `level` in the file.
    #[inline]
    pub fn offset(&self, level: u32) -> u64 {
        self.offsets[level as usize].load(Ordering::Relaxed)
    }

    /// Adds a level at `offset` and makes `levels` the live ones.
    pub fn publish(&self, levels: Levels, level: u32, offset: u64) {
        self.offsets[level as usize].store(offset, Ordering::Relaxed);
        let era = self.live().era;
        self.levels
            .store(pack(Levels { era, ..levels }), Ordering::SeqCst);
    }

    /// Makes what was read of the levels before differ from what will be. Nobody may be using them.
    pub fn begin_anew(&self) {
        let levels = self.live();
        let era = levels.era.wrapping_add(1);
        self.levels
            .store(pack(Levels { era, ..levels }), Ordering::SeqCst);
    }
}

fn pack(levels: Levels) -> u64 {
    u64::from(levels.era) << 32 | u64::from(levels.top) << 8 | u64::from(levels.bottom)
}
