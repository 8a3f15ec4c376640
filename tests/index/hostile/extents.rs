//! Levels and arenas where they must not be.

use gphash::layout::{
    DATA_START, EXTENT_TABLE_LEN, EXTENT_TABLES, ExtentEntry, ExtentKind, Features, PAGE,
};
use gphash::{Error, Index};

use crate::file::{Hostile, ITEMS, folder, options};

/// An arena in place of the first one.
fn with_arena(offset: u64, len: u64) -> Hostile {
    let mut file = Hostile::new();
    let index = file.arena();
    file.set_extent(index, ExtentEntry::new(ExtentKind::Arena, 0, offset, len));
    file
}

/// The number of the top level in the directory.
fn top(file: &Hostile) -> usize {
    file.superblock.top_level as usize
}

#[test]
fn arenas_that_leave_the_file() {
    let end = Hostile::new().superblock.file_len;
    for (name, offset, len) in [
        ("over the superblock", 0, PAGE),
        ("over the extent table", 4 * PAGE, PAGE),
        ("beyond the end", end, PAGE),
        ("across the end", end - PAGE, 2 * PAGE),
        ("a length that wraps", DATA_START, u64::MAX - PAGE + 1),
        (
            "a length that ends at zero",
            DATA_START,
            DATA_START.wrapping_neg(),
        ),
        ("an offset that wraps", u64::MAX - PAGE + 1, 2 * PAGE),
        ("half a page on", end - PAGE - 2048, PAGE),
        ("a word on", end - 2 * PAGE + 8, PAGE),
    ] {
        with_arena(offset, len).must_be_refused(&format!("an arena {name}"));
        with_arena(offset, len)
            .unclean()
            .must_be_refused(&format!("an arena {name}, unclean"));
    }
}

#[test]
fn extents_that_overlap() {
    for unclean in [false, true] {
        let attack = |name: &str, spoil: &dyn Fn(&mut Hostile)| {
            let mut file = Hostile::new();
            spoil(&mut file);
            let file = if unclean { file.unclean() } else { file };
            file.must_be_refused(name);
        };
        attack("an arena twice", &|file| {
            let arena = file.extent(file.arena());
            file.add_extent(ExtentKind::Arena, arena.offset, arena.len);
        });
        attack("an arena over half of another", &|file| {
            let arena = file.extent(file.arena());
            file.add_extent(ExtentKind::Arena, arena.offset, PAGE);
        });
        attack("an arena over a level", &|file| {
            let offset = file.superblock.level_directory[top(file)];
            file.add_extent(ExtentKind::Arena, offset, PAGE);
        });
        attack("an arena over everything", &|file| {
            let len = file.superblock.file_len - DATA_START;
            file.add_extent(ExtentKind::Arena, DATA_START, len);
        });
        attack("a level of another length", &|file| {
            let offset = file.superblock.level_directory[top(file)];
            let rest = file.superblock.file_len - offset;
            file.add_extent(ExtentKind::Level, offset, rest - PAGE);
        });
        attack("a level over another", &|file| {
            let top = top(file);
            file.superblock.level_directory[top - 1] = file.superblock.level_directory[top];
        });
        attack("a level over an arena", &|file| {
            let arena = file.extent(file.arena());
            let top = top(file);
            file.superblock.level_directory[top] = arena.offset;
        });
        attack("an emptied level over a level", &|file| {
            let offset = file.superblock.level_directory[top(file)];
            file.add_extent(ExtentKind::Level, offset + PAGE, PAGE);
        });
        attack("an emptied level over an arena", &|file| {
            let arena = file.extent(file.arena());
            file.add_extent(ExtentKind::Level, arena.offset, PAGE / 2);
        });
        attack("emptied levels over each other", &|file| {
            let end = file.superblock.file_len;
            file.bytes.resize(
                usize::try_from(end).unwrap() + 2 * usize::try_from(PAGE).unwrap(),
                0,
            );
            file.superblock.file_len += 2 * PAGE;
            file.add_extent(ExtentKind::Level, end, PAGE);
            file.add_extent(ExtentKind::Level, end, 2 * PAGE);
        });
    }
}

/// Makes the file longer by some pages and gives where they are.
fn add_pages(file: &mut Hostile, pages: u64) -> u64 {
    let end = file.superblock.file_len;
    file.superblock.file_len += pages * PAGE;
    file.bytes
        .resize(usize::try_from(file.superblock.file_len).unwrap(), 0);
    end
}

/// An honest file with a free extent at its end.
fn with_free() -> (Hostile, u64) {
    let mut file = Hostile::new();
    file.superblock.features = Features::FREE_EXTENTS.bits();
    let offset = add_pages(&mut file, 4);
    file.add_extent(ExtentKind::Free, offset, 4 * PAGE);
    (file, offset)
}

#[test]
fn free_extents_are_taken_whatever_they_hold() {
    for unclean in [false, true] {
        let (file, _) = with_free();
        let file = if unclean { file.unclean() } else { file };
        file.attack("a free extent").unwrap();
        let (mut file, offset) = with_free();
        // One that an arena has taken again.
        file.add_extent(ExtentKind::Arena, offset, 4 * PAGE);
        let file = if unclean { file.unclean() } else { file };
        file.attack("a free extent that was taken").unwrap();
    }
    let (mut file, offset) = with_free();
    let folder = folder();
    let at = usize::try_from(offset).unwrap();
    file.bytes[at..].fill(0xA5);
    let path = file.write(folder.path());
    let index = Index::<u64, u64>::open(&path, &options()).unwrap();
    let keys: Vec<u64> = (10_000..30_000).collect();
    index.insert(&keys, &keys).unwrap();
    index.close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    // Records are where the foreign bytes were, and nothing else of the file has changed its place.
    assert!(bytes[at..][..4 * 4096].iter().any(|&byte| byte != 0xA5));
    let index = Index::<u64, u64>::open(&path, &options()).unwrap();
    let mut values = vec![0; keys.len()];
    let found = index.get(&keys, &mut values).unwrap();
    assert_eq!(found.count_ones(..), keys.len());
    assert_eq!(values, keys);
    index.close().unwrap();
    assert_eq!(
        Hostile::of(bytes).superblock.features,
        Features::FREE_EXTENTS.bits()
    );
}

