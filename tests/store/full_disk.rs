//! A disk that is full: puts are refused and change nothing; reading, deleting, checkpoints, closing and
//! opening go on, after a kill too; and when there is room again, so do puts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use gphash::pm::{Call, Faults, FileEvent};
use gphash::store::{Durability, Partitioner, Request, Response, Store, WriteBatch};
use gphash::{Domain, Error, ReportState};
use gphash_test_support::setting;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::disk::{copy, folders};
use super::model::{Model, contents};
use super::seed;

const PAGE: u64 = 4096;

/// A disk with so many pages for all files below a folder.
#[derive(Debug)]
struct Disk(Mutex<Pages>);

#[derive(Debug, Clone)]
struct Pages {
    all: u64,
    /// The pages of each file, from its beginning.
    of_file: BTreeMap<PathBuf, u64>,
}

impl Pages {
    fn free(&self) -> u64 {
        self.all.saturating_sub(self.of_file.values().sum())
    }
}

impl Disk {
    fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Pages {
            all: bytes / PAGE,
            of_file: BTreeMap::new(),
        })))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap()
    }

    /// Somebody else takes all that is free.
    fn fill(&self) {
        let mut pages = self.pages();
        pages.all = pages.of_file.values().sum();
    }

    /// Somebody else frees so many bytes.
    fn free(&self, bytes: u64) {
        self.pages().all += bytes / PAGE;
    }

    /// Somebody else takes so many bytes, if they are free.
    fn take(&self, bytes: u64) {
        let mut pages = self.pages();
        pages.all -= pages.free().min(bytes.div_ceil(PAGE));
    }

    /// The same disk with its files below another folder.
    fn moved(&self, from: &Path, to: &Path) -> Arc<Self> {
        let mut pages = self.pages().clone();
        let moved = |(path, count): (PathBuf, u64)| {
            let inside = path.strip_prefix(from).unwrap();
            (to.join(inside), count)
        };
        let files = std::mem::take(&mut pages.of_file);
        pages.of_file = files.into_iter().map(moved).collect();
        Arc::new(Self(Mutex::new(pages)))
    }
}

impl Faults for Disk {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn after(&self, event: FileEvent, path: &Path) {
        let mut pages = self.pages();
        match event {
            FileEvent::SetLen(len) => {
                if let Some(count) = pages.of_file.get_mut(path) {
                    *count = (*count).min(len.div_ceil(PAGE));
                }
            }
            FileEvent::Removed => {
                pages.of_file.remove(path);
            }
            FileEvent::Renamed(to) => {
                let count = pages.of_file.remove(path).unwrap_or(0);
                pages.of_file.insert(to.to_path_buf(), count);
            }
            _ => {}
        }
    }

    fn room(&self, _: Call, path: &Path, from: u64, to: u64) -> u64 {
        let mut pages = self.pages();
        let free = pages.free();
        let count = pages.of_file.entry(path.to_path_buf()).or_default();
        let wanted = to.div_ceil(PAGE);
        let had = (*count).min(wanted);
        let granted = had + (wanted - had).min(free);
        *count = (*count).max(granted);
        match granted == wanted {
            true => to,
            false => (granted * PAGE).max(from),
        }
    }
}

/// A store whose disk becomes full.
struct Case {
    domain: Domain,
    partitions: u32,
    budget: Option<u64>,
    /// Lives end by the death of the process.
    is_killed: bool,
    folder: TempDir,
    path: PathBuf,
    disk: Arc<Disk>,
    model: Model,
    rng: SmallRng,
    lives: u32,
}

impl Case {
    fn open(&self) -> Store {
        let mut options = crate::options()
            .partitions(self.partitions)
            .capacity(64)
            .domain(self.domain)
            .assume_dax(self.domain == Domain::Dax)
            .durability(Durability::Always)
            .segment_bytes(128 << 10)
            .faults(self.disk.clone());
        if let Some(budget) = self.budget {
            options = options.memory_budget(budget);
        }
        Store::open(&self.path, &options).unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }

