//! Damage: bytes flipped, files cut, zeroed, or put back as they once were, of indexes that were closed and
//! of such that were killed. What opens answers rightly; all else is an error, or damage that the recovery
//! tool names. Only bytes that a checksum covers, or that mean nothing, are touched: docs/durability.md lists the others.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::bytes::BytesIndex;
use super::repair::recover;
use crate::index::fault_tests::faults::TestDir;
use crate::index::fault_tests::seed;
use crate::layout::size_class::{CLASS_TABLE, ClassTable};
use crate::layout::{DATA_START, METADATA, PAGE, RESERVED_BUCKETS, SUPERBLOCKS, Superblock};
use crate::pm::{Call, Entry, Faults};
use crate::table::item::Mutation;
use crate::width::to_usize;
use crate::{Domain, Index, Options, Repair, ReportState, Result};

type Word = Index<u64, [u64; 3]>;
type Wide = Index<[u64; 4], u64>;
pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Of the bytes of headers one in so many is flipped, unless all are wanted.
const EVERY: usize = 61;

/// How many other bytes are.
const OTHERS: usize = 24;

/// What an index has of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Wide,
    Variable,
}

/// An index that is open.
pub(super) enum Open {
    Word(Word),
    Wide(Wide),
    Variable(BytesIndex),
}

fn wide(n: u64) -> [u64; 4] {
    [n, !n, n << 7, 1]
}

fn text(n: u64) -> (Vec<u8>, Vec<u8>) {
    let value = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (
        format!("key {n}").into_bytes(),
        value.repeat(to_usize(n % 30)),
    )
}

impl Kind {
    pub(super) fn open(self, path: &Path, options: &Options) -> Result<Open> {
        Ok(match self {
            Self::Word if path.exists() => Open::Word(Word::open(path, options)?),
            Self::Word => Open::Word(Word::create(path, options)?),
            Self::Wide if path.exists() => Open::Wide(Wide::open(path, options)?),
            Self::Wide => Open::Wide(Wide::create(path, options)?),
            Self::Variable => {
                let entry = Entry::at(path, options.faults.clone())?;
                Open::Variable(BytesIndex::open_or_create(&entry, options)?.0)
            }
        })
    }
}

impl Open {
    /// Adds items, and takes some of them away again.
    pub(super) fn change(&self, numbers: Range<u64>) {
        for n in numbers.clone() {
            match self {
                Self::Word(index) => drop(index.upsert_one(&n, &[n, n * n, 7]).unwrap()),
                Self::Wide(index) => drop(index.upsert_one(&wide(n), &n).unwrap()),
                Self::Variable(records) => {
                    let (key, value) = text(n);
                    let (key, value, sequence) = (&key[..], &value[..], n);
                    let put = Mutation::Put {
                        key,
                        value,
                        sequence,
                    };
                    records.apply(&[put]).unwrap();
                }
            }
        }
        for n in numbers.step_by(5) {
            match self {
                Self::Word(index) => drop(index.remove_one(&n).unwrap()),
                Self::Wide(index) => drop(index.remove_one(&wide(n)).unwrap()),
                Self::Variable(records) => {
                    let key = &text(n).0[..];
                    records.apply(&[Mutation::Delete { key }]).unwrap();
                }
            }
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        match self {
            Self::Word(index) => index.sync(),
            Self::Wide(index) => index.sync(),
            Self::Variable(records) => records.sync(),
        }
    }

    pub(super) fn close(self) {
        match self {
            Self::Word(index) => index.close().unwrap(),
            Self::Wide(index) => index.close().unwrap(),
            Self::Variable(records) => records.close().unwrap(),
        }
    }

    /// All items, by the way over the slots and each by its key.
    pub(super) fn contents(&self) -> Result<Model> {
        let mut found = Model::new();
        let mut add = |key: &[u8], value: &[u8]| {
            let twice = found.insert(key.to_vec(), value.to_vec());
            assert_eq!(twice, None, "{key:x?} is there twice");
        };
        let len = match self {
            Self::Word(index) => {
                for (key, value) in index.iter() {
                    assert_eq!(index.get_one(&key)?, Some(value));
                    add(bytemuck::bytes_of(&key), bytemuck::bytes_of(&value));
                }
                index.len()
            }
            Self::Wide(index) => {
                for (key, value) in index.iter() {
                    assert_eq!(index.get_one(&key)?, Some(value));
                    add(bytemuck::bytes_of(&key), bytemuck::bytes_of(&value));
                }
                index.len()
            }
            Self::Variable(records) => {
                let mut error = None;
                records.for_each_of(
                    |_| true,
                    |item| match item {
                        Ok((key, _, value)) => {
                            let got = records.get(key, |_, got| got == value);
                            match got {
                                Ok(same) => assert_eq!(same, Some(true)),
                                Err(told) => error = Some(told),
                            }
                            add(key, value);
                        }
                        Err(told) => error = Some(told),
                    },
                );
                if let Some(error) = error {
                    return Err(error);
                }
                records.len()
            }
        };
        assert_eq!(len, found.len() as u64);
        Ok(found)
    }
}

/// Lets so many more writes to a file, but any to its journal, through.
#[derive(Debug)]
pub(super) struct Home(pub(super) AtomicU64);

impl Faults for Home {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let left = self.0.load(Ordering::Relaxed);
        if call != Call::Write || path.extension().is_some() || left == u64::MAX {
            return Ok(());
        }
        let Some(left) = left.checked_sub(1) else {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        };
        self.0.store(left, Ordering::Relaxed);
        Ok(())
    }

