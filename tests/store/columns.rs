//! Columns against requests, and against a sorted map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gphash::store::{
    ColumnAnswers, Columns, Durability, Offsets, Request, RequestKind, Response, Store,
    StoreOptions, ValueColumns, WriteBatch,
};
use gphash::{Domain, Error};
use gphash_test_support::Ends;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::disk::copy;
use super::model::{Expected, Model, any_key, any_value, contents, expect};
use super::{append, lacks_operator, seed};

fn options() -> StoreOptions {
    crate::partitioned()
        .domain(Domain::Checkpointed)
        .durability(Durability::Always)
        .merge_operator(append())
}

/// A column of strings with offsets of either width, which begins behind some bytes and ends before others.
fn column(rng: &mut SmallRng, strings: &[Vec<u8>]) -> Columns {
    let mut bytes = vec![b'-'; rng.random_range(0..3)];
    let end = |bytes: &[u8]| i64::try_from(bytes.len()).unwrap();
    let mut offsets = vec![end(&bytes)];
    for string in strings {
        bytes.extend(string);
        offsets.push(end(&bytes));
    }
    bytes.extend(b"--");
    let columns = match rng.random_bool(0.5) {
        true => Columns::new(offsets, bytes),
        false => {
            let narrow = offsets.into_iter().map(|offset| offset.try_into().unwrap());
            Columns::new(narrow.collect::<Vec<i32>>(), bytes)
        }
    };
    columns.unwrap()
}

/// A request, and what it is in columns.
fn any_request(rng: &mut SmallRng) -> (Request, (RequestKind, Vec<u8>, Vec<u8>)) {
    let key = any_key(rng);
    let kind = RequestKind::try_from(rng.random_range(0..4)).unwrap();
    let value = match (kind, rng.random_range(0..8)) {
        (RequestKind::Put, _) => any_value(rng),
        (RequestKind::Merge, 0) => b"fail".to_vec(),
        (RequestKind::Merge, 1) => b"panic".to_vec(),
        (RequestKind::Merge, len) => vec![b'x'; len - 2],
        // It means nothing.
        (_, len) => vec![b'?'; len],
    };
    let in_columns = (kind, key.clone(), value.clone());
    let request = match kind {
        RequestKind::Get => Request::Get { key },
        RequestKind::Put => Request::Put { key, value },
        RequestKind::Delete => Request::Delete { key },
        _ => Request::Merge {
            key,
            operand: value,
        },
    };
    (request, in_columns)
}

fn execute(
    store: &Store,
    rng: &mut SmallRng,
    requests: Vec<(RequestKind, Vec<u8>, Vec<u8>)>,
) -> ColumnAnswers {
    let mut kinds = Vec::new();
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (kind, key, value) in requests {
        kinds.push(kind);
        keys.push(key);
        values.push(value);
    }
    let (keys, values) = (column(rng, &keys), column(rng, &values));
    store.execute_columns(&kinds, &keys, &values).unwrap()
}

/// Whether answers in columns say what those to requests say.
fn assert_same(columns: &ColumnAnswers, responses: &[Response]) {
    assert_eq!(columns.values.len(), responses.len());
    let mut failures = columns.failures.iter();
    for (nth, response) in responses.iter().enumerate() {
        let value = columns.values.get(nth);
        match response {
            Response::Value(expected) => assert_eq!(value, expected.as_deref(), "{nth}"),
            Response::Failed(expected) => {
                assert_eq!(value, None);
                let (found, error) = failures.next().expect("it has failed");
                assert_eq!((*found, error.to_string()), (nth, expected.to_string()));
            }
            _ => assert_eq!(value, None),
        }
    }
    assert!(failures.next().is_none());
}

