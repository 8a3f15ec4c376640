//! Calls that fail on a store at work, before its process dies or the power is cut: nothing that was promised is lost.

use super::*;

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
