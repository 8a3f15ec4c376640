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
use crate::layout::{DATA_START, Shape};
use crate::pm::{Call, Faults, MapOptions, Mapping, Medium};

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
    }
}

/// Brings the table from state `n` - 1 to state `n`, in memory.
fn change(mapping: &Mapping, n: u64) {
    let shape = Shape::new(8, 8, 8, 2, 2).unwrap();
    let mut superblock = Superblock::new(&shape, [7, 9], 3);
    superblock.generation = n;
    superblock.level_directory[0] = DATA_START;
    superblock.file_len = LEN;
    superblock.seal();
    mapping.write(superblock.place(), bytemuck::bytes_of(&superblock));
    for page in [1, 2, 5] {
        mapping.store(DATA_START + page * PAGE + 8 * n, n);
        mapping.write(DATA_START + page * PAGE + 4000, &[n as u8; 96]);
    }
}

fn contents(mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; mapping.len() as usize];
    mapping.read(0, &mut bytes);
    bytes
}

/// The complete journal that brings the table at `path` to state `n`, and what it holds then.
fn complete_journal(path: &Path, n: u64) -> (Vec<u8>, Vec<u8>) {
    let before = fs::read(path).unwrap();
    // Opening reads twice; the checkpoint then makes its journal and writes it.
    (0..)
        .find_map(|calls| {
            let cut = Cut::after(calls, true);
            let mapping = Mapping::open(path, &options(Some(cut))).ok()?;
            change(&mapping, n);
            mapping.checkpoint().unwrap_err();
            let journal = fs::read(path_of(path)).unwrap_or_default();
            if fs::read(path).unwrap() != before || journal.is_empty() {
                return None;
            }
            let after = contents(&mapping);
            drop(mapping);
            let read = PmFile::open(&path_of(path), false, None).unwrap();
            let complete = Complete::read(&read).unwrap().is_some();
            if !complete {
                fs::remove_file(path_of(path)).unwrap();
            }
            complete.then_some((journal, after))
        })
        .unwrap()
}

/// A table in state 1 with the complete journal of state 2 beside it, and what both states hold.
struct Interrupted {
    folder: TempDir,
    states: [Vec<u8>; 2],
    journal: Vec<u8>,
}

impl Interrupted {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("table");
        let mapping = Mapping::create(&path, LEN, &options(None)).unwrap();
        change(&mapping, 1);
        mapping.checkpoint().unwrap();
        let first = contents(&mapping);
        drop(mapping);

        let (journal, second) = complete_journal(&path, 2);
        Self {
            folder,
            states: [first, second],
            journal,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("table")
    }

    fn put(&self, home: &[u8], journal: &[u8]) {
        fs::write(self.path(), home).unwrap();
        fs::write(path_of(&self.path()), journal).unwrap();
    }

    /// Opens the table and gives the number of the state that it is in.
    fn reopen(&self) -> usize {
        let mapping = Mapping::open(&self.path(), &options(None)).unwrap();
        assert!(!path_of(&self.path()).exists());
        let found = contents(&mapping);
        assert!(found == fs::read(self.path()).unwrap());
        let state = self.states.iter().position(|state| *state == found);
        1 + state.expect("a mixture of two checkpoints")
    }
}

#[test]
fn a_journal_that_is_summed_beside_its_writing_is_complete() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("table");
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
    assert_eq!(fs::read(&path).unwrap(), contents);
}

#[test]
fn a_journal_cut_at_any_byte_leaves_the_old_checkpoint() {
    let table = Interrupted::new();
    for len in 0..table.journal.len() {
        table.put(&table.states[0], &table.journal[..len]);
        assert_eq!(table.reopen(), 1, "cut at byte {len}");
    }
    table.put(&table.states[0], &table.journal);
    assert_eq!(table.reopen(), 2);
}

#[test]
fn a_journal_with_any_bytes_unwritten_leaves_the_old_checkpoint() {
    let table = Interrupted::new();
    let mut rng = SmallRng::seed_from_u64(1);
    for at in 0..table.journal.len() {
        // The bytes of neighbours that are zero anyway make no difference.
        let end = (at + rng.random_range(1..600)).min(table.journal.len());
        let mut torn = table.journal.clone();
        torn[at..end].fill(0);
        let state = if torn == table.journal { 2 } else { 1 };
        table.put(&table.states[0], &torn);
        assert_eq!(table.reopen(), state, "zeros from {at} to {end}");
    }
}

#[test]
fn a_journal_with_any_byte_damaged_is_torn_or_no_journal() {
    let table = Interrupted::new();
    for at in 0..table.journal.len() {
        let mut damaged = table.journal.clone();
        damaged[at] ^= 0x40;
        if at < 12 {
            let error = refused(&table, &table.states[0], &damaged);
            let told = match at {
                0..8 => matches!(error, Error::Foreign { .. }),
                _ => matches!(error, Error::NewerFormat { .. }),
            };
            assert!(told, "byte {at}: {error}");
        } else {
            table.put(&table.states[0], &damaged);
            assert_eq!(table.reopen(), 1, "byte {at}");
        }
    }
}

