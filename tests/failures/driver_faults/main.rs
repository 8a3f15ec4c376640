//! The driver fails: in a life of an index, from its creation to its closing, calls of the driver fail once,
//! or all do from one on. Whatever fails, nothing acknowledged is lost, no launch is told of memory that the
//! device does not reach, errors name the call, and the index goes on.
//!
//! Runs on the device of the CPU (`ptx/emulator/driver.cpp`). `GPHASH_DRIVER_FAULTS` says how many of the
//! calls of each kind of life fail, `GPHASH_TEST_SEED` which ones. With `all`, every call fails once, and
//! every eighth for good.

mod driver;
mod host_program;
mod life;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gphash::Domain;
use gphash_test_support::setting;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use driver::{Driver, Fault};
use life::{Life, Wide};

/// Calls that fail in a run which was not told how many.
const SAMPLE: u64 = 24;

/// With `all`, a driver fails for good at one in so many of the calls.
const FOR_GOOD: u64 = 8;

/// The driver is one for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets calls of a kind of life fail, each in a life of its own.
fn sweep<V: life::Value>(name: &str, domain: Domain, folder: &Path) {
    let _alone = alone();
    let driver = Driver::get();
    let life = Life::<V>::new(folder, domain);
    let faultless = life.live(driver, Fault::NEVER);
    assert_eq!(faultless.errors, 0);
    let calls = faultless.calls;
    let seed = setting("GPHASH_TEST_SEED").unwrap_or_else(|| rand::random::<u32>().into());
    let sample = match std::env::var("GPHASH_DRIVER_FAULTS").as_deref() {
        Ok("all") => calls,
        Ok(count) => count.parse().expect("GPHASH_DRIVER_FAULTS"),
        Err(_) => SAMPLE,
    };
    println!("{name}: {calls} calls of the driver, {sample} of them fail; GPHASH_TEST_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut total, mut failed_once) = (life::Outcome::default(), 0);
    for nth in 0..sample.min(calls) {
        // One of each stretch, so that no part of the life is left out.
        let (from, to) = (nth * calls / sample, (nth + 1) * calls / sample);
        let call = random.random_range(from..to.max(from + 1));
        println!("{name}: call {call} fails once");
        let lived = life.live(driver, Fault::once(call));
        failed_once += lived.failures;
        total.add(&lived);
        if sample < calls || nth % FOR_GOOD == 0 {
            println!("{name}: all calls from {call} on fail");
            total.add(&life.live(driver, Fault::for_good(call)));
        }
    }
    println!(
        "{name}: {failed_once} occurrences of calls failed once; {} lives, {} errors, {} lives went on with \
         the CPU; nothing was lost",
        total.lives, total.errors, total.on_cpu
    );
    assert!(total.errors > 0 && (total.on_cpu > 0 || sample < 8));
}

/// Where files lie in memory.
const MEMORY: &str = "/dev/shm";

/// A folder for files that are not to wait for a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(MEMORY)
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

#[test]
fn calls_fail_in_memory() {
    if !Path::new(MEMORY).is_dir() {
        println!("skipped: no {MEMORY} here");
        return;
    }
    let folder = tempfile::tempdir_in(MEMORY).unwrap();
    sweep::<life::Narrow>("in memory", Domain::Shared, folder.path());
}

#[test]
fn calls_fail_beside_checkpoints() {
    let folder = folder();
    sweep::<life::Narrow>("beside checkpoints", Domain::Checkpointed, folder.path());
}

#[test]
fn calls_fail_in_long_batches() {
    let folder = folder();
    sweep::<Wide>("in long batches", Domain::Checkpointed, folder.path());
}
