//! A process that is killed while a kernel of its runs. No store is noted or left out here: the kernels
//! are those of the crate, and so large are the batches that most of their time goes by inside them.
//!
//! Each batch goes to the device in one part and finds its slots and records there, so all of its stores
//! are those of one launch. If some of its operations have been done and others not, the kill has fallen
//! into that launch.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gphash::{AddressOrder, Engine, Index, Options};
use gphash_test_support::process::kill;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::check::{Allowed, Model, Value, check};
use crate::emulator::{self, Emulator};
use crate::{FOLDER, device, setting};

/// Large enough that storing them takes longer than finding their places.
type Bytes = [u8; 1024];

/// Kills of a run that was not told how many.
const ROUNDS: u64 = 16;

/// Where the file is; tells the test binary that it is the child.
const CHILD: &str = "GPHASH_KERNEL_CRASH_CHILD";

/// The verb of its batch, and the version that it stores.
const VERB: &str = "GPHASH_KERNEL_CRASH_VERB";
const VERSION: &str = "GPHASH_KERNEL_CRASH_VERSION";

const TEST: &str = "killed::child_executes_one_batch";

/// Files that the child makes before its batch and after it.
const BEGUN: &str = "begun";
const ANSWERED: &str = "answered";

/// Operations of a batch: as many as keep the device busy for milliseconds, and go to it in one part.
fn operations(is_emulated: bool) -> u64 {
    if is_emulated { 8192 } else { 60_000 }
}

fn options(engine: Engine, operations: u64) -> Options {
    Options::new()
        .engine(engine)
        .checksums(true)
        // Room for all keys and all records: nothing has to grow.
        .capacity(3 * operations)
        .cache_ratio(0.0)
        .address_order(AddressOrder::Never)
}

/// A verb on each of the keys 1 to the number of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Insert,
    Upsert,
    Update,
    Remove,
}

const VERBS: [Verb; 4] = [Verb::Insert, Verb::Upsert, Verb::Update, Verb::Remove];

impl Verb {
    /// The items after it was executed whole.
    fn apply(self, model: &Model, operations: u64, version: u64) -> Model {
        let mut model = model.clone();
        for key in 1..=operations {
            match (self, model.contains_key(&key)) {
                (Verb::Insert, false) | (Verb::Upsert, _) | (Verb::Update, true) => {
                    model.insert(key, version);
                }
                (Verb::Remove, true) => drop(model.remove(&key)),
                _ => {}
            }
        }
        model
    }
}

#[test]
fn child_executes_one_batch() {
    let Some(folder) = std::env::var_os(CHILD) else {
        return;
    };
    let folder = Path::new(&folder);
    let verb = VERBS[usize::try_from(setting(VERB).unwrap()).unwrap()];
    let version = setting(VERSION).unwrap();
    let (engine, emulator) = device();
    let operations = operations(emulator.is_some());
    let keys: Vec<u64> = (1..=operations).collect();
    let values: Vec<Bytes> = keys.iter().map(|&key| Bytes::of(key, version)).collect();
    let path = folder.join("index");
    let index = Index::<u64, Bytes>::open(path, &options(engine, operations)).unwrap();
    // The first batch of a device waits for its kernels.
    index.update(&[0], &values[..1]).unwrap();
    File::create(folder.join(BEGUN)).unwrap();
    let answers = match verb {
        Verb::Insert => index.insert(&keys, &values),
        Verb::Upsert => index.upsert(&keys, &values),
        Verb::Update => index.update(&keys, &values),
        Verb::Remove => index.remove(&keys),
    };
    answers.unwrap();
    File::create(folder.join(ANSWERED)).unwrap();
    // Until it is killed; should the parent have failed, not for ever.
    thread::sleep(PATIENCE);
}

/// How long parent and child wait for each other.
const PATIENCE: Duration = Duration::from_secs(600);

/// What the kills have met.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    before_any_store: u64,
    amid_a_kernel: u64,
    after_all_stores: u64,
    after_the_answer: u64,
}

