//! `--compact`, and what it reports.

use super::*;

/// The tool knows neither merge operator nor partitioner, and gives room back all the same. A store that has lost their names
/// stays without.
#[test]
fn compaction_needs_no_merge_operator() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut model = Model::new();
    let store = Store::open(&path, &options()).unwrap();
    for key in 0..200u8 {
        store.merge([key], b"x".repeat(100)).unwrap();
        model.insert(vec![key], b"x".repeat(100));
    }
    drop(store);
    let (status, found) = tool(&["--compact"], &path);
    assert_eq!((status, &found["items"]), (0, &200.into()));
    for manifest in ["MANIFEST", "MANIFEST.2"] {
        fs::remove_file(path.join(manifest)).unwrap();
    }
    tool(&["--salvage"], &path);
    assert!(path.join("MANIFEST").exists());
    assert_eq!(tool(&["--compact"], &path).0, 0);
    let store = Store::open(&path, &options()).unwrap();
    assert!(contents(&store) == model);
    store.put("more", "").unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    // Now it has the name again.
    let other = Store::open(&path, &StoreOptions::new());
    assert!(matches!(other, Err(Error::OptionMismatch { .. })));
    assert_eq!(tool(&["--compact"], &path).0, 0);
    let none = gphash::store::compact(dir.path().join("none"), &|_| {});
    assert!(matches!(none, Err(Error::Missing { .. })), "{none:?}");
    assert!(!dir.path().join("none").exists());
}

/// Bytes that a file or the files below a directory have on their disk.
fn room_taken_by(path: &Path) -> u64 {
    match path.is_dir() {
        true => room_taken(path),
        false => fs::metadata(path).unwrap().blocks() * 512,
    }
}

/// A closed index of which most items were removed.
fn emptied_index(path: &Path) {
    let index = Index::<u64, u64>::create(path, &Options::new()).unwrap();
    let keys: Vec<u64> = (0..60_000).collect();
    index.insert(&keys, &keys).unwrap();
    index.remove(&keys[100..]).unwrap();
    index.close().unwrap();
}

#[test]
fn compaction_reports_what_it_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let (file, again) = (dir.path().join("index"), dir.path().join("again"));
    emptied_index(&file);
    fs::copy(&file, &again).unwrap();
    let (store, ..) = spilled(dir.path());
    for path in [&file, &store] {
        let (_, before) = tool(&["--check"], path);
        let bytes = room_taken_by(path);
        let (status, object) = tool(&["--compact"], path);
        assert_eq!((status, object["state"].as_str()), (0, Some("clean")));
        let freed = bytes - room_taken_by(path);
        assert!(freed > 0, "{object}");
        assert_eq!(object["bytes_freed"], freed, "{object}");
        let (_, after) = tool(&["--check"], path);
        assert_eq!(after.get("bytes_freed"), None);
        for field in ["levels", "capacity", "load_factor", "files"] {
            assert_eq!(object.get(field), after.get(field), "{field}");
        }
        let changed = if path == &file { "capacity" } else { "files" };
        assert_ne!(before.get(changed), after.get(changed));
    }
    let (status, text, _) = run(&["--compact"], &again);
    assert!(status == 0 && text.contains("bytes freed"), "{text}");
}

#[test]
fn compaction_that_fails_keeps_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    emptied_index(&path);
    // One who reads beside a recovery that finds nothing to do.
    let reader = fs::File::open(&path).unwrap();
    reader.lock_shared().unwrap();
    let (status, object) = tool(&["--compact"], &path);
    assert_eq!((status, object["state"].as_str()), (2, Some("clean")));
    assert_eq!(object["items"], 100);
    let told = object["error"].as_str().unwrap();
    assert!(
        told.starts_with("not compacted: ") && told.contains("in use"),
        "{told}"
    );
    let (status, text, errors) = run(&["--compact"], &path);
    assert_eq!(status, 2);
    assert!(
        text.contains("100 of") && !text.contains("bytes freed"),
        "{text}"
    );
    assert!(errors.contains("not compacted: "), "{errors}");
}
