//! The superblock: what a file is, and where its parts are.
//!
//! Two copies, each with a generation and a checksum. A change goes to the older copy, so a torn
//! write leaves the other one.

#[cfg(test)]
mod tests;

use std::path::Path;

use bytemuck::{Pod, Zeroable};
use static_assertions::const_assert_eq;
use xxhash_rust::xxh3::xxh3_64;

use super::extent::{ExtentEntry, ExtentKind, MAX_EXTENTS};
use super::shape::extent_alignment;
use super::{
    DATA_START, ImpossibleShape, KeyClass, MAX_FILE, PAGE, SUPERBLOCKS, Shape, align_up, hash,
};
use crate::column::metadata::MAX_CHANGES;
use crate::width::{to_usize, u32_of};
use crate::{Error, Result};
pub use gphash_layout::DIRECTORY;

/// First eight bytes of every gphash file.
pub const MAGIC: [u8; 8] = *b"GPHASH\r\n";

/// The format that this build writes, and the latest that it reads.
pub const FORMAT_VERSION: u32 = 3;

/// Entries of the level directory in the file.
pub const LEVEL_ENTRIES: usize = DIRECTORY - 1;

bitflags::bitflags! {
    /// Flags of a file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// The file was cleanly closed: its counts and its chain of free records hold.
        const CLEAN = 1;
        /// Keys and values of variable length.
        const VARIABLE = 2;
        /// Records of fixed size have a checksum behind the value.
        const CHECKSUMS = 4;
    }
}

bitflags::bitflags! {
    /// What a reader must know of, or else leave the file alone.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The extent table may have entries of the kind [`ExtentKind::Free`].
        const FREE_EXTENTS = 1;
        /// A shrink may be under way: `shrink_level` may be a level.
        const SHRINK = 2;
    }
}

impl Features {
    /// Those that this build knows. It takes nothing from free extents, and goes on with no shrink.
    pub const KNOWN: Self = Self::FREE_EXTENTS;

    /// The names of features, or their bits.
    fn names(self) -> String {
        let names = self.iter_names().map(|(name, _)| name.to_owned());
        let others = self.bits() & !Self::all().bits();
        let others = (0..u64::BITS).filter(|bit| others >> bit & 1 != 0);
        let names: Vec<String> = names
            .chain(others.map(|bit| format!("bit {bit}")))
            .collect();
        names.join(", ")
    }
}

/// The superblock as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`] of the build that made the file.
    pub version: u32,
    /// [`Flags`].
    pub flags: u32,
    /// Grows by one with every change; the valid copy with the greater one holds.
    pub generation: u64,
    /// Random name of the file, which ties a journal to it.
    pub file_id: [u64; 2],
    /// Seed of the key hash, random for each file.
    pub hash_seed: u64,
    /// Bytes of a key; 0 for variable length.
    pub key_size: u32,
    /// Bytes of a value; 0 for variable length.
    pub value_size: u32,
    /// Slots in a bucket.
    pub slots: u32,
    /// Levels of a table at rest.
    pub levels: u32,
    /// Hash locations.
    pub locations: u32,
    /// Number of the hash function ([`hash::XXH3`]).
    pub hash_function: u32,
    /// The level that hash locations address.
    pub top_level: u32,
    /// The lowest level that may hold items. Lower than `top_level + 1 - levels` while a
    /// resize empties it.
    pub bottom_level: u32,
    /// Entries of the extent table.
    pub extent_count: u32,
    /// Area of the extent table that holds, 0 or 1.
    pub extent_table: u32,
    /// Bytes of the file that are in use.
    pub file_len: u64,
    /// Items in the table, if `CLEAN`.
    pub items: u64,
    /// Records ever taken from the arena, counted over its extents in order, if `CLEAN`.
    pub arena_high_water: u64,
    /// Offset of the first link of the chain of free records, 0 for none, if `CLEAN`.
    pub free_list: u64,
    /// Records in that chain, if `CLEAN`.
    pub free_count: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// [`Features`].
    pub features: u64,
    /// The level above `top_level` that an unfinished shrink empties downward; 0 for none.
    pub shrink_level: u32,
    /// Zero.
    pub reserved: u32,
    /// Offset of each level by its number; 0 where there is none.
    pub level_directory: [u64; LEVEL_ENTRIES],
    /// Random name of the journal without which the file must not be opened; 0 for none.
    pub journal_id: u64,
    /// XXH3 of all bytes before this field.
    pub checksum: u64,
}

