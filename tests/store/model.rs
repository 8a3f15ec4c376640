//! Random requests of every kind, each answer compared with that of a sorted map, in stores that are
//! closed, dropped and killed between them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use gphash::Error;
use gphash::store::{Durability, Request, Response, Snapshot, Store, StoreOptions, WriteBatch};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::disk::{copy, folders};
use super::{append, seed};

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;
pub type Item = (Vec<u8>, Vec<u8>);

/// Items or, with empty values, keys of a store.
type Items<'s> = Box<dyn DoubleEndedIterator<Item = gphash::Result<Item>> + 's>;

/// One of some hundred keys of very different lengths.
pub fn any_key(rng: &mut SmallRng) -> Vec<u8> {
    let number = rng.random_range(0..100u32);
    match number {
        0 => Vec::new(),
        1 => vec![0],
        2 => vec![b'k'; 65536],
        3..40 => format!("key {number:08}").into_bytes(),
        40..70 => format!("a key with a long prefix that it shares {number}").into_bytes(),
        70..80 => vec![0xFF; number as usize - 70],
        _ => number.to_be_bytes().to_vec(),
    }
}

/// A value that shows where it is torn.
pub fn any_value(rng: &mut SmallRng) -> Vec<u8> {
    let len = match rng.random_range(0..400) {
        0 => 5 << 20,
        1..4 => rng.random_range(1000..200_000),
        4..40 => 0,
        _ => rng.random_range(1..200),
    };
    let first: u8 = rng.random();
    (0..len)
        .map(|nth: usize| first.wrapping_add(nth.to_le_bytes()[0]))
        .collect()
}

/// No value, or a short one, which is often what a key has.
pub fn any_expected(rng: &mut SmallRng) -> Option<Vec<u8>> {
    match rng.random_range(0..4) {
        0 => None,
        1 => Some(Vec::new()),
        len => Some(vec![b'x'; len - 1]),
    }
}

fn any_request(rng: &mut SmallRng) -> Request {
    let key = any_key(rng);
    match rng.random_range(0..14) {
        0..4 => Request::Get { key },
        4..7 => Request::Put {
            key,
            value: any_value(rng),
        },
        7 => Request::Delete { key },
        8 => Request::Merge {
            key,
            operand: vec![b'x'; rng.random_range(0..3)],
        },
        9 => Request::PutIfAbsent {
            key,
            value: any_value(rng),
        },
        10..12 => Request::CompareAndSwap {
            key,
            expected: any_expected(rng),
            new: any_expected(rng),
        },
        12 => Request::Swap {
            key,
            new: rng.random_bool(0.5).then(|| any_value(rng)),
        },
        _ => Request::Merge {
            key,
            operand: [&b"fail"[..], b"panic", b"+"].choose(rng).unwrap().to_vec(),
        },
    }
}

/// What a request does to the map, and what it must be answered.
pub fn expect(model: &mut Model, request: &Request) -> Expected {
    match request {
        Request::Get { key } => return Expected::Value(model.get(key).cloned()),
        Request::Put { key, value } => {
            model.insert(key.clone(), value.clone());
        }
        Request::Delete { key } => {
            model.remove(key);
        }
        Request::Merge { operand, .. }
            if operand.starts_with(b"fail") || operand.starts_with(b"panic") =>
        {
            return Expected::Failed;
        }
        Request::Merge { key, operand } => {
            model.entry(key.clone()).or_default().extend(operand);
        }
        Request::PutIfAbsent { key, .. } if model.contains_key(key) => return Expected::Present,
        Request::PutIfAbsent { key, value } => {
            model.insert(key.clone(), value.clone());
        }
        Request::CompareAndSwap { key, expected, new } => {
            if model.get(key) != expected.as_ref() {
                return Expected::Mismatch(model.get(key).cloned());
            }
            swap(model, key, new);
        }
        Request::Swap { key, new } => return Expected::Value(swap(model, key, new)),
        other => unreachable!("{other:?}"),
    }
    Expected::Done
}

