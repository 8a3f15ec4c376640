//! What a GPU that has copies of a table's buckets says of it while its levels change. Without a GPU, and without the
//! emulated device for its driver (docs/testing.md), these tests pass by.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::RngExt;

use super::*;
use crate::engine::device_tests::{GPU, alone};
use crate::engine::{DeviceBudget, locator};
use crate::gpu::budget::Quota;
use crate::gpu::locator::{Answers, CHUNK, Questions, Said, Size, Terms, VALUE_MAX};
use crate::index::variable_tests::{dir, options, rng};
use crate::layout::RecordWord;
use crate::layout::bucket::SLOT_WORDS_BYTES;
use crate::layout::size_class::record_len;
use crate::sync::levels::Levels;
use crate::width::{low_byte, low_half, to_usize};

/// The sequence number of each key.
type Model = BTreeMap<u64, u64>;

/// A key, and the sequence number and the value that it is to have.
type Encoded = ([u8; 8], Option<(u64, Vec<u8>)>);

fn mutation((key, put): &Encoded) -> Mutation<'_> {
    match put {
        Some((sequence, value)) => Mutation::Put {
            key,
            value,
            sequence: *sequence,
        },
        None => Mutation::Delete { key },
    }
}

/// Of a sequence number whose values the device is not to give.
const EXCLUDED: u64 = 1 << 4;

/// What a change puts: values of all lengths that are hashed in different ways, and too long ones.
fn value_of(sequence: u64) -> Vec<u8> {
    let lens = [0, 20, 7, 131, 300, 1024, 1025, 230, 1000];
    vec![low_byte(sequence); lens[to_usize(sequence) % lens.len()]]
}

/// Asks in one exchange, and waits for all answers.
fn find<'l>(locator: &'l mut Locator, keys: &[[u8; 8]], excluded: u64) -> Answers<'l> {
    find_by(locator, keys, &terms(excluded))
}

fn terms(excluded: u64) -> Terms {
    Terms {
        values_wanted: true,
        absence_known: true,
        excluded,
        usable: [1, 0, 0, 0],
        route: (0, 1),
    }
}

fn find_by<'l>(locator: &'l mut Locator, keys: &[[u8; 8]], terms: &Terms) -> Answers<'l> {
    let size = Size {
        has_given: false,
        len: keys.len(),
        key_bytes: keys.as_flattened().len(),
        has_partitions: false,
    };
    let ask = |questions: Questions| {
        for (end, nth) in questions.ends.iter_mut().zip(1..) {
            *end = 8 * nth;
        }
        questions.keys.copy_from_slice(keys.as_flattened());
    };
    locator.ask(0, size, terms, ask).unwrap();
    locator.fetch(0).unwrap();
    locator.arrive(0).unwrap();
    locator.answers(0)
}

struct Copied {
    table: Table<Mapping>,
    locator: Locator,
    model: Model,
}

/// What is said of the first key.
fn first_of(answers: &Answers) -> (u64, Said) {
    let chunk = answers.chunk(0).expect("there is room");
    let said = chunk.said().next().expect("one of each key");
    (answers.records[0], said)
}

/// Where a value is that the device gives.
fn span_of(said: Said) -> Option<Range<usize>> {
    match said {
        Said::Value(span) => Some(span),
        Said::Absent | Said::Nothing => None,
    }
}

impl Copied {
    fn open(path: &Path) -> Self {
        Self::within(path, &DeviceBudget::new(None))
    }

    fn within(path: &Path, budget: &DeviceBudget) -> Self {
        let entry = Entry::at(path, None).unwrap();
        let (table, _) = BytesIndex::<CpuEngine>::create(&entry, &options()).unwrap();
        let locator = locator(GPU, &table.shape, budget).unwrap();
        Self {
            table,
            locator: locator.expect("there is a GPU"),
            model: Model::new(),
        }
    }

    fn change(&mut self, changes: &[(u64, Option<u64>)]) {
        let encode = |&(key, sequence): &(u64, Option<u64>)| {
            let put = sequence.map(|sequence| (sequence, value_of(sequence)));
            (key.to_le_bytes(), put)
        };
        let encoded: Vec<Encoded> = changes.iter().map(encode).collect();
        let mutations: Vec<Mutation> = encoded.iter().map(mutation).collect();
        CpuEngine::new(1).apply(&self.table, &mutations).unwrap();
        for (key, sequence) in changes {
            match sequence {
                Some(sequence) => self.model.insert(*key, *sequence),
                None => self.model.remove(key),
            };
        }
    }

