//! Files made to attack, with checksums that match. Whatever they say, no access is outside of them
//! and no wait is for ever. What a scan cannot believe is refused with its offset.

use std::fs;
use std::path::{Path, PathBuf};

use bytemuck::Zeroable;

use super::{dir, open, try_open};
use crate::layout::bucket::SlotAddr;
use crate::layout::size_class::{CLASS_TABLE, ClassTable, SIZE_CLASSES};
use crate::layout::{
    DATA_START, ExtentEntry, ExtentKind, Flags, RecordWord, SUPERBLOCKS, Superblock,
};
use crate::table::item::Mutation;
use crate::width::{low_byte, to_usize};
use crate::{Error, Result, recover};

/// Items of an honest file.
const ITEMS: u64 = 60;

fn key(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(1 + to_usize(n) % 5)
}

fn value(n: u64) -> Vec<u8> {
    vec![low_byte(n); (n * 13 % 300) as usize]
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Mutation<'a> {
    Mutation::Put {
        key,
        value,
        sequence: 1,
    }
}

#[derive(Clone)]
struct Hostile {
    bytes: Vec<u8>,
    superblock: Superblock,
}

impl Hostile {
    /// An honest file, cleanly closed, with some records free.
    fn new() -> Self {
        let dir = dir();
        let path = dir.path().join("records");
        let records = open(&path);
        for n in 0..ITEMS + 20 {
            records.apply(&[put(&key(n), &value(n))]).unwrap();
        }
        for n in ITEMS..ITEMS + 20 {
            records.apply(&[Mutation::Delete { key: &key(n) }]).unwrap();
        }
        records.close().unwrap();
        let bytes = fs::read(&path).unwrap();
        let superblock = Superblock::parse(&bytes, bytes.len() as u64, &path).unwrap();
        Self { bytes, superblock }
    }

