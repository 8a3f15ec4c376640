//! Tags agree with the file, whatever threads did to it.

use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::Index;
use super::fault_tests::seed;
use crate::Options;
use crate::layout::{EMPTY, KeyHash};
use crate::pm::{Mapping, Medium};
use crate::sync::tags::Tag;
use crate::table::Table;

/// Threads that change the table.
const THREADS: u64 = 4;

/// Keys that they use; few enough that they meet.
const KEYS: u64 = 6000;

/// Words of tags that are known and those that are not, once all of them agree with the file.
fn agree(table: &Table<Mapping>) -> (u64, u64) {
    let levels = loop {
        let levels = table.levels.live();
        if levels.top + 1 - levels.bottom <= table.shape.levels {
            break levels;
        }
        // The index's thread goes on with a resize, and fills slots.
        std::thread::sleep(Duration::from_millis(1));
    };
    let (mut known, mut unknown) = (0, 0);
    for level in levels.bottom..=levels.top {
        for index in 0..1 << level {
            let bucket = table.bucket(level, index);
            for (first, word) in bucket.tags.words() {
                let Some(tags) = word.load() else {
                    unknown += 1;
                    continue;
                };
                known += 1;
                for slot in first..table.shape.slots.min(first + 8) {
                    let bit = 1 << (slot - first);
                    let state = table
                        .medium
                        .load(table.shape.slot_addr(bucket.at, slot).state);
                    let agrees = if state == EMPTY {
                        tags.empty() & bit != 0
                    } else {
                        let hash = KeyHash::of_word(state, table.hash_seed);
                        tags.match_mask(Tag::of(hash)) & bit != 0
                    };
                    assert!(
                        agrees,
                        "slot {slot} of bucket {index} of level {level} holds {state:#x}; {tags:?}"
                    );
                }
            }
        }
    }
    (known, unknown)
}

/// Random batches of one thread.
fn change(index: &Index<u64, u64>, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    for _ in 0..300 {
        let len = rng.random_range(1..200);
        let keys: Vec<u64> = (0..len).map(|_| rng.random_range(0..KEYS)).collect();
        match rng.random_range(0..5) {
            0 => drop(index.insert(&keys, &keys).unwrap()),
            1 => drop(index.upsert(&keys, &keys).unwrap()),
            2 => drop(index.update(&keys, &keys).unwrap()),
            3 => drop(index.remove(&keys[..keys.len() / 2]).unwrap()),
            _ => drop(index.contains(&keys).unwrap()),
        }
    }
}

fn agree_after_changes(path: &Path, options: &Options, seed: u64) {
    let index = Index::<u64, u64>::create(path, options).unwrap();
    for round in 0..3 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let index = &index;
                scope.spawn(move || change(index, seed ^ (round * THREADS + thread)));
            }
        });
        let (_, unknown) = agree(&index.table);
        assert_eq!(unknown, 0, "all levels were made here");
    }
    let items = index.len();
    index.close().unwrap();

    let index = Index::<u64, u64>::open(path, options).unwrap();
    assert_eq!(agree(&index.table).0, 0, "an opening reads no slot");
    let found = index.contains(&[1]).unwrap();
    let (known, unknown) = agree(&index.table);
    assert!(known < unknown, "one lookup made {known} words known");
    let keys: Vec<u64> = (0..KEYS).collect();
    let present = index.contains(&keys).unwrap();
    assert_eq!(present.contains(1), found.contains(0));
    assert_eq!(present.count_ones(..) as u64, items);
    agree(&index.table);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let index = &index;
            scope.spawn(move || change(index, !seed ^ thread));
        }
    });
    agree(&index.table);
    index.close().unwrap();
}

#[test]
fn tags_agree_with_the_file_after_changes_and_growth() {
    let seed = seed();
    for (levels, locations, slots) in [(2, 2, 8), (2, 2, 4), (1, 2, 12), (4, 8, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new()
            .capacity(50)
            .shape(levels, locations, slots)
            .engine(crate::Engine::Cpu);
        agree_after_changes(&dir.path().join("index"), &options, seed);
    }
}