const_assert_eq!(size_of::<Superblock>(), 544);
const_assert_eq!(std::mem::offset_of!(Superblock, flags), 12);
const_assert_eq!(std::mem::offset_of!(Superblock, generation), 16);
const_assert_eq!(std::mem::offset_of!(Superblock, file_id), 24);
const_assert_eq!(std::mem::offset_of!(Superblock, hash_seed), 40);
const_assert_eq!(std::mem::offset_of!(Superblock, key_size), 48);
const_assert_eq!(std::mem::offset_of!(Superblock, slots), 56);
const_assert_eq!(std::mem::offset_of!(Superblock, hash_function), 68);
const_assert_eq!(std::mem::offset_of!(Superblock, top_level), 72);
const_assert_eq!(std::mem::offset_of!(Superblock, extent_count), 80);
const_assert_eq!(std::mem::offset_of!(Superblock, extent_table), 84);
const_assert_eq!(std::mem::offset_of!(Superblock, file_len), 88);
const_assert_eq!(std::mem::offset_of!(Superblock, items), 96);
const_assert_eq!(std::mem::offset_of!(Superblock, free_list), 112);
const_assert_eq!(std::mem::offset_of!(Superblock, checkpoints), 128);
const_assert_eq!(std::mem::offset_of!(Superblock, features), 136);
const_assert_eq!(std::mem::offset_of!(Superblock, shrink_level), 144);
const_assert_eq!(std::mem::offset_of!(Superblock, level_directory), 152);
const_assert_eq!(
    std::mem::offset_of!(Superblock, journal_id),
    152 + 8 * LEVEL_ENTRIES
);
const_assert_eq!(std::mem::offset_of!(Superblock, checksum), 536);
static_assertions::const_assert!((Shape::MAX_LEVEL as usize) < LEVEL_ENTRIES);

impl Superblock {
    /// The superblock of a new, empty file without levels.
    pub fn new(shape: &Shape, file_id: [u64; 2], hash_seed: u64) -> Self {
        let mut superblock = Self::zeroed();
        superblock.magic = MAGIC;
        superblock.version = FORMAT_VERSION;
        superblock.set_flag(Flags::VARIABLE, shape.key_class() == KeyClass::Variable);
        superblock.set_flag(Flags::CHECKSUMS, shape.checksums);
        superblock.file_id = file_id;
        superblock.hash_seed = hash_seed;
        superblock.key_size = u32_of(shape.key_size);
        superblock.value_size = u32_of(shape.value_size);
        superblock.slots = shape.slots;
        superblock.levels = shape.levels;
        superblock.locations = shape.locations;
        superblock.hash_function = hash::XXH3;
        superblock.file_len = DATA_START;
        superblock
    }

    /// Sets the checksum; to be called after the last change before writing.
    pub fn seal(&mut self) {
        self.checksum = self.sum();
    }

    /// Whether all of this copy was written, as far as its magic and its checksum tell.
    pub fn is_whole(&self) -> bool {
        self.magic == MAGIC && self.checksum == self.sum()
    }

    fn sum(&self) -> u64 {
        xxh3_64(&bytemuck::bytes_of(self)[..std::mem::offset_of!(Superblock, checksum)])
    }

    /// Offset of the copy that this generation is written to.
    pub fn file_offset(&self) -> u64 {
        SUPERBLOCKS[(self.generation % 2) as usize]
    }

    /// Offset of entry `index` of the extent table that holds.
    pub fn entry_offset(&self, index: u32) -> u64 {
        ExtentEntry::entry_offset(self.extent_table, index)
    }

    /// Whether the extent table may have free extents.
    pub fn has_free_extents(&self) -> bool {
        Features::from_bits_retain(self.features).contains(Features::FREE_EXTENTS)
    }

    /// Whether the file was cleanly closed.
    pub fn is_clean(&self) -> bool {
        Flags::from_bits_retain(self.flags).contains(Flags::CLEAN)
    }

    /// Whether keys and values have variable length.
    pub fn is_variable(&self) -> bool {
        Flags::from_bits_retain(self.flags).contains(Flags::VARIABLE)
    }

    /// Whether records of fixed size have checksums.
    pub fn has_checksums(&self) -> bool {
        Flags::from_bits_retain(self.flags).contains(Flags::CHECKSUMS)
    }

    /// Sets or clears one flag.
    pub fn set_flag(&mut self, flag: Flags, on: bool) {
        let mut flags = Flags::from_bits_retain(self.flags);
        flags.set(flag, on);
        self.flags = flags.bits();
    }

