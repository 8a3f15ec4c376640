//! Tests of checkpoints that are cut short.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::*;
use crate::Domain;
use crate::layout::{DATA_START, SUPERBLOCKS, Shape};
use crate::pm::{Call, Faults, MapOptions, Mapping, Medium};
use crate::width::{low_byte, to_usize};

#[cfg(not(loom))]
mod home;

const LEN: u64 = DATA_START + 6 * PAGE;

/// Lets `allowed` calls pass, then fails: one of them, or all that follow.
#[derive(Debug)]
struct Cut {
    allowed: u64,
    dies: bool,
    calls: AtomicU64,
}

impl Cut {
    fn after(allowed: u64, dies: bool) -> Arc<Self> {
        let calls = AtomicU64::new(0);
        Arc::new(Self {
            allowed,
            dies,
            calls,
        })
    }

    fn was_met(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.allowed
    }
}

impl Faults for Cut {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call == self.allowed || self.dies && call > self.allowed {
            return Err(io::Error::other("cut"));
        }
        Ok(())
    }

    fn most_bytes(&self) -> usize {
        5000
    }
}

fn options(faults: Option<Arc<Cut>>) -> MapOptions {
    MapOptions {
        domain: Domain::Checkpointed,
        assume_dax: false,
        faults: faults.map(|cut| cut as Arc<dyn Faults>),
        ..MapOptions::default()
    }
}

fn entry(path: &Path) -> Entry {
    Entry::at(path, None).unwrap()
}

fn path_of(home: &Path) -> PathBuf {
    entry_of(&entry(home)).path().to_path_buf()
}

/// Brings the table to state `n`, in memory.
fn change(mapping: &Mapping, n: u64) {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let mut superblock = Superblock::new(&shape, [7, 9], 3);
    superblock.generation = 10 * n + n % 2;
    superblock.checkpoints = n;
    superblock.level_directory[0] = DATA_START;
    superblock.file_len = LEN;
    superblock.seal();
    mapping.write(superblock.file_offset(), bytemuck::bytes_of(&superblock));
    for page in [1, 2, 5] {
        mapping.store(DATA_START + page * PAGE + 8 * n, n);
        mapping.write(DATA_START + page * PAGE + 4000, &[low_byte(n); 96]);
    }
}

fn contents(mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; to_usize(mapping.len())];
    mapping.read(0, &mut bytes);
    bytes
}

/// What stands behind the superblocks, which tell of more than the state.
fn data(contents: &[u8]) -> &[u8] {
    &contents[HEAD..]
}

/// Names of journals that whole copies of the superblock bear.
fn names(contents: &[u8]) -> Vec<u64> {
    SUPERBLOCKS
        .into_iter()
        .map(|at| {
            bytemuck::pod_read_unaligned(&contents[to_usize(at)..][..size_of::<Superblock>()])
        })
        .filter(Superblock::is_whole)
        .map(|copy| copy.journal_id)
        .collect()
}

/// The complete journal that brings the table at `path` from state `n - 1` to state `n`, in the
/// session that has saved both. With it what stands at home before its first page comes, and after
/// its last.
fn complete_journal(path: &Path, n: u64) -> (Vec<u8>, [Vec<u8>; 2]) {
    let before = fs::read(path).unwrap();
    (0..)
        .find_map(|calls| {
            fs::write(path, &before).unwrap();
            let _ = fs::remove_file(path_of(path));
            let cut = Cut::after(calls, true);
            let mapping = Mapping::open(path, &options(Some(cut))).ok()?;
            change(&mapping, n - 1);
            mapping.checkpoint().ok()?;
            let home = fs::read(path).unwrap();
            let (id, _) = mapping.journal.lock().name();
            assert_eq!(names(&home), [id, id]);
            change(&mapping, n);
            mapping.checkpoint().unwrap_err();
            let journal = fs::read(path_of(path)).ok()?;
            let after = contents(&mapping);
            drop(mapping);
            let read = PmFile::open(&entry(&path_of(path)), false).unwrap();
            let complete = Found::read(&read).ok()?.complete?;
            let is_next = complete.header.checkpoints == n;
            let is_ready = is_next && fs::read(path).unwrap() == home;
            is_ready.then_some((journal, [home, after]))
        })
        .unwrap()
}

/// A table in state 1 with the complete journal of state 2 beside it, and what both states hold.
struct Interrupted {
    dir: TempDir,
    /// State 1, closed: no journal is needed.
    closed: Vec<u8>,
    /// State 1 as it is when the journal has been named, and state 2.
    states: [Vec<u8>; 2],
    journal: Vec<u8>,
}

