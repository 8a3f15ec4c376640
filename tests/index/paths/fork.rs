//! A process forks while it has files open, and the child drops its copies.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use gphash::store::{Columns, Request, Store, StoreOptions, WriteBatch};
use gphash::{Domain, Error};
use tempfile::TempDir;

use crate::{Table, alone, options, value};

/// Calls `child` in a forked process, and gives what it answers, unless it panicked.
fn in_a_child(child: impl FnOnce() -> u8) -> Option<u8> {
    // SAFETY: the child calls nothing that needs another thread of the parent, and ends here.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // One that waits for what it does not have shall end.
        // SAFETY: it takes a number of seconds.
        unsafe { libc::alarm(300) };
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
    let _alone = alone();
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
    let _alone = alone();
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

/// What it has read is in a file without a name, which the two share.
#[test]
fn fork_that_drops_a_transaction_leaves_it_to_the_parent() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let options = StoreOptions::new()
        .partitions(1)
        .memory_budget(StoreOptions::MIN_BUDGET);
    let store = Store::open(folder.path().join("store"), &options).unwrap();
    let mut transaction = store.transaction();
    for nth in 0..5000 {
        assert_eq!(
            transaction.get(format!("{nth:0100}").as_bytes()).unwrap(),
            None
        );
    }
    transaction.put("a", "1").unwrap();
    let mut slot = Some(transaction);
    let dropped = in_a_child(|| {
        drop(slot.take());
        0
    });
    assert_eq!(dropped, Some(0));
    // Else nothing that was read is compared.
    store.put("b", "2").unwrap();
    slot.unwrap().commit().unwrap();
    assert_eq!(store.get(b"a").unwrap(), Some(b"1".to_vec()));
    store.close().unwrap();
}

fn is_forked<T>(answer: gphash::Result<T>) -> bool {
    matches!(answer, Err(Error::Forked { .. }))
}

#[test]
fn verbs_of_an_index_are_refused_in_a_child() {
    let _alone = alone();
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let path = folder.path().join("table");
    let options = options(Domain::Shared);
    let index = Table::create(&path, &options).unwrap();
    index.insert_one(&1, &value(1, 1)).unwrap();
    let own = folder.path().join("own");
    let refused = in_a_child(|| {
        let one = [value(1, 2)];
        let all = [
            is_forked(index.insert(&[2], &one)),
            is_forked(index.upsert(&[1], &one)),
            is_forked(index.update(&[1], &one)),
            is_forked(index.remove(&[1])),
            is_forked(index.get(&[1], &mut [value(0, 0)])),
            is_forked(index.contains(&[1])),
            is_forked(index.insert_one(&2, &one[0])),
            is_forked(index.get_one(&1)),
            is_forked(index.reserve(100_000)),
            is_forked(index.sync()),
            is_forked(index.compact(&|_| {})),
            is_forked(index.set_user_metadata(b"child")),
            is_forked(index.reload_cache()),
        ];
        // What the child opens is its own, and not that of its children.
        let theirs = Table::create(&own, &options).unwrap();
        theirs.insert_one(&7, &value(7, 1)).unwrap();
        let is_refused_below = in_a_child(|| u8::from(is_forked(theirs.get_one(&7)))) == Some(1);
        let is_there = theirs.contains_one(&7).unwrap() && is_forked(index.get_one(&1));
        theirs.close().unwrap();
        u8::from(all == [true; 13] && is_refused_below && is_there)
    });
    assert_eq!(refused, Some(1));
    assert_eq!(index.get_one(&1).unwrap(), Some(value(1, 1)));
    assert_eq!(index.len(), 1);
    index.close().unwrap();
    assert_eq!(Table::open(&own, &options).unwrap().len(), 1);
}

#[test]
fn verbs_of_a_store_are_refused_in_a_child() {
    let _alone = alone();
    let folder = TempDir::new_in("/dev/shm").unwrap();
    for partitions in [1, 3] {
        let path = folder.path().join(partitions.to_string());
        let options = StoreOptions::new().partitions(partitions);
        let store = Store::open(&path, &options).unwrap();
        store.put("a", "1").unwrap();
        let keys = Columns::from_iter(["a", "b"]);
        let refused = in_a_child(|| {
            let snapshot = store.snapshot();
            let mut transaction = store.transaction();
            let mut batch = WriteBatch::new();
            batch.put("b", "2");
            let (tell, told) = std::sync::mpsc::channel();
            let tell_too = tell.clone();
            store.put_async("b", "2", move |put| tell.send(is_forked(put)).unwrap());
            store.get_async("a", move |found| tell_too.send(is_forked(found)).unwrap());
            let all = [
                is_forked(store.put("b", "2")),
                is_forked(store.delete("a")),
                is_forked(store.write(batch)),
                is_forked(store.execute(vec![Request::Get { key: b"a".to_vec() }])),
                is_forked(store.put_columns(&keys, &keys)),
                is_forked(store.put_if_absent("b", "2")),
                is_forked(store.get(b"a")),
                is_forked(store.contains_key(b"a")),
                is_forked(store.multi_get(&["a"])),
                is_forked(store.get_columns(&keys)),
                told.iter().eq([true; 2]),
                is_forked(snapshot.get(b"a")),
                is_forked(snapshot.multi_get(&["a"])),
                is_forked(transaction.get(b"a")),
                is_forked(store.first()),
                is_forked(store.flush()),
                is_forked(store.checkpoint()),
                is_forked(store.compact(&|_| {})),
            ];
            transaction.put("b", "2").unwrap();
            let all = all == [true; 18] && is_forked(transaction.commit());
            u8::from(all && store.range(..).all(is_forked))
        });
        assert_eq!(refused, Some(1));
        store.put("c", "3").unwrap();
        assert_eq!(store.range(..).count(), 2);
        store.close().unwrap();
    }
}

/// Of what a process draws random numbers from, its children have copies. A log that one of them has left must not pass for
/// that of another, nor a group of changes.
#[test]
fn children_draw_numbers_of_their_own() {
    let _alone = alone();
    let folder = TempDir::new_in("/dev/shm").unwrap();
    // Threads of the parent, which children do not have.
    drop(
        Store::open(
            folder.path().join("own"),
            &StoreOptions::new().partitions(4),
        )
        .unwrap(),
    );
    // What children would go on with.
    let drawn = (RandomState::new().hash_one(0), rand::random::<u64>());
    let mut written = Vec::new();
    for name in ["first", "second"] {
        let path = folder.path().join(name);
        let made = in_a_child(|| {
            let store = Store::open(&path, &StoreOptions::new().partitions(2)).unwrap();
            store.put("a", "1").unwrap();
            store.put("b", "2").unwrap();
            store.close().unwrap();
            Table::create(path.join("table"), &options(Domain::Shared)).unwrap();
            0
        });
        assert_eq!(made, Some(0), "after {drawn:?}");
        let number = |file: PathBuf, at: Range<usize>| fs::read(file).unwrap()[at].to_vec();
        let logs = fs::read_dir(path.join("wal")).unwrap();
        let log = logs.map(|entry| entry.unwrap().path()).max().unwrap();
        let salt = number(log, 48..56);
        // Where `docs/format.md` and `docs/store.md` have them.
        let file_id = number(path.join("table"), 24..40);
        let store_id = number(path.join("MANIFEST"), 16..32);
        written.push([salt, file_id, store_id]);
    }
    for (first, second) in written[0].iter().zip(&written[1]) {
        assert_ne!(first, second);
    }
}
