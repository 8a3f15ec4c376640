//! A process under load is killed at random moments; the file it leaves must hold what it was
//! told has been done.
//!
//! The test binary runs itself as the child. `GPHASH_KILL_ROUNDS` says how often it is killed in
//! each domain, `GPHASH_KILL_WORKERS` how many children at a time, `GPHASH_TEST_ENGINE` with which
//! engine (`cpu` by default, or `cuda`).

mod child;
mod log;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gphash::{Domain, Engine, Index, Options};
use gphash_test_support::process::{kill, wait_for_file};
use gphash_test_support::setting;
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

/// How long a child may work at most before it is killed, once others have got nothing done in less.
const LONGEST_MS: u64 = 20_000;

/// Further rounds at most, while the kills have not met what they have to.
const MORE_ROUNDS: u64 = 100;

/// The value of a key: its version, and words that go with no other key and version.
fn value(key: u64, version: u64) -> Value {
    std::array::from_fn(|i| match i {
        0 => version,
        _ => (key ^ version.rotate_left(u32::try_from(i).unwrap()))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15),
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
    let engine = setting("GPHASH_TEST_ENGINE").unwrap_or(Engine::Cpu);
    Options::new().engine(engine).domain(domain).capacity(16)
}

#[test]
fn kill_in_shared_memory_loses_nothing_acknowledged() {
    if !Path::new("/dev/shm").is_dir() {
        println!("skipped: no /dev/shm here");
        return;
    }
    let tally = kill_repeatedly(Path::new("/dev/shm"), Domain::Shared, 12);
    assert!(tally.has_met_enough(Domain::Shared), "{tally:?}");
}

#[test]
fn kill_leaves_one_checkpoint_or_the_next() {
    let tally = kill_repeatedly(&std::env::temp_dir(), Domain::Checkpointed, 40);
    assert!(tally.has_met_enough(Domain::Checkpointed), "{tally:?}");
}

/// What the kills have met.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    before_the_work: u64,
    acknowledged: u64,
    in_flight: u64,
    in_flight_done: u64,
    checkpoints: u64,
    next_checkpoint_stood: u64,
    recoveries: u64,
    resizes_resumed: u64,
    journals_left: u64,
    most_items: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.before_the_work += other.before_the_work;
        self.acknowledged += other.acknowledged;
        self.in_flight += other.in_flight;
        self.in_flight_done += other.in_flight_done;
        self.checkpoints += other.checkpoints;
        self.next_checkpoint_stood += other.next_checkpoint_stood;
        self.recoveries += other.recoveries;
        self.resizes_resumed += other.resizes_resumed;
        self.journals_left += other.journals_left;
        self.most_items = self.most_items.max(other.most_items);
    }

    /// Whether the kills have met what they are for.
    fn has_met_enough(&self, domain: Domain) -> bool {
        match domain {
            Domain::Checkpointed => self.checkpoints > 0,
            _ => self.acknowledged > 0 && self.in_flight > 0,
        }
    }
}

/// The domains one after the other, so that each has the machine's cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn kill_repeatedly(place: &Path, domain: Domain, longest_ms: u64) -> Tally {
    let _alone = ONE_AT_A_TIME.lock();
    let seed = setting("GPHASH_TEST_SEED").unwrap_or_else(rand::random::<u64>);
    println!("GPHASH_TEST_SEED={seed}");
    let rounds = setting("GPHASH_KILL_ROUNDS").unwrap_or(60);
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let workers = setting("GPHASH_KILL_WORKERS").unwrap_or(cores.div_ceil(THREADS));
    let begun = AtomicU64::new(0);
    let is_enough = AtomicBool::new(false);
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let run = |worker| {
            let rng = SmallRng::seed_from_u64(seed.wrapping_add(worker));
            let mut kills = Kills::new(place, domain, longest_ms, rng);
            loop {
                let round = begun.fetch_add(1, Ordering::Relaxed);
                let most = match is_enough.load(Ordering::Relaxed) {
                    true => rounds,
                    false => rounds + MORE_ROUNDS,
                };
                if round >= most {
                    return kills.tally;
                }
                kills.round();
                if kills.tally.has_met_enough(domain) {
                    is_enough.store(true, Ordering::Relaxed);
                }
            }
        };
        let workers: Vec<_> = (0..workers)
            .map(|nth| scope.spawn(move || run(nth)))
            .collect();
        for worker in workers {
            tally.add(worker.join().expect("a worker has failed"));
        }
    });
    println!("{tally:?}");
    tally
}

