//! Bytes of the index that change behind the store's back: what is read is right or an error, and no
//! damage gets a checksum that matches.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gphash::store::{Durability, Request, Store, StoreOptions};
use gphash::{Error, ReportState, Result};

use super::append;

/// Keys of the store.
const KEYS: u32 = 400;

/// The one that is damaged.
const SPOILT: u32 = 42;

fn options() -> StoreOptions {
    crate::options()
        .partitions(1)
        .durability(Durability::None)
        .merge_operator(append())
}

fn key(nth: u32) -> Vec<u8> {
    format!("key {nth:06}").into_bytes()
}

fn value(nth: u32) -> Vec<u8> {
    format!("value {nth:06} ").into_bytes().repeat(14)
}

/// A closed store in whose index a byte of an item is another: `part` stands in the item, and `at` counts
/// from there.
fn spoilt(folder: &Path, part: &[u8], at: isize) -> PathBuf {
    let path = folder.join("store");
    let store = Store::open(&path, &options()).unwrap();
    for nth in 0..KEYS {
        store.put(key(nth), value(nth)).unwrap();
    }
    store.close().unwrap();
    let index = path.join("index.gph");
    let mut bytes = fs::read(&index).unwrap();
    let found = bytes.windows(part.len()).position(|bytes| bytes == part);
    let at = found
        .expect("it is in the index")
        .checked_add_signed(at)
        .unwrap();
    bytes[at] ^= 0x20;
    fs::write(&index, bytes).unwrap();
    path
}

fn is_damage<T>(answer: Result<T>) -> bool {
    match answer {
        Err(Error::Damaged { path, at, .. }) => path.ends_with("index.gph") && at > 0,
        Err(error) => panic!("{error}"),
        Ok(_) => false,
    }
}

fn no_other_is_lost(store: &Store) {
    for nth in (0..KEYS).filter(|nth| *nth != SPOILT) {
        assert_eq!(store.get(&key(nth)).unwrap(), Some(value(nth)));
    }
}

#[test]
fn corruption_of_a_byte_is_an_error_of_every_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = spoilt(folder.path(), &value(SPOILT), 5);
    let store = Store::open(&path, &options()).unwrap();
    let damaged = key(SPOILT);
    assert!(is_damage(store.get(&damaged)));
    assert!(is_damage(store.multi_get(&[key(1), damaged.clone()])));
    let get = Request::Get {
        key: damaged.clone(),
    };
    assert!(is_damage(store.execute(vec![get])));
    assert!(is_damage(store.merge(damaged.clone(), "more")));
    assert!(is_damage(store.put_if_absent(damaged.clone(), "more")));
    assert!(is_damage(store.compare_and_swap(
        damaged.clone(),
        None,
        None
    )));
    assert!(is_damage(store.swap(damaged.clone(), "more")));
    assert!(is_damage(store.take(damaged.clone())));
    assert!(is_damage(store.get_with(&damaged, <[u8]>::len)));
    assert!(is_damage(
        store.snapshot().multi_get(&[key(1), damaged.clone()])
    ));
    assert!(is_damage(store.transaction().get(&damaged)));
    let errors = store.range(..).filter(Result::is_err).count();
    assert_eq!(errors, 1);
    assert_eq!(
        store.range(key(SPOILT + 1)..).count(),
        (KEYS - SPOILT - 1) as usize
    );
    // What reads no value does not meet it.
    assert!(store.contains_key(&damaged).unwrap());
    let keys = store.keys(..).collect::<Result<Vec<_>>>().unwrap();
    assert!(keys.into_iter().eq((0..KEYS).map(key)));
    assert_eq!(store.keys(..).rev().flatten().count(), KEYS as usize);
    assert_eq!(store.verify(&|_| {}).state, ReportState::Damaged);
    no_other_is_lost(&store);
    store.put(damaged.clone(), "anew").unwrap();
    assert_eq!(store.get(&damaged).unwrap(), Some(b"anew".to_vec()));
    assert_eq!(store.range(..).flatten().count(), KEYS as usize);
    assert_eq!(store.verify(&|_| {}).state, ReportState::Clean);
    store.close().unwrap();
    // Who wants to, reads what is there.
    let other = tempfile::tempdir().unwrap();
    let path = spoilt(other.path(), &value(SPOILT), 5);
    let store = Store::open(&path, &options().verify_checksums(false)).unwrap();
    assert_ne!(store.get(&damaged).unwrap(), Some(value(SPOILT)));
    assert_eq!(store.verify(&|_| {}).state, ReportState::Damaged);
    store.close().unwrap();
}

