//! Arbitrary batches against a `HashMap`, with closes, deaths of the process and power cuts between
//! them.

#![no_main]

mod folder;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arbitrary::Arbitrary;
use gphash::pm::sim_disk::{Disk, Files};
use gphash::{Domain, Engine, Index, Options};
use libfuzzer_sys::fuzz_target;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tempfile::TempDir;

type Table = Index<u64, u64>;
type Model = HashMap<u64, u64>;

#[derive(Arbitrary, Debug)]
enum Operation {
    Insert(Vec<u8>, u64),
    Upsert(Vec<u8>, u64),
    Update(Vec<u8>, u64),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    /// A run of new keys, so that the table grows.
    Fill(u8),
    Reserve(u16),
    Sync,
    Reopen,
    /// The process dies; the next one goes on with what it has left.
    Kill,
    /// The power fails after some steps of a checkpoint.
    PowerCut {
        steps: u8,
        seed: u64,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    small: bool,
    checkpointed: bool,
    operations: Vec<Operation>,
}

fn keys(numbers: &[u8]) -> Vec<u64> {
    let key = |&number| {
        if number == 255 {
            u64::MAX
        } else {
            u64::from(number)
        }
    };
    numbers.iter().map(key).collect()
}

/// An index under test and what it must hold.
struct Subject {
    index: Option<Table>,
    disk: Arc<Disk>,
    folder: TempDir,
    options: Options,
    model: Model,
    /// The last checkpoint, where there are such.
    saved: Model,
    checkpointed: bool,
    fresh: u64,
}

impl Subject {
    fn new(input: &Input) -> Self {
        let shape = if input.small { (1, 1, 2) } else { (2, 2, 8) };
        let domain = match input.checkpointed {
            true => Domain::Checkpointed,
            false => Domain::Auto,
        };
        let options = Options::new()
            .engine(Engine::Cpu)
            .domain(domain)
            .capacity(1)
            .shape(shape.0, shape.1, shape.2);
        let folder = folder::new();
        let disk = Arc::new(Disk::default());
        let made = Table::create(path_in(&folder), &options.clone().faults(disk.clone()));
        Self {
            index: Some(made.unwrap()),
            disk,
            folder,
            options,
            model: Model::new(),
            saved: Model::new(),
            checkpointed: input.checkpointed,
            fresh: 1 << 32,
        }
    }

    fn index(&self) -> &Table {
        self.index.as_ref().expect("it is open")
    }

    /// Goes on with these files in a new folder.
    fn open(&mut self, files: Files) {
        let folder = folder::new();
        let moved = |(path, contents): (PathBuf, Vec<u8>)| {
            (folder.path().join(path.file_name().unwrap()), contents)
        };
        self.disk = Disk::holding(&files.into_iter().map(moved).collect());
        let options = self.options.clone().faults(self.disk.clone());
        let index = Table::open(path_in(&folder), &options).unwrap();
        // The old index may still store to its own file; nobody looks at that any more.
        self.index = Some(index);
        self.folder = folder;
    }

    fn contents(&self) -> Model {
        let index = self.index();
        let held: Model = index.iter().collect();
        assert_eq!(index.len(), held.len() as u64);
        assert_eq!(index.iter().count(), held.len());
        held
    }

    fn kill(&mut self) {
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            let contents = std::fs::read(&path).unwrap();
            (path, contents)
        };
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(read);
        self.open(files.collect());
        if self.checkpointed {
            self.model.clone_from(&self.saved);
        }
        assert_eq!(self.contents(), self.model);
    }

    fn cut_power(&mut self, steps: u8, seed: u64) {
        if !self.checkpointed {
            return self.kill();
        }
        self.disk.begin(0);
        self.index().sync().unwrap();
        let states = self.disk.recorded();
        let (_, state) = states
            .get(usize::from(steps))
            .unwrap_or(&states[states.len() - 1]);
        let was_done = usize::from(steps) + 1 >= states.len();
        let mut images = state.power_cuts(1, &mut SmallRng::seed_from_u64(seed));
        self.open(images.pop().unwrap());
        let found = self.contents();
        assert!(found == self.model || !was_done && found == self.saved);
        self.model = found;
        // What was found came from the disk, but what recovery has mended is not saved yet.
        self.saved.clone_from(&self.model);
    }

    fn run(&mut self, operation: &Operation) {
        match operation {
            Operation::Insert(numbers, value) => {
                let keys = keys(numbers);
                let answers = self
                    .index()
                    .insert(&keys, &vec![*value; keys.len()])
                    .unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(answers.contains(i), !self.model.contains_key(key));
                    self.model.entry(*key).or_insert(*value);
                }
            }
            Operation::Upsert(numbers, value) => {
                let keys = keys(numbers);
                let answers = self
                    .index()
                    .upsert(&keys, &vec![*value; keys.len()])
                    .unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(
                        answers.contains(i),
                        self.model.insert(*key, *value).is_none()
                    );
                }
            }
            Operation::Update(numbers, value) => {
                let keys = keys(numbers);
                let answers = self
                    .index()
                    .update(&keys, &vec![*value; keys.len()])
                    .unwrap();
                for (i, key) in keys.iter().enumerate() {
                    let held = self.model.get_mut(key).map(|held| *held = *value);
                    assert_eq!(answers.contains(i), held.is_some());
                }
            }
            Operation::Remove(numbers) => {
                let keys = keys(numbers);
                let answers = self.index().remove(&keys).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    assert_eq!(answers.contains(i), self.model.remove(key).is_some());
                }
            }
            Operation::Get(numbers) => {
                let keys = keys(numbers);
                let mut values = vec![0; keys.len()];
                let answers = self.index().get(&keys, &mut values).unwrap();
                for (i, key) in keys.iter().enumerate() {
                    let found = answers.contains(i).then_some(values[i]);
                    assert_eq!(found, self.model.get(key).copied());
                }
            }
            Operation::Fill(count) => {
                let keys: Vec<u64> = (self.fresh..self.fresh + u64::from(*count)).collect();
                self.fresh += u64::from(*count);
                let answers = self.index().insert(&keys, &keys).unwrap();
                assert_eq!(answers.count_ones(..), keys.len());
                self.model.extend(keys.iter().map(|&key| (key, key)));
            }
            Operation::Reserve(count) => self.index().reserve(u64::from(*count)).unwrap(),
            Operation::Sync => {
                self.index().sync().unwrap();
                self.saved.clone_from(&self.model);
            }
            Operation::Reopen => {
                self.index.take().expect("it is open").close().unwrap();
                let options = self.options.clone().faults(self.disk.clone());
                self.index = Some(Table::open(path_in(&self.folder), &options).unwrap());
                assert!(self.index().recovery().clean);
                self.saved.clone_from(&self.model);
            }
            Operation::Kill => self.kill(),
            Operation::PowerCut { steps, seed } => self.cut_power(*steps, *seed),
        }
    }
}

fn path_in(folder: &TempDir) -> PathBuf {
    folder.path().join("index")
}

fuzz_target!(|input: Input| {
    let mut subject = Subject::new(&input);
    for operation in &input.operations {
        subject.disk.recorded();
        subject.run(operation);
    }
    assert_eq!(subject.contents(), subject.model);
});