/// Random batches, by requests in one store and by columns in another.
fn columns_are_as_requests(mut in_requests: StoreOptions, mut in_columns: StoreOptions) {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir().unwrap();
    in_requests = in_requests.merge_operator(append());
    in_columns = in_columns.merge_operator(append());
    let by_requests = Store::open(dir.path().join("requests"), &in_requests).unwrap();
    let mut by_columns = Store::open(dir.path().join("columns"), &in_columns).unwrap();
    let mut model = Model::new();
    for round in 0..24 {
        let len = match round % 6 {
            0 => rng.random_range(0..3),
            // On several threads, in several parts.
            5 => rng.random_range(2000..6000),
            _ => rng.random_range(3..500),
        };
        let (requests, rows): (Vec<_>, Vec<_>) = (0..len).map(|_| any_request(&mut rng)).unzip();
        let expected: Vec<Expected> = requests
            .iter()
            .map(|request| expect(&mut model, request))
            .collect();
        let responses = by_requests.execute(requests).unwrap();
        let answers = execute(&by_columns, &mut rng, rows);
        assert_same(&answers, &responses);
        for (value, expected) in answers.values.iter().zip(&expected) {
            if let Expected::Value(expected) = expected {
                assert_eq!(value, expected.as_deref());
            }
        }
        if round % 8 == 7 {
            by_columns.close().unwrap();
            by_columns = Store::open(dir.path().join("columns"), &in_columns).unwrap();
        }
        let keys: Vec<Vec<u8>> = (0..rng.random_range(0..600))
            .map(|_| any_key(&mut rng))
            .collect();
        let values = by_columns.get_columns(&column(&mut rng, &keys)).unwrap();
        let expected = keys.iter().map(|key| model.get(key).map(Vec::as_slice));
        assert!(values.iter().eq(expected));
        match rng.random_range(0..3) {
            0 => {
                let values: Vec<Vec<u8>> = keys.iter().map(|_| any_value(&mut rng)).collect();
                let (key_column, value_column) =
                    (column(&mut rng, &keys), column(&mut rng, &values));
                for store in [&by_requests, &by_columns] {
                    store.put_columns(&key_column, &value_column).unwrap();
                }
                model.extend(keys.into_iter().zip(values));
            }
            1 => {
                let keys = &keys[..keys.len() / 10];
                for store in [&by_requests, &by_columns] {
                    store.delete_columns(&column(&mut rng, keys)).unwrap();
                }
                model.retain(|key, _| !keys.contains(key));
            }
            _ => {}
        }
        assert_eq!(contents(&by_columns), model);
    }
    assert_eq!(contents(&by_requests), model);
}

#[test]
fn columns_execute_as_requests_do() {
    columns_are_as_requests(options(), options());
}

#[test]
fn columns_execute_as_requests_do_with_a_memory_budget() {
    let tight = || {
        crate::partitioned()
            .domain(Domain::Checkpointed)
            .memory_budget(1 << 20)
    };
    columns_are_as_requests(crate::partitioned(), tight());
}

#[test]
fn columns_of_many_items_leave_memory_and_are_read_below() {
    const ITEMS: u32 = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let budget = crate::partitioned().memory_budget(2 << 20);
    let store = Store::open(dir.path(), &budget).unwrap();
    let keys: Columns = (0..ITEMS).map(u32::to_be_bytes).collect();
    let values: Columns = (0..ITEMS)
        .map(|nth| vec![nth.to_le_bytes()[0]; 200 + nth as usize % 100])
        .collect();
    store.put_columns(&keys, &values).unwrap();
    while store.stats().items_evicted < u64::from(ITEMS) / 2 {
        thread::yield_now();
    }
    let third: Columns = (0..ITEMS).step_by(3).map(u32::to_be_bytes).collect();
    store.delete_columns(&third).unwrap(); // by tombstones
    let found = store.get_columns(&keys).unwrap();
    assert!(store.stats().read_below > 0);
    for (nth, (found, value)) in found.iter().zip(values.iter()).enumerate() {
        assert_eq!(found, (nth % 3 != 0).then_some(value), "{nth}");
    }
    // The same beside changes, of which the gets see those before them.
    let kinds: Vec<RequestKind> = (0..ITEMS)
        .map(|nth| match nth % 2 {
            0 => RequestKind::Put,
            _ => RequestKind::Get,
        })
        .collect();
    let pairs: Columns = (0..ITEMS)
        .map(|nth| if nth % 4 < 2 { nth & !1 } else { nth })
        .map(u32::to_be_bytes)
        .collect();
    let answers = store.execute_columns(&kinds, &pairs, &values).unwrap();
    for nth in 0..ITEMS as usize {
        let expected = match nth % 4 {
            1 => values.get(nth - 1),
            3 if !nth.is_multiple_of(3) => values.get(nth),
            _ => None,
        };
        assert_eq!(answers.values.get(nth), expected, "{nth}");
    }
}

