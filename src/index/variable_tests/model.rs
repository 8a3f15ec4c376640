//! Tables of variable length answer as a `BTreeMap` does.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Model, bytes, check, dir, open, options, rng, try_open};
use crate::index::bytes::BytesIndex;
use crate::layout::size_class::{MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE, class_size, value_offset};
use crate::table::item::Mutation;
use crate::width::{low_byte, to_usize};
use crate::{Error, Index};

/// Lengths around those where a record changes its form or its class.
fn any_value(key: &[u8], rng: &mut SmallRng) -> Vec<u8> {
    let border = |class| to_usize(class_size(class) - value_offset(0));
    let len = match rng.random_range(0..12) {
        0..4 => *[0, 1, 7, 8, 9, 16, 100].choose(rng).unwrap(),
        4..9 => border(rng.random_range(0..28)) + rng.random_range(0..3) - 1,
        9 => border(rng.random_range(28..44)).saturating_sub(key.len() & !7),
        _ => rng.random_range(0..4000),
    };
    bytes(len, rng)
}

/// A key that is asked for again and again, of any of some lengths.
fn any_key(count: u64, rng: &mut SmallRng) -> Vec<u8> {
    let number = rng.random_range(0..count);
    let len = [0, 1, 7, 8, 9, 16, 16, 17, 31, 240, 241, 3000][(number % 12) as usize];
    let mut of_number = SmallRng::seed_from_u64(number);
    bytes(len, &mut of_number)
}

/// Looks up all keys of a batch, together and one by one.
fn lookup(records: &BytesIndex, model: &Model, keys: &[Vec<u8>]) {
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found = vec![None; keys.len()];
    let mut last = None;
    records
        .get_many(&slices, &[], |nth, sequence, value| {
            assert!(last < Some(nth), "not in order");
            last = Some(nth);
            found[nth] = Some((sequence, value.to_vec()));
        })
        .unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_ref(), model.get(key), "key {key:x?}");
        let alone = records.get(key, |sequence, value| (sequence, value));
        assert_eq!(alone.unwrap(), found);
    }
}

/// Applies random changes of distinct keys to both.
fn change(records: &BytesIndex, model: &mut Model, count: u64, sequence: u64, rng: &mut SmallRng) {
    let len = rng.random_range(1..60);
    let batch: BTreeMap<Vec<u8>, Option<Vec<u8>>> = (0..len)
        .map(|_| {
            let key = any_key(count, rng);
            let value = rng.random_ratio(2, 3).then(|| any_value(&key, rng));
            (key, value)
        })
        .collect();
    let changes: Vec<Mutation> = batch
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Mutation::Put {
                key,
                value,
                sequence,
            },
            None => Mutation::Delete { key },
        })
        .collect();
    let before = records.apply(&changes).unwrap();
    for (nth, (key, value)) in batch.into_iter().enumerate() {
        let held = match value {
            Some(value) => model.insert(key, (sequence, value)),
            None => model.remove(&key),
        };
        assert_eq!(before.contains(nth), held.is_some());
    }
}

#[test]
fn random_batches_match_a_map() {
    let mut rng = rng();
    let dir = dir();
    let path = dir.path().join("records");
    let mut records = open(&path);
    let mut model = Model::new();
    for round in 0..600 {
        let count = *[20, 300, 2000].choose(&mut rng).unwrap();
        change(&records, &mut model, count, round, &mut rng);
        let keys: Vec<Vec<u8>> = (0..rng.random_range(1..60))
            .map(|_| any_key(count, &mut rng))
            .collect();
        lookup(&records, &model, &keys);
        if round % 50 == 0 {
            check(&records, &model);
        }
        if round % 60 == 7 {
            records.sync().unwrap();
        }
        if round % 100 == 99 {
            records.close().unwrap();
            let (opened, recovery) = try_open(&path).unwrap();
            assert!(recovery.clean);
            assert_eq!(recovery.items, model.len() as u64);
            records = opened;
            check(&records, &model);
        }
    }
    let file_len = records.stats().file_len;
    records.close().unwrap();
    let report = crate::recover(&path, crate::Repair::Salvage, &|_| {}).unwrap();
    assert_eq!(report.state, crate::ReportState::Clean);
    assert_eq!(report.recovery.items, model.len() as u64);
    assert_eq!(report.recovery.damage, [""; 0]);
    let records = open(&path);
    check(&records, &model);
    // Records are used again: what is free suffices to store everything once more.
    for (key, (_, value)) in &model {
        let put = Mutation::Put {
            key,
            value,
            sequence: 1,
        };
        records.apply(&[put]).unwrap();
    }
    assert!(records.stats().file_len <= file_len * 2);
}

