//! Tables that start tiny and grow many times, and how full a table gets before it grows.

use std::time::{Duration, Instant};

use gphash::{Engine, Error, Index, Options};

use crate::{Checked, folder, options};

#[test]
fn growth_of_a_tiny_table_loses_nothing() {
    let folder = folder();
    let path = folder.path().join("f");
    let options = options().capacity(1);
    let mut checked = Checked::new(Index::<u64, u64>::create(&path, &options).unwrap());
    let keys: Vec<u64> = (0..30_000u64)
        .map(|n| n.wrapping_mul(0xD129_0D3B_3B6A_3C4B))
        .collect();
    for chunk in keys.chunks(700) {
        checked.insert(chunk, chunk);
        checked.get(chunk, 1);
    }
    assert!(
        checked.index.stats().top_level >= 11,
        "{:?}",
        checked.index.stats()
    );
    checked.check();
    let Checked { index, model } = checked;
    index.close().unwrap();
    Checked {
        index: Index::<u64, u64>::open(&path, &options).unwrap(),
        model,
    }
    .check();
}

#[test]
fn reserve_preallocates_room() {
    let folder = folder();
    let index =
        Index::<u64, u64>::create(folder.path().join("f"), &options().capacity(10)).unwrap();
    index.insert(&[1, 2, 3], &[1, 2, 3]).unwrap();
    index.reserve(50_000).unwrap();
    let (len, top) = (index.stats().file_len, index.stats().top_level);
    let keys: Vec<u64> = (100..50_100).collect();
    index.insert(&keys, &keys).unwrap();
    assert_eq!(
        (index.stats().file_len, index.stats().top_level),
        (len, top)
    );
    assert_eq!(index.get_one(&2).unwrap(), Some(2));
}

#[test]
fn replaced_records_are_used_again_within_a_batch() {
    const CHANGES: usize = 20_000;
    // What threads have replaced waits until all of them have let go of it.
    const MOST: u64 = 40 << 20;
    let folder = folder();
    let options = Options::new().capacity(10).engine(Engine::Cpu).threads(2);
    for batch in [8192, CHANGES] {
        let keys: Vec<u64> = (0..CHANGES as u64).map(|n| n % 10).collect();
        let values = vec![[7; 4096]; batch];
        // A thread that loses its core meanwhile lets go of nothing. That does not happen each time.
        let (started, mut lens) = (Instant::now(), Vec::new());
        while lens.last().is_none_or(|len| *len >= MOST) {
            let is_patient = started.elapsed() < Duration::from_secs(300);
            assert!(is_patient, "{lens:?} bytes after batches of {batch}");
            let path = folder.path().join(format!("{batch} {}", lens.len()));
            let index = Index::<u64, [u8; 4096]>::create(&path, &options).unwrap();
            for keys in keys.chunks(batch) {
                index.upsert(keys, &values[..keys.len()]).unwrap();
            }
            lens.push(index.stats().file_len);
            drop(index);
            std::fs::remove_file(path).unwrap();
            println!("batches of {batch}: {lens:?} bytes");
        }
    }
}

#[test]
fn reserve_without_room_changes_nothing() {
    let folder = folder();
    let options = options().capacity(10);
    let index = Index::<u64, [u8; 1 << 16]>::create(folder.path().join("f"), &options).unwrap();
    index.insert_one(&1, &[1; 1 << 16]).unwrap();
    let before = index.stats();
    // No file has room for so many values.
    let refused = index.reserve(1 << 41);
    assert!(matches!(refused, Err(Error::Limit { .. })), "{refused:?}");
    let after = index.stats();
    assert_eq!(
        (after.file_len, after.top_level),
        (before.file_len, before.top_level)
    );
    assert_eq!(index.get_one(&1).unwrap(), Some([1; 1 << 16]));
}

#[test]
fn load_factor_reaches_nine_tenths_before_growth() {
    let folder = folder();
    let index =
        Index::<u64, u8>::create(folder.path().join("f"), &options().capacity(300_000)).unwrap();
    let slots = index.stats().slots;
    let mut next = 0u64;
    let mut fullest = 0.0;
    while index.stats().slots == slots {
        fullest = index.stats().load_factor;
        let keys: Vec<u64> = (next..next + 1000).collect();
        index.insert(&keys, &[0; 1000]).unwrap();
        next += 1000;
    }
    println!("grew at a load factor of {fullest:.3} of {slots} slots");
    assert!(fullest >= 0.90, "grew at a load factor of {fullest}");
}

