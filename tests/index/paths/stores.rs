//! A store that was opened by a relative path, in a process that goes elsewhere.

use std::env;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use gphash::Error;
use gphash::store::{Durability, Store, StoreOptions};
use tempfile::TempDir;

use crate::child::{Dying, dies};

const NAME: &str = "store";
const PUTS: u32 = 400;

fn options() -> StoreOptions {
    StoreOptions::new()
        .segment_bytes(16 << 10)
        .checkpoint_bytes(64 << 10)
        .durability(Durability::Always)
}

fn fill(store: &Store, byte: u8) {
    for key in 0..PUTS {
        store.put(key.to_be_bytes(), [byte; 500]).unwrap();
    }
}

/// Works on the store of the folder `one`, having gone to the folder `two` and renamed `one`, and dies.
pub fn work_after_chdir(folder: &Path, _dying: Arc<Dying>) {
    env::set_current_dir(folder.join("one")).unwrap();
    let store = Store::open(NAME, &options()).unwrap();
    env::set_current_dir(folder.join("two")).unwrap();
    std::fs::rename(folder.join("one"), folder.join("moved")).unwrap();
    fill(&store, 1);
    std::process::abort();
}

fn check(path: &Path, byte: u8) {
    let store = Store::open(path, &options()).unwrap();
    for key in 0..PUTS {
        let found = store.get(&key.to_be_bytes()).unwrap();
        assert_eq!(found, Some(vec![byte; 500]), "key {key}");
    }
    assert_eq!(store.range(..).count(), usize::try_from(PUTS).unwrap());
    store.close().unwrap();
}

#[test]
fn threads_open_one_store_at_once() {
    let _guard = crate::beside_no_fork();
    const THREADS: u8 = 4;
    let folder = TempDir::new().unwrap();
    for round in 0..10 {
        let path = folder.path().join(format!("{NAME}{round}"));
        let start = Barrier::new(THREADS.into());
        let opened = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (path, start, opened) = (&path, &start, &opened);
                scope.spawn(move || {
                    start.wait();
                    match Store::open(path, &options()) {
                        Ok(store) => {
                            store.put([thread], "here").unwrap();
                            store.close().unwrap();
                            opened.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(Error::InUse { .. }) => {}
                        Err(error) => panic!("round {round}: {error}"),
                    }
                });
            }
        });
        let store = Store::open(&path, &options()).unwrap();
        assert_eq!(store.range(..).count(), opened.into_inner());
        store.close().unwrap();
    }
}

#[test]
fn store_keeps_to_its_dir() {
    let _guard = crate::beside_no_fork();
    let folder = TempDir::new().unwrap();
    for name in ["one", "two"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let second = folder.path().join("two").join(NAME);
    let store = Store::open(&second, &options()).unwrap();
    fill(&store, 7);
    store.close().unwrap();
    assert!(dies("store", folder.path(), 0));
    check(&folder.path().join("moved").join(NAME), 1);
    check(&second, 7);
}
