//! A model is what each of a few threads does to a table. loom runs them in every order. Each time
//! the answers and what is left must be those of some order of the operations.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Count;

use loom::thread;

use super::medium::Modelled;
use crate::Domain;
use crate::engine::Write;
use crate::engine::cpu::CpuEngine;
use crate::layout::{BUSY, EMPTY, KeyClass, Metadata, RecordWord, Shape, Superblock};
use crate::pm::Medium;
use crate::sync::tags::BucketTags;
use crate::sync::{Ordering, be_thread};
use crate::table::Table;
use crate::table::key::{Bucket, reserved_bucket_at};
use crate::table::record::ValuePart;

/// What a thread does. The first number stands for the key, the second one for its value.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    Insert(u64, u64),
    Upsert(u64, u64),
    Update(u64, u64),
    Remove(u64),
    Get(u64),
    /// Empties slices of the bottom level as the maintenance does, until it is gone.
    Drain,
    /// One slice, if its time has come.
    Slice,
    /// Adds a level.
    Grow,
    /// Takes all fresh records away.
    UseUp,
    /// Takes a checkpoint.
    Sync,
    /// Forgets the tags, as if the file had just been opened.
    Forget,
    /// Moves every record elsewhere, as a compaction does.
    Move,
    /// Gives the table as few levels as it needs.
    Shrink,
}

/// What an operation says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Nothing,
    Changed(bool),
    Holds(Option<u64>),
}

type Items = BTreeMap<u64, u64>;

/// What the keys of a model are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// 8 bytes.
    Word,
    /// 16 bytes.
    Wide,
    /// 32 bytes of variable length, which all have one hash.
    Variable,
}

/// Seed of the tables. Any would do; one that is the same in all executions is needed.
const SEED: u64 = 3;

/// First word of XXH3's secret. Where a key's first word is this and the seed, the one behind it does
/// not count.
const SECRET: u64 = 0xBE4B_A423_396C_FEB8;

/// A model. The last thread is the one that has made the table.
pub struct Model {
    /// Levels, locations and slots.
    pub shape: (u32, u32, u32),
    pub keys: Keys,
    /// Items for which the table is made.
    pub capacity: u64,
    pub domain: Domain,
    /// Changes of threads while they could go on that an execution may have; `None` for any number.
    pub preemptions: Option<usize>,
    /// Done before the threads begin.
    pub before: &'static [Op],
    pub threads: &'static [&'static [Op]],
}

impl Default for Model {
    fn default() -> Self {
        Self {
            shape: (1, 1, 2),
            keys: Keys::Word,
            capacity: 1,
            domain: Domain::Dax,
            preemptions: Some(3),
            before: &[],
            threads: &[],
        }
    }
}

impl Model {
    /// Runs all executions. `LOOM_MAX_PREEMPTIONS` goes before the model's own bound.
    pub fn check(self) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(self.preemptions);
        builder.max_branches = 20_000;
        let executions = Arc::new(Count::new(0));
        let counted = Arc::clone(&executions);
        let bound = builder.preemption_bound;
        let threads = self.threads;
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            self.execute();
        });
        let executions = executions.load(Ordering::Relaxed);
        println!("{threads:?}: {executions} executions, at most {bound:?} preemptions");
    }

    fn execute(&self) {
        let table = Arc::new(self.table());
        let mut start = Items::new();
        for &op in self.before {
            assert_eq!(act(&table, op), expect(&mut start, op), "{op:?}");
        }
        let (own, others) = self.threads.split_last().unwrap();
        let others: Vec<_> = (1..)
            .zip(others)
            .map(|(number, &ops)| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    be_thread(number);
                    act_all(&table, ops)
                })
            })
            .collect();
        let own = act_all(&table, own);
        let mut answers: Vec<_> = others
            .into_iter()
            .map(|other| other.join().unwrap())
            .collect();
        answers.push(own);
        let left = contents(&table);
        let mut done = vec![0; answers.len()];
        assert!(
            explained(self.threads, &answers, &left, &start, &mut done),
            "no order of {:?} on {start:?} gives {answers:?} and leaves {left:?}",
            self.threads
        );
    }

    fn table(&self) -> Table<Modelled> {
        let (levels, locations, slots) = self.shape;
        let shape = match self.keys {
            Keys::Word => Shape::new(8, 16, slots, levels, locations),
            Keys::Wide => Shape::new(16, 16, slots, levels, locations),
            Keys::Variable => Shape::variable(slots, levels, locations),
        };
        let shape = shape.unwrap();
        let superblock = Superblock::new(&shape, [1, 2], SEED);
        let medium = Modelled::new(self.domain);
        Table::create_with(
            medium,
            superblock,
            shape,
            Metadata::default(),
            self.capacity,
            Path::new("model"),
        )
        .unwrap()
    }
}