    fn most_bytes(&self) -> usize {
        60_001
    }
}

/// What a program has left: the file, the journal beside it, and what may be found there.
#[derive(Clone)]
struct Left {
    home: Vec<u8>,
    journal: Option<Vec<u8>>,
    allowed: Vec<Model>,
}

/// A kind of index in a domain, and files of it.
struct Case {
    kind: Kind,
    domain: Domain,
    dir: TestDir,
    rng: SmallRng,
    tried: u64,
}

impl Case {
    fn path(&self) -> PathBuf {
        self.dir.path()
    }

    fn journal(&self) -> PathBuf {
        self.path().with_extension("journal")
    }

    fn options(&self) -> Options {
        self.dir.options(None)
    }

    fn put(&self, left: &Left) {
        fs::write(self.path(), &left.home).unwrap();
        match &left.journal {
            Some(journal) => fs::write(self.journal(), journal).unwrap(),
            None => drop(fs::remove_file(self.journal())),
        }
    }

    fn take(&self, allowed: Vec<Model>) -> Left {
        Left {
            home: fs::read(self.path()).unwrap(),
            journal: fs::read(self.journal()).ok(),
            allowed,
        }
    }

    /// Files as a life leaves them: closed early and late, killed, and killed while a checkpoint comes home,
    /// of which so many writes have got there.
    fn files(&self) -> Vec<Left> {
        let home = Arc::new(Home(AtomicU64::new(u64::MAX)));
        let options = self.options().faults(home.clone());
        let index = self.kind.open(&self.path(), &options).unwrap();
        index.change(0..40);
        let early = index.contents().unwrap();
        index.close();
        let mut left = vec![self.take(vec![early])];
        let index = self.kind.open(&self.path(), &options).unwrap();
        index.change(20..140);
        index.sync().unwrap();
        let before = index.contents().unwrap();
        index.change(130..190);
        let now = index.contents().unwrap();
        if self.domain == Domain::Checkpointed {
            for writes in [0, 1, 4] {
                home.0.store(writes, Ordering::Relaxed);
                index.sync().unwrap_err();
                let mut killed = self.take(vec![now.clone()]);
                assert!(killed.journal.is_some());
                if writes == 0 {
                    // If the journal is damaged there is only the checkpoint before.
                    killed.allowed.push(before.clone());
                }
                left.push(killed);
            }
            home.0.store(u64::MAX, Ordering::Relaxed);
            index.sync().unwrap();
            left.push(self.take(vec![now.clone()]));
        } else {
            left.push(self.take(vec![now.clone()]));
        }
        home.0.store(u64::MAX, Ordering::Relaxed);
        index.close();
        left.push(self.take(vec![now]));
        let _ = fs::remove_file(self.path());
        left
    }

