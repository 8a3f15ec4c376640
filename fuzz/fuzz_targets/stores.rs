//! A store that was not closed, and the states that its batches have left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use gphash::store::{Durability, FileReport, Repair, Store, StoreOptions, WriteBatch, recover};
use gphash::{Domain, Error, ReportState};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::folder;

pub type Items = BTreeMap<Vec<u8>, Vec<u8>>;

/// Files by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A store as the death of its process has left it. Each target has one of them.
pub struct Killed {
    pub files: Files,
    /// The keys of each partition.
    keys: Vec<[Vec<u8>; 3]>,
    /// What it held after each batch, from the checkpoint on.
    states: Vec<Items>,
    /// The partitions that each of these batches has changed.
    changed: Vec<Vec<usize>>,
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
    /// What has no checksum and no opening looks at: it may pass until the store is checked.
    Slots,
}

/// Its log has several segments behind the checkpoint.
#[allow(dead_code)]
pub static KILLED: LazyLock<Killed> = LazyLock::new(|| killed(&[&[0][..]; 12]));

/// Three partitions, most batches in several of them. The second one has taken another checkpoint than the others.
/// The last batch has no commit record.
#[allow(dead_code)]
pub static PARTITIONED: LazyLock<Killed> = LazyLock::new(|| {
    let batches: [&[usize]; 13] = [
        &[0, 1, 2],
        &[1, 2],
        &[0],
        &[0, 1],
        &[0, 2],
        &[1],
        &[2],
        &[0, 1, 2],
        &[1, 2],
        &[0],
        &[0, 1],
        &[0, 2],
        &[0, 1, 2],
    ];
    killed(&batches)
});

/// Bytes of its log after which a partition takes a checkpoint.
const CHECKPOINT: usize = 16 << 10;

/// A store in which each of these batches has changed these partitions.
fn killed(batches: &[&[usize]]) -> Killed {
    let folder = folder::new();
    let path = folder.path().join("store");
    let partitions = 1 + batches.iter().copied().flatten().max().unwrap();
    let mut options = options().partitions(partitions.try_into().unwrap());
    // The log of each partition has several segments behind its checkpoint.
    let mut batch_len = 30;
    if partitions > 1 {
        options = options.checkpoint_bytes((partitions * CHECKPOINT) as u64);
        batch_len = 70;
    }
    let store = Store::open(&path, &options).unwrap();
    let keys = keys(&path, partitions);
    let mut items = Items::new();
    let (mut states, mut changed) = (Vec::new(), Vec::new());
    let mut ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    let mut before_last = Files::new();
    for (nth, &partitions) in (0..).zip(batches) {
        let takes_checkpoint = nth == 7 && partitions.len() > 1;
        let checkpoints = store.stats().latencies.checkpoint.count;
        if usize::from(nth) == batches.len() - 1 {
            before_last = read(&path);
        }
        let mut batch = WriteBatch::new();
        for &partition in partitions {
            let mut len = usize::from(nth) * batch_len;
            if takes_checkpoint && partition == 1 {
                len += CHECKPOINT;
            }
            let keys = &keys[partition];
            for key in keys {
                let value = vec![nth; len];
                batch.put(key.clone(), value.clone());
                ever.entry(key.clone()).or_default().insert(value.clone());
                items.insert(key.clone(), value);
            }
            if nth % 3 == 2 {
                batch.delete(keys[1].clone());
                items.remove(&keys[1]);
            }
        }
        store.write(batch).unwrap();
        if nth == 3 {
            store.checkpoint().unwrap();
        }
        while takes_checkpoint && store.stats().latencies.checkpoint.count == checkpoints {
            std::thread::yield_now();
        }
        if nth >= 3 {
            states.push(items.clone());
            changed.push(partitions.to_vec());
        }
    }
    let mut files = read(&path);
    if partitions > 1 {
        let is_of_first = |name: &String| !name.starts_with("partition");
        files.retain(|name, _| !is_of_first(name));
        before_last.retain(|name, _| is_of_first(name));
        files.append(&mut before_last);
    }
    for (name, bytes) in &mut files {
        if name.ends_with(".log") {
            // Room for more.
            let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            bytes.truncate(end.next_multiple_of(8) + 64);
        }
    }
    Killed {
        files,
        keys,
        states,
        changed,
        ever,
    }
}

