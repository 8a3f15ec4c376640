//! A process forks while it has files open, and the child drops its copies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gphash::store::{Store, StoreOptions};
use gphash::{Domain, Error};
use tempfile::TempDir;

use crate::{Table, options, value};

/// Calls `child` in a forked process, and gives what it answers, unless it panicked.
fn in_a_child(child: impl FnOnce() -> u8) -> Option<u8> {
    // SAFETY: the child calls nothing that needs another thread of the parent, and ends here.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let answer = catch_unwind(AssertUnwindSafe(child)).unwrap_or(u8::MAX);
        // SAFETY: it ends the process at once.
        unsafe { libc::_exit(answer.into()) };
    }
    let mut status = 0;
    // SAFETY: the status is written where it lies.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    let answer = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    answer.and_then(|answer| {
        u8::try_from(answer)
            .ok()
            .filter(|&answer| answer != u8::MAX)
    })
}

#[test]
fn fork_that_drops_an_index_leaves_it_to_the_parent() {
    for (domain, place) in [(Domain::Shared, "/dev/shm"), (Domain::Checkpointed, "/tmp")] {
        let folder = TempDir::new_in(place).unwrap();
        let path = folder.path().join("table");
        let index = Table::create(&path, &options(domain)).unwrap();
        index.insert_one(&1, &value(1, 1)).unwrap();
        index.sync().unwrap();
        index.insert_one(&2, &value(2, 1)).unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let before = files();
        let mut slot = Some(index);
        let dropped = in_a_child(|| {
            drop(slot.take());
            0
        });
        assert_eq!(dropped, Some(0));
        let closed = in_a_child(|| {
            let answer = slot.take().unwrap().close();
            u8::from(matches!(answer, Err(Error::Forked { .. })))
        });
        assert_eq!(closed, Some(1));
        assert_eq!(files(), before);
        let second = Table::open(&path, &options(domain));
        assert!(matches!(second, Err(Error::InUse { .. })));
        let index = slot.unwrap();
        index.insert_one(&3, &value(3, 1)).unwrap();
        index.close().unwrap();
        let index = Table::open(&path, &options(domain)).unwrap();
        assert!(index.recovery().clean);
        assert_eq!(index.len(), 3);
    }
}

#[test]
fn fork_that_drops_a_store_leaves_it_to_the_parent() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let options = StoreOptions::new();
    let store = Store::open(&path, &options).unwrap();
    store.put("a", "1").unwrap();
    let mut slot = Some(store);
    let dropped = in_a_child(|| {
        drop(slot.take());
        0
    });
    assert_eq!(dropped, Some(0));
    assert!(matches!(
        Store::open(&path, &options),
        Err(Error::InUse { .. })
    ));
    let store = slot.unwrap();
    store.put("b", "2").unwrap();
    store.close().unwrap();
    let store = Store::open(&path, &options).unwrap();
    assert_eq!(store.get(b"a").unwrap(), Some(b"1".to_vec()));
    assert_eq!(store.get(b"b").unwrap(), Some(b"2".to_vec()));
}
