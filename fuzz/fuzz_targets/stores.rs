//! A store that was not closed, and the states that its batches have left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use gphash::store::{Durability, Repair, Store, StoreOptions, WriteBatch, recover};
use gphash::{Domain, Error, ReportState};

use crate::folder;

pub type Items = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store as the death of its process has left it.
pub struct Killed {
    /// Its files by their names.
    pub files: BTreeMap<String, Vec<u8>>,
    /// What it held after each batch, from the checkpoint on.
    pub states: Vec<Items>,
    /// Every value that was ever written for a key.
    ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

/// What someone who knows the format has made up, under checksums that match.
// Each target makes some of them.
#[allow(dead_code)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forged {
    Nothing,
    /// What belongs together: items may be missing or of different times.
    Order,
    /// Keys and values.
    Items,
}

/// Its log has several segments behind the checkpoint.
pub static KILLED: LazyLock<Killed> = LazyLock::new(|| {
    let folder = folder::new();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options()).unwrap();
    let mut items = Items::new();
    let mut states = Vec::new();
    let mut ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for nth in 0..12u8 {
        let mut batch = WriteBatch::new();
        for key in 0..3 {
            let value = vec![nth; usize::from(nth) * 30];
            batch.put([key], value.clone());
            ever.entry(vec![key]).or_default().insert(value.clone());
            items.insert(vec![key], value);
        }
        if nth % 3 == 2 {
            batch.delete([1]);
            items.remove(&[1][..]);
        }
        store.write(batch).unwrap();
        if nth == 3 {
            store.checkpoint().unwrap();
        }
        if nth >= 3 {
            states.push(items.clone());
        }
    }
    let files = NAMES
        .iter()
        .filter_map(|name| Some((name.to_string(), std::fs::read(path.join(name)).ok()?)))
        .map(|(name, mut bytes)| {
            if name.starts_with("wal/") {
                // Room for more.
                let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
                bytes.truncate(end.next_multiple_of(8) + 64);
            }
            (name, bytes)
        })
        .collect();
    Killed {
        files,
        states,
        ever,
    }
});

pub const MANIFEST: &str = "MANIFEST";

const NAMES: [&str; 7] = [
    MANIFEST,
    "MANIFEST.2",
    "index.gph",
    "wal/000000000001.log",
    "wal/000000000002.log",
    "wal/000000000003.log",
    "wal/000000000004.log",
];

fn options() -> StoreOptions {
    StoreOptions::new()
        .capacity(4)
        // The index is as it was at the checkpoint, and only the log has more.
        .domain(Domain::Checkpointed)
        .durability(Durability::None)
        .segment_bytes(StoreOptions::MIN_SEGMENT)
        .checkpoint_bytes(u64::MAX)
        .threads(1)
}

/// Puts the files of a store to `path`, in place of what is there.
fn put(path: &Path, files: &BTreeMap<String, Vec<u8>>) {
    let _ = std::fs::remove_dir_all(path);
    std::fs::create_dir_all(path.join("wal")).unwrap();
    for (name, bytes) in files {
        std::fs::write(path.join(name), bytes).unwrap();
    }
}

/// All items of a store, each of which was written once.
fn items(store: &Store, forged: Forged) -> Items {
    let items: Items = store.range(..).map(Result::unwrap).collect();
    for (key, value) in &items {
        let ever = KILLED.ever.get(key);
        assert!(
            forged == Forged::Items || ever.is_some_and(|ever| ever.contains(value)),
            "{key:?} never had {value:?}"
        );
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value));
    }
    items
}

/// Checks a store that was made whole, and that it stays so.
fn is_whole_now(path: &Path, store: Store) {
    let report = store.verify(&|_| {});
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
    store.put("new", "item").unwrap();
    store.close().unwrap();
    let report = recover(path, Repair::Check, &|_| {}).unwrap();
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
}

/// Looks at a store of these files, opens it, opens it with salvage, and lets the tool salvage it: each
/// answers an error, or has what some batch has left, or names a loss; and no key has what was never written
/// for it.
pub fn open_and_mend(path: &Path, files: &BTreeMap<String, Vec<u8>>, forged: Forged) {
    put(path, files);
    let is_whole = match recover(path, Repair::Check, &|_| {}) {
        Ok(report) => report.state != ReportState::Damaged,
        Err(_) => false,
    };
    for (name, bytes) in files {
        let now = std::fs::read(path.join(name)).unwrap();
        assert!(now == *bytes, "a look has changed {name}");
    }
    let is_state = |items: &Items| KILLED.states.contains(items);
    let opened = Store::open(path, &options());
    match &opened {
        Ok(_) => assert!(is_whole, "a damaged store was opened"),
        Err(Error::OptionMismatch { .. }) => {}
        Err(error) => assert!(!is_whole, "{error}"),
    }
    if let Ok(store) = opened.or_else(|_| Store::open(path, &options().salvage(true))) {
        let items = items(&store, forged);
        assert!(forged > Forged::Nothing || is_state(&items), "{items:?}");
        is_whole_now(path, store);
    }
    put(path, files);
    if let Ok(report) = recover(path, Repair::Salvage, &|_| {}) {
        let store = match Store::open(path, &options()) {
            // The forged name of a merge operator.
            Err(Error::OptionMismatch { .. }) if forged > Forged::Nothing => return,
            store => store.unwrap(),
        };
        let items = items(&store, forged);
        let is_named = report.state == ReportState::Damaged;
        assert!(is_named != is_whole, "{report:?}");
        assert!(
            forged > Forged::Nothing || is_named || is_state(&items),
            "a loss without a name: {items:?}, {report:?}"
        );
        is_whole_now(path, store);
    }
}
