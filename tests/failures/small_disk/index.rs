//! An index on disks that are full or may only be read.

use std::fs;

use gphash::layout::Superblock;
use gphash::{Engine, Error, Index, Options};
use gphash_test_support::setting;

use super::SmallDisk;

type Table = Index<u64, [u64; 2]>;

fn options() -> Options {
    let engine = setting("GPHASH_TEST_ENGINE").unwrap_or(Engine::Cpu);
    Options::new().engine(engine)
}

#[test]
fn read_only_file_system_refuses_open_and_create() {
    let Some(disk) = SmallDisk::mount("4m") else {
        return;
    };
    let path = disk.path().join("index");
    let index = Table::create(&path, &options()).unwrap();
    index.insert(&[1], &[[7; 2]]).unwrap();
    index.close().unwrap();
    disk.remount("ro");
    let before = fs::read(&path).unwrap();
    let error = Table::open(&path, &options()).expect_err("it opened");
    assert!(fs::read(&path).unwrap() == before);
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    let error = Table::create(path.with_extension("new"), &options()).expect_err("it was made");
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
}

#[test]
fn full_disk_refuses_a_creation() {
    let Some(disk) = SmallDisk::mount("1m") else {
        return;
    };
    let path = disk.path().join("index");
    let error = Table::create(&path, &options().capacity(1 << 20)).expect_err("it was made");
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

#[test]
fn full_disk_during_growth_loses_nothing() {
    let Some(disk) = SmallDisk::mount("2m") else {
        return;
    };
    let path = disk.path().join("index");
    let index = Table::create(&path, &options().capacity(100)).unwrap();
    let batch = |first: u64| -> (Vec<u64>, Vec<[u64; 2]>) {
        (first..first + 100).map(|key| (key, [key, !key])).unzip()
    };
    let mut full = None;
    for first in (0..1 << 20).step_by(100) {
        let (keys, values) = batch(first);
        if let Err(error) = index.insert(&keys, &values) {
            full = Some((first, error));
            break;
        }
    }
    let (first, error) = full.expect("the disk never filled");
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let has = |keys: std::ops::Range<u64>| {
        let keys: Vec<u64> = keys.collect();
        let mut values = vec![[0; 2]; keys.len()];
        assert_eq!(
            index.get(&keys, &mut values).unwrap().count_ones(..),
            keys.len()
        );
        assert!(
            keys.iter()
                .zip(&values)
                .all(|(&key, value)| *value == [key, !key])
        );
    };
    has(0..first);
    assert_eq!(index.iter().count() as u64, index.len());
    // What fits into the space that the file has goes on.
    let (keys, values) = batch(0);
    assert_eq!(index.remove(&keys).unwrap().count_ones(..), 100);
    assert_eq!(index.contains(&keys).unwrap().count_ones(..), 0);
    has(100..first);
    disk.remount("size=64m");
    assert_eq!(index.insert(&keys, &values).unwrap().count_ones(..), 100);
    for first in (first..first + 20_000).step_by(100) {
        let (keys, values) = batch(first);
        index.upsert(&keys, &values).unwrap();
    }
    has(0..first + 20_000);
    let items = index.len();
    index.close().unwrap();
    let index = Table::open(&path, &options()).unwrap();
    assert_eq!((index.len(), index.iter().count() as u64), (items, items));
}

#[test]
fn full_disk_during_a_long_batch_loses_no_record() {
    const BATCH: u64 = 9_000;
    let Some(disk) = SmallDisk::mount("4m") else {
        return;
    };
    let path = disk.path().join("index");
    let index = Table::create(&path, &options().capacity(100)).unwrap();
    let mut batches = Vec::new();
    let error = loop {
        let first = batches.len() as u64 * BATCH;
        let batch = (first..first + BATCH).map(|key| (key, [key, !key]));
        let (keys, values): (Vec<u64>, Vec<[u64; 2]>) = batch.unzip();
        let inserted = index.insert(&keys, &values);
        batches.push(keys);
        match inserted {
            Ok(answers) => assert_eq!(answers.count_ones(..), usize::try_from(BATCH).unwrap()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let held = index.len();
    assert!(held > 2 * BATCH, "only {held} items fit");
    let removed = batches.iter().map(|keys| index.remove(keys).unwrap());
    let removed: usize = removed.map(|answers| answers.count_ones(..)).sum();
    assert_eq!(removed as u64, held);
    assert_eq!(index.len(), 0);
    index.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    let superblock = Superblock::parse(&bytes, bytes.len() as u64, &path).unwrap();
    assert_eq!(superblock.free_count, superblock.arena_high_water);
}