/// Gives a key what is new; gives what it had.
fn swap(model: &mut Model, key: &[u8], new: &Option<Vec<u8>>) -> Option<Vec<u8>> {
    match new {
        Some(value) => model.insert(key.to_vec(), value.clone()),
        None => model.remove(key),
    }
}

#[derive(Debug, PartialEq)]
pub enum Expected {
    Value(Option<Vec<u8>>),
    Done,
    Failed,
    Present,
    Mismatch(Option<Vec<u8>>),
}

pub fn was(response: Response) -> Expected {
    match response {
        Response::Value(value) => Expected::Value(value),
        Response::Done => Expected::Done,
        Response::Present => Expected::Present,
        Response::Mismatch(found) => Expected::Mismatch(found),
        Response::Failed(error) => {
            assert!(matches!(*error, Error::Merge { .. }), "{error}");
            Expected::Failed
        }
        other => unreachable!("{other:?}"),
    }
}

pub fn contents(store: &Store) -> Model {
    store.range(..).collect::<gphash::Result<_>>().unwrap()
}

fn any_bound(rng: &mut SmallRng) -> Bound<Vec<u8>> {
    match rng.random_range(0..4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(any_key(rng)),
        _ => Bound::Included(any_key(rng)),
    }
}

fn in_range(model: &Model, (start, end): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> VecDeque<Item> {
    let is_in = |key: &Vec<u8>| {
        let behind = match start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        let before = match end {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
        };
        behind && before
    };
    let all = model.iter().filter(|(key, _)| is_in(key));
    all.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Takes some items from both ends of an iterator; says whether it has come to its end.
fn step(range: &mut Items, expected: &mut VecDeque<Item>, rng: &mut SmallRng) -> bool {
    let mixed = rng.random_bool(0.5);
    for _ in 0..rng.random_range(0..80) {
        let from_back = mixed && rng.random_bool(0.5);
        let (found, wanted) = match from_back {
            true => (range.next_back(), expected.pop_back()),
            false => (range.next(), expected.pop_front()),
        };
        let found = found.transpose().unwrap();
        assert_eq!(
            found.as_ref().map(|item| &item.0),
            wanted.as_ref().map(|item| &item.0)
        );
        assert!(found == wanted, "other values");
        if found.is_none() {
            return true;
        }
    }
    false
}

/// Options of one opening; half of the stores have a memory budget now and then.
fn any_options(spills: bool, rng: &mut SmallRng) -> StoreOptions {
    let durability = [
        Durability::Always,
        Durability::Interval(Duration::from_millis(2)),
        Durability::None,
    ];
    let options = crate::partitioned()
        .capacity(rng.random_range(1..100))
        .durability(*durability.choose(rng).unwrap())
        .segment_bytes(rng.random_range(4096..100_000))
        .checkpoint_bytes(rng.random_range(10_000..10_000_000))
        .merge_operator(append());
    match spills && rng.random_bool(0.8) {
        true => options.memory_budget(rng.random_range(StoreOptions::MIN_BUDGET..1 << 20)),
        false => options,
    }
}

/// Reads some keys of a snapshot, and all of it, in one of the ways to do so.
fn read(snapshot: &Snapshot, seen: &Model, rng: &mut SmallRng) {
    let keys: Vec<_> = (0..rng.random_range(1..20)).map(|_| any_key(rng)).collect();
    let expected: Vec<_> = keys.iter().map(|key| seen.get(key).cloned()).collect();
    assert!(snapshot.multi_get(&keys).unwrap() == expected);
    for (key, value) in keys.iter().zip(&expected) {
        match rng.random_range(0..3) {
            0 => assert!(snapshot.get(key).unwrap() == *value),
            1 => assert_eq!(snapshot.contains_key(key).unwrap(), value.is_some()),
            _ => {
                let len = snapshot.get_with(key, <[u8]>::len).unwrap();
                assert_eq!(len, value.as_ref().map(Vec::len));
            }
        }
    }
    let (first, last) = (seen.first_key_value(), seen.last_key_value());
    let own = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    match rng.random_range(0..4) {
        0 => assert!(snapshot.first().unwrap() == first.map(own)),
        1 => assert!(snapshot.last().unwrap() == last.map(own)),
        2 => assert!(
            snapshot
                .keys(..)
                .map(Result::unwrap)
                .eq(seen.keys().cloned())
        ),
        _ => assert!(snapshot.iter().map(Result::unwrap).eq(seen.iter().map(own))),
    }
}

/// Some steps in one store.
fn live(store: &Store, model: &mut Model, spills: bool, steps: u32, rng: &mut SmallRng) {
    let mut held: Vec<(Items, VecDeque<Item>)> = Vec::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for _ in 0..steps {
        match rng.random_range(0..13) {
            0..4 => {
                let len = rng.random_range(0..60);
                let requests: Vec<Request> = (0..len).map(|_| any_request(rng)).collect();
                let expected: Vec<_> = requests.iter().map(|one| expect(model, one)).collect();
                let answers = store.execute(requests).unwrap();
                let answers: Vec<_> = answers.into_iter().map(was).collect();
                assert!(answers == expected, "other answers");
            }
            4 | 5 => {
                let request = any_request(rng);
                let expected = expect(model, &request);
                assert!(call(store, request) == expected, "another answer");
            }
            6 => {
                let keys: Vec<_> = (0..rng.random_range(0..100))
                    .map(|_| any_key(rng))
                    .collect();
                let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
                assert!(store.multi_get(&keys).unwrap() == expected);
                for (key, value) in keys.iter().zip(&expected).take(3) {
                    assert!(store.get(key).unwrap() == *value);
                    assert_eq!(store.contains_key(key).unwrap(), value.is_some());
                    let same = store.get_with(key, |found| Some(found) == value.as_deref());
                    assert_eq!(same.unwrap(), value.as_ref().map(|_| true));
                }
            }
            7 => write(store, model, rng),
            8 | 9 => {
                let limits = (any_bound(rng), any_bound(rng));
                let mut expected = in_range(model, &limits);
                let items: Items = match rng.random_bool(0.7) {
                    true => Box::new(store.range(limits)),
                    false => {
                        expected.iter_mut().for_each(|(_, value)| value.clear());
                        Box::new(store.keys(limits).map(|key| Ok((key?, Vec::new()))))
                    }
                };
                held.push((items, expected));
            }
            10 => {
                if snapshots.len() == 3 {
                    snapshots.remove(rng.random_range(0..3));
                }
                let taken = match snapshots.choose(rng) {
                    Some((snapshot, seen)) if rng.random_bool(0.3) => {
                        (snapshot.clone(), seen.clone())
                    }
                    _ => (store.snapshot(), model.clone()),
                };
                snapshots.push(taken);
            }
            11 => {
                let (start, n) = (any_key(rng), rng.random_range(0..40));
                let limits = (Bound::Included(start.clone()), Bound::Unbounded);
                let expected: Vec<_> = in_range(model, &limits).into_iter().take(n).collect();
                let found: gphash::Result<Vec<_>> = store.scan(start.clone(), n).collect();
                assert!(found.unwrap() == expected);
                let found: gphash::Result<Vec<_>> = store.prefix(start.clone()).collect();
                let all = model.iter().filter(|(key, _)| key.starts_with(&start));
                assert!(
                    found
                        .unwrap()
                        .iter()
                        .map(|(key, value)| (key, value))
                        .eq(all)
                );
            }
            _ => match rng.random_range(0..3) {
                0 => store.flush().unwrap(),
                1 => store.checkpoint().unwrap(),
                _ if spills => assert!(store.stats().keys >= model.len() as u64),
                _ => assert_eq!(store.stats().keys, model.len() as u64),
            },
        }
        if let Some((snapshot, seen)) = snapshots.choose(rng)
            && rng.random_bool(0.5)
        {
            read(snapshot, seen, rng);
        }
        if let Some(nth) = (0..held.len()).collect::<Vec<_>>().choose(rng) {
            let (range, expected) = &mut held[*nth];
            if step(range, expected, rng) {
                held.remove(*nth);
            }
        }
    }
}

/// Whether a batch of changes has a verb for it.
fn has_verb(request: &Request) -> bool {
    use Request::{Delete, Get, Merge, Put};
    matches!(
        request,
        Get { .. } | Put { .. } | Delete { .. } | Merge { .. }
    )
}

/// One request by the verb of its own.
fn call(store: &Store, request: Request) -> Expected {
    match request {
        Request::Get { key } => Expected::Value(store.get(&key).unwrap()),
        Request::Put { key, value } => done(store.put(key, value)),
        Request::Delete { key } => done(store.delete(key)),
        Request::Merge { key, operand } => done(store.merge(key, operand)),
        Request::PutIfAbsent { key, value } => match store.put_if_absent(key, value).unwrap() {
            true => Expected::Done,
            false => Expected::Present,
        },
        Request::CompareAndSwap { key, expected, new } => {
            let swapped = store.compare_and_swap(key, expected.as_deref(), new.as_deref());
            match swapped.unwrap() {
                Ok(()) => Expected::Done,
                Err(found) => Expected::Mismatch(found),
            }
        }
        Request::Swap { key, new: None } => Expected::Value(store.take(key).unwrap()),
        Request::Swap { key, new } => Expected::Value(store.swap(key, new.unwrap()).unwrap()),
        other => unreachable!("{other:?}"),
    }
}

fn done(outcome: gphash::Result<()>) -> Expected {
    match outcome {
        Ok(()) => Expected::Done,
        Err(error) => was(Response::Failed(Box::new(error))),
    }
}

/// A batch of changes, which fails as a whole if one of its merges does.
fn write(store: &Store, model: &mut Model, rng: &mut SmallRng) {
    let mut batch = WriteBatch::new();
    let mut after = model.clone();
    let mut fails = false;
    for _ in 0..rng.random_range(0..20) {
        let request = any_request(rng);
        if !has_verb(&request) {
            continue;
        }
        fails |= expect(&mut after, &request) == Expected::Failed;
        match request {
            Request::Get { .. } => {}
            Request::Put { key, value } => batch.put(key, value),
            Request::Delete { key } => batch.delete(key),
            Request::Merge { key, operand } => batch.merge(key, operand),
            other => unreachable!("{other:?}"),
        }
    }
    match store.write(batch) {
        Ok(()) => {
            assert!(!fails);
            *model = after;
        }
        Err(error) => assert!(fails && matches!(error, Error::Merge { .. }), "{error}"),
    }
}

fn random_store(folder: &Path, spills: bool, rng: &mut SmallRng) {
    let mut model = Model::new();
    let mut path = folder.join("store");
    for life in 0..6 {
        let end = rng.random_range(0..3);
        // A copy beside a checkpoint, or while items leave, would be a mixture of before and after.
        let mut options = any_options(spills && end != 2, rng);
        if end == 2 {
            options = options.checkpoint_bytes(u64::MAX);
        }
        let store = Store::open(&path, &options).unwrap();
        let found = contents(&store);
        assert!(found == model, "{} items of {}", found.len(), model.len());
        live(&store, &mut model, spills, rng.random_range(0..60), rng);
        match end {
            0 => store.close().unwrap(),
            1 => drop(store),
            _ => {
                // What the death of the process would leave.
                let left = folder.join(format!("life {life}"));
                copy(&path, &left);
                drop(store);
                path = left;
            }
        }
    }
}

#[test]
fn random_requests() {
    let seed = seed();
    for (nth, folder) in (0..).zip(folders()) {
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(nth));
        for round in 0..4 {
            let folder = folder.path().join(round.to_string());
            std::fs::create_dir(&folder).unwrap();
            random_store(&folder, round % 2 == 1, &mut rng);
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
}
