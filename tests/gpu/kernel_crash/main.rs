//! Crashes inside the kernels: what a launch has stored into the file, store by store, gives the file
//! as a crash at any moment of it may leave it. Each such image is opened and compared with what had
//! been acknowledged.
//!
//! Runs where there is no GPU, on a device of the CPU; with `GPHASH_TEST_ENGINE=cuda` on the GPU.
//! `GPHASH_CRASH_IMAGES` says how many images, `GPHASH_CRASH_WORKERS` how many threads,
//! `GPHASH_TEST_SEED` which tables.

mod check;
mod emulator;
mod killed;
mod launch;
mod recovery_scan;
mod table;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use gphash::Engine;

use emulator::Emulator;
use table::Tally;

/// Images of a run that was not told how many.
const IMAGES: u64 = 50_000;

/// In memory, where the file that a process has mapped can be read at any moment.
const FOLDER: &str = "/dev/shm";

/// A child that one test starts holds, until it runs its own program, the lock of any file that
/// another test has open.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Keeps the other tests away; `None` where there is no folder for their files.
fn alone() -> Option<MutexGuard<'static, ()>> {
    if Path::new(FOLDER).is_dir() {
        let alone = ONE_AT_A_TIME.lock();
        return Some(alone.unwrap_or_else(PoisonError::into_inner));
    }
    println!("skipped: no {FOLDER} here");
    None
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// The engine that the tests use, and what stands in for its device.
fn device() -> (Engine, Option<&'static Emulator>) {
    match std::env::var("GPHASH_TEST_ENGINE") {
        Ok(name) => (name.parse().expect("GPHASH_TEST_ENGINE"), None),
        Err(_) => (Engine::Cuda { device: 0 }, Some(Emulator::get())),
    }
}

/// The table of a seed, of which also the types of keys and values come.
fn run(seed: u64, engine: Engine, emulator: Option<&Emulator>) -> Tally {
    if let Some(emulator) = emulator {
        emulator.seed(seed);
    }
    let folder = Path::new(FOLDER);
    match seed % 8 {
        0 => table::run::<u64, [u8; 16]>(folder, seed, engine),
        1 => table::run::<u64, [u8; 24]>(folder, seed, engine),
        2 => table::run::<u64, [u8; 128]>(folder, seed, engine),
        3 => table::run::<u64, [u8; 7]>(folder, seed, engine),
        4 => table::run::<[u64; 4], [u8; 16]>(folder, seed, engine),
        5 => table::run::<[u64; 4], [u8; 200]>(folder, seed, engine),
        6 => table::run::<[u64; 2], [u8; 12]>(folder, seed, engine),
        _ => table::run::<[u64; 16], [u8; 3]>(folder, seed, engine),
    }
}

#[test]
fn crash_images() {
    let Some(_alone) = alone() else {
        return;
    };
    let (engine, emulator) = device();
    let given = setting("GPHASH_TEST_SEED");
    let first = given.unwrap_or_else(|| rand::random::<u32>().into());
    let images = setting("GPHASH_CRASH_IMAGES").unwrap_or(IMAGES);
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let workers = setting("GPHASH_CRASH_WORKERS").unwrap_or(cores);
    println!("GPHASH_TEST_SEED={first}, {images} images, {workers} workers");

    let next = AtomicU64::new(first);
    let has_failed = AtomicBool::new(false);
    // The first table alone: a driver compiles the kernels once, unless many ask for them at a time.
    let total = Mutex::new(run(next.fetch_add(1, Ordering::Relaxed), engine, emulator));
    thread::scope(|scope| {
        let work = || {
            while !has_failed.load(Ordering::Relaxed) && total.lock().unwrap().images() < images {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                let ran = std::panic::catch_unwind(|| run(seed, engine, emulator));
                let tally = ran.unwrap_or_else(|panic| {
                    has_failed.store(true, Ordering::Relaxed);
                    println!("failed: GPHASH_TEST_SEED={seed} GPHASH_CRASH_IMAGES=1");
                    std::panic::resume_unwind(panic)
                });
                total.lock().unwrap().add(tally);
            }
        };
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let total = total.into_inner().unwrap();
    println!(
        "{} crash images, {} of them distinct, hold what they must: {} process crashes, {} power cuts; \
         {} recovered by the device; {} launches, {} of them drains, up to {} stores each, {} cut short \
         by the device; {} words of values written by the host; seeds {first} to {}",
        total.images(),
        total.distinct.len(),
        total.process_crashes,
        total.power_cuts,
        total.on_device,
        total.launches,
        total.drains,
        total.most_stores,
        total.cut_short,
        total.written_by_host,
        next.into_inner() - 1,
    );
    assert!(total.images() >= images);
    // A table that is run again may lack some.
    let all_kinds = total.drains > 0 && total.cut_short > 0 && total.written_by_host > 0;
    assert!(given.is_some() || all_kinds);
}