/// The first keys of one byte of each partition.
fn keys(path: &Path, partitions: usize) -> Vec<[Vec<u8>; 3]> {
    let manifest = std::fs::read(path.join(MANIFEST)).unwrap();
    let word = |at: usize| u64::from_le_bytes(manifest[at..at + 8].try_into().unwrap());
    // As the store does it.
    let seed = word(16) ^ word(24).rotate_left(32);
    let number = |key: &u8| {
        let hash = u128::from(xxh3_64_with_seed(&[*key], seed));
        usize::try_from((hash * partitions as u128) >> 64).unwrap()
    };
    let keys = |partition| {
        let mut keys = (0..=255).filter(|key| number(key) == partition);
        std::array::from_fn(|_| vec![keys.next().expect("one of so many")])
    };
    (0..partitions).map(keys).collect()
}

pub const MANIFEST: &str = "MANIFEST";

/// What stands in the directory of a store but for locks and reserves.
fn read(path: &Path) -> Files {
    let mut files = Files::new();
    let mut dirs = vec![path.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap().path();
            let name = entry.strip_prefix(path).unwrap().to_str().unwrap();
            if entry.is_dir() {
                dirs.push(entry);
            } else if !name.ends_with("LOCK") && !name.ends_with("RESERVE") {
                files.insert(name.to_owned(), std::fs::read(&entry).unwrap());
            }
        }
    }
    files
}

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

impl Killed {
    /// Puts files to `path`, in place of what is there.
    fn put(&self, path: &Path, files: &Files) {
        let _ = std::fs::remove_dir_all(path);
        std::fs::create_dir_all(path.join("wal")).unwrap();
        for number in 1..self.keys.len() {
            let partition = path.join(format!("partition-{number:03}"));
            std::fs::create_dir_all(partition.join("wal")).unwrap();
        }
        for (name, bytes) in files {
            std::fs::write(path.join(name), bytes).unwrap();
        }
    }

    /// Whether a key that was made up may be in a partition that is not its own.
    fn may_be_elsewhere(&self, forged: Forged) -> bool {
        self.keys.len() > 1 && forged >= Forged::Items
    }

    /// All items of a store, each of which was written once.
    fn items(&self, store: &Store, forged: Forged) -> Items {
        let items: Items = store.range(..).map(Result::unwrap).collect();
        for (key, value) in &items {
            self.check_item(key, value, forged);
            if !self.may_be_elsewhere(forged) {
                assert_eq!(store.get(key).unwrap().as_ref(), Some(value));
            }
        }
        items
    }

    fn check_item(&self, key: &[u8], value: &Vec<u8>, forged: Forged) {
        let ever = self.ever.get(key);
        assert!(
            forged >= Forged::Items || ever.is_some_and(|ever| ever.contains(value)),
            "{key:?} never had {value:?}"
        );
    }

    /// The last batch that each partition holds, if it holds what some batch has left there.
    fn last(&self, items: &Items) -> Vec<Option<usize>> {
        let holds = |state: &Items, keys: &[Vec<u8>; 3]| {
            keys.iter().all(|key| state.get(key) == items.get(key))
        };
        let last_of = |keys| self.states.iter().rposition(|state| holds(state, keys));
        self.keys.iter().map(last_of).collect()
    }

    /// Whether each partition holds what some batch has left there, and each batch is in all partitions that it has
    /// changed or in none.
    fn is_state(&self, items: &Items) -> bool {
        let last = self.last(items);
        let is_known = |key| self.keys.iter().flatten().any(|known| known == key);
        let is_whole = |(nth, changed): (usize, &Vec<usize>)| {
            let has = |&partition: &usize| last[partition] >= Some(nth);
            changed.iter().all(has) || !changed.iter().any(has)
        };
        last.iter().all(Option::is_some)
            && items.keys().all(is_known)
            && self.changed.iter().enumerate().all(is_whole)
    }

    /// What a store has that was made whole.
    fn mended(&self, path: &Path, forged: Forged) -> Option<Items> {
        let store = match Store::open(path, &options()) {
            // The forged name of a merge operator.
            Err(Error::OptionMismatch { .. }) if forged > Forged::Nothing => return None,
            store => store.unwrap(),
        };
        let items = self.items(&store, forged);
        self.is_whole_now(path, store, forged);
        Some(items)
    }

