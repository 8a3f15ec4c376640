//! Power cuts: sectors, lengths and names of all files of a store arrive or not, as they like. What
//! is opened then must hold what a prefix of the batches has left, and at least what was promised to
//! be durable.

mod closes;
mod salvages;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::tests::seed;
use super::{Durability, Repair, Store, StoreOptions, WriteBatch, recover};
use crate::pm::sim_disk::{self, Disk, DiskState, Files, hash};
use crate::pm::{Call, Faults};
use crate::store::commit::queue::Work;
use crate::store::files::identity::partition_name;
use crate::{Domain, ReportState, Result};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Images that are opened for each sequence of batches, unless `GPHASH_STORE_CUTS` says how many.
const IMAGES: usize = 120;

/// Images that are opened for each sequence of batches; with `GPHASH_STORE_CUTS=all`, those of a power
/// cut at every change of every file.
fn most_images() -> usize {
    match std::env::var("GPHASH_STORE_CUTS").as_deref() {
        Ok("all") => usize::MAX,
        // Of fewer some tests would see nothing.
        Ok(count) => count.parse().map_or(IMAGES, |count: usize| count.max(60)),
        Err(_) => IMAGES,
    }
}

/// Options of a store. If it is not always durable, its items leave the table for files.
fn options(durability: Durability, partitions: u32, disk: Option<&Arc<Disk>>) -> StoreOptions {
    let mut options = super::tests::options()
        .partitions(partitions)
        .capacity(1)
        .domain(Domain::Checkpointed)
        .durability(durability)
        .checkpoint_bytes(u64::MAX)
        .segment_bytes(4096);
    if durability != Durability::Always {
        options = options.memory_budget(StoreOptions::MIN_BUDGET);
    }
    match disk {
        Some(disk) => options.faults(Arc::clone(disk) as Arc<dyn Faults>),
        None => options,
    }
}

/// A store at work, and what it held after each batch.
struct Run {
    path: PathBuf,
    disk: Arc<Disk>,
    durability: Durability,
    partitions: u32,
    store: Option<Store>,
    models: Vec<Model>,
    /// The keys of the batch behind each model.
    batches: Vec<Vec<Vec<u8>>>,
    /// The batch from which on nothing was promised.
    durable: usize,
}

impl Run {
    fn new(path: &Path, durability: Durability, partitions: u32) -> Self {
        let disk = Disk::holding(&Files::new());
        let mut run = Self {
            path: path.to_path_buf(),
            disk,
            durability,
            partitions,
            store: None,
            models: vec![Model::new()],
            batches: Vec::new(),
            durable: 0,
        };
        run.open();
        run
    }

    /// Lets the disk know how many batches are durable, and how many have begun.
    fn tell(&self, begun: usize) {
        self.disk.begin((self.durable as u64) << 32 | begun as u64);
    }

    fn done(&self) -> usize {
        self.models.len() - 1
    }

    fn open(&mut self) {
        self.tell(self.done());
        let options = options(self.durability, self.partitions, Some(&self.disk));
        self.store = Some(Store::open(&self.path, &options).unwrap());
        self.durable = self.done();
        self.tell(self.done());
    }

    fn step(&mut self, rng: &mut SmallRng) {
        let store = self.store.as_ref().unwrap();
        match rng.random_range(0..10) {
            0 => store.checkpoint().unwrap(),
            1 => store.flush().unwrap(),
            2 => {
                // That of the last partition, which does not wait for those of others.
                let last = store.partitions().all().last().unwrap();
                last.submit(Work::Checkpoint).unwrap();
                if self.partitions == 1 {
                    // All before it is durable in the log.
                    self.durable = self.done();
                    self.tell(self.done());
                }
                for _ in 0..rng.random_range(1..3) {
                    self.write(rng);
                }
                let store = self.store.as_ref().unwrap();
                let state = &store.partitions().all().last().unwrap().state;
                state.shared.sync_logs().unwrap();
                return state.complete_checkpoint().unwrap();
            }
            3 => {
                self.store.take().unwrap().close().unwrap();
                self.durable = self.done();
                return self.open();
            }
            4 => store.compact(&|_| {}).unwrap(),
            _ => return self.write(rng),
        }
        self.durable = self.done();
        self.tell(self.done());
    }

