//! Where stores are made, and how the disk there fails.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A folder for each domain that the machine has.
pub fn folders() -> Vec<TempDir> {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    if Path::new("/dev/shm").is_dir() {
        folders.push(tempfile::tempdir_in("/dev/shm").unwrap());
    }
    folders
}

/// Copies what the death of the process would leave of a directory.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::copy(entry.path(), &target).map(|_| ()).unwrap(),
        }
    }
}
