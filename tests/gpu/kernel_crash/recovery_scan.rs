//! Files that no crash leaves: the device refuses what the CPU refuses, and takes what it takes.

use std::fs;
use std::path::Path;

use gphash::layout::{Shape, Superblock};
use gphash::{Engine, Error, Index, Options, Result};
use tempfile::TempDir;

use crate::{FOLDER, device};

/// A file as it is while it is open, so that whoever opens it scans it.
struct Scanned {
    bytes: Vec<u8>,
    superblock: Superblock,
    shape: Shape,
}

impl Scanned {
    /// One of small buckets, with items in further rounds in both of its levels.
    fn new(folder: &Path) -> Self {
        let path = folder.join("whole");
        let options = Options::new().engine(Engine::Cpu).shape(2, 1, 2);
        let index = Index::<u64, u64>::create(&path, &options.capacity(1)).unwrap();
        for key in 0..3000 {
            index.insert_one(&key, &key).unwrap();
        }
        index.close().unwrap();
        let index = Index::<u64, u64>::open(&path, &Options::new().engine(Engine::Cpu)).unwrap();
        let bytes = fs::read(&path).unwrap();
        drop(index);
        let superblock = Superblock::parse(&bytes, bytes.len() as u64, &path).unwrap();
        let shape = superblock.shape(&path).unwrap();
        fs::remove_file(path).unwrap();
        Self {
            bytes,
            superblock,
            shape,
        }
    }

    fn is_at_rest(&self) -> bool {
        self.superblock.top_level == self.superblock.bottom_level + 1
    }

    /// Gives all bits of a level's overflow map this value.
    fn fill_overflow_map(&mut self, level: u32, byte: u8) {
        let offset = self.superblock.level_directory[level as usize];
        let map = usize::try_from(offset + self.shape.buckets_len(level)).unwrap();
        self.bytes[map..][..(1 << level) / 8].fill(byte);
    }

    /// Where the state word of an 8-byte key stands.
    fn state_of(&self, key: u64) -> usize {
        let levels = self.superblock.bottom_level..=self.superblock.top_level;
        let buckets = levels.flat_map(|level| {
            let offset = self.superblock.level_directory[level as usize];
            (0..1u64 << level).map(move |bucket| offset + bucket * self.shape.bucket_size)
        });
        buckets
            .flat_map(|bucket| (0..self.shape.slots).map(move |slot| (bucket, slot)))
            .map(|(bucket, slot)| self.shape.slot_addr(bucket, slot).state)
            .map(|at| usize::try_from(at).unwrap())
            .find(|&at| self.bytes[at..at + 8] == key.to_le_bytes())
            .unwrap()
    }

    /// How many items an engine finds in it.
    fn open(&self, folder: &Path, engine: Engine) -> Result<u64> {
        let path = folder.join("crafted");
        fs::write(&path, &self.bytes).unwrap();
        let index = Index::<u64, u64>::open(&path, &Options::new().engine(engine))?;
        Ok(index.recovery().items)
    }
}

#[test]
fn overflow_bits_of_other_levels() {
    let Some(_alone) = crate::alone() else {
        return;
    };
    let (engine, _) = device();
    let folder = TempDir::new_in(FOLDER).unwrap();
    // With buckets this small, the places above of some item may all be taken when the file is
    // closed, and its level then stays. The seed of the hash decides.
    let file = std::iter::repeat_with(|| Scanned::new(folder.path()))
        .take(100)
        .find(Scanned::is_at_rest)
        .expect("most files are at rest when closed");
    let (bottom, top) = (file.superblock.bottom_level, file.superblock.top_level);
    // Bits of the bottom and of the top level, and whether an item may then be there.
    for (bits, is_sound) in [
        ([0x00, 0x00], false),
        ([0xff, 0x00], false),
        ([0x00, 0xff], true),
        ([0xff, 0xff], true),
    ] {
        let mut crafted = Scanned {
            bytes: file.bytes.clone(),
            ..file
        };
        crafted.fill_overflow_map(bottom, bits[0]);
        crafted.fill_overflow_map(top, bits[1]);
        for engine in [Engine::Cpu, engine] {
            match crafted.open(folder.path(), engine) {
                Ok(items) => assert!(is_sound && items == 3000, "{bits:x?}, {engine:?}: {items}"),
                Err(Error::Damaged { .. }) => assert!(!is_sound, "{bits:x?}, {engine:?}"),
                Err(error) => panic!("{bits:x?}, {engine:?}: {error}"),
            }
        }
    }
}

#[test]
fn flipped_bits_of_slots() {
    let Some(_alone) = crate::alone() else {
        return;
    };
    let (engine, _) = device();
    let folder = TempDir::new_in(FOLDER).unwrap();
    let mut file = Scanned::new(folder.path());
    let at = file.state_of(1000);
    // Some bits of both words, and all flags.
    for bit in (0..120).step_by(9).chain(120..128) {
        file.bytes[at + bit / 8] ^= 1 << (bit % 8);
        for engine in [Engine::Cpu, engine] {
            let opened = file.open(folder.path(), engine);
            assert!(
                matches!(opened, Err(Error::Damaged { .. })),
                "bit {bit}, {engine:?}: {opened:?}"
            );
        }
        file.bytes[at + bit / 8] ^= 1 << (bit % 8);
    }
    for engine in [Engine::Cpu, engine] {
        assert_eq!(file.open(folder.path(), engine).unwrap(), 3000);
    }
}
