//! What a GPU that has copies of a table's buckets says of it while its levels change. Without a GPU, and without the
//! emulated device for its driver (docs/testing.md), these tests pass by.

use std::collections::BTreeMap;

use rand::RngExt;

use super::*;
use crate::engine::device_tests::{GPU, alone};
use crate::engine::locator;
use crate::index::variable_tests::{dir, options, rng};
use crate::layout::RecordWord;
use crate::table::levels::Levels;

/// The sequence number of each key.
type Model = BTreeMap<u64, u64>;

fn mutation<'k>((key, (_, sequence)): (&'k [u8; 8], &(u64, Option<u64>))) -> Mutation<'k> {
    match *sequence {
        Some(sequence) => Mutation::Put {
            key,
            value: &[7; 20],
            sequence,
        },
        None => Mutation::Delete { key },
    }
}

struct Copied {
    table: Table<Mapping>,
    locator: Locator,
    model: Model,
}

impl Copied {
    fn open(path: &Path) -> Self {
        let entry = Entry::at(path, None).unwrap();
        let (table, _) = BytesIndex::<CpuEngine>::create(&entry, &options()).unwrap();
        let locator = locator(GPU, &table.shape).unwrap();
        Self {
            table,
            locator: locator.expect("there is a GPU"),
            model: Model::new(),
        }
    }

    fn change(&mut self, changes: &[(u64, Option<u64>)]) {
        let keys: Vec<[u8; 8]> = changes.iter().map(|(key, _)| key.to_le_bytes()).collect();
        let mutations: Vec<Mutation> = keys.iter().zip(changes).map(mutation).collect();
        CpuEngine::new(1).apply(&self.table, &mutations).unwrap();
        for (key, sequence) in changes {
            match sequence {
                Some(sequence) => self.model.insert(*key, *sequence),
                None => self.model.remove(key),
            };
        }
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
        assert!(refreshed.usable[0]);
        let keys: Vec<[u8; 8]> = (0..end).map(u64::to_le_bytes).collect();
        let ask = |fingerprints: &mut [u64], tables: &mut [u8]| {
            tables.fill(0);
            for (fingerprint, key) in fingerprints.iter_mut().zip(&keys) {
                *fingerprint = table.target(key).word;
            }
        };
        let (records, _) = locator.find(keys.len(), ask).unwrap();
        let mut located = 0;
        for ((key, number), &record) in keys.iter().zip(0..).zip(records) {
            let found = session
                .read_hinted(record, key, |sequence, _| sequence)
                .unwrap();
            assert!(found.is_none() || found.as_ref() == model.get(&number));
            located += usize::from(found.is_some());
        }
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
    assert!(copied.table.watch_buckets());
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
        let (records, _) = asked.find(1, |words, _| words[0] = target.word).unwrap();
        records[0]
    };
    let frozen = member.record.with(RecordWord::FROZEN);
    table.medium.store(member.addr.record, frozen.0);
    assert_eq!(named(locator), 0);
    table.medium.store(member.addr.record, member.record.0);
    *locator = crate::engine::locator(GPU, &table.shape).unwrap().unwrap();
    assert_eq!(named(locator), member.record.offset());
}