#[test]
fn keys_and_values_are_stored_up_to_the_longest() {
    let mut rng = rng();
    let dir = dir();
    let path = dir.path().join("records");
    let records = open(&path);
    let mut model = Model::new();
    for (key, value) in [(65_536, 0), (65_535, 5 << 20), (0, 3_000_001), (0, 0)] {
        let (key, value) = (bytes(key, &mut rng), bytes(value, &mut rng));
        let put = Mutation::Put {
            key: &key,
            value: &value,
            sequence: 3,
        };
        let before = records.apply(&[put]).unwrap();
        let held = model.insert(key, (3, value));
        assert_eq!(before.contains(0), held.is_some());
        check(&records, &model);
    }
    let put = |key, value| Mutation::Put {
        key,
        value,
        sequence: 9,
    };
    let long_key = vec![0; to_usize(MAX_VARIABLE_KEY) + 1];
    let long_value = vec![0; to_usize(MAX_VARIABLE_VALUE) + 1];
    for refused in [
        put(&long_key, b"value"),
        put(b"key", &long_value),
        Mutation::Delete { key: &long_key },
    ] {
        let error = records.apply(&[put(b"other", b"value"), refused]);
        assert!(matches!(error, Err(Error::Limit { .. })));
    }
    assert_eq!(records.get(&long_key, |_, _| ()).unwrap(), None);
    check(&records, &model);
    records.close().unwrap();
    check(&open(&path), &model);
}

#[test]
fn growth_of_levels_and_classes_keeps_every_item() {
    let dir = dir();
    let path = dir.path().join("records");
    let records = open(&path);
    let value = |n: u64| vec![low_byte(n); (n * 7 % 500) as usize];
    for first in (0..60_000u64).step_by(30_000) {
        let keys: Vec<[u8; 8]> = (first..first + 30_000).map(u64::to_be_bytes).collect();
        let values: Vec<Vec<u8>> = (first..first + 30_000).map(value).collect();
        let changes: Vec<Mutation> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| Mutation::Put {
                key,
                value,
                sequence: first,
            })
            .collect();
        assert_eq!(records.apply(&changes).unwrap().count_ones(..), 0);
    }
    assert!(records.stats().resizes > 5);
    let all = |records: &BytesIndex| {
        assert_eq!(records.len(), 60_000);
        for n in 0..60_000u64 {
            let found = records.get(&n.to_be_bytes(), |_, found| found == value(n));
            assert_eq!(found.unwrap(), Some(true), "key {n}");
        }
    };
    all(&records);
    records.close().unwrap();
    let records = open(&path);
    all(&records);
    let keys: Vec<[u8; 8]> = (0..60_000u64).map(u64::to_be_bytes).collect();
    let changes: Vec<Mutation> = keys.iter().map(|key| Mutation::Delete { key }).collect();
    assert_eq!(records.apply(&changes).unwrap().count_ones(..), 60_000);
    check(&records, &Model::new());
}

/// Keys of 32 bytes that all have one hash under `seed`: where the first words equal the secret that
/// XXH3 adds the seed to, the product with the next ones is zero whatever they are.
fn of_one_hash(seed: u64) -> impl Iterator<Item = Vec<u8>> {
    /// First word of XXH3's secret.
    const SECRET: u64 = 0xBE4B_A423_396C_FEB8;

    let word = SECRET.wrapping_add(seed);
    (1u64..).map(move |n| bytemuck::cast_slice(&[word, n, 7, 7]).to_vec())
}

