//! Power cuts while an ordinary file takes its checkpoints: sectors, lengths and names of the file
//! and of its journal arrive or not, as they like. What is opened then must hold exactly one
//! checkpoint or the next.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::{IndexedMutRandom, IndexedRandom, SliceRandom};

use super::Kind;
use super::check::{exercise, lookup};
use super::explorer::{Described, Explorer, explore_runs};
use super::history::Model;
use super::kind::{FRESH, keys};
use super::operation::{Op, maintain, write};
use super::random::{VERBS, any_key, any_kind};
use crate::layout::{DATA_START, Metadata};
use crate::pm::sim_disk::{Disk, DiskState, Files, hash};
use crate::pm::{Entry, Faults, MapOptions, Mapping, Medium};
use crate::table::Table;
use crate::table::read_superblock;
use crate::table::recovery::{Policy, Recovery};
use crate::width::to_usize;
use crate::{Domain, Result};

/// How deep crashes of replays are nested.
const DEPTH: u32 = 3;

/// The moment before the first checkpoint.
const NEVER: u64 = u64::MAX;

/// What a model has the version of a table under, and the user's bytes: keys that no operation uses.
const VERSION: u64 = u64::MAX - 1;
const USER: u64 = u64::MAX - 2;

fn options(disk: Option<&Arc<Disk>>) -> MapOptions {
    MapOptions {
        domain: Domain::Checkpointed,
        assume_dax: false,
        faults: disk.map(|disk| Arc::clone(disk) as Arc<dyn Faults>),
        ..MapOptions::default()
    }
}

/// Opens a table; gives what its file said before of itself, too.
fn open(path: &Path, disk: Option<&Arc<Disk>>) -> Result<(Table<Mapping>, Recovery, Metadata)> {
    let medium = Mapping::open(path, &options(disk))?;
    let superblock = read_superblock(&medium, path)?;
    let metadata = Table::find_metadata(&medium, &superblock.shape(path)?, path, false)?.metadata;
    let (table, recovery) = Table::open(medium, superblock, path, Policy::INDEX)?;
    let opened = table.metadata();
    assert_eq!(opened.user, metadata.user);
    let further = opened.version - metadata.version;
    // Where a checkpoint tells what the file holds, that is the version. It cannot tell of damage.
    assert!(
        further <= u64::from(!recovery.clean),
        "{further} versions more"
    );
    Ok((table, recovery, metadata))
}

/// What a model says of metadata.
fn model_of(metadata: Metadata) -> impl IntoIterator<Item = (u64, u64)> {
    let Metadata { version, user, .. } = metadata;
    let user = (!user.is_empty()).then(|| (USER, bytemuck::pod_read_unaligned(&user)));
    [(VERSION, version)].into_iter().chain(user)
}

fn any_op(count: u64, rng: &mut SmallRng) -> Op {
    match rng.random_range(0..19) {
        0..9 => {
            let len = rng.random_range(1..6);
            let keys = (0..len).map(|_| any_key(count, rng)).collect();
            Op::Batch(*VERBS.choose(rng).unwrap(), keys)
        }
        9 => Op::AddLevel,
        10 => Op::Drain,
        11 => Op::Reserve(rng.random_range(1..8)),
        12 => Op::Sync,
        13 => Op::Capture,
        14 => Op::CompleteJournal,
        15 => Op::Reopen,
        16 => Op::Kill,
        17 => Op::Publish,
        _ => Op::SetUser(rng.random()),
    }
}

/// One thread at work on a file, and what its checkpoints hold.
struct Run {
    kind: Kind,
    path: PathBuf,
    disk: Arc<Disk>,
    table: Option<Table<Mapping>>,
    model: Model,
    version: u64,
    /// Checkpoint *n* is at index *n*; the first one is that of the new table.
    checkpoints: Vec<Model>,
    /// What a checkpoint holds that was begun.
    captured: Option<Model>,
}

impl Run {
    fn new(kind: Kind, path: &Path) -> Self {
        let disk = Disk::holding(&Files::new());
        disk.begin(NEVER);
        let options = options(Some(&disk));
        let entry = Entry::at(path, options.faults.clone()).unwrap();
        let mapping = Mapping::create_at(&entry, DATA_START, &options).unwrap();
        let table = Table::create(mapping, kind.shape(), 1, path).unwrap();
        let mut run = Self {
            kind,
            path: path.to_path_buf(),
            disk,
            table: Some(table),
            model: [(VERSION, 0)].into(),
            version: 1,
            checkpoints: Vec::new(),
            captured: None,
        };
        run.checkpoint(|table| {
            table.sync()?;
            table.medium.publish()
        });
        run
    }

