//! A process under load is killed at random moments; the file it leaves must hold what it was
//! told has been done.
//!
//! The test binary runs itself as the child. `GPHASH_KILL_ROUNDS` says how often it is killed,
//! `GPHASH_TEST_ENGINE` with which engine (`cpu` by default, or `cuda`).

mod child;
mod log;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use gphash::{Domain, Engine, Index, Options};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use log::Entry;

/// Large enough that a record which is torn is seen to be.
type Value = [u64; 16];

const FILE: &str = "index";
const THREADS: u64 = 4;

/// Kills after which a new file begins, so that growth is always under the load.
const KILLS_A_FILE: u64 = 8;

/// The value of a key: its version, and words that go with no other key and version.
fn value(key: u64, version: u64) -> Value {
    std::array::from_fn(|i| match i {
        0 => version,
        _ => (key ^ version.rotate_left(i as u32)).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    })
}

/// Key `n` of a thread; the two that equal slot states are among them.
fn key(thread: u64, n: u64) -> u64 {
    match n * THREADS + thread {
        1 => u64::MAX,
        key => key,
    }
}

/// The thread that changes a key.
fn owner(key: u64) -> u64 {
    if key == u64::MAX { 1 } else { key % THREADS }
}

fn options(domain: Domain) -> Options {
    let engine = match std::env::var("GPHASH_TEST_ENGINE") {
        Ok(name) => name.parse().expect("GPHASH_TEST_ENGINE"),
        Err(_) => Engine::Cpu,
    };
    Options::new().engine(engine).domain(domain).capacity(16)
}

fn rounds() -> u64 {
    match std::env::var("GPHASH_KILL_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("GPHASH_KILL_ROUNDS"),
        Err(_) => 60,
    }
}

#[test]
fn what_was_acknowledged_outlives_the_process_in_shared_memory() {
    if !Path::new("/dev/shm").is_dir() {
        println!("skipped: no /dev/shm here");
        return;
    }
    let tally = kill_repeatedly(Path::new("/dev/shm"), Domain::Shared, 30);
    println!("{tally:?}");
    assert!(tally.acknowledged > 0 && tally.in_flight > 0, "{tally:?}");
}

#[test]
fn one_checkpoint_or_the_next_outlives_the_process() {
    let tally = kill_repeatedly(&std::env::temp_dir(), Domain::Checkpointed, 100);
    println!("{tally:?}");
    assert!(tally.checkpoints > 0, "{tally:?}");
}

/// What the kills have met.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    kills_while_opening: u64,
    acknowledged: u64,
    in_flight: u64,
    in_flight_done: u64,
    checkpoints: u64,
    next_checkpoint_stood: u64,
    resizes_resumed: u64,
    most_items: u64,
}

/// A child that one test starts holds, until it runs its own program, the lock of any file that
/// another test has open.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn kill_repeatedly(place: &Path, domain: Domain, longest_ms: u64) -> Tally {
    let _alone = ONE_AT_A_TIME.lock();
    let seed = std::env::var("GPHASH_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random::<u64>);
    println!("GPHASH_TEST_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut file = None;
    for round in 0..rounds() {
        if round % KILLS_A_FILE == 0 {
            file = None;
        }
        let (folder, held) = file.get_or_insert_with(|| {
            let folder = TempDir::new_in(place).unwrap();
            let made = Index::<u64, Value>::create(folder.path().join(FILE), &options(domain));
            made.unwrap().close().unwrap();
            (folder, HashMap::new())
        });
        // Now and then before it has opened the file, which may mean amid its recovery.
        let at_work = rng.random_range(0..6) != 0;
        let delay = Duration::from_micros(rng.random_range(1000..longest_ms * 1000));
        run_and_kill(folder.path(), at_work, delay);
        tally.kills += 1;
        tally.kills_while_opening += u64::from(!at_work);
        *held = if rng.random() {
            check(folder.path(), held, &mut tally)
        } else {
            // The child goes on with the file as the kill has left it.
            let copy = copy_of(folder.path(), place);
            check(copy.path(), held, &mut tally)
        };
        for entry in fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if !path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(FILE)
            {
                fs::remove_file(path).unwrap();
            }
        }
    }
    tally
}

fn copy_of(folder: &Path, place: &Path) -> TempDir {
    let copy = TempDir::new_in(place).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// Runs the child on the file in `folder` and kills it `delay` after it has begun: its work, or
/// itself.
fn run_and_kill(folder: &Path, at_work: bool, delay: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", child::TEST, "--nocapture"])
        .env(child::FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while at_work && !folder.join("checkpoints").exists() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the child did not begin: {ended:?}");
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "the child does not begin"
        );
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(delay);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        status.signal(),
        Some(9),
        "the child ended by itself: {status}"
    );
}

