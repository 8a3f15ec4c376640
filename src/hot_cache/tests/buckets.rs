//! One bucket.

use std::collections::BTreeMap;

use rand::RngExt;

use super::{any_value, rng};
use crate::bucket::{Bucket, Item, Lookup, Missed};

fn miss(bucket: &Bucket, tag: u32, key: &[u8]) -> Missed {
    match bucket.get(tag, key) {
        Lookup::Miss(missed) => missed,
        other => panic!("{other:?}"),
    }
}

fn fill(bucket: &Bucket, tag: u32, key: &[u8], value: Option<&[u8]>) {
    let missed = miss(bucket, tag, key);
    let item = Item::of(key, value).unwrap();
    bucket.fill(missed, (tag, item), true, || true);
}

#[test]
fn entries_of_all_lengths_are_found() {
    for key_len in [0, 1, 7, 8, 9, 16, 400, 959, 960] {
        for value_len in (0..20).chain([100, 552, 559, 560, 561, 959, 960, 961, 2000]) {
            let (key, value) = (vec![7; key_len], vec![9; value_len]);
            let words = key_len.div_ceil(8) + value_len.div_ceil(8);
            let item = Item::of(&key, Some(&value));
            assert_eq!(item.is_some(), words <= 120, "{key_len}, {value_len}");
            let Some(item) = item else { continue };
            let bucket = Bucket::default();
            bucket.fill(miss(&bucket, 3, &key), (3, item), true, || true);
            assert_eq!(bucket.get(3, &key), Lookup::Hit(Some(value)));
            // Nor is a key found that has the same words.
            let mut longer = key.clone();
            longer.push(0);
            assert!(matches!(bucket.get(3, &longer), Lookup::Miss(_)));
            assert!(matches!(bucket.get(4, &key), Lookup::Miss(_)));
        }
    }
}

#[test]
fn an_absent_key_is_not_one_with_an_empty_value() {
    let bucket = Bucket::default();
    fill(&bucket, 1, b"none", None);
    fill(&bucket, 1, b"empty", Some(b""));
    assert_eq!(bucket.get(1, b"none"), Lookup::Hit(None));
    assert_eq!(bucket.get(1, b"empty"), Lookup::Hit(Some(Vec::new())));
}

#[test]
fn fill_is_refused_after_any_change() {
    let item = Item::of(b"key", Some(b"old")).unwrap();
    let change: [&dyn Fn(&Bucket); 4] = [
        &|bucket| {
            bucket.block(2, b"other");
            bucket.unblock(2, None, || true);
        },
        // Another one is under way.
        &|bucket| {
            bucket.block(2, b"other");
        },
        &|bucket| bucket.purge(|_| true),
        &|bucket| fill(bucket, 2, b"other", None),
    ];
    for change in change {
        let bucket = Bucket::default();
        let missed = miss(&bucket, 1, b"key");
        change(&bucket);
        bucket.fill(missed, (1, item), true, || true);
        assert!(matches!(bucket.get(1, b"key"), Lookup::Miss(_)));
    }
}

#[test]
fn fill_is_refused_while_a_key_is_blocked() {
    let bucket = Bucket::default();
    bucket.block(2, b"other");
    bucket.block(3, b"third");
    bucket.unblock(3, None, || true);
    fill(&bucket, 1, b"key", Some(b"old"));
    assert!(matches!(bucket.get(1, b"key"), Lookup::Miss(_)));
    // The one who has blocked a key may fill it.
    bucket.unblock(2, Item::of(b"other", Some(b"new")).zip(Some(0)), || true);
    assert_eq!(bucket.get(2, b"other"), Lookup::Hit(Some(b"new".to_vec())));
    fill(&bucket, 1, b"key", Some(b"old"));
    assert_eq!(bucket.get(1, b"key"), Lookup::Hit(Some(b"old".to_vec())));
}

#[test]
fn fill_is_refused_if_the_bin_is_no_longer_hot() {
    let bucket = Bucket::default();
    let item = Item::of(b"key", None);
    let missed = miss(&bucket, 1, b"key");
    bucket.fill(missed, (1, item.unwrap()), true, || false);
    assert!(matches!(bucket.get(1, b"key"), Lookup::Miss(_)));
    bucket.block(1, b"key");
    bucket.unblock(1, item.zip(Some(0)), || false);
    assert!(matches!(bucket.get(1, b"key"), Lookup::Miss(_)));
}

#[test]
fn used_entries_get_a_second_chance() {
    let bucket = Bucket::default();
    let key = |nth: u32| nth.to_le_bytes();
    for nth in 0..13 {
        fill(&bucket, nth, &key(nth), Some(b"value"));
    }
    assert_eq!(bucket.entries(), 13);
    let is_there = |nth: u32| matches!(bucket.get(nth, &key(nth)), Lookup::Hit(_));
    // All but one are used, and it makes room for one who may take it.
    assert!((1..13).all(is_there));
    let missed = miss(&bucket, 20, &key(20));
    assert!(!missed.has_room);
    let item = Item::of(b"other", None).unwrap();
    bucket.fill(missed, (20, item), false, || true);
    assert!(is_there(0));
    bucket.purge(|tag| tag != 0);
    assert!(miss(&bucket, 20, &key(20)).has_room);
    fill(&bucket, 0, &key(0), Some(b"value"));
    fill(&bucket, 20, &key(20), None);
    assert!(!is_there(0));
    assert!((1..13).all(is_there) && is_there(20));
    // All are used: the newcomer must come again.
    fill(&bucket, 21, &key(21), None);
    assert_eq!(bucket.entries(), 13);
    fill(&bucket, 22, &key(22), None);
    assert!(is_there(22));
    assert_eq!(bucket.entries(), 13);
}

#[test]
fn purge_removes_what_is_not_hot() {
    let bucket = Bucket::default();
    fill(&bucket, 1, b"one", None);
    fill(&bucket, 2, b"two", None);
    bucket.purge(|tag| tag == 2);
    assert!(matches!(bucket.get(1, b"one"), Lookup::Miss(_)));
    assert_eq!(bucket.get(2, b"two"), Lookup::Hit(None));
}

/// What is found is what was put last, whatever had to go for it.
#[test]
fn random_entries_are_whole() {
    let mut rng = rng();
    let bucket = Bucket::default();
    let mut model = BTreeMap::new();
    let mut hits = 0;
    for _ in 0..20_000 {
        let tag = rng.random_range(0..40u32);
        let key = vec![tag.to_le_bytes()[0]; tag as usize];
        match bucket.get(tag, &key) {
            Lookup::Hit(value) => {
                hits += 1;
                assert_eq!(Some(&value), model.get(&key));
            }
            Lookup::Miss(missed) => {
                let value = rng.random_bool(0.8).then(|| any_value(&mut rng));
                model.insert(key.clone(), value.clone());
                if let Some(item) = Item::of(&key, value.as_deref()) {
                    bucket.fill(missed, (tag, item), rng.random_bool(0.5), || true);
                }
            }
            Lookup::Busy => unreachable!("nobody else is there"),
        }
        if rng.random_bool(0.3) {
            let value = rng.random_bool(0.8).then(|| any_value(&mut rng));
            let offset = bucket.block(tag, &key).or(Some(0));
            bucket.unblock(tag, Item::of(&key, value.as_deref()).zip(offset), || true);
            model.insert(key, value);
        }
    }
    assert!(hits > 500, "{hits} hits");
}