/// The room that is made for a column's values is guessed by the first of them.
#[test]
fn columns_whose_values_become_longer_are_read() {
    const ITEMS: u32 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &crate::partitioned()).unwrap();
    let value = |nth: u32| vec![nth.to_le_bytes()[0]; (nth / 400) as usize];
    let keys: Columns = (0..ITEMS).map(u32::to_be_bytes).collect();
    let values: Columns = (0..ITEMS).map(value).collect();
    store.put_columns(&keys, &values).unwrap();
    let mut found = ValueColumns::default();
    // Both directions, some keys twice or absent, in buffers of shorter and of longer ones.
    let orders: [Vec<u32>; 4] = [
        (0..ITEMS).collect(),
        (0..ITEMS).rev().collect(),
        (ITEMS / 2..2 * ITEMS).collect(),
        (0..ITEMS).map(|nth| nth / 2 + ITEMS / 2).collect(),
    ];
    for order in &orders {
        let keys: Columns = order.iter().copied().map(u32::to_be_bytes).collect();
        found = store.get_columns_into(&keys, found).unwrap();
        assert_eq!(found.len(), order.len());
        for (&nth, found) in order.iter().zip(found.iter()) {
            let expected = (nth < ITEMS).then(|| value(nth));
            assert_eq!(found, expected.as_deref(), "{nth}");
        }
        let keys: Vec<[u8; 4]> = order.iter().copied().map(u32::to_be_bytes).collect();
        let one_by_one = store.multi_get(&keys).unwrap();
        assert!(found.iter().eq(one_by_one.iter().map(Option::as_deref)));
    }
}

#[test]
fn columns_with_equal_keys_keep_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let keys: Columns = ["a", "b", "a", "", "a", ""].into_iter().collect();
    let values: Columns = ["1", "2", "3", "4", "", "5"].into_iter().collect();
    store.put_columns(&keys, &values).unwrap();
    let found = store.get_columns(&keys).unwrap();
    let (a, b, none) = (Some(&b""[..]), Some(&b"2"[..]), Some(&b"5"[..]));
    assert!(found.iter().eq([a, b, a, none, a, none]));
    assert_eq!(found.null_count(), 0);
    store
        .delete_columns(&["a", "a"].into_iter().collect())
        .unwrap();
    let found = store.get_columns(&keys).unwrap();
    assert!(found.iter().eq([None, b, None, none, None, none]));
    assert_eq!(found.null_count(), 3);
    assert_eq!(found.validity(), [0b101010]);
}

#[test]
fn columns_without_strings_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let none = Columns::default();
    store.put_columns(&none, &none).unwrap();
    store.delete_columns(&none).unwrap();
    assert!(store.get_columns(&none).unwrap().is_empty());
    let answers = store.execute_columns(&[], &none, &none).unwrap();
    assert!(answers.values.is_empty() && answers.failures.is_empty());
    assert_eq!(store.stats().sequence, 0);
}

