//! The sorted files of a store, and its value files, with arbitrary damage under checksums that match or not.

#![no_main]

mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use gphash::store::{Durability, Repair, Store, StoreOptions, StoreReport, recover};
use gphash::{Domain, ReportState};
use libfuzzer_sys::fuzz_target;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// One change to a file.
#[derive(Arbitrary, Debug)]
enum Patch {
    /// A word of the header, under a checksum that matches.
    Header {
        word: u8,
        value: u64,
    },
    /// A word of the footer, likewise.
    Footer {
        word: u8,
        value: u64,
    },
    /// Bytes of a block, likewise.
    Block {
        nth: u8,
        at: u16,
        bytes: [u8; 4],
    },
    /// What a block says of itself, likewise.
    BlockHeader {
        nth: u8,
        len: u32,
        raw: u32,
    },
    Byte {
        at: u16,
        value: u8,
    },
    Cut {
        at: u16,
    },
    Bytes(Vec<u8>),
    /// One file becomes another one.
    Swap {
        other: u8,
    },
    Remove,
}

const HEADER: usize = 48;
const FOOTER: usize = 40;
const BLOCK: usize = 16;

/// A store that was closed after many of its items had left the table.
struct Spilled {
    files: BTreeMap<PathBuf, Vec<u8>>,
    items: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Every value that was ever written for a key.
    ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

static SPILLED: LazyLock<Spilled> = LazyLock::new(|| {
    let folder = folder::new();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options()).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut items = BTreeMap::new();
    let mut ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for round in 0..2u64 {
        for number in (0..600u64).step_by(1 + usize::try_from(round).unwrap()) {
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            let value: Vec<u8> = (0..rng.random_range(0..300))
                .map(|_| rng.random())
                .collect();
            store.put(key, value.clone()).unwrap();
            ever.entry(key.to_vec()).or_default().insert(value.clone());
            items.insert(key.to_vec(), value);
        }
        while store.stats().items_evicted <= 50 * round {
            std::thread::yield_now();
        }
    }
    store.close().unwrap();
    let mut files = BTreeMap::new();
    for part in ["", "wal", "sst"] {
        for entry in std::fs::read_dir(path.join(part)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let contents = std::fs::read(entry.path()).unwrap();
                files.insert(Path::new(part).join(entry.file_name()), contents);
            }
        }
    }
    Spilled { files, items, ever }
});

fn options() -> StoreOptions {
    StoreOptions::new()
        .capacity(4)
        .domain(Domain::Checkpointed)
        .durability(Durability::None)
        .segment_bytes(StoreOptions::MIN_SEGMENT)
        .memory_budget(StoreOptions::MIN_BUDGET)
        .value_file_threshold(200)
        .threads(1)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().unwrap())).ok()
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + new.len()) {
        place.copy_from_slice(new);
    }
}

/// Where block `nth` begins, and where the data ends.
fn block(bytes: &[u8], nth: u8) -> Option<(usize, usize)> {
    let end = usize::try_from(word(bytes, bytes.len().checked_sub(FOOTER)?)?).ok()?;
    let mut at = HEADER;
    for _ in 0..nth % 64 {
        let len = half(bytes, at + 8)?;
        at = at.checked_add(BLOCK)?.checked_add(len)?;
    }
    (at + BLOCK <= bytes.len()).then_some((at, end))
}

/// Gives a block the checksum that it should have.
fn seal(bytes: &mut [u8], at: usize, data_end: usize) -> Option<()> {
    let seed = word(bytes, HEADER - 8)?.wrapping_add(at as u64);
    let seed = if at < data_end { seed } else { !seed };
    let len = half(bytes, at + 8)?;
    let end = (at + BLOCK).checked_add(len)?;
    let sum = xxh3_64_with_seed(bytes.get(at + 8..end)?, seed);
    put(bytes, at, &sum.to_le_bytes());
    Some(())
}

