//! Random additions, compactions and reopenings, with each answer compared to a sorted map.

use std::ops::Bound;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::width::to_usize;

/// Keys that share beginnings of many lengths, the empty one and very long ones among them.
fn key(rng: &mut SmallRng, keys: u32) -> Vec<u8> {
    let number = rng.random_range(0..keys);
    let mut key = match number % 4 {
        0 => Vec::new(),
        1 => b"a prefix that many keys have/".to_vec(),
        2 => vec![0xFF; number as usize % 40],
        _ => number.wrapping_mul(0x9E37_79B9).to_be_bytes().to_vec(),
    };
    if number > 0 {
        key.extend(number.to_string().bytes());
    }
    if number % 997 == 5 {
        key.resize(64 << 10, 0xEE);
    }
    key
}

fn value(rng: &mut SmallRng) -> Vec<u8> {
    let len = match rng.random_range(0..100) {
        0 => rng.random_range(8000..9000),
        1 => rng.random_range(0..200_000),
        2..20 => 0,
        _ => rng.random_range(0..200),
    };
    let byte = rng.random();
    let compresses = rng.random();
    (0..len)
        .map(|_| if compresses { byte } else { rng.random() })
        .collect()
}

fn check(version: &LsmVersion, model: &Model, rng: &mut SmallRng, keys: u32) {
    let live = values(model);
    for from_end in [false, true] {
        let found = contents(version, from_end, rng.random_range(1..500)).unwrap();
        assert!(values(&found) == live);
        let is_ours = |(key, item): (&Vec<u8>, &_)| model.get(key) == Some(item);
        assert!(found.iter().all(is_ours));
    }
    for _ in 0..200 {
        let key = key(rng, keys + 10);
        let found = version.get(&key).unwrap();
        match (model.get(&key), &found) {
            (Some((_, None)) | None, None) => {}
            (expected, found) => assert_eq!(expected, found.as_ref()),
        }
        assert!(found.is_none() || version.may_have(&key).unwrap());
    }
    for _ in 0..20 {
        let bound = |rng: &mut SmallRng| match rng.random_range(0..5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key(rng, keys)),
            _ => Bound::Excluded(key(rng, keys)),
        };
        let (from, to) = (bound(rng), bound(rng));
        let as_slice = |bound: &Bound<Vec<u8>>| bound.clone();
        let range = (
            from.as_ref().map(Vec::as_slice),
            to.as_ref().map(Vec::as_slice),
        );
        let from_end = rng.random();
        let page = page(version, range, from_end, 50).unwrap();
        let is_inside = |key: &Vec<u8>| {
            use std::ops::RangeBounds;
            (as_slice(&from), as_slice(&to)).contains(key)
        };
        let mut expected: Vec<_> = model
            .iter()
            .filter(|(key, (_, value))| is_inside(key) && value.is_some())
            .collect();
        if from_end {
            expected.reverse();
        }
        let found = page.items.iter().filter(|(_, value)| value.is_some());
        let found: Vec<_> = found.collect();
        assert!(!page.is_last || found.len() == expected.len());
        assert!(page.items.len() <= 50);
        for ((found_key, found), (key, (_, value))) in found.into_iter().zip(expected) {
            assert_eq!(found_key, key);
            assert!(found == value);
        }
    }
}

#[test]
fn random_additions_and_reopenings() {
    let seed = seed();
    for nth in 0..6 {
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(nth));
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let keys = [10, 300, 3000][to_usize(nth) % 3];
        let mut spill = open(dir.path(), None, options()).unwrap();
        let mut model = Model::new();
        let mut sequence = 0;
        for _ in 0..12 {
            let mut changes = Model::new();
            let deletes = rng.random_range(0.0..0.6);
            for _ in 0..rng.random_range(0..400) {
                sequence += 1;
                let value = (!rng.random_bool(deletes)).then(|| value(&mut rng));
                changes.insert(key(&mut rng, keys), (sequence, value));
            }
            let before = (spill.version(), model.clone());
            add(&spill, &changes).unwrap();
            model.extend(changes);
            while rng.random_bool(0.7) && spill.compact().unwrap() {}
            check(&before.0, &before.1, &mut rng, keys);
            drop(before);
            if rng.random_bool(0.3) {
                drop(spill);
                spill = open(dir.path(), None, options()).unwrap();
            }
            while rng.random_bool(0.7) && spill.compact().unwrap() {}
            check(&spill.version(), &model, &mut rng, keys);
            check_files(&spill, dir.path());
        }
    }
}

