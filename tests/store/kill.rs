//! A process killed while items leave the index and sorted files are compacted, and a salvage killed before
//! it has ended: what was answered is there, and the next salvage finds all that the first could have.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gphash::store::{Durability, Repair, Store, StoreOptions, WriteBatch, recover};
use gphash_test_support::process::{self, wait_for_file};
use gphash_test_support::setting;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::xxh3_64;

use super::disk::copy;
use super::model::{Model, contents};
use super::seed;

/// Where the child works; says that this process is one.
const CHILD: &str = "GPHASH_STORE_CHILD";

/// The store that a child salvages.
const SALVAGE: &str = "GPHASH_STORE_SALVAGE";

const SALVAGE_TEST: &str = "kill::child_salvages_until_it_is_killed";

const TEST: &str = "kill::child_writes_until_it_is_killed";

/// Each byte of it is a batch that was answered.
const ANSWERED: &str = "answered";

/// Files that say that the child is about to open the store, and that it has.
const OPENS: &str = "opens";
const AT_WORK: &str = "at work";

/// How long the child may open the store or work at most before it is killed.
const LONGEST_OPENING: Duration = Duration::from_millis(30);
const LONGEST_WORK: Duration = Duration::from_millis(270);

/// The same for work, once others have not got far enough in less.
const LONGEST_WORK_MAX: Duration = Duration::from_secs(10);

/// After that long the parent is not there any more.
const LIFE: Duration = Duration::from_secs(300);

/// Rounds by default.
const ROUNDS: u64 = 10;

/// A kill of the last so many must have come while sorted files were written.
const ROUNDS_MAX: u64 = 200;

/// Changes of a batch.
const BATCH: u64 = 8;

fn options() -> StoreOptions {
    // So few that items leave the tables.
    crate::options()
        .partitions(crate::partitions().min(2))
        .durability(Durability::None)
        .segment_bytes(64 << 10)
        .checkpoint_bytes(256 << 10)
        .memory_budget(StoreOptions::MIN_BUDGET)
}

fn rounds() -> u64 {
    setting("GPHASH_KILL_ROUNDS").unwrap_or(ROUNDS)
}

/// The changes of a batch, which its number foretells: keys with their values, or `None`.
fn changes(batch: u64) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    (0..BATCH).map(move |nth| {
        let number = xxh3_64(&(batch * BATCH + nth).to_le_bytes());
        let key = format!("key {}", number % 700).into_bytes();
        let len = usize::try_from(number >> 32 & 511).unwrap();
        let value = (number >> 20 & 7 != 0).then(|| vec![number.to_le_bytes()[1]; len]);
        (key, value)
    })
}

fn apply(model: &mut Model, batch: u64) {
    for (key, value) in changes(batch) {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

#[test]
fn child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    File::create(folder.join(OPENS)).unwrap();
    let store = Store::open(folder.join("store"), &options()).unwrap();
    let path = folder.join(ANSWERED);
    let mut answered = File::options().append(true).open(&path).unwrap();
    File::create(folder.join(AT_WORK)).unwrap();
    let started = Instant::now();
    for number in fs::metadata(&path).unwrap().len().. {
        assert!(started.elapsed() < LIFE, "nobody killed the child");
        let mut batch = WriteBatch::new();
        for (key, value) in changes(number) {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        store.write(batch).unwrap();
        answered.write_all(b"!").unwrap();
    }
}

/// The sorted files of a store.
fn sorted_files(path: &Path) -> BTreeSet<PathBuf> {
    let all = super::disk::paths(path).into_iter();
    all.filter(|file| file.starts_with(path.join("sst")))
        .collect()
}

/// Runs the child and kills it a time after it has made a file.
fn kill_writer(folder: &Path, sign: &str, after: Duration) {
    for sign in [OPENS, AT_WORK] {
        let _ = fs::remove_file(folder.join(sign));
    }
    let mut command = child(folder);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for_file(&mut child, &folder.join(sign));
    std::thread::sleep(after);
    process::kill(&mut child);
}

/// Runs a command and kills it after a time; says whether it was still there.
fn kill(command: &mut Command, after: Duration) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(after);
    let is_there = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    is_there
}

fn child(folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact"]).env(CHILD, folder);
    command.env("GPHASH_TEST_PARTITIONS", crate::partitions().to_string());
    command
}

fn salvage_of(path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([SALVAGE_TEST, "--exact"]).env(SALVAGE, path);
    command
}

#[test]
fn child_salvages_until_it_is_killed() {
    if let Some(path) = std::env::var_os(SALVAGE).map(PathBuf::from) {
        // What it says, the next opening says.
        let _ = recover(&path, Repair::Salvage, &|_| {});
    }
}

#[test]
fn eviction_and_compaction_lose_nothing_to_a_kill() {
    // In memory the log is written through a window.
    for folder in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")] {
        nothing_is_lost_to_kills(&folder.unwrap());
    }
}

