//! What every crash image must come through.

use super::Kind;
use super::history::{Allowed, Model};
use super::kind::{FRESH, keys, killed, open, open_and_scan, superblock};
use super::operation::write;
use crate::engine::Write;
use crate::layout::{ExtentEntry, ExtentKind};
use crate::pm::Medium;
use crate::pm::sim::Simulated;
use crate::table::Table;
use crate::table::probe::Found;

/// First version that a check stores.
const VERSION: u64 = 1 << 24;

/// What lookups find of each key.
pub(super) fn lookup<M: Medium>(
    kind: &Kind,
    table: &Table<M>,
    keys: impl Iterator<Item = u64>,
) -> Model {
    let keys: Vec<u64> = keys.collect();
    let mut model = Model::new();
    for (&n, version) in keys.iter().zip(kind.get(table, &keys)) {
        let key = kind.key(n);
        let target = table.target(&key);
        let is_moving = matches!(table.find_for_write(&target, &mut 0), Found::Moving);
        assert!(
            !is_moving,
            "nobody is moving key {n}, so a writer would wait for ever"
        );
        if let Some(version) = version {
            model.insert(n, version);
        }
    }
    model
}

/// Whether what was found is what was promised.
pub(super) fn explain(found: &Model, allowed: &Allowed) {
    for (key, allowed) in allowed {
        let found = found.get(key).copied();
        assert!(
            allowed.contains(&found),
            "key {key} is {found:?}, expected one of {allowed:?}"
        );
    }
}

/// Opens `memory` and checks that it holds what is `allowed`, wholly, and works. Gives what it
/// holds.
pub(super) fn check(kind: &Kind, memory: Simulated, count: u64, allowed: &Allowed) -> Model {
    if superblock(&memory).is_clean() {
        // An opening goes by what the superblock says, so that has to be right.
        let (table, recovery) = open_and_scan(killed(&memory));
        let repaired = recovery.slots_cleared + recovery.duplicates_removed;
        assert_eq!((repaired, recovery.items), (0, table.superblock().items));
    }
    let (table, recovery) = open(memory);
    let found = lookup(kind, &table, keys(count));
    explain(&found, allowed);
    assert_eq!(table.len(), found.len() as u64, "items of {found:?}");
    assert_eq!(recovery.items, found.len() as u64, "items of {found:?}");
    if !recovery.clean {
        let taken: u64 = table
            .arena
            .classes()
            .map(|class| table.arena.high_water(class))
            .sum();
        assert_eq!(
            taken,
            recovery.items + recovery.records_reclaimed,
            "records of {taken}"
        );
    }
    let model = exercise(kind, &table, count, &found);
    table.close().unwrap();
    let closed = superblock(&table.medium);
    assert_eq!(
        closed.items + closed.free_count,
        closed.arena_high_water,
        "records that no one will ever use"
    );
    let (table, recovery) = open_and_scan(killed(&table.medium));
    assert_eq!((recovery.clean, recovery.items), (true, model.len() as u64));
    assert_eq!(
        recovery.slots_cleared + recovery.duplicates_removed,
        0,
        "{recovery:?}"
    );
    let all = keys(count).chain(FRESH);
    assert_eq!(lookup(kind, &table, all), model);
    check_extents(&table);
    found
}

/// Does a little of everything.
pub(super) fn exercise<M: Medium>(
    kind: &Kind,
    table: &Table<M>,
    count: u64,
    found: &Model,
) -> Model {
    let mut model = found.clone();
    let all: Vec<u64> = keys(count).collect();
    let few = [FRESH[0], all[0], all[all.len() - 1]];
    for (verb, keys) in [
        (Write::Insert, &FRESH[..]),
        (Write::Update, &all[..]),
        (Write::Remove, &few[..]),
        (Write::Upsert, &few[1..]),
    ] {
        for event in write(kind, table, verb, keys, VERSION, || 0) {
            event.apply(&mut model);
        }
    }
    assert_eq!(lookup(kind, table, all.into_iter().chain(FRESH)), model);
    model
}

/// Whether every level that was emptied is an arena or free.
fn check_extents(table: &Table<Simulated>) {
    let superblock = superblock(&table.medium);
    let entries = (0..superblock.extent_count).map(|index| {
        let mut entry = ExtentEntry::new(ExtentKind::Arena, 0, 0, 0);
        let bytes = bytemuck::bytes_of_mut(&mut entry);
        table.medium.read(superblock.entry_offset(index), bytes);
        entry
    });
    let entries: Vec<ExtentEntry> = entries.collect();
    for level in entries
        .iter()
        .filter(|entry| entry.kind() == Some(ExtentKind::Level))
    {
        let is_live = superblock.level_directory.contains(&level.offset);
        let is_arena = |entry: &ExtentEntry| {
            entry.offset == level.offset && entry.kind() == Some(ExtentKind::Arena)
        };
        assert!(
            is_live || entries.iter().any(is_arena),
            "an emptied level that no one will ever use: {level:?}"
        );
    }
}
