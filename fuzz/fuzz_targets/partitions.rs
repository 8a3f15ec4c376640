//! A store of several partitions whose process was killed, with arbitrary damage to the files of any of them.

#![no_main]

mod folder;
mod manifests;
mod segments;
mod stores;

use arbitrary::Arbitrary;
use gphash::layout::mark::{MARK_STRIDE, MARKS};
use gphash::layout::{DATA_START, ExtentEntry, Mark, SUPERBLOCKS, Superblock};
use libfuzzer_sys::fuzz_target;
use stores::{Forged, PARTITIONED};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Arbitrary, Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Manifest,
    Segment,
    Index,
}

/// One change to a file, or to which files there are.
#[derive(Arbitrary, Debug)]
enum Patch {
    Manifest(manifests::Patch),
    Segment(segments::Patch),
    /// What a record says of its group, under checksums that match.
    Part {
        nth: u8,
        word: u8,
        value: u8,
    },
    Index(IndexPatch),
    /// One file becomes another one of its kind, be that of its partition or not.
    Swap {
        kind: Kind,
        other: u8,
    },
    Remove(Kind),
}

#[derive(Arbitrary, Debug)]
enum IndexPatch {
    /// Of what a checksum covers.
    Covered {
        part: Part,
        at: u16,
        bits: u8,
    },
    /// A word of a mark, under a checksum that matches.
    Mark {
        second: bool,
        word: u8,
        value: u64,
    },
    Byte {
        at: u32,
        value: u8,
    },
    Cut {
        at: u32,
    },
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Part {
    Superblock(bool),
    Mark(bool),
    Extents,
}

impl Part {
    /// Where it is, and how long.
    fn place(self) -> (u64, usize) {
        match self {
            Self::Superblock(second) => (SUPERBLOCKS[usize::from(second)], size_of::<Superblock>()),
            Self::Mark(second) => (MARKS + u64::from(second) * MARK_STRIDE, size_of::<Mark>()),
            Self::Extents => {
                let start = ExtentEntry::entry_offset(0, 0);
                (start, usize::try_from(DATA_START - start).unwrap())
            }
        }
    }
}

impl IndexPatch {
    /// Changes an index. Tells what was made up.
    fn apply(self, bytes: &mut Vec<u8>) -> Forged {
        let len = bytes.len().max(1);
        match self {
            Self::Covered { part, at, bits } => {
                let (start, len) = part.place();
                let at = usize::try_from(start).unwrap() + usize::from(at) % len;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bits;
                }
                Forged::Nothing
            }
            Self::Mark {
                second,
                word,
                value,
            } => {
                let (start, len) = Part::Mark(second).place();
                let start = usize::try_from(start).unwrap();
                if let Some(mark) = bytes.get_mut(start..start + len) {
                    let at = usize::from(word % 5) * 8;
                    mark[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    let sum = xxh3_64(&mark[..40]);
                    mark[40..].copy_from_slice(&sum.to_le_bytes());
                }
                Forged::Order
            }
            Self::Byte { at, value } => {
                if let Some(byte) = bytes.get_mut(usize::try_from(at).unwrap() % len) {
                    *byte = value;
                }
                Forged::Slots
            }
            Self::Cut { at } => {
                bytes.truncate(usize::try_from(at).unwrap() % len);
                Forged::Nothing
            }
        }
    }
}

impl Patch {
    fn kind(&self) -> Kind {
        match *self {
            Self::Manifest(_) => Kind::Manifest,
            Self::Segment(_) | Self::Part { .. } => Kind::Segment,
            Self::Index(_) => Kind::Index,
            Self::Swap { kind, .. } | Self::Remove(kind) => kind,
        }
    }

    /// Changes the contents of a file. Tells what was made up.
    fn apply(self, bytes: &mut Vec<u8>) -> Forged {
        match self {
            Self::Manifest(patch) => {
                let forged = match patch.is_sealed() {
                    true => Forged::Order,
                    false => Forged::Nothing,
                };
                patch.apply(bytes);
                forged
            }
            Self::Segment(patch) => {
                let forged = match patch {
                    segments::Patch::Record { .. } => Forged::Items,
                    _ => Forged::Nothing,
                };
                patch.apply(bytes);
                forged
            }
            Self::Part { nth, word, value } => {
                segments::forge_part(bytes, nth, word, value);
                // Of a record that has no part it changes items.
                Forged::Items
            }
            Self::Index(patch) => patch.apply(bytes),
            Self::Swap { .. } | Self::Remove(_) => unreachable!("a change of files"),
        }
    }
}

fn kind_of(name: &str) -> Option<Kind> {
    if name.ends_with(".log") {
        Some(Kind::Segment)
    } else if name.ends_with("index.gph") {
        Some(Kind::Index)
    } else if name.contains("MANIFEST") {
        Some(Kind::Manifest)
    } else {
        None
    }
}

fuzz_target!(|patches: Vec<(u8, Patch)>| {
    let mut files = PARTITIONED.files.clone();
    let mut forged = Forged::Nothing;
    for (nth, patch) in patches.into_iter().take(8) {
        let all: Vec<String> = files
            .keys()
            .filter(|name| kind_of(name) == Some(patch.kind()))
            .cloned()
            .collect();
        let Some(name) = all.get(usize::from(nth) % all.len().max(1)) else {
            continue;
        };
        match patch {
            Patch::Remove(_) | Patch::Segment(segments::Patch::Remove) => {
                drop(files.remove(name));
            }
            Patch::Swap { other, .. } | Patch::Segment(segments::Patch::Swap { other }) => {
                let other = files[&all[usize::from(other) % all.len()]].clone();
                files.insert(name.clone(), other);
            }
            patch => {
                let bytes = files.get_mut(name).unwrap();
                let before = bytes.clone();
                let made_up = patch.apply(bytes);
                if before != *bytes {
                    forged = forged.max(made_up);
                }
            }
        }
    }
    let folder = folder::new();
    PARTITIONED.open_and_mend(&folder.path().join("store"), &files, forged);
});