impl Interrupted {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options(None)).unwrap();
        change(&mapping, 1);
        mapping.checkpoint().unwrap();
        drop(mapping);
        let closed = fs::read(&path).unwrap();

        let (journal, states) = complete_journal(&path, 2);
        Self {
            dir,
            closed,
            states,
            journal,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("table")
    }

    fn put(&self, home: &[u8], journal: &[u8]) {
        fs::write(self.path(), home).unwrap();
        fs::write(path_of(&self.path()), journal).unwrap();
    }

    /// Puts the closed table.
    fn put_closed(&self) {
        fs::write(self.path(), &self.closed).unwrap();
        let _ = fs::remove_file(path_of(&self.path()));
    }

    /// Opens the table and gives the number of the state that it is in.
    fn reopen(&self) -> usize {
        self.try_reopen().unwrap()
    }

    fn try_reopen(&self) -> Result<usize> {
        let mapping = Mapping::open(&self.path(), &options(None))?;
        let found = contents(&mapping);
        assert!(found == fs::read(self.path()).unwrap());
        drop(mapping);
        assert!(!path_of(&self.path()).exists());
        let is_found = |state: &Vec<u8>| data(state) == data(&found);
        let state = self.states.iter().position(is_found);
        Ok(1 + state.expect("a mixture of two checkpoints"))
    }
}

#[test]
fn journal_checksummed_beside_its_write_is_complete() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("table");
    let pages = 4 * CHUNK as u64;
    let mapping = Mapping::create(&path, LEN + pages * PAGE, &options(None)).unwrap();
    change(&mapping, 1);
    for page in (0..pages).filter(|page| page % 7 != 3) {
        mapping.store(LEN + page * PAGE + 8 * (page % 512), page);
    }
    mapping.capture().unwrap();
    mapping.store(LEN, 9);
    mapping.complete().unwrap();
    mapping.store(LEN, 0);
    let contents = contents(&mapping);
    drop(mapping);
    assert!(data(&fs::read(&path).unwrap()) == data(&contents));
}

/// All of the header, of the page numbers and of the end of a journal of `len` bytes, and a sample of the
/// rest.
fn sampled(len: usize) -> impl Iterator<Item = usize> {
    (0..len).filter(move |at| *at < 200 || at % 11 == 0 || at + 50 > len)
}

/// Whether an opening tells that the journal is not the one which the file needs.
fn is_missing<T: std::fmt::Debug>(answer: &Result<T>) -> bool {
    matches!(answer, Err(Error::JournalMissing { .. }))
}

/// Where the header is, of which no crash leaves a part.
const HEADER: std::ops::Range<usize> = 0..size_of::<Header>();

#[test]
fn journal_cut_at_any_byte_leaves_the_old_checkpoint() {
    let table = Interrupted::new();
    for len in sampled(table.journal.len()) {
        table.put(&table.states[0], &table.journal[..len]);
        let found = table.try_reopen();
        match len < size_of::<Header>() {
            true => assert!(is_missing(&found), "cut at byte {len}: {found:?}"),
            false => assert_eq!(found.unwrap(), 1, "cut at byte {len}"),
        }
    }
    table.put(&table.states[0], &table.journal);
    assert_eq!(table.reopen(), 2);
}

#[test]
fn journal_with_any_bytes_unwritten_leaves_the_old_checkpoint() {
    let table = Interrupted::new();
    let mut rng = SmallRng::seed_from_u64(1);
    for at in sampled(table.journal.len()) {
        // The bytes of neighbours that are zero anyway make no difference.
        let end = (at + rng.random_range(1..600)).min(table.journal.len());
        let mut torn = table.journal.clone();
        torn[at..end].fill(0);
        table.put(&table.states[0], &torn);
        let found = table.try_reopen();
        let expected = if torn == table.journal { 2 } else { 1 };
        match found {
            Err(_) if torn[HEADER] != table.journal[HEADER] => {}
            found => assert_eq!(found.unwrap(), expected, "zeros from {at} to {end}"),
        }
    }
}

#[test]
fn journal_with_any_byte_damaged_leaves_the_old_checkpoint() {
    let table = Interrupted::new();
    for at in sampled(table.journal.len()) {
        let mut damaged = table.journal.clone();
        damaged[at] ^= 0x40;
        if HEADER.contains(&at) {
            let error = refused(&table, &table.states[0], &damaged);
            let told = match at {
                0..8 => matches!(error, Error::Foreign { .. }),
                _ => matches!(error, Error::Damaged { at: 64, .. }),
            };
            assert!(told, "byte {at}: {error}");
        } else {
            table.put(&table.states[0], &damaged);
            assert_eq!(table.reopen(), 1, "byte {at}");
        }
    }
}

