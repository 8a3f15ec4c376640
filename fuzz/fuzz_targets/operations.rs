//! Arbitrary batches against a `HashMap`, with closes and opens between them.

#![no_main]

use std::collections::HashMap;
use std::path::Path;

use arbitrary::Arbitrary;
use gphash::{Engine, Error, Index, Options};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

type Table = Index<u64, u64>;

#[derive(Arbitrary, Debug)]
enum Operation {
    Insert(Vec<u8>, u64),
    Upsert(Vec<u8>, u64),
    Update(Vec<u8>, u64),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    /// A run of new keys, so that the table grows.
    Fill(u8),
    Reserve(u16),
    Reopen,
}

#[derive(Arbitrary, Debug)]
struct Input {
    small: bool,
    operations: Vec<Operation>,
}

fn keys(numbers: &[u8]) -> Vec<u64> {
    let key = |&number| {
        if number == 255 {
            u64::MAX
        } else {
            u64::from(number)
        }
    };
    numbers.iter().map(key).collect()
}

fuzz_target!(|input: Input| {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    }
    .unwrap();
    let path = folder.path().join("index");
    let shape = if input.small { (1, 1, 2) } else { (2, 2, 8) };
    let options = Options::new()
        .engine(Engine::Cpu)
        .capacity(1)
        .shape(shape.0, shape.1, shape.2);
    let mut index = Table::create(&path, &options).unwrap();
    let mut model: HashMap<u64, u64> = HashMap::new();
    let mut fresh = 1 << 32;
    for operation in input.operations {
        match operation {
            Operation::Insert(numbers, value) => {
                let keys = keys(&numbers);
                let answers = index.insert(&keys, &vec![value; keys.len()]).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(answers.contains(i), !model.contains_key(key));
                    model.entry(*key).or_insert(value);
                }
            }
            Operation::Upsert(numbers, value) => {
                let keys = keys(&numbers);
                let answers = index.upsert(&keys, &vec![value; keys.len()]).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(answers.contains(i), model.insert(*key, value).is_none());
                }
            }
            Operation::Update(numbers, value) => {
                let keys = keys(&numbers);
                let answers = index.update(&keys, &vec![value; keys.len()]).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    let held = model.get_mut(key).map(|held| *held = value);
                    assert_eq!(answers.contains(i), held.is_some());
                }
            }
            Operation::Remove(numbers) => {
                let keys = keys(&numbers);
                let answers = index.remove(&keys).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(answers.contains(i), model.remove(key).is_some());
                }
            }
            Operation::Get(numbers) => {
                let keys = keys(&numbers);
                let mut values = vec![0; keys.len()];
                let answers = index.get(&keys, &mut values).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(
                        answers.contains(i).then_some(values[i]),
                        model.get(key).copied()
                    );
                }
            }
            Operation::Fill(count) => {
                let keys: Vec<u64> = (fresh..fresh + u64::from(count)).collect();
                fresh += u64::from(count);
                assert_eq!(
                    index.insert(&keys, &keys).unwrap().count_ones(..),
                    keys.len()
                );
                model.extend(keys.iter().map(|&key| (key, key)));
            }
            // A table of two slots a bucket may find no places above for what it moves.
            Operation::Reserve(count) => match index.reserve(u64::from(count)) {
                Ok(()) | Err(Error::Limit { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Operation::Reopen => {
                index.close().unwrap();
                index = Table::open(&path, &options).unwrap();
                assert!(index.recovery().clean);
            }
        }
    }
    assert_eq!(index.len(), model.len() as u64);
    assert_eq!(index.iter().collect::<HashMap<_, _>>(), model);
});
