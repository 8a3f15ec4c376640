//! A file in an attacker's hands.

use std::fs;
use std::path::{Path, PathBuf};

use gphash::layout::bucket::SlotAddr;
use gphash::layout::{ExtentEntry, ExtentKind, Flags, SUPERBLOCKS, Shape, Superblock};
use gphash::{Domain, Engine, Error, Index, Options, ReportState, Result, recover};
use tempfile::TempDir;

use crate::memory::bounded;

pub type Table = Index<u64, u64>;

/// Items of an honest file, keys 0 to 99 and the last one.
pub const ITEMS: u64 = 101;

pub fn keys() -> Vec<u64> {
    (0..ITEMS - 1).chain([u64::MAX]).collect()
}

pub fn options() -> Options {
    Options::new().engine(Engine::Cpu)
}

/// A folder in memory, where files are in the domain `Shared`.
pub fn folder() -> TempDir {
    TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap()
}

#[derive(Clone)]
pub struct Hostile {
    pub bytes: Vec<u8>,
    pub superblock: Superblock,
    pub journal: Option<Vec<u8>>,
}

impl Hostile {
    /// An honest file of one hash location and two levels, cleanly closed, with some records free.
    pub fn new() -> Self {
        Self::with_shape(2, 1, 4)
    }

    pub fn with_shape(levels: u32, locations: u32, slots: u32) -> Self {
        let folder = folder();
        let path = folder.path().join("index");
        let options = options().capacity(20).shape(levels, locations, slots);
        let index = Table::create(&path, &options).unwrap();
        let keys = keys();
        index.insert(&keys, &keys).unwrap();
        let gone: Vec<u64> = (1000..1040).collect();
        index.insert(&gone, &gone).unwrap();
        index.remove(&gone).unwrap();
        index.close().unwrap();
        Self::of(fs::read(&path).unwrap())
    }

    pub fn of(bytes: Vec<u8>) -> Self {
        let superblock = Superblock::parse(&bytes, bytes.len() as u64, Path::new("index")).unwrap();
        Self {
            bytes,
            superblock,
            journal: None,
        }
    }

    /// Makes the file one that has to be scanned.
    pub fn unclean(mut self) -> Self {
        self.superblock.set_flag(Flags::CLEAN, false);
        self
    }

    pub fn shape(&self) -> Shape {
        self.superblock.shape(Path::new("index")).unwrap()
    }

    pub fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(
            self.bytes[usize::try_from(at).unwrap()..][..8]
                .try_into()
                .unwrap(),
        )
    }

    pub fn put(&mut self, at: u64, word: u64) {
        self.bytes[usize::try_from(at).unwrap()..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Adds an entry to the extent table.
    pub fn add_extent(&mut self, kind: ExtentKind, offset: u64, len: u64) {
        let index = self.superblock.extent_count;
        self.superblock.extent_count += 1;
        self.set_extent(index, ExtentEntry::new(kind, 0, offset, len));
    }

    pub fn set_extent(&mut self, index: u32, entry: ExtentEntry) {
        let at = usize::try_from(self.superblock.entry_offset(index)).unwrap();
        self.bytes[at..][..size_of::<ExtentEntry>()].copy_from_slice(bytemuck::bytes_of(&entry));
    }

    pub fn extent(&self, index: u32) -> ExtentEntry {
        let at = usize::try_from(self.superblock.entry_offset(index)).unwrap();
        bytemuck::pod_read_unaligned(&self.bytes[at..][..size_of::<ExtentEntry>()])
    }

    /// Number of the first arena among the extents.
    pub fn arena(&self) -> u32 {
        (0..self.superblock.extent_count)
            .find(|&index| self.extent(index).kind() == Some(ExtentKind::Arena))
            .unwrap()
    }

    /// All slots of all levels.
    pub fn slots(&self) -> Vec<SlotAddr> {
        let (superblock, shape) = (self.superblock, self.shape());
        (superblock.bottom_level..=superblock.top_level)
            .flat_map(|level| {
                let offset = superblock.level_directory[level as usize];
                (0..1u64 << level).map(move |bucket| offset + bucket * shape.bucket_size)
            })
            .flat_map(|bucket| (0..shape.slots).map(move |slot| shape.slot_addr(bucket, slot)))
            .collect()
    }

    /// The slots that hold items.
    pub fn members(&self) -> Vec<SlotAddr> {
        let mut slots = self.slots();
        slots.retain(|slot| self.word(slot.state) != 0);
        slots
    }

    fn sealed(&self) -> Vec<u8> {
        let (mut bytes, mut superblock) = (self.bytes.clone(), self.superblock);
        superblock.seal();
        for at in SUPERBLOCKS {
            bytes[usize::try_from(at).unwrap()..][..size_of::<Superblock>()]
                .copy_from_slice(bytemuck::bytes_of(&superblock));
        }
        bytes
    }

    /// Puts the file, and the journal if there is one, into a folder.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("index");
        fs::write(&path, self.sealed()).unwrap();
        if let Some(journal) = &self.journal {
            fs::write(path.with_extension("journal"), journal).unwrap();
        }
        path
    }

    /// Does all that can be done to the file; gives how an index opens it.
    pub fn attack(self, name: &str) -> Result<()> {
        let len = self.bytes.len() as u64;
        let named = name.to_owned();
        let opened = bounded(name, 4 * len, move || {
            let opened = [Domain::Auto, Domain::Checkpointed].map(|domain| {
                let folder = folder();
                let path = self.write(folder.path());
                let before = self.sealed();
                let looked = recover(&path, gphash::Repair::Check, &|_| {});
                assert!(fs::read(&path).unwrap() == before, "a look changed {named}");
                let opened = open_and_use(&path, domain);
                if opened.is_err() && self.journal.is_none() {
                    assert!(fs::read(&path).unwrap() == before, "{named} was changed");
                }
                mend_and_use(&path, looked.is_ok());
                opened
            });
            let folder = folder();
            let path = self.write(folder.path());
            mend_and_use(&path, false);
            opened
        });
        println!("{name}: {:?}", opened[0].as_ref().err());
        let [first, second] = opened;
        assert_eq!(first.is_ok(), second.is_ok(), "{name}");
        first
    }

    /// As [`attack`](Self::attack), for a file that must be refused as damaged.
    pub fn must_be_refused(self, name: &str) {
        let error = self.attack(name).expect_err(name);
        let told = matches!(error, Error::Damaged { .. } | Error::Truncated { .. });
        assert!(told, "{name}: {error}");
    }
}

