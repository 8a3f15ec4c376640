//! Stores of several partitions: what they promise together, and directories that are not as they should be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use gphash::store::{
    Columns, Durability, MergeOperator, Repair, Request, RequestKind, Response, Store,
    StoreOptions, WriteBatch, recover,
};
use gphash::{Error, ReportState};
use gphash_test_support::setting;
use rayon::prelude::*;

use super::disk::{copy, files};

fn options(partitions: u32) -> StoreOptions {
    crate::options().partitions(partitions)
}

fn rounds() -> u32 {
    setting("GPHASH_PARTITION_ROUNDS").unwrap_or(300)
}

/// Keys of all partitions.
fn keys() -> Vec<Vec<u8>> {
    (0..32u8).map(|key| vec![b'k', key]).collect()
}

fn batch(value: u32) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for key in keys() {
        batch.put(key, value.to_le_bytes());
    }
    batch
}

/// The value that all keys have.
fn the_value<'v>(mut values: impl Iterator<Item = Option<&'v [u8]>>) -> Option<Vec<u8>> {
    let first = values.next().expect("there are keys").map(<[u8]>::to_vec);
    assert!(
        values.all(|value| value == first.as_deref()),
        "a fractured read"
    );
    first
}

/// Batches of several writers over all partitions, and readers of each kind: each sees a batch in all partitions or in
/// none, and never an older one than before.
#[test]
fn readers_see_a_batch_in_all_partitions_or_in_none() {
    for partitions in [2, 3, 8] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &options(partitions)).unwrap();
        store.write(batch(0)).unwrap();
        let ends = AtomicBool::new(false);
        let columns: Columns = keys().iter().collect();
        std::thread::scope(|scope| {
            let (store, ends, columns) = (&store, &ends, &columns);
            let readers: Vec<_> = (0..3)
                .map(|kind| {
                    scope.spawn(move || {
                        let mut last = 0;
                        while !ends.load(Ordering::Relaxed) {
                            let value = match kind {
                                0 => {
                                    let values = store.multi_get(&keys()).unwrap();
                                    the_value(values.iter().map(Option::as_deref))
                                }
                                1 => {
                                    let values = store.get_columns(columns).unwrap();
                                    the_value(values.iter())
                                }
                                _ => {
                                    let snapshot = store.snapshot();
                                    let items: Vec<_> =
                                        snapshot.iter().map(Result::unwrap).collect();
                                    assert!(items.iter().map(|(key, _)| key).eq(&keys()));
                                    let first = &keys()[0];
                                    assert_eq!(
                                        snapshot.get(first).unwrap().as_ref(),
                                        Some(&items[0].1)
                                    );
                                    the_value(items.iter().map(|(_, value)| Some(&value[..])))
                                }
                            };
                            let value =
                                value.map(|value| u32::from_le_bytes(value.try_into().unwrap()));
                            assert!(value >= Some(last), "{value:?} after {last}");
                            last = value.unwrap();
                        }
                    })
                })
                .collect();
            for value in 1..=rounds() {
                match value % 3 {
                    0 => {
                        let put = |key| Request::Put {
                            key,
                            value: value.to_le_bytes().into(),
                        };
                        let answers = store
                            .execute(keys().into_iter().map(put).collect())
                            .unwrap();
                        assert!(
                            answers
                                .iter()
                                .all(|answer| matches!(answer, Response::Done))
                        );
                    }
                    1 => {
                        let mut transaction = store.transaction();
                        for key in keys() {
                            assert!(transaction.get(&key).unwrap().is_some());
                            transaction.put(key, value.to_le_bytes()).unwrap();
                        }
                        transaction.commit().unwrap();
                    }
                    _ => store.write(batch(value)).unwrap(),
                }
            }
            ends.store(true, Ordering::Relaxed);
            readers
                .into_iter()
                .for_each(|reader| reader.join().unwrap());
        });
        drop(store);
        let store = Store::open(folder.path(), &crate::options()).unwrap();
        let last = rounds().to_le_bytes().to_vec();
        assert!(store.iter().all(|item| item.unwrap().1 == last));
    }
}

