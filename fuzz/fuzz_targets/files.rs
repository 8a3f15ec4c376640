//! Real files in several states, and damage to them under checksums that match or not.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use bytemuck::Pod;
use gphash::layout::{
    DATA_START, ExtentEntry, ExtentKind, Flags, METADATA, SUPERBLOCKS, Superblock,
};
use gphash::pm::{Call, Faults};
use gphash::{Domain, Engine, Index, Options, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::folder;

/// Bytes of a copy of the metadata block.
const METADATA_LEN: u64 = 4096;

/// A key that is made of a number.
pub trait Key: Pod {
    fn of(n: u64) -> Self;
}

impl Key for u64 {
    fn of(n: u64) -> Self {
        if n == 255 { u64::MAX } else { n }
    }
}

impl Key for [u64; 4] {
    fn of(n: u64) -> Self {
        [n, !n, 0, 7]
    }
}

/// A file and the journal beside it, if there is one.
#[derive(Clone, PartialEq)]
pub struct Files {
    pub home: Vec<u8>,
    pub journal: Option<Vec<u8>>,
}

/// A state of a file, and how to use it with its types.
pub struct Case {
    pub files: Files,
    pub open: fn(&Path) -> Result<()>,
    /// Opens it, and tells whether it holds what its program has left, and nothing else.
    pub holds: fn(&Path) -> Result<Held>,
}

/// What an index holds of that which its program has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    All,
    /// Items are missing, and those that are there are right.
    Part,
    /// Something else.
    Other,
}

pub static CASES: LazyLock<[Case; 5]> = LazyLock::new(|| {
    [
        Case {
            files: made::<u64, [u8; 16]>((2, 2, 8), Domain::Auto, State::Closed),
            open: open_and_use::<u64, [u8; 16]>,
            holds: holds::<u64, [u8; 16]>,
        },
        Case {
            files: made::<u64, u64>((1, 1, 2), Domain::Auto, State::Closed),
            open: open_and_use::<u64, u64>,
            holds: holds::<u64, u64>,
        },
        Case {
            files: made::<u64, u64>((1, 1, 4), Domain::Auto, State::Killed),
            open: open_and_use::<u64, u64>,
            holds: holds::<u64, u64>,
        },
        Case {
            files: made::<[u64; 4], [u8; 100]>((2, 1, 4), Domain::Auto, State::Killed),
            open: open_and_use::<[u64; 4], [u8; 100]>,
            holds: holds::<[u64; 4], [u8; 100]>,
        },
        Case {
            files: made::<u64, [u8; 16]>((2, 2, 4), Domain::Checkpointed, State::Journaled),
            open: open_and_use::<u64, [u8; 16]>,
            holds: holds::<u64, [u8; 16]>,
        },
    ]
});

/// How the process left the file.
#[derive(PartialEq)]
enum State {
    Closed,
    Killed,
    /// Killed when the journal was complete and nothing had come home.
    Journaled,
}

/// Keeps what is written to the file, but not to its journal, from getting there.
#[derive(Debug, Default)]
struct Away(AtomicBool);

impl Faults for Away {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_home = path.extension().is_none();
        if call == Call::Write && is_home && self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("kept away"));
        }
        Ok(())
    }
}

pub fn journal_of(path: &Path) -> PathBuf {
    path.with_extension("journal")
}

impl Files {
    pub fn read(path: &Path) -> Self {
        Self {
            home: std::fs::read(path).unwrap(),
            journal: std::fs::read(journal_of(path)).ok(),
        }
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, &self.home).unwrap();
        if let Some(journal) = &self.journal {
            std::fs::write(journal_of(path), journal).unwrap();
        }
    }
}

/// The value of the key that is made of `n`.
fn value_of<V: Pod>(n: u64) -> V {
    let mut value = V::zeroed();
    bytemuck::bytes_of_mut(&mut value).fill(n.to_le_bytes()[0] ^ 0x5A);
    value
}

/// Numbers of the keys that are stored, and of those that are removed again.
fn numbers() -> impl Iterator<Item = u64> {
    (0..60).chain([255])
}

