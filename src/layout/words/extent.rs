//! The extent table: what each range of the file holds.

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64;

use super::{EXTENT_TABLE_LEN, EXTENT_TABLES};
use crate::width::u32_of;

/// Most extents a file can have.
pub const MAX_EXTENTS: u32 = u32_of(EXTENT_TABLE_LEN / size_of::<ExtentEntry>() as u64);

/// What an extent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentKind {
    /// The buckets and the overflow map of one level; `class` is the level.
    Level,
    /// Records; `class` is the size class (0: the fixed records of the table).
    Arena,
    /// Nothing: it was emptied and given back. An arena of any class may take it.
    Free,
}

/// One entry of the extent table. Entries are appended and never change; the superblock's count
/// says how many there are. A level that a resize has emptied, or a range that is free, becomes an arena
/// extent by a second, later entry over the same range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ExtentEntry {
    /// First byte of the extent in the file.
    pub offset: u64,
    /// Bytes of the extent.
    pub len: u64,
    kind: u32,
    /// Level or size class.
    pub class: u32,
    checksum: u64,
}

const_assert_eq!(size_of::<ExtentEntry>(), 32);
const_assert_eq!(std::mem::offset_of!(ExtentEntry, offset), 0);
const_assert_eq!(std::mem::offset_of!(ExtentEntry, len), 8);
const_assert_eq!(std::mem::offset_of!(ExtentEntry, kind), 16);
const_assert_eq!(std::mem::offset_of!(ExtentEntry, class), 20);
const_assert_eq!(std::mem::offset_of!(ExtentEntry, checksum), 24);

impl ExtentEntry {
    /// An entry with its checksum.
    #[inline]
    pub fn new(kind: ExtentKind, class: u32, offset: u64, len: u64) -> Self {
        let mut entry = Self {
            offset,
            len,
            kind: match kind {
                ExtentKind::Level => 1,
                ExtentKind::Arena => 2,
                ExtentKind::Free => 3,
            },
            class,
            checksum: 0,
        };
        entry.checksum = entry.sum();
        entry
    }

    #[inline]
    fn sum(&self) -> u64 {
        xxh3_64(&bytemuck::bytes_of(self)[..24])
    }

    /// What the extent holds, if the entry is whole.
    #[inline]
    pub fn kind(&self) -> Option<ExtentKind> {
        if self.checksum != self.sum() {
            return None;
        }
        match self.kind {
            1 => Some(ExtentKind::Level),
            2 => Some(ExtentKind::Arena),
            3 => Some(ExtentKind::Free),
            _ => None,
        }
    }

    /// The ranges of a table that are free, by their offsets, as far as they lie within a file of `file_len` bytes and
    /// over nothing else; none if an entry is not whole.
    pub fn free_ranges(table: &[Self], file_len: u64) -> Vec<(u64, u64)> {
        let range = |entry: &Self| (entry.offset, entry.len);
        let (mut free, mut used) = (Vec::new(), Vec::new());
        for entry in table {
            match entry.kind() {
                Some(ExtentKind::Free) => free.push(range(entry)),
                Some(ExtentKind::Arena) => {
                    free.retain(|free| *free != range(entry));
                    used.push(range(entry));
                }
                // Its range may have become free since.
                Some(ExtentKind::Level) => {}
                None => return Vec::new(),
            }
        }
        free.sort_unstable();
        let mut ends = 0;
        free.retain(|&(offset, len)| {
            let end = offset.saturating_add(len);
            let overlaps =
                |&(other, len): &(u64, u64)| other < end && offset < other.saturating_add(len);
            let is_sound = offset >= ends && end <= file_len && !used.iter().any(overlaps);
            if is_sound {
                ends = end;
            }
            is_sound
        });
        free
    }

    /// Offset of entry `index` of the table in area `table`, 0 or 1.
    #[inline]
    pub fn entry_offset(table: u32, index: u32) -> u64 {
        EXTENT_TABLES[usize::from(table != 0)] + u64::from(index) * size_of::<Self>() as u64
    }
}

#[cfg(test)]
mod tests;
