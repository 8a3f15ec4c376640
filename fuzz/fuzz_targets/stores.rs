//! A store that was not closed, and the states that its batches have left.

use std::collections::BTreeMap;
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
}

/// Its log has several segments behind the checkpoint.
pub static KILLED: LazyLock<Killed> = LazyLock::new(|| {
    let folder = folder::new();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options()).unwrap();
    let mut items = Items::new();
    let mut states = Vec::new();
    for nth in 0..12u8 {
        let mut batch = WriteBatch::new();
        for key in 0..3 {
            let value = vec![nth; usize::from(nth) * 30];
            batch.put([key], value.clone());
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
    Killed { files, states }
});

pub const MANIFEST: &str = "MANIFEST";

const NAMES: [&str; 6] = [
    MANIFEST,
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

/// Looks at a store of these files, opens it, and opens it with salvage: each answers an error, or has
/// items that the store has had, unless someone who knows the format has `forged` them.
pub fn open_and_mend(path: &Path, files: &BTreeMap<String, Vec<u8>>, forged: bool) {
    std::fs::create_dir_all(path.join("wal")).unwrap();
    for (name, bytes) in files {
        std::fs::write(path.join(name), bytes).unwrap();
    }
    let is_whole = match recover(path, Repair::Look, &|_| {}) {
        Ok(report) => report.state != ReportState::Damaged,
        Err(_) => false,
    };
    for (name, bytes) in files {
        let now = std::fs::read(path.join(name)).unwrap();
        assert!(now == *bytes, "a look has changed {name}");
    }
    let opened = Store::open(path, &options());
    match &opened {
        Ok(_) => assert!(is_whole, "a damaged store was opened"),
        Err(Error::OptionMismatch { .. }) => {}
        Err(error) => assert!(!is_whole, "{error}"),
    }
    let store = opened.or_else(|_| Store::open(path, &options().salvage(true)));
    let Ok(store) = store else {
        let _ = recover(path, Repair::Salvage, &|_| {});
        return;
    };
    let items: Items = store.range(..).map(Result::unwrap).collect();
    assert!(forged || KILLED.states.contains(&items), "{items:?}");
    let report = store.verify(&|_| {});
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
    store.put("new", "item").unwrap();
    store.close().unwrap();
    let report = recover(path, Repair::Look, &|_| {}).unwrap();
    assert_eq!(report.state, ReportState::Clean, "{report:?}");
}