    /// Lets the disk know between which checkpoints it is: twice the number of the last one, and
    /// one more while the next is taken.
    fn checkpoint(&mut self, take: impl FnOnce(&Table<Mapping>) -> Result<()>) {
        let next = self.checkpoints.len() as u64;
        self.disk.begin((2 * next).checked_sub(1).unwrap_or(NEVER));
        let captured = self.captured.take();
        self.checkpoints
            .push(captured.unwrap_or_else(|| self.model.clone()));
        take(self.table.as_ref().unwrap()).unwrap();
        self.disk.begin(2 * next);
    }

    fn apply(mut self, op: &Op) -> Self {
        match op {
            Op::Batch(verb, keys) => {
                let table = self.table.as_ref().unwrap();
                for event in write(&self.kind, table, *verb, keys, self.version, || 0) {
                    event.apply(&mut self.model);
                }
                self.version += keys.len() as u64;
            }
            Op::Sync => {
                self.captured = None;
                self.checkpoint(Table::sync);
            }
            Op::Publish => {
                self.captured = None;
                let version = self.table.as_ref().unwrap().metadata().version;
                self.model.insert(VERSION, version + 1);
                self.checkpoint(Table::publish);
            }
            Op::SetUser(user) => {
                self.model.insert(USER, *user);
                maintain(self.table.as_ref().unwrap(), op);
            }
            Op::Capture => {
                self.captured = Some(self.model.clone());
                self.table.as_ref().unwrap().capture().unwrap();
            }
            Op::CompleteJournal if self.captured.is_some() => {
                self.checkpoint(|table| table.medium.complete());
            }
            Op::Reopen => {
                self.captured = None;
                let table = self.table.as_ref().unwrap();
                table.note_change();
                *self.model.get_mut(&VERSION).unwrap() = table.metadata().version + 1;
                self.checkpoint(|table| {
                    table.begin_last_version();
                    table.close()
                });
                self.reopen();
            }
            Op::Kill => {
                self.captured = None;
                self.model.clone_from(self.checkpoints.last().unwrap());
                self.reopen();
            }
            op => maintain(self.table.as_ref().unwrap(), op),
        }
        self
    }

    fn reopen(&mut self) {
        self.table = None;
        let table = open(&self.path, Some(&self.disk)).unwrap().0;
        self.model.extend(model_of(table.metadata()));
        self.table = Some(table);
    }
}

/// Checks images of files.
struct Cuts<'k> {
    kind: &'k Kind,
    count: u64,
    /// Where they are put.
    path: &'k Path,
    explorer: &'k mut Explorer,
    seen: HashMap<u64, Option<Model>>,
}