    /// Makes the file one that has to be scanned.
    fn unclean(mut self) -> Self {
        self.superblock.set_flag(Flags::CLEAN, false);
        self
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes[to_usize(at)..][..8].try_into().unwrap())
    }

    fn put(&mut self, at: u64, word: u64) {
        self.bytes[to_usize(at)..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// The slots that hold items.
    fn members(&self) -> Vec<SlotAddr> {
        let shape = self.superblock.shape(Path::new("records")).unwrap();
        (self.superblock.bottom_level..=self.superblock.top_level)
            .flat_map(|level| {
                let offset = self.superblock.level_directory[level as usize];
                (0..1u64 << level).map(move |bucket| offset + bucket * shape.bucket_size)
            })
            .flat_map(|bucket| (0..shape.slots).map(move |slot| shape.slot_addr(bucket, slot)))
            .filter(|slot| self.word(slot.state) != 0)
            .collect()
    }

    /// Where the record of an item stands.
    fn record(&self, slot: SlotAddr) -> u64 {
        RecordWord(self.word(slot.record)).offset()
    }

    fn class_table(&mut self, table: ClassTable) {
        self.bytes[to_usize(CLASS_TABLE)..][..size_of::<ClassTable>()]
            .copy_from_slice(bytemuck::bytes_of(&table));
    }

    fn taken(&self) -> ClassTable {
        bytemuck::pod_read_unaligned(
            &self.bytes[to_usize(CLASS_TABLE)..][..size_of::<ClassTable>()],
        )
    }

    fn write(&self, dir: &Path) -> (PathBuf, Vec<u8>) {
        let (mut bytes, mut superblock) = (self.bytes.clone(), self.superblock);
        superblock.seal();
        for at in SUPERBLOCKS {
            bytes[to_usize(at)..][..size_of::<Superblock>()]
                .copy_from_slice(bytemuck::bytes_of(&superblock));
        }
        let path = dir.join("records");
        fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }

    /// Does all that can be done to the file; gives how it opens.
    fn attack(self, name: &str) -> Result<()> {
        println!("{name}");
        let dir = dir();
        let (path, before) = self.write(dir.path());
        let checked = recover(&path, crate::Repair::Check, &|_| {});
        assert!(fs::read(&path).unwrap() == before, "a check changed {name}");
        let opened = use_it(&path);
        if opened.is_err() {
            assert!(fs::read(&path).unwrap() == before, "{name} was changed");
        }
        self.write(dir.path());
        let repaired = recover(&path, crate::Repair::Salvage, &|_| {});
        assert_eq!(checked.is_ok(), repaired.is_ok(), "{name}: {repaired:?}");
        if repaired.is_ok() {
            let report = recover(&path, crate::Repair::Check, &|_| {}).unwrap();
            assert_eq!(report.recovery.damage, [""; 0], "{name}");
            let (records, recovery) = try_open(&path).unwrap();
            assert!(recovery.clean);
            assert_eq!(records.len(), report.recovery.items);
            let mut keys = Vec::new();
            records.for_each_key(|key| keys.push(key.to_vec())).unwrap();
            assert_eq!(keys.len() as u64, report.recovery.items);
            for key in keys {
                assert!(records.get(&key, |_, _| ()).unwrap().is_some());
            }
            drop(records);
            use_it(&path).unwrap();
        }
        opened
    }

    /// Puts and deletes a key whose item is damaged, and looks for it and all others, those of all free records, too.
    fn change_in_place(&self, damaged: &[u8], name: &str) {
        for is_put in [true, false] {
            let dir = dir();
            let (path, _) = self.write(dir.path());
            let records = try_open(&path).unwrap().0;
            let change = match is_put {
                true => put(damaged, b"new"),
                false => Mutation::Delete { key: damaged },
            };
            records.apply(&[change]).expect(name);
            // Then the file says what is free.
            records.close().expect(name);
            let records = try_open(&path).unwrap().0;
            let others = (0..ITEMS).filter(|&n| key(n) != damaged);
            for n in 5000..5400 {
                records.apply(&[put(&key(n), &value(n))]).expect(name);
            }
            let found = |key: &[u8]| records.get(key, |_, value| value.to_vec());
            match found(damaged) {
                // The slot may name what was another item's record, and is now a part of one.
                Err(Error::Damaged { .. }) => {}
                answer => assert_eq!(answer.unwrap(), is_put.then(|| b"new".to_vec()), "{name}"),
            }
            for n in others.chain(5000..5400) {
                assert_eq!(found(&key(n)).unwrap(), Some(value(n)), "{name}, {n}");
            }
        }
    }

    /// As [`attack`](Self::attack), for a file that must be refused as damaged.
    fn must_be_refused(self, name: &str) {
        let error = self.attack(name).expect_err(name);
        assert!(matches!(error, Error::Damaged { .. }), "{name}: {error}");
    }
}

/// Uses everything on the file; the error is that of opening.
fn use_it(path: &Path) -> Result<()> {
    let (records, _) = try_open(path)?;
    let keys: Vec<Vec<u8>> = (0..ITEMS + 20).map(key).collect();
    // What a file that is believed says may turn out to be damage now.
    for key in &keys {
        let _ = records.get(key, |_, value| value.len());
        let slices = [&key[..], &keys[7]];
        let _ = records.get_many(&slices, &[], |_, _, _| ());
    }
    let _ = records.for_each_key(|_| ());
    records.for_each_of(|_| true, |_| ());
    for key in &keys[..40] {
        let _ = records.apply(&[put(key, b"another value")]);
    }
    for key in &keys[20..60] {
        let _ = records.apply(&[Mutation::Delete { key }]);
    }
    for n in 5000..5400 {
        let _ = records.apply(&[put(&key(n), &value(n))]);
    }
    let _ = records.for_each_key(|_| ());
    records.for_each_of(|_| true, |_| ());
    let _ = records.sync();
    let _ = records.close();
    Ok(())
}

#[test]
fn record_lengths_out_of_bounds() {
    let file = Hostile::new();
    let len = file.bytes.len() as u64;
    for (name, word) in [
        ("nothing", 0),
        ("the longest", 1 << 62 | 1 << 16),
        ("longer than any", u64::MAX),
        ("a key that is too long", (1 << 16) + 1),
        ("a key of the file", len),
        ("a value of the file", len << 32),
        ("a value to the next class", 200 << 32 | 8),
        ("a key without its value", 8),
    ] {
        let mut slots = file.members();
        // Of one item that is the truth, and where it stands depends on the seed of the hash.
        slots.retain(|&slot| file.word(file.record(slot)) != word);
        for members in [&slots[..1], &slots[..]] {
            let mut one = file.clone();
            for &slot in members {
                one.put(one.record(slot), word);
            }
            let name = format!("{} headers of {name}", members.len());
            // A file that was cleanly closed is believed until an operation comes by.
            one.clone().attack(&name).unwrap();
            one.unclean().must_be_refused(&format!("{name}, unclean"));
        }
    }
}

#[test]
fn record_bytes_outside_the_checksum() {
    let file = Hostile::new();
    for at in [8, 16, 24, 30] {
        let mut spoilt = file.clone();
        let record = spoilt.record(spoilt.members()[3]);
        spoilt.bytes[to_usize(record + at)] ^= 1;
        spoilt.clone().attack("a byte that changed").unwrap();
        spoilt
            .unclean()
            .must_be_refused("a byte that changed, unclean");
    }
}

#[test]
fn record_words_that_lead_astray() {
    let file = Hostile::new();
    let members = file.members();
    for (name, word) in [
        (
            "in a level",
            file.superblock.level_directory[file.superblock.top_level as usize],
        ),
        ("in its own slot", members[0].record),
        ("inside a record", file.record(members[0]) + 8),
        ("of another item", file.record(members[1])),
        ("before all extents", DATA_START - 8),
        ("at the end", file.superblock.file_len),
        ("across the end", file.superblock.file_len - 8),
        ("not of a word", file.record(members[0]) + 3),
        ("far away", (1 << 56) - 8),
    ] {
        for some in [&members[..1], &members[..]] {
            let mut one = file.clone();
            for slot in some {
                one.put(slot.record, word);
            }
            let name = format!("{} records {name}", some.len());
            one.clone().attack(&name).unwrap();
            one.unclean().must_be_refused(&format!("{name}, unclean"));
        }
    }
}

/// A change of an item of which a bit has flipped, in its slot or in the header of its record, is made, and gives up no record
/// of others, nor one that is free.
#[test]
fn changes_of_an_item_with_a_flipped_bit_are_made() {
    let file = Hostile::new();
    let members = file.members();
    let in_arena = |at: u64| (DATA_START..file.superblock.file_len).contains(&at);
    for (nth, &slot) in members.iter().enumerate().take(10) {
        let at = file.record(slot);
        let len = to_usize(file.word(at) & u64::from(u32::MAX));
        let damaged = &file.bytes[to_usize(at) + 24..][..len];
        for bit in 0..64 {
            let flipped = |at| file.word(at) ^ 1 << bit;
            let leads_to = RecordWord(flipped(slot.record)).offset();
            if nth == 3 || leads_to != at && in_arena(leads_to) {
                let mut one = file.clone();
                one.put(slot.record, flipped(slot.record));
                one.change_in_place(damaged, &format!("record word {nth}, bit {bit}"));
            }
            if nth == 3 {
                let mut one = file.clone();
                one.put(at, flipped(at));
                one.change_in_place(damaged, &format!("lengths, bit {bit}"));
            }
        }
    }
}

#[test]
fn record_words_in_empty_slots() {
    let mut file = Hostile::new();
    let top = file.superblock.level_directory[file.superblock.top_level as usize];
    for slot in file.members() {
        file.put(slot.record, top);
        if slot.state == top {
            file.put(slot.state, 0);
            file.put(slot.record, 0);
        }
    }
    // A key that goes to the empty slot makes the header there one that cannot be believed.
    file.attack("records in an empty slot").unwrap();
}

#[test]
fn class_tables_that_are_invalid() {
    let file = Hostile::new();
    let honest = file.taken();
    let used = honest.taken.iter().position(|&taken| taken > 0).unwrap();
    let mut torn = file.clone();
    torn.bytes[to_usize(CLASS_TABLE)] ^= 1;
    torn.must_be_refused("a torn class table");
    for (name, class, taken) in [
        ("more than there are", used, 1 << 40),
        ("none", used, 0),
        ("some of a class without extents", 101, 1),
        ("a number that overflows", 0, u64::MAX),
    ] {
        let mut spoilt = file.clone();
        let mut counts = honest.taken;
        counts[class] = taken;
        spoilt.class_table(ClassTable::new(counts));
        spoilt.must_be_refused(&format!("{name} taken"));
    }
    let mut empty = file.clone();
    empty.class_table(ClassTable::zeroed());
    empty.must_be_refused("an empty class table");
    // Without the flag the table means nothing.
    let mut unclean = file.clone();
    unclean.class_table(ClassTable::zeroed());
    unclean
        .unclean()
        .attack("an empty class table, unclean")
        .unwrap();
}

#[test]
fn extents_of_other_classes() {
    let file = Hostile::new();
    let entry = |index: u32| -> ExtentEntry {
        let at = to_usize(file.superblock.entry_offset(index));
        bytemuck::pod_read_unaligned(&file.bytes[at..][..size_of::<ExtentEntry>()])
    };
    let arena = (0..file.superblock.extent_count)
        .find(|&index| entry(index).kind() == Some(ExtentKind::Arena))
        .unwrap();
    let honest = entry(arena);
    for class in [
        (honest.class + 1) % SIZE_CLASSES,
        60,
        SIZE_CLASSES - 1,
        SIZE_CLASSES,
        u32::MAX,
    ] {
        let mut spoilt = file.clone();
        let other = ExtentEntry::new(ExtentKind::Arena, class, honest.offset, honest.len);
        let at = to_usize(file.superblock.entry_offset(arena));
        spoilt.bytes[at..][..size_of::<ExtentEntry>()].copy_from_slice(bytemuck::bytes_of(&other));
        let name = format!("an extent of class {class}");
        let opened = spoilt.clone().attack(&name);
        assert!(opened.is_err() || class < SIZE_CLASSES);
        spoilt
            .unclean()
            .must_be_refused(&format!("{name}, unclean"));
    }
}

#[test]
fn sizes_beside_the_flag() {
    let file = Hostile::new();
    for (key, value) in [(8, 8), (0, 8), (16, 0)] {
        let mut spoilt = file.clone();
        (spoilt.superblock.key_size, spoilt.superblock.value_size) = (key, value);
        spoilt.must_be_refused("sizes and variable length");
    }
    let mut fixed = file.clone();
    fixed.superblock.set_flag(Flags::VARIABLE, false);
    fixed.must_be_refused("no sizes and no variable length");
}
