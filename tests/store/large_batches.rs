//! Batches so long that several threads execute them, and a GPU sorts their versions if there is one,
//! against a sorted map.

use std::fs;
use std::path::Path;

use gphash::store::{Request, Store};
use gphash::{Engine, Error};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::disk::{copy, folders};
use super::model::{Model, any_expected, contents, expect, was};
use super::{append, seed};

/// A value that can be longer than a block of a record of the log.
fn any_value(rng: &mut SmallRng) -> Vec<u8> {
    let len = match rng.random_range(0..3000) {
        0 => 3 << 20,
        _ => rng.random_range(0..4000),
    };
    vec![rng.random(); len]
}

/// A request for one of some thousand keys; a third is for three of them.
fn any_request(rng: &mut SmallRng) -> Request {
    let number = match rng.random_range(0..3) {
        0 => rng.random_range(0..3),
        _ => rng.random_range(0..5000),
    };
    let key = format!("key {number}").into_bytes();
    match rng.random_range(0..11) {
        8 => Request::PutIfAbsent {
            key,
            value: any_value(rng),
        },
        9 => Request::CompareAndSwap {
            key,
            expected: any_expected(rng),
            new: any_expected(rng),
        },
        10 => Request::Swap {
            key,
            new: any_expected(rng),
        },
        0..4 => Request::Get { key },
        4..6 => Request::Put {
            key,
            value: any_value(rng),
        },
        6 => Request::Delete { key },
        _ => Request::Merge {
            key,
            operand: match rng.random_range(0..20) {
                0 => b"fail".to_vec(),
                _ => vec![b'x'; rng.random_range(0..3)],
            },
        },
    }
}

/// Whether a store gets a GPU if it asks for one.
fn has_gpu(folder: &Path) -> bool {
    let path = folder.join("asked");
    let options = crate::partitioned().engine(Engine::Cuda { device: 0 });
    let opened = Store::open(&path, &options);
    let _ = fs::remove_dir_all(&path);
    match opened {
        Ok(_) => true,
        Err(Error::Gpu { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn large_batch_equals_its_requests_in_order() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for folder in folders() {
        let gpu = Engine::Cuda { device: 0 };
        let mut engines = vec![("cpu", Engine::Cpu), ("auto", Engine::Auto)];
        engines.extend(has_gpu(folder.path()).then_some(("cuda", gpu)));
        for (name, engine) in engines {
            let path = folder.path().join(name);
            let options = crate::partitioned()
                .capacity(5000)
                .checkpoint_bytes(u64::MAX)
                .engine(engine)
                .merge_operator(append());
            let store = Store::open(&path, &options).unwrap();
            let mut model = Model::new();
            // The second one is written to the log block by block.
            for len in [10_000, 60_000] {
                let requests: Vec<Request> = (0..len).map(|_| any_request(&mut rng)).collect();
                let expected: Vec<_> = requests
                    .iter()
                    .map(|request| expect(&mut model, request))
                    .collect();
                let answers = store.execute(requests).unwrap();
                for (nth, (answer, expected)) in answers.into_iter().zip(expected).enumerate() {
                    assert_eq!(was(answer), expected, "answer {nth} of {len}");
                }
            }
            assert!(contents(&store) == model);
            // `Auto` may have opened one by now.
            let is_of_gpu = store.stats().gpu_batches > 0;
            assert!(is_of_gpu == (engine == gpu) || engine == Engine::Auto);
            let killed = folder.path().join("killed");
            copy(&path, &killed);
            drop(store);
            let store = Store::open(&killed, &options).unwrap();
            assert!(contents(&store) == model);
            drop(store);
            fs::remove_dir_all(&killed).unwrap();
        }
    }
}