/// Of two transactions each of which reads what the other one changes, in another partition, one is refused; so is
/// one that has read a range into which another has put a key.
#[test]
fn transactions_across_partitions_are_serializable() {
    for partitions in [2, 3, 8] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &options(partitions)).unwrap();
        for (nth, read) in keys().into_iter().enumerate() {
            for written in keys() {
                if read == written {
                    continue;
                }
                let mut one = store.transaction();
                let mut other = store.transaction();
                one.get(&read).unwrap();
                other.get(&written).unwrap();
                one.put(written.clone(), "one").unwrap();
                other.put(read.clone(), "other").unwrap();
                one.commit().unwrap();
                assert!(matches!(other.commit(), Err(Error::Conflict)));
            }
            let mut phantom = store.transaction();
            assert_eq!(phantom.keys("n".."o").count(), nth);
            phantom.put("seen", "").unwrap();
            store.put(format!("n{nth}"), "").unwrap();
            assert!(matches!(phantom.commit(), Err(Error::Conflict)));
        }
        assert_eq!(store.get(b"seen").unwrap(), None);
    }
}

/// Changes of single keys, of several partitions, long batches, checkpoints and compaction at once, with pools of one
/// thread: nobody waits for ever, and the sum of all counters is that of all increments.
#[test]
fn partitions_serve_all_kinds_of_changes_at_once() {
    let (done, ended) = mpsc::channel();
    let rounds_done = Arc::new(AtomicU64::new(0));
    let progress = Arc::clone(&rounds_done);
    std::thread::spawn(move || {
        for durability in [Durability::None, Durability::Always] {
            let folder = tempfile::tempdir().unwrap();
            let options = options(3)
                .threads(1)
                .durability(durability)
                .checkpoint_bytes(1 << 16)
                .segment_bytes(1 << 14)
                .merge_operator(super::append());
            let store = Arc::new(Store::open(folder.path(), &options).unwrap());
            let rounds = match durability {
                Durability::Always => rounds() / 10,
                _ => rounds(),
            };
            std::thread::scope(|scope| {
                let store = &store;
                let advance = || progress.fetch_add(1, Ordering::Relaxed);
                for thread in 0..2u8 {
                    scope.spawn(move || {
                        for round in 0..rounds {
                            store.merge(vec![b'k', (round % 32) as u8], [b'+']).unwrap();
                            let key = vec![b'c', thread];
                            store.put_async(key, "called", |answer| answer.unwrap());
                            advance();
                        }
                    });
                    scope.spawn(move || {
                        let merge = |key| Request::Merge {
                            key,
                            operand: vec![b'+'],
                        };
                        for round in 0..rounds {
                            let repeats = if round.is_multiple_of(16) { 20 } else { 1 };
                            let requests = std::iter::repeat_with(keys).take(repeats).flatten();
                            store.execute(requests.map(merge).collect()).unwrap();
                            advance();
                        }
                    });
                }
                scope.spawn(move || {
                    for _ in 0..rounds / 10 {
                        store.checkpoint().unwrap();
                        store.compact(&|_| {}).unwrap();
                        store.flush().unwrap();
                        advance();
                    }
                });
            });
            let merges = |store: &Store| -> usize {
                let values = store.multi_get(&keys()).unwrap();
                values.iter().flatten().map(Vec::len).sum()
            };
            let repeats = |round: u32| if round.is_multiple_of(16) { 20 } else { 1 };
            let of_batches: u32 = (0..rounds).map(|round| 32 * repeats(round)).sum();
            let expected = 2 * (rounds + of_batches) as usize;
            assert_eq!(merges(&store), expected);
            let left = folder.path().with_extension("left");
            copy(folder.path(), &left);
            let reopened = Store::open(&left, &options).unwrap();
            assert_eq!(
                merges(&reopened),
                expected,
                "after the death of the process"
            );
            drop(reopened);
            fs::remove_dir_all(&left).unwrap();
            Arc::into_inner(store).unwrap().close().unwrap();
            let store = Store::open(folder.path(), &options).unwrap();
            assert_eq!(merges(&store), expected);
            assert_eq!(store.stats().replayed_records, 0);
        }
        done.send(()).unwrap();
    });
    let limit = std::time::Duration::from_secs(300);
    let mut last = 0;
    while let Err(error) = ended.recv_timeout(limit) {
        // A slow machine needs longer for all of it, but not for one round.
        let now = rounds_done.load(Ordering::Relaxed);
        let is_slow = error == mpsc::RecvTimeoutError::Timeout && now > last;
        assert!(is_slow, "somebody waits for ever, or has panicked: {error}");
        last = now;
    }
}

