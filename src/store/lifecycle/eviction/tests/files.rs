//! What becomes of the files of items that have left.

use super::*;
use crate::index::fault_tests::faults::Failing;

/// A snapshot sees an old version whatever has become of the file with the new one, one key at a time or several.
#[test]
fn snapshot_sees_old_versions_beside_a_file_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let is_read = |call, path: &Path| call == Call::Read && path.to_string_lossy().contains(".sst");
    let faults = Failing::only(is_read, libc::EIO);
    let options = StoreOptions::new()
        .durability(Durability::None)
        .memory_budget(1 << 20)
        .faults(faults.clone());
    let store = Store::open(dir.path().join("store"), &options).unwrap();
    store.put("a", "old").unwrap();
    let snapshot = store.snapshot();
    store.put("a", "new").unwrap();
    evict(&store, |_| {});
    faults.cure(false);
    assert!(store.get(b"a").is_err());
    let old = Some(b"old".to_vec());
    assert_eq!(snapshot.get(b"a").unwrap(), old);
    assert_eq!(snapshot.multi_get(&["a"]).unwrap(), [old]);
    faults.cure(true);
    assert_eq!(store.get(b"a").unwrap(), Some(b"new".to_vec()));
}

/// A repair of a file of level 0 leaves it as old as it was.
#[test]
fn repaired_file_hides_no_newer_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let keys = numbered(200);
    let store = self::store(&dir);
    for value in [[1; 400], [2; 400]] {
        put_all(&store, &keys, &value);
        evict(&store, |_| {});
    }
    let files = store.state().store_dir.manifest().files;
    assert!(
        files.len() >= 2 && files.iter().all(|file| file.level == 0),
        "{files:?}"
    );
    let oldest = files.iter().min_by_key(|file| file.number).unwrap();
    let oldest = oldest.path(store.state().store_dir.spill());
    store.close().unwrap();
    let mut bytes = std::fs::read(&oldest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&oldest, bytes).unwrap();
    let report = recover(&path, Repair::Salvage, &|_| {}).unwrap();
    assert!(report.items_lost > 0);
    let store = self::store(&dir);
    for key in &keys {
        assert_eq!(store.get(key).unwrap(), Some(vec![2; 400]));
    }
}