    /// The same of a device that has no records: it gives no value.
    fn check_without_records(&mut self, end: u64) {
        assert!(!self.locator.has_records());
        let Self {
            table,
            locator,
            model,
        } = self;
        let mut session = table.read_session();
        let usable = locator.refresh(&[Some(&*table)]).unwrap().usable;
        assert_eq!(usable, [1, 0, 0, 0]);
        let keys: Vec<[u8; 8]> = (0..end).map(u64::to_le_bytes).collect();
        let answers = find(locator, &keys, EXCLUDED);
        let mut located = 0;
        for ((key, number), &record) in keys.iter().zip(0..).zip(answers.records) {
            let found = session.read_hinted(record, key, |sequence, _| sequence);
            let found = found.unwrap();
            assert!(found.is_none() || found.as_ref() == model.get(&number));
            located += usize::from(found.is_some());
        }
        let chunks = (0..keys.len().div_ceil(CHUNK)).filter_map(|nth| answers.chunk(nth));
        assert!(
            chunks
                .flat_map(|chunk| chunk.said().collect::<Vec<_>>())
                .all(|said| span_of(said).is_none())
        );
        assert!(
            located * 10 >= model.len() * 8,
            "{located} of {}",
            model.len()
        );
    }

    /// Asks for all keys below `end`. The record that is named has either what the key has now, or another key.
    fn check(&mut self, end: u64) {
        let Self {
            table,
            locator,
            model,
        } = self;
        let mut session = table.read_session();
        let refreshed = locator.refresh(&[Some(&*table)]).unwrap();
        assert_eq!(refreshed.usable, [1, 0, 0, 0]);
        let is_draining = table.levels.live().draining(table.shape.levels);
        assert_eq!(refreshed.is_settled, !is_draining);
        let keys: Vec<[u8; 8]> = (0..end).map(u64::to_le_bytes).collect();
        let answers = find(locator, &keys, EXCLUDED);
        let (mut located, mut given, mut absent) = (0, 0, 0);
        // Values lie in the order of the keys, without gaps.
        let mut end_of_chunks = vec![0];
        for nth in 0..keys.len().div_ceil(CHUNK) {
            let chunk = answers.chunk(nth).expect("there is room");
            let mut end = chunk.start;
            for span in chunk.said().filter_map(span_of) {
                assert_eq!(span.start, end);
                end = span.end;
            }
            assert_eq!(end - chunk.start, chunk.bytes);
            let left = chunk.said().filter(|said| *said == Said::Nothing);
            assert_eq!(left.count(), chunk.left);
            end_of_chunks.push(end);
        }
        for (nth, ((key, number), &record)) in keys.iter().zip(0..).zip(answers.records).enumerate()
        {
            let found = session
                .read_hinted(record, key, |sequence, _| sequence)
                .unwrap();
            let sequence = model.get(&number);
            assert!(found.is_none() || found.as_ref() == sequence);
            located += usize::from(found.is_some());
            // The device gives a value if the host finds one where the device says.
            let is_given = |sequence: &u64| {
                sequence & EXCLUDED == 0 && value_of(*sequence).len() as u64 <= VALUE_MAX
            };
            let expected = found.filter(is_given).map(value_of);
            let chunk = answers.chunk(nth / CHUNK).expect("there is room");
            assert_eq!(chunk.start, end_of_chunks[nth / CHUNK]);
            let said = chunk.said().nth(nth % CHUNK).expect("one of each key");
            let is_absent = said == Said::Absent;
            assert!(!is_absent || sequence.is_none(), "key {number} is there");
            absent += usize::from(is_absent);
            let value = span_of(said).map(|span| &answers.values()[span]);
            assert_eq!(value, expected.as_deref(), "of key {number}");
            given += usize::from(value.is_some());
        }
        let missing = keys.len() - (0..end).filter(|key| model.contains_key(key)).count();
        assert_eq!(absent, missing, "keys that are not there");
        assert!(given > 0 || model.is_empty());
        let all = model.len();
        assert!(located * 10 >= all * 8, "{located} of {all}");
    }

    fn levels(&self) -> Levels {
        self.table.levels.live()
    }
}

