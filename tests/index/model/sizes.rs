//! Every key size and value sizes of each class, and every legal shape.

use bytemuck::Pod;
use gphash::{Index, Options, Repair, ReportState, recover};
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::{Checked, folder, options, rng};

fn exercise<const K: usize, V: Pod>(options: &Options, rng: &mut SmallRng, items: u64) {
    let folder = folder();
    let path = folder.path().join("f");
    let options = &options
        .clone()
        .checksums(rng.random())
        .verify_checksums(rng.random());
    let key = |n: u64| -> [u64; K] {
        // Keys that differ in their last word only, or in their first.
        std::array::from_fn(|i| match n % 2 {
            0 if i == K - 1 => n,
            1 if i == 0 => n,
            _ => 77,
        })
    };
    let mut value = || {
        let mut value = V::zeroed();
        rng.fill(bytemuck::bytes_of_mut(&mut value));
        value
    };
    let mut checked = Checked::new(Index::<[u64; K], V>::create(&path, options).unwrap());
    let keys: Vec<_> = (0..items).map(key).collect();
    let values: Vec<V> = keys.iter().map(|_| value()).collect();
    let untouched = value();
    checked.insert(&keys, &values);
    checked.get(&keys, untouched);
    checked.upsert(
        &keys[..keys.len() / 2],
        &values[keys.len() - keys.len() / 2..],
    );
    checked.remove(&keys[..keys.len() / 3]);
    checked.insert(&keys[..keys.len() / 4], &values[..keys.len() / 4]);
    checked.update(&keys, &values);
    checked.get(&keys, untouched);
    checked.check();
    let Checked { index, model } = checked;
    index.close().unwrap();
    let report = recover(&path, Repair::Check, &|_| {}).unwrap();
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
    let reopened = Checked {
        index: Index::open(&path, options).unwrap(),
        model,
    };
    reopened.check();
    reopened.get(&keys, untouched);
}

#[test]
fn key_sizes_of_every_width() {
    let mut rng = rng("key sizes");
    let options = options().capacity(50);
    macro_rules! sizes {
        ($($words:literal)*) => { $( exercise::<$words, u64>(&options, &mut rng, 600); )* };
    }
    sizes!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

#[test]
fn value_sizes_of_every_class() {
    let mut rng = rng("value sizes");
    let options = options().capacity(20);
    macro_rules! sizes {
        ($($bytes:literal)*) => { $(
            exercise::<1, [u8; $bytes]>(&options, &mut rng, 150);
            exercise::<3, [u8; $bytes]>(&options, &mut rng, 150);
        )* };
    }
    sizes!(1 2 3 7 8 9 12 16 17 31 32 33 63 64 65 100 127 128 129 192 256 1000 4096);
    exercise::<1, [u8; 20_000]>(&options, &mut rng, 40);
    exercise::<1, [u8; 65_536]>(&options, &mut rng, 40);
}

#[test]
fn shapes() {
    let mut rng = rng("shapes");
    for (levels, locations, slots) in [
        (1, 1, 32),
        (1, 2, 16),
        (1, 2, 8),
        (2, 2, 8),
        (2, 1, 16),
        (2, 4, 4),
        (3, 2, 5),
        (4, 2, 4),
        (1, 3, 3),
        (2, 2, 1),
        (1, 1, 1),
    ] {
        let options = options().capacity(10).shape(levels, locations, slots);
        let items = if slots * locations > 2 { 400 } else { 12 };
        exercise::<1, u64>(&options, &mut rng, items);
        exercise::<2, u64>(&options, &mut rng, items);
    }
}
