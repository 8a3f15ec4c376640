//! A disk that is full, and stays so.

use super::faults::Bounded;
use super::*;
use crate::Error;
use crate::layout::extent::MAX_EXTENTS;
use crate::layout::{Shape, Superblock};
use crate::table::extents::least_growth;
use crate::width::to_usize;

/// Calls that need room.
fn needs_room(call: Call, path: &Path) -> bool {
    let journal = path
        .extension()
        .is_some_and(|extension| extension == "journal");
    matches!(call, Call::SetLen | Call::Allocate) && !journal
        || matches!(call, Call::Write | Call::Create) && journal
}

/// Gives an index some items while there is room, then as many as go in until there is none; gives
/// how many keys it holds.
fn fill(index: &Table, faults: &Failing) -> u64 {
    for n in 0.. {
        if n == 300 {
            index.sync().unwrap();
            faults.cure(false);
        }
        let key = key(n);
        match index.insert_one(&key, &value(key, 1)) {
            Ok(stored) => assert!(stored),
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                return n;
            }
        }
    }
    unreachable!("the disk never filled")
}

fn holds(index: &Table, keys: &[u64], version: impl Fn(u64) -> u64) {
    let mut held = vec![[0; 128]; keys.len()];
    assert_eq!(
        index.get(keys, &mut held).unwrap().count_ones(..),
        keys.len()
    );
    for (&key, held) in keys.iter().zip(&held) {
        assert_eq!(*held, value(key, version(key)), "key {key}");
    }
}

/// Opens what a crash has left, and checks that it holds the last checkpoint.
fn check_all(test_dir: &TestDir, last: Model) {
    let index = Table::open(test_dir.path(), &test_dir.options(None)).unwrap();
    let held: Vec<u64> = last.keys().copied().collect();
    holds(&index, &held, |key| last[&key]);
    assert_eq!(index.len(), held.len() as u64);
}

#[test]
fn full_disk_takes_updates_and_as_many_insertions_as_removals() {
    for test_dir in TestDir::all() {
        let faults = Failing::only(needs_room, libc::ENOSPC);
        let options = test_dir.options(Some(faults.clone()));
        let index = Table::create(test_dir.path(), &options).unwrap();
        let held = keys(0..fill(&index, &faults));
        holds(&index, &held, |_| 1);
        assert_eq!(index.len(), held.len() as u64);

        // Room for one more value is all that updates need, one after another.
        assert!(index.remove_one(&held[0]).unwrap());
        for version in 2..6 {
            let updated = index.update(&held, &values(&held, version)).unwrap();
            assert_eq!(updated.count_ones(..), held.len() - 1);
            holds(&index, &held[1..], |_| version);
        }
        assert!(index.insert_one(&held[0], &value(held[0], 5)).unwrap());

        // What is removed makes room, in whichever batch it was.
        for chunk in held.chunks(7) {
            assert_eq!(index.remove(chunk).unwrap().count_ones(..), chunk.len());
            let stored = index.insert(chunk, &values(chunk, 9)).unwrap();
            assert_eq!(stored.count_ones(..), chunk.len());
        }
        holds(&index, &held, |_| 9);

        let synced = index.sync();
        match test_dir.domain {
            Domain::Checkpointed => {
                let refused = synced.unwrap_err();
                assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
                let last = keys(0..300).into_iter().map(|key| (key, 1)).collect();
                check_all(&test_dir.crash(), last);
            }
            _ => synced.unwrap(),
        }
        faults.cure(true);
        index.sync().unwrap();
        let fresh: Vec<u64> = (5000..6000).collect();
        let stored = index.insert(&fresh, &values(&fresh, 1)).unwrap();
        assert_eq!(stored.count_ones(..), fresh.len());
        index.close().unwrap();
        let index = Table::open(test_dir.path(), &test_dir.options(None)).unwrap();
        holds(&index, &held, |_| 9);
        holds(&index, &fresh, |_| 1);
    }
}

#[test]
fn full_disk_records_are_shared_by_threads() {
    for test_dir in TestDir::all() {
        let faults = Failing::only(needs_room, libc::ENOSPC);
        let index =
            Table::create(test_dir.path(), &test_dir.options(Some(faults.clone()))).unwrap();
        let held = keys(0..fill(&index, &faults));
        let (spare, held) = held.split_at(8);
        index.remove(spare).unwrap();
        let parts: Vec<&[u64]> = held.chunks(held.len().div_ceil(4)).collect();
        std::thread::scope(|scope| {
            for (thread, keys) in parts.iter().enumerate() {
                let index = &index;
                scope.spawn(move || {
                    for round in 0..200 {
                        let version = 10 + 1000 * thread as u64 + round;
                        let key = &keys[to_usize(round) % keys.len()];
                        // The others may have all records that are free, and rest meanwhile.
                        let updated = (0..1_000_000).find_map(|_| {
                            let updated = index.update_one(key, &value(*key, version));
                            updated.inspect_err(|_| std::thread::yield_now()).ok()
                        });
                        assert_eq!(updated, Some(true));
                        assert_eq!(index.get_one(key).unwrap(), Some(value(*key, version)));
                    }
                });
            }
        });
        assert_eq!(index.len(), held.len() as u64);
        faults.cure(true);
        index.close().unwrap();
    }
}

