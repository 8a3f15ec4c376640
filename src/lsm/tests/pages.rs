//! Pages: of several versions, of what is above them, and of values that cannot be read.

use std::path::Path;

use super::*;
use crate::Error;

/// A spill of these keys, with values that stand apart.
fn spill_of(path: &Path, keys: impl Iterator<Item = u8>) -> Spill {
    let spill = open(path, None, options()).unwrap();
    let items = keys.map(|key| (vec![key], (1, Some(value(key)))));
    add(&spill, &items.collect()).unwrap();
    spill
}

fn value(key: u8) -> Vec<u8> {
    vec![key; 400]
}

fn items(keys: impl IntoIterator<Item = u8>) -> Vec<page::Item> {
    let item = |key| (vec![key], Some(value(key)));
    keys.into_iter().map(item).collect()
}

/// Flips a bit of the value of a key.
fn damage(path: &Path, key: u8) {
    for file in std::fs::read_dir(path).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(400).position(|bytes| bytes == value(key));
        if let Some(at) = found {
            bytes[at + 200] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            return;
        }
    }
    panic!("no file has the value of {key}");
}

const ALL: PageOf = PageOf {
    range: (Bound::Unbounded, Bound::Unbounded),
    from_end: false,
    items: 100,
    bytes: 1 << 20,
    with_values: true,
};

/// Reads a page with these items above; gives how many of them are left, too.
fn read(spills: &[&Spill], above: Vec<page::Item>, of: PageOf) -> Result<(Page, usize)> {
    let versions: Vec<_> = spills.iter().map(|spill| spill.version()).collect();
    let mut above = above.into_iter();
    let page = Page::read(versions.iter().map(|version| &**version), &mut above, of)?;
    Ok((page, above.len()))
}

/// A page ends before a value that cannot be read; who goes on there is told.
#[test]
fn page_ends_before_a_damaged_value() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = spill_of(dir.path(), 0..60);
    damage(dir.path(), 20);
    let (page, _) = read(&[&spill], Vec::new(), ALL).unwrap();
    assert!(page.items == items(0..20) && !page.is_last);
    let from_end = PageOf {
        from_end: true,
        ..ALL
    };
    let (page, _) = read(&[&spill], Vec::new(), from_end).unwrap();
    assert!(page.items == items((21..60).rev()) && !page.is_last);
    let behind = PageOf {
        range: (Bound::Excluded(&[19]), Bound::Unbounded),
        ..ALL
    };
    let error = read(&[&spill], Vec::new(), behind).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let behind = PageOf {
        range: (Bound::Excluded(&[20]), Bound::Unbounded),
        ..ALL
    };
    let (page, _) = read(&[&spill], Vec::new(), behind).unwrap();
    assert!(page.items == items(21..60) && page.is_last);
}

/// Neither values of items that something above hides are read, nor those behind the page, nor those of keys.
#[test]
fn values_that_are_not_wanted_are_not_read() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = spill_of(dir.path(), 0..60);
    for key in [10, 20, 50] {
        damage(dir.path(), key);
    }
    let above = vec![
        (vec![10], None),
        (vec![20], Some(vec![7])),
        (vec![30], None),
    ];
    let none_is_met = || {
        let version = spill.version();
        version.values().iter().all(|of| !of.file.is_damaged())
    };
    let few = PageOf { items: 25, ..ALL };
    let (page, left) = read(&[&spill], above.clone(), few).unwrap();
    let mut expected = items(0..25);
    (expected[10].1, expected[20].1) = (None, Some(vec![7]));
    assert!(page.items == expected && !page.is_last && left == 1);
    assert!(none_is_met());
    let keys = PageOf {
        with_values: false,
        ..ALL
    };
    let (page, _) = read(&[&spill], Vec::new(), keys).unwrap();
    assert!(page.is_last && page.items.len() == 60);
    assert!(
        page.items
            .iter()
            .all(|(_, value)| *value == Some(Vec::new()))
    );
    assert!(none_is_met());
}

/// Pages go through the keys of several spills in order, wherever a page ends.
#[test]
fn pages_of_several_spills() {
    let dirs: Vec<_> = (0..3)
        .map(|_| tempfile::tempdir_in("/dev/shm").unwrap())
        .collect();
    let spills: Vec<_> = (0..3u8)
        .map(|nth| {
            spill_of(
                dirs[usize::from(nth)].path(),
                (0..90).filter(|key| key % 4 == nth),
            )
        })
        .collect();
    let spills: Vec<&Spill> = spills.iter().collect();
    // The rest is above.
    let above = |from: u8| items((from..90).filter(|key| key % 4 == 3));
    for (limit, bytes) in [(1, 1 << 20), (7, 1 << 20), (100, 3000), (100, 1)] {
        let mut found = Vec::new();
        loop {
            let from = u8::try_from(found.len()).unwrap();
            let of = PageOf {
                range: (Bound::Included(&[from]), Bound::Unbounded),
                items: limit,
                bytes,
                ..ALL
            };
            let (page, left) = read(&spills, above(from), of).unwrap();
            assert!(page.items.len() <= limit.min(bytes / 401).max(1));
            found.extend(page.items);
            let next = u8::try_from(found.len()).unwrap();
            assert_eq!(left, above(next).len());
            if page.is_last {
                break;
            }
        }
        assert!(found == items(0..90));
    }
}

/// No block is read that begins behind the range, or behind all that is wanted.
#[test]
fn blocks_behind_the_range_are_not_read() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut one = options();
    one.value_bytes_min = 4000;
    let spill = open(dir.path(), None, one).unwrap();
    let entries = (0..60u8).map(|key| (vec![key], (1, Some(value(key)))));
    add(&spill, &entries.collect()).unwrap();
    let version = spill.version();
    let (_, sst) = version.files().next().unwrap();
    let first_behind = sst.meta().unwrap().index.separator(1)[0];
    let bytes = std::fs::read(sst.path()).unwrap();
    let mut damaged = bytes.clone();
    damaged[to_usize(sst.meta().unwrap().index.handle(1).from) + 100] ^= 1;
    std::fs::write(sst.path(), &damaged).unwrap();
    let last = [first_behind - 1];
    let range = (Bound::Unbounded, Bound::Included(&last[..]));
    let (page, _) = read(&[&spill], Vec::new(), PageOf { range, ..ALL }).unwrap();
    assert!(page.items == items(0..first_behind) && page.is_last);
    // What stands above comes first, and ends the page.
    let mut damaged = bytes;
    damaged[100] ^= 1;
    std::fs::write(sst.path(), &damaged).unwrap();
    drop((version, spill));
    let spill = open(dir.path(), None, options()).unwrap();
    let above = vec![(Vec::new(), Some(vec![1]))];
    let (page, left) = read(&[&spill], above.clone(), ALL).unwrap();
    assert!(page.items == above && !page.is_last && left == 0);
}
