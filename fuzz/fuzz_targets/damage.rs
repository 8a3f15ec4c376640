//! Damage to what checksums cover.

use arbitrary::Arbitrary;
use gphash::layout::{DATA_START, ExtentEntry, SUPERBLOCKS, Superblock};

use crate::files::{CASES, Case, Files};

/// A part of a file that a checksum covers.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Part {
    Superblock(bool),
    Extents,
    Journal,
    /// The length that the file has left.
    Length(u32),
}

/// Damage to one part of a file that a checksum covers.
#[derive(Arbitrary, Debug, Clone)]
pub struct Damage {
    case: u8,
    part: Part,
    flips: Vec<(u32, u8)>,
}

impl Damage {
    pub fn case(&self) -> &'static Case {
        &CASES[usize::from(self.case) % CASES.len()]
    }

    pub fn files(&self) -> Files {
        let mut files = self.case().files.clone();
        let Files { home, journal } = &mut files;
        let copy = size_of::<Superblock>();
        let part = match (self.part, journal) {
            (Part::Superblock(second), _) => {
                let at = usize::try_from(SUPERBLOCKS[usize::from(second)]).unwrap();
                home.get_mut(at..at + copy)
            }
            (Part::Length(len), _) => {
                home.truncate(usize::try_from(len).unwrap() % home.len());
                None
            }
            (Part::Journal, Some(journal)) => Some(&mut journal[..]),
            _ => {
                let start = usize::try_from(ExtentEntry::entry_offset(0, 0)).unwrap();
                home.get_mut(start..usize::try_from(DATA_START).unwrap())
            }
        };
        if let Some(part) = part {
            for &(at, bits) in &self.flips {
                let at = usize::try_from(at).unwrap() % part.len();
                part[at] ^= bits;
            }
        }
        files
    }
}