/// Callers on threads of a pool, with batches that are written block by block and locks of their own around reads: the
/// store gives them no work of others, and wants none of their threads.
#[test]
fn partitions_leave_the_pools_of_callers_alone() {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &options(3)).unwrap();
        let lock = std::sync::Mutex::new(0);
        (0..16u8).into_par_iter().for_each(|nth| {
            let mut long = WriteBatch::new();
            for key in 0..6u8 {
                long.put([nth, key], vec![nth; 2 << 20]);
            }
            store.write(long).unwrap();
            let mut locked = lock.lock().unwrap();
            *locked += store.multi_get(&keys()).unwrap().len();
        });
        assert_eq!(store.keys(..).count(), 16 * 6);
        done.send(()).unwrap();
    });
    let limit = std::time::Duration::from_secs(600);
    ended
        .recv_timeout(limit)
        .expect("somebody waits for ever, or has panicked");
}

/// A store of three partitions that was closed, or whose process has died.
fn made(path: &Path, is_closed: bool) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let store = Store::open(path, &options(3)).unwrap();
    store.write(batch(7)).unwrap();
    store.checkpoint().unwrap();
    store.write(batch(8)).unwrap();
    store.put("more", "").unwrap();
    let model = store.iter().map(Result::unwrap).collect();
    match is_closed {
        true => store.close().unwrap(),
        false => {
            let left = path.with_extension("left");
            copy(path, &left);
            drop(store);
            fs::remove_dir_all(path).unwrap();
            fs::rename(left, path).unwrap();
        }
    }
    model
}

#[test]
fn partitions_that_are_missing_swapped_or_of_another_store_are_refused() {
    for is_closed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let other = folder.path().join("other");
        let model = made(&path, is_closed);
        made(&other, is_closed);
        let (second, third) = (path.join("partition-001"), path.join("partition-002"));
        let aside = folder.path().join("aside");
        let refused = |words: &str| {
            let before = files(folder.path());
            for options in [options(3), crate::options()] {
                let error = Store::open(&path, &options).unwrap_err();
                assert!(error.to_string().contains(words), "{error}");
                let missing = matches!(&error, Error::Missing { path, .. } if *path == second);
                assert!(missing || matches!(error, Error::Damaged { .. }), "{error}");
            }
            assert!(
                files(folder.path()) == before,
                "{words}: something was changed"
            );
        };
        fs::rename(&second, &aside).unwrap();
        refused("partition of the store; put it back");
        copy(&third, &second);
        refused("partition 2 of 3");
        fs::remove_dir_all(&second).unwrap();
        copy(&other.join("partition-001"), &second);
        refused("expected partition 1 of 3");
        fs::remove_dir_all(&second).unwrap();
        fs::rename(&aside, &second).unwrap();
        for options in [options(1), crate::options()] {
            let error = Store::open(&second, &options).unwrap_err();
            assert!(error.to_string().contains("directory above"), "{error}");
        }
        let error = Store::open(&path, &options(2)).unwrap_err();
        let told = matches!(
            &error,
            Error::OptionMismatch { option: "partitions", found, expected, .. }
                if (found.as_str(), expected.as_str()) == ("3", "2")
        );
        assert!(told, "{error}");
        for check in [Repair::Check, Repair::Recover] {
            let report = recover(&path, check, &|_| {}).unwrap();
            // A check replays no log.
            let is_all = check == Repair::Recover || is_closed;
            assert!(!is_all || report.items == model.len() as u64, "{report:?}");
            assert!(
                report
                    .files
                    .iter()
                    .any(|file| file.name == "partition-002/MANIFEST")
            );
        }
        let store = Store::open(&path, &crate::options()).unwrap();
        let found: BTreeMap<_, _> = store.iter().map(Result::unwrap).collect();
        assert!(found == model);
    }
}

/// The files of one partition, of those of a store.
fn of_partition(path: &Path, number: u32) -> Vec<PathBuf> {
    let others = |file: &PathBuf| {
        file.components()
            .any(|part| part.as_os_str() == "partition-001")
    };
    let all = super::disk::paths(path).into_iter();
    all.filter(|file| others(file) == (number == 1)).collect()
}

