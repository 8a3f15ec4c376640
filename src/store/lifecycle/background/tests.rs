use crate::Domain;
use crate::index::fault_tests::faults::Failing;
use crate::pm::Call;
use crate::store::tests::options;
use crate::store::{Store, StoreOptions};

/// Each try takes a segment of the log, and each change calls the thread that tries.
#[test]
fn checkpoint_that_fails_again_and_again_takes_few_segments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let faults = Failing::only(
        |call, path| call == Call::Write && path.ends_with("index.gph"),
        libc::EIO,
    );
    let options: StoreOptions = options()
        .partitions(1)
        .domain(Domain::Checkpointed)
        .checkpoint_bytes(1)
        .faults(faults.clone());
    let store = Store::open(&path, &options).unwrap();
    let last_segment = || store.state().store_dir.manifest().last_segment;
    store.put("a", "0").unwrap();
    store.checkpoint().unwrap();
    let before = last_segment();
    faults.cure(false);
    let mut last = 0;
    // The thread may begin late.
    while last < 2000 || !faults.was_met() {
        last += 1;
        store.put("a", last.to_string()).unwrap();
    }
    let taken = last_segment() - before;
    assert!(taken < 20, "{taken} segments");
    faults.cure(true);
    // Long before the pause would have passed.
    store.checkpoint().unwrap();
    store.close().unwrap();
    let store = Store::open(&path, &StoreOptions::new()).unwrap();
    assert_eq!(
        store.get(b"a").unwrap(),
        Some(last.to_string().into_bytes())
    );
}