    fn name(&self) -> String {
        let Self {
            domain,
            partitions,
            budget,
            lives,
            ..
        } = self;
        let end = if self.is_killed { "killed" } else { "closed" };
        format!("{domain:?}, {partitions} partitions, budget {budget:?}, {end}, life {lives}")
    }

    /// What takes the disk's pages, and what the store says of itself, in lines that are short enough to be read.
    fn of_disk(&self, store: &Store) -> String {
        let pages = self.disk.pages().clone();
        format!("\n{} free; {pages:#?}\n{:#?}", pages.free(), store.stats())
    }

    /// Ends the life, and begins the next one.
    fn end(&mut self, store: Store) -> Store {
        self.lives += 1;
        if !self.is_killed {
            store
                .close()
                .unwrap_or_else(|error| panic!("{}: {error}", self.name()));
            return self.open();
        }
        let next = self.folder.path().join(self.lives.to_string());
        let left = loop {
            let before = self.disk.pages().of_file.clone();
            copy(&self.path, &next);
            let left = self.disk.moved(&self.path, &next);
            if before == self.disk.pages().of_file {
                break left;
            }
            std::fs::remove_dir_all(&next).unwrap();
        };
        self.disk.free(1 << 30);
        drop(store);
        std::fs::remove_dir_all(&self.path).unwrap();
        (self.path, self.disk) = (next, left);
        self.open()
    }

    fn check(&self, store: &Store) {
        for (key, value) in &self.model {
            let found = store.get(key).unwrap();
            assert!(found.as_ref() == Some(value), "{}: {key:?}", self.name());
        }
        assert!(contents(store) == self.model, "{}", self.name());
    }

    fn key(&mut self) -> String {
        let number = self.rng.random_range(0..4000u32);
        match number % 20 {
            // The tombstone of such a key is longer than most items.
            0 => format!("{number:2000}"),
            1..4 => format!("a longer key, of another size class, with number {number}"),
            _ => format!("key {number}"),
        }
    }

    fn put(&mut self, store: &Store, len: usize) -> bool {
        self.put_all(store, 1, len)
    }

    /// Puts some values of so many bytes together.
    fn put_all(&mut self, store: &Store, count: usize, len: usize) -> bool {
        let items: Model = (0..count)
            .map(|_| (self.key().into_bytes(), vec![self.rng.random(); len]))
            .collect();
        let put = match items.iter().next() {
            Some((key, value)) if items.len() == 1 => store.put(key.clone(), value.clone()),
            _ => {
                let mut batch = WriteBatch::new();
                let all = items.iter();
                all.for_each(|(key, value)| batch.put(key.clone(), value.clone()));
                store.write(batch)
            }
        };
        match put {
            Ok(()) => {
                self.model.extend(items);
                true
            }
            Err(Error::NoSpace { .. }) => {
                for key in items.keys() {
                    let found = store.get(key).unwrap();
                    assert!(
                        found.as_ref() == self.model.get(key),
                        "{}: a put that was refused has changed something",
                        self.name()
                    );
                }
                false
            }
            Err(error) => panic!("{}: {error}{}", self.name(), self.of_disk(store)),
        }
    }

    /// Puts until there is no room, which somebody else may have taken the last of. He takes as much as is put once that is
    /// more than the disk: a compaction that keeps pace would find room for new values of all keys for ever.
    fn fill(&mut self, store: &Store) {
        let mut refused = 0;
        let (mut written, all) = (0, self.disk.pages().all * PAGE);
        while refused < 8 {
            let len = match self.rng.random_range(0..40) {
                0 => 20_000,
                1..4 => 5000,
                _ => self.rng.random_range(0..1500),
            };
            let count = match self.rng.random_range(0..4) {
                0 => self.rng.random_range(2..6),
                _ => 1,
            };
            refused += u32::from(!self.put_all(store, count, len));
            let bytes = (count * len) as u64;
            written += bytes;
            if written > all {
                self.disk.take(bytes);
            }
        }
        if self.rng.random() {
            // Nothing of the reserve is in use now.
            self.checkpoint(store);
            self.disk.fill();
        }
        for len in [1 << 20, 100_000] {
            // What leaves the index, and compaction, may make some room beside it. Another partition may have some.
            let may_have_room = self.budget.is_some() || self.partitions > 1;
            assert!(!self.put(store, len) || may_have_room);
        }
    }