    /// The shape that the file states, checked.
    pub fn shape(&self, path: &Path) -> Result<Shape> {
        let sizes = (u64::from(self.key_size), u64::from(self.value_size));
        let (slots, levels, locations) = (self.slots, self.levels, self.locations);
        let shape = match sizes {
            (0, 0) if self.is_variable() && self.has_checksums() => Err(ImpossibleShape {
                option: "flags",
                found: format!("{:#x}", self.flags),
                expected: "no checksums of values where records have their own",
            }),
            (0, 0) if self.is_variable() => Shape::variable(slots, levels, locations),
            // The flag without zeros is no shape, either.
            (key, value) if self.is_variable() => Err(ImpossibleShape {
                option: "sizes",
                found: format!("{key} and {value} bytes"),
                expected: "0 and 0 where lengths are variable",
            }),
            (key, value) => Shape::new(key, value, slots, levels, locations)
                .map(|shape| shape.with_checksums(self.has_checksums())),
        };
        shape.map_err(|error| Error::Damaged {
            path: path.to_path_buf(),
            what: "superblock",
            at: self.file_offset(),
            found: error.to_string(),
        })
    }

    /// Reads the newer valid copy out of `head`, the first bytes of the file at `path`, which
    /// has `actual_len` bytes, and checks every field that does not need more of the file.
    ///
    /// Where the other copy is not whole, a newer state may have been lost with it: torn by a crash
    /// before anything relied on it, or damaged long after. So the extent that it may have
    /// committed counts, if its entry is whole. Whatever the older state says, the file then counts
    /// as not cleanly closed. So it does where the other copy is not the one before.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NewerFormat`], [`Error::UnknownFeatures`], [`Error::Truncated`] or
    /// [`Error::Damaged`].
    pub fn parse(head: &[u8], actual_len: u64, path: &Path) -> Result<Self> {
        let copies = SUPERBLOCKS.map(|at| {
            head.get(to_usize(at)..to_usize(at) + size_of::<Self>())
                .map(bytemuck::pod_read_unaligned::<Self>)
                .filter(|copy| copy.magic == MAGIC)
        });
        if copies.iter().all(Option::is_none) {
            let found = match head.len() {
                0 => "it is empty".into(),
                _ if head.iter().all(|&byte| byte == 0) => {
                    "it begins with zeros, as an unfinished creation by an earlier build does; \
                     remove it if it is one"
                        .into()
                }
                len => format!("it begins with {:02x?}", &head[..len.min(8)]),
            };
            return Err(Error::Foreign {
                path: path.to_path_buf(),
                found,
            });
        }
        // A later format may well keep its checksum elsewhere, so the version comes first.
        let newest_version = copies.iter().flatten().map(|copy| copy.version).max();
        let whole = copies.map(|copy| copy.filter(|copy| copy.checksum == copy.sum()));
        let valid = whole
            .iter()
            .flatten()
            .max_by_key(|copy| copy.generation)
            .copied();
        let Some(mut superblock) = valid else {
            return Err(match newest_version {
                Some(version) if version > FORMAT_VERSION => Error::NewerFormat {
                    path: path.to_path_buf(),
                    found: version,
                    supported: FORMAT_VERSION,
                },
                _ => Error::Damaged {
                    path: path.to_path_buf(),
                    what: "superblock",
                    at: 0,
                    found: "neither copy has a matching checksum".into(),
                },
            });
        };
        superblock.check(actual_len, path)?;
        let is_next = |copy: &Option<Self>| {
            copy.is_some_and(|copy| copy.generation + 1 >= superblock.generation)
        };
        if !whole.iter().all(is_next) {
            superblock.set_flag(Flags::CLEAN, false);
        }
        if whole.iter().any(Option::is_none)
            && let Ok(shape) = superblock.shape(path)
        {
            superblock.commit_next_extent(&shape, head, actual_len);
        }
        Ok(superblock)
    }

