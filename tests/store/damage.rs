//! Damage to each file of a store that was closed or killed: bytes flipped or zeroed, files cut, gone, older
//! copies of themselves, or another store's. What is then told is right, or an error, or under
//! `--salvage` a loss that the report names; never something else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gphash::store::{Durability, Store, StoreOptions, WriteBatch, recover};
use gphash::{Repair, ReportState};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::disk::{copy, folders};
use super::model::Model;
use super::seed;

/// Damages of each store, unless `GPHASH_DAMAGE` says how many, or `all`.
const SOME: usize = 16;

/// Bytes from the start and the end of a file that are flipped one after the other.
const ENDS: u64 = 160;

/// Bytes that are zeroed at a time: a sector.
const SECTOR: u64 = 512;

/// What is done to a file.
#[derive(Debug, Clone)]
enum Damage {
    Flip(u64, u8),
    Zero(u64),
    Cut(u64),
    Remove,
    Older,
    Foreign,
}

/// A store that is not open, and what it should hold.
struct Case {
    name: &'static str,
    budget: Option<u64>,
    path: PathBuf,
    model: Model,
    /// All values that a key ever had.
    history: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// The same store at an earlier time, and another store.
    older: PathBuf,
    foreign: PathBuf,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, budget {:?}", self.name, self.budget)
    }
}

fn options(budget: Option<u64>) -> StoreOptions {
    let options = crate::options()
        .capacity(16)
        .durability(Durability::None)
        .segment_bytes(8 << 10)
        .checkpoint_bytes(u64::MAX)
        .threads(1);
    match budget {
        // Some values are in files of their own.
        Some(bytes) => options.memory_budget(bytes).value_file_threshold(300),
        None => options,
    }
}

/// Random batches; `history` gets all values.
fn write(store: &Store, model: &mut Model, case: &mut Case, batches: usize, rng: &mut SmallRng) {
    for _ in 0..batches {
        let mut batch = WriteBatch::new();
        for _ in 0..12 {
            let key = format!("key {}", rng.random_range(0..250)).into_bytes();
            if rng.random_range(0..6) == 0 {
                batch.delete(key.clone());
                model.remove(&key);
            } else {
                let value = vec![rng.random(); rng.random_range(1..500)];
                batch.put(key.clone(), value.clone());
                case.history
                    .entry(key.clone())
                    .or_default()
                    .insert(value.clone());
                model.insert(key, value);
            }
        }
        store.write(batch).unwrap();
    }
}

/// A store that was closed and the same one killed, with and without sorted files.
fn cases(folder: &Path, rng: &mut SmallRng) -> Vec<Case> {
    let mut cases = Vec::new();
    for budget in [None, Some(StoreOptions::MIN_BUDGET)] {
        let named = |what: &str| folder.join(format!("{what} {}", budget.is_some()));
        let mut case = Case {
            name: "killed",
            budget,
            path: named("killed"),
            model: Model::new(),
            history: BTreeMap::new(),
            older: named("older"),
            foreign: named("foreign"),
        };
        let live = named("live");
        for path in [&case.foreign.clone(), &live] {
            case.history.clear();
            let mut model = Model::new();
            let store = Store::open(path, &options(budget)).unwrap();
            write(&store, &mut model, &mut case, 60, rng);
            store.checkpoint().unwrap();
            write(&store, &mut model, &mut case, 6, rng);
            if *path == live {
                copy(&live, &case.older);
                write(&store, &mut model, &mut case, 30, rng);
                store.checkpoint().unwrap();
                write(&store, &mut model, &mut case, 12, rng);
                copy(&live, &case.path);
                case.model = model;
            }
            store.close().unwrap();
        }
        let closed = Case {
            name: "closed",
            budget,
            path: live,
            model: case.model.clone(),
            history: case.history.clone(),
            older: case.older.clone(),
            foreign: case.foreign.clone(),
        };
        cases.extend([case, closed]);
    }
    cases
}

/// The files of a store, by their names in it.
fn names(path: &Path) -> Vec<PathBuf> {
    let files = super::disk::files(path).into_keys();
    let within = files.map(|file| file.strip_prefix(path).unwrap().to_path_buf());
    within.filter(|name| name != Path::new("LOCK")).collect()
}

