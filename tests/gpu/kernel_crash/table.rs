//! A table under random batches of the CUDA engine, and the images of crashes in their launches.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gphash::layout::{DATA_START, Superblock};
use gphash::{AddressOrder, Engine, Index, Options};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

use crate::check::{Allowed, Key, Model, Value, check};
use crate::launch::{Launch, Watch, words_to_lose};

/// Batches of a table.
const BATCHES: u64 = 16;

/// Most moments of a launch at which it is cut short.
const MOMENTS: usize = 32;

/// Unfenced stores of which every subset is lost in some image; of more, some subsets are drawn.
const FEW: usize = 3;

/// Subsets that are drawn.
const DRAWN: usize = 3;

/// One image in so many is put to use, the others are only read.
const THOROUGH: u32 = 8;

/// What the images of a table were.
#[derive(Debug, Default)]
pub struct Tally {
    /// Images after the death of the process between two stores.
    pub process_crashes: u64,
    /// Images with some unfenced stores lost.
    pub power_cuts: u64,
    /// Images that the CUDA engine has recovered.
    pub on_device: u64,
    /// Launches whose stores the device itself has cut short.
    pub cut_short: u64,
    /// Launches that have stored something.
    pub launches: u64,
    /// Of those, the ones that move items up.
    pub drains: u64,
    /// Words that the host has written before launches.
    pub written_by_host: u64,
    /// Stores of a launch, at most.
    pub most_stores: u64,
    /// Hashes of the images.
    pub distinct: BTreeSet<u64>,
}

impl Tally {
    pub fn images(&self) -> u64 {
        self.process_crashes + self.power_cuts
    }

    pub fn add(&mut self, other: Self) {
        self.process_crashes += other.process_crashes;
        self.power_cuts += other.power_cuts;
        self.on_device += other.on_device;
        self.cut_short += other.cut_short;
        self.launches += other.launches;
        self.drains += other.drains;
        self.written_by_host += other.written_by_host;
        self.most_stores = self.most_stores.max(other.most_stores);
        self.distinct.extend(other.distinct);
    }
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Insert,
    Upsert,
    Update,
    Remove,
}

/// A batch: numbers of keys and versions, and the version that the verb gives to all of them.
struct Batch {
    verb: Verb,
    numbers: Vec<u64>,
    versions: Vec<u64>,
}

impl Batch {
    fn draw(rng: &mut SmallRng, space: u64, nth: u64) -> Self {
        // Tables that fill grow, those that are emptied use records again.
        let verb = match rng.random_range(0..8) {
            0..3 => Verb::Insert,
            3 | 4 => Verb::Upsert,
            5 => Verb::Update,
            _ => Verb::Remove,
        };
        let len = match rng.random_range(0..12) {
            0 => rng.random_range(1..4),
            1 => rng.random_range(200..1200),
            _ => rng.random_range(4..100),
        };
        let some_equal = rng.random_range(0..4) == 0;
        let number = |rng: &mut SmallRng| match rng.random_range(0..40) {
            // The keys that equal slot states.
            0 => 0,
            1 => u64::MAX,
            2..8 if some_equal => rng.random_range(1..4),
            _ => rng.random_range(1..=space),
        };
        Self {
            verb,
            numbers: (0..len).map(|_| number(rng)).collect(),
            versions: (0..len).map(|at| nth << 20 | at).collect(),
        }
    }

    /// What becomes of the items, and the answers.
    fn apply(&self, model: &mut Model) -> Vec<bool> {
        let operations = self.numbers.iter().zip(&self.versions);
        let answers = operations.map(|(number, &version)| {
            let held = model.contains_key(number);
            match (self.verb, held) {
                (Verb::Insert, false) | (Verb::Upsert, _) | (Verb::Update, true) => {
                    model.insert(*number, version);
                }
                (Verb::Remove, true) => drop(model.remove(number)),
                _ => {}
            }
            held == matches!(self.verb, Verb::Update | Verb::Remove)
        });
        answers.collect()
    }

    fn run<K: Key, V: Value>(&self, index: &Index<K, V>) -> Vec<bool> {
        let keys: Vec<K> = self.numbers.iter().map(|&number| K::of(number)).collect();
        let operations = self.numbers.iter().zip(&self.versions);
        let values: Vec<V> = operations
            .map(|(&number, &version)| V::of(number, version))
            .collect();
        let answers = match self.verb {
            Verb::Insert => index.insert(&keys, &values),
            Verb::Upsert => index.upsert(&keys, &values),
            Verb::Update => index.update(&keys, &values),
            Verb::Remove => index.remove(&keys),
        };
        let answers = answers.unwrap();
        (0..keys.len()).map(|at| answers.contains(at)).collect()
    }
}