    /// Takes the extent into account whose entry stands behind those that count, if it is what a growth
    /// would have committed next. Each commit enters one extent at most, so there are no others. One that was
    /// never committed is zero, and does no harm.
    fn commit_next_extent(&mut self, shape: &Shape, head: &[u8], actual_len: u64) {
        let table = self.extent_table;
        let entry = |index: u32| {
            let at = usize::try_from(ExtentEntry::entry_offset(table, index)).ok()?;
            let bytes = head.get(at..at + size_of::<ExtentEntry>())?;
            let entry: ExtentEntry = bytemuck::pod_read_unaligned(bytes);
            Some((entry.kind()?, entry))
        };
        if self.extent_count >= MAX_EXTENTS {
            return;
        }
        let Some((kind, next)) = entry(self.extent_count) else {
            return;
        };
        let end = next
            .offset
            .checked_add(next.len)
            .filter(|end| end.is_multiple_of(PAGE) && *end <= actual_len.min(MAX_FILE));
        let is_appended = next.offset == align_up(self.file_len, extent_alignment(next.len));
        match (kind, end) {
            (ExtentKind::Level, Some(end))
                if is_appended
                    && next.class == self.top_level + 1
                    && next.class <= Shape::MAX_LEVEL
                    && next.len == shape.level_len(next.class) =>
            {
                self.top_level = next.class;
                self.level_directory[self.top_level as usize] = next.offset;
                self.file_len = end;
            }
            (ExtentKind::Arena, Some(end))
                if is_appended
                    && next.class < shape.classes()
                    && next.len >= shape.record_size(next.class) =>
            {
                self.file_len = end;
            }
            (ExtentKind::Arena, Some(_)) => {
                // The space of a level that was emptied, or free space, unless that is an arena already.
                let mut earlier = (0..self.extent_count).rev().filter_map(entry);
                let is_same = |(_, entry): &(ExtentKind, ExtentEntry)| {
                    (entry.offset, entry.len) == (next.offset, next.len)
                };
                let is_unused = earlier
                    .find(is_same)
                    .is_some_and(|(kind, _)| kind != ExtentKind::Arena);
                if !is_unused
                    || self.level_directory.contains(&next.offset)
                    || next.class >= shape.classes()
                    || next.len < shape.record_size(next.class)
                {
                    return;
                }
            }
            _ => return,
        }
        self.extent_count += 1;
    }

    fn check(&self, actual_len: u64, path: &Path) -> Result<()> {
        let damaged = |found: String| {
            Err(Error::Damaged {
                path: path.to_path_buf(),
                what: "superblock",
                at: self.file_offset(),
                found,
            })
        };
        if self.version > FORMAT_VERSION {
            return Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found: self.version,
                supported: FORMAT_VERSION,
            });
        }
        if (1..FORMAT_VERSION).contains(&self.version) {
            return Err(Error::OlderFormat {
                path: path.to_path_buf(),
                found: self.version,
                supported: FORMAT_VERSION,
            });
        }
        if self.version == 0 || Flags::from_bits(self.flags).is_none() {
            return damaged(format!("version {}, flags {:#x}", self.version, self.flags));
        }
        let unknown = Features::from_bits_retain(self.features).difference(Features::KNOWN);
        if !unknown.is_empty() {
            return Err(Error::UnknownFeatures {
                path: path.to_path_buf(),
                found: unknown.names(),
            });
        }
        if self.extent_table > 1 || self.shrink_level != 0 {
            return damaged(format!(
                "extent table {} and shrink level {}; expected table 0 or 1 and, without the feature SHRINK, no level",
                self.extent_table, self.shrink_level
            ));
        }
        if self.hash_function != hash::XXH3 {
            return damaged(format!("hash function {}; expected 1", self.hash_function));
        }
        if self.generation >= MAX_CHANGES || self.checkpoints >= MAX_CHANGES {
            return damaged(format!(
                "generation {} and {} checkpoints",
                self.generation, self.checkpoints
            ));
        }
        let shape = self.shape(path)?;
        if self.file_len < DATA_START
            || self.file_len > MAX_FILE
            || !self.file_len.is_multiple_of(PAGE)
        {
            return damaged(format!("a file length of {} bytes", self.file_len));
        }
        if self.file_len > actual_len {
            return Err(Error::Truncated {
                path: path.to_path_buf(),
                found: actual_len,
                expected: self.file_len,
            });
        }
        if self.extent_count > MAX_EXTENTS {
            return damaged(format!(
                "{} extents; at most {MAX_EXTENTS} fit",
                self.extent_count
            ));
        }
        if self.top_level > Shape::MAX_LEVEL || self.bottom_level > self.top_level {
            return damaged(format!(
                "levels {} to {}; expected at most level {}",
                self.bottom_level,
                self.top_level,
                Shape::MAX_LEVEL
            ));
        }
        for (level, &offset) in (0..).zip(&self.level_directory) {
            let live = (self.bottom_level..=self.top_level).contains(&level);
            let fits = || {
                offset >= DATA_START
                    && offset % PAGE == 0
                    && offset <= self.file_len
                    && shape.level_len(level) <= self.file_len - offset
            };
            if live && !fits() || !live && offset != 0 {
                return damaged(format!(
                    "level {level} at byte {offset} of {}; levels {} to {} are in use",
                    self.file_len, self.bottom_level, self.top_level
                ));
            }
        }
        Ok(())
    }
}
