//! Numbers that are too great, and chains that run in circles.

use gphash::layout::{DATA_START, PAGE, Superblock};

use crate::file::{Hostile, Table, folder, options};

/// What is said, and how.
type Lie = (&'static str, fn(&mut Superblock));

#[test]
fn counts_out_of_bounds() {
    let spoil: [Lie; 16] = [
        ("extents", |s| s.extent_count = 1537),
        ("all extents", |s| s.extent_count = u32::MAX),
        ("items", |s| s.items = u64::MAX),
        ("items and free ones that wrap", |s| {
            (s.items, s.free_count) = (u64::MAX, 2);
        }),
        ("free records", |s| s.free_count = 1 << 40),
        ("records", |s| s.arena_high_water = 1 << 40),
        ("changes", |s| s.generation = u64::MAX),
        ("changes but one", |s| s.generation = u64::MAX - 1),
        ("checkpoints", |s| s.checkpoints = u64::MAX),
        ("bytes", |s| s.file_len = 1 << 56),
        ("bytes that wrap", |s| s.file_len = u64::MAX - PAGE + 1),
        ("bytes and a half", |s| s.file_len = DATA_START + 8),
        ("slots", |s| s.slots = u32::MAX),
        ("levels and locations", |s| {
            (s.levels, s.locations) = (1 << 16, 1 << 16);
        }),
        ("bytes of a key", |s| s.key_size = u32::MAX),
        ("bytes of a value", |s| s.value_size = u32::MAX),
    ];
    for (name, spoil) in spoil {
        let mut file = Hostile::new();
        spoil(&mut file.superblock);
        file.must_be_refused(&format!("too many {name}"));
    }
}

#[test]
fn counts_that_are_believed() {
    let honest = Hostile::new().superblock;
    let spoil: [Lie; 5] = [
        ("no items", |s| s.items = 0),
        ("no record ever taken", |s| {
            (s.items, s.arena_high_water, s.free_count) = (0, 0, 0);
        }),
        ("a chain that is not there", |s| s.free_list = 0),
        ("a chain that begins in the superblock", |s| s.free_list = 8),
        ("a chain that begins in a level", |s| {
            s.free_list = DATA_START
        }),
    ];
    assert!(honest.free_count > 0);
    for (name, spoil) in spoil {
        let mut file = Hostile::new();
        spoil(&mut file.superblock);
        file.attack(name).unwrap();
    }
}

#[test]
fn free_lists_that_are_circular() {
    let arena_of = |file: &Hostile| file.extent(file.arena()).offset;
    for (name, links) in [
        ("a link to itself", vec![0u64]),
        ("two links", vec![1, 0]),
        ("a way into a circle", vec![1, 2, 3, 4, 2]),
    ] {
        // Records of eight bytes, so a link is the offset of the next one.
        let mut file = Hostile::new();
        let first = arena_of(&file);
        for (nth, link) in links.iter().enumerate() {
            file.put(first + 8 * nth as u64, first + 8 * link);
        }
        file.superblock.free_list = first;
        file.superblock.items = 0;
        file.superblock.free_count = file.superblock.arena_high_water;
        let folder = folder();
        let path = file.write(folder.path());
        let index = Table::open(&path, &options()).unwrap();
        index.close().unwrap();
        let closed = Hostile::of(std::fs::read(&path).unwrap()).superblock;
        let (said, kept) = (file.superblock.free_count, closed.free_count);
        assert!(said > 200 && kept < 32, "{name}: {kept} records of {said}");
        file.attack(name).unwrap();
    }
}

#[test]
fn free_lists_that_leave_the_file() {
    for link in [8, DATA_START + 4, u64::MAX, 1 << 56, u64::MAX - 7] {
        let mut file = Hostile::new();
        let first = file.superblock.free_list;
        file.put(first, link);
        file.attack(&format!("a link to {link:#x}")).unwrap();
    }
}
