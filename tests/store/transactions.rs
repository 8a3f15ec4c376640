//! Transactions: what they see, when they conflict, and that they are serializable.

use std::collections::BTreeMap;
use std::ops::Bound;

use gphash::Error;
use gphash::store::{Store, Transaction};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::model::{Model, contents};
use super::{append, seed};

const KEYS: u8 = 12;

/// A transaction beside what it must see, and what it has read.
struct Open<'s> {
    transaction: Transaction<'s>,
    seen: Model,
    begun: u64,
    keys: Vec<u8>,
    ranges: Vec<(u8, u8)>,
    writes: BTreeMap<u8, Option<Vec<u8>>>,
}

impl Open<'_> {
    fn step(&mut self, rng: &mut SmallRng) {
        let key = rng.random_range(0..KEYS);
        match rng.random_range(0..7) {
            0..2 => {
                let found = self.transaction.get(&[key]).unwrap();
                assert_eq!(found, self.seen.get(&vec![key]).cloned());
                if !self.writes.contains_key(&key) {
                    self.keys.push(key);
                }
            }
            2 => {
                let end = rng.random_range(key..=KEYS);
                let range = self.transaction.range(vec![key]..vec![end]);
                let found: Vec<_> = range.collect::<gphash::Result<_>>().unwrap();
                let limits = (Bound::Included(vec![key]), Bound::Excluded(vec![end]));
                let seen = self.seen.range(limits);
                assert!(found.iter().map(|(key, value)| (key, value)).eq(seen));
                let keys: Vec<_> = self
                    .transaction
                    .keys(vec![key]..vec![end])
                    .rev()
                    .flatten()
                    .collect();
                assert!(keys.iter().rev().eq(found.iter().map(|(key, _)| key)));
                self.ranges.push((key, end));
            }
            3 => {
                self.transaction.delete([key]).unwrap();
                self.seen.remove(&vec![key]);
                self.writes.insert(key, None);
            }
            4 => {
                self.transaction.merge([key], b"+").unwrap();
                let value = self.seen.entry(vec![key]).or_default();
                value.push(b'+');
                if self.writes.insert(key, Some(value.clone())).is_none() {
                    self.keys.push(key);
                }
            }
            _ => {
                let value = vec![rng.random(); 3];
                self.transaction.put([key], value.clone()).unwrap();
                self.seen.insert(vec![key], value.clone());
                self.writes.insert(key, Some(value));
            }
        }
    }

    /// Whether something that was read has been changed since.
    fn conflicts(&self, changed: &BTreeMap<u8, u64>) -> bool {
        let has_changed = |key: &u8| changed.get(key).is_some_and(|when| *when > self.begun);
        let keys = self.keys.iter().any(has_changed);
        let in_range = |&(start, end): &(u8, u8)| (start..end).any(|key| has_changed(&key));
        !self.writes.is_empty() && (keys || self.ranges.iter().any(in_range))
    }
}

#[test]
fn random_transactions() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let options = crate::partitioned().merge_operator(append());
    let store = Store::open(folder.path(), &options).unwrap();
    let mut model = Model::new();
    let mut changed = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    let (mut conflicts, mut commits) = (0, 0);
    for now in 1..4000 {
        match rng.random_range(0..10) {
            0 if open.len() < 5 => open.push(Open {
                transaction: store.transaction(),
                seen: model.clone(),
                begun: now,
                keys: Vec::new(),
                ranges: Vec::new(),
                writes: BTreeMap::new(),
            }),
            1 if !open.is_empty() => {
                let done = open.swap_remove(rng.random_range(0..open.len()));
                let expected = done.conflicts(&changed);
                match done.transaction.commit() {
                    Ok(()) => {
                        assert!(!expected, "no conflict was noticed");
                        commits += 1;
                        for (key, value) in done.writes {
                            changed.insert(key, now);
                            match value {
                                Some(value) => model.insert(vec![key], value),
                                None => model.remove(&vec![key]),
                            };
                        }
                    }
                    Err(Error::Conflict) => {
                        assert!(expected, "a conflict with nobody");
                        conflicts += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            2 if !open.is_empty() => {
                open.swap_remove(rng.random_range(0..open.len()))
                    .transaction
                    .rollback();
            }
            3 if rng.random_bool(0.3) => {
                let key = rng.random_range(0..KEYS);
                store.put([key], [key]).unwrap();
                model.insert(vec![key], vec![key]);
                changed.insert(key, now);
            }
            _ if !open.is_empty() => {
                let nth = rng.random_range(0..open.len());
                open[nth].step(&mut rng);
            }
            _ => {}
        }
        assert_eq!(contents(&store), model);
    }
    assert!(
        conflicts > 0 && commits > 0,
        "{conflicts} conflicts, {commits} commits"
    );
    drop(open);
    crate::wait_for_readers(&store);
}

/// Money goes from account to account; whoever looks at all of them sees all of it.
#[test]
fn transfers_keep_the_sum() {
    const ACCOUNTS: u8 = 8;
    const EACH: u64 = 100;

    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    for account in 0..ACCOUNTS {
        store.put([account], EACH.to_le_bytes()).unwrap();
    }
    let amount = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    let sum = |store: &Store| -> u64 { store.range(..).map(|item| amount(&item.unwrap().1)).sum() };
    let transfer = |rng: &mut SmallRng| -> gphash::Result<()> {
        let mut transaction = store.transaction();
        let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
        let taken = amount(&transaction.get(&[from])?.unwrap()).min(rng.random_range(0..50));
        let left = amount(&transaction.get(&[from])?.unwrap()) - taken;
        transaction.put([from], left.to_le_bytes())?;
        let more = amount(&transaction.get(&[to])?.unwrap()) + taken;
        transaction.put([to], more.to_le_bytes())?;
        transaction.commit()
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let transfer = &transfer;
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(thread));
                let mut done = 0;
                while done < 300 {
                    match transfer(&mut rng) {
                        Ok(()) => done += 1,
                        Err(Error::Conflict) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..200 {
            assert_eq!(sum(&store), u64::from(ACCOUNTS) * EACH);
            let keys: Vec<[u8; 1]> = (0..ACCOUNTS).map(|account| [account]).collect();
            let values = store.multi_get(&keys).unwrap();
            let all: u64 = values
                .iter()
                .map(|value| amount(value.as_ref().unwrap()))
                .sum();
            assert_eq!(all, u64::from(ACCOUNTS) * EACH);
        }
    });
    store.close().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    assert_eq!(sum(&store), u64::from(ACCOUNTS) * EACH);
}
