//! Calls that fail now and then, also those of the thread that preallocates room.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::pm::Faults;
use crate::{Engine, Error};

/// So large that room is preallocated for some hundred of them.
type Large = [u64; 8192];

/// Fails one call in four.
#[derive(Debug)]
struct Flaky {
    rng: Mutex<SmallRng>,
    cured: AtomicBool,
}

impl Faults for Flaky {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        let mut rng = self.rng.lock().unwrap();
        if self.cured.load(Ordering::Relaxed) || rng.random_range(0..4) != 0 {
            return Ok(());
        }
        let code = [libc::ENOSPC, libc::EIO][rng.random_range(0..2)];
        Err(io::Error::from_raw_os_error(code))
    }

    fn most_bytes(&self) -> usize {
        1 << 20
    }
}

fn large(key: u64, version: u64) -> Large {
    std::array::from_fn(|i| match i {
        0 => version,
        _ => key.wrapping_mul(version) + i as u64,
    })
}

fn contents(index: &Index<u64, Large>) -> Model {
    let mut found = Model::new();
    for (key, held) in index.iter() {
        assert!(held == large(key, held[0]), "key {key} is torn");
        assert_eq!(found.insert(key, held[0]), None, "key {key} is there twice");
    }
    assert_eq!(index.len(), found.len() as u64);
    found
}

#[test]
fn flaky_calls_lose_nothing() {
    let seed = seed();
    for test_dir in TestDir::all().iter().filter(|test_dir| !test_dir.is_slow()) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let flaky = Arc::new(Flaky {
            rng: Mutex::new(SmallRng::seed_from_u64(rng.random())),
            cured: AtomicBool::new(true),
        });
        let options = Options::new()
            .engine(Engine::Cpu)
            .domain(test_dir.domain)
            .capacity(1)
            .faults(flaky.clone());
        let index = Index::<u64, Large>::create(test_dir.path(), &options).unwrap();
        flaky.cured.store(false, Ordering::Relaxed);
        let mut model = Model::new();
        let mut failures = 0;
        for version in 1..120 {
            let first = rng.random_range(0..400);
            let keys: Vec<u64> = (first..first + rng.random_range(1..20)).collect();
            let values: Vec<Large> = keys.iter().map(|&key| large(key, version)).collect();
            let (removes, syncs) = (rng.random_range(0..8) == 0, rng.random_range(0..8) == 0);
            let done = match () {
                () if syncs => index.sync(),
                () if removes => index.remove(&keys).map(drop),
                () => index.upsert(&keys, &values).map(drop),
            };
            let mut after = model.clone();
            if removes && !syncs {
                after.retain(|key, _| !keys.contains(key));
            } else if !syncs {
                after.extend(keys.iter().map(|&key| (key, version)));
            }
            let found = contents(&index);
            match done {
                Ok(()) => assert!(found == after),
                Err(Error::NoSpace { .. } | Error::Io { .. }) => {
                    failures += 1;
                    for key in 0..420 {
                        let version = found.get(&key);
                        assert!(version == model.get(&key) || version == after.get(&key));
                    }
                }
                Err(error) => panic!("{error}"),
            }
            model = found;
        }
        assert!(failures > 0);
        flaky.cured.store(true, Ordering::Relaxed);
        index.close().unwrap();
        let index = Index::<u64, Large>::open(test_dir.path(), &options).unwrap();
        assert!(contents(&index) == model);
    }
}