#[test]
fn corruption_of_a_key_is_no_absence() {
    let folder = tempfile::tempdir().unwrap();
    let path = spoilt(folder.path(), &key(SPOILT), 1);
    let store = Store::open(&path, &options()).unwrap();
    // Whoever names the key makes up for what is wrong with it.
    assert_eq!(store.get(&key(SPOILT)).unwrap(), Some(value(SPOILT)));
    assert!(is_damage(store.range(..).collect::<Result<Vec<_>>>()));
    assert!(is_damage(store.keys(..).collect::<Result<Vec<_>>>()));
    no_other_is_lost(&store);
    assert!(store.get(b"another").unwrap().is_none());
    store.delete(key(SPOILT)).unwrap();
    assert!(store.get(&key(SPOILT)).unwrap().is_none());
    assert_eq!(store.range(..).flatten().count(), KEYS as usize - 1);
    store.close().unwrap();
}

/// A record that states a length which cannot be is one that a change replaces, as any other that is damaged.
#[test]
fn corruption_of_a_length_ends_with_a_change() {
    for (at, is_put) in [-21, -17]
        .into_iter()
        .flat_map(|at| [(at, true), (at, false)])
    {
        let folder = tempfile::tempdir().unwrap();
        let path = spoilt(folder.path(), &key(SPOILT), at);
        let store = Store::open(&path, &options()).unwrap();
        assert!(is_damage(store.get(&key(SPOILT))), "{at}");
        match is_put {
            true => store.put(key(SPOILT), "new").unwrap(),
            false => store.delete(key(SPOILT)).unwrap(),
        }
        store.put("another", "").unwrap();
        store.close().unwrap();
        let store = Store::open(&path, &options()).unwrap();
        let expected = is_put.then(|| b"new".to_vec());
        assert_eq!(store.get(&key(SPOILT)).unwrap(), expected, "{at}");
        assert!(store.contains_key(b"another").unwrap());
        no_other_is_lost(&store);
        store.close().unwrap();
    }
}

#[test]
fn snapshot_reports_damage_that_a_change_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = spoilt(folder.path(), &value(SPOILT), 90);
    let store = Store::open(&path, &options()).unwrap();
    let mut reader = store.transaction();
    let snapshot = store.snapshot();
    let range = store.range(key(SPOILT)..=key(SPOILT));
    store.put(key(SPOILT), "anew").unwrap();
    assert!(is_damage(reader.get(&key(SPOILT))));
    assert!(is_damage(snapshot.get(&key(SPOILT))));
    assert!(is_damage(snapshot.multi_get(&[key(1), key(SPOILT)])));
    assert!(is_damage(snapshot.contains_key(&key(SPOILT))));
    assert!(is_damage(range.collect::<Result<Vec<_>>>()));
    assert_eq!(store.get(&key(SPOILT)).unwrap(), Some(b"anew".to_vec()));
    drop((reader, snapshot));
    store.close().unwrap();
}

#[test]
fn eviction_leaves_damaged_items_in_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = spoilt(folder.path(), &value(SPOILT), 30);
    for verify in [true, false] {
        let options = options()
            .memory_budget(StoreOptions::MIN_BUDGET)
            .verify_checksums(verify);
        let store = Store::open(&path, &options).unwrap();
        // More than the budget has room for, until all of the first have had to leave.
        let (mut evicted, mut since) = (0, Instant::now());
        for nth in 0.. {
            store
                .put([b"other", &key(nth % 2000)[..]].concat(), value(nth))
                .unwrap();
            let now = store.stats().items_evicted;
            if now > 4 * u64::from(KEYS) && nth > 4000 {
                break;
            }
            if now > evicted {
                // On a slow disk each of them takes long.
                (evicted, since) = (now, Instant::now());
            }
            assert!(
                since.elapsed() < Duration::from_secs(600),
                "items do not leave"
            );
        }
        let answer = store.get(&key(SPOILT));
        match verify {
            true => assert!(is_damage(answer)),
            false => assert_ne!(answer.unwrap(), Some(value(SPOILT))),
        }
        no_other_is_lost(&store);
        let report = store.verify(&|_| {});
        let damage: Vec<_> = report.files.iter().flat_map(|file| &file.damage).collect();
        assert_eq!(damage.len(), 1, "{damage:?}");
        store.close().unwrap();
    }
}

#[test]
fn group_with_a_damaged_read_serves_its_other_callers() {
    let folder = tempfile::tempdir().unwrap();
    let path = spoilt(folder.path(), &value(SPOILT), 70);
    let store = Store::open(&path, &options()).unwrap();
    std::thread::scope(|scope| {
        let store = &store;
        for thread in 0..3u32 {
            scope.spawn(move || {
                for nth in 0..200u32 {
                    let own = [thread.to_be_bytes(), nth.to_be_bytes()].concat();
                    store.put(own, "own").unwrap();
                }
            });
        }
        for _ in 0..200 {
            assert!(is_damage(store.merge(key(SPOILT), "more")));
        }
    });
    store.close().unwrap();
}