#[test]
fn journal_overwritten_up_to_any_byte_leaves_the_old_checkpoint() {
    let mut table = Interrupted::new();
    let mut old = table.journal.clone();
    let path = table.path();
    table.put(&table.states[0], &old);
    // The session goes on with the journal that it found.
    let mapping = Mapping::open(&path, &options(None)).unwrap();
    let home = fs::read(&path).unwrap();
    old[HEADER].copy_from_slice(&fs::read(path_of(&path)).unwrap());
    change(&mapping, 3);
    mapping.capture().unwrap();
    mapping.journal.lock().seal().unwrap();
    let new = fs::read(path_of(&path)).unwrap();
    table.states = [fs::read(&path).unwrap(), contents(&mapping)];
    assert!(data(&table.states[0]) == data(&home));
    drop(mapping);
    let after_header = sampled(new.len()).filter(|len| *len >= HEADER.end);
    for len in after_header.chain([0, new.len()]) {
        let mut mixed = old.clone();
        mixed[..len.min(old.len())].copy_from_slice(&new[..len.min(old.len())]);
        mixed.extend(new.get(old.len()..len).unwrap_or_default());
        let state = if mixed.starts_with(&new) { 2 } else { 1 };
        table.put(&home, &mixed);
        assert_eq!(table.reopen(), state, "up to byte {len}");
    }
}

#[test]
fn file_without_its_journal_is_refused() {
    let table = Interrupted::new();
    let [before, after] = &table.states;
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..500 {
        // Any sector may have come home.
        let mut home = before.clone();
        for at in (0..home.len()).step_by(512) {
            if rng.random() {
                home[at..at + 512].copy_from_slice(&after[at..at + 512]);
            }
        }
        fs::write(table.path(), &home).unwrap();
        let _ = fs::remove_file(path_of(&table.path()));
        for answer in [
            Mapping::open(&table.path(), &options(None)),
            Mapping::open_read_only(&table.path(), &options(None)),
        ] {
            let refused = match names(&home).is_empty() {
                true => matches!(answer, Err(Error::Damaged { .. })),
                false => is_missing(&answer),
            };
            assert!(refused, "{answer:?}");
        }
        assert!(fs::read(table.path()).unwrap() == home);
    }
    fs::write(table.path(), before).unwrap();
    let salvage = MapOptions {
        ignore_lost_journal: true,
        ..options(None)
    };
    let mapping = Mapping::open(&table.path(), &salvage).unwrap();
    assert!(data(&contents(&mapping)) == data(before));
    change(&mapping, 2);
    mapping.checkpoint().unwrap();
    drop(mapping);
    assert_eq!(table.reopen(), 2);
}

#[test]
fn journal_of_an_older_checkpoint_is_refused() {
    let table = Interrupted::new();
    table.put(&table.states[0], &table.journal);
    let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
    change(&mapping, 3);
    mapping.checkpoint().unwrap();
    let home = fs::read(table.path()).unwrap();
    drop(mapping);
    let error = refused(&table, &home, &table.journal);
    assert!(matches!(error, Error::Damaged { at: 40, .. }), "{error}");
}

#[test]
fn journal_is_closed_between_checkpoints() {
    let table = Interrupted::new();
    table.put_closed();
    let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
    for n in 2..5 {
        change(&mapping, n);
        mapping.checkpoint().unwrap();
        assert!(mapping.journal.lock().file.is_none());
        assert_eq!(fs::metadata(path_of(&table.path())).unwrap().len(), IDLE);
    }
    // Somebody tidies up.
    fs::remove_file(path_of(&table.path())).unwrap();
    change(&mapping, 5);
    mapping.checkpoint().unwrap();
    drop(mapping);
    assert_eq!(names(&fs::read(table.path()).unwrap()).len(), 2);
    Mapping::open(&table.path(), &options(None)).unwrap();
}

#[test]
fn replay_that_is_interrupted_is_repeated_in_full() {
    let table = Interrupted::new();
    let [old, new] = &table.states;
    for seed in 0..2000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut home = old.clone();
        let size = [1, 8, 512, to_usize(PAGE)][to_usize(seed) % 4];
        for at in (0..home.len()).step_by(size) {
            if rng.random() {
                home[at..at + size].copy_from_slice(&new[at..at + size]);
            }
        }
        table.put(&home, &table.journal);
        assert_eq!(table.reopen(), 2, "seed {seed}");
    }
}

/// A disk that makes no journal durable.
#[derive(Debug)]
struct Unsynced;

impl Faults for Unsynced {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        match call == Call::Sync && path.to_string_lossy().ends_with(".journal") {
            true => Err(io::Error::other("not synced")),
            false => Ok(()),
        }
    }
}

#[test]
fn journal_that_is_not_durable_is_not_replayed() {
    let table = Interrupted::new();
    table.put(&table.states[0], &table.journal);
    let options = MapOptions {
        faults: Some(Arc::new(Unsynced)),
        ..options(None)
    };
    assert!(Mapping::open(&table.path(), &options).is_err());
    assert!(fs::read(table.path()).unwrap() == table.states[0]);
    assert_eq!(table.reopen(), 2);
}