/// All that may happen to a file, of whose middle a sample.
fn damages(case: &Case, name: &Path, rng: &mut SmallRng) -> Vec<Damage> {
    let len = fs::metadata(case.path.join(name)).unwrap().len();
    let mut damages = vec![Damage::Remove, Damage::Cut(0), Damage::Cut(len / 2)];
    damages.extend(len.checked_sub(1).map(Damage::Cut));
    if len > 0 {
        let ends = (0..ENDS.min(len)).chain(len.saturating_sub(ENDS)..len);
        damages.extend(ends.map(|at| Damage::Flip(at, 1 << rng.random_range(0..8))));
        for _ in 0..40 {
            let at = rng.random_range(0..len);
            damages.push(Damage::Flip(at, 1 << rng.random_range(0..8)));
            damages.push(Damage::Zero(at / SECTOR * SECTOR));
        }
    }
    for (from, damage) in [
        (&case.older, Damage::Older),
        (&case.foreign, Damage::Foreign),
    ] {
        if fs::read(from.join(name))
            .is_ok_and(|bytes| bytes != fs::read(case.path.join(name)).unwrap())
        {
            damages.push(damage);
        }
    }
    damages
}

/// Says whether the file is another one now.
fn inflict(case: &Case, damage: &Damage, name: &Path, path: &Path) -> bool {
    let file = path.join(name);
    let before = fs::read(&file).unwrap();
    let mut bytes = before.clone();
    let index = |at: u64| usize::try_from(at).unwrap();
    match *damage {
        Damage::Remove => {
            fs::remove_file(&file).unwrap();
            return true;
        }
        Damage::Flip(at, bits) => bytes[index(at)] ^= bits,
        Damage::Zero(at) => {
            let end = bytes.len().min(index(at + SECTOR));
            bytes[index(at)..end].fill(0);
        }
        Damage::Cut(len) => bytes.truncate(index(len)),
        Damage::Older => bytes = fs::read(case.older.join(name)).unwrap(),
        Damage::Foreign => bytes = fs::read(case.foreign.join(name)).unwrap(),
    }
    fs::write(&file, &bytes).unwrap();
    bytes != before
}

/// What a store answers: whether it tells of damage, and the items that it gives without an error.
struct Answers {
    tells: bool,
    items: Model,
}

fn ask(case: &Case, path: &Path) -> Answers {
    let mut answers = Answers {
        tells: true,
        items: Model::new(),
    };
    let Ok(store) = Store::open(path, &options(case.budget)) else {
        return answers;
    };
    answers.tells = false;
    for key in case.history.keys() {
        match store.get(key) {
            Ok(value) => drop(value.map(|value| answers.items.insert(key.clone(), value))),
            Err(_) => answers.tells = true,
        }
    }
    let mut ranged = Model::new();
    for item in store.range(..) {
        match item {
            Ok((key, value)) => drop(ranged.insert(key, value)),
            Err(_) => answers.tells = true,
        }
    }
    assert!(
        answers.tells || ranged == answers.items,
        "gets and ranges differ"
    );
    answers.tells |= store.verify(&|_| {}).state == ReportState::Damaged;
    answers.tells |= store.close().is_err();
    answers
}

fn try_out(case: &Case, name: &Path, damage: &Damage, work: &Path) {
    let what = format!("{case}: {} {damage:?}", name.display());
    let again = || {
        let _ = fs::remove_dir_all(work);
        copy(&case.path, work);
        inflict(case, damage, name, work)
    };
    if again() {
        try_with(case, name, &what, work, again);
    }
}

/// Opens, mends and salvages a store that `again` makes each time, with damage to the part `name`.
fn try_with(case: &Case, name: &Path, what: &str, work: &Path, again: impl Fn() -> bool) {
    again();
    let looked = recover(work, Repair::Check, &|_| {});
    let is_named =
        looked.is_err() || looked.is_ok_and(|report| report.state == ReportState::Damaged);
    // The tail of a log behind its last witness: a power cut leaves the same.
    let is_tail = name.starts_with("wal") && !is_named;
    let is_of_history = |items: &Model, which: &str| {
        for (key, value) in items {
            let values = case.history.get(key);
            assert!(
                values.is_some_and(|values| values.contains(value)),
                "{what}: {which}, {key:?} has {value:?}, which it never had"
            );
        }
    };
    let answers = ask(case, work);
    if !name.starts_with("index.gph") {
        is_of_history(&answers.items, "opened");
    }
    if !answers.tells && !is_named {
        let is_right = answers.items == case.model;
        assert!(is_right || is_tail, "{what}: silently another store");
    }
    again();
    let before = super::disk::files(work);
    match recover(work, Repair::Recover, &|_| {}) {
        Ok(report) if report.state != ReportState::Damaged => {
            let answers = ask(case, work);
            assert!(!answers.tells, "{what}: mended, and damaged");
            is_of_history(&answers.items, "mended");
            assert!(
                answers.items == case.model || is_tail,
                "{what}: mended, and another store"
            );
        }
        _ => assert!(
            super::disk::files(work) == before,
            "{what}: refused, and changed"
        ),
    }
    again();
    match recover(work, Repair::Salvage, &|_| {}) {
        Ok(report) => {
            let answers = ask(case, work);
            assert!(!answers.tells, "{what}: salvaged, and damaged: {report:#?}");
            is_of_history(&answers.items, "salvaged");
            let is_named = report.state == ReportState::Damaged;
            assert!(
                is_named || is_tail || answers.items == case.model,
                "{what}: a loss without a name"
            );
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn damage_of_any_file_is_reported() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let wanted = std::env::var("GPHASH_DAMAGE").ok();
    for case in cases(folder.path(), &mut rng) {
        let mut all = Vec::new();
        for name in names(&case.path) {
            let damages = damages(&case, &name, &mut rng);
            all.extend(damages.into_iter().map(|damage| (name.clone(), damage)));
        }
        let count = match wanted.as_deref() {
            Some("all") => all.len(),
            Some(count) => count.parse().expect("GPHASH_DAMAGE"),
            None => SOME,
        };
        let drawn: Vec<_> = all.sample(&mut rng, count).collect();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for nth in 0..thread::available_parallelism().map_or(1, usize::from) {
                let work = folder.path().join(format!("work {nth}"));
                let (case, drawn, next) = (&case, &drawn, &next);
                scope.spawn(move || {
                    while let Some((name, damage)) = drawn.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        try_out(case, name, damage, &work);
                    }
                });
            }
        });
        println!("{case}: {} of {} damages", drawn.len(), all.len());
    }
}

