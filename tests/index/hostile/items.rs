//! Slots that say what no slot says.

use gphash::Error;
use gphash::layout::{BUSY, DATA_START, PAGE, RESERVED_BUCKETS, RecordWord};

use crate::file::{Hostile, Table, folder, options};

/// Offsets of records that there are not, or that belong to others.
fn wrong_records(file: &Hostile) -> Vec<(&'static str, u64)> {
    let end = file.superblock.file_len;
    let members = file.members();
    let arena = file.extent(file.arena());
    let top = file.superblock.level_directory[file.superblock.top_level as usize];
    vec![
        ("in the superblock", 8),
        ("in the extent table", 4 * PAGE),
        ("in a level", top),
        ("in its own slot", members[0].record),
        ("between records", arena.offset + 4),
        ("of another item", file.word(members[1].record)),
        ("at the end", end),
        ("across the end", end - 4),
        ("far away", (1 << 56) - 8),
        ("with bits that mean nothing", arena.offset | 7 << 56),
    ]
}

#[test]
fn record_words_that_lead_astray() {
    let file = Hostile::new();
    for (name, word) in wrong_records(&file) {
        let mut one = file.clone();
        let slot = one.members()[0];
        one.put(slot.record, word);
        // A file that was cleanly closed is believed until an operation comes by.
        one.clone().attack(&format!("a record {name}")).unwrap();
        if word >> 56 == 0 {
            one.unclean()
                .must_be_refused(&format!("a record {name}, unclean"));
        }
        let mut all = file.clone();
        for slot in all.members() {
            all.put(slot.record, word);
        }
        all.clone().attack(&format!("all records {name}")).unwrap();
        all.unclean()
            .must_be_refused(&format!("all records {name}, unclean"));
    }
}

#[test]
fn marks_that_are_forged() {
    let marks = [
        ("frozen", RecordWord::FROZEN),
        ("tentative", RecordWord::TENTATIVE),
        ("collided", RecordWord::COLLIDED),
        ("all marks", 7 << 61),
    ];
    for (name, mark) in marks {
        for resizing in [false, true] {
            let mut file = Hostile::new();
            let mut flipped = file.clone();
            for slot in file.members() {
                let word = RecordWord(file.word(slot.record));
                file.put(slot.record, word.with(mark).0);
                flipped.put(slot.record, word.0 | mark);
            }
            flipped
                .clone()
                .attack(&format!("the bit of {name}"))
                .unwrap();
            flipped
                .unclean()
                .must_be_refused(&format!("the bit of {name}, unclean"));
            if resizing {
                // As if the resize from one level fewer had been left for the next open.
                file.superblock.levels = 1;
            }
            let name = format!("{name}, resizing: {resizing}");
            file.clone().attack(&name).unwrap();
            file.unclean().attack(&format!("{name}, unclean")).unwrap();
        }
    }
}

#[test]
fn items_in_the_wrong_bucket() {
    let file = Hostile::new();
    let members = file.members();
    // Each item goes where the next one was.
    let mut moved = file.clone();
    for pair in members.windows(2) {
        let state = file.word(pair[0].state);
        moved.put(pair[1].state, state);
    }
    moved.clone().attack("keys that moved on").unwrap();
    moved
        .unclean()
        .must_be_refused("keys that moved on, unclean");

    let mut same = file.clone();
    for slot in &members {
        same.put(slot.state, 7);
    }
    same.clone().attack("one key everywhere").unwrap();
    same.unclean()
        .must_be_refused("one key everywhere, unclean");
}

#[test]
fn hash_seed_that_moves_every_key() {
    for seed in 0..20 {
        let mut file = Hostile::with_shape(1, 1, 4);
        file.superblock.hash_seed = seed;
        file.clone().attack(&format!("seed {seed}")).unwrap();
        file.unclean()
            .must_be_refused(&format!("seed {seed}, unclean"));
    }
}

#[test]
fn slots_that_are_never_free() {
    for state in [BUSY, 1, 2] {
        let mut file = Hostile::new();
        for slot in file.slots() {
            if file.word(slot.state) == 0 {
                file.put(slot.state, state);
            }
        }
        let shape = file.shape();
        for bucket in [RESERVED_BUCKETS, RESERVED_BUCKETS + PAGE] {
            for slot in 0..shape.slots {
                file.put(shape.slot_addr(bucket, slot).state, state);
            }
        }
        file.clone()
            .attack(&format!("slots in state {state}"))
            .unwrap();
        let unclean = format!("slots in state {state}, unclean");
        match state {
            2 => file.unclean().must_be_refused(&unclean),
            _ => file.unclean().attack(&unclean).unwrap(),
        }
    }
}

/// Nobody is about to empty them.
#[test]
fn reserved_bucket_that_is_never_free() {
    let mut file = Hostile::new();
    let shape = file.shape();
    for slot in 0..shape.slots {
        file.put(shape.slot_addr(RESERVED_BUCKETS, slot).state, BUSY);
    }
    let folder = folder();
    let index = Table::open(file.write(folder.path()), &options()).unwrap();
    let refused = index.insert_one(&0, &1).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    index.insert_one(&5000, &1).unwrap();
    index.sync().unwrap();
    assert_eq!(index.get_one(&5000).unwrap(), Some(1));
}

#[test]
fn overflow_maps_that_are_full() {
    let mut file = Hostile::new();
    let shape = file.shape();
    for level in file.superblock.bottom_level..=file.superblock.top_level {
        let map = file.superblock.level_directory[level as usize] + shape.buckets_len(level);
        for word in 0..shape.overflow_len(level) / 8 {
            file.put(map + 8 * word, u64::MAX);
        }
    }
    file.clone().attack("every bucket overflowed").unwrap();
    file.unclean()
        .attack("every bucket overflowed, unclean")
        .unwrap();
}

#[test]
fn levels_and_records_of_noise() {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..20 {
        let mut file = Hostile::new();
        let end = file.superblock.file_len;
        for at in (DATA_START..end).step_by(8) {
            let word = match next() % 4 {
                0 => next(),
                1 => DATA_START + next() % (end - DATA_START) / 8 * 8,
                2 => next() % 200,
                _ => continue,
            };
            file.put(at, word);
        }
        file.clone().attack(&format!("noise {round}")).unwrap();
        file.unclean()
            .must_be_refused(&format!("noise {round}, unclean"));
    }
}