    fn write(&mut self, rng: &mut SmallRng) {
        let mut batch = WriteBatch::new();
        let mut keys = Vec::new();
        let mut model = self.models[self.done()].clone();
        for _ in 0..rng.random_range(1..6) {
            let key = vec![rng.random_range(0..8u8)];
            keys.push(key.clone());
            if rng.random_bool(0.3) {
                model.remove(&key);
                batch.delete(key);
            } else {
                let longest = match self.durability {
                    Durability::Always => 900,
                    // Eight of them are more than the budget.
                    _ => 30_000,
                };
                let value = vec![rng.random(); rng.random_range(1..longest)];
                model.insert(key.clone(), value.clone());
                batch.put(key, value);
            }
        }
        self.tell(self.done() + 1);
        let store = self.store.as_ref().unwrap();
        store.write(batch).unwrap();
        for partition in store.partitions().all() {
            partition.keep_within_budget().unwrap();
        }
        self.models.push(model);
        self.batches.push(keys);
        if self.durability == Durability::Always {
            self.durable = self.done();
        }
        self.tell(self.done());
    }
}

/// Shows the first byte of each value alone, all of whose bytes are equal.
#[derive(PartialEq)]
struct Brief<'m>(&'m Model);

impl fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let brief = self.0.iter().map(|(key, value)| (key, value[0]));
        f.debug_map().entries(brief).finish()
    }
}

fn contents(store: &Store) -> Result<Model> {
    store.range(..).collect()
}

/// Folders are made at once here.
fn make_folders(path: &Path, partitions: u32) {
    for name in ["wal", "sst"] {
        fs::create_dir_all(path.join(name)).unwrap();
        for number in 1..partitions {
            fs::create_dir_all(path.join(partition_name(number)).join(name)).unwrap();
        }
    }
}

/// A creation that has not come to its manifest has not come to them either.
fn remove_early_folders(path: &Path, partitions: u32) {
    if !path.join("MANIFEST").exists() {
        fs::remove_dir(path.join("wal")).unwrap();
        fs::remove_dir(path.join("sst")).unwrap();
    }
    for number in 1..partitions {
        let path = path.join(partition_name(number));
        if !path.join("MANIFEST").exists() {
            fs::remove_dir_all(path).unwrap();
        }
    }
}

/// What may be found.
struct Allowed<'a> {
    models: &'a [Model],
    /// The keys of the batches between the models, where each partition may have come to another one of them.
    batches: &'a [Vec<Vec<u8>>],
    partitions: u32,
}

impl<'a> Allowed<'a> {
    fn of(models: &'a [Model], partitions: u32) -> Self {
        Self {
            models,
            batches: &[],
            partitions,
        }
    }

