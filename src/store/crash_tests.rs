//! Power cuts: sectors, lengths and names of all files of a store arrive or not, as they like. What
//! is opened then must hold what a prefix of the batches has left, and at least what was promised to
//! be durable.

mod closes;
mod failing_calls;
mod salvages;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gphash_test_support::copy_store;
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
    copy_store(from, to, &["MANIFEST"]);
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