#[test]
fn keys_of_one_hash_are_kept_apart() {
    let dir = dir();
    let path = dir.path().join("records");
    let records = open(&path);
    let seed = records.hash_seed();
    let keys: Vec<Vec<u8>> = of_one_hash(seed).take(12).collect();
    let hash = xxh3_64_with_seed(&keys[0], seed);
    assert!(keys.iter().all(|key| xxh3_64_with_seed(key, seed) == hash));
    let mut model = Model::new();
    let mut rng = rng();
    for round in 0..300 {
        let key = &keys[rng.random_range(0..keys.len())];
        let value = bytes(rng.random_range(0..200), &mut rng);
        let put = Mutation::Put {
            key,
            value: &value,
            sequence: round,
        };
        let change = if rng.random_ratio(2, 3) {
            put
        } else {
            Mutation::Delete { key }
        };
        let before = records.apply(&[change]).unwrap();
        let held = match change {
            Mutation::Put { .. } => model.insert(key.clone(), (round, value)),
            Mutation::Delete { .. } => model.remove(key),
        };
        assert_eq!(before.contains(0), held.is_some());
        lookup(&records, &model, &keys);
    }
    check(&records, &model);
    records.close().unwrap();
    check(&open(&path), &model);
}

#[test]
fn threads_at_the_same_keys_leave_whole_items() {
    let dir = dir();
    let records = open(&dir.path().join("records"));
    let seed: u64 = rng().random();
    // Every word of a value says whose it is.
    let value = |key: &[u8], n: u64| {
        let word = xxh3_64_with_seed(key, n).to_le_bytes();
        word.repeat((n % 40) as usize)
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let records = &records;
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed ^ thread);
                for round in 0..3000 {
                    let key = any_key(40 + round / 4, &mut rng);
                    let n: u64 = rng.random();
                    match rng.random_range(0..4) {
                        0 => drop(records.apply(&[Mutation::Delete { key: &key }]).unwrap()),
                        1 | 2 => {
                            let value = value(&key, n);
                            let put = Mutation::Put {
                                key: &key,
                                value: &value,
                                sequence: n,
                            };
                            records.apply(&[put]).unwrap();
                        }
                        _ => {
                            let whole = records.get(&key, |n, found| found == value(&key, n));
                            assert_ne!(whole.unwrap(), Some(false));
                        }
                    }
                    if round % 1000 == 999 {
                        records.sync().unwrap();
                    }
                }
            });
        }
    });
    let mut items = 0;
    records.for_each_of(
        |_| true,
        |item| {
            let (key, n, found) = item.unwrap();
            assert!(found == value(key, n));
            items += 1;
        },
    );
    assert_eq!(records.len(), items);
}

#[test]
fn request_that_was_executed_is_not_written_again() {
    let dir = dir();
    let records = open(&dir.path().join("index"));
    let touches = |value: &[u8], sequence| {
        let before = records.stats().pm_touches;
        let put = Mutation::Put {
            key: b"key",
            value,
            sequence,
        };
        let was_there = records.apply(&[put]).unwrap().contains(0);
        let read = |stored, bytes: Vec<u8>| assert_eq!((stored, &bytes[..]), (sequence, value));
        records.get(b"key", read).unwrap().unwrap();
        (was_there, records.stats().pm_touches - before)
    };
    assert!(!touches(b"value", 7).0);
    let (was_there, unwritten) = touches(b"value", 7);
    assert!(was_there);
    for (value, sequence) in [(b"value", 8), (b"other", 8), (b"value", 7)] {
        let (was_there, written) = touches(value, sequence);
        assert!(was_there && written > unwritten, "{written} of {unwritten}");
    }
}

#[test]
fn file_of_the_other_kind_is_refused() {
    let dir = dir();
    let (fixed, variable) = (dir.path().join("fixed"), dir.path().join("variable"));
    Index::<u64, u64>::create(&fixed, &options()).unwrap();
    open(&variable).close().unwrap();
    let as_records = try_open(&fixed).map(|_| ());
    let as_index = Index::<u64, u64>::open(&variable, &options()).map(|_| ());
    for refused in [as_records, as_index] {
        assert!(
            matches!(refused, Err(Error::WrongKind { .. })),
            "{refused:?}"
        );
    }
}