#[test]
fn items_that_move_up_are_found_where_they_are() {
    let Some(_alone) = alone() else { return };
    let dir = dir();
    let mut copied = Copied::open(&dir.path().join("index.gph"));
    let mut rng = rng();
    let mut end = 20_000;
    let all: Vec<(u64, Option<u64>)> = (0..end).map(|key| (key, Some(0))).collect();
    copied.change(&all);
    copied.table.finish_draining().unwrap();
    assert!(copied.table.watch_slots());
    copied.check(end);
    let mut drained = 0;
    for sequence in 1..60 {
        let levels = copied.levels();
        match levels.draining(copied.table.shape.levels) {
            true => drained += 1,
            false if sequence < 30 => copied.table.add_level(levels).unwrap(),
            false => {}
        }
        let mut change = || {
            let sequence = rng.random_bool(0.6).then_some(sequence);
            (rng.random_range(0..end), sequence)
        };
        let changes: Vec<(u64, Option<u64>)> = (0..200).map(|_| change()).collect();
        copied.change(&changes);
        copied.table.drain_slice();
        end += 10;
        copied.check(end);
    }
    println!("{drained} rounds beside a resize");
    assert!(drained > 5);
}

/// A column with one value that the device does not give is slower: its values are copied once more.
#[test]
fn values_are_given_wherever_their_records_are() {
    let Some(_alone) = alone() else { return };
    let dir = dir();
    let mut copied = Copied::open(&dir.path().join("index.gph"));
    let end = 35_000;
    // They fill several of the pieces in which the file is copied, and records are across their borders.
    for sequence in [8, 35] {
        assert_eq!(value_of(sequence).len(), 1000);
        let all: Vec<(u64, Option<u64>)> = (0..end).map(|key| (key, Some(sequence))).collect();
        copied.change(&all);
        copied.table.finish_draining().unwrap();
        assert!(copied.table.watch_slots());
        assert!(copied.table.medium.len() > 34 << 20);
        let Copied { table, locator, .. } = &mut copied;
        let session = table.read_session();
        locator.refresh(&[Some(&*table)]).unwrap();
        // It finds no room yet for values that are longer than usual.
        find(locator, &[[0; 8]; CHUNK], EXCLUDED);
        drop(session);
        copied.check(end);
    }
}

/// Whoever moves an item may have cleared the slot since it was copied.
#[test]
fn item_that_is_being_moved_is_not_named() {
    let Some(_alone) = alone() else { return };
    let dir = dir();
    let mut copied = Copied::open(&dir.path().join("index.gph"));
    copied.change(&[(5, Some(1))]);
    let Copied { table, locator, .. } = &mut copied;
    let _session = table.read_session();
    let key = 5u64.to_le_bytes();
    let target = table.target(&key);
    let member = table.find(&target, &mut 0).expect("it was put");
    let named = |asked: &mut Locator| {
        asked.refresh(&[Some(&*table)]).unwrap();
        first_of(&find(asked, &[key], 0))
    };
    let frozen = member.record.with(RecordWord::FROZEN);
    table.medium.store(member.addr.record, frozen.0);
    // Nor does it count as absent.
    assert_eq!(named(locator), (0, Said::Nothing));
    table.medium.store(member.addr.record, member.record.0);
    *locator = crate::engine::locator(GPU, &table.shape, &DeviceBudget::new(None))
        .unwrap()
        .unwrap();
    let (record, said) = named(locator);
    assert_eq!(record, member.record.offset());
    assert!(matches!(said, Said::Value(_)));
    // Nor are any of a table that is not usable, whatever others are.
    let terms = Terms {
        usable: [0b10, 1, 0, 0],
        ..terms(0)
    };
    let answers = find_by(locator, &[key], &terms);
    assert_eq!(first_of(&answers), (0, Said::Nothing));
}

