//! Salvages of stores without manifests whose files have damaged headers, and of files of different times.

use super::partitions::remove_manifests;
use super::*;

/// Flips a bit of the checksum, or of what it covers, in the first bytes of a file.
fn spoil_header(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[20] ^= 4;
    fs::write(path, &bytes).unwrap();
}

/// What is said of a file, or of a kind of files.
fn damage(object: &Value) -> String {
    let files = object["files"].as_array().unwrap().iter();
    let lines = files.flat_map(|file| file["damage"].as_array().unwrap());
    lines
        .map(|line| line.as_str().unwrap().to_owned() + "\n")
        .collect()
}

#[test]
fn older_log_takes_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    let (older, model) = killed(folder.path(), Domain::Checkpointed);
    let path = folder.path().join("newer");
    copy(&older, &path);
    let store = Store::open(&path, &options()).unwrap();
    let newer: Model = model
        .keys()
        .map(|key| (key.clone(), b"newer".to_vec()))
        .collect();
    for (key, value) in &newer {
        store.put(&key[..], &value[..]).unwrap();
    }
    store.close().unwrap();
    for name in ["MANIFEST", "MANIFEST.2"] {
        fs::copy(older.join(name), path.join(name)).unwrap();
    }
    for name in ["wal", "sst"] {
        fs::remove_dir_all(path.join(name)).unwrap();
        copy(&older.join(name), &path.join(name));
    }
    assert!(Store::open(&path, &options()).is_err());
    let (_, object) = tool(&["--salvage"], &path);
    assert_eq!(object["items_lost"], 0, "{object}");
    assert!(open(&path) == newer);
    assert_eq!(look(&path).0, 0);
}

#[test]
fn segment_with_a_damaged_header_is_named_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = killed(folder.path(), Domain::Checkpointed);
    remove_manifests(&path);
    let names = fs::read_dir(path.join("wal")).unwrap();
    let mut logs: Vec<PathBuf> = names.map(|name| name.unwrap().path()).collect();
    logs.sort();
    // One may be there that was about to be made, which has no header yet.
    let has_header = |log: &&PathBuf| fs::read(log).unwrap()[..64].iter().any(|byte| *byte != 0);
    let last = logs.iter().rfind(has_header).unwrap();
    spoil_header(last);
    let spoilt = fs::read(last).unwrap();
    let (_, object) = tool(&["--salvage"], &path);
    let name = last.file_name().unwrap().to_str().unwrap();
    let number: u64 = name.strip_suffix(".log").unwrap().parse().unwrap();
    let told = format!("segment {number} is not used: its header is damaged");
    assert!(damage(&object).contains(&told), "{object}");
    assert!(fs::read(last.with_extension("log.damaged")).unwrap() == spoilt);
    let found = open(&path);
    assert!(found.len() < model.len());
    assert!(found.iter().all(|(key, value)| model[key] == *value));
    assert_eq!(look(&path).0, 0);
}

#[test]
fn sst_with_a_damaged_header_is_put_together_with_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model, names) = spilled(folder.path());
    remove_manifests(&path);
    spoil_header(&path.join(&names[0]));
    let (_, object) = tool(&["--salvage"], &path);
    assert!(damage(&object).contains("has a damaged header"), "{object}");
    assert!(
        damage(&object).contains("beside 0 that are not whole"),
        "{object}"
    );
    assert!(open(&path) == model);
}

/// A crash between the two copies leaves that, which is no error.
#[test]
fn copy_of_the_manifest_that_is_behind_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = killed(folder.path(), Domain::Checkpointed);
    let before = fs::read(path.join("MANIFEST.2")).unwrap();
    assert!(open(&path) == model);
    fs::write(path.join("MANIFEST.2"), before).unwrap();
    for (arguments, expected) in [
        (&["--check"][..], (1, "needs_recovery")),
        (&[], (0, "recovered")),
    ] {
        let (status, object) = tool(arguments, &path);
        assert_eq!((status, object["state"].as_str().unwrap()), expected);
        assert!(object.get("error").is_none(), "{object}");
        assert_eq!(damage(&object), "");
    }
    assert!(open(&path) == model);
}

#[test]
fn keys_whose_values_in_sorted_files_are_lost_are_named() {
    for newer in [None, Some(Some("newer")), Some(None)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let evicting = options().durability(Durability::None);
        let evicting = evicting.memory_budget(StoreOptions::MIN_BUDGET);
        let store = Store::open(&path, &evicting).unwrap();
        for number in 0..200u8 {
            store.put([number], vec![number; 20_000]).unwrap();
        }
        store.close().unwrap();
        let names = fs::read_dir(path.join("sst")).unwrap();
        let mut paths = names.map(|name| name.unwrap().path());
        let is_values = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "val");
        let values = paths.find(is_values).unwrap();
        let mut bytes = fs::read(&values).unwrap();
        let middle = bytes.len() / 2;
        let spoilt = bytes[middle];
        // Of a key that has something newer in the index nothing is lost.
        let store = Store::open(&path, &options()).unwrap();
        match newer {
            None => {}
            Some(Some(value)) => store.put([spoilt], value).unwrap(),
            Some(None) => store.delete([spoilt]).unwrap(),
        }
        store.close().unwrap();
        assert!(fs::read(&values).unwrap() == bytes);
        bytes[middle] ^= 1;
        fs::write(&values, bytes).unwrap();
        let (_, object) = tool(&["--salvage"], &path);
        let is_lost = newer.is_none();
        assert_eq!(object["items_lost"], u64::from(is_lost), "{object}");
        assert_eq!(object["items_reverted"], 0, "{object}");
        let named = object["keys_lost"].as_array().unwrap().iter();
        let named: Vec<_> = named.map(|key| key.as_str().unwrap().to_owned()).collect();
        let expected = is_lost.then(|| format!("{spoilt:02x}"));
        assert_eq!(named, expected.into_iter().collect::<Vec<_>>());
        let store = Store::open(&path, &options()).unwrap();
        for number in 0..200u8 {
            let expected = match number == spoilt {
                true => newer.flatten().map(Vec::from),
                false => Some(vec![number; 20_000]),
            };
            assert!(store.get(&[number]).unwrap() == expected);
        }
    }
}
