//! Levels and arenas where they must not be.

use gphash::layout::{DATA_START, ExtentEntry, ExtentKind, PAGE};

use crate::file::Hostile;

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
