//! Changes that depend on the value before them, by many callers and in batches.

use std::collections::BTreeSet;

use gphash::Error;
use gphash::store::{Request, Response, Store};

use super::append;
use super::disk::{copy, folders};
use super::model::contents;

const THREADS: u64 = 8;

/// Runs `each` on several threads, which it gets the numbers of; gives what they gave.
fn on_threads<T: Send>(each: impl Fn(u64) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = (0..THREADS)
            .map(|nth| scope.spawn(move || each(nth)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

#[test]
fn compare_and_swap_counts_each_step_once() {
    const STEPS: u64 = 300;
    for folder in folders() {
        let store = Store::open(folder.path().join("store"), &crate::partitioned()).unwrap();
        let count = |_| {
            let mut before: Option<Vec<u8>> = None;
            for _ in 0..STEPS {
                loop {
                    let next = before.as_deref().map_or(0, number) + 1;
                    let next = next.to_le_bytes();
                    let swapped = store.compare_and_swap("count", before.as_deref(), Some(&next));
                    match swapped.unwrap() {
                        Ok(()) => break before = Some(next.to_vec()),
                        Err(found) => before = found,
                    }
                }
            }
        };
        on_threads(count);
        let counted = store.get(b"count").unwrap().unwrap();
        assert_eq!(number(&counted), THREADS * STEPS);
    }
}

#[test]
fn put_if_absent_elects_one_winner() {
    const ELECTIONS: u64 = 200;
    for folder in folders() {
        let path = folder.path().join("store");
        let store = Store::open(&path, &crate::partitioned()).unwrap();
        let stand = |thread: u64| -> Vec<u64> {
            let wins = |election: &u64| {
                store
                    .put_if_absent(election.to_be_bytes(), thread.to_le_bytes())
                    .unwrap()
            };
            (0..ELECTIONS).filter(wins).collect()
        };
        let won = on_threads(stand);
        let killed = folder.path().join("killed");
        copy(&path, &killed);
        drop(store);
        // What a crash leaves names the same winners.
        for path in [path, killed] {
            let store = Store::open(path, &crate::partitioned()).unwrap();
            for election in 0..ELECTIONS {
                let winner = store.get(&election.to_be_bytes()).unwrap().unwrap();
                let winners: Vec<u64> = (0..THREADS)
                    .filter(|&thread| won[usize::try_from(thread).unwrap()].contains(&election))
                    .collect();
                assert_eq!(winners, [number(&winner)], "election {election}");
            }
        }
    }
}

#[test]
fn each_value_is_given_back_once() {
    const SWAPS: u64 = 300;
    for folder in folders() {
        let store = Store::open(folder.path().join("store"), &crate::partitioned()).unwrap();
        let swap = |thread: u64| -> Vec<u64> {
            let value = |nth: u64| (thread * SWAPS + nth).to_le_bytes();
            let before = (0..SWAPS).map(|nth| match nth % 3 {
                0 => store.take("key").unwrap(),
                _ => store.swap("key", value(nth)).unwrap(),
            });
            before.flatten().map(|value| number(&value)).collect()
        };
        let mut given: Vec<u64> = on_threads(swap).concat();
        given.extend(store.take("key").unwrap().map(|value| number(&value)));
        given.sort_unstable();
        let all = (0..THREADS * SWAPS).filter(|nth| !(nth % SWAPS).is_multiple_of(3));
        assert_eq!(given, all.collect::<Vec<_>>());
        assert_eq!(store.take("key").unwrap(), None);
    }
}

#[test]
fn items_are_taken_once() {
    const ITEMS: u64 = 500;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    for item in 0..ITEMS {
        store.put(item.to_be_bytes(), item.to_le_bytes()).unwrap();
    }
    let take = |_| -> Vec<u64> {
        let taken = (0..ITEMS).filter_map(|item| store.take(item.to_be_bytes()).unwrap());
        taken.map(|value| number(&value)).collect()
    };
    let taken = on_threads(take).concat();
    assert_eq!(taken.len() as u64, ITEMS);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len() as u64, ITEMS);
    assert!(contents(&store).is_empty());
}

/// Requests and answers that show the value of a key as it is between requests of one batch.
fn sequence() -> Vec<(Request, &'static str)> {
    let key = || b"key".to_vec();
    let some = |value: &str| Some(value.as_bytes().to_vec());
    let if_absent = |value: &str| Request::PutIfAbsent {
        key: key(),
        value: value.into(),
    };
    let swap = |new: Option<&str>| Request::Swap {
        key: key(),
        new: new.and_then(some),
    };
    let compare = |expected: Option<&str>, new: Option<&str>| Request::CompareAndSwap {
        key: key(),
        expected: expected.and_then(some),
        new: new.and_then(some),
    };
    let merge = |operand: &str| Request::Merge {
        key: key(),
        operand: operand.into(),
    };
    let get = || Request::Get { key: key() };
    vec![
        (if_absent("no"), "present"),
        (get(), "old"),
        (compare(Some("old"), Some("1")), "done"),
        (compare(Some("old"), Some("2")), "not 1"),
        (merge("+"), "done"),
        (swap(Some("3")), "1+"),
        (merge("fail"), "failed"),
        (compare(Some("3"), None), "done"),
        (compare(None, None), "done"),
        (get(), "nothing"),
        (if_absent("4"), "done"),
        (if_absent("5"), "present"),
        (merge("+"), "done"),
        (swap(None), "4+"),
        (swap(None), "nothing"),
        (compare(Some(""), Some("6")), "not nothing"),
        (swap(Some("")), "nothing"),
        (compare(Some(""), Some("end")), "done"),
        (get(), "end"),
    ]
}

fn shown(response: &Response) -> String {
    let value = |value: &Option<Vec<u8>>| match value {
        Some(value) => String::from_utf8_lossy(value).into_owned(),
        None => "nothing".into(),
    };
    match response {
        Response::Value(found) => value(found),
        Response::Done => "done".into(),
        Response::Failed(_) => "failed".into(),
        Response::Present => "present".into(),
        Response::Mismatch(found) => format!("not {}", value(found)),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn requests_of_a_batch_see_those_before_them() {
    for folder in folders() {
        let options = crate::partitioned().merge_operator(append());
        let path = folder.path().join("store");
        // Alone, and where several threads share the batch.
        for others in [0, 3000] {
            let store = Store::open(&path, &options).unwrap();
            store.put("key", "old").unwrap();
            let (mut requests, answers): (Vec<_>, Vec<_>) = sequence().into_iter().unzip();
            requests.extend((0..others).map(|nth: u32| Request::Swap {
                key: nth.to_be_bytes().to_vec(),
                new: Some(b"more".to_vec()),
            }));
            let sequence = store.stats().sequence;
            let len = requests.len();
            let found = store.execute(requests).unwrap();
            let found: Vec<String> = found.iter().map(shown).collect();
            assert_eq!(found[..answers.len()], answers);
            assert!(found[answers.len()..].iter().all(|one| one == "nothing"));
            // Each request has a number, whether it changed anything or not.
            assert_eq!(store.stats().sequence, sequence + len as u64);
            drop(store);
            let store = Store::open(&path, &options).unwrap();
            assert_eq!(store.get(b"key").unwrap().unwrap(), b"end");
            assert_eq!(store.range(..).count(), 1 + others as usize);
        }
    }
}

#[test]
fn conditions_that_are_not_met_log_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    store.put("key", "value").unwrap();
    let before = store.stats();
    assert!(!store.put_if_absent("key", "other").unwrap());
    let swapped = store.compare_and_swap("key", None, Some(b"other"));
    assert_eq!(swapped.unwrap(), Err(Some(b"value".to_vec())));
    let after = store.stats();
    assert_eq!(
        (after.log_bytes, after.sequence),
        (before.log_bytes, before.sequence)
    );
}

#[test]
fn what_is_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    let long = vec![7; 65537];
    let huge = vec![0; (1 << 30) + 1];
    let refused = [
        store.put_if_absent(long.clone(), "").err(),
        store.compare_and_swap(long.clone(), None, None).err(),
        store.swap(long.clone(), "").err(),
        store.take(long).err(),
        store.compare_and_swap("key", Some(&huge), None).err(),
        store.compare_and_swap("key", None, Some(&huge)).err(),
        store.put_if_absent("key", huge).err(),
    ];
    for error in refused {
        assert!(matches!(error, Some(Error::TooLong { .. })), "{error:?}");
    }
    assert_eq!(store.stats().sequence, 0);
}