    /// The process dies once more. What it has opened opens again, and is the same.
    fn dies(&self, path: &Path, items: &Items, forged: Forged) {
        let left = path.with_extension("left");
        self.put(&left, &read(path));
        let store = Store::open(&left, &options()).unwrap();
        assert_eq!(self.items(&store, forged), *items);
    }

    /// Looks at a store of these files, opens it, opens it with salvage, and lets the tool recover and salvage it:
    /// each answers an error, or has what some batch has left, or names a loss; and no key has what was never
    /// written for it.
    pub fn open_and_mend(&self, path: &Path, files: &Files, forged: Forged) {
        self.put(path, files);
        let is_whole = match recover(path, Repair::Check, &|_| {}) {
            Ok(report) => report.state != ReportState::Damaged,
            Err(_) => false,
        };
        is_unchanged(path, files, "a look");
        let opened = Store::open(path, &options());
        match &opened {
            // No opening looks at all slots, nor at the entries of groups that do not count.
            Ok(_) => assert!(
                is_whole || self.may_be_elsewhere(forged),
                "a damaged store was opened"
            ),
            Err(error) => {
                let is_other = matches!(error, Error::OptionMismatch { .. });
                assert!(!is_whole || is_other, "{error}");
                // Entries are read when some are in the index already, and an index is opened when the partitions
                // behind it have been recovered.
                let is_of_index = error.to_string().contains("index.gph");
                let is_late = forged >= Forged::Items || self.keys.len() > 1 && is_of_index;
                if !is_late {
                    is_unchanged(path, files, "a refusal");
                }
            }
        }
        let mut had = None;
        match opened {
            // What it opens is not all that it looks at.
            Ok(store) if !is_whole => {
                let items = store.range(..).map_while(Result::ok);
                items.for_each(|(key, value)| self.check_item(&key, &value, forged));
            }
            Ok(store) => {
                had = Some(self.opened(path, store, forged, |items| self.is_state(items)));
            }
            Err(_) => {
                if let Ok(store) = Store::open(path, &options().salvage(true)) {
                    // It keeps all parts of groups that it finds.
                    let keeps = |items: &Items| self.last(items).iter().all(Option::is_some);
                    self.opened(path, store, forged, keeps);
                }
            }
        }
        self.put(path, files);
        match recover(path, Repair::Recover, &|_| {}) {
            Ok(report) if report.was_repaired => {
                assert!(is_whole, "{report:?}");
                assert_eq!(self.mended(path, forged), had, "{report:?}");
            }
            refused => {
                assert!(!is_whole, "{refused:?}");
                is_unchanged(path, files, "a refusal");
            }
        }
        self.put(path, files);
        match recover(path, Repair::Salvage, &|_| {}) {
            Ok(report) => {
                let is_named = report.state == ReportState::Damaged;
                assert!(is_named != is_whole, "{report:?}");
                let salvaged = self.mended(path, forged);
                if is_whole {
                    assert_eq!(salvaged, had, "{report:?}");
                }
            }
            Err(error) => assert!(!is_whole, "{error}"),
        }
    }

    /// What a store has that was opened: items that are `right`.
    fn opened(
        &self,
        path: &Path,
        store: Store,
        forged: Forged,
        right: impl Fn(&Items) -> bool,
    ) -> Items {
        let items = self.items(&store, forged);
        let last = self.last(&items);
        assert!(
            forged > Forged::Nothing || right(&items),
            "{last:?} of {items:?}"
        );
        self.dies(path, &items, forged);
        self.is_whole_now(path, store, forged);
        items
    }

    /// Checks a store that was made whole, and that it stays so.
    fn is_whole_now(&self, path: &Path, store: Store, forged: Forged) {
        let mut report = store.verify(&|_| {});
        if self.may_be_elsewhere(forged) {
            // A key that two partitions have.
            report.view_damage.clear();
        }
        let is_clean = |file: &FileReport| file.state == ReportState::Clean;
        assert!(
            report.files.iter().all(is_clean) && report.view_damage.is_empty(),
            "{report:?}"
        );
        store.put("new", "item").unwrap();
        store.close().unwrap();
        let report = recover(path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(report.state, ReportState::Clean, "{report:?}");
    }
}

fn is_unchanged(path: &Path, files: &Files, who: &str) {
    let now = read(path);
    for (name, bytes) in files {
        assert!(now.get(name) == Some(bytes), "{who} has changed {name}");
    }
    assert!(
        now.keys().eq(files.keys()),
        "{who} has made {:?}",
        now.keys()
    );
}