#[test]
fn death_at_any_call_leaves_one_checkpoint_or_the_next() {
    let table = Interrupted::new();
    let mut seen = BTreeSet::new();
    for calls in 0.. {
        table.put_closed();
        let cut = Cut::after(calls, true);
        let saved = Mapping::open(&table.path(), &options(Some(cut.clone()))).and_then(|mapping| {
            change(&mapping, 2);
            mapping.checkpoint()
        });
        let state = table.reopen();
        assert!(saved.is_err() || state == 2, "after {calls} calls");
        seen.insert((saved.is_ok(), state));
        if !cut.was_met() {
            break;
        }
    }
    assert_eq!(seen, [(false, 1), (false, 2), (true, 2)].into());
}

#[test]
fn call_that_fails_once_loses_nothing() {
    let table = Interrupted::new();
    for calls in 0.. {
        table.put_closed();
        let cut = Cut::after(calls, false);
        let mapping = match Mapping::open(&table.path(), &options(Some(cut.clone()))) {
            Ok(mapping) => mapping,
            Err(_) => Mapping::open(&table.path(), &options(None)).unwrap(),
        };
        change(&mapping, 2);
        if mapping.checkpoint().is_err() {
            // More is stored before the program tries again.
            change(&mapping, 3);
            mapping.checkpoint().unwrap();
        }
        let expected = contents(&mapping);
        drop(mapping);
        let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
        let same = data(&contents(&mapping)) == data(&expected);
        assert!(same, "after {calls} calls");
        if !cut.was_met() {
            break;
        }
    }
}

#[test]
fn inspection_replays_in_memory_only() {
    let table = Interrupted::new();
    table.put(&table.states[0], &table.journal);
    let mapping = Mapping::open_read_only(&table.path(), &MapOptions::default()).unwrap();
    let beside = Mapping::open_read_only(&table.path(), &MapOptions::default()).unwrap();
    assert!(contents(&mapping) == table.states[1]);
    mapping.store(DATA_START, 99);
    assert_eq!(mapping.load(DATA_START), 99);
    assert_eq!(beside.load(DATA_START), 0);
    assert!(matches!(mapping.grow(2 * LEN), Err(Error::ReadOnly { .. })));
    assert!(matches!(mapping.checkpoint(), Err(Error::ReadOnly { .. })));
    drop((mapping, beside));
    assert!(fs::read(table.path()).unwrap() == table.states[0]);
    assert!(fs::read(path_of(&table.path())).unwrap() == table.journal);
}

/// Opening fails and leaves both files as they are.
fn refused(table: &Interrupted, home: &[u8], journal: &[u8]) -> Error {
    table.put(home, journal);
    let error = Mapping::open(&table.path(), &options(None)).unwrap_err();
    let read_only = Mapping::open_read_only(&table.path(), &MapOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), read_only.to_string());
    assert!(fs::read(table.path()).unwrap() == home);
    assert!(fs::read(path_of(&table.path())).unwrap() == journal);
    error
}

#[test]
fn journal_of_another_file_is_refused() {
    let table = Interrupted::new();
    let home = &table.states[0];
    let error = refused(&table, home, b"notes of mine");
    assert!(matches!(error, Error::Foreign { .. }), "{error}");

    let mut newer = table.journal.clone();
    newer[8] = 9;
    let error = refused(&table, home, &newer);
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let sum = xxh3_64(&newer[..64]).to_le_bytes();
    newer[64..72].copy_from_slice(&sum);
    let error = refused(&table, home, &newer);
    assert!(
        matches!(error, Error::NewerFormat { found: 9, .. }),
        "{error}"
    );

    let mut other = home.clone();
    for copy in [0, to_usize(PAGE)] {
        if other[copy] == 0 {
            continue;
        }
        let mut superblock: Superblock =
            bytemuck::pod_read_unaligned(&other[copy..][..size_of::<Superblock>()]);
        superblock.file_id = [8, 8];
        superblock.seal();
        other[copy..][..size_of::<Superblock>()].copy_from_slice(bytemuck::bytes_of(&superblock));
    }
    let error = refused(&table, &other, &table.journal);
    assert!(
        matches!(&error, Error::Damaged { path, .. } if *path == path_of(&table.path())),
        "{error}"
    );

    let error = refused(&table, b"a letter to a friend", &table.journal);
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}

#[test]
fn journal_that_the_file_does_not_name_is_ignored() {
    let table = Interrupted::new();
    table.put(&table.closed, &table.journal);
    assert_eq!(table.reopen(), 1);
}