    /// Reads all of a file, and lets the tool check it and repair it.
    fn try_it(&mut self, left: &Left, what: &str) {
        self.tried += 1;
        let told = format!("{:?}, {:?}: {what}", self.kind, self.domain);
        self.put(left);
        let read = || {
            let index = self.kind.open(&self.path(), &self.options())?;
            index.contents()
        };
        match read() {
            Ok(found) => assert!(
                left.allowed.contains(&found),
                "{told}: {} items, expected one of {} states with {}",
                found.len(),
                left.allowed.len(),
                left.allowed[0].len()
            ),
            Err(error) if error.is_refusal() => panic!("{told}: {error}"),
            Err(_) if left.journal.is_some() => {}
            Err(error) => {
                let same = fs::read(self.path()).unwrap() == left.home;
                // Opening does not read the records of variable length that a file cleanly closed has.
                assert!(
                    same || self.kind == Kind::Variable,
                    "{told}: {error}, and changed"
                );
            }
        }
        if !self.tried.is_multiple_of(8) {
            return;
        }
        self.put(left);
        let checked = recover(self.path(), Repair::Check, &|_| {});
        assert!(
            fs::read(self.path()).unwrap() == left.home,
            "{told}: a check"
        );
        let repaired = recover(self.path(), Repair::Salvage, &|_| {});
        let is_lost = |damage: &String| damage.starts_with("journal: ");
        let goes_without = repaired
            .as_ref()
            .is_ok_and(|repaired| repaired.recovery.damage.iter().any(is_lost));
        assert_eq!(checked.is_ok(), repaired.is_ok() && !goes_without, "{told}");
        let Ok(repaired) = repaired else { return };
        let found = read().unwrap_or_else(|error| panic!("{told}: repaired, and {error}"));
        if goes_without {
            // What it holds then is for `lost_journal_tests` to see.
            return assert_eq!(repaired.state, ReportState::Damaged, "{told}");
        }
        if repaired.state == ReportState::Damaged {
            let is_table = |damage: &String| {
                damage.starts_with("class table") || damage.starts_with("extent table")
            };
            // What such a table says, a scan may find all the same.
            assert!(
                repaired.recovery.items_lost > 0 || repaired.recovery.damage.iter().any(is_table),
                "{told}"
            );
            let lost = |whole: &Model| found.iter().all(|item| whole.get(item.0) == Some(item.1));
            assert!(
                left.allowed.iter().any(lost),
                "{told}: salvaged something else"
            );
        } else {
            assert!(
                left.allowed.contains(&found),
                "{told}: repaired to something else"
            );
        }
    }

    /// Flips a bit of the byte at `at`.
    fn flip(&mut self, left: &Left, in_journal: bool, at: usize) {
        let mut damaged = left.clone();
        let bytes = match &mut damaged.journal {
            Some(journal) if in_journal => journal,
            _ => &mut damaged.home,
        };
        let Some(byte) = bytes.get_mut(at) else {
            return;
        };
        let bit = self.rng.random_range(0..8);
        *byte ^= 1 << bit;
        let part = if in_journal { "journal" } else { "file" };
        self.try_it(&damaged, &format!("byte {at} of the {part}, bit {bit}"));
    }

    fn flip_all(&mut self, left: &Left, in_journal: bool, range: Range<usize>) {
        let (phase, every) = match std::env::var("GPHASH_DAMAGE").as_deref() {
            Ok("all") => (0, 1),
            _ => (self.rng.random_range(0..EVERY), EVERY),
        };
        for at in range.skip(phase).step_by(every) {
            self.flip(left, in_journal, at);
        }
    }

    /// Where the records of items of variable length stand, as far as their checksums cover them.
    fn records(&self, left: &Left) -> Vec<Range<usize>> {
        if self.kind != Kind::Variable {
            return Vec::new();
        }
        let find = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            let end = left.home.windows(key.len() + 1).position(|part| {
                part.starts_with(key) && part.ends_with(&[0]) && !value.is_empty()
            })?;
            Some(end - 24..end + key.len())
        };
        left.allowed[0].iter().filter_map(find).take(8).collect()
    }

    fn damage(&mut self, left: &Left, early: &Left) {
        let superblock = Superblock::parse(&left.home, left.home.len() as u64, &self.path());
        let superblock = superblock.unwrap();
        for at in SUPERBLOCKS.map(to_usize) {
            self.flip_all(left, false, at..at + size_of::<Superblock>());
        }
        let entries = to_usize(superblock.entry_offset(0))
            ..to_usize(superblock.entry_offset(superblock.extent_count));
        self.flip_all(left, false, entries.start..entries.end + 32);
        for at in METADATA.map(to_usize) {
            self.flip_all(left, false, at..at + to_usize(PAGE));
        }
        if self.kind == Kind::Variable {
            let table = to_usize(CLASS_TABLE);
            self.flip_all(left, false, table..table + size_of::<ClassTable>());
        }
        for record in self.records(left) {
            self.flip_all(left, false, record);
        }
        if let Some(journal) = &left.journal {
            let pages = u64::from_le_bytes(journal[48..56].try_into().unwrap());
            self.flip_all(left, true, 0..72 + 8 * to_usize(pages));
            for _ in 0..OTHERS {
                let at = self.rng.random_range(0..journal.len());
                self.flip(left, true, at);
            }
            for _ in 0..OTHERS / 4 {
                let mut cut = left.clone();
                let len = self.rng.random_range(0..journal.len());
                cut.journal.as_mut().unwrap().truncate(len);
                self.try_it(&cut, &format!("a journal cut to {len} bytes"));
            }
            let mut alone = left.clone();
            alone.journal = None;
            self.try_it(&alone, "a journal removed");
        }
        // What means nothing, and what is beyond the extents.
        for _ in 0..OTHERS {
            let at = self.rng.random_range(0..to_usize(DATA_START));
            let in_bucket = self.kind == Kind::Word
                && (0..2).any(|nth| {
                    let bucket = to_usize(RESERVED_BUCKETS + nth * PAGE);
                    (bucket..bucket + 128).contains(&at)
                });
            if !in_bucket {
                self.flip(left, false, at);
            }
        }
        for _ in 0..OTHERS / 4 {
            let mut cut = left.clone();
            let len = self.rng.random_range(0..left.home.len());
            cut.home.truncate(len);
            self.try_it(&cut, &format!("cut to {len} bytes"));
        }
        for page in 0..to_usize(DATA_START / PAGE) {
            let is_bucket = self.kind == Kind::Word && (2..4).contains(&page);
            if !is_bucket {
                let mut zeroed = left.clone();
                zeroed.home[page * to_usize(PAGE)..][..to_usize(PAGE)].fill(0);
                self.try_it(&zeroed, &format!("page {page} zeroed"));
            }
        }
        let mut empty = left.clone();
        empty.home.fill(0);
        self.try_it(&empty, "all of it zeroed");
        // An older copy of the whole file is right, as of its time.
        let older = Left {
            home: early.home.clone(),
            journal: None,
            allowed: early.allowed.clone(),
        };
        self.try_it(&older, "an older copy");
    }
}