#[test]
fn columns_are_given_back_by_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    const ITEMS: u32 = 30_000;
    let mut keys: Columns = (0..ITEMS).map(u32::to_be_bytes).collect();
    let mut values = keys.clone().iter().collect::<Columns>();
    let kinds = vec![RequestKind::Put; ITEMS as usize];
    for verb in 0..4 {
        let before = (keys.bytes().as_ptr(), values.bytes().as_ptr());
        match verb {
            0 => store.put_columns(&keys, &values).unwrap(),
            1 => assert_eq!(*store.get_columns(&keys).unwrap().values(), values),
            2 => drop(store.execute_columns(&kinds, &keys, &values).unwrap()),
            _ => store.delete_columns(&keys).unwrap(),
        }
        let again = |columns: Columns| {
            let (offsets, bytes): (Offsets, Vec<u8>) = columns.into_parts();
            Columns::new(offsets, bytes).unwrap()
        };
        (keys, values) = (again(keys), again(values));
        let after = (keys.bytes().as_ptr(), values.bytes().as_ptr());
        assert_eq!(after, before, "verb {verb} has kept a buffer");
    }
}

#[test]
fn columns_that_cannot_be_do_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &crate::partitioned()).unwrap();
    store.put("key", "value").unwrap();
    let before = store.stats().sequence;
    let keys: Columns = ["key", "other"].into_iter().collect();
    let values: Columns = ["1"].into_iter().collect();
    let kinds = [RequestKind::Put; 2];
    let is_length = |error| matches!(error, Error::LengthMismatch { keys: 2, values: 1 });
    assert!(is_length(store.put_columns(&keys, &values).unwrap_err()));
    assert!(is_length(
        store.execute_columns(&kinds, &keys, &values).unwrap_err()
    ));
    let error = store
        .execute_columns(&kinds[1..], &keys, &keys)
        .unwrap_err();
    assert!(matches!(error, Error::InvalidColumns { .. }), "{error:?}");

    let long: Columns = [vec![b'k'; 3], vec![0; 65537]].into_iter().collect();
    let is_long = |error| {
        let found = 65537;
        matches!(error, Error::TooLong { what: "key", found: len, .. } if len == found)
    };
    assert!(is_long(store.get_columns(&long).unwrap_err()));
    assert!(is_long(store.put_columns(&long, &keys).unwrap_err()));
    assert!(is_long(store.delete_columns(&long).unwrap_err()));
    assert!(is_long(
        store.execute_columns(&kinds, &long, &keys).unwrap_err()
    ));

    // A merge wants an operator.
    let kinds = [RequestKind::Put, RequestKind::Merge];
    let error = store.execute_columns(&kinds, &keys, &keys).unwrap_err();
    assert!(lacks_operator(&error), "{error:?}");
    assert_eq!(store.stats().sequence, before);
    assert_eq!(
        contents(&store),
        Model::from([(b"key".into(), b"value".into())])
    );
}

#[test]
fn columns_survive_a_crash_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("live");
    let store = Store::open(&path, &options()).unwrap();
    let keys: Columns = (0..5000u32).map(u32::to_be_bytes).collect();
    let values: Columns = (0..5000).map(|nth| vec![b'v'; nth % 300]).collect();
    store.put_columns(&keys, &values).unwrap();
    let gone: Columns = (0..100u32).map(u32::to_be_bytes).collect();
    store.delete_columns(&gone).unwrap();
    let left = dir.path().join("left");
    copy(&path, &left);
    let left = Store::open(&left, &options()).unwrap();
    assert!(left.stats().replayed_records >= 2);
    let found = left.get_columns(&keys).unwrap();
    let expected = values.iter().enumerate();
    assert!(
        found
            .iter()
            .eq(expected.map(|(nth, value)| (nth >= 100).then_some(value)))
    );
}

#[test]
fn columns_are_read_at_one_moment() {
    const ITEMS: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let options = crate::partitioned().durability(Durability::None);
    let store = Store::open(dir.path(), &options).unwrap();
    let keys: Columns = (0..ITEMS).map(u32::to_be_bytes).collect();
    let write = |round: u8| {
        let values: Columns = (0..ITEMS).map(|_| [round]).collect();
        store.put_columns(&keys, &values).unwrap();
    };
    write(0);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (1..20).for_each(write);
            has_ended.store(true, Ordering::Release);
        });
        let mut newest = 0;
        while !has_ended.load(Ordering::Acquire) {
            let values = store.get_columns(&keys).unwrap();
            let first = values.get(0).unwrap()[0];
            assert!(values.iter().all(|value| value == Some(&[first][..])));
            assert!(first >= newest);
            newest = first;
        }
    });
}

