use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::Index;
use crate::index::damage_tests::Home;
use crate::index::fault_tests::faults::TestDir;
use crate::layout::KeyHash;
use crate::pm::Medium;
use crate::width::to_usize;

#[test]
fn repair_is_parsed_from_its_text() {
    for repair in [Repair::Check, Repair::Recover, Repair::Salvage] {
        assert_eq!(repair.to_string().parse(), Ok(repair));
    }
    let error = "fix".parse::<Repair>().unwrap_err();
    let expected = "repair \"fix\"; expected check, recover or salvage";
    assert_eq!(error.to_string(), expected);
}

/// A process that died at its close has left a file that needs its journal, whichever write was the last.
#[test]
fn close_that_was_cut_short_is_recovered() {
    let dir = TestDir::all().into_iter().nth(1).unwrap();
    assert_eq!(dir.domain, Domain::Checkpointed);
    let (path, journal) = (dir.path(), dir.path().with_extension("journal"));
    let mut cut_short = 0;
    for writes in 0.. {
        let home = Arc::new(Home(AtomicU64::new(u64::MAX)));
        let options = dir.options(None).faults(home.clone());
        let index = Index::<u64, u64>::create(&path, &options).unwrap();
        index.insert_one(&3, &4).unwrap();
        // Without a name for its journal the file does not need it.
        index.sync().unwrap();
        index.insert_one(&4, &5).unwrap();
        home.0.store(writes, Ordering::Relaxed);
        if index.close().is_ok() {
            break;
        }
        let before = fs::read(&path).unwrap();
        assert!(journal.exists());
        let report = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(report.state, ReportState::NeedsRecovery, "{writes} writes");
        assert!(!report.was_repaired && fs::read(&path).unwrap() == before);
        let report = recover(&path, Repair::Recover, &|_| {}).unwrap();
        assert_eq!(report.state, ReportState::Recovered);
        assert!(report.was_repaired && !journal.exists());
        let report = recover(&path, Repair::Check, &|_| {}).unwrap();
        assert_eq!(
            (report.state, report.recovery.items),
            (ReportState::Clean, 2)
        );
        fs::remove_file(&path).unwrap();
        cut_short += 1;
    }
    assert!(cut_short > 3, "{cut_short}");
}

/// An index with an item in a further round of probes, after which no level was added, and its keys.
fn overflowed(dir: &TestDir) -> (Index<u64, u64>, Vec<u64>) {
    let mut keys: Vec<u64> = Vec::new();
    let index = Index::<u64, u64>::create(dir.path(), &dir.options(None)).unwrap();
    loop {
        let key = keys.len() as u64 + 2;
        index.insert_one(&key, &key).unwrap();
        keys.push(key);
        let top = index.table.levels.live().top;
        if (0..1 << top).any(|bucket| index.table.overflow.is_set(top, bucket)) {
            return (index, keys);
        }
    }
}

/// Closes an index, and clears its overflow maps.
fn lose_overflow_maps(index: Index<u64, u64>) {
    let (levels, shape) = (index.table.levels.live(), index.table.shape);
    let offset = |level| shape.overflow_word(index.table.levels.offset(level), level, 0);
    let map = |level| (offset(level), to_usize(shape.overflow_len(level)));
    let maps: Vec<_> = (levels.bottom..=levels.top).map(map).collect();
    let path = index.table.path().to_path_buf();
    index.close().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    for (at, len) in maps {
        file.write_all_at(&vec![0; len], at).unwrap();
    }
}

/// Items whose home buckets had no slot are found by bits of the overflow maps alone. A salvage makes these anew; of a key
/// that was put once more meanwhile the newer item stays.
#[test]
fn lost_overflow_maps_cost_no_items() {
    let dir = TestDir::all().into_iter().next().unwrap();
    let (path, options) = (dir.path(), dir.options(None));
    let (index, keys) = overflowed(&dir);
    lose_overflow_maps(index);
    let index = Index::<u64, u64>::open(&path, &options).unwrap();
    let is_hidden = |key: &&u64| index.get_one(key).unwrap().is_none();
    let hidden = *keys.iter().find(is_hidden).unwrap();
    // Its home buckets get a free slot, which the newer item takes.
    let target = index.table.target(bytemuck::bytes_of(&hidden));
    let top = index.table.levels.live().top;
    let home = KeyHash::bucket(target.hash.location(0), top);
    let at = index.table.levels.offset(top) + home * index.table.shape.bucket_size;
    let given_up = index
        .table
        .medium
        .load(index.table.shape.slot_addr(at, 0).state);
    index.remove_one(&given_up).unwrap();
    let newer = u64::MAX - 9;
    index.upsert_one(&hidden, &newer).unwrap();
    assert!(!index.table.overflow.is_any_set());
    lose_overflow_maps(index);
    let report = recover(&path, Repair::Check, &|_| {}).unwrap();
    assert_eq!(report.state, ReportState::Damaged);
    let report = recover(&path, Repair::Salvage, &|_| {}).unwrap();
    let left = keys.iter().filter(|key| **key != given_up);
    assert_eq!(report.recovery.items_lost, 0);
    assert_eq!(report.recovery.items, left.clone().count() as u64);
    let index = Index::<u64, u64>::open(&path, &options).unwrap();
    for key in left {
        let expected = if *key == hidden { newer } else { *key };
        assert_eq!(index.get_one(key).unwrap(), Some(expected));
    }
    index.remove_one(&hidden).unwrap();
    assert_eq!(index.get_one(&hidden).unwrap(), None);
    index.close().unwrap();
    let report = recover(&path, Repair::Check, &|_| {}).unwrap();
    assert_eq!(report.state, ReportState::Clean);
}
