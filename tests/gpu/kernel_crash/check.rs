//! Whether an image of a crash holds what it must.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use bytemuck::Pod;
use gphash::{AddressOrder, Engine, Index, Options, ReportState};

/// What a table must hold: the version of every key, by the key's number.
pub type Model = BTreeMap<u64, u64>;

/// Numbers of keys that no batch changes.
const OTHERS: std::ops::Range<u64> = 1 << 40..(1 << 40) + 20;

/// A type of keys.
pub trait Key: Pod {
    fn of(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Key for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

impl<const N: usize> Key for [u64; N]
where
    Self: Pod,
{
    fn of(number: u64) -> Self {
        std::array::from_fn(|nth| match nth {
            0 => number,
            _ => number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> nth,
        })
    }

    fn number(&self) -> u64 {
        self[0]
    }
}

/// A type of values.
pub trait Value: Pod + PartialEq + Debug {
    fn of(number: u64, version: u64) -> Self;
}

impl<const N: usize> Value for [u8; N]
where
    Self: Pod,
{
    fn of(number: u64, version: u64) -> Self {
        let mut word = (number ^ version.rotate_left(32)).wrapping_add(1);
        std::array::from_fn(|_| {
            // splitmix64
            word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed.to_be_bytes()[0]
        })
    }
}

/// What an image may hold: of each key what it was before the batch under way, or what it is after.
#[derive(Clone, Copy)]
pub struct Allowed<'m> {
    pub before: &'m Model,
    pub after: &'m Model,
}

/// Opens the file, which a crash has left, and checks that it holds what is allowed and works.
/// Gives what was found.
pub fn check<K: Key, V: Value>(
    path: &Path,
    engine: Engine,
    allowed: Allowed,
    thorough: bool,
) -> Model {
    let options = Options::new()
        .engine(engine)
        .threads(1)
        .cache_ratio(0.0)
        .address_order(AddressOrder::Never);
    let index = Index::<K, V>::open(path, &options).unwrap();
    let found = contents(&index, allowed);
    assert_eq!(index.recovery().items, found.len() as u64);
    lookup(&index, &found, allowed);
    if !thorough {
        index.close().unwrap();
        return found;
    }
    let mut changed = found.clone();
    change(&index, &mut changed);
    index.close().unwrap();
    let report = gphash::recover(path, gphash::Repair::Check, &|_| {}).unwrap();
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
    assert_eq!(report.recovery.items, changed.len() as u64, "{report:?}");
    let mended = report.recovery.slots_cleared + report.recovery.duplicates_removed;
    assert_eq!(mended, 0, "{report:?}");
    found
}

/// The versions of all items, none of which is there twice or torn.
fn contents<K: Key, V: Value>(index: &Index<K, V>, allowed: Allowed) -> Model {
    let mut found = Model::new();
    for (key, value) in index.iter() {
        let number = key.number();
        let versions = [allowed.before, allowed.after].map(|model| model.get(&number).copied());
        let version = versions
            .into_iter()
            .flatten()
            .find(|&version| value == V::of(number, version));
        let Some(version) = version else {
            panic!("key {number} has a value that is neither of {versions:?}: {value:?}");
        };
        let twice = found.insert(number, version);
        assert_eq!(twice, None, "key {number} is there twice");
    }
    for number in allowed.before.keys().chain(allowed.after.keys()) {
        let may_lack = [allowed.before, allowed.after]
            .iter()
            .any(|model| !model.contains_key(number));
        assert!(
            may_lack || found.contains_key(number),
            "key {number} is lost"
        );
    }
    assert_eq!(index.len(), found.len() as u64);
    found
}

/// Looks all keys up that ever were there.
fn lookup<K: Key, V: Value>(index: &Index<K, V>, found: &Model, allowed: Allowed) {
    let mut numbers: Vec<u64> = allowed
        .before
        .keys()
        .chain(allowed.after.keys())
        .copied()
        .collect();
    numbers.extend(OTHERS.take(2));
    let keys: Vec<K> = numbers.iter().map(|&number| K::of(number)).collect();
    let mut values = vec![V::zeroed(); keys.len()];
    let answers = index.get(&keys, &mut values).unwrap();
    for (nth, number) in numbers.iter().enumerate() {
        match found.get(number) {
            Some(&version) => {
                assert!(answers.contains(nth), "key {number} is there and not found");
                assert_eq!(values[nth], V::of(*number, version), "key {number}");
            }
            None => assert!(
                !answers.contains(nth),
                "key {number} is found and not there"
            ),
        }
    }
}

/// Every verb does what it should, on old keys and on new ones.
fn change<K: Key, V: Value>(index: &Index<K, V>, held: &mut Model) {
    let olds: Vec<u64> = held.keys().copied().take(20).collect();
    let with = |numbers: &[u64], version| -> (Vec<K>, Vec<V>) {
        let keys = numbers.iter().map(|&number| K::of(number));
        (
            keys.collect(),
            numbers
                .iter()
                .map(|&number| V::of(number, version))
                .collect(),
        )
    };
    let news: Vec<u64> = OTHERS.collect();
    let (keys, values) = with(&news, 1);
    assert_eq!(
        index.insert(&keys, &values).unwrap().count_ones(..),
        news.len()
    );
    let (keys, values) = with(&olds, 1);
    assert_eq!(index.insert(&keys, &values).unwrap().count_ones(..), 0);
    let (keys, values) = with(&olds, 2);
    assert_eq!(
        index.update(&keys, &values).unwrap().count_ones(..),
        olds.len()
    );
    let (keys, values) = with(&news, 2);
    assert_eq!(index.upsert(&keys, &values).unwrap().count_ones(..), 0);
    let (gone, kept) = news.split_at(news.len() / 2);
    let (keys, _) = with(gone, 0);
    assert_eq!(index.remove(&keys).unwrap().count_ones(..), gone.len());
    held.extend(olds.iter().chain(kept).map(|&number| (number, 2)));
    let now = Allowed {
        before: held,
        after: held,
    };
    let found = contents(index, now);
    assert_eq!(found, *held);
    lookup(index, &found, now);
}