/// Two keys always have the same value, or none. What a long column has of others is not older than what the one before had.
#[test]
fn columns_are_read_at_one_moment_beside_short_changes() {
    const PAIRS: u32 = 10_000;
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let options = crate::partitioned().durability(Durability::None);
    let store = Store::open(dir.path(), &options).unwrap();
    let keys: Columns = (0..2 * PAIRS).map(u32::to_be_bytes).collect();
    let write = |pair: u32, value: Option<Vec<u8>>| {
        let mut batch = WriteBatch::new();
        for key in [2 * pair, 2 * pair + 1].map(u32::to_be_bytes) {
            match &value {
                Some(value) => batch.put(key, value.clone()),
                None => batch.delete(key),
            };
        }
        store.write(batch).unwrap();
    };
    let first: Columns = keys.iter().map(|_| [0; 4]).collect();
    store.put_columns(&keys, &first).unwrap();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut version = 0u32;
            while !has_ended.load(Ordering::Acquire) {
                version += 1;
                // Some that were deleted, or are again, have no version.
                let pair = rng.random_range(0..PAIRS);
                let value = match pair % 3 {
                    0 if rng.random() => None,
                    _ => {
                        let mut value = version.to_be_bytes().to_vec();
                        value.resize(4 + (version % 90) as usize, 7);
                        Some(value)
                    }
                };
                write(pair, value);
                // Of which no reader sees the one without the other.
                if version.is_multiple_of(64) {
                    store
                        .put(0u32.to_be_bytes(), version.to_be_bytes())
                        .unwrap();
                    store
                        .put(1u32.to_be_bytes(), version.to_be_bytes())
                        .unwrap();
                }
            }
        });
        let _ends = Ends(&has_ended);
        let mut versions = vec![0; 2 * PAIRS as usize];
        let mut values = ValueColumns::default();
        for round in 0..60 {
            let snapshot = store.snapshot();
            values = match round % 3 {
                0 => snapshot.get_columns(&keys).unwrap(),
                _ => store.get_columns_into(&keys, values).unwrap(),
            };
            for pair in 1..PAIRS as usize {
                let both = [2 * pair, 2 * pair + 1];
                assert_eq!(values.get(both[0]), values.get(both[1]), "pair {pair}");
            }
            for (value, last) in values.iter().zip(&mut versions) {
                let Some(value) = value else { continue };
                let version = u32::from_be_bytes(value[..4].try_into().unwrap());
                assert!(version >= *last, "{version} after {last}");
                *last = version;
            }
            let again = snapshot.get_columns(&keys).unwrap();
            assert_eq!(again, snapshot.get_columns(&keys).unwrap());
        }
    });
}

/// Readers in a pool of the caller's hold a lock of his meanwhile. A thread that waited for others of the pool would
/// take the next of them over, which wants that lock.
#[test]
fn columns_are_read_beside_locks_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    let keys: Columns = (0..2000u32).map(|key| key.to_le_bytes()).collect();
    store.put_columns(&keys, &keys).unwrap();
    let lock = std::sync::Mutex::new(ValueColumns::default());
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(4)
        .build()
        .unwrap();
    pool.install(|| {
        (0..64).into_par_iter().for_each(|_| {
            let mut values = lock.lock().unwrap();
            *values = store
                .get_columns_into(&keys, std::mem::take(&mut values))
                .unwrap();
            assert!(values.iter().eq(keys.iter().map(Some)));
            let requests = (0..9000u32).map(|key| Request::Delete {
                key: (key + 3000).to_le_bytes().into(),
            });
            store.execute_async(requests.collect(), |_| {});
        });
    });
}
