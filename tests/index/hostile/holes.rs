//! Files that are long and hold next to nothing.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gphash::layout::ExtentKind;
use gphash::{Domain, recover};
use tempfile::TempDir;

use crate::file::{Hostile, ITEMS, Table, options};
use crate::memory::bounded;

/// Bytes of a file that has a few hundred kilobytes of contents.
const LONG: u64 = 1 << 30;

/// A file of that length: records of eight bytes to its end, which need the most memory.
fn long(folder: &Path) -> std::path::PathBuf {
    let mut file = Hostile::new().unclean();
    let end = file.superblock.file_len;
    file.add_extent(ExtentKind::Arena, end, LONG - end);
    file.superblock.file_len = LONG;
    let path = file.write(folder);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(LONG)
        .unwrap();
    path
}

#[test]
fn scan_takes_a_bit_a_record() {
    let folder = TempDir::new().unwrap();
    let path = long(folder.path());
    bounded("a long file", LONG / 64, move || {
        assert_eq!(
            recover(&path, gphash::Repair::Check, &|_| {})
                .unwrap()
                .recovery
                .items,
            ITEMS
        );
        let index = Table::open(&path, &options().domain(Domain::Checkpointed)).unwrap();
        assert_eq!(index.len(), ITEMS);
        index.insert(&[500], &[1]).unwrap();
        index.close().unwrap();
    });
}

#[test]
fn holes_of_a_shared_file_are_filled_before_stores() {
    if !Path::new("/dev/shm").is_dir() {
        println!("skipped: no /dev/shm here");
        return;
    }
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let path = folder.path().join("index");
    let index = Table::create(&path, &options().capacity(100_000)).unwrap();
    index.insert(&[1], &[1]).unwrap();
    index.close().unwrap();
    // As copies are made by programs that spare room.
    let bytes = fs::read(&path).unwrap();
    let copy = folder.path().join("copy");
    let file = File::create(&copy).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (nth, page) in bytes.chunks(4096).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            std::os::unix::fs::FileExt::write_all_at(&file, page, nth as u64 * 4096).unwrap();
        }
    }
    let held = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    assert!(held(&copy) < bytes.len() as u64 / 2);
    let index = Table::open(&copy, &options()).unwrap();
    assert!(held(&copy) >= bytes.len() as u64);
    assert_eq!(index.get_one(&1).unwrap(), Some(1));
}
