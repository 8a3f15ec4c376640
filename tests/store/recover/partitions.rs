//! Partitions: recovered with their store, and not by themselves.

use super::*;

/// A closed store of three partitions, and what is in it.
fn partitioned(folder: &Path) -> (PathBuf, Model) {
    let path = folder.join("store");
    let store = Store::open(&path, &options().partitions(3)).unwrap();
    let mut model = Model::new();
    for key in 0..60u8 {
        store.put([key], [key; 100]).unwrap();
        model.insert(vec![key], vec![key; 100]);
    }
    store.close().unwrap();
    (path, model)
}

fn open_partitioned(path: &Path) -> Model {
    let store = Store::open(path, &options().partitions(3)).unwrap();
    let found = contents(&store);
    store.close().unwrap();
    found
}

pub fn remove_manifests(path: &Path) {
    for name in ["MANIFEST", "MANIFEST.2"] {
        fs::remove_file(path.join(name)).unwrap();
    }
}

/// The tool does nothing with a partition of a store, by whatever path, and says why.
fn assert_refused(store: &Path, paths: &[&Path]) {
    let before = files(store);
    for path in paths {
        for arguments in [&["--check"][..], &[], &["--salvage"]] {
            let (status, object) = tool(arguments, path);
            let told = object["error"].as_str().unwrap();
            assert!(
                told.contains("partition 1 of the store in the directory above"),
                "{object}"
            );
            assert_eq!((status, object["state"].as_str()), (2, Some("damaged")));
            assert!(files(store) == before, "{arguments:?} has changed a file");
        }
    }
}

#[test]
fn partition_without_manifests_is_salvaged_only_with_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = partitioned(folder.path());
    let partition = path.join("partition-001");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&partition, &link).unwrap();
    assert_refused(&path, &[&partition]);
    for name in ["MANIFEST", "MANIFEST.2"] {
        spoil_manifest(&partition, name);
    }
    assert_refused(&path, &[&partition, &partition.join("."), &link]);
    remove_manifests(&partition);
    assert_refused(&path, &[&partition, &link]);
    remove_manifests(&path);
    assert_refused(&path, &[&partition, &link]);
    tool(&["--salvage"], &path);
    assert_eq!(look(&path).0, 0);
    assert!(open_partitioned(&path) == model);
    // A store of its own that has such a name, and is in no store.
    let alone = folder.path().join("partition-001");
    let (made, model) = killed(folder.path(), Domain::Auto);
    fs::rename(made, &alone).unwrap();
    remove_manifests(&alone);
    tool(&["--salvage"], &alone);
    assert_eq!(look(&alone).0, 0);
    assert!(open(&alone) == model);
}

/// A partition was salvaged elsewhere, as a store of its own.
#[test]
fn partition_that_became_a_store_is_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = partitioned(folder.path());
    let (partition, alone) = (path.join("partition-001"), folder.path().join("alone"));
    fs::rename(&partition, &alone).unwrap();
    remove_manifests(&alone);
    tool(&["--salvage"], &alone);
    fs::rename(&alone, &partition).unwrap();
    assert_refused(&path, &[&partition]);
    for arguments in [&["--check"][..], &[]] {
        let before = files(&path);
        let (status, object) = tool(arguments, &path);
        assert_eq!((status, object["state"].as_str()), (2, Some("damaged")));
        assert!(files(&path) == before, "{arguments:?} has changed a file");
    }
    let (status, object) = tool(&["--salvage"], &path);
    assert_eq!((status, object["state"].as_str()), (2, Some("damaged")));
    let told = object["error"].as_str().unwrap();
    assert!(told.contains("made anew as partition 1 of 3"), "{object}");
    assert_eq!(look(&path).0, 0);
    assert!(open_partitioned(&path) == model);
}

/// Without the last partition and the first one's manifests only the other partitions say how many there were.
#[test]
fn partition_that_is_missing_is_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = partitioned(folder.path());
    let (last, aside) = (path.join("partition-002"), folder.path().join("aside"));
    fs::rename(&last, &aside).unwrap();
    remove_manifests(&path);
    let (status, object) = tool(&["--salvage"], &path);
    assert_eq!(status, 2);
    let told = object["error"].as_str().unwrap();
    assert!(told.contains("partition-002"), "{object}");
    assert!(told.contains("no other one has its keys"), "{object}");
    fs::rename(&aside, &last).unwrap();
    tool(&["--salvage"], &path);
    assert_eq!(look(&path).0, 0);
    assert!(open_partitioned(&path) == model);
}

/// What else is in the directory says nothing of how many partitions there are.
#[test]
fn files_with_names_of_partitions_are_in_no_salvages_way() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = partitioned(folder.path());
    fs::write(path.join("partition-200"), "stray").unwrap();
    assert_eq!(tool(&["--salvage"], &path).0, 0);
    remove_manifests(&path);
    tool(&["--salvage"], &path);
    assert_eq!(look(&path).0, 0);
    assert!(open_partitioned(&path) == model);
}
