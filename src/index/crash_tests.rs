//! Crash states: every verb is stopped at every store and fence, and what memory may then hold is
//! opened and compared with what had been acknowledged.
//!
//! `GPHASH_TEST_SEED` repeats a run.

use std::collections::BTreeMap;
use std::path::Path;

use bytemuck::Pod;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ahead::Ahead;
use super::iter::Iter;
use super::lookup::Found;
use super::recover::{Policy, Recovery};
use super::table::Table;
use crate::Error;
use crate::layout::{BUSY, DATA_START, EMPTY, Shape, Superblock};
use crate::pm::Medium;
use crate::pm::simulated::Simulated;

type Value = [u64; 3];

/// What the table must hold: the version of every key.
type Model = BTreeMap<u64, u64>;

/// Bytes that the simulated memory can grow to.
const MAX_LEN: u64 = 1 << 24;

/// Images of power cuts at each step, beside that of a process crash.
const POWER_CUTS: usize = 3;

/// Keys that the checks look up, beside the two that equal slot states.
const KEYS: std::ops::Range<u64> = 1..40;

/// What is done to a table. Numbers are keys; each verb stores a version of its own.
#[derive(Debug, Clone, Copy)]
enum Op {
    Insert(u64),
    Upsert(u64),
    Update(u64),
    Remove(u64),
    /// Drives a resize to its end, or as far as there are places above.
    Drain,
    /// Frees the retired records at once, as if their epochs had passed.
    Recycle,
    /// Takes all free records away, as other threads might.
    UseUp,
    /// Makes room ahead for whatever comes, as the upkeep does.
    MakeRoom,
    Close,
}

/// A key type of the format.
trait Key: Pod {
    fn of(n: u64) -> Self;
}

impl Key for u64 {
    fn of(n: u64) -> Self {
        n
    }
}

impl Key for [u64; 4] {
    fn of(n: u64) -> Self {
        [n, 0, !n, 7]
    }
}

