//! What large values take of memory. Each step has a process of its own, in which no other test counts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gphash::store::{Store, StoreOptions};
use gphash_test_support::setting;

/// What a child does; says that this process is one.
const STEP: &str = "GPHASH_MEMORY_STEP";

/// The directory of its store.
const PATH: &str = "GPHASH_MEMORY_PATH";

const CHILD: &str = "memory::child_measures_a_step";

/// Bytes of a value by default, in MiB; `GPHASH_MEMORY_VALUE_MIB` says otherwise.
const VALUE_MIB: usize = 64;

/// Bytes of each of many values.
const MANY_BYTES: usize = 16 << 20;

/// How many these are.
const MANY: u8 = 8;

fn value_bytes() -> usize {
    setting("GPHASH_MEMORY_VALUE_MIB").unwrap_or(VALUE_MIB) << 20
}

/// Bytes of memory that are this process's alone. What it maps of files does not count.
pub fn private_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.unwrap().trim().strip_suffix(" kB").unwrap();
        number.parse::<u64>().unwrap() << 10
    };
    field("RssAnon:") + field("RssShmem:")
}

/// Runs the test `child` in a process of its own, on a disk and in memory. It finds the directory of its store in the
/// variable `path`, and what it is to do in another one.
pub fn run_child(child: &str, path: &str, (variable, task): (&str, &str)) {
    let mut dirs = vec![on_disk()];
    match Path::new("/dev/shm").is_dir() {
        true => dirs.push(tempfile::tempdir_in("/dev/shm").unwrap()),
        false => println!("skipped in memory: no /dev/shm"),
    }
    for dir in &dirs {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args([child, "--exact", "--nocapture"]);
        let command = command.env(variable, task).env(path, dir.path());
        let output = command.output().unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        let dir = dir.path().display();
        assert!(output.status.success(), "{task} in {dir}: {output:?}");
    }
}

/// Does a step; says how many more private bytes there were meanwhile than before it.
fn peak<T>(step: impl FnOnce() -> T) -> (u64, T) {
    let before = private_bytes();
    let (most, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                most.fetch_max(private_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let done = step();
        has_ended.store(true, Ordering::Relaxed);
        done
    });
    (most.into_inner().saturating_sub(before), done)
}

fn many_value(nth: u8) -> Vec<u8> {
    vec![nth; MANY_BYTES]
}

/// Puts many values into a store with a budget, and waits until they are in sorted files.
fn fill_files(store: &Store) {
    for nth in 0..MANY {
        store.put([nth], many_value(nth)).unwrap();
    }
    let started = Instant::now();
    while store.stats().record_bytes > MANY_BYTES as u64 {
        assert!(started.elapsed() < Duration::from_secs(600), "{store:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The first and the last item, and then one of a transaction; says the most that one of them took.
fn peak_of_ends(store: &Store) -> u64 {
    let (first, item) = peak(|| store.range(..).next().unwrap().unwrap());
    assert!(item == (vec![0], many_value(0)));
    let (last, item) = peak(|| store.range(..).next_back().unwrap().unwrap());
    assert!(item == (vec![MANY - 1], many_value(MANY - 1)));
    let mut transaction = store.transaction();
    for nth in 0..MANY {
        transaction.put([nth, 1], many_value(nth)).unwrap();
    }
    let (own, item) = peak(|| transaction.range(vec![0, 1]..).next().unwrap().unwrap());
    assert!(item == (vec![0, 1], many_value(0)));
    // What others change is kept for the transaction, and the table has what they put.
    for nth in 0..MANY {
        store.put([nth], b"short").unwrap();
    }
    let (old, item) = peak(|| transaction.range(..).next().unwrap().unwrap());
    assert!(item == (vec![0], many_value(0)));
    println!("first {first}, last {last}, own {own}, old {old}");
    first.max(last).max(own).max(old)
}

#[test]
fn child_measures_a_step() {
    let (Some(step), Some(path)) = (setting::<String>(STEP), std::env::var_os(PATH)) else {
        return;
    };
    let options = StoreOptions::new().capacity(16).partitions(1);
    let options = match step.as_str() {
        "range of files" => options.memory_budget(StoreOptions::MIN_BUDGET),
        _ => options,
    };
    let store = Store::open(path, &options).unwrap();
    let value = || vec![7; value_bytes()];
    let taken = match step.as_str() {
        "put" => {
            let value = value();
            peak(|| store.put(b"key", value).unwrap()).0
        }
        "get" => {
            let (taken, found) = peak(|| store.get(b"key").unwrap());
            assert!(found == Some(value()));
            taken
        }
        "multi_get" => peak(|| store.multi_get(&["key"]).unwrap()).0,
        "checkpoint" => {
            store.put(b"key", value()).unwrap();
            peak(|| store.checkpoint().unwrap()).0
        }
        "range" => {
            for nth in 0..MANY {
                store.put([nth], many_value(nth)).unwrap();
            }
            let (keys, found) = peak(|| store.keys(..).flatten().count());
            assert_eq!(found, usize::from(MANY));
            assert!(keys < MANY_BYTES as u64 / 4, "keys take {keys} bytes");
            peak_of_ends(&store)
        }
        "range of files" => {
            fill_files(&store);
            peak_of_ends(&store)
        }
        step => panic!("there is no step {step}"),
    };
    println!("taken {taken}");
    store.close().unwrap();
}

/// Bytes that a step takes beyond what its process had before, in values of so many bytes.
fn taken(step: &str, path: &Path, value_bytes: usize) -> f64 {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let child = child.args([CHILD, "--exact", "--nocapture"]);
    let output = child.env(STEP, step).env(PATH, path).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{step}: {output:?}");
    let taken = shown.lines().find_map(|line| line.strip_prefix("taken "));
    let taken: u64 = taken.expect(&shown).parse().unwrap();
    let values = taken as f64 / value_bytes as f64;
    println!("{step}: {values:.2} values");
    values
}

/// A directory on a disk, where the pages of files are no memory of the process.
pub fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn large_value_is_in_memory_once() {
    let folder = on_disk();
    let path = folder.path().join("store");
    for (step, most) in [("put", 1.3), ("get", 1.1), ("multi_get", 1.1)] {
        let values = taken(step, &path, value_bytes());
        assert!(values <= most, "{step}: {values:.2} values");
    }
    let values = taken("checkpoint", &path, value_bytes());
    assert!(values <= 0.2, "checkpoint: {values:.2} values");
}

#[test]
fn large_values_of_a_range_are_read_one_by_one() {
    let folder = on_disk();
    for step in ["range", "range of files"] {
        let values = taken(step, &folder.path().join(step), MANY_BYTES);
        assert!(values <= 2.5, "{step}: {values:.2} values");
    }
}
