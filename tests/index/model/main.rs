//! The spec of an index: every verb, batch by batch, against a `HashMap`.
//!
//! The same source runs for each engine. `GPHASH_TEST_ENGINE` chooses it (`cpu` by default, or
//! `cuda`); `GPHASH_TEST_NO_MIRROR` makes the CUDA engine probe the file itself,
//! `GPHASH_TEST_ADDRESS_ORDER` (`always` or `never`) says whether it orders batches,
//! `GPHASH_TEST_NO_CACHE` takes the bucket cache away;
//! `GPHASH_TEST_FOLDER` says where the files go (the temporary folder by default, so
//! that the domain is what that folder can have).

mod between_engines;
mod cache;
mod checksums;
mod columns;
mod concurrent;
mod growth;
mod linear;
mod random_batches;
mod reserved_keys;
mod sizes;
mod verbs;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use bytemuck::Pod;
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
    Options::new()
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

/// An index beside the map that says what it must hold.
struct Checked<K: Pod, V: Pod> {
    index: Index<K, V>,
    model: HashMap<K, V>,
}

impl<K: Pod + Eq + Hash + Debug, V: Pod + PartialEq + Debug> Checked<K, V> {
    fn new(index: Index<K, V>) -> Self {
        let model = index.iter().collect();
        Self { index, model }
    }

    fn insert(&mut self, keys: &[K], values: &[V]) {
        let answers = self.index.insert(keys, values).unwrap();
        assert_eq!(answers.len(), keys.len());
        for (i, (key, value)) in keys.iter().zip(values).enumerate() {
            let absent = !self.model.contains_key(key);
            assert_eq!(answers.contains(i), absent, "insert of {key:?} at {i}");
            self.model.entry(*key).or_insert(*value);
        }
    }

    fn upsert(&mut self, keys: &[K], values: &[V]) {
        let answers = self.index.upsert(keys, values).unwrap();
        for (i, (key, value)) in keys.iter().zip(values).enumerate() {
            let absent = self.model.insert(*key, *value).is_none();
            assert_eq!(answers.contains(i), absent, "upsert of {key:?} at {i}");
        }
    }

    fn update(&mut self, keys: &[K], values: &[V]) {
        let answers = self.index.update(keys, values).unwrap();
        for (i, (key, value)) in keys.iter().zip(values).enumerate() {
            let present = match self.model.get_mut(key) {
                Some(held) => {
                    *held = *value;
                    true
                }
                None => false,
            };
            assert_eq!(answers.contains(i), present, "update of {key:?} at {i}");
        }
    }

    fn remove(&mut self, keys: &[K]) {
        let answers = self.index.remove(keys).unwrap();
        for (i, key) in keys.iter().enumerate() {
            let present = self.model.remove(key).is_some();
            assert_eq!(answers.contains(i), present, "remove of {key:?} at {i}");
        }
    }

    fn get(&self, keys: &[K], untouched: V) {
        let mut values = vec![untouched; keys.len()];
        let answers = self.index.get(keys, &mut values).unwrap();
        let contained = self.index.contains(keys).unwrap();
        for (i, key) in keys.iter().enumerate() {
            let expected = self.model.get(key);
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
            assert_eq!(
                values[i],
                *expected.unwrap_or(&untouched),
                "value of {key:?}"
            );
        }
    }

    /// Compares everything.
    fn check(&self) {
        assert_eq!(self.index.len(), self.model.len() as u64);
        let mut seen = HashMap::new();
        for (key, value) in self.index.iter() {
            assert_eq!(seen.insert(key, value), None, "{key:?} seen twice");
        }
        assert_eq!(seen.len(), self.model.len());
        for (key, value) in &self.model {
            assert_eq!(seen.get(key), Some(value), "{key:?}");
        }
    }
}