    /// Whether a store may have this: what a prefix of the batches has left, or in each partition a prefix of its
    /// own, if each batch is in all partitions that it changes or in none.
    fn allows(&self, store: &Store, found: &Model) -> bool {
        if self.models.contains(found) {
            return true;
        }
        let number = |key: &[u8]| store.partitions().number_of(key);
        let of = |model: &Model, wanted: usize| -> Model {
            let items = model.iter().filter(|(key, _)| number(key) == wanted);
            items
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        // The prefixes that each partition may have come to.
        let prefixes: Vec<Vec<usize>> = (0..self.partitions as usize)
            .map(|partition| {
                let found = of(found, partition);
                let is_it = |nth: &usize| of(&self.models[*nth], partition) == found;
                (0..=self.batches.len()).filter(is_it).collect()
            })
            .collect();
        let is_whole = |chosen: &[usize]| {
            self.batches.iter().enumerate().all(|(nth, keys)| {
                let mut is_in = keys.iter().map(|key| nth < chosen[number(key)]);
                let first = is_in.next();
                is_in.all(|other| Some(other) == first)
            })
        };
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for prefixes in prefixes {
            let with = |choice: Vec<usize>| {
                let longer = move |prefix: &usize| [&choice[..], &[*prefix]].concat();
                prefixes.iter().map(longer).collect::<Vec<_>>()
            };
            choices = choices.into_iter().flat_map(with).collect();
        }
        choices.iter().any(|choice| is_whole(choice))
    }
}

/// Puts an image of the files of `from` to `to`, opens it, and lets it live on until its process dies, too: what was found
/// stays, with what has changed since, and nothing that was left out comes back.
fn check(image: &Files, from: &Path, to: &Path, allowed: &Allowed, nothing_yet: bool) {
    replace_files(image, from, to, allowed.partitions);
    if nothing_yet {
        remove_early_folders(to, allowed.partitions);
    }
    let options = options(Durability::None, allowed.partitions, None);
    let chance = hash(image);
    // Nothing is damaged: a salvage makes of it what an opening does.
    if !nothing_yet && chance.is_multiple_of(4) {
        let report = recover(to, Repair::Salvage, &|_| ()).unwrap();
        assert!(report.state != ReportState::Damaged, "{report:?}");
    }
    let store = Store::open(to, &options).unwrap();
    let mut model = contents(&store).unwrap();
    assert!(
        allowed.allows(&store, &model),
        "found {:?}, none of {:?}",
        Brief(&model),
        allowed.models.iter().map(Brief).collect::<Vec<_>>()
    );
    change(&store, &mut model, chance >> 2);
    let left = to.with_extension("left");
    copy(to, &left);
    let reopened = Store::open(&left, &StoreOptions::new().partitions(allowed.partitions)).unwrap();
    assert_eq!(Brief(&contents(&reopened).unwrap()), Brief(&model));
    drop((store, reopened));
    fs::remove_dir_all(left).unwrap();
    let store = Store::open(to, &options).unwrap();
    assert_eq!(Brief(&contents(&store).unwrap()), Brief(&model));
    store.close().unwrap();
}

/// Puts an image of the files of `from` to `to`, in place of what is there.
fn replace_files(image: &Files, from: &Path, to: &Path, partitions: u32) {
    let _ = fs::remove_dir_all(to);
    make_folders(to, partitions);
    for (path, contents) in image {
        sim_disk::write(&to.join(path.strip_prefix(from).unwrap()), contents).unwrap();
    }
}

/// Changes what a store has, in some of its partitions, and makes a checkpoint of some of these.
fn change(store: &Store, model: &mut Model, chance: u64) {
    let partitions = store.partitions().all();
    for number in (0..partitions.len()).rev() {
        let chances = chance >> (2 * number);
        if chances & 1 == 1 {
            let mine = |key: &u8| store.partitions().number_of(&[*key]) == number;
            let key = (100..=u8::MAX).find(mine).unwrap();
            store.put([key], "later").unwrap();
            model.insert(vec![key], b"later".into());
            if chances & 2 == 2 {
                partitions[number].checkpoint_here().unwrap();
            }
        }
    }
}

/// Copies what the death of the process would leave. Files below the table may be merged meanwhile.
pub fn copy(from: &Path, to: &Path) {
    let manifests = || {
        let paths = paths(from).into_iter();
        let is_manifest = |path: &PathBuf| path.file_name().is_some_and(|name| name == "MANIFEST");
        let read = paths.filter(is_manifest).map(|path| fs::read(path).ok());
        read.collect::<Vec<_>>()
    };
    loop {
        let before = manifests();
        let copied = paths(from).iter().try_for_each(|path| {
            let target = to.join(path.strip_prefix(from).unwrap());
            fs::create_dir_all(target.parent().unwrap())?;
            // Room that is held has no contents, and to get pages for it takes longer than for all others.
            match path.file_name().is_some_and(|name| name == "RESERVE") {
                true => File::create(target)?.set_len(fs::metadata(path)?.len()),
                false => fs::copy(path, target).map(|_| ()),
            }
        });
        if copied.is_ok() && manifests() == before {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
}

/// All files below a directory.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() {
        true => paths(&path),
        false => vec![path],
    };
    entries.flat_map(below).collect()
}

/// What the disk may hold at each moment of an opening after the process has died in `state`.
fn opening(state: &DiskState, run: &Run) -> Vec<DiskState> {
    opening_of(&state.files(), || Disk::after_death(state), run)
}

/// The same of an opening of these files, which a disk holds.
fn opening_of(files: &Files, disk: impl FnOnce() -> Arc<Disk>, run: &Run) -> Vec<DiskState> {
    fs::remove_dir_all(&run.path).unwrap();
    make_folders(&run.path, run.partitions);
    if files.contains_key(&run.path.join("MANIFEST")) {
        let disk = disk();
        // What a creation has not come to yet.
        remove_early_folders(&run.path, run.partitions);
        let options = options(Durability::None, run.partitions, Some(&disk));
        drop(Store::open(&run.path, &options).unwrap());
        disk.recorded()
            .into_iter()
            .map(|(_, state)| state)
            .collect()
    } else {
        Vec::new()
    }
}

/// Opens images of what a power cut leaves at some moments of a run that has ended, and of openings
/// at others.
fn explore(states: Vec<(u64, DiskState)>, run: &Run, rng: &mut SmallRng) -> usize {
    let to = run.path.with_extension("image");
    let mut seen = HashSet::new();
    let mut states = states;
    states.shuffle(rng);
    for (moment, state) in states {
        let (durable, begun) = ((moment >> 32) as usize, (moment & 0xFFFF_FFFF) as usize);
        let end = begun.min(run.done());
        let allowed = Allowed {
            models: &run.models[durable..=end],
            batches: &run.batches[durable..end],
            partitions: run.partitions,
        };
        let mut images = state.power_cuts(4, rng);
        images.push(state.files());
        if rng.random_ratio(1, 8) {
            let mut states = opening(&state, run);
            let cut = &images[0];
            states.extend(opening_of(cut, || Disk::holding(cut), run));
            states.shuffle(rng);
            let cuts = states.iter().take(16);
            images.extend(cuts.flat_map(|state| state.power_cuts(2, rng)));
        }
        for image in images {
            if seen.insert(hash(&image)) {
                check(&image, &run.path, &to, &allowed, begun == 0);
            }
        }
        if seen.len() >= most_images() {
            break;
        }
    }
    seen.len()
}

#[test]
fn creation_is_interrupted_twice() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for partitions in [1, 3] {
        let path = dir.path().join(format!("store of {partitions}"));
        creation_of(&path, partitions, &mut rng);
    }
}

