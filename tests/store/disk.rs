//! Where stores are made, and how the disk there fails.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gphash::pm::{Call, Faults};
use gphash_test_support::copy_store;
use tempfile::TempDir;

/// A folder for each domain that the machine has.
pub fn folders() -> Vec<TempDir> {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    if Path::new("/dev/shm").is_dir() {
        folders.push(tempfile::tempdir_in("/dev/shm").unwrap());
    }
    folders
}

/// All files below a directory.
pub fn paths(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(paths(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Bytes that all files below a directory have on their disk. They may come and go meanwhile.
pub fn room_taken(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let room = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => room_taken(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    room.sum()
}

/// All files below a directory, with what they hold.
pub fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let with_contents = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
    paths(path).into_iter().map(with_contents).collect()
}

/// Copies what the death of the process would leave of a store's directory. Sorted files may be written anew, a
/// checkpoint be taken and items leave the index meanwhile, after which it copies again; the log should not be written.
pub fn copy(from: &Path, to: &Path) {
    let names = ["MANIFEST", "MANIFEST.2", "index.gph", "index.gph.journal"];
    copy_store(from, to, &names);
}

/// A disk on which one call fails, or all from one on until it is cured. Sorted files can be read: else
/// every reader would have to expect an error.
#[derive(Debug)]
pub struct Failing {
    calls: AtomicU64,
    first: AtomicU64,
    lasting: bool,
    code: i32,
    met: AtomicU64,
}

impl Failing {
    /// Answers `code` to call number `first`, and, if `lasting`, to those that follow.
    pub fn at(first: u64, lasting: bool, code: i32) -> Arc<Self> {
        Arc::new(Self {
            calls: AtomicU64::new(0),
            first: AtomicU64::new(first),
            lasting,
            code,
            met: AtomicU64::new(0),
        })
    }

    /// How many calls have failed.
    pub fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// From now on every call fails, if failures are lasting.
    pub fn fail(&self) {
        self.first.store(0, Ordering::Relaxed);
    }

    /// From now on nothing fails.
    pub fn cure(&self) {
        self.first.store(u64::MAX, Ordering::Relaxed);
    }
}

impl Faults for Failing {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_read = matches!(call, Call::Read | Call::TryRead);
        if is_read && path.extension().is_some_and(|extension| extension == "sst") {
            return Ok(());
        }
        let nth = self.calls.fetch_add(1, Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        if nth == first || self.lasting && nth > first {
            self.met.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(self.code));
        }
        Ok(())
    }

    /// Every read and write of more than that is a short one.
    fn most_bytes(&self) -> usize {
        200_001
    }
}