    /// Deletes so many keys, each by itself or several together, in a batch or in a transaction.
    fn delete(&mut self, store: &Store, most: usize) {
        let mut keys: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        keys.shuffle(&mut self.rng);
        keys.truncate(most);
        let mut keys = &keys[..];
        while !keys.is_empty() {
            let some = self.rng.random_range(1..=4).min(keys.len());
            let (these, others) = keys.split_at(some);
            keys = others;
            let deleted = match these {
                [key] if self.rng.random() => {
                    let taken = store.take(key.clone());
                    taken.map(|value| assert_eq!(value.as_ref(), self.model.get(key)))
                }
                [key] => store.delete(key.clone()),
                _ if self.rng.random() => {
                    let mut transaction = store.transaction();
                    these
                        .iter()
                        .try_for_each(|key| {
                            transaction.get(key)?;
                            transaction.delete(key.clone())
                        })
                        .and_then(|()| transaction.commit())
                }
                _ => {
                    let mut batch = WriteBatch::new();
                    these.iter().for_each(|key| batch.delete(key.clone()));
                    store.write(batch)
                }
            };
            deleted.unwrap_or_else(|error| {
                let left = self.model.len();
                let disk = self.of_disk(store);
                panic!("{}: {error}; {left} keys are left{disk}", self.name())
            });
            these.iter().for_each(|key| drop(self.model.remove(key)));
            if self.rng.random_range(0..60) == 0 {
                self.checkpoint(store);
            }
        }
    }

    /// Deletes all keys, on several threads.
    fn delete_all(&mut self, store: &Store) {
        let model = std::mem::take(&mut self.model);
        let keys: Vec<Vec<u8>> = model.into_keys().collect();
        let name = self.name();
        std::thread::scope(|scope| {
            for part in keys.chunks(keys.len().div_ceil(4).max(1)) {
                let name = &name;
                scope.spawn(move || {
                    for key in part {
                        store
                            .delete(key.clone())
                            .unwrap_or_else(|error| panic!("{name}: {error}"));
                    }
                });
            }
        });
    }

    fn checkpoint(&self, store: &Store) {
        store
            .checkpoint()
            .unwrap_or_else(|error| panic!("{}: {error}", self.name()));
    }

    fn run(mut self) {
        let store = self.open();
        self.fill(&store);
        self.check(&store);
        let store = self.end(store);
        self.check(&store);
        let fifth = self.model.len() / 5;
        self.delete(&store, fifth);
        let store = self.end(store);
        self.check(&store);
        self.delete(&store, fifth);
        self.checkpoint(&store);
        let store = self.end(store);
        self.check(&store);
        self.delete(&store, fifth);
        self.delete_all(&store);
        self.check(&store);
        let store = self.end(store);
        self.check(&store);
        // More than the journal of a checkpoint of all that is left can need.
        self.disk.free(16 << 20);
        for _ in 0..100 {
            assert!(self.put(&store, 500), "{}", self.name());
        }
        self.check(&store);
        let store = self.end(store);
        self.check(&store);
        assert_eq!(store.verify(&|_| {}).state, ReportState::Clean);
        store.close().unwrap();
    }
}

/// How often each case is tried: `GPHASH_FULL_DISKS` times, or once.
fn rounds() -> u64 {
    setting("GPHASH_FULL_DISKS").unwrap_or(1)
}