fn nothing_is_lost_to_kills(folder: &tempfile::TempDir) {
    let mut rng = SmallRng::seed_from_u64(seed());
    let answered = folder.path().join(ANSWERED);
    fs::write(&answered, b"").unwrap();
    let path = folder.path().join("store");
    let mut model = Model::new();
    let (mut batches, mut spilled, mut amid_files) = (0, 0, 0);
    let mut longest = LONGEST_WORK;
    let mut known = BTreeSet::new();
    for round in 0.. {
        if round >= rounds() && amid_files > 0 {
            break;
        }
        assert!(
            round < rounds() + ROUNDS_MAX,
            "no kill fell amid an eviction or a compaction"
        );
        // Now and then while it opens the store, which may mean amid its recovery.
        let at_work = rng.random_range(0..4) != 0;
        let (sign, most) = match at_work {
            true => (AT_WORK, longest),
            false => (OPENS, LONGEST_OPENING),
        };
        kill_writer(folder.path(), sign, most.mul_f64(rng.random()));
        let count = fs::metadata(&answered).unwrap().len();
        if at_work && (count == batches || sorted_files(&path).is_subset(&known)) {
            // On a slow disk it takes longer until items leave the tables.
            longest = (2 * longest).min(LONGEST_WORK_MAX);
        }
        for batch in batches..count {
            apply(&mut model, batch);
        }
        batches = count;
        if !path.join("MANIFEST").exists() {
            continue;
        }
        if round % 3 == 2 {
            // Nothing is damaged: a salvage changes nothing, wherever it ends.
            for _ in 0..2 {
                kill(
                    &mut salvage_of(&path),
                    Duration::from_millis(rng.random_range(0..40)),
                );
            }
        }
        let left = sorted_files(&path);
        let store = Store::open(&path, &options()).unwrap();
        // An opening removes the files that an eviction or a compaction had not finished.
        amid_files += u64::from(!left.is_subset(&sorted_files(&path)));
        let found = contents(&store);
        if found != model {
            // The last one may have been executed before it was answered.
            apply(&mut model, batches);
            assert!(
                found == model,
                "round {round}: {batches} batches were answered"
            );
            batches += 1;
            let mut answered = File::options().append(true).open(&answered).unwrap();
            answered.write_all(b"?").unwrap();
        }
        spilled = store
            .stats()
            .spill
            .levels
            .iter()
            .map(|level| level.entries)
            .sum();
        store.close().unwrap();
        known = sorted_files(&path);
    }
    println!(
        "{batches} batches, {spilled} entries in sorted files at the end, {amid_files} kills amid \
         their writing, at most {longest:?} of work"
    );
    assert!(batches > 0);
}

#[test]
fn salvage_after_a_killed_salvage_loses_nothing() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole");
    let store = Store::open(&path, &options()).unwrap();
    for number in 0..300 {
        let mut batch = WriteBatch::new();
        for (key, value) in changes(number) {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        store.write(batch).unwrap();
    }
    let left = folder.path().join("left");
    copy(&path, &left);
    drop(store);
    let work = folder.path().join("work");
    for gone in [
        &["MANIFEST", "MANIFEST.2"][..],
        &["index.gph"],
        &["MANIFEST", "MANIFEST.2", "index.gph"],
    ] {
        let again = || {
            let _ = fs::remove_dir_all(&work);
            copy(&left, &work);
            for name in gone {
                fs::remove_file(work.join(name)).unwrap();
            }
        };
        let salvage = || {
            salvage_of(&work).output().unwrap();
            let store = Store::open(&work, &options()).unwrap();
            let found = contents(&store);
            store.close().unwrap();
            found
        };
        again();
        let expected = salvage();
        assert!(!expected.is_empty());
        let mut kills = 0;
        for round in 0..rounds() {
            again();
            for _ in 0..3 {
                let after = Duration::from_millis(rng.random_range(0..60));
                kills += u32::from(kill(&mut salvage_of(&work), after));
            }
            assert!(salvage() == expected, "round {round} without {gone:?}");
        }
        println!("{kills} kills of a salvage without {gone:?}");
    }
}
