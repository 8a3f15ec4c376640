//! Lookups of one column, against a `HashMap` of whole values.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use bytemuck::Pod;
use gphash::{Column, DType, Error, Index};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

use crate::{folder, options, rng};

/// Columns of a value of `size` bytes: of all alignments and lengths, with gaps or without.
fn any_columns(size: usize, rng: &mut SmallRng) -> Vec<Column> {
    let mut columns = Vec::new();
    let mut offset = 0;
    while offset < size && columns.len() < 16 {
        if rng.random_ratio(1, 3) {
            offset += rng.random_range(0..9);
        }
        let (dtype, most) = match rng.random_range(0..3) {
            0 => (DType::U8, 40),
            1 => (DType::F32, 20),
            _ => (DType::U64, 10),
        };
        let count = rng.random_range(1..most);
        let column = Column::new(format!("column {offset}"), dtype, [count], offset);
        let end = offset + column.len().unwrap();
        if end > size {
            break;
        }
        columns.push(column);
        offset = end;
    }
    if columns.is_empty() {
        columns.push(Column::new("all", DType::Bytes, [size], 0));
    }
    columns
}

fn check<K: Pod + Eq + Hash + Debug, V: Pod>(
    index: &Index<K, V>,
    model: &HashMap<K, V>,
    keys: &[K],
    columns: &[Column],
) {
    for column in columns {
        let size = column.len().unwrap();
        let mut out = vec![0xA5; keys.len() * size];
        let found = index.get_column(column.name(), keys, &mut out).unwrap();
        assert_eq!(found.len(), keys.len());
        for (nth, (key, part)) in keys.iter().zip(out.chunks_exact(size)).enumerate() {
            let value = model.get(key);
            assert_eq!(found.contains(nth), value.is_some(), "{key:?}");
            match value {
                Some(value) => {
                    let bytes = &bytemuck::bytes_of(value)[column.offset()..][..size];
                    assert_eq!(part, bytes, "{column} of {key:?}");
                }
                None => assert!(part.iter().all(|&byte| byte == 0xA5), "{column} of {key:?}"),
            }
        }
    }
}

fn exercise<K: Pod + Eq + Hash + Debug, V: Pod>(
    key: impl Fn(u64) -> K,
    items: u64,
    rng: &mut SmallRng,
) {
    let folder = folder();
    let path = folder.path().join("f");
    let columns = any_columns(size_of::<V>(), rng);
    let index =
        Index::<K, V>::create(&path, &options().capacity(64).columns(columns.clone())).unwrap();
    let mut model = HashMap::new();
    let mut store = |index: &Index<K, V>, numbers: std::ops::Range<u64>, rng: &mut SmallRng| {
        let keys: Vec<K> = numbers.map(&key).collect();
        let mut values = vec![V::zeroed(); keys.len()];
        rng.fill_bytes(bytemuck::cast_slice_mut(&mut values));
        index.upsert(&keys, &values).unwrap();
        model.extend(keys.into_iter().zip(values));
        model.clone()
    };
    store(&index, 0..items, rng);
    index.reload_cache().unwrap();
    // Some are cached, on an engine that caches, and some are not.
    let model = store(&index, items / 2..items + items / 4, rng);
    let mut keys: Vec<K> = (0..2 * items).map(&key).collect();
    keys.extend((0..100).map(|_| key(rng.random_range(0..2 * items))));
    check(&index, &model, &keys, &columns);
    check(&index, &model, &keys[keys.len() - 100..], &columns);
    check(&index, &model, &keys[..1], &columns);
    check(&index, &model, &[], &columns);
    index.close().unwrap();
    let index = Index::<K, V>::open(&path, &options()).unwrap();
    check(&index, &model, &keys[..500.min(keys.len())], &columns);
}

#[test]
fn columns_are_read_like_whole_values() {
    let mut rng = rng("columns");
    for _ in 0..2 {
        exercise::<u64, [u8; 3]>(|n| n.wrapping_sub(1), 300, &mut rng);
        exercise::<u64, [u64; 8]>(|n| n.wrapping_sub(1), 300, &mut rng);
        exercise::<[u64; 4], [u8; 200]>(|n| [n, 1, 2, !n], 300, &mut rng);
        exercise::<u64, [u32; 100]>(|n| n, 300, &mut rng);
    }
    // As many as several threads share, and whose values the host copies for a GPU.
    exercise::<u64, [u64; 4]>(|n| n, 10_000, &mut rng);
}

#[test]
fn columns_that_are_not_there_are_errors() {
    let folder = folder();
    let columns = [
        Column::new("weight", DType::F32, [3], 0),
        Column::new("count", DType::U32, [], 12),
    ];
    let made = options().columns(columns);
    let index = Index::<u64, [u32; 4]>::create(folder.path().join("f"), &made).unwrap();
    let text = |result: gphash::Result<_>| match result {
        Err(error @ Error::InvalidOption { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let unknown = text(index.get_column("momentum", &[1], &mut [0; 12]));
    assert!(
        unknown.contains("\"momentum\"; expected one of weight, count"),
        "{unknown}"
    );
    for bytes in [0, 4, 23, 25, 36] {
        let length = text(index.get_column("weight", &[1, 2], &mut vec![0; bytes]));
        assert!(length.contains("12 bytes a key"), "{length}");
    }
    let bare = Index::<u64, u64>::create(folder.path().join("g"), &options()).unwrap();
    let none = text(bare.get_column("weight", &[], &mut []));
    assert!(none.contains("this one has none"), "{none}");
}