fn creation_of(path: &Path, partitions: u32, rng: &mut SmallRng) {
    let mut run = Run::new(path, Durability::Always, partitions);
    let states = run.disk.recorded();
    drop(run.store.take());
    let to = run.path.with_extension("image");
    let mut seen = HashSet::new();
    // One in so many moments of an opening is looked at.
    let every = 6 * partitions * u32::try_from(IMAGES / most_images().min(IMAGES)).unwrap();
    for (_, state) in states {
        // Of several partitions there are more moments.
        if rng.random_ratio(4 * (partitions - 1), 4 * partitions) {
            continue;
        }
        for second in opening(&state, &run) {
            if rng.random_ratio(every - 1, every) {
                continue;
            }
            for image in second.power_cuts(2, rng) {
                if seen.insert(hash(&image)) {
                    let allowed = Allowed::of(&run.models, partitions);
                    check(&image, &run.path, &to, &allowed, true);
                }
            }
        }
    }
    assert!(seen.len() > 3, "{}", seen.len());
}

#[test]
fn power_cut_leaves_whole_batches() {
    let seed = seed();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (mut images, mut with_files, mut moments) = (0, 0, 0);
    let mut changes: BTreeMap<String, u64> = BTreeMap::new();
    let lives = [
        (Durability::Always, 1),
        (Durability::None, 1),
        (Durability::Always, 3),
        (Durability::None, 2),
        (Durability::None, 3),
        (Durability::None, 8),
    ];
    for (nth, (durability, partitions)) in lives.into_iter().enumerate() {
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(nth as u64));
        let path = dir.path().join(format!("store{nth}"));
        let mut run = Run::new(&path, durability, partitions);
        // So many that items leave, where they do: after two or three batches.
        let least = if durability == Durability::Always {
            1
        } else {
            14
        };
        for _ in 0..rng.random_range(least..25) {
            run.step(&mut rng);
            if let Some(store) = &run.store {
                with_files += u32::from(!store.stats().spill.levels.is_empty());
            }
        }
        // To close is the last thing that may be cut short.
        run.tell(run.done());
        drop(run.store.take());
        let states = run.disk.recorded();
        for (kind, count) in run.disk.changes() {
            *changes.entry(kind).or_default() += count;
        }
        moments += states.len();
        images += explore(states, &run, &mut rng);
    }
    assert!(with_files > 0);
    for kind in ["MANIFEST", "RESERVE", "gph", "journal", "log", "sst"] {
        assert!(changes.contains_key(kind), "{kind}: {changes:?}");
    }
    println!(
        "{images} images of {moments} moments; after {with_files} steps items were in files; changes of \
         files: {changes:?}"
    );
}