/// Partitions of each store: `GPHASH_FULL_DISK_PARTITIONS`, or one or eight. Several share the disk.
fn partitions(rng: &mut SmallRng) -> u32 {
    let drawn = if rng.random() { 1 } else { 8 };
    setting("GPHASH_FULL_DISK_PARTITIONS").unwrap_or(drawn)
}

fn try_all(domain: Domain, is_killed: bool) {
    let mut rng = SmallRng::seed_from_u64(seed());
    for _ in 0..rounds() {
        let partitions = partitions(&mut rng);
        for budget in [None, Some(u64::from(partitions) * (256 << 10))] {
            let folder = match Path::new("/dev/shm").is_dir() {
                true => tempfile::tempdir_in("/dev/shm").unwrap(),
                false if domain == Domain::Checkpointed => tempfile::tempdir().unwrap(),
                false => return,
            };
            let case = Case {
                domain,
                partitions,
                budget,
                is_killed,
                path: folder.path().join("0"),
                folder,
                disk: Disk::new(u64::from(partitions) * rng.random_range(4 << 20..6 << 20)),
                model: Model::new(),
                rng: SmallRng::seed_from_u64(rng.random()),
                lives: 0,
            };
            case.run();
        }
    }
}

#[test]
fn full_disk_refuses_puts_alone_of_a_store_that_is_closed() {
    try_all(Domain::Checkpointed, false);
}

#[test]
fn full_disk_refuses_puts_alone_of_a_store_that_is_killed() {
    try_all(Domain::Checkpointed, true);
}

#[test]
fn full_disk_refuses_puts_alone_of_a_store_in_memory_that_is_closed() {
    try_all(Domain::Shared, false);
}

#[test]
fn full_disk_refuses_puts_alone_of_a_store_in_memory_that_is_killed() {
    try_all(Domain::Shared, true);
}

#[test]
fn full_disk_refuses_puts_alone_of_a_store_on_dax_that_is_closed() {
    try_all(Domain::Dax, false);
}

#[test]
fn full_disk_refuses_puts_alone_of_a_store_on_dax_that_is_killed() {
    try_all(Domain::Dax, true);
}

/// The partition of a key is its first byte.
pub struct ByFirstByte;

impl Partitioner for ByFirstByte {
    fn name(&self) -> &str {
        "first byte"
    }

    fn partition(&self, key: &[u8], _: usize) -> usize {
        key[0].into()
    }
}