impl Cuts<'_> {
    /// The files of an image, which came about in another directory or in this one, by their paths here.
    fn here<'i>(&self, image: &'i Files) -> BTreeMap<PathBuf, &'i [u8]> {
        let here = |(path, contents): (&PathBuf, &'i Vec<u8>)| {
            let path = match path.extension().and_then(OsStr::to_str) {
                None => self.path.to_path_buf(),
                Some("journal") => self.path.with_extension("journal"),
                // The name that it has while it is made.
                Some(_) => return None,
            };
            Some((path, contents.as_slice()))
        };
        image.iter().filter_map(here).collect()
    }

    fn remove_files(&self) {
        for path in [self.path, &self.path.with_extension("journal")] {
            let _ = fs::remove_file(path);
        }
    }

    /// Checks an image unless an equal one has been. `None` is allowed where the file may be
    /// refused: before its first checkpoint.
    fn visit(&mut self, image: &Files, allowed: &[Option<&Model>]) {
        self.explorer.all += 1;
        let image = self.here(image);
        let hash = hash(&image);
        if !self.seen.contains_key(&hash) {
            let found = self.check(&image, allowed.contains(&None));
            self.seen.insert(hash, found);
            self.explorer.distinct += 1;
        }
        let found = self.seen[&hash].as_ref();
        assert!(
            allowed.contains(&found),
            "found {found:?}, expected one of {allowed:?}"
        );
    }

    fn check(&self, image: &BTreeMap<PathBuf, &[u8]>, may_be_refused: bool) -> Option<Model> {
        self.remove_files();
        for (path, contents) in image {
            fs::write(path, contents).unwrap();
        }
        let (table, recovery, metadata) = open(self.path, None)
            .inspect_err(|error| {
                if !may_be_refused {
                    println!("{error}");
                }
            })
            .ok()?;
        let mut found = lookup(self.kind, &table, keys(self.count));
        assert_eq!(table.len(), found.len() as u64, "items of {found:?}");
        assert_eq!(recovery.items, found.len() as u64, "items of {found:?}");
        let model = exercise(self.kind, &table, self.count, &found);
        table.close().unwrap();
        drop(table);
        let (table, recovery, _) = open(self.path, None).unwrap();
        assert!(recovery.clean);
        let all = keys(self.count).chain(FRESH);
        assert_eq!(lookup(self.kind, &table, all), model);
        found.extend(model_of(metadata));
        Some(found)
    }

    /// Opens an image, and cuts that short, `depth` times.
    fn replay(
        &mut self,
        image: &Files,
        allowed: &[Option<&Model>],
        depth: u32,
        rng: &mut SmallRng,
    ) {
        let image = self.here(image);
        self.remove_files();
        let owned = |(path, contents): (&PathBuf, &&[u8])| (path.clone(), contents.to_vec());
        let disk = Disk::holding(&image.iter().map(owned).collect());
        disk.begin(0);
        drop(open(self.path, Some(&disk)));
        let states = disk.recorded();
        let (_, state) = states.choose(rng).unwrap();
        let images = state.power_cuts(6, rng);
        for image in &images {
            self.visit(image, allowed);
        }
        if depth > 1 {
            let image = images.choose(rng).unwrap();
            self.replay(image, allowed, depth - 1, rng);
        }
    }

    fn explore(
        &mut self,
        mut states: Vec<(u64, DiskState)>,
        checkpoints: &[Model],
        most: usize,
        rng: &mut SmallRng,
    ) {
        states.shuffle(rng);
        let limit = (self.explorer.distinct + 600).min(self.explorer.budget);
        for (moment, state) in states {
            if self.explorer.distinct >= limit {
                return;
            }
            // Before the first checkpoint nothing was promised.
            let (last, next) = match moment {
                NEVER => (None, checkpoints.first()),
                moment => (
                    checkpoints.get(to_usize(moment) / 2),
                    checkpoints.get(to_usize(moment) / 2 + to_usize(moment) % 2),
                ),
            };
            let allowed = [last, next];
            let mut images = state.power_cuts(most, rng);
            images.push(state.files());
            for image in &images {
                self.visit(image, &allowed);
                if rng.random_ratio(1, 4) {
                    // Without its journal it is refused, or it is none the less one of the two.
                    let mut bare = image.clone();
                    bare.retain(|path, _| path.extension().is_none());
                    self.visit(&bare, &[last, next, None]);
                }
                if rng.random_ratio(1, 4) {
                    self.visit(&damaged(image, rng), &[last, next, None]);
                }
                if rng.random_ratio(1, 8) {
                    self.replay(image, &allowed, DEPTH, rng);
                }
            }
        }
    }
}

/// An image with a bit of its journal flipped, if it has one.
fn damaged(image: &Files, rng: &mut SmallRng) -> Files {
    let mut damaged = image.clone();
    let is_journal = |path: &PathBuf| path.extension().and_then(OsStr::to_str) == Some("journal");
    let journal = damaged.iter_mut().find(|(path, _)| is_journal(path));
    if let Some(byte) = journal.and_then(|(_, bytes)| bytes.choose_mut(rng)) {
        *byte ^= 1 << rng.random_range(0..8);
    }
    damaged
}

#[test]
fn power_cut_leaves_one_checkpoint_or_the_next() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = dir.path().join("image");
    explore_runs("checkpoints", "sequences", 10, |explorer, seed, rng| {
        let kind = any_kind(rng);
        let count = rng.random_range(2..14);
        let len = rng.random_range(1..24);
        let ops: Vec<Op> = (0..len).map(|_| any_op(count, rng)).collect();
        let _described = Described {
            seed,
            text: format!("{kind:?}, {ops:?}"),
        };
        let path = dir.path().join(format!("table{seed}"));
        let mut run = ops.iter().fold(Run::new(kind, &path), Run::apply);
        run.captured = None;
        run.checkpoint(Table::close);
        let mut cuts = Cuts {
            kind: &kind,
            count,
            path: &image,
            explorer,
            seen: HashMap::new(),
        };
        let states = run.disk.recorded();
        cuts.explore(states, &run.checkpoints, 24, rng);
        drop(run);
        fs::remove_file(&path).unwrap();
    });
}
