//! Single bits: each bit of a slot, of its record and of the header is flipped, one at a time, in files that
//! were closed and in files that were killed. What `gphash-recover --check` does then is exactly what is listed
//! here, in [`unnoticed`] and in the README.

use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::damage_tests::{Kind, Open};
use super::repair::recover;
use crate::index::fault_tests::faults::TestDir;
use crate::index::fault_tests::seed;
use crate::layout::bucket::SlotAddr;
use crate::layout::{
    BUSY, EMPTY, ExtentEntry, KeyClass, METADATA, Metadata, MetadataPage, PAGE, RESERVED_BUCKETS,
    RecordWord, SUPERBLOCKS, Shape, Superblock,
};
use crate::width::to_usize;
use crate::{Engine, Error, Index, Options, Repair, ReportState};

/// Of the bits of headers one in so many is flipped, unless all are wanted.
const HEADER_BITS_STEP: usize = 61;

/// What is flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    StateWord,
    RecordWord,
    Key,
    Record,
    EmptySlot,
    Superblock,
    ExtentEntry,
    Metadata,
}

/// A file that was left, and what a check says of it as it is.
struct Left {
    path: PathBuf,
    bytes: Vec<u8>,
    superblock: Superblock,
    shape: Shape,
    items: u64,
    metadata: Metadata,
}

impl Left {
    fn new(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let superblock = Superblock::parse(&bytes, bytes.len() as u64, path).unwrap();
        let mut left = Self {
            path: path.to_path_buf(),
            superblock,
            shape: superblock.shape(path).unwrap(),
            bytes,
            items: 0,
            metadata: Metadata::default(),
        };
        fs::write(&left.path, &left.bytes).unwrap();
        let report = recover(&left.path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(report.state, left.state(), "{:?}", report.recovery);
        left.items = report.recovery.items;
        left.metadata = report.metadata;
        left
    }

    fn is_clean(&self) -> bool {
        self.superblock.is_clean()
    }

    fn state(&self) -> ReportState {
        match self.is_clean() {
            true => ReportState::Clean,
            false => ReportState::NeedsRecovery,
        }
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes[to_usize(at)..][..8].try_into().unwrap())
    }

    /// All slots, those of the reserved buckets first.
    fn slots(&self) -> Vec<SlotAddr> {
        let (superblock, shape) = (&self.superblock, &self.shape);
        let reserved = (0..2).map(|nth| RESERVED_BUCKETS + nth * PAGE);
        let reserved = reserved.filter(|_| shape.key_class() == KeyClass::Word);
        let levels = superblock.bottom_level..=superblock.top_level;
        let buckets = levels.flat_map(|level| {
            let offset = superblock.level_directory[level as usize];
            (0..1u64 << level).map(move |bucket| offset + bucket * shape.bucket_size)
        });
        reserved
            .chain(buckets)
            .flat_map(|bucket| (0..shape.slots).map(move |slot| shape.slot_addr(bucket, slot)))
            .collect()
    }

    /// Whether a check notices that a bit is flipped. If not, it finds as many items as before.
    fn notices(&self, bit: usize) -> bool {
        let mut bytes = self.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&self.path, &bytes).unwrap();
        let Ok(report) = recover(&self.path, Repair::Check, &|_| {}) else {
            return true;
        };
        assert_eq!(report.metadata.user, self.metadata.user);
        assert_eq!(
            report.state == ReportState::Damaged,
            !report.recovery.damage.is_empty()
        );
        report.state != self.state()
    }

    /// Why no check notices that a bit of a part is flipped, of which `word` is the word around it in the file
    /// and `at` the offset of its byte in the part; `None` if one does.
    fn unnoticed(&self, part: Part, word: u64, at: u64) -> Option<&'static str> {
        let value_size = self.shape.value_size;
        match part {
            Part::Record if at >= self.shape.value_record_len() => Some("a gap means nothing"),
            Part::Record if at < value_size && !self.shape.checksums => {
                Some("a value without a checksum")
            }
            Part::Record if at >= value_size && at < to_next_word(value_size) => {
                Some("a gap means nothing")
            }
            Part::StateWord if !self.is_clean() && (word == EMPTY || word == BUSY) => {
                Some("as a crash leaves an insertion or a removal")
            }
            Part::RecordWord if !self.is_clean() && word == RecordWord::NONE.0 => {
                Some("as a crash leaves an insertion or a removal")
            }
            Part::Superblock if !self.is_clean() => Some("the other copy holds"),
            Part::Metadata => Some("the other copy says the same"),
            _ => None,
        }
    }

    /// Flips the bits of a part that lies at `at`, one in `step` of them.
    fn flip(&self, part: Part, at: u64, len: u64, step: usize, phase: usize) -> usize {
        let bits = (to_usize(at) * 8..to_usize(at + len) * 8).skip(phase);
        let mut flipped = 0;
        for bit in bits.step_by(step) {
            let byte = bit as u64 / 8;
            let word = self.word(byte & !7) ^ 1 << (bit % 64);
            let noticed = self.notices(bit);
            let listed = self.unnoticed(part, word, byte - at);
            if part == Part::EmptySlot && !self.is_clean() {
                // It is cleared, or it is more than a crash leaves.
                continue;
            }
            assert_eq!(
                noticed,
                listed.is_none(),
                "bit {bit} of {part:?}, clean: {}, {:?}: {listed:?}",
                self.is_clean(),
                self.shape
            );
            flipped += 1;
        }
        flipped
    }

    fn flip_slot(&self, addr: SlotAddr) -> usize {
        let record = RecordWord(self.word(addr.record)).offset();
        let mut flipped = self.flip(Part::StateWord, addr.state, 8, 1, 0);
        flipped += self.flip(Part::RecordWord, addr.record, 8, 1, 0);
        flipped += self.flip(Part::Record, record, self.shape.record_stride, 1, 0);
        if self.shape.key_class() == KeyClass::Wide {
            flipped += self.flip(Part::Key, addr.key, self.shape.key_size, 1, 0);
        }
        flipped
    }

    fn flip_all(&self, rng: &mut SmallRng) -> usize {
        let (members, empty): (Vec<SlotAddr>, Vec<SlotAddr>) = self
            .slots()
            .into_iter()
            .partition(|addr| self.word(addr.state) != EMPTY);
        assert_eq!(members.len() as u64, self.items);
        // The first one is of a reserved bucket, if there are any. A key of one bit is nearest to no key.
        let mut chosen = vec![members[0], members[rng.random_range(1..members.len())]];
        chosen.extend(members.iter().find(|addr| self.word(addr.state) == 2));
        let mut flipped: usize = chosen.iter().map(|&addr| self.flip_slot(addr)).sum();
        let addr = empty[rng.random_range(0..empty.len())];
        flipped += self.flip(Part::EmptySlot, addr.state, 16, 1, 0);
        let step = match std::env::var("GPHASH_DAMAGE").as_deref() {
            Ok("all") => 1,
            _ => HEADER_BITS_STEP,
        };
        let first = ExtentEntry::entry_offset(self.superblock.extent_table, 0);
        let count = self.superblock.extent_count;
        let entries = ExtentEntry::entry_offset(self.superblock.extent_table, count) - first;
        let superblock = size_of::<Superblock>() as u64;
        let metadata = size_of::<MetadataPage>() as u64;
        for (part, at, len) in [
            (Part::Superblock, SUPERBLOCKS[0], superblock),
            (Part::Superblock, SUPERBLOCKS[1], superblock),
            (Part::ExtentEntry, first, entries),
            (Part::Metadata, METADATA[0], metadata),
            (Part::Metadata, METADATA[1], metadata),
        ] {
            flipped += self.flip(part, at, len, step, rng.random_range(0..step));
        }
        flipped
    }
}