/// No record comes after the last sync, whose records a witness vouches for.
#[test]
fn flipped_bit_in_the_last_sync_is_reported() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for folder in folders() {
        let [live, killed] = ["live", "killed"].map(|name| folder.path().join(name));
        let slowly = crate::options().durability(Durability::None);
        let store = Store::open(&live, &slowly).unwrap();
        for key in 0..40u32 {
            store.put(key.to_be_bytes(), vec![7; 40]).unwrap();
        }
        store.flush().unwrap();
        copy(&live, &killed);
        drop(store);
        let state = |path: &Path| recover(path, Repair::Check, &|_| {}).map(|report| report.state);
        assert_eq!(state(&killed).unwrap(), ReportState::NeedsRecovery);
        let mut log = names(&killed).into_iter();
        let log = killed.join(log.rfind(|name| name.starts_with("wal")).unwrap());
        let whole = fs::read(&log).unwrap();
        let last = whole
            .windows(40)
            .rposition(|bytes| bytes == [7; 40])
            .unwrap();
        for _ in 0..40 {
            let mut bytes = whole.clone();
            let at = rng.random_range(0..last + 40);
            bytes[at] ^= 1 << rng.random_range(0..8);
            fs::write(&log, &bytes).unwrap();
            let found = state(&killed);
            let is_named = !matches!(found, Ok(state) if state != ReportState::Damaged);
            assert!(is_named, "byte {at}: {found:?}");
            assert!(Store::open(&killed, &slowly).is_err(), "byte {at}");
        }
    }
}

/// Several files at a time that belong together are those of an earlier time, or another store's.
#[test]
fn files_with_parts_of_another_store_or_time_are_reported() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for folder in folders() {
        let work = folder.path().join("work");
        for case in cases(folder.path(), &mut rng) {
            for part in ["MANIFEST", "index.gph", "wal", "sst"] {
                for from in [&case.older, &case.foreign] {
                    let what = format!("{case}: {part} of {}", from.display());
                    let again = || {
                        let _ = fs::remove_dir_all(&work);
                        copy(&case.path, &work);
                        let is_part = |name: &PathBuf| name.to_string_lossy().starts_with(part);
                        for name in names(&work).iter().filter(|name| is_part(name)) {
                            fs::remove_file(work.join(name)).unwrap();
                        }
                        for name in names(from).iter().filter(|name| is_part(name)) {
                            fs::copy(from.join(name), work.join(name)).unwrap();
                        }
                        true
                    };
                    try_with(&case, Path::new(part), &what, &work, again);
                }
            }
        }
    }
}

/// Whatever else is drawn: files that are gone, older, or another store's.
#[test]
fn files_missing_older_or_of_another_store_are_reported() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    for case in cases(folder.path(), &mut rng) {
        for name in names(&case.path) {
            for damage in damages(&case, &name, &mut rng) {
                let is_whole = matches!(damage, Damage::Remove | Damage::Older | Damage::Foreign);
                // Of many sorted files and segments one is like the other.
                let is_one = !name.starts_with("sst") && !name.starts_with("wal");
                if is_whole && (is_one || rng.random_range(0..4) == 0) {
                    try_out(&case, &name, &damage, &work);
                }
            }
        }
    }
}