/// A store at work on a disk one of whose syncs fails, in sessions of which each may die of it.
struct Sessions {
    path: PathBuf,
    disk: Arc<Disk>,
    spills: bool,
    partitions: u32,
    store: Option<Store>,
    /// What the store may hold after a crash, from one moment to the next.
    promises: Vec<Vec<Model>>,
    /// From when on there is one.
    made: Option<u64>,
}

impl Sessions {
    fn new(path: &Path, counts: fn(Call) -> bool, nth: u64, spills: bool, partitions: u32) -> Self {
        let disk = Disk::holding(&Files::new());
        disk.fail(counts, nth);
        let mut sessions = Self {
            path: path.to_path_buf(),
            disk,
            spills,
            partitions,
            store: None,
            promises: Vec::new(),
            made: None,
        };
        sessions.promise(vec![Model::new()]);
        sessions
    }

    fn promise(&mut self, models: Vec<Model>) {
        self.disk.begin(self.promises.len() as u64);
        self.promises.push(models);
    }

    fn promised(&self) -> Vec<Model> {
        self.promises.last().unwrap().clone()
    }

    fn open(&mut self) {
        let mut options = options(Durability::Always, self.partitions, Some(&self.disk));
        if self.spills {
            options = options.memory_budget(StoreOptions::MIN_BUDGET);
        }
        let again = self.disk.failed().is_some();
        match Store::open(&self.path, &options) {
            Ok(store) => {
                let Ok(found) = contents(&store) else {
                    assert!(!again, "no call fails now");
                    return;
                };
                assert!(self.promised().contains(&found));
                self.made.get_or_insert(self.promises.len() as u64);
                self.promise(vec![found]);
                self.store = Some(store);
            }
            Err(error) => assert!(!again, "no call fails now: {error}"),
        }
    }

    /// Batches that have failed may have been executed, and may yet be.
    fn write(&mut self, rng: &mut SmallRng) {
        let value = vec![rng.random(); if self.spills { 30_000 } else { 300 }];
        // Of several partitions, if there are some.
        let keys: Vec<Vec<u8>> = (0..rng.random_range(1..4))
            .map(|_| vec![rng.random_range(0..8u8)])
            .collect();
        let with: Vec<Model> = self
            .promised()
            .into_iter()
            .map(|mut model| {
                model.extend(keys.iter().map(|key| (key.clone(), value.clone())));
                model
            })
            .collect();
        let mut either = self.promised();
        either.extend(with.iter().cloned());
        self.promise(either);
        let store = self.store.as_ref().unwrap();
        let mut batch = WriteBatch::new();
        keys.into_iter()
            .for_each(|key| batch.put(key, value.clone()));
        if store.write(batch).is_ok() {
            for partition in store.partitions().all() {
                let _ = partition.keep_within_budget();
            }
            self.promise(with);
        }
    }

    fn step(&mut self, nth: u32, rng: &mut SmallRng) {
        match (&self.store, nth % 8) {
            (None, _) => self.open(),
            (Some(store), 3) => drop(store.checkpoint()),
            (Some(store), 5) => drop(store.flush()),
            (Some(store), 6) => drop(store.compact(&|_| {})),
            (Some(_), 7) => drop(self.store.take().map(Store::close)),
            _ => self.write(rng),
        }
    }