#[test]
fn kill_of_a_process_inside_kernels() {
    let Some(_alone) = crate::alone() else {
        return;
    };
    let (engine, emulator) = device();
    let operations = operations(emulator.is_some());
    let rounds = setting("GPHASH_KILL_ROUNDS").unwrap_or(ROUNDS);
    let seed = setting("GPHASH_TEST_SEED").unwrap_or_else(|| rand::random::<u32>().into());
    println!("GPHASH_TEST_SEED={seed}, {rounds} kills");
    let mut rng = SmallRng::seed_from_u64(seed);
    let folder = TempDir::new_in(FOLDER).unwrap();
    let path = folder.path().join("index");
    Index::<u64, Bytes>::create(&path, &options(Engine::Cpu, operations))
        .unwrap()
        .close()
        .unwrap();
    let mut model = Model::new();
    let mut tally = Tally::default();
    let mut aim = Aim::new();
    // A real device brings a launch to its end that has begun. On another, aim takes longer on a busy machine.
    let should_hit = emulator.is_some() && rounds >= ROUNDS;
    let most = if should_hit { 8 * rounds } else { rounds };
    for round in 0..most {
        if round >= rounds && tally.amid_a_kernel > 0 {
            break;
        }
        let is_full = model.len() as u64 > operations / 2;
        let verb = VERBS[rng.random_range(0..2) + if is_full { 2 } else { 0 }];
        let after = verb.apply(&model, operations, round);
        let mut child = start(folder.path(), verb, round, emulator);
        thread::sleep(aim.moment.mul_f64(rng.random_range(0.8..1.2)));
        kill(&mut child);
        let was_answered = folder.path().join(ANSWERED).exists();
        let allowed = Allowed {
            before: if was_answered { &after } else { &model },
            after: &after,
        };
        let engine = if round % 4 == 3 { engine } else { Engine::Cpu };
        let found = check::<u64, Bytes>(&path, engine, allowed, false);
        tally.kills += 1;
        let fallen = if was_answered {
            aim.learn(true);
            &mut tally.after_the_answer
        } else if found == model {
            aim.learn(false);
            &mut tally.before_any_store
        } else if found == after {
            aim.learn(true);
            &mut tally.after_all_stores
        } else {
            &mut tally.amid_a_kernel
        };
        *fallen += 1;
        model = found;
        for sign in [BEGUN, ANSWERED] {
            let _ = fs::remove_file(folder.path().join(sign));
        }
    }
    println!("{tally:?}");
    assert!(!should_hit || tally.amid_a_kernel > 0, "{tally:?}");
}

/// When a kill falls into the launch that stores, as far as earlier ones have shown.
struct Aim {
    moment: Duration,
    step: f64,
    was_late: Option<bool>,
}

impl Aim {
    fn new() -> Self {
        Self {
            moment: Duration::from_millis(20),
            step: 2.0,
            was_late: None,
        }
    }

    /// A kill was too late, or too early.
    fn learn(&mut self, late: bool) {
        if self
            .was_late
            .replace(late)
            .is_some_and(|before| before != late)
        {
            self.step = self.step.sqrt().max(1.1);
        }
        let factor = if late { 1.0 / self.step } else { self.step };
        self.moment = self.moment.mul_f64(factor);
    }
}

/// Starts the child; comes back when its batch has begun.
fn start(folder: &Path, verb: Verb, version: u64, emulator: Option<&Emulator>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", TEST, "--nocapture"])
        .env(CHILD, folder)
        .env(VERB, (verb as usize).to_string())
        .env(VERSION, version.to_string())
        .stdout(Stdio::null());
    if let Some(emulator) = emulator {
        command.env(emulator::LIBRARY, emulator.path());
    }
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while !folder.join(BEGUN).exists() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the child did not begin: {ended:?}");
        let waited = started.elapsed();
        assert!(waited < PATIENCE, "the child does not begin");
        thread::sleep(Duration::from_micros(50));
    }
    child
}
