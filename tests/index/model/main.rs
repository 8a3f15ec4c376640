//! The spec of an index: every verb, batch by batch, against a `HashMap`.
//!
//! The same source runs for each engine. `GPHASH_TEST_ENGINE` chooses it (`cpu` by default, or
//! `cuda`); `GPHASH_TEST_NO_MIRROR` makes the CUDA engine probe the file itself,
//! `GPHASH_TEST_ADDRESS_ORDER` (`always` or `never`) says whether it orders batches,
//! `GPHASH_TEST_NO_CACHE` takes the bucket cache away, `GPHASH_TEST_DEVICE_MEMORY_BUDGET` bounds what it has of the
//! device's memory;
//! `GPHASH_TEST_FOLDER` says where the files go (the temporary folder by default, so
//! that the domain is what that folder can have).

mod between_engines;
mod cache;
mod checksums;
mod columns;
mod concurrent;
mod device_memory;
mod growth;
mod linear;
mod random_batches;
mod reserved_keys;
mod sizes;
mod verbs;

use std::collections::HashMap;
use std::slice::ChunksExact;

use bytemuck::Pod;
use fixedbitset::FixedBitSet;
use gphash::{AddressOrder, Engine, Index, Options};
use gphash_test_support::setting;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tempfile::TempDir;

/// The engine under test.
fn engine() -> Engine {
    setting("GPHASH_TEST_ENGINE").unwrap_or(Engine::Cpu)
}

/// Options for the engine under test.
fn options() -> Options {
    let order = match std::env::var("GPHASH_TEST_ADDRESS_ORDER") {
        Ok(order) => order.parse().expect("GPHASH_TEST_ADDRESS_ORDER"),
        Err(_) => AddressOrder::Auto,
    };
    let checksums = std::env::var_os("GPHASH_TEST_CHECKSUMS").is_some();
    let budget = setting("GPHASH_TEST_DEVICE_MEMORY_BUDGET");
    let options = match budget {
        Some(bytes) => Options::new().device_memory_budget(bytes),
        None => Options::new(),
    };
    options
        .engine(engine())
        .checksums(checksums)
        .verify_checksums(checksums)
        .device_mirror(std::env::var_os("GPHASH_TEST_NO_MIRROR").is_none())
        .address_order(order)
        .cache_ratio(match std::env::var_os("GPHASH_TEST_NO_CACHE") {
            Some(_) => 0.0,
            None => 0.2,
        })
}

/// A fresh folder for files.
fn folder() -> TempDir {
    match std::env::var_os("GPHASH_TEST_FOLDER") {
        Some(folder) => TempDir::new_in(folder),
        None => TempDir::new(),
    }
    .expect("a folder for the test's files")
}

/// A seed, printed so that a failure can be run again: `GPHASH_TEST_SEED=… cargo test`.
fn rng(name: &str) -> SmallRng {
    let seed = setting("GPHASH_TEST_SEED").unwrap_or_else(rand::random::<u64>);
    println!("{name}: GPHASH_TEST_SEED={seed}");
    SmallRng::seed_from_u64(seed)
}

/// Keys or values one by one, as bytes.
fn each<T: Pod>(items: &[T]) -> ChunksExact<'_, u8> {
    bytemuck::cast_slice(items).chunks_exact(size_of::<T>())
}

/// Keys and values as bytes, so that what compares them is compiled once, not for each pair of types.
#[derive(Default)]
struct Model(HashMap<Vec<u8>, Vec<u8>>);

impl Model {
    fn insert(&mut self, keys: ChunksExact<u8>, values: ChunksExact<u8>, answers: &FixedBitSet) {
        assert_eq!(answers.len(), keys.len());
        for (i, (key, value)) in keys.zip(values).enumerate() {
            let absent = !self.0.contains_key(key);
            assert_eq!(answers.contains(i), absent, "insert of {key:?} at {i}");
            if absent {
                self.0.insert(key.to_vec(), value.to_vec());
            }
        }
    }