    /// The process dies at once of the sync that failed.
    fn die(&mut self) {
        let Some((moment, death)) = self.disk.failed() else {
            return;
        };
        drop(self.store.take());
        // It is there unless its making failed.
        let _ = fs::remove_dir_all(&self.path);
        make_folders(&self.path, self.partitions);
        self.disk = Disk::after_death(&death);
        remove_early_folders(&self.path, self.partitions);
        self.promise(self.promises[usize::try_from(moment).unwrap()].clone());
    }
}

/// Later syncs do not write what the failed one did not, and what is acknowledged stays none the less.
#[test]
fn sync_that_fails_loses_no_batch() {
    each_fails(|call| call == Call::Sync, 16);
}

#[test]
fn call_that_fails_before_a_death_loses_no_batch() {
    each_fails(|_| true, 200);
}

/// Lets every so many of the calls that count fail, or each one.
fn each_fails(counts: fn(Call) -> bool, every: u64) {
    let mut rng = SmallRng::seed_from_u64(seed());
    let every = match most_images() {
        usize::MAX => 1,
        _ => every,
    };
    let mut images = 0;
    for life in 0..8 {
        let (goes_on, spills) = (life & 1 == 0, life & 2 == 0);
        let partitions = if life & 4 == 0 { 1 } else { 3 };
        let life = (goes_on, spills, partitions);
        let mut nth = rng.random_range(0..every);
        let mut failed = 0;
        while let Some(opened) = one_fails(counts, nth, life, &mut rng) {
            images += opened;
            failed += 1;
            nth += every;
        }
        assert!(failed > 2, "{failed} calls");
    }
    println!("{images} images");
}

/// How many images were opened of power cuts since a call failed, if there were so many.
fn one_fails(
    counts: fn(Call) -> bool,
    nth: u64,
    (goes_on, spills, partitions): (bool, bool, u32),
    rng: &mut SmallRng,
) -> Option<usize> {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let mut sessions = Sessions::new(&path, counts, nth, spills, partitions);
    for step in 0..24 {
        sessions.step(step, rng);
        if sessions.disk.failed().is_some() {
            break;
        }
    }
    let (failed, _) = sessions.disk.failed()?;
    if !goes_on {
        sessions.die();
    }
    for step in 0..9 {
        sessions.step(step, rng);
    }
    drop(sessions.store.take());
    let mut states = sessions.disk.recorded();
    states.retain(|(moment, _)| *moment >= failed);
    states.shuffle(rng);
    states.truncate(12.min(most_images() / 10));
    let to = path.with_extension("image");
    for (moment, state) in &states {
        let models = &sessions.promises[usize::try_from(*moment).unwrap()];
        let allowed = Allowed::of(models, partitions);
        let nothing_yet = sessions.made.is_none_or(|made| *moment < made);
        for image in state.power_cuts(1, rng) {
            check(&image, &path, &to, &allowed, nothing_yet);
        }
    }
    Some(states.len())
}

/// A checkpoint begins the next segment of the log. What is written after one that could not be made durable
/// must not stand before it.
#[test]
fn checkpoint_of_which_a_call_fails_hides_no_later_record() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let mut failed = 0;
    for nth in 0.. {
        let disk = Disk::holding(&Files::new());
        let store = Store::open(&path, &options(Durability::Always, 1, Some(&disk))).unwrap();
        store.put("a", "before").unwrap();
        disk.fail(|_| true, nth);
        let _ = store.checkpoint();
        if disk.failed().is_none() {
            break;
        }
        store.put("b", "after").unwrap();
        let death = disk.now().files();
        drop(store);
        let both = [("a", "before"), ("b", "after")];
        let both = both.map(|(key, value)| (key.into(), value.into()));
        check(
            &death,
            &path,
            &path.with_extension("image"),
            &Allowed::of(&[both.into()], 1),
            false,
        );
        fs::remove_dir_all(&path).unwrap();
        failed += 1;
    }
    assert!(failed > 10, "{failed} calls");
}
