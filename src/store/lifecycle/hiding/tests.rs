use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use gphash_test_support::{must_end, wait_for};

use super::*;
use crate::store::{Durability, Store, StoreOptions, WriteBatch};

const ITEMS: u32 = 9000;

/// A store at rest, whose thread of the index compacts files: that would take years.
fn compacting(dir: &tempfile::TempDir) -> Store {
    for nth in 0..60 {
        let store = with_hidden(&dir.path().join(format!("store-{nth}")));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let waits = store.stats().spill.compaction_rate_wait > Duration::ZERO;
            let state = &store.core().background.idle_files.compaction;
            if waits && !matches!(*state.lock(), FileCompaction::None) {
                return store;
            }
            sleep(Duration::from_millis(10));
        }
        // On a busy machine files may be due before the store rests, and wait for their rate.
    }
    panic!("no files are compacted at rest");
}

/// A store with much in its files that its table hides.
fn with_hidden(path: &Path) -> Store {
    let options = StoreOptions::new()
        .durability(Durability::None)
        .memory_budget(8 << 20)
        .checkpoint_bytes(4 << 20)
        .idle_compaction(Some(Duration::from_millis(50)))
        .compaction_rate(1);
    let store = Store::open(path, &options).unwrap();
    let change = |change: &dyn Fn(&mut WriteBatch, u32)| {
        for first in (0..ITEMS).step_by(500) {
            let mut batch = WriteBatch::new();
            (first..first + 500).for_each(|number| change(&mut batch, number));
            store.write(batch).unwrap();
        }
    };
    change(&|batch, number| batch.put(number.to_be_bytes(), [7; 3000]));
    change(&|batch, number| batch.delete(number.to_be_bytes()));
    store
}

#[test]
fn compaction_at_rest_does_not_keep_checkpoints_waiting() {
    let goes_on_at_its_rate = || {
        let dir = tempfile::tempdir().unwrap();
        let store = compacting(&dir);
        let checkpoints = || store.stats().latencies.checkpoint.count;
        let before = checkpoints();
        // Few operations are rest, too.
        wait_for("the log is long", || {
            store.put("a", vec![7; 1 << 20]).unwrap();
            store.stats().log_bytes > 5 << 20 || checkpoints() > before
        });
        wait_for("a checkpoint", || checkpoints() > before);
        assert_eq!(store.get(b"a").unwrap(), Some(vec![7; 1 << 20]));
        assert_eq!(store.get(&7u32.to_be_bytes()).unwrap(), None);
        // In the next rest.
        let waited = store.stats().spill.compaction_rate_wait;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if store.stats().spill.compaction_rate_wait > waited {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        false
    };
    // On a busy machine all may be compacted while a checkpoint waits for that, at full speed.
    assert!((0..20).any(|_| goes_on_at_its_rate()));
}

#[test]
fn closing_does_not_wait_for_compaction_at_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = compacting(&dir);
    must_end(move || store.close()).unwrap();
}