    fn upsert(&mut self, keys: ChunksExact<u8>, values: ChunksExact<u8>, answers: &FixedBitSet) {
        for (i, (key, value)) in keys.zip(values).enumerate() {
            let absent = self.0.insert(key.to_vec(), value.to_vec()).is_none();
            assert_eq!(answers.contains(i), absent, "upsert of {key:?} at {i}");
        }
    }

    fn update(&mut self, keys: ChunksExact<u8>, values: ChunksExact<u8>, answers: &FixedBitSet) {
        for (i, (key, value)) in keys.zip(values).enumerate() {
            let present = match self.0.get_mut(key) {
                Some(held) => {
                    *held = value.to_vec();
                    true
                }
                None => false,
            };
            assert_eq!(answers.contains(i), present, "update of {key:?} at {i}");
        }
    }

    fn remove(&mut self, keys: ChunksExact<u8>, answers: &FixedBitSet) {
        for (i, key) in keys.enumerate() {
            let present = self.0.remove(key).is_some();
            assert_eq!(answers.contains(i), present, "remove of {key:?} at {i}");
        }
    }

    /// Compares what lookups have found; the value of a key that is not there stays `untouched`.
    fn get(
        &self,
        keys: ChunksExact<u8>,
        values: ChunksExact<u8>,
        untouched: &[u8],
        answers: &FixedBitSet,
        contained: &FixedBitSet,
    ) {
        for (i, (key, value)) in keys.zip(values).enumerate() {
            let expected = self.0.get(key);
            assert_eq!(
                answers.contains(i),
                expected.is_some(),
                "get of {key:?} at {i}"
            );
            assert_eq!(
                contained.contains(i),
                expected.is_some(),
                "contains of {key:?}"
            );
            let expected = expected.map_or(untouched, Vec::as_slice);
            assert_eq!(value, expected, "value of {key:?}");
        }
    }

    /// Compares everything.
    fn check(&self, len: u64, items: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) {
        assert_eq!(len, self.0.len() as u64);
        let mut seen = HashMap::new();
        for (key, value) in items {
            let twice = seen.insert(key.clone(), value);
            assert_eq!(twice, None, "{key:?} seen twice");
        }
        assert_eq!(seen.len(), self.0.len());
        for (key, value) in &self.0 {
            assert_eq!(seen.get(key), Some(value), "{key:?}");
        }
    }
}

/// An index beside the map that says what it must hold.
struct Checked<K: Pod, V: Pod> {
    index: Index<K, V>,
    model: Model,
}

impl<K: Pod, V: Pod> Checked<K, V> {
    fn new(index: Index<K, V>) -> Self {
        let mut model = Model::default();
        for (key, value) in items(&index) {
            model.0.insert(key, value);
        }
        Self { index, model }
    }

    fn insert(&mut self, keys: &[K], values: &[V]) {
        let answers = self.index.insert(keys, values).unwrap();
        self.model.insert(each(keys), each(values), &answers);
    }

    fn upsert(&mut self, keys: &[K], values: &[V]) {
        let answers = self.index.upsert(keys, values).unwrap();
        self.model.upsert(each(keys), each(values), &answers);
    }

    fn update(&mut self, keys: &[K], values: &[V]) {
        let answers = self.index.update(keys, values).unwrap();
        self.model.update(each(keys), each(values), &answers);
    }

    fn remove(&mut self, keys: &[K]) {
        let answers = self.index.remove(keys).unwrap();
        self.model.remove(each(keys), &answers);
    }

    fn get(&self, keys: &[K], untouched: V) {
        let mut values = vec![untouched; keys.len()];
        let answers = self.index.get(keys, &mut values).unwrap();
        let contained = self.index.contains(keys).unwrap();
        let untouched = bytemuck::bytes_of(&untouched);
        self.model
            .get(each(keys), each(&values), untouched, &answers, &contained);
    }

    /// Compares everything.
    fn check(&self) {
        self.model.check(self.index.len(), &mut items(&self.index));
    }
}

/// All items of an index, as bytes.
fn items<K: Pod, V: Pod>(index: &Index<K, V>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let bytes = |(key, value): (K, V)| {
        let (key, value) = (bytemuck::bytes_of(&key), bytemuck::bytes_of(&value));
        (key.to_vec(), value.to_vec())
    };
    index.iter().map(bytes)
}
