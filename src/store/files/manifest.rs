//! What a store is: the file `MANIFEST`, and its copy `MANIFEST.2`.
//!
//! ```text
//!  0       8         12      16         32              40             48         56
//!  | magic | version | flags | store id | first segment | last segment | sequence | ...
//!  56            60      64           72          80
//!  | name length | files | generation | next file | name of the merge operator | files ... | checksum |
//!
//!  0        8       16      20         24
//!  | number | bytes | level | reserved |      a file
//! ```
//!
//! Behind the files of one of several partitions are generations of others, 8 bytes each. Behind them are the length of
//! the partitioner's name, in 8 bytes, and the name, if there is one.
//!
//! The flags have from bit 8 on, in 12 bits each, how many partitions the store has beside the first one, and
//! which of them this is.
//!
//! Each copy is good by itself. An edit writes the first one and then the other, each durable before
//! what comes next; the valid one with the greater generation holds. So at any moment one of them is
//! whole, and of two that differ by a crash no one has relied on the newer.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::HashSet;
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use gphash_log_record::SEQUENCE_LIMIT;
use static_assertions::const_assert_eq;

use crate::layout::preamble::{self, FileFormat, Preamble};
use crate::lsm::{LevelFile, NUMBERS_MAX};
use crate::pm::Dir;
use crate::width::to_usize;
use crate::{Error, Result};

/// Its version is that of the directory. What needs no later one is written in version 2.
const FORMAT: FileFormat = FileFormat {
    magic: *b"GPHSTOR\n",
    version: 3,
};

/// Names of the two copies.
pub const NAMES: [&str; 2] = ["MANIFEST", "MANIFEST.2"];

/// Name that a copy has until it is whole, where there was none.
pub const NEXT_NAME: &str = "MANIFEST.next";

/// Longest name of a merge operator or a partitioner, in bytes.
pub const LONGEST_NAME: usize = 1024;

/// Most files below the table.
pub const FILES_MAX: usize = 1 << 20;

/// The directory is whole; without it, a creation was cut short.
const COMPLETE: u32 = 1;

/// The index bears a mark.
const MARKED: u32 = 2;

/// The names of the merge operator and the partitioner are lost; those of the next opening are taken.
const UNNAMED: u32 = 4;

/// A salvage that gives something up has begun, and has not ended.
const SALVAGED: u32 = 8;

/// A partitioner of the user says which partition has a key.
const PARTITIONED: u32 = 16;

/// Most partitions of a store.
pub const PARTITIONS_MAX: u32 = 256;

/// Where the flags have how many partitions the store has beside its first one, and the number of this one.
const OTHERS_SHIFT: u32 = 8;
const NUMBER_SHIFT: u32 = 20;

/// Bits of each of them.
const PARTITION_BITS: u32 = 0xfff;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    preamble: Preamble,
    first_segment: u64,
    last_segment: u64,
    sequence: u64,
    name_len: u32,
    files: u32,
}

const_assert_eq!(size_of::<Header>(), 64);

const HEADER: usize = size_of::<Header>();

/// What version 1 did not have.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Second {
    generation: u64,
    next_file: u64,
}

const_assert_eq!(size_of::<Second>(), 16);

const SECOND: usize = size_of::<Second>();

/// Bytes of the checksum behind all else.
const CHECKSUM: usize = size_of::<u64>();

/// What the manifest says of a file below the table.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct File {
    number: u64,
    len: u64,
    level: u32,
    reserved: u32,
}

const_assert_eq!(size_of::<File>(), 24);

/// What the manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Random name of the store, which its log segments bear, too.
    pub store_id: [u64; 2],
    /// Whether the creation of the store came to its end.
    pub complete: bool,
    /// Whether the index bears a [mark](crate::layout::Mark), which must not be older than this says.
    pub marked: bool,
    /// Whether the names of the merge operator and the partitioner are lost.
    pub unnamed: bool,
    /// Whether a salvage that gives something up has begun, and has not ended: older copies pass, and groups count of
    /// which not all records are there. Of several partitions one says it for all, and the first one is the last to
    /// end.
    pub salvaged: bool,
    /// How many partitions the store has.
    pub partitions: u32,
    /// The number of this one; the first one is in the store's own directory.
    pub partition: u32,
    /// Grows with every edit; the valid copy with the greater one holds.
    pub generation: u64,
    /// Numbers of files below the table from this one on were never used.
    pub next_file: u64,
    /// The oldest log segment that a recovery needs.
    pub first_segment: u64,
    /// The newest log segment.
    pub last_segment: u64,
    /// All requests up to this sequence number are in the index.
    pub sequence: u64,
    /// Name of the merge operator; empty for none.
    pub merge_operator: String,
    /// Name of the partitioner; empty for the store's own.
    pub partitioner: String,
    /// The files below the table, the newest of level 0 last.
    pub files: Vec<LevelFile>,
    /// The generations that manifests of other partitions had when this one was written, or less: in that of the first
    /// partition those of all others, in the others that of the first one.
    pub others: Vec<u64>,
}