#[test]
fn a_journal_that_was_not_emptied_may_be_written_over_up_to_any_byte() {
    let mut table = Interrupted::new();
    let old = table.journal.clone();
    fs::write(table.path(), &table.states[1]).unwrap();
    fs::remove_file(path_of(&table.path())).unwrap();
    let (new, third) = complete_journal(&table.path(), 3);
    table.states = [table.states[1].clone(), third];
    for len in 0..=new.len() {
        let mut mixed = old.clone();
        mixed[..len.min(old.len())].copy_from_slice(&new[..len.min(old.len())]);
        mixed.extend(new.get(old.len()..len).unwrap_or_default());
        let state = if mixed.starts_with(&new) { 2 } else { 1 };
        table.put(&table.states[0], &mixed);
        assert_eq!(table.reopen(), state, "up to byte {len}");
    }
}

#[test]
fn a_replay_cut_short_is_done_again_in_full() {
    let table = Interrupted::new();
    let [old, new] = &table.states;
    for seed in 0..2000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut home = old.clone();
        let size = [1, 8, 512, PAGE as usize][seed as usize % 4];
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
fn a_journal_that_is_not_durable_stays_where_it_is() {
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
fn a_first_checkpoint_cut_short_is_done_again_in_full() {
    let table = Interrupted::new();
    let path = table.path();
    table.put(&table.states[0], &[]);
    // The journal of a table that has no checkpoint yet holds all pages that are not zero.
    let pages: Vec<u64> = (0..LEN / PAGE)
        .filter(|page| table.states[0][(page * PAGE) as usize..][..PAGE as usize] != [0; 4096])
        .collect();
    let snapshot = Snapshot {
        superblock: Superblock::parse(&table.states[0], LEN, &path).unwrap(),
        file_len: LEN,
        pages: &pages,
        read: &|at, bytes| bytes.copy_from_slice(&table.states[0][at as usize..][..bytes.len()]),
    };
    fs::remove_file(path_of(&path)).unwrap();
    let file = PmFile::create(&path_of(&path), None).unwrap();
    let (at, trailer) = write(&file, &snapshot).unwrap();
    file.write(&trailer.to_le_bytes(), at).unwrap();
    let journal = fs::read(path_of(&path)).unwrap();
    for seed in 0..1000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let home: Vec<u8> = table.states[0]
            .iter()
            .map(|&byte| if rng.random() { byte } else { 0 })
            .collect();
        table.put(&home, &journal);
        assert_eq!(table.reopen(), 1, "seed {seed}");
    }
}

#[test]
fn a_process_that_dies_at_any_call_leaves_one_checkpoint_or_the_next() {
    let table = Interrupted::new();
    let mut seen = BTreeSet::new();
    for calls in 0.. {
        table.put(&table.states[0], &[]);
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
fn a_call_that_fails_once_loses_nothing() {
    let table = Interrupted::new();
    for calls in 0.. {
        table.put(&table.states[0], &[]);
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
        assert!(contents(&mapping) == expected, "after {calls} calls");
        if !cut.was_met() {
            break;
        }
    }
}

#[test]
fn looking_replays_in_memory_only() {
    let table = Interrupted::new();
    table.put(&table.states[0], &table.journal);
    let mapping = Mapping::look(&table.path(), &MapOptions::default()).unwrap();
    let beside = Mapping::look(&table.path(), &MapOptions::default()).unwrap();
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
    let looked = Mapping::look(&table.path(), &MapOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), looked.to_string());
    assert!(fs::read(table.path()).unwrap() == home);
    assert!(fs::read(path_of(&table.path())).unwrap() == journal);
    error
}

#[test]
fn what_is_not_the_journal_of_the_file_is_refused() {
    let table = Interrupted::new();
    let home = &table.states[0];
    let error = refused(&table, home, b"notes of mine");
    assert!(matches!(error, Error::Foreign { .. }), "{error}");

    let mut newer = table.journal.clone();
    newer[8] = 9;
    let error = refused(&table, home, &newer);
    assert!(
        matches!(error, Error::NewerFormat { found: 9, .. }),
        "{error}"
    );

    let mut other = home.clone();
    for copy in [0, PAGE as usize] {
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
fn a_journal_that_the_file_has_outgrown_is_forgotten() {
    let table = Interrupted::new();
    table.put(&table.states[0], &[]);
    let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
    change(&mapping, 2);
    change(&mapping, 3);
    mapping.checkpoint().unwrap();
    let expected = contents(&mapping);
    drop(mapping);
    table.put(&expected, &table.journal);
    let mapping = Mapping::open(&table.path(), &options(None)).unwrap();
    assert!(contents(&mapping) == expected);
    assert!(!path_of(&table.path()).exists());
}