/// The bytes of a key.
fn key_bytes(table: &Table<Modelled>, key: u64) -> Vec<u8> {
    if table.shape.key_class() == KeyClass::Variable {
        let words = [SECRET.wrapping_add(SEED), key, 7, 7];
        return bytemuck::cast_slice(&words).to_vec();
    }
    let words = [key, !key];
    bytemuck::cast_slice(&words)[..table.shape.key_size as usize].to_vec()
}

/// A value that shows whose it is.
fn value(key: u64, version: u64) -> [u64; 2] {
    [version, key << 32 ^ version]
}

fn act_all(table: &Table<Modelled>, ops: &[Op]) -> Vec<Answer> {
    ops.iter().map(|&op| act(table, op)).collect()
}

/// Does `op` as the CPU engine does.
fn act(table: &Table<Modelled>, op: Op) -> Answer {
    let engine = CpuEngine::new(1);
    let write = |verb, key: u64, version| {
        let value = value(key, version);
        let values = if verb == Write::Remove {
            &[]
        } else {
            &value[..]
        };
        let keys = key_bytes(table, key);
        if table.shape.key_class() == KeyClass::Variable {
            let value = bytemuck::cast_slice(values);
            let answer = engine.write_one(table, verb, &keys, value, version);
            return Answer::Changed(answer.unwrap());
        }
        let answers = engine.write(table, verb, &keys, bytemuck::cast_slice(values));
        Answer::Changed(answers.unwrap().contains(0))
    };
    match op {
        Op::Insert(key, version) => return write(Write::Insert, key, version),
        Op::Upsert(key, version) => return write(Write::Upsert, key, version),
        Op::Update(key, version) => return write(Write::Update, key, version),
        Op::Remove(key) => return write(Write::Remove, key, 0),
        Op::Get(key) => return Answer::Holds(get(table, key)),
        Op::Drain => table.finish_draining().unwrap(),
        Op::Slice => table.drain_slice(),
        Op::Grow => table.add_level(table.levels.live()).unwrap(),
        Op::UseUp => {
            for class in table.arena.classes() {
                while let Some(run) = table.arena.take_run(class, u64::MAX >> 1) {
                    let count = (run.end - run.start) / table.shape.record_size(class);
                    table.medium.used_up.fetch_add(count, Ordering::Relaxed);
                }
            }
        }
        Op::Sync => table.sync().unwrap(),
        Op::Shrink => assert!(table.shrink_levels(&|_| true)),
        Op::Move => assert!(table.move_out_of(&table.arena.map(), &|_| true)),
        Op::Forget => {
            let levels = table.levels.live();
            (levels.bottom..=levels.top).for_each(|level| table.tags.forget_level(level));
        }
    }
    Answer::Nothing
}

fn get(table: &Table<Modelled>, key: u64) -> Option<u64> {
    if table.shape.key_class() == KeyClass::Variable {
        let mut held = None;
        let key_bytes = key_bytes(table, key);
        let found = |_, sequence, bytes: Cow<'_, [u8]>| {
            let own = value(key, sequence);
            assert!(
                *bytes == *bytemuck::cast_slice::<_, u8>(&own),
                "a value of nobody"
            );
            held = Some(sequence);
        };
        CpuEngine::new(1)
            .get_many(table, &[&key_bytes], found)
            .unwrap();
        return held;
    }
    let mut held = [0u64; 2];
    let found = CpuEngine::new(1)
        .get(
            table,
            ValuePart::whole(&table.shape),
            &key_bytes(table, key),
            bytemuck::cast_slice_mut(&mut held),
        )
        .unwrap();
    found.contains(0).then(|| {
        assert_eq!(held, value(key, held[0]), "key {key} has a value of nobody");
        held[0]
    })
}

/// Does `op` to the items and says what its answer must be.
fn expect(items: &mut Items, op: Op) -> Answer {
    match op {
        Op::Insert(key, version) => {
            let absent = !items.contains_key(&key);
            items.entry(key).or_insert(version);
            Answer::Changed(absent)
        }
        Op::Upsert(key, version) => Answer::Changed(items.insert(key, version).is_none()),
        Op::Update(key, version) => {
            let held = items.get_mut(&key).map(|held| *held = version);
            Answer::Changed(held.is_some())
        }
        Op::Remove(key) => Answer::Changed(items.remove(&key).is_some()),
        Op::Get(key) => Answer::Holds(items.get(&key).copied()),
        _ => Answer::Nothing,
    }
}

