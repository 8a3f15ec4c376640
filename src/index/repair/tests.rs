use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::Index;
use crate::index::damage_tests::Home;
use crate::index::fault_tests::faults::TestDir;

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