impl Patch {
    fn apply(self, bytes: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Header { word, value } => {
                put(bytes, usize::from(word % 5) * 8, &value.to_le_bytes());
                let sum = xxh3_64(bytes.get(..HEADER - 8)?);
                put(bytes, HEADER - 8, &sum.to_le_bytes());
            }
            Self::Footer { word: nth, value } => {
                let at = bytes.len().checked_sub(FOOTER)?;
                put(bytes, at + usize::from(nth % 3) * 8, &value.to_le_bytes());
                let seed = !word(bytes, HEADER - 8)?.wrapping_add(at as u64);
                let sum = xxh3_64_with_seed(&bytes[at..at + 24], seed);
                put(bytes, at + 24, &sum.to_le_bytes());
            }
            Self::Block {
                nth,
                at,
                bytes: new,
            } => {
                let (start, data_end) = block(bytes, nth)?;
                let len = half(bytes, start + 8)?.max(1);
                put(bytes, start + BLOCK + usize::from(at) % len, &new);
                seal(bytes, start, data_end)?;
            }
            Self::BlockHeader { nth, len, raw } => {
                let (start, data_end) = block(bytes, nth)?;
                put(bytes, start + 8, &len.to_le_bytes());
                put(bytes, start + 12, &raw.to_le_bytes());
                seal(bytes, start, data_end)?;
            }
            Self::Byte { at, value } => {
                let at = usize::from(at) % bytes.len().max(1);
                *bytes.get_mut(at)? = value;
            }
            Self::Cut { at } => bytes.truncate(usize::from(at)),
            Self::Bytes(new) => *bytes = new,
            Self::Swap { .. } | Self::Remove => unreachable!("a change of files"),
        }
        Some(())
    }
}

/// Looks at a store that was salvaged: it is whole, no key has what was never written for it, and what it has
/// lost was named.
fn check_salvaged(path: &Path, report: &StoreReport, forged: bool) {
    let store = Store::open(path, &options()).unwrap();
    let items: BTreeMap<Vec<u8>, Vec<u8>> = store.range(..).map(Result::unwrap).collect();
    for (key, value) in &items {
        let ever = SPILLED.ever.get(key);
        assert!(
            forged || ever.is_some_and(|ever| ever.contains(value)),
            "{key:02x?} never had {value:02x?}"
        );
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value));
    }
    let is_named = report.state == ReportState::Damaged;
    assert!(
        forged || is_named || items == SPILLED.items,
        "a loss without a name: {report:?}"
    );
    let report = store.verify(&|_| {});
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
    store.close().unwrap();
}

fuzz_target!(|patches: Vec<(u8, Patch)>| {
    let mut files = SPILLED.files.clone();
    let mut forged = false;
    for (file, patch) in patches.into_iter().take(8) {
        let all: Vec<PathBuf> = files
            .keys()
            .filter(|path| path.starts_with("sst"))
            .cloned()
            .collect();
        let Some(path) = all.get(usize::from(file) % all.len().max(1)) else {
            break;
        };
        let is_sealed = matches!(
            patch,
            Patch::Block { .. }
                | Patch::BlockHeader { .. }
                | Patch::Header { .. }
                | Patch::Footer { .. }
        );
        match patch {
            Patch::Remove => drop(files.remove(path)),
            Patch::Swap { other } => {
                let other = files[&all[usize::from(other) % all.len()]].clone();
                files.insert(path.clone(), other);
            }
            patch => {
                let bytes = files.get_mut(path).unwrap();
                let before = is_sealed.then(|| bytes.clone());
                // One that does not fit changes nothing more.
                let _ = patch.apply(bytes);
                forged |= before.is_some_and(|before| before != *bytes);
            }
        }
    }
    let folder = folder::new();
    for (path, contents) in &files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
    let is_whole = match recover(folder.path(), Repair::Check, &|_| {}) {
        Ok(report) => report.state != ReportState::Damaged,
        Err(_) => false,
    };
    let Ok(store) = Store::open(folder.path(), &options()) else {
        assert!(forged || !is_whole);
        let mended = recover(folder.path(), Repair::Salvage, &|_| {});
        // Files that are whole may not go together.
        assert!(forged || mended.as_ref().is_ok_and(|report| report.was_repaired));
        if let Ok(report) = mended
            && report.was_repaired
        {
            check_salvaged(folder.path(), &report, forged);
        }
        return;
    };
    for (key, value) in &SPILLED.items {
        if let Ok(found) = store.get(key) {
            assert!(forged || found.as_ref() == Some(value), "{key:02x?}");
        }
    }
    for backward in [false, true] {
        let mut range = store.range(..);
        let next = |range: &mut gphash::store::Range<'_>| match backward {
            false => range.next(),
            true => range.next_back(),
        };
        // An iterator ends with its first error.
        let mut found = 0;
        let ended = loop {
            match next(&mut range) {
                None => break true,
                Some(Err(_)) => break false,
                Some(Ok((key, value))) => {
                    assert!(
                        forged || SPILLED.items.get(&key) == Some(&value),
                        "{key:02x?}"
                    );
                    found += 1;
                }
            }
        };
        assert!(forged || !ended || found == SPILLED.items.len());
        assert!(forged || !is_whole || ended);
    }
    let _ = store.verify(&|_| {});
    let _ = store.close();
});