/// Whether the answers, and the items that are left, are those of some order of the operations
/// in which each thread's come in its order. `done` says how many of each have been placed.
fn explained(
    threads: &[&[Op]],
    answers: &[Vec<Answer>],
    left: &Items,
    items: &Items,
    done: &mut [usize],
) -> bool {
    let mut is_end = true;
    for thread in 0..threads.len() {
        let Some(&op) = threads[thread].get(done[thread]) else {
            continue;
        };
        is_end = false;
        let mut after = items.clone();
        if expect(&mut after, op) == answers[thread][done[thread]] {
            done[thread] += 1;
            if explained(threads, answers, left, &after, done) {
                return true;
            }
            done[thread] -= 1;
        }
    }
    is_end && items == left
}

/// What the table holds when nobody is at it any more, once tags, records and counts agree.
fn contents(table: &Table<Modelled>) -> Items {
    let mut items = Items::new();
    let mut records = BTreeSet::new();
    for bucket in buckets(table) {
        for slot in 0..table.shape.slots {
            let Some((key, record)) = item(table, bucket, slot) else {
                continue;
            };
            assert!(records.insert(record), "two items share a record");
            let version = get(table, key).expect("an item that no lookup finds");
            assert!(items.insert(key, version).is_none(), "{key} twice");
        }
    }
    assert_eq!(table.len(), items.len() as u64);
    check_overflow_maps(table);
    for record in table.arena.take_all() {
        assert!(records.insert(record), "a record is free twice, or in use");
    }
    let used_up = table.medium.used_up.load(Ordering::Relaxed);
    let classes = table.arena.classes();
    let high_water: u64 = classes.map(|class| table.arena.high_water(class)).sum();
    let taken = high_water - used_up;
    assert_eq!(records.len() as u64, taken, "lost records");
    items
}

/// Checks that the file has each overflow bit by which items are found now: the next opening knows no others.
fn check_overflow_maps(table: &Table<Modelled>) {
    let levels = table.levels.live();
    for level in levels.bottom..=levels.top {
        let at = table.levels.offset(level);
        for home in (0..1u64 << level).filter(|&home| table.overflow.is_set(level, home)) {
            let word = table
                .medium
                .load(table.shape.overflow_word(at, level, home));
            assert!(
                word >> (home % 64) & 1 == 1,
                "bucket {home} of level {level}"
            );
        }
    }
}

/// All buckets of the live levels, and the reserved ones.
fn buckets(table: &Table<Modelled>) -> impl Iterator<Item = Bucket<'_>> {
    let levels = table.levels.live();
    let reserved = (0..2)
        .filter(|_| table.shape.key_class() == KeyClass::Word)
        .map(move |bucket| Bucket {
            at: reserved_bucket_at(bucket),
            level: levels.top,
            tags: BucketTags::NONE,
        });
    let live = (levels.bottom..=levels.top)
        .flat_map(move |level| (0..1 << level).map(move |index| table.bucket(level, index)));
    reserved.chain(live)
}

/// The key and the record in a slot, which is a member's or empty, and has the tag of what it is.
fn item(table: &Table<Modelled>, bucket: Bucket, slot: u32) -> Option<(u64, u64)> {
    let addr = table.shape.slot_addr(bucket.at, slot);
    let state = table.medium.load(addr.state);
    let record = RecordWord(table.medium.load(addr.record));
    let tags = bucket.tags.slot(slot).and_then(|(word, _)| word.load());
    if state == EMPTY {
        assert_eq!(record, RecordWord::NONE, "an empty slot has a record");
        assert!(tags.is_none_or(|tags| tags.empty() >> slot & 1 == 1));
        return None;
    }
    assert!(record.is_member() && !record.is_frozen(), "{record:?}");
    assert!(record.is_sound(state), "{record:?} beside {state:#x}");
    let key = match bucket.at {
        // Behind the header and the key's first word.
        _ if table.shape.key_class() == KeyClass::Variable => {
            table.medium.load(record.offset() + 32)
        }
        at if at == reserved_bucket_at(0) => EMPTY,
        at if at == reserved_bucket_at(1) => BUSY,
        _ => table.medium.load(addr.key),
    };
    let target = key_bytes(table, key);
    let tag = table.target(&target).tag;
    assert!(tags.is_none_or(|tags| tags.match_mask(tag) >> slot & 1 == 1));
    Some((key, record.offset()))
}