/// What a partition gives back for deletions, and what its checkpoints free, is wanted by all others.
fn delete_beside_puts(domain: Domain) {
    const PARTITIONS: u8 = 8;
    const LEN: usize = 8000;
    let folder = match Path::new("/dev/shm").is_dir() {
        true => tempfile::tempdir_in("/dev/shm").unwrap(),
        false if domain == Domain::Checkpointed => tempfile::tempdir().unwrap(),
        false => return,
    };
    let disk = Disk::new(8 << 20);
    let options = crate::options()
        .partitions(PARTITIONS.into())
        .partitioner(Arc::new(ByFirstByte))
        .capacity(64)
        .domain(domain)
        .durability(Durability::Always)
        .segment_bytes(128 << 10)
        .faults(disk.clone());
    let store = Store::open(folder.path().join("store"), &options).unwrap();
    let mut numbers = 0..;
    let mut put = |partition: u8| {
        let number: u64 = numbers.next().unwrap();
        let key = [&[partition][..], &number.to_be_bytes()].concat();
        match store.put(key.clone(), vec![partition; LEN]) {
            Ok(()) => Some(key),
            Err(Error::NoSpace { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let delete = |key: Vec<u8>| {
        store.delete(key.clone()).unwrap_or_else(|error| {
            let pages = disk.pages().clone();
            panic!("{domain:?}, {key:?}: {error}; {pages:?}")
        });
    };
    let mut keys = vec![Vec::new(); PARTITIONS.into()];
    let mut refused = 0;
    for partition in (0..PARTITIONS).cycle() {
        match put(partition) {
            Some(key) => keys[usize::from(partition)].push(key),
            None => refused += 1,
        }
        if refused == 8 * PARTITIONS {
            break;
        }
    }
    for keys_of_first in std::mem::take(&mut keys[0]).chunks(16) {
        keys_of_first.iter().cloned().for_each(delete);
        for partition in 1..PARTITIONS {
            while let Some(key) = put(partition) {
                keys[usize::from(partition)].push(key);
            }
        }
    }
    keys.into_iter().flatten().for_each(delete);
    assert!(contents(&store).is_empty());
    store.close().unwrap();
}

#[test]
fn full_disk_keeps_what_each_partition_needs_for_deletions() {
    for domain in [Domain::Checkpointed, Domain::Shared] {
        delete_beside_puts(domain);
    }
}

/// A disk that has no more room for the index, once it is full.
#[derive(Debug, Default)]
struct IndexFull(AtomicBool);

impl Faults for IndexFull {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn room(&self, call: Call, path: &Path, from: u64, to: u64) -> u64 {
        let is_refused =
            call == Call::Allocate && path.ends_with("index.gph") && self.0.load(Ordering::Relaxed);
        if is_refused { from } else { to }
    }
}

#[test]
fn checkpoint_keeps_what_the_index_has_no_room_for_in_the_log() {
    for folder in folders() {
        let path = folder.path().join("store");
        let faults = Arc::new(IndexFull::default());
        let options = |faults: &Arc<IndexFull>| {
            crate::options()
                .capacity(64)
                .durability(Durability::Always)
                .faults(faults.clone())
        };
        let store = Store::open(&path, &options(&faults)).unwrap();
        let mut model = Model::new();
        for key in 0..100u8 {
            store.put([key], [key; 100]).unwrap();
            model.insert(vec![key], vec![key; 100]);
        }
        faults.0.store(true, Ordering::Relaxed);
        // It is in the log.
        store.put("long", vec![1; 300_000]).unwrap();
        model.insert(b"long".to_vec(), vec![1; 300_000]);
        assert!(contents(&store) == model);
        let refused = store.put([1], [1; 100]);
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        assert!(contents(&store) == model);
        store.delete([7]).unwrap();
        model.remove(&[7][..]);
        store.checkpoint().unwrap();
        assert!(contents(&store) == model);
        let left = folder.path().join("left");
        copy(&path, &left);
        let killed = Store::open(&left, &options(&Arc::default())).unwrap();
        assert!(contents(&killed) == model);
        killed.close().unwrap();
        faults.0.store(false, Ordering::Relaxed);
        store.checkpoint().unwrap();
        assert!(contents(&store) == model);
        store.put([1], [2; 100]).unwrap();
        model.insert(vec![1], vec![2; 100]);
        store.close().unwrap();
        let store = Store::open(&path, &options(&faults)).unwrap();
        assert!(contents(&store) == model);
    }
}

/// Who asks with a change for what the store has, or finds that it is not to be made, is answered, though the index
/// has no room for what another one of his group has put.
#[test]
fn group_that_the_index_has_no_room_for_is_answered() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let faults = Arc::new(IndexFull::default());
    let options = crate::options().capacity(64).faults(faults.clone());
    let store = Store::open(folder.path().join("store"), &options).unwrap();
    store.put("job", "one").unwrap();
    store.put("leader", "ada").unwrap();
    faults.0.store(true, Ordering::Relaxed);
    let requests = vec![
        Request::Put {
            key: b"long".to_vec(),
            value: vec![1; 300_000],
        },
        Request::PutIfAbsent {
            key: b"leader".to_vec(),
            value: b"bob".to_vec(),
        },
        Request::Swap {
            key: b"job".to_vec(),
            new: None,
        },
    ];
    let answers = store.execute(requests).unwrap();
    assert!(
        matches!(
            &answers[..],
            [Response::Done, Response::Present, Response::Value(Some(value))] if value == b"one"
        ),
        "{answers:?}"
    );
    assert_eq!(store.get(b"job").unwrap(), None);
    assert_eq!(store.get(b"long").unwrap(), Some(vec![1; 300_000]));
    faults.0.store(false, Ordering::Relaxed);
    assert!(store.put_if_absent("job", "two").unwrap());
    store.close().unwrap();
}

/// Records that are acknowledged and not durable need no more room of a full disk, whatever the log meets there.
#[test]
fn full_disk_holds_nothing_of_a_log_that_is_not_durable() {
    for partitions in [1u8, 3] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let disk = Disk::new(1 << 30);
        let options = gphash::store::StoreOptions::default()
            .partitions(partitions.into())
            .partitioner(Arc::new(ByFirstByte))
            .domain(Domain::Checkpointed)
            .durability(Durability::None)
            .faults(disk.clone());
        let store = Store::open(&path, &options).unwrap();
        let mut model = Model::new();
        let mut put = |number: u32, value: u8| {
            let mut batch = WriteBatch::new();
            let items = (0..partitions).map(|partition| {
                let key = [&[partition][..], &number.to_be_bytes()].concat();
                // No two of their logs are as long.
                (key, vec![value; 1000 + 500 * usize::from(partition)])
            });
            let items: Model = items.collect();
            for (key, value) in &items {
                batch.put(key.clone(), value.clone());
            }
            let put = store.write(batch);
            match &put {
                Ok(()) => model.extend(items),
                Err(error) => assert!(matches!(error, Error::NoSpace { .. }), "{error}"),
            }
            put.is_ok()
        };
        (0..3000).for_each(|nth| assert!(put(nth % 1000, 1)));
        disk.fill();
        (0..3000).for_each(|nth| _ = put(nth % 1000, 2));
        for key in model.keys().take(500).cloned().collect::<Vec<_>>() {
            store.delete(key.clone()).unwrap();
            model.remove(&key);
        }
        store.flush().unwrap();
        let left = folder.path().join("left");
        copy(&path, &left);
        store.checkpoint().unwrap();
        assert!(contents(&store) == model);
        store.close().unwrap();
        for path in [path, left] {
            let store = Store::open(path, &options.clone().faults(Disk::new(1 << 30))).unwrap();
            assert!(contents(&store) == model);
        }
    }
}

/// Deletions have the reserve for their record, however long it is.
#[test]
fn long_record_of_deletions_has_the_reserve_of_a_full_disk() {
    const RECORD_BYTES: u64 = 6000 * 1000;
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(1 << 30);
    let options = gphash::store::StoreOptions::default()
        .partitions(1)
        .domain(Domain::Checkpointed)
        .durability(Durability::None)
        .faults(disk.clone());
    let store = Store::open(folder.path().join("store"), &options).unwrap();
    let keys: Vec<String> = (0..6000).map(|nth| format!("{nth:01000}")).collect();
    for keys in keys.chunks(1000) {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| batch.put(key.clone(), ""));
        store.write(batch).unwrap();
    }
    store.checkpoint().unwrap();
    disk.fill();
    let is_reserve = |(path, _): &(&PathBuf, &u64)| path.ends_with("RESERVE");
    let reserve = || {
        let pages = disk.pages();
        let held = pages.of_file.iter().find(is_reserve);
        held.map_or(0, |(_, count)| count * PAGE)
    };
    let before = reserve();
    loop {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| batch.delete(key.clone()));
        match store.write(batch) {
            Ok(()) => break,
            Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(
            reserve() < before + RECORD_BYTES,
            "refused, although its room is held"
        );
        disk.free(256 << 10);
    }
    assert!(contents(&store).is_empty());
    store.close().unwrap();
}