/// A table of some thousand items on a disk that can be given bounds.
fn bounded(test_dir: &TestDir) -> (Table, std::sync::Arc<Bounded>) {
    let disk = Bounded::new();
    let options = test_dir.options(None).capacity(20_000).faults(disk.clone());
    (Table::create(test_dir.path(), &options).unwrap(), disk)
}

/// The superblock of a table that is closed afterwards.
fn closed(test_dir: &TestDir, index: Table) -> Superblock {
    index.close().unwrap();
    let file = std::fs::read(test_dir.path()).unwrap();
    Superblock::parse(&file, file.len() as u64, &test_dir.path()).unwrap()
}

#[test]
fn extent_table_outlasts_a_nearly_full_disk() {
    for test_dir in TestDir::all().iter().filter(|test_dir| !test_dir.is_slow()) {
        let (index, disk) = bounded(test_dir);
        // Less than the arena would grow by.
        let bound = index.stats().file_len + (5 << 19);
        disk.limit(bound);
        let mut stored = 0;
        let error = loop {
            let key = key(stored);
            match index.insert_one(&key, &value(key, 1)) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
        };
        let Error::NoSpace { needed, .. } = error else {
            panic!("{error}");
        };
        assert!(error.to_string().contains(&format!("{needed} more bytes")));
        assert!((4096..1 << 20).contains(&needed), "{error}");
        // The disk has given what it had.
        let left = bound - index.stats().file_len;
        assert!(left < 1 << 20, "{left} bytes are left");
        disk.limit(u64::MAX);
        index.reserve(200_000).unwrap();
        let keys: Vec<u64> = (stored..stored + 1000).map(key).collect();
        let added = index.insert(&keys, &values(&keys, 1)).unwrap();
        assert_eq!(added.count_ones(..), keys.len());
        let extents = closed(test_dir, index).extent_count;
        assert!(extents < 30, "{extents} extents");
    }
}

#[test]
fn extent_table_suffices_for_the_longest_file() {
    // Each time the disk has as little room as a growth makes do with.
    let mut superblock = Superblock::new(&Shape::new(8, 8, 8, 2, 2).unwrap(), [0; 2], 0);
    superblock.top_level = 1;
    superblock.extent_count = 3;
    superblock.file_len = 3 * crate::layout::DATA_START;
    while superblock.file_len < crate::layout::MAX_FILE / 2 {
        let len = least_growth(&superblock).next_multiple_of(crate::layout::PAGE);
        superblock.file_len += len.max(crate::layout::PAGE);
        superblock.extent_count += 1;
        // The levels of so large a table, and their space once they are left.
        let top = superblock.file_len.ilog2().saturating_sub(12).min(39);
        superblock.extent_count += 2 * top.saturating_sub(superblock.top_level);
        superblock.top_level = top.max(superblock.top_level);
    }
    assert!(superblock.extent_count <= MAX_EXTENTS, "{superblock:?}");
}

#[test]
fn reservation_without_room_changes_nothing() {
    for test_dir in TestDir::all().iter().filter(|test_dir| !test_dir.is_slow()) {
        let (index, disk) = bounded(test_dir);
        index
            .insert(&keys(0..200), &values(&keys(0..200), 1))
            .unwrap();
        let before = (
            index.stats(),
            std::fs::metadata(test_dir.path()).unwrap().len(),
        );
        disk.limit(before.1 + (10 << 20));
        // There is room for the level, but not for the records.
        for items in [40_000, 1 << 30, 1 << 40] {
            let error = index.reserve(items).unwrap_err();
            let told = matches!(error, Error::NoSpace { .. } | Error::Limit { .. });
            assert!(told, "{error}");
            let after = (
                index.stats(),
                std::fs::metadata(test_dir.path()).unwrap().len(),
            );
            assert_eq!(after.0.levels, before.0.levels);
            assert_eq!((after.0.file_len, after.1), (before.0.file_len, before.1));
        }
        index.reserve(u64::MAX).unwrap_err();
        index.reserve(21_000).unwrap();
        assert_eq!(contents(&index).len(), 200);
        index.close().unwrap();
    }
}