/// How many other partitions the manifest of one of so many has to do with.
pub fn others(partitions: u32, partition: u32) -> usize {
    match partition {
        0 => partitions as usize - 1,
        _ => 1,
    }
}

impl Manifest {
    fn to_bytes(&self) -> Vec<u8> {
        let flags = (u32::from(self.complete) * COMPLETE)
            | (u32::from(self.marked) * MARKED)
            | (u32::from(self.unnamed) * UNNAMED)
            | (u32::from(self.salvaged) * SALVAGED)
            | (u32::from(!self.partitioner.is_empty()) * PARTITIONED)
            | ((self.partitions - 1) << OTHERS_SHIFT)
            | (self.partition << NUMBER_SHIFT);
        let version = if self.partitioner.is_empty() { 2 } else { 3 };
        let header = Header {
            preamble: FileFormat { version, ..FORMAT }.preamble(flags, self.store_id),
            first_segment: self.first_segment,
            last_segment: self.last_segment,
            sequence: self.sequence,
            name_len: u32::try_from(self.merge_operator.len()).expect("its length is checked"),
            files: u32::try_from(self.files.len()).expect("files are few"),
        };
        let file = |file: &LevelFile| File {
            number: file.number,
            len: file.len,
            level: file.level,
            reserved: 0,
        };
        let files: Vec<File> = self.files.iter().map(file).collect();
        let second = Second {
            generation: self.generation,
            next_file: self.next_file,
        };
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        bytes.extend_from_slice(bytemuck::bytes_of(&second));
        bytes.extend_from_slice(self.merge_operator.as_bytes());
        bytes.extend_from_slice(bytemuck::cast_slice(&files));
        debug_assert_eq!(self.others.len(), others(self.partitions, self.partition));
        bytes.extend_from_slice(bytemuck::cast_slice(&self.others));
        if !self.partitioner.is_empty() {
            bytes.extend_from_slice(&(self.partitioner.len() as u64).to_le_bytes());
            bytes.extend_from_slice(self.partitioner.as_bytes());
        }
        bytes.extend_from_slice(&[0; CHECKSUM]);
        preamble::seal(&mut bytes);
        bytes
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NewerFormat`] or [`Error::Damaged`].
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let damaged = |what, at: usize, found: String| Error::Damaged {
            path: path.to_path_buf(),
            what,
            at: at as u64,
            found,
        };
        let checked = FORMAT.check(bytes, path);
        if let Err(Error::NewerFormat { found, .. }) = checked {
            // Behind the checksum there may be what a longer list has left.
            let mut known = bytes.to_vec();
            let is_of = |version: &u32| {
                known[8..12].copy_from_slice(&version.to_le_bytes());
                Self::parse(&known, path).is_ok()
            };
            if let Some(version) = (1..=FORMAT.version).find(is_of) {
                let found = format!("{found}; all else is of version {version}");
                return Err(damaged("version of the file", 8, found));
            }
        }
        checked?;
        let cut = || {
            let found = format!("the file has only {} bytes", bytes.len());
            damaged("manifest", bytes.len(), found)
        };
        let header: Header = bytemuck::pod_read_unaligned(bytes.get(..HEADER).ok_or_else(cut)?);
        let name_len = header.name_len as usize;
        if name_len > LONGEST_NAME {
            let found = format!("{name_len} bytes; at most {LONGEST_NAME} are possible");
            return Err(damaged("length of the merge operator's name", 56, found));
        }
        let Preamble {
            version,
            flags,
            store_id,
            ..
        } = header.preamble;
        let is_first = version == 1;
        let name_start = HEADER + if is_first { 0 } else { SECOND };
        let second = match is_first {
            true => Second::zeroed(),
            false => bytemuck::pod_read_unaligned(bytes.get(HEADER..name_start).ok_or_else(cut)?),
        };
        let name_end = name_start + name_len;
        let partitions = (flags >> OTHERS_SHIFT & PARTITION_BITS) + 1;
        let partition = flags >> NUMBER_SHIFT & PARTITION_BITS;
        let files_end = name_end + header.files as usize * size_of::<File>();
        let others_end = files_end + others(partitions, partition) * size_of::<u64>();
        let partitioner = match flags & PARTITIONED {
            0 => others_end..others_end,
            _ => {
                let start = others_end + size_of::<u64>();
                let len = bytes.get(others_end..start).ok_or_else(cut)?;
                let len = u64::from_le_bytes(len.try_into().expect("eight bytes"));
                if len > LONGEST_NAME as u64 {
                    let found = format!("{len} bytes; at most {LONGEST_NAME} are possible");
                    let what = "length of the partitioner's name";
                    return Err(damaged(what, others_end, found));
                }
                start..start + to_usize(len)
            }
        };
        let end = partitioner.end;
        let sealed = bytes.get(..end + CHECKSUM).ok_or_else(cut)?;
        let (found, expected) = (&sealed[end..], preamble::checksum(sealed).to_le_bytes());
        if found != expected {
            let found = format!("{found:02x?}; expected {expected:02x?}");
            return Err(damaged("checksum of the manifest", end, found));
        }
        let name = String::from_utf8(bytes[name_start..name_end].to_vec());
        let (files, _) = bytes[name_end..files_end].as_chunks::<{ size_of::<File>() }>();
        let (others, _) = bytes[files_end..others_end].as_chunks();
        let partitioner_start = partitioner.start;
        let partitioner = String::from_utf8(bytes[partitioner].to_vec());
        let file = |bytes: &[u8; size_of::<File>()]| {
            let File {
                number, len, level, ..
            } = bytemuck::pod_read_unaligned(bytes);
            LevelFile { number, level, len }
        };
        let manifest = Self {
            store_id,
            complete: flags & COMPLETE != 0,
            marked: flags & MARKED != 0,
            unnamed: flags & UNNAMED != 0,
            salvaged: flags & SALVAGED != 0,
            partitions,
            partition,
            generation: second.generation,
            next_file: second.next_file,
            first_segment: header.first_segment,
            last_segment: header.last_segment,
            sequence: header.sequence,
            merge_operator: name.map_err(|error| {
                damaged("name of the merge operator", name_start, error.to_string())
            })?,
            partitioner: partitioner.map_err(|error| {
                damaged(
                    "name of the partitioner",
                    partitioner_start,
                    error.to_string(),
                )
            })?,
            files: files.iter().map(file).collect(),
            others: others
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect(),
        };
        let known = COMPLETE
            | MARKED
            | UNNAMED
            | SALVAGED
            | PARTITIONED
            | PARTITION_BITS << OTHERS_SHIFT
            | PARTITION_BITS << NUMBER_SHIFT;
        let is_partition = manifest.partition < manifest.partitions;
        if version == 0
            || flags & !known != 0
            || manifest.partitions > PARTITIONS_MAX
            || !is_partition
        {
            let found = format!("version {version}, flags {flags:#x}");
            return Err(damaged("version and flags", 8, found));
        }
        if !(1..=manifest.last_segment).contains(&manifest.first_segment) {
            let found = format!("{} to {}", manifest.first_segment, manifest.last_segment);
            return Err(damaged("numbers of the log segments", 32, found));
        }
        let counts = [
            manifest.last_segment,
            manifest.sequence,
            manifest.generation,
        ];
        if counts.iter().any(|count| *count >= SEQUENCE_LIMIT) {
            let found = format!(
                "segment, sequence number, generation {counts:?}; each is below {SEQUENCE_LIMIT}"
            );
            return Err(damaged("last segment and other counts", 40, found));
        }
        let numbers: HashSet<u64> = manifest.files.iter().map(|file| file.number).collect();
        // Files of others have no names.
        let is_sound = |file: &LevelFile| file.number < NUMBERS_MAX;
        if numbers.len() != manifest.files.len()
            || !manifest.files.iter().all(is_sound)
            || manifest.next_file > NUMBERS_MAX
        {
            let found = format!("{:?}, next {}", manifest.files, manifest.next_file);
            return Err(damaged("files below the table", name_end, found));
        }
        Ok(manifest)
    }

    /// Reads one of the copies in a directory.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse), [`Error::Missing`], and what the operating system answers.
    pub fn read(dir: &Dir, name: &str) -> Result<Self> {
        if !dir.has(name)? {
            return Err(Error::Missing {
                path: dir.join(name),
                advice: "opening the store makes it anew from its other copy; if both are lost, \
                         gphash-recover --salvage makes them from what the other files say",
            });
        }
        let file = dir.open_file(name, false)?;
        let others = PARTITIONS_MAX as usize * size_of::<u64>();
        let names = 2 * LONGEST_NAME + size_of::<u64>();
        let longest = HEADER + SECOND + names + FILES_MAX * size_of::<File>() + others + CHECKSUM;
        let len = file.len()?.min(longest as u64);
        let mut bytes = vec![0; to_usize(len)];
        let len = file.read(&mut bytes, 0)?;
        Self::parse(&bytes[..len], file.path())
    }

    /// Reads both copies in a directory; the newer valid one holds.
    ///
    /// # Errors
    /// What is wrong with the first copy if none is valid, [`Error::NewerFormat`] of either one, and what the operating
    /// system answers.
    pub fn find(dir: &Dir) -> Result<Copies> {
        let [first, second] = NAMES.map(|name| Self::read(dir, name));
        let is_behind = matches!((&first, &second), (Ok(first), Ok(second))
            if first.store_id == second.store_id && first.generation != second.generation);
        let (newest, others) = match (first, second) {
            (Ok(first), Ok(second)) if first.generation >= second.generation => {
                let others = (first != second).then(|| (NAMES[1], stale(dir, 1, &second)));
                (first, others)
            }
            (Ok(first), Ok(second)) => (second, Some((NAMES[0], stale(dir, 0, &first)))),
            (Ok(first), Err(error)) => (first, Some((NAMES[1], error))),
            (Err(error), Ok(second)) => (second, Some((NAMES[0], error))),
            (Err(Error::Missing { .. }), Err(error)) => return Err(error),
            (Err(_), Err(error)) if error.is_no_damage() => return Err(error),
            (Err(error), Err(_)) => return Err(error),
        };
        if let Some((_, error)) = &others
            && error.is_no_damage()
        {
            return Err(error.clone());
        }
        Ok(Copies {
            manifest: newest,
            other: others,
            is_behind,
        })
    }

    /// Makes this the manifest of a directory, durably: first one copy, then the other.
    ///
    /// # Errors
    /// What the operating system answers. A crash then may leave this one or the last one.
    pub fn write(&self, dir: &Dir) -> Result<()> {
        NAMES.iter().try_for_each(|name| self.write_copy(dir, name))
    }

    /// As [`write`](Self::write), from copy `first` on: the other one must be whole. After a failure `first` is the copy
    /// that may not be. To begin with the other one then could leave none.
    ///
    /// # Errors
    /// As there.
    pub fn rewrite(&self, dir: &Dir, first: &mut usize) -> Result<()> {
        for nth in [*first, 1 - *first] {
            *first = nth;
            self.write_copy(dir, NAMES[nth])?;
        }
        *first = 0;
        Ok(())
    }

    /// Writes one copy, durably. A crash may tear it.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn write_copy(&self, dir: &Dir, name: &str) -> Result<()> {
        if dir.has(name)? {
            // In place, which takes no room: the other copy is whole.
            let file = dir.open_file(name, true)?;
            file.write(&self.to_bytes(), 0)?;
            return file.sync();
        }
        let mut file = dir.create_file(NEXT_NAME)?;
        file.write(&self.to_bytes(), 0)?;
        file.sync()?;
        file.rename(name)?;
        file.sync_dir()
    }
}

/// What a directory has of manifests.
#[derive(Debug)]
pub struct Copies {
    /// The one that holds.
    pub manifest: Manifest,
    /// The name of the copy that is not the same, and what is wrong with it.
    pub other: Option<(&'static str, Error)>,
    /// It is whole and an older one of this store, as a crash between the two leaves it.
    pub is_behind: bool,
}

fn stale(dir: &Dir, nth: usize, manifest: &Manifest) -> Error {
    Error::Damaged {
        path: dir.join(NAMES[nth]),
        what: "manifest",
        at: HEADER as u64,
        found: format!(
            "generation {}, which is not the newest",
            manifest.generation
        ),
    }
}
