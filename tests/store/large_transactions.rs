//! Transactions of very many operations.

use std::collections::BTreeMap;

use gphash::Error;
use gphash::store::{Store, Transaction, WriteBatch};
use gphash_test_support::setting;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::disk::copy;
use super::seed;

/// Which version of its value each key has, so that a map of millions is small.
type Versions = BTreeMap<u32, u32>;

/// How many operations a large transaction has.
fn operations() -> u32 {
    setting("GPHASH_TRANSACTION_OPERATIONS").unwrap_or(50_000)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:010}").into_bytes()
}

fn value(version: u32) -> Vec<u8> {
    let mut value = vec![version.to_le_bytes()[0]; version as usize % 120];
    value.extend(version.to_le_bytes());
    value
}

/// All that a store has; each value must be whole.
fn held(store: &Store) -> Versions {
    let version = |item: gphash::Result<(Vec<u8>, Vec<u8>)>| {
        let (key, held) = item.unwrap();
        let number = str::from_utf8(&key[4..]).unwrap().parse().unwrap();
        let version = u32::from_le_bytes(*held.last_chunk().unwrap());
        assert!(held == value(version), "key {number} is torn");
        (number, version)
    };
    store.range(..).map(version).collect()
}

/// Puts, deletes and reads random keys: so many operations, whose versions begin with `first`. `seen` is what
/// the transaction sees.
fn work(transaction: &mut Transaction, seen: &mut Versions, first: u32, rng: &mut SmallRng) {
    for nth in 0..operations() {
        let number = rng.random_range(0..operations() / 2);
        match rng.random_range(0..10) {
            0..6 => {
                transaction.put(key(number), value(first + nth)).unwrap();
                seen.insert(number, first + nth);
            }
            6..8 => {
                transaction.delete(key(number)).unwrap();
                seen.remove(&number);
            }
            _ => {
                let found = transaction.get(&key(number)).unwrap();
                assert_eq!(found, seen.get(&number).copied().map(value), "{number}");
            }
        }
    }
}

#[test]
fn transaction_that_is_large_is_atomic() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, &crate::partitioned()).unwrap();
    let before: Versions = (0..operations() / 4)
        .map(|number| (number, number))
        .collect();
    for numbers in before.keys().copied().collect::<Vec<_>>().chunks(10_000) {
        let mut batch = WriteBatch::new();
        numbers
            .iter()
            .for_each(|&number| batch.put(key(number), value(number)));
        store.write(batch).unwrap();
    }

    // Another one that looks at the store as it is now, for as long as the large one takes.
    let mut rival = store.transaction();
    let mut transaction = store.transaction();
    let mut seen = before.clone();
    work(&mut transaction, &mut seen, operations(), &mut rng);
    assert!(held(&store) == before, "a change is seen before the commit");
    transaction.commit().unwrap();
    assert!(
        held(&store) == seen,
        "the store has not all of the transaction"
    );
    // A hundred keys: however short the run, the transaction has changed one of them.
    for (&number, &version) in before.iter().step_by(before.len() / 100) {
        assert_eq!(rival.get(&key(number)).unwrap(), Some(value(version)));
    }
    rival.put("rival", "was here").unwrap();
    assert!(matches!(rival.commit(), Err(Error::Conflict)));

    let left = folder.path().join("left");
    copy(&path, &left);
    let reopened = Store::open(&left, &crate::partitioned()).unwrap();
    assert!(
        held(&reopened) == seen,
        "something is lost with the process"
    );
    reopened.close().unwrap();

    // One that has read what another one changes then.
    let mut transaction = store.transaction();
    let (&number, _) = seen.first_key_value().unwrap();
    transaction.get(&key(number)).unwrap();
    work(
        &mut transaction,
        &mut seen.clone(),
        2 * operations(),
        &mut rng,
    );
    store.put(key(number), value(0)).unwrap();
    seen.insert(number, 0);
    assert!(matches!(transaction.commit(), Err(Error::Conflict)));
    assert!(held(&store) == seen, "a conflict has changed something");
    // Nobody looks at what was there any more.
    crate::wait_for_readers(&store);
    store.close().unwrap();
    let store = Store::open(&path, &crate::partitioned()).unwrap();
    assert!(held(&store) == seen);
}