#[test]
fn records_are_reused_after_removal() {
    let folder = folder();
    let index = Index::<u64, [u8; 256]>::create(folder.path().join("f"), &options().capacity(2000))
        .unwrap();
    let keys: Vec<u64> = (0..1000).collect();
    index.insert(&keys, &[[0; 256]; 1000]).unwrap();
    for round in 0..200u8 {
        index.upsert(&keys, &[[round; 256]; 1000]).unwrap();
        index.remove(&keys[..500]).unwrap();
        index.insert(&keys[..500], &[[round; 256]; 500]).unwrap();
    }
    let len = index.stats().file_len;
    assert!(
        len < 6 << 20,
        "200,000 changes of 1,000 items made the file {len} bytes long"
    );
}

#[test]
fn long_batches_fill_a_table_that_grows() {
    type Value = [u64; 32];
    const BATCH: u64 = 20_000;
    let folder = folder();
    let index =
        Index::<u64, Value>::create(folder.path().join("f"), &options().capacity(30_000)).unwrap();
    let values = |keys: &[u64], round: u64| -> Vec<Value> {
        keys.iter().map(|key| [key ^ round << 32; 32]).collect()
    };
    let mut rounds = Vec::new();
    for round in 1..10 {
        // Half of them are there.
        let first = (round - 1) * BATCH / 2;
        let keys: Vec<u64> = (first..first + BATCH).collect();
        let inserted = index.insert(&keys, &values(&keys, round)).unwrap();
        let known = rounds.len() as u64;
        assert!(
            keys.iter()
                .all(|key| inserted[usize::try_from(key - first).unwrap()] == (*key >= known))
        );
        rounds.resize(usize::try_from(first + BATCH).unwrap(), round);
    }
    assert!(index.stats().resizes > 0);
    let all: Vec<u64> = (0..rounds.len() as u64).collect();
    let check = |rounds: &[u64]| {
        let mut found = vec![[0; 32]; all.len()];
        assert_eq!(
            index.get(&all, &mut found).unwrap().count_ones(..),
            all.len()
        );
        for ((key, round), value) in all.iter().zip(rounds).zip(&found) {
            assert_eq!(*value, [key ^ round << 32; 32], "{key}");
        }
    };
    check(&rounds);
    let len = index.stats().file_len;
    for round in 16..20 {
        for keys in all.chunks(usize::try_from(BATCH).unwrap()) {
            index.update(keys, &values(keys, round)).unwrap();
        }
        rounds.fill(round);
    }
    check(&rounds);
    let longer = index.stats().file_len - len;
    assert!(
        longer < len / 2,
        "{longer} bytes more than {len} for updates"
    );
}

#[test]
fn resize_preallocates_and_ends_by_itself() {
    let folder = folder();
    let path = folder.path().join("f");
    let options = options().capacity(300_000);
    let index = Index::<u64, u64>::create(&path, &options).unwrap();
    let mut next = 0u64;
    let mut insert_more = |index: &Index<u64, u64>| {
        let keys: Vec<u64> = (next..next + 1000).collect();
        next += 1000;
        index.insert(&keys, &keys).unwrap();
    };
    while index.stats().resizes == 0 {
        insert_more(&index);
    }
    let stats = index.stats();
    assert!(stats.longest_pause > Duration::ZERO);
    assert_eq!(stats.resizes, 1);
    let patience = Instant::now() + Duration::from_secs(600);
    while index.stats().resizing {
        assert!(Instant::now() < patience, "{:?}", index.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    let items = index.len();
    assert_eq!(index.iter().count() as u64, items);
    while index.stats().load_factor < 0.85 {
        insert_more(&index);
    }
    index.close().unwrap();
    let len = std::fs::metadata(&path).unwrap().len();
    let index = Index::<u64, u64>::open(&path, &options).unwrap();
    assert_eq!(len, index.stats().file_len, "preallocated room was kept");
    assert_eq!(index.len(), next);
    assert_eq!(index.stats().longest_pause, Duration::ZERO);
}

#[test]
fn iterator_held_across_growth_yields_only_items() {
    let folder = folder();
    let index =
        Index::<u64, u64>::create(folder.path().join("f"), &options().capacity(300)).unwrap();
    // Read as a slot, two of these values are an item, and where levels were there are values later.
    let value = 1 << 17;
    let first: Vec<u64> = (1..=300).collect();
    index.insert(&first, &[value; 300]).unwrap();
    let mut iter = index.iter();
    let mut seen = vec![iter.next().unwrap()];
    let others: Vec<u64> = (301..60_000).collect();
    for keys in others.chunks(1000) {
        index.insert(keys, &vec![value; keys.len()]).unwrap();
    }
    seen.extend(iter);
    for (key, found) in &seen {
        assert_eq!((*found, (1..60_000).contains(key)), (value, true), "{key}");
    }
    seen.sort_unstable();
    for key in first {
        assert!(seen.binary_search(&(key, value)).is_ok(), "{key}");
    }
}
