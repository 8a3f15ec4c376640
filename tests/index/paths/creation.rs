//! Creations that are cut short, and several at a time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gphash::{Domain, Error};
use tempfile::TempDir;

use crate::child::{Dying, dies};
use crate::{Table, options, value};

const FILE: &str = "table";

/// The domain in which a folder's files are made.
fn domain_of(folder: &Path) -> Domain {
    match folder.starts_with("/dev/shm") {
        true => Domain::Shared,
        false => Domain::Checkpointed,
    }
}

fn folders() -> [TempDir; 2] {
    [
        TempDir::new_in("/dev/shm"),
        TempDir::new_in(env!("CARGO_TARGET_TMPDIR")),
    ]
    .map(Result::unwrap)
}

pub fn create(folder: &Path, dying: Arc<Dying>) {
    let options = options(domain_of(folder)).faults(dying);
    let index = Table::open_or_create(folder.join(FILE), &options).unwrap();
    // A process that dies leaves nothing to be done at its end.
    std::mem::forget(index);
}

#[test]
fn creation_that_is_interrupted_is_restarted() {
    let _guard = crate::beside_no_fork();
    for folder in folders() {
        let path = folder.path().join(FILE);
        let options = options(domain_of(folder.path()));
        let (mut absent, mut whole) = (0, 0);
        for at in 0.. {
            let died = dies("creation", folder.path(), at);
            match Table::open(&path, &options) {
                Ok(index) => {
                    assert!(index.is_empty());
                    whole += 1;
                }
                Err(Error::Io { source, .. }) => {
                    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
                    absent += 1;
                }
                Err(error) => panic!("at call {at}: {error}"),
            }
            if absent % 2 == 0 && !path.exists() {
                Table::create(&path, &options).unwrap().close().unwrap();
            }
            let index = Table::open_or_create(&path, &options).unwrap();
            assert!(index.insert_one(&1, &value(1, 1)).unwrap());
            index.close().unwrap();
            let names: Vec<_> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(names, [FILE], "at call {at}");
            std::fs::remove_file(&path).unwrap();
            if !died {
                break;
            }
        }
        println!("{absent} creations left nothing, {whole} a whole file");
        assert!(absent > 5 && whole > 0);
    }
}

#[test]
fn creation_in_progress_is_not_taken_over() {
    let _guard = crate::beside_no_fork();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(FILE);
    // As another process has it while it makes the file.
    let making = folder.path().join(".table.making");
    let other = std::fs::File::create(&making).unwrap();
    other.lock().unwrap();
    let create = || Table::create(&path, &options(Domain::Checkpointed));
    assert!(matches!(create(), Err(Error::InUse { .. })));
    assert!(making.exists());
    drop(other);
    create().unwrap();
    assert!(!making.exists());
    assert!(matches!(create(), Err(Error::AlreadyExists { .. })));
}

#[test]
fn threads_open_or_create_one_file_at_once() {
    let _guard = crate::beside_no_fork();
    const THREADS: usize = 4;
    for folder in folders() {
        for round in 0..30 {
            let path = folder.path().join(format!("{FILE}{round}"));
            let options = options(domain_of(folder.path()));
            let opened = AtomicUsize::new(0);
            let start = std::sync::Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for thread in 0..THREADS as u64 {
                    let (path, options, opened, start) = (&path, &options, &opened, &start);
                    scope.spawn(move || {
                        start.wait();
                        match Table::open_or_create(path, options) {
                            Ok(index) => {
                                assert!(index.insert_one(&thread, &value(thread, 1)).unwrap());
                                index.close().unwrap();
                                opened.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(Error::InUse { .. }) => {}
                            Err(error) => panic!("round {round}: {error}"),
                        }
                    });
                }
            });
            let index = Table::open(&path, &options).unwrap();
            assert_eq!(index.len(), opened.into_inner() as u64, "round {round}");
            assert!(!index.is_empty());
        }
    }
}