#[test]
fn older_copies_of_partitions_are_refused() {
    for (number, is_closed) in [(0, true), (0, false), (1, true), (1, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (path, older) = (folder.path().join("store"), folder.path().join("older"));
        let store = Store::open(&path, &options(2)).unwrap();
        store.write(batch(1)).unwrap();
        store.close().unwrap();
        copy(&path, &older);
        let changed = folder.path().join("changed");
        let store = Store::open(&path, &options(2)).unwrap();
        store.write(batch(2)).unwrap();
        if is_closed {
            store.close().unwrap();
            copy(&path, &changed);
        } else {
            store.checkpoint().unwrap();
            store.write(batch(3)).unwrap();
            copy(&path, &changed);
            drop(store);
        }
        for file in of_partition(&changed, number) {
            fs::remove_file(file).unwrap();
        }
        for file in of_partition(&older, number) {
            let to = changed.join(file.strip_prefix(&older).unwrap());
            fs::copy(file, to).unwrap();
        }
        let before = files(&changed);
        let error = Store::open(&changed, &crate::options()).unwrap_err();
        let name = if number == 0 {
            "MANIFEST"
        } else {
            "partition-001/MANIFEST"
        };
        let named = matches!(
            &error,
            Error::Damaged { path, found, .. }
                if *path == changed.join(name) && found.contains("an older copy")
        );
        assert!(named, "{error}");
        for repair in [Repair::Check, Repair::Recover] {
            let report = recover(&changed, repair, &|_| {}).unwrap();
            let file = report.files.iter().find(|file| file.name == name).unwrap();
            assert_eq!(file.state, ReportState::Damaged, "{report:?}");
            assert!(files(&changed) == before, "something was changed");
        }
        recover(&changed, Repair::Salvage, &|_| {}).unwrap();
        let store = Store::open(&changed, &crate::options()).unwrap();
        let newest = if is_closed { 2u32 } else { 3 };
        let mut found = [0; 2];
        for item in store.iter() {
            let (_, value) = item.unwrap();
            found[usize::from(value == newest.to_le_bytes())] += 1;
            assert!([1, newest].contains(&u32::from_le_bytes(value.try_into().unwrap())));
        }
        assert!(found[0] > 0 && found[1] > 0, "{found:?}");
        store.close().unwrap();
        Store::open(&changed, &crate::options()).unwrap();
    }
}

#[test]
fn older_copy_is_refused_if_nothing_else_was_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, older) = (folder.path().join("store"), folder.path().join("older"));
    Store::open(&path, &options(2)).unwrap().close().unwrap();
    let index = |path: &Path| fs::read(path.join("partition-001/index.gph")).unwrap();
    let mut refused = 0;
    for key in keys() {
        let _ = fs::remove_dir_all(&older);
        copy(&path, &older);
        let store = Store::open(&path, &options(2)).unwrap();
        store.put(key, "value").unwrap();
        store.close().unwrap();
        if index(&path) == index(&older) {
            continue;
        }
        let changed = folder.path().join("changed");
        copy(&path, &changed);
        fs::remove_dir_all(changed.join("partition-001")).unwrap();
        copy(&older.join("partition-001"), &changed.join("partition-001"));
        let error = Store::open(&changed, &crate::options()).unwrap_err();
        assert!(error.to_string().contains("an older copy"), "{error}");
        fs::remove_dir_all(&changed).unwrap();
        refused += 1;
    }
    assert!(refused > 0);
}