/// Uses every verb on the file; the error is that of opening.
fn open_and_use(path: &Path, domain: Domain) -> Result<()> {
    let index = Table::open(path, &options().domain(domain))?;
    let keys = keys();
    let mut values = vec![0; keys.len()];
    // What a file that is believed says may turn out to be damage now.
    let _ = index.get(&keys, &mut values);
    for key in &keys {
        let _ = index.get_one(key);
        let _ = index.update_one(key, &5);
    }
    let _ = index.remove(&keys[..30]);
    let _ = index.contains(&keys);
    for key in &keys[10..50] {
        let _ = index.upsert_one(key, &6);
    }
    let fresh: Vec<u64> = (5000..5500).collect();
    for part in fresh.chunks(50) {
        let _ = index.insert(part, part);
    }
    assert!(index.iter().count() < 1 << 20);
    let _ = index.reserve(2000);
    let _ = index.sync();
    let _ = index.close();
    Ok(())
}

/// Mends the file; then it is whole, and holds what it says.
fn mend_and_use(path: &Path, must: bool) {
    let before = std::fs::read(path).unwrap();
    if let Ok(report) = recover(path, gphash::Repair::Recover, &|_| {})
        && report.state == ReportState::Damaged
    {
        assert!(std::fs::read(path).unwrap() == before, "{report:?}");
    }
    let mended = recover(path, gphash::Repair::Salvage, &|_| {});
    assert!(mended.is_ok() || !must, "{mended:?}");
    if mended.is_err() {
        return;
    }
    let report = recover(path, gphash::Repair::Check, &|_| {}).unwrap();
    assert!(report.recovery.damage.is_empty(), "{report:?}");
    let index = match Table::open(path, &options()) {
        Err(Error::SizeMismatch { .. } | Error::WrongKind { .. }) => return,
        opened => opened.unwrap(),
    };
    assert!(index.recovery().clean);
    let items: Vec<(u64, u64)> = index.iter().collect();
    assert_eq!(
        (items.len() as u64, index.len()),
        (report.recovery.items, report.recovery.items)
    );
    let keys: Vec<u64> = items.iter().map(|item| item.0).collect();
    let mut values = vec![0; keys.len()];
    let found = index.get(&keys, &mut values).unwrap();
    assert_eq!(found.count_ones(..), keys.len());
    drop(index);
    open_and_use(path, Domain::Auto).unwrap();
}