/// Every file is as it should be, and there is no other.
pub fn check_files(spill: &Spill, dir: &Path) {
    spill.levels.cache().sweep();
    let mut expected = Vec::new();
    for (path, checked) in spill.verify(&|done, total| assert!(done <= total)) {
        checked.unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        expected.push(String::from(name));
    }
    let version = spill.version();
    let values = version.values().iter();
    expected.extend(values.map(|of| values::name(of.file.number())));
    let files = std::fs::read_dir(dir).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let is_ours = |name: &String| sst::number(name).or(values::number(name)).is_some();
    let mut found: Vec<String> = names.filter(is_ours).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

/// What is deleted leaves nothing behind once all of it is compacted, and levels are within limits.
#[test]
fn tombstones_go_with_the_last_value() {
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut small = options();
    (small.file_bytes, small.level_bytes) = (4 << 10, 16 << 10);
    let spill = open(dir.path(), None, small).unwrap();
    let mut model = Model::new();
    for sequence in 0..40 {
        let mut changes = Model::new();
        for _ in 0..400 {
            let value = (0..100).map(|_| rng.random()).collect();
            changes.insert(key(&mut rng, 3000), (sequence, Some(value)));
        }
        add(&spill, &changes).unwrap();
        model.extend(changes);
        while spill.compact().unwrap() {}
    }
    check(&spill.version(), &model, &mut rng, 3000);
    let stats = spill.stats();
    assert!(stats.levels.len() > 3, "{stats:?}");
    assert!(stats.compactions > 20 && stats.cache_hits > 0, "{stats:?}");
    for (level, limit) in [(1, 16 << 10), (2, 160 << 10)] {
        assert!(stats.levels[level].bytes <= limit, "{stats:?}");
    }
    for item in model.values_mut() {
        *item = (100, None);
    }
    // Level 0 is compacted from its fourth run on.
    for _ in 0..8 {
        add(&spill, &model).unwrap();
        while spill.compact().unwrap() {}
        if spill.version().is_empty() {
            break;
        }
    }
    assert!(spill.version().is_empty(), "{:?}", spill.stats());
    check_files(&spill, dir.path());
}

/// Values of all lengths around those at which a block, a piece or a value file ends, and keys of the greatest length.
#[test]
fn values_of_all_lengths() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let mut model = Model::new();
    let lens = [300, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 3 << 20];
    let lens = lens.iter().flat_map(|len| [len - 1, *len, len + 1]);
    let mut changes = Model::new();
    for (nth, len) in lens.enumerate() {
        let key = vec![nth.to_le_bytes()[0]; if nth % 4 == 1 { 64 << 10 } else { nth }];
        let value: Vec<u8> = (0..251).cycle().take(len).collect();
        changes.insert(key, (nth as u64, Some(value)));
    }
    for round in 0..5 {
        add(&spill, &changes).unwrap();
        model.extend(changes.clone());
        while spill.compact().unwrap() {}
        let version = spill.version();
        for from_end in [false, true] {
            assert!(values(&contents(&version, from_end, 100).unwrap()) == values(&model));
        }
        for (key, item) in &values(&model) {
            assert!(version.get(key).unwrap().as_ref() == Some(item));
        }
        let removed = changes.keys().nth(round * 2).unwrap().clone();
        changes.insert(removed, (100, None));
    }
    assert!(spill.stats().compactions > 0);
    check_files(&spill, dir.path());
}

/// Files whose keys ascend from addition to addition are never written twice.
#[test]
fn compaction_of_a_load_in_order_only_moves_files() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spill = open(dir.path(), None, options()).unwrap();
    let mut model = Model::new();
    for part in 0..40u32 {
        let keys = (part * 300..(part + 1) * 300).map(|n| n.to_be_bytes().to_vec());
        let changes = keys.map(|key| (key.clone(), (1, Some(key.repeat(10)))));
        let changes: Model = changes.collect();
        add(&spill, &changes).unwrap();
        model.extend(changes);
        while spill.compact().unwrap() {}
    }
    let stats = spill.stats();
    assert_eq!(stats.compactions, 0, "{stats:?}");
    assert!(stats.moves > 0 && stats.levels.len() > 1, "{stats:?}");
    assert!(contents(&spill.version(), true, 100).unwrap() == model);
}