/// One child after the other on a file, and what the file must hold.
struct Kills<'p> {
    place: &'p Path,
    domain: Domain,
    longest_ms: u64,
    rng: SmallRng,
    file: Option<(TempDir, HashMap<u64, u64>)>,
    tally: Tally,
}

impl<'p> Kills<'p> {
    fn new(place: &'p Path, domain: Domain, longest_ms: u64, rng: SmallRng) -> Self {
        Self {
            place,
            domain,
            longest_ms,
            rng,
            file: None,
            tally: Tally::default(),
        }
    }

    fn round(&mut self) {
        if self.tally.kills.is_multiple_of(KILLS_A_FILE) {
            self.file = None;
        }
        let (folder, held) = self.file.take().unwrap_or_else(|| {
            let folder = TempDir::new_in(self.place).unwrap();
            let made = Index::<u64, Value>::create(folder.path().join(FILE), &options(self.domain));
            made.unwrap().close().unwrap();
            (folder, HashMap::new())
        });
        // Now and then while it opens the file, which may mean amid its recovery.
        let at_work = self.rng.random_range(0..4) != 0;
        let longest = if at_work {
            self.longest_ms * 1000
        } else {
            3000
        };
        let delay = Duration::from_micros(self.rng.random_range(0..longest));
        let met = self.tally.acknowledged + self.tally.checkpoints;
        run_and_kill(
            folder.path(),
            self.domain,
            at_work,
            self.rng.random(),
            delay,
        );
        self.tally.kills += 1;
        self.tally.before_the_work += u64::from(!folder.path().join(child::AT_WORK).exists());
        let held = if self.rng.random() {
            check(folder.path(), self.domain, &held, &mut self.tally)
        } else {
            // The child goes on with the file as the kill has left it.
            let copy = copy_of(folder.path(), self.place);
            check(copy.path(), self.domain, &held, &mut self.tally)
        };
        if at_work && self.tally.acknowledged + self.tally.checkpoints == met {
            // On a busy machine or a slow disk the work takes longer.
            self.longest_ms = (2 * self.longest_ms).min(LONGEST_MS);
        }
        for entry in fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_name().to_string_lossy().starts_with(FILE) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        self.file = Some((folder, held));
    }
}

fn copy_of(folder: &Path, place: &Path) -> TempDir {
    let copy = TempDir::new_in(place).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// Runs the child on the file in `folder` and kills it `delay` after it has begun: its work, or to
/// open the file.
fn run_and_kill(folder: &Path, domain: Domain, at_work: bool, reopens: bool, delay: Duration) {
    let is_checkpointed = domain == Domain::Checkpointed;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", child::TEST, "--nocapture"])
        .env(child::FOLDER, folder)
        .env(child::REOPENS, u8::from(reopens).to_string())
        .env(child::CHECKPOINTED, u8::from(is_checkpointed).to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let sign = if at_work {
        child::AT_WORK
    } else {
        child::OPENS
    };
    wait_for_file(&mut child, &folder.join(sign));
    thread::sleep(delay);
    kill(&mut child);
}

/// Opens the file after a kill and compares it with the logs; gives the versions in it.
fn check(
    folder: &Path,
    domain: Domain,
    before: &HashMap<u64, u64>,
    tally: &mut Tally,
) -> HashMap<u64, u64> {
    let journal = fs::metadata(folder.join(FILE).with_extension("journal"));
    tally.journals_left += u64::from(journal.is_ok_and(|journal| journal.len() > 0));
    let index = Index::open(folder.join(FILE), &options(domain)).unwrap();
    let found = contents(&index);
    let threads: Vec<Vec<Entry>> = (0..THREADS)
        .map(|thread| log::read(&folder.join(thread.to_string())))
        .collect();
    if index.stats().domain == Domain::Checkpointed {
        check_checkpoint(folder, &threads, before, &found, tally);
    } else {
        check_acknowledged(&threads, before, &found, tally);
    }
    tally.recoveries += u64::from(!index.recovery().clean);
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
    let checkpoints = log::read(&folder.join(child::AT_WORK));
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
