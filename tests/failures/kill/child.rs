//! The process that is killed: several threads that change keys of their own.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use gphash::{Domain, Index};
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::log::Log;
use crate::{FILE, THREADS, Value, key, options, owner, value};

/// Where the file is; tells the test binary that it is the child.
pub const FOLDER: &str = "GPHASH_KILL_CHILD";

/// Whether it closes and opens the file between its phases.
pub const REOPENS: &str = "GPHASH_KILL_REOPENS";

/// Whether it opens the file as one on a disk, wherever that is.
pub const CHECKPOINTED: &str = "GPHASH_KILL_CHECKPOINTED";

/// File that says that the child is about to open the index.
pub const OPENS: &str = "opens";

/// Log of the checkpoints, which says that the load begins.
pub const AT_WORK: &str = "checkpoints";

/// Name of the test that is the child.
pub const TEST: &str = "child::child_works_until_it_is_killed";

/// Keys of each thread.
const KEYS: u64 = 4096;

/// Batches of each thread in a phase, and most operations in a batch.
const PHASE: (usize, u64) = (8, 64);

/// After that long the parent is not there any more.
const LIFE: Duration = Duration::from_secs(300);

#[test]
fn child_works_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let reopens = std::env::var(REOPENS).is_ok_and(|reopens| reopens == "1");
    let is_checkpointed = std::env::var(CHECKPOINTED).is_ok_and(|is| is == "1");
    let domain = match is_checkpointed {
        true => Domain::Checkpointed,
        false => Domain::Auto,
    };
    File::create(folder.join(OPENS)).unwrap();
    let path = folder.join(FILE);
    let mut index = Index::<u64, Value>::open(&path, &options(domain)).unwrap();
    let mut held: Vec<HashMap<u64, u64>> = vec![HashMap::new(); usize::try_from(THREADS).unwrap()];
    for (key, value) in index.iter() {
        held[usize::try_from(owner(key)).unwrap()].insert(key, value[0]);
    }
    let mut logs: Vec<Log> = (0..THREADS)
        .map(|thread| Log::create(&folder.join(thread.to_string())))
        .collect();
    let mut checkpoints = Log::create(&folder.join(AT_WORK));
    let started = Instant::now();
    for phase in 1.. {
        assert!(started.elapsed() < LIFE, "nobody killed the child");
        thread::scope(|scope| {
            for (thread, (held, log)) in held.iter_mut().zip(&mut logs).enumerate() {
                let index = &index;
                scope.spawn(move || {
                    if thread == 0 {
                        // So that the table grows while it is still small.
                        index.reserve(index.len()).unwrap();
                    }
                    let mut rng: SmallRng = rand::make_rng();
                    for _ in 0..PHASE.0 {
                        batch(index, thread as u64, phase, held, log, &mut rng);
                    }
                });
            }
        });
        checkpoints.begin(phase, &[]);
        if reopens {
            index.close().unwrap();
            checkpoints.end();
            index = Index::open(&path, &options(domain)).unwrap();
        } else {
            index.sync().unwrap();
            checkpoints.end();
        }
    }
}

/// One batch of random keys and a random verb, whose answers must be those that `held` tells.
fn batch(
    index: &Index<u64, Value>,
    thread: u64,
    phase: u64,
    held: &mut HashMap<u64, u64>,
    log: &mut Log,
    rng: &mut SmallRng,
) {
    let mut keys: Vec<u64> = (0..rng.random_range(1..=PHASE.1))
        .map(|_| key(thread, rng.random_range(0..KEYS)))
        .collect();
    keys.sort_unstable();
    // With a key twice in a batch, the states that a kill may leave would be more than two.
    keys.dedup();
    let versions: Vec<u64> = keys.iter().map(|_| rng.random_range(1..u64::MAX)).collect();
    let values: Vec<Value> = keys
        .iter()
        .zip(&versions)
        .map(|(&key, &version)| value(key, version))
        .collect();
    let is_held: Vec<bool> = keys.iter().map(|key| held.contains_key(key)).collect();
    let verb = rng.random_range(0..8);
    let (changes_held, changes_absent) = match verb {
        0..=2 => (false, true),
        3..=4 => (true, true),
        _ => (true, false),
    };
    let changes: Vec<(u64, u64)> = (0..keys.len())
        .filter(|&i| {
            if is_held[i] {
                changes_held
            } else {
                changes_absent
            }
        })
        .map(|i| (keys[i], if verb < 6 { versions[i] } else { 0 }))
        .collect();

    log.begin(phase, &changes);
    let answers = match verb {
        0..=2 => index.insert(&keys, &values),
        3..=4 => index.upsert(&keys, &values),
        5 => index.update(&keys, &values),
        _ => index.remove(&keys),
    }
    .unwrap();
    log.end();

    for (i, key) in keys.iter().enumerate() {
        let expected = if verb < 5 { !is_held[i] } else { is_held[i] };
        assert_eq!(answers.contains(i), expected, "verb {verb} of key {key}");
    }
    for (key, version) in changes {
        match version {
            0 => held.remove(&key),
            version => held.insert(key, version),
        };
    }
}