fn value(key: u64, version: u64) -> Value {
    let mix = (key ^ version << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    [version, mix, !mix]
}

fn all_keys() -> impl Iterator<Item = u64> {
    KEYS.chain([EMPTY, BUSY])
}

fn superblock(memory: &Simulated) -> Superblock {
    let mut head = vec![0; DATA_START as usize];
    memory.read(0, &mut head);
    match Superblock::parse(&head, memory.len(), Path::new("memory")) {
        // The commit of a recovery may complete the commit that a crash has torn, since both go
        // to one place. The file is as long as that one says; it was only out of reach.
        Err(Error::Truncated { expected, .. }) => {
            memory.grow(expected).unwrap();
            superblock(memory)
        }
        parsed => parsed.unwrap(),
    }
}

fn open(memory: Simulated, policy: Policy) -> (Table<Simulated>, Recovery) {
    let superblock = superblock(&memory);
    Table::open(memory, superblock, Path::new("memory"), policy).unwrap()
}

/// A new table for one item, hashed with `seed`.
fn create<K: Key>((levels, locations, slots): (u32, u32, u32), seed: u64) -> Table<Simulated> {
    let sizes = (size_of::<K>() as u64, size_of::<Value>() as u64);
    let shape = Shape::new(sizes.0, sizes.1, slots, levels, locations).unwrap();
    let memory = Simulated::new(DATA_START, MAX_LEN);
    let made = Table::create(memory, shape, 1, Path::new("memory")).unwrap();
    let mut first = superblock(&made.medium);
    first.hash_seed = seed;
    first.seal();
    made.medium.write(first.place(), bytemuck::bytes_of(&first));
    open(made.medium.process_crash_image(), Policy::INDEX).0
}

/// Does `op` with `version` to the table and to the model.
fn apply<K: Key>(table: &Table<Simulated>, model: &mut Model, op: Op, version: u64) {
    let (Op::Insert(n) | Op::Upsert(n) | Op::Update(n) | Op::Remove(n)) = op else {
        match op {
            Op::Drain => table.finish_draining_quietly(),
            Op::Recycle => table.arena.give(table.arena.take_all()),
            Op::UseUp => {
                table.arena.take_all();
                while table.arena.take_run(u64::MAX >> 1).is_some() {}
            }
            Op::MakeRoom => table
                .medium
                .prepare(table.medium.len() + (1 << 20))
                .unwrap(),
            _ => table.close().unwrap(),
        }
        return;
    };
    let key = K::of(n);
    let target = table.target(bytemuck::bytes_of(&key));
    let bytes = value(n, version);
    let bytes = bytemuck::bytes_of(&bytes);
    let mut session = table.session();
    let mut ahead = Ahead::new(table, &target);
    ahead.look(&target);
    let held = model.contains_key(&n);
    match op {
        Op::Insert(_) => {
            session.insert(&target, &ahead, bytes).unwrap();
        }
        Op::Upsert(_) => assert_eq!(session.upsert(&target, &ahead, bytes).unwrap(), !held),
        Op::Update(_) => assert_eq!(session.update(&target, &ahead, bytes).unwrap(), held),
        _ => assert_eq!(session.remove(&target, &ahead).unwrap(), held),
    }
    match (op, held) {
        (Op::Remove(_), _) => {
            model.remove(&n);
        }
        (Op::Insert(_), false) | (Op::Upsert(_), _) | (Op::Update(_), true) => {
            model.insert(n, version);
        }
        _ => {}
    }
}

/// What a look-up finds of each key.
fn look_up<K: Key>(table: &Table<Simulated>) -> Model {
    let mut session = table.session();
    let mut found = Model::new();
    for n in all_keys() {
        let key = K::of(n);
        let mut held: Value = [0; 3];
        let target = table.target(bytemuck::bytes_of(&key));
        let is_moving = matches!(table.find_for_write(&target, &mut 0), Found::Moving);
        assert!(
            !is_moving,
            "nobody is moving key {n}, so a writer would wait for ever"
        );
        if let Some(member) = table.find(&target, &mut 0) {
            session
                .read(member, bytemuck::bytes_of_mut(&mut held))
                .unwrap();
            assert_eq!(
                held,
                value(n, held[0]),
                "key {n} has a value that nobody stored"
            );
            found.insert(n, held[0]);
        }
    }
    found
}

/// Opens `memory` and checks that it holds one of the `allowed` states, wholly, and works.
fn check<K: Key>(memory: Simulated, allowed: &[&Model]) {
    let (table, recovery) = open(memory, Policy::INDEX);
    let mut model = look_up::<K>(&table);
    assert!(
        allowed.contains(&&model),
        "found {model:?}, expected one of {allowed:?}"
    );
    assert_eq!(table.len(), model.len() as u64);
    assert_eq!(recovery.items, model.len() as u64);
    if !recovery.clean {
        let taken = table.arena.high_water();
        assert_eq!(
            taken,
            recovery.items + recovery.records_reclaimed,
            "records of {taken}"
        );
    }
    for n in 20..26 {
        apply::<K>(&table, &mut model, Op::Insert(n), 1);
    }
    for n in all_keys() {
        apply::<K>(&table, &mut model, Op::Update(n), 2);
    }
    for n in [20, 21, 1, EMPTY] {
        apply::<K>(&table, &mut model, Op::Remove(n), 0);
    }
    assert_eq!(look_up::<K>(&table), model);
    let listed: Vec<(K, Value)> = Iter::new(&table).collect();
    assert_eq!(listed.len(), model.len(), "items that no look-up finds");
    table.close().unwrap();
    let always_scan = Policy {
        always_scan: true,
        ..Policy::INDEX
    };
    let (table, recovery) = open(table.medium.process_crash_image(), always_scan);
    assert_eq!((recovery.clean, recovery.items), (true, model.len() as u64));
    assert_eq!(
        recovery.slots_cleared + recovery.duplicates_removed,
        0,
        "{recovery:?}"
    );
    assert_eq!(look_up::<K>(&table), model);
}

/// Cuts the recovery of `memory` short as well, somewhere, and checks what is left then.
fn check_recovery<K: Key>(memory: &Simulated, allowed: &[&Model], rng: &mut SmallRng) {
    let whole = open(memory.process_crash_image(), Policy::INDEX)
        .0
        .medium
        .steps();
    let memory = memory.process_crash_image();
    memory.stop_after(rng.random_range(0..whole));
    let (table, _) = open(memory, Policy::INDEX);
    check::<K>(table.medium.crash_image(rng), allowed);
}

/// Runs `ops` on a table that `prepare` has filled, once for each store and fence that they do,
/// stopping there.
fn stop_everywhere<K: Key>(shape: (u32, u32, u32), prepare: &[Op], ops: &[Op]) {
    let seed = std::env::var("GPHASH_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random::<u64>);
    println!("GPHASH_TEST_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let prepared = create::<K>(shape, rng.random());
    let mut start = Model::new();
    for (nth, op) in prepare.iter().enumerate() {
        apply::<K>(&prepared, &mut start, *op, 100 + nth as u64);
    }
    let start_image = prepared.medium.process_crash_image();
    let mut images = 0;
    let mut stop = 0;
    loop {
        let (table, _) = open(start_image.process_crash_image(), Policy::INDEX);
        table.medium.stop_after(stop);
        let (mut before, mut after) = (start.clone(), start.clone());
        let mut in_flight = None;
        for (nth, op) in ops.iter().enumerate() {
            before.clone_from(&after);
            apply::<K>(&table, &mut after, *op, 1000 + nth as u64);
            if table.medium.is_stopped() {
                in_flight = Some(op);
                break;
            }
        }
        println!("stopped after {stop} steps, in {in_flight:?}");
        let allowed: &[&Model] = match in_flight {
            Some(_) => &[&before, &after],
            None => &[&after],
        };
        check::<K>(table.medium.process_crash_image(), allowed);
        for _ in 0..POWER_CUTS {
            let image = table.medium.crash_image(&mut rng);
            check_recovery::<K>(&image, allowed, &mut rng);
            check::<K>(image, allowed);
        }
        images += 1 + 2 * POWER_CUTS;
        if in_flight.is_none() {
            break;
        }
        stop += 1;
    }
    println!("{images} crash images of {stop} steps hold what they must");
}

fn for_both_key_classes(shape: (u32, u32, u32), prepare: &[Op], ops: &[Op]) {
    stop_everywhere::<u64>(shape, prepare, ops);
    stop_everywhere::<[u64; 4]>(shape, prepare, ops);
}

use Op::{Close, Drain, Insert, MakeRoom, Recycle, Remove, Update, Upsert, UseUp};

#[test]
fn insert() {
    let ops = [
        Insert(2),
        Insert(EMPTY),
        Insert(1),
        Insert(BUSY),
        Insert(3),
        Insert(2),
    ];
    for_both_key_classes((2, 2, 4), &[Insert(1)], &ops);
}

#[test]
fn update_and_upsert() {
    let prepare = [Insert(1), Insert(2), Insert(EMPTY), Insert(BUSY)];
    let ops = [
        Update(1),
        Upsert(2),
        Upsert(3),
        Update(9),
        Upsert(EMPTY),
        Update(BUSY),
        Update(1),
    ];
    for_both_key_classes((2, 2, 4), &prepare, &ops);
}

#[test]
fn remove() {
    let prepare = [Insert(1), Insert(2), Insert(EMPTY), Insert(BUSY)];
    let ops = [
        Remove(1),
        Remove(EMPTY),
        Remove(9),
        Insert(3),
        Remove(BUSY),
        Insert(EMPTY),
    ];
    for_both_key_classes((2, 2, 4), &prepare, &ops);
}

#[test]
fn records_and_slots_that_are_used_again() {
    let prepare = [Insert(1), Insert(2), Insert(3), Insert(EMPTY)];
    let ops = [
        Remove(1),
        UseUp,
        Recycle,
        Remove(2),
        Recycle,
        Insert(4),
        Update(4),
        Recycle,
        Update(3),
        Recycle,
        Upsert(5),
        Remove(EMPTY),
        Recycle,
        Insert(6),
        Update(6),
        Recycle,
        Insert(EMPTY),
    ];
    for_both_key_classes((1, 2, 4), &prepare, &ops);
}

#[test]
fn growth_of_levels() {
    let mut ops: Vec<Op> = (1..5).map(Insert).collect();
    ops.extend([
        Update(1),
        Remove(2),
        Drain,
        Insert(2),
        Insert(5),
        Insert(6),
        Upsert(3),
        Drain,
    ]);
    for_both_key_classes((1, 1, 2), &[], &ops);
}

#[test]
fn growth_of_two_levels() {
    let prepare: Vec<Op> = (1..6).map(Insert).collect();
    let mut ops: Vec<Op> = (6..12).map(Insert).collect();
    ops.extend([Drain, Remove(7), Update(8)]);
    for_both_key_classes((2, 1, 2), &prepare, &ops);
}

#[test]
fn growth_into_room_made_ahead() {
    let ops = [
        MakeRoom,
        Insert(4),
        UseUp,
        Insert(5),
        MakeRoom,
        Drain,
        Update(5),
        Insert(6),
        Close,
    ];
    for_both_key_classes((1, 1, 2), &[Insert(1), Insert(2), Insert(3)], &ops);
}

#[test]
fn growth_of_the_arena() {
    let ops = [
        UseUp,
        Insert(2),
        Update(1),
        UseUp,
        Update(2),
        UseUp,
        Upsert(3),
    ];
    for_both_key_classes((2, 2, 4), &[Insert(1)], &ops);
}

#[test]
fn close() {
    let prepare = [Insert(1), Insert(2), Insert(3), Insert(4), Insert(EMPTY)];
    let ops = [Remove(1), Update(2), Remove(3), Close];
    for_both_key_classes((2, 2, 2), &prepare, &ops);
}

#[test]
fn close_amid_a_resize() {
    let prepare: Vec<Op> = (1..4).map(Insert).collect();
    for_both_key_classes((1, 1, 2), &prepare, &[Insert(4), Insert(5), Close]);
}

#[test]
fn opening_what_was_closed() {
    let prepare = [Insert(1), Insert(2), Remove(1), Insert(EMPTY), Close];
    for_both_key_classes((2, 2, 2), &prepare, &[Insert(3)]);
}