const REMOVED: std::ops::Range<u64> = 10..20;

fn made<K: Key, V: Pod>(shape: (u32, u32, u32), domain: Domain, state: State) -> Files {
    let folder = folder::new();
    let path = folder.path().join("index");
    let away = Arc::new(Away::default());
    let options = Options::new()
        .engine(Engine::Cpu)
        .domain(domain)
        .capacity(20)
        .shape(shape.0, shape.1, shape.2)
        .faults(away.clone());
    let index = Index::<K, V>::create(&path, &options).unwrap();
    let keys: Vec<K> = numbers().map(K::of).collect();
    let values: Vec<V> = numbers().map(value_of).collect();
    index.insert(&keys, &values).unwrap();
    let removed: Vec<K> = REMOVED.map(K::of).collect();
    index.remove(&removed).unwrap();
    index.sync().unwrap();
    if state == State::Journaled {
        away.0.store(true, Ordering::Relaxed);
        index.upsert(&keys[..25], &values[..25]).unwrap();
        index.sync().unwrap_err();
    }
    if state != State::Closed {
        return Files::read(&path);
    }
    index.close().unwrap();
    Files::read(&path)
}

/// See [`Case::holds`]. Of the file whose journal is complete, also the checkpoint before is right.
fn holds<K: Key, V: Pod>(path: &Path) -> Result<Held> {
    let index = Index::<K, V>::open(path, &Options::new().engine(Engine::Cpu))?;
    let held = |n: u64| -> Result<Option<V>> { index.get_one(&K::of(n)) };
    let is_right = |n: u64, held: Option<V>| {
        let wanted: V = value_of(n);
        held.is_some_and(|held| bytemuck::bytes_of(&held) == bytemuck::bytes_of(&wanted))
    };
    let (mut count, mut missing) = (0, false);
    for n in numbers() {
        let held = held(n)?;
        count += u64::from(held.is_some());
        match held {
            None => missing |= !REMOVED.contains(&n),
            held if is_right(n, held) => {}
            Some(_) => return Ok(Held::Other),
        }
    }
    let none_else = (60..80).all(|n| matches!(held(n), Ok(None)));
    let all = numbers().count() as u64;
    let may_be = [all, all - (REMOVED.end - REMOVED.start)];
    if !none_else || index.len() != count || index.iter().count() as u64 != count {
        return Ok(Held::Other);
    }
    Ok(match missing || !may_be.contains(&count) {
        true => Held::Part,
        false => Held::All,
    })
}

/// Opens the file and uses it; the error is that of opening.
fn open_and_use<K: Key, V: Pod>(path: &Path) -> Result<()> {
    let index = Index::<K, V>::open(path, &Options::new().engine(Engine::Cpu))?;
    let keys: Vec<K> = (0..80).chain([255]).map(K::of).collect();
    let mut values = vec![V::zeroed(); keys.len()];
    let _ = index.get(&keys, &mut values);
    let _ = index.remove(&keys[..5]);
    let _ = index.update(&keys, &values);
    let _ = index.upsert(&keys, &values);
    let _ = index.contains(&keys);
    let _ = index.iter().count();
    let _ = index.sync();
    let _ = index.close();
    Ok(())
}

/// A number that may lead somewhere.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Number {
    Any(u64),
    Small(u8),
    /// Of a page.
    Page(u16),
    /// Of a word behind the tables.
    FileSystem(u16),
    Bit(u8),
    /// Below the end of the file.
    End(u16),
}

impl Number {
    fn value(self, len: u64) -> u64 {
        match self {
            Number::Any(value) => value,
            Number::Small(value) => u64::from(value),
            Number::Page(page) => u64::from(page) << 12,
            Number::FileSystem(word) => DATA_START + 8 * u64::from(word),
            Number::Bit(bit) => 1 << (bit % 64),
            Number::End(below) => len.wrapping_sub(u64::from(below)),
        }
    }
}