/// Opens the file after a kill and compares it with the logs; gives the versions in it.
fn check(folder: &Path, before: &HashMap<u64, u64>, tally: &mut Tally) -> HashMap<u64, u64> {
    let index = Index::<u64, Value>::open(folder.join(FILE), &options(Domain::Auto)).unwrap();
    let found = contents(&index);
    let threads: Vec<Vec<Entry>> = (0..THREADS)
        .map(|thread| log::read(&folder.join(thread.to_string())))
        .collect();
    if index.stats().domain == Domain::Checkpointed {
        check_checkpoint(folder, &threads, before, &found, tally);
    } else {
        check_acknowledged(&threads, before, &found, tally);
    }
    tally.resizes_resumed += u64::from(index.recovery().resize_resumed);
    tally.most_items = tally.most_items.max(index.len());
    check_usable(&index, found.len() as u64);
    index.close().unwrap();
    found
}

/// The versions of all keys, once it is sure that every value is whole.
fn contents(index: &Index<u64, Value>) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    for (key, held) in index.iter() {
        assert_eq!(
            held,
            value(key, held[0]),
            "key {key} has a value that nobody stored"
        );
        assert_eq!(found.insert(key, held[0]), None, "key {key} is there twice");
    }
    assert_eq!(index.len(), found.len() as u64);
    let keys: Vec<u64> = found.keys().copied().collect();
    let mut values = vec![[0; 16]; keys.len()];
    assert_eq!(
        index.get(&keys, &mut values).unwrap().count_ones(..),
        keys.len()
    );
    for (key, held) in keys.iter().zip(&values) {
        assert_eq!(held[0], found[key], "key {key}");
    }
    found
}

fn check_acknowledged(
    threads: &[Vec<Entry>],
    before: &HashMap<u64, u64>,
    found: &HashMap<u64, u64>,
    tally: &mut Tally,
) {
    let mut expected = before.clone();
    let mut in_flight = HashMap::new();
    for entry in threads.iter().flatten() {
        if entry.done {
            apply(entry, &mut expected);
            tally.acknowledged += entry.changes.len() as u64;
        } else {
            in_flight.extend(entry.changes.iter().copied());
        }
    }
    tally.in_flight += in_flight.len() as u64;
    let keys: HashSet<u64> = found.keys().chain(expected.keys()).copied().collect();
    for key in keys {
        let version = found.get(&key).copied().unwrap_or(0);
        let acknowledged = expected.get(&key).copied().unwrap_or(0);
        let done = version != acknowledged;
        tally.in_flight_done += u64::from(done);
        assert!(
            !done || in_flight.get(&key) == Some(&version),
            "key {key} has version {version}; acknowledged is {acknowledged}, in flight {:?}",
            in_flight.get(&key)
        );
    }
}

fn check_checkpoint(
    folder: &Path,
    threads: &[Vec<Entry>],
    before: &HashMap<u64, u64>,
    found: &HashMap<u64, u64>,
    tally: &mut Tally,
) {
    let checkpoints = log::read(&folder.join("checkpoints"));
    let state_at = |phase: u64| {
        let mut state = before.clone();
        for entry in threads
            .iter()
            .flatten()
            .filter(|entry| entry.phase <= phase)
        {
            assert!(entry.done);
            apply(entry, &mut state);
        }
        state
    };
    let done = checkpoints.iter().filter(|entry| entry.done).count() as u64;
    tally.checkpoints += done;
    if state_at(done) == *found {
        return;
    }
    let begun = checkpoints.len() as u64;
    assert!(
        begun > done && state_at(begun) == *found,
        "{} items are neither checkpoint {done} nor, of {begun} begun, the next",
        found.len()
    );
    tally.next_checkpoint_stood += 1;
}

fn apply(entry: &Entry, state: &mut HashMap<u64, u64>) {
    for &(key, version) in &entry.changes {
        match version {
            0 => state.remove(&key),
            version => state.insert(key, version),
        };
    }
}

fn check_usable(index: &Index<u64, Value>, items: u64) {
    let keys: Vec<u64> = (1 << 40..(1 << 40) + 100).collect();
    let values: Vec<Value> = keys.iter().map(|&key| value(key, 1)).collect();
    assert_eq!(index.insert(&keys, &values).unwrap().count_ones(..), 100);
    assert_eq!(index.upsert(&keys, &values).unwrap().count_ones(..), 0);
    assert_eq!(index.remove(&keys).unwrap().count_ones(..), 100);
    assert_eq!(index.len(), items);
}
