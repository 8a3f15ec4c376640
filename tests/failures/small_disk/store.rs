//! A store on disks that are full or may only be read: one that was closed can be read.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use gphash::store::{Durability, Store, StoreOptions};
use gphash::{Domain, Error, ReportState};

use super::SmallDisk;

type Model = BTreeMap<u32, Vec<u8>>;

fn options(domain: Domain) -> StoreOptions {
    StoreOptions::new()
        .domain(domain)
        .durability(Durability::Always)
        .segment_bytes(256 << 10)
        .checkpoint_bytes(2 << 20)
}

fn value(key: u32, round: u8) -> Vec<u8> {
    let len = 1000 + usize::try_from(key % 1000 * 131 % 1000).unwrap();
    vec![round ^ key.to_le_bytes()[0]; len]
}

fn check(store: &Store, model: &Model) {
    for (key, value) in model {
        let found = store.get(&key.to_be_bytes()).unwrap();
        assert!(found.as_ref() == Some(value), "key {key:#x}");
    }
    assert_eq!(store.range(..).count(), model.len());
    assert_eq!(store.verify(&|_| {}).state, ReportState::Clean);
}

/// Leaves no byte free on a disk.
fn stuff(disk: &SmallDisk) -> PathBuf {
    let path = disk.path().join("filler");
    let mut filler = fs::File::create(&path).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    path
}

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn closed_store_is_read_on_a_full_disk_without_a_write() {
    let Some(disk) = SmallDisk::mount("24m") else {
        return;
    };
    let path = disk.path().join("store");
    let options = options(Domain::Checkpointed);
    let store = Store::open(&path, &options).unwrap();
    let mut model = Model::new();
    for key in 0..500u32 {
        store.put(key.to_be_bytes(), value(key, 0)).unwrap();
        model.insert(key, value(key, 0));
    }
    store.close().unwrap();
    stuff(&disk);
    let before = files(&path);
    let store = Store::open(&path, &options).unwrap();
    check(&store, &model);
    store.close().unwrap();
    assert!(files(&path) == before);
    disk.remount("ro");
    match Store::open(&path, &options) {
        Ok(store) => check(&store, &model),
        Err(error) => {
            assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
            assert!(error.to_string().contains("may not be written"), "{error}");
        }
    }
    assert!(files(&path) == before);
}
