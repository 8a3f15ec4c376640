//! Tests of mapped files in every domain.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::layout::{DATA_START, PAGE, Shape, Superblock};

/// Folders on a file system in memory and on an ordinary one.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn on_disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_owned() + "/target").unwrap()
}

fn options(domain: Domain) -> MapOptions {
    MapOptions {
        domain,
        ..MapOptions::default()
    }
}

/// Every domain that can be had here, with a folder for it.
fn domains() -> Vec<(MapOptions, TempDir)> {
    let mut dax = options(Domain::Dax);
    dax.assume_dax = true;
    let mut all = vec![
        (options(Domain::Shared), in_memory()),
        (options(Domain::Checkpointed), in_memory()),
        (options(Domain::Checkpointed), on_disk()),
    ];
    if cfg!(target_arch = "x86_64") {
        all.push((dax, in_memory()));
    }
    all
}

/// Writes a superblock of `file_len` bytes as an index does.
fn superblock(mapping: &Mapping, generation: u64, file_len: u64) {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let mut superblock = Superblock::new(&shape, [7, 9], 3);
    superblock.generation = generation;
    superblock.bottom_level = 0;
    superblock.top_level = 0;
    superblock.level_directory[0] = DATA_START;
    superblock.file_len = file_len;
    superblock.seal();
    let bytes = bytemuck::bytes_of(&superblock);
    mapping.write(superblock.place(), bytes);
    mapping.write_back(superblock.place(), bytes.len() as u64);
    mapping.fence();
}

const LEN: u64 = DATA_START + 4 * PAGE;

#[test]
fn what_is_stored_is_there_when_the_file_is_opened_again() {
    for (options, folder) in domains() {
        let path = folder.path().join("table");
        let mapping = Mapping::create(&path, LEN - 1, &options).unwrap();
        assert_eq!(mapping.domain(), options.domain);
        assert_eq!(mapping.len(), LEN);
        let base = mapping.base();
        superblock(&mapping, 1, LEN);
        mapping.store(DATA_START, 42);
        mapping.write(LEN - 10, b"last bytes");
        mapping.checkpoint().unwrap();

        mapping.grow(LEN + 100 * PAGE).unwrap();
        assert_eq!(mapping.base(), base);
        assert_eq!(mapping.load(LEN + 99 * PAGE), 0);
        mapping.store(LEN + 99 * PAGE, 43);
        assert_eq!(mapping.fetch_or(LEN + 99 * PAGE, 4), 43);
        assert_eq!(mapping.compare_exchange(LEN + 99 * PAGE, 47, 48), Ok(47));
        assert_eq!(mapping.compare_exchange(LEN + 99 * PAGE, 47, 49), Err(48));
        superblock(&mapping, 2, LEN + 100 * PAGE);
        mapping.checkpoint().unwrap();
        drop(mapping);

        let mapping = Mapping::open(&path, &options).unwrap();
        assert_eq!(mapping.len(), LEN + 100 * PAGE);
        assert_eq!(mapping.load(DATA_START), 42);
        assert_eq!(mapping.load(LEN + 99 * PAGE), 48);
        let mut bytes = [0; 10];
        mapping.read(LEN - 10, &mut bytes);
        assert_eq!(&bytes, b"last bytes");
        drop(mapping);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