#[test]
fn free_extents_that_are_not() {
    for unclean in [false, true] {
        let attack = |name: &str, spoil: &dyn Fn(&mut Hostile, u64)| {
            let (mut file, offset) = with_free();
            spoil(&mut file, offset);
            let file = if unclean { file.unclean() } else { file };
            file.must_be_refused(name);
        };
        attack("a free extent without its feature", &|file, _| {
            file.superblock.features = 0;
        });
        attack("a free extent over an arena", &|file, _| {
            let arena = file.extent(file.arena());
            file.add_extent(ExtentKind::Free, arena.offset, arena.len);
        });
        attack("a free extent over a level", &|file, _| {
            let offset = file.superblock.level_directory[top(file)];
            file.add_extent(ExtentKind::Free, offset, PAGE);
        });
        attack("a free extent twice", &|file, offset| {
            file.add_extent(ExtentKind::Free, offset, 4 * PAGE);
        });
        attack(
            "a free extent of which a part was taken",
            &|file, offset| {
                file.add_extent(ExtentKind::Arena, offset, PAGE);
            },
        );
        attack("a free extent beyond the end", &|file, offset| {
            file.add_extent(ExtentKind::Free, offset + PAGE, 4 * PAGE);
        });
        attack("a free extent over the extent table", &|file, _| {
            file.add_extent(ExtentKind::Free, EXTENT_TABLES[0], PAGE);
        });
    }
}

#[test]
fn extent_table_in_its_other_area() {
    let [first, second] = EXTENT_TABLES.map(|at| usize::try_from(at).unwrap());
    let len = usize::try_from(EXTENT_TABLE_LEN).unwrap();
    let mut file = Hostile::new();
    file.bytes.copy_within(first..first + len, second);
    file.bytes[first..first + len].fill(0xFF);
    file.superblock.extent_table = 1;
    for file in [file.clone(), file.clone().unclean()] {
        file.attack("a table in area 1").unwrap();
    }
    let folder = folder();
    let path = file.write(folder.path());
    let index = Index::<u64, u64>::open(&path, &options()).unwrap();
    let keys: Vec<u64> = (10_000..30_000).collect();
    index.insert(&keys, &keys).unwrap();
    index.close().unwrap();
    let grown = Hostile::of(std::fs::read(&path).unwrap());
    assert_eq!(grown.superblock.extent_table, 1);
    assert!(grown.superblock.extent_count > file.superblock.extent_count);
    assert!(
        grown.bytes[first..first + len]
            .iter()
            .all(|&byte| byte == 0xFF)
    );
    let index = Index::<u64, u64>::open(&path, &options()).unwrap();
    assert_eq!(index.len(), ITEMS + 20_000);
    for wrong in [0, 2, u32::MAX] {
        let mut file = file.clone();
        file.superblock.extent_table = wrong;
        file.must_be_refused("the area that has no table");
    }
}

#[test]
fn features_that_nobody_knows() {
    for (bits, name) in [(Features::SHRINK.bits(), "SHRINK"), (1 << 40, "bit 40")] {
        for unclean in [false, true] {
            let mut file = Hostile::new();
            file.superblock.features = bits;
            file.superblock.shrink_level = file.superblock.top_level + 1;
            let file = if unclean { file.unclean() } else { file };
            let error = file.attack(name).expect_err(name);
            assert!(
                matches!(&error, Error::UnknownFeatures { found, .. } if found == name),
                "{error}"
            );
        }
    }
    let mut file = Hostile::new();
    file.superblock.shrink_level = file.superblock.top_level + 1;
    file.must_be_refused("a shrink without its feature");
}

#[test]
fn levels_that_leave_the_file() {
    let end = Hostile::new().superblock.file_len;
    for offset in [0, PAGE, DATA_START + 8, end, u64::MAX - PAGE + 1] {
        let mut file = Hostile::new();
        let top = top(&file);
        file.superblock.level_directory[top] = offset;
        file.must_be_refused(&format!("a level at {offset}"));
    }
    for level in [39, 40, 47, u32::MAX] {
        let mut file = Hostile::new();
        file.superblock.top_level = level;
        file.must_be_refused(&format!("levels up to {level}"));
    }
    let mut file = Hostile::new();
    file.superblock.bottom_level = file.superblock.top_level + 1;
    file.must_be_refused("no levels");
    let mut file = Hostile::new();
    let bottom = file.superblock.bottom_level;
    file.superblock.level_directory[bottom as usize] = 0;
    file.superblock.bottom_level += 1;
    file.must_be_refused("fewer levels than a table at rest has");
    let mut file = Hostile::new();
    file.superblock.level_directory[46] = DATA_START;
    file.must_be_refused("a level that is not in use");
}

#[test]
fn extent_table_that_is_full_takes_no_more() {
    let mut file = Hostile::new();
    let end = file.superblock.file_len;
    let free = 1536 - u64::from(file.superblock.extent_count);
    file.superblock.file_len += free * PAGE;
    file.bytes
        .resize(usize::try_from(file.superblock.file_len).unwrap(), 0);
    for nth in 0..free {
        file.add_extent(ExtentKind::Level, end + nth * PAGE, PAGE);
    }
    file.attack("as many extents as there can be").unwrap();
}