fn to_next_word(len: u64) -> u64 {
    len.next_multiple_of(8)
}

#[test]
fn flipped_bits_are_noticed_unless_they_are_listed() {
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    for kind in [Kind::Word, Kind::Wide] {
        for checksums in [false, true] {
            let [dir, ..] = TestDir::all();
            // Without a growth, so that nothing moves while the file is read.
            let options = dir.options(None).capacity(100).checksums(checksums);
            let index = kind.open(&dir.path(), &options).unwrap();
            index.change(1..40);
            if let Open::Word(index) = &index {
                index.upsert_one(&0, &[7; 3]).unwrap();
                index.set_user_metadata(b"trained on Monday").unwrap();
            }
            index.close();
            let closed = Left::new(&dir.path());
            assert!(closed.is_clean() && closed.shape.checksums == checksums);
            let mut flipped = closed.flip_all(&mut rng);
            fs::write(dir.path(), &closed.bytes).unwrap();

            let index = kind.open(&dir.path(), &options).unwrap();
            index.change(30..60);
            let killed = dir.crash();
            index.close();
            let killed = Left::new(&killed.path());
            assert!(!killed.is_clean());
            flipped += killed.flip_all(&mut rng);
            println!("{kind:?}, checksums: {checksums}: {flipped} bits");
        }
    }
}

#[test]
fn damaged_value_fails_its_lookup_and_is_dropped_by_a_salvage() {
    let [dir, ..] = TestDir::all();
    let options = dir.options(None).capacity(100).checksums(true);
    let index = Index::<u64, [u64; 3]>::create(dir.path(), &options).unwrap();
    for key in 0..50 {
        index.insert_one(&key, &[key, !key, key << 32]).unwrap();
    }
    index.close().unwrap();
    let left = Left::new(&dir.path());
    let found = left
        .slots()
        .into_iter()
        .find(|addr| left.word(addr.state) == 33);
    let record = RecordWord(left.word(found.unwrap().record)).offset();
    let mut damaged = left.bytes.clone();
    damaged[to_usize(record) + 9] ^= 4;
    fs::write(dir.path(), &damaged).unwrap();

    let open = |options: &Options| Index::<u64, [u64; 3]>::open(dir.path(), options).unwrap();
    let index = open(&options);
    assert!(index.get_one(&33).unwrap().is_some(), "as it is");
    index.close().unwrap();
    let index = open(&options.clone().verify_checksums(true).engine(Engine::Cpu));
    for key in 0..50 {
        match index.get_one(&key) {
            Ok(value) => assert!(key != 33 && value == Some([key, !key, key << 32])),
            Err(Error::Damaged { what, at, .. }) => {
                assert_eq!((key, what, at), (33, "record", record))
            }
            Err(error) => panic!("{error}"),
        }
    }
    index.close().unwrap();
    let report = recover(dir.path(), Repair::Salvage, &|_| {}).unwrap();
    assert_eq!(report.state, ReportState::Damaged);
    assert_eq!((report.recovery.items_lost, report.recovery.items), (1, 49));
    assert_eq!(report.recovery.keys_lost, [33u64.to_le_bytes()]);
    let index = open(&options.clone().verify_checksums(true));
    assert_eq!((index.len(), index.get_one(&33).unwrap()), (49, None));
}