/// Runs the table of a seed in `folder`, with keys and values of these types.
pub fn run<K: Key, V: Value>(folder: &Path, seed: u64, engine: Engine) -> Tally {
    let mut rng = SmallRng::seed_from_u64(seed);
    let folder = TempDir::new_in(folder).unwrap();
    let mut run = Run {
        path: folder.path().join("index"),
        image: folder.path().join("image"),
        seed,
        engine,
        tally: Tally::default(),
        rng: SmallRng::seed_from_u64(seed ^ 1),
        images: 0,
    };
    let (levels, locations, slots) = [
        (2, 2, 8),
        (1, 2, 4),
        (2, 1, 2),
        (3, 1, 8),
        (1, 1, 8),
        (2, 2, 3),
    ][rng.random_range(0..6)];
    let shape = Options::new()
        .engine(Engine::Cpu)
        .shape(levels, locations, slots)
        .checksums(rng.random())
        .capacity(1 << rng.random_range(0..8));
    Index::<K, V>::create(&run.path, &shape)
        .unwrap()
        .close()
        .unwrap();
    reseed(&run.path, rng.random());

    let has_mirror = rng.random_range(0..3) != 0;
    let cache = [0.0, 0.5][rng.random_range(0..2)];
    let order = [AddressOrder::Never, AddressOrder::Always][rng.random_range(0..2)];
    let watch = Arc::new(Watch::new(&run.path, rng.random(), has_mirror));
    let options = Options::new()
        .engine(engine)
        .device_mirror(has_mirror)
        .cache_ratio(cache)
        .cache_period(None)
        .address_order(order)
        .write_trace(Arc::clone(&watch) as _);
    let space = 1 << rng.random_range(4..10);
    let mut model = Model::new();
    {
        let index = Index::<K, V>::open(&run.path, &options).unwrap();
        for nth in 1..=BATCHES {
            let batch = Batch::draw(&mut rng, space, nth);
            let before = model.clone();
            let expected = batch.apply(&mut model);
            let at_rest = fs::read(&run.path).unwrap();
            let answers = batch.run(&index);
            assert_eq!(answers, expected, "answers of {:?}", batch.verb);
            let allowed = Allowed {
                before: &before,
                after: &model,
            };
            let launches = watch.take();
            if let Some(first) = launches.first() {
                run.check_before_launch::<K, V>(&at_rest, &first.before, allowed);
            }
            for launch in &launches {
                run.check_launch::<K, V>(launch, allowed);
            }
            run.check_answered::<K, V>(&launches, &model);
            if rng.random_range(0..4) == 0 {
                index.reload_cache().unwrap();
            }
        }
        index.close().unwrap();
    }
    let bytes = fs::read(&run.path).unwrap();
    let superblock = Superblock::parse(&bytes, bytes.len() as u64, &run.path).unwrap();
    assert_eq!(
        superblock.arena_high_water,
        superblock.items + superblock.free_count,
        "records that are neither an item's nor free"
    );
    let closed = Allowed {
        before: &model,
        after: &model,
    };
    // What a resize had left to do.
    for launch in watch.take() {
        run.check_launch::<K, V>(&launch, closed);
    }
    check::<K, V>(&run.path, Engine::Cpu, closed, true);
    run.tally.cut_short = watch.cut_short();
    run.tally
}

/// Gives a new file another hash seed, so that the seed of the run decides where keys go.
fn reseed(path: &Path, hash_seed: u64) {
    let bytes = fs::read(path).unwrap();
    let mut superblock = Superblock::parse(&bytes, bytes.len() as u64, path).unwrap();
    superblock.hash_seed = hash_seed;
    superblock.seal();
    let file = File::options().write(true).open(path).unwrap();
    let at = superblock.file_offset();
    file.write_all_at(bytemuck::bytes_of(&superblock), at)
        .unwrap();
}

/// A table and the images made of it.
struct Run {
    seed: u64,
    path: PathBuf,
    image: PathBuf,
    engine: Engine,
    tally: Tally,
    rng: SmallRng,
    images: u32,
}