/// One change to a file.
#[derive(Arbitrary, Debug, Clone)]
pub enum Patch {
    /// A word of the superblock.
    Superblock {
        word: u8,
        value: Number,
    },
    /// Whether the superblock says that the file was cleanly closed.
    Clean(bool),
    /// A word of a copy of the metadata block.
    Metadata {
        second: bool,
        word: u16,
        value: Number,
    },
    /// An entry of the extent table, with its checksum.
    Extent {
        index: u8,
        kind: u8,
        class: u8,
        offset: Number,
        len: Number,
    },
    /// A slot's words.
    Slot {
        level: u8,
        bucket: u16,
        slot: u8,
        state: Option<Number>,
        record: Option<Number>,
        flags: u8,
    },
    /// One slot over another.
    Copy {
        level: u8,
        from: u16,
        to: u16,
    },
    Word {
        at: u32,
        value: Number,
    },
    Byte {
        at: u32,
        value: u8,
    },
    /// The end of the file, in pages.
    Len(u8),
    /// A word of the journal's header or of its page numbers.
    Journal {
        word: u8,
        value: Number,
    },
    JournalByte {
        at: u32,
        value: u8,
    },
    JournalLen(u16),
}

/// Changes to a file, of which the checksums may or may not know.
#[derive(Arbitrary, Debug, Clone)]
pub struct Patches {
    pub case: u8,
    seal: bool,
    seal_journal: bool,
    patches: Vec<Patch>,
}

impl Patches {
    pub fn case(&self) -> &'static Case {
        &CASES[usize::from(self.case) % CASES.len()]
    }

    pub fn files(&self) -> Files {
        let mut files = self.case().files.clone();
        let head = files.home.clone();
        let parsed = Superblock::parse(&head, head.len() as u64, Path::new("index"));
        let Ok(mut superblock) = parsed else {
            // The journal holds the superblock of a file that has only been made.
            self.patch_journal(&mut files);
            return files;
        };
        for patch in &self.patches {
            apply(patch, &mut files.home, &mut superblock);
        }
        if self.seal {
            superblock.seal();
            for at in METADATA {
                seal_metadata(&mut files.home, at);
            }
        }
        for at in SUPERBLOCKS {
            put(&mut files.home, at, bytemuck::bytes_of(&superblock));
        }
        self.patch_journal(&mut files);
        files
    }

    fn patch_journal(&self, files: &mut Files) {
        let len = files.home.len() as u64;
        let Some(journal) = &mut files.journal else {
            return;
        };
        for patch in &self.patches {
            match *patch {
                Patch::Journal { word, value } => {
                    put(
                        journal,
                        u64::from(word) * 8,
                        &value.value(len).to_le_bytes(),
                    );
                }
                Patch::JournalByte { at, value } => {
                    let at = u64::from(at) % journal.len().max(1) as u64;
                    put(journal, at, &[value]);
                }
                Patch::JournalLen(len) => journal.resize(usize::from(len) * 16, 0),
                _ => {}
            }
        }
        if self.seal_journal {
            seal_journal(journal);
        }
    }
}

/// Makes the checksum of a copy of the metadata block match.
fn seal_metadata(home: &mut [u8], at: u64) {
    let start = usize::try_from(at).unwrap();
    let end = start + usize::try_from(METADATA_LEN).unwrap() - 8;
    if let Some(page) = home.get(start..end) {
        let sum = xxh3_64(page);
        put(home, end as u64, &sum.to_le_bytes());
    }
}