#[test]
fn files_of_another_partition_are_refused() {
    for exchanged in ["index.gph", "wal", "MANIFEST"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let store = Store::open(&path, &options(3)).unwrap();
        let keys: Vec<_> = (0..60u8).map(|key| vec![key]).collect();
        // No group has a part in several logs.
        keys.iter()
            .for_each(|key| store.put(key.clone(), key.clone()).unwrap());
        let killed = folder.path().join("killed");
        copy(&path, &killed);
        store.close().unwrap();
        for path in [&path, &killed] {
            let [second, third] =
                ["partition-001", "partition-002"].map(|name| path.join(name).join(exchanged));
            let aside = folder.path().join("aside");
            fs::rename(&second, &aside).unwrap();
            fs::rename(&third, &second).unwrap();
            fs::rename(&aside, &third).unwrap();
            // One copy of a manifest is made anew from the other one.
            let copies = second.with_extension("2");
            let _ = fs::remove_file(copies);
            let refused = Store::open(path, &options(3)).unwrap_err();
            let is_damage = matches!(refused, Error::Damaged { .. } | Error::DamagedLog { .. });
            assert!(is_damage, "{exchanged}: {refused}");
            let is_whole = recover(path, Repair::Check, &|_| {})
                .is_ok_and(|report| report.state != ReportState::Damaged);
            assert!(!is_whole, "{exchanged}");
            recover(path, Repair::Salvage, &|_| {}).unwrap();
            let store = Store::open(path, &options(3)).unwrap();
            for item in store.iter() {
                let (key, value) = item.unwrap();
                assert_eq!(store.get(&key).unwrap(), Some(value));
            }
        }
    }
}

#[test]
fn impossible_numbers_of_partitions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for number in [0, StoreOptions::PARTITIONS_MAX + 1, u32::MAX] {
        let error = Store::open(&path, &options(number)).unwrap_err();
        let told = matches!(
            error,
            Error::InvalidOption {
                option: "partitions",
                ..
            }
        );
        assert!(told && !path.exists(), "{error}");
    }
    let store = Store::open(&path, &options(StoreOptions::PARTITIONS_MAX)).unwrap();
    store.write(batch(1)).unwrap();
    store.close().unwrap();
    let store = Store::open(&path, &crate::options()).unwrap();
    assert_eq!(store.iter().count(), keys().len());
}

/// The numbers of all of them fill a byte.
#[test]
fn as_many_partitions_as_there_can_be_serve_long_reads() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &options(256)).unwrap();
    let keys: Vec<Vec<u8>> = (0..4000u32).map(|key| key.to_be_bytes().to_vec()).collect();
    let put = |value: &[u8]| {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| batch.put(key.clone(), value));
        store.write(batch).unwrap();
    };
    put(b"old");
    let snapshot = store.snapshot();
    put(b"new");
    let values = |value: &[u8]| vec![Some(value.to_vec()); keys.len()];
    assert_eq!(snapshot.multi_get(&keys).unwrap(), values(b"old"));
    assert_eq!(store.multi_get(&keys).unwrap(), values(b"new"));
    let requests = keys.iter().flat_map(|key| {
        let put = Request::Put {
            key: key.clone(),
            value: b"newest".to_vec(),
        };
        [Request::Get { key: key.clone() }, put]
    });
    let answers = store.execute(requests.collect()).unwrap();
    let gets = answers.chunks(2).map(|two| &two[0]);
    assert!(
        gets.clone()
            .all(|get| matches!(get, Response::Value(Some(value)) if value == b"new"))
    );
    let kinds = [RequestKind::Get, RequestKind::Put].repeat(keys.len());
    let twice = keys.iter().flat_map(|key| [key, key]);
    let columns: Columns = twice.collect();
    let values: Columns = kinds.iter().map(|_| b"last").collect();
    let answers = store.execute_columns(&kinds, &columns, &values).unwrap();
    assert!(answers.failures.is_empty());
    assert_eq!(store.get(&keys[7]).unwrap().unwrap(), b"last");
}

/// Refuses each operand, by its own words.
struct Refuses;

impl MergeOperator for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        Err(String::from_utf8_lossy(operand).into_owned())
    }
}

#[test]
fn first_merge_of_a_batch_that_fails_is_told() {
    for partitions in [1, 3, 8] {
        let folder = tempfile::tempdir().unwrap();
        let options = options(partitions).merge_operator(Arc::new(Refuses));
        let store = Store::open(folder.path(), &options).unwrap();
        for first in 0..8 {
            let mut keys = keys();
            keys.rotate_left(first);
            let mut batch = WriteBatch::new();
            for (nth, key) in keys.into_iter().enumerate() {
                batch.merge(key, format!("operand {nth}."));
            }
            let error = store.write(batch).unwrap_err().to_string();
            assert!(error.contains("operand 0."), "{partitions}: {error}");
        }
        assert_eq!(store.iter().count(), 0);
    }
}