impl Run {
    fn check_launch<K: Key, V: Value>(&mut self, launch: &Launch, allowed: Allowed) {
        let mut moments = launch.stores();
        self.tally.launches += 1;
        self.tally.drains += u64::from(launch.kernel == "drain");
        self.tally.most_stores = self.tally.most_stores.max(moments.len() as u64);
        while moments.len() > MOMENTS {
            moments.swap_remove(self.rng.random_range(0..moments.len()));
        }
        for moment in moments {
            self.tally.process_crashes += 1;
            let what = format!(
                "after {moment} of {} notes of {}",
                launch.notes.len(),
                launch.kernel
            );
            self.check_image::<K, V>(&launch.after(moment), allowed, &what);
            let unfenced = launch.unfenced(moment);
            for lost in self.losses(&unfenced) {
                self.tally.power_cuts += 1;
                let what = format!("{what}, without {lost:?} of {unfenced:?}");
                self.check_image::<K, V>(&launch.without(moment, &lost), allowed, &what);
            }
        }
    }

    /// The host has written values, and nothing leads there yet.
    fn check_before_launch<K: Key, V: Value>(
        &mut self,
        at_rest: &[u8],
        before: &[u8],
        allowed: Allowed,
    ) {
        let start = usize::try_from(DATA_START).unwrap();
        // A file that has grown has been stored to in other places, too, and not in any order.
        if at_rest.len() != before.len() || at_rest[..start] != before[..start] {
            return;
        }
        let differs = |&at: &usize| at_rest[at..at + 8] != before[at..at + 8];
        let written: Vec<usize> = (start..before.len()).step_by(8).filter(differs).collect();
        self.tally.written_by_host += written.len() as u64;
        for lost in self.losses(&written) {
            let mut image = before.to_vec();
            for &at in &lost {
                image[at..at + 8].copy_from_slice(&at_rest[at..at + 8]);
            }
            self.tally.process_crashes += 1;
            let what = format!("before a launch, without the host's words at {lost:?}");
            self.check_image::<K, V>(&image, allowed, &what);
        }
    }

    /// What has been answered stands, also if the power is cut at rest.
    fn check_answered<K: Key, V: Value>(&mut self, launches: &[Launch], model: &Model) {
        let now = fs::read(&self.path).unwrap();
        let words = words_to_lose(launches, &now);
        let numbers: Vec<usize> = (0..words.len()).collect();
        for lost in self.losses(&numbers) {
            let mut image = now.clone();
            for nth in lost {
                let (at, word) = words[nth];
                image[at..at + 8].copy_from_slice(&word);
            }
            self.tally.power_cuts += 1;
            let allowed = Allowed {
                before: model,
                after: model,
            };
            self.check_image::<K, V>(&image, allowed, "after a batch");
        }
    }

    /// Sets of stores, not empty, that a power cut may take back.
    fn losses(&mut self, unfenced: &[usize]) -> Vec<Vec<usize>> {
        let subset = |chosen: &dyn Fn(usize) -> bool| -> Vec<usize> {
            let pairs = unfenced.iter().enumerate();
            pairs
                .filter(|&(nth, _)| chosen(nth))
                .map(|(_, &note)| note)
                .collect()
        };
        if unfenced.len() <= FEW {
            let sets = 1u32..1 << unfenced.len();
            return sets
                .map(|bits| subset(&|nth| bits >> nth & 1 != 0))
                .collect();
        }
        let sets = (0..DRAWN).map(|_| {
            // Few of them, most, or half.
            let share = [0.1, 0.5, 0.9][self.rng.random_range(0..3)];
            let chosen: Vec<bool> = unfenced
                .iter()
                .map(|_| self.rng.random_bool(share))
                .collect();
            subset(&|nth| chosen[nth])
        });
        sets.filter(|set| !set.is_empty()).collect()
    }

    fn check_image<K: Key, V: Value>(&mut self, image: &[u8], allowed: Allowed, what: &str) {
        self.images += 1;
        self.tally.distinct.insert(xxh3_64(image));
        fs::write(&self.image, image).unwrap();
        let thorough = self.images.is_multiple_of(THOROUGH);
        // Opening a device's engine takes a hundred times as long.
        let on_device = self.images.is_multiple_of(512);
        self.tally.on_device += u64::from(on_device);
        let engine = if on_device { self.engine } else { Engine::Cpu };
        let checked =
            std::panic::catch_unwind(|| check::<K, V>(&self.image, engine, allowed, thorough));
        if let Err(panic) = checked {
            let kept = std::env::temp_dir().join(format!("gphash-crash-image-{}", self.seed));
            fs::write(&kept, image).unwrap();
            println!("the image {what} is kept in {}", kept.display());
            std::panic::resume_unwind(panic);
        }
    }
}