#[test]
fn damage_is_refused_or_changes_no_answer() {
    let seed = seed();
    for kind in [Kind::Word, Kind::Wide, Kind::Variable] {
        for dir in TestDir::all() {
            if dir.is_slow() {
                continue;
            }
            let mut case = Case {
                kind,
                domain: dir.domain,
                dir,
                rng: SmallRng::seed_from_u64(seed),
                tried: 0,
            };
            let files = case.files();
            for left in &files {
                case.try_it(left, "no damage");
                case.damage(left, &files[0]);
            }
            println!("{kind:?}, {:?}: {} files", case.domain, case.tried);
        }
    }
}

/// What says where records are, and counts them: the index of a store would have to be made anew without it.
#[test]
fn salvage_goes_on_without_a_part_of_the_tables() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let [dir, ..] = TestDir::all();
    for kind in [Kind::Word, Kind::Wide, Kind::Variable] {
        let read = || {
            let index = kind.open(&dir.path(), &dir.options(None)).unwrap();
            index.contents().unwrap()
        };
        let index = kind.open(&dir.path(), &dir.options(None)).unwrap();
        index.change(0..600);
        let expected = index.contents().unwrap();
        index.close();
        let left = fs::read(dir.path()).unwrap();
        let superblock = Superblock::parse(&left, left.len() as u64, &dir.path()).unwrap();
        let at = |nth| to_usize(superblock.entry_offset(nth));
        let mut parts: Vec<(Range<usize>, bool)> = (0..superblock.extent_count)
            .map(|nth| (at(nth)..at(nth + 1), false))
            .collect();
        if kind == Kind::Variable {
            let class_table = to_usize(CLASS_TABLE)..;
            let counts = class_table.take(size_of::<ClassTable>()).step_by(EVERY);
            parts.extend(counts.map(|at| (at..at + 1, true)));
        }
        let mut lost = 0;
        for (part, is_count) in parts {
            let mut damaged = left.clone();
            damaged[rng.random_range(part)] ^= 1 << rng.random_range(0..8);
            fs::write(dir.path(), &damaged).unwrap();
            let report = recover(dir.path(), Repair::Salvage, &|_| {}).unwrap();
            assert_eq!(report.state, ReportState::Damaged);
            let checked = recover(dir.path(), Repair::Check, &|_| {}).unwrap();
            assert_eq!(checked.state, ReportState::Clean, "{checked:?}");
            let found = read();
            assert!(found == expected || !is_count);
            let fewer = (expected.len() - found.len()) as u64;
            assert_eq!(report.recovery.items_lost, fewer);
            assert!(
                found
                    .iter()
                    .all(|item| expected.get(item.0) == Some(item.1))
            );
            lost += fewer;
            fs::write(dir.path(), &left).unwrap();
        }
        println!(
            "{kind:?}: {} entries, {lost} items lost",
            superblock.extent_count
        );
        fs::remove_file(dir.path()).unwrap();
    }
}