/// What the device has is right at each step.
#[test]
fn records_give_way_to_levels_within_a_budget() {
    const PIECE: u64 = 16 << 20;
    let Some(_alone) = alone() else { return };
    let dir = dir();
    let budget = DeviceBudget {
        copies: Quota::new(PIECE + (96 << 10)),
        buffers: Quota::unbounded(),
    };
    let mut copied = Copied::within(&dir.path().join("index.gph"), &budget);
    let put = |keys: Range<u64>| -> Vec<_> { keys.map(|key| (key, Some(key + 1))).collect() };
    copied.change(&put(0..100));
    copied.check(200);
    assert!(copied.locator.has_records());
    assert!(budget.copies.taken() > PIECE);
    // Levels have 16 bytes a slot.
    copied.change(&put(50..9000));
    {
        let Copied { table, locator, .. } = &mut copied;
        let _session = table.read_session();
        locator.refresh(&[Some(&*table)]).unwrap();
    }
    assert!((96 << 10..PIECE).contains(&budget.copies.taken()));
    copied.check_without_records(9100);
    copied.change(&put(0..300));
    copied.check_without_records(9100);
    // Nor are there levels that have no room.
    let mut copied = {
        let budget = DeviceBudget {
            copies: Quota::new(64 << 10),
            buffers: Quota::unbounded(),
        };
        Copied::within(&dir.path().join("other.gph"), &budget)
    };
    let usable = |copied: &mut Copied| {
        let Copied { table, locator, .. } = copied;
        let _session = table.read_session();
        locator.refresh(&[Some(&*table)]).unwrap().usable[0]
    };
    copied.change(&put(0..100));
    assert_eq!(usable(&mut copied), 1);
    copied.change(&put(100..9000));
    assert_eq!((usable(&mut copied), usable(&mut copied)), (0, 0));
}

#[test]
fn value_is_given_if_the_key_is_equal_and_the_record_whole() {
    let Some(_alone) = alone() else { return };
    let dir = dir();
    let mut copied = Copied::open(&dir.path().join("index.gph"));
    copied.change(&[(5, Some(1)), (6, Some(2))]);
    let Copied { table, .. } = &copied;
    let member_of = |key: u64| {
        let _session = table.read_session();
        let key = key.to_le_bytes();
        table.find(&table.target(&key), &mut 0).expect("it was put")
    };
    let (five, six) = (member_of(5), member_of(6));
    let given = |record: RecordWord| {
        let _session = table.read_session();
        let mut locator = locator(GPU, &table.shape, &DeviceBudget::new(None))
            .unwrap()
            .unwrap();
        locator.refresh(&[Some(table)]).unwrap();
        let answers = find(&mut locator, &[5u64.to_le_bytes()], 0);
        assert_eq!(answers.records[0], record.offset());
        let chunk = answers.chunk(0).expect("there is room");
        let said = chunk.said().next().expect("one of each key");
        span_of(said).map(|span| answers.values()[span].to_vec())
    };
    // As if another key had the fingerprint.
    table.medium.store(five.addr.record, six.record.0);
    assert_eq!(given(six.record), None);
    let record = five.record;
    table.medium.store(five.addr.record, record.0);
    assert_eq!(given(record), Some(value_of(1)));
    // A bit of the sequence number, of the checksum, and of the value.
    let value = record.offset() + record_len(8, 0);
    for at in [record.offset() + 8, record.offset() + 16, value, value + 19] {
        let mut byte = [0];
        table.medium.read(at, &mut byte);
        table.medium.write(at, &[byte[0] ^ 4]);
        assert_eq!(given(record), None, "byte {at} is damaged");
        table.medium.write(at, &byte);
    }
    assert_eq!(given(record), Some(value_of(1)));
}

/// A compaction moves a record to where an older one of the same key was, and has not come to its note.
#[test]
fn slot_that_is_not_noted_stays_as_it_was() {
    let Some(_alone) = alone() else { return };
    let dir = dir();
    let mut copied = Copied::open(&dir.path().join("index.gph"));
    assert!(copied.table.watch_slots());
    let key = 5u64.to_le_bytes();
    let put = |copied: &mut Copied, sequence| {
        copied.change(&[(5, Some(sequence))]);
        copied.check(10);
        let target = copied.table.target(&key);
        copied.table.find(&target, &mut 0).expect("it was put")
    };
    // Values of the same length.
    let (older, newer) = (put(&mut copied, 1), put(&mut copied, 10));
    let Copied { table, .. } = &copied;
    let mut record = vec![0; to_usize(record_len(8, 20))];
    table.medium.read(newer.record.offset(), &mut record);
    table.medium.write(older.record.offset(), &record);
    table.medium.store(newer.addr.record, older.record.0);
    let level = table.levels.live().top;
    let inside = newer.addr.state - table.levels.offset(level);
    let bucket = inside / table.shape.bucket_size;
    let slot = low_half(inside % table.shape.bucket_size / SLOT_WORDS_BYTES);
    table.note_slot_again(level, (bucket, (slot + 1) % table.shape.slots));
    copied.check(10);
}