/// Makes the checksums of a journal match what it says; see docs/format.md.
fn seal_journal(journal: &mut [u8]) {
    let word = |journal: &[u8], at: usize| {
        journal
            .get(at..at + 8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    };
    let Some(pages) = word(journal, 48).filter(|&pages| pages < 1 << 20) else {
        return;
    };
    let pages = usize::try_from(pages).unwrap();
    let numbers = 72 + pages * 8;
    if journal.len() < numbers {
        return;
    }
    let sum = xxh3_64(&journal[..64]);
    put(journal, 64, &sum.to_le_bytes());
    let end = numbers + pages * 4096;
    if journal.len() >= end + 8 {
        let trailer = xxh3_64(&journal[..end]);
        put(journal, end as u64, &trailer.to_le_bytes());
    }
}

/// Writes as much as there is room for.
fn put(bytes: &mut [u8], at: u64, part: &[u8]) {
    if let Some(room) = bytes.get_mut(usize::try_from(at).unwrap()..) {
        let len = room.len().min(part.len());
        room[..len].copy_from_slice(&part[..len]);
    }
}

fn apply(patch: &Patch, bytes: &mut Vec<u8>, superblock: &mut Superblock) {
    let len = bytes.len() as u64;
    match *patch {
        Patch::Superblock { word, value } => {
            let words: &mut [u64] = bytemuck::cast_slice_mut(bytemuck::bytes_of_mut(superblock));
            let count = words.len();
            words[usize::from(word) % count] = value.value(len);
        }
        Patch::Clean(clean) => superblock.set_flag(Flags::CLEAN, clean),
        Patch::Metadata {
            second,
            word,
            value,
        } => {
            let word = u64::from(word) % (METADATA_LEN / 8);
            let value = value.value(len).to_le_bytes();
            put(bytes, METADATA[usize::from(second)] + word * 8, &value);
        }
        Patch::Extent {
            index,
            kind,
            class,
            offset,
            len: bytes_of_it,
        } => {
            let kinds = [ExtentKind::Level, ExtentKind::Arena, ExtentKind::Free];
            let kind = kinds[usize::from(kind) % kinds.len()];
            let (offset, extent) = (offset.value(len), bytes_of_it.value(len));
            let entry = ExtentEntry::new(kind, u32::from(class), offset, extent);
            let place = ExtentEntry::entry_offset(0, u32::from(index % 16));
            put(bytes, place, bytemuck::bytes_of(&entry));
        }
        Patch::Slot {
            level,
            bucket,
            slot,
            state,
            record,
            flags,
        } => {
            let Some(at) = bucket_at(superblock, level, bucket) else {
                return;
            };
            let Ok(shape) = superblock.shape(Path::new("index")) else {
                return;
            };
            let place = shape.slot_addr(at, u32::from(slot) % shape.slots);
            if let Some(state) = state {
                put(bytes, place.state, &state.value(len).to_le_bytes());
            }
            if let Some(record) = record {
                let word = record.value(len) | u64::from(flags >> 5) << 61;
                put(bytes, place.record, &word.to_le_bytes());
            }
        }
        Patch::Copy { level, from, to } => {
            let places = [from, to].map(|bucket| bucket_at(superblock, level, bucket));
            let ([Some(from), Some(to)], Ok(shape)) =
                (places, superblock.shape(Path::new("index")))
            else {
                return;
            };
            let [start, len] = [from, shape.bucket_size].map(|n| usize::try_from(n).unwrap());
            let range = start..start + len;
            if let Some(bucket) = bytes.get(range).map(<[u8]>::to_vec) {
                put(bytes, to, &bucket);
            }
        }
        Patch::Word { at, value } => {
            let at = u64::from(at) % (len / 8).max(1) * 8;
            put(bytes, at, &value.value(len).to_le_bytes());
        }
        Patch::Byte { at, value } => put(bytes, u64::from(at) % len.max(1), &[value]),
        Patch::Len(pages) => bytes.resize(usize::from(pages) * 4096, 0),
        Patch::Journal { .. } | Patch::JournalByte { .. } | Patch::JournalLen(_) => {}
    }
}

/// Offset of a bucket of one of the levels that the superblock speaks of.
fn bucket_at(superblock: &Superblock, level: u8, bucket: u16) -> Option<u64> {
    let level = usize::from(level) % superblock.level_directory.len();
    let offset = superblock.level_directory[level];
    let shape = superblock.shape(Path::new("index")).ok()?;
    let number = u64::from(bucket) % (1 << level.min(16));
    (offset != 0).then(|| offset.wrapping_add(number * shape.bucket_size))
}
