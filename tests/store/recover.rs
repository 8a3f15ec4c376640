//! `gphash-recover` on directories of stores: what it says, how it ends, and what it leaves.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gphash::store::{Durability, Store, StoreOptions, WriteBatch};
use gphash::{Domain, Error, ReportState};
use serde_json::Value;

use super::append;
use super::model::{Model, contents};
use super::place::{copy, files, folders};

fn options() -> StoreOptions {
    StoreOptions::new()
        .capacity(16)
        .durability(Durability::Always)
        .segment_bytes(4096)
        .checkpoint_bytes(u64::MAX)
        .merge_operator(append())
}

/// Runs the tool with `--json` and once more without; gives exit status and object.
fn tool(arguments: &[&str], path: &Path) -> (i32, Value) {
    let run = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_gphash-recover"))
            .args(more)
            .args(arguments)
            .arg(path)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text, errors)
    };
    if arguments == ["--check"] {
        let (status, text, errors) = run(&[]);
        let (again, quiet, _) = run(&["--quiet"]);
        assert_eq!((again, &quiet[..]), (status, ""));
        assert!(
            text.contains("index.gph") || status == 2 && !errors.is_empty(),
            "{text}{errors}"
        );
    }
    let (status, text, errors) = run(&["--json"]);
    assert_eq!(errors, "");
    (status, serde_json::from_str(&text).expect(&text))
}

fn look(path: &Path) -> (i32, Value) {
    let before = files(path);
    let answer = tool(&["--check"], path);
    assert!(files(path) == before, "a look has changed a file");
    answer
}

/// The state of a file in the report.
fn state_of<'o>(object: &'o Value, name: &str) -> &'o str {
    let files = object["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["name"] == name);
    file.unwrap_or_else(|| panic!("no {name} in {object}"))["state"]
        .as_str()
        .unwrap()
}

/// A store with several segments of log that was not closed, and what is in it.
fn killed(folder: &Path, domain: Domain) -> (PathBuf, Model) {
    let path = folder.join("open");
    let store = Store::open(&path, &options().domain(domain)).unwrap();
    let mut model = Model::new();
    for nth in 0..12u8 {
        store.put([b'k', nth], vec![nth; 900]).unwrap();
        model.insert(vec![b'k', nth], vec![nth; 900]);
    }
    store.merge("merged", "a").unwrap();
    model.insert(b"merged".to_vec(), b"a".to_vec());
    let left = folder.join("left");
    copy(&path, &left);
    drop(store);
    fs::remove_dir_all(&path).unwrap();
    (left, model)
}

fn open(path: &Path) -> Model {
    let store = Store::open(path, &options()).unwrap();
    let found = contents(&store);
    store.close().unwrap();
    found
}

#[test]
fn a_store_is_looked_at_and_mended() {
    for folder in folders() {
        let (path, model) = killed(folder.path(), Domain::Auto);
        let (status, object) = look(&path);
        assert_eq!(
            (status, object["state"].as_str()),
            (1, Some("needs_recovery")),
            "{object}"
        );
        assert_eq!(object["log_records"], 13);
        assert_eq!(state_of(&object, "MANIFEST"), "clean");
        assert_eq!(state_of(&object, "wal/000000000001.log"), "needs_recovery");
        let (status, object) = tool(&[], &path);
        assert_eq!(
            (status, object["state"].as_str()),
            (0, Some("recovered")),
            "{object}"
        );
        assert_eq!(object["items"], 13);
        assert_eq!(object["log_records"], 13);
        assert_eq!(object["key_size"], 0);
        assert_eq!(state_of(&object, "wal/000000000001.log"), "recovered");
        let (status, object) = look(&path);
        assert_eq!(
            (status, object["state"].as_str()),
            (0, Some("clean")),
            "{object}"
        );
        assert_eq!(object["items"], 13);
        assert!(open(&path) == model);
    }
}

#[test]
fn a_store_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &options()).unwrap();
    for arguments in [&["--check"][..], &[], &["--salvage"]] {
        let (status, object) = tool(arguments, folder.path());
        assert_eq!((status, object["state"].as_str()), (2, Some("error")));
        assert!(
            object["error"].as_str().unwrap().contains("in use"),
            "{object}"
        );
    }
    store.close().unwrap();
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(look(path).0, 2);
    assert_eq!(tool(&[], path).0, 2);
    assert!(files(path).is_empty());
    fs::write(path.join("letter.txt"), "Dear").unwrap();
    let (status, object) = look(path);
    assert_eq!(
        (status, object["state"].as_str()),
        (2, Some("error")),
        "{object}"
    );
    assert_eq!(tool(&["--salvage"], path).0, 2);
    assert_eq!(files(path).len(), 1);
    // Only looking, or throwing something away.
    let refused = Command::new(env!("CARGO_BIN_EXE_gphash-recover"))
        .args(["--check", "--salvage"])
        .arg(path)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_damaged_log_is_salvaged_only_if_that_is_asked_for() {
    for folder in folders() {
        let (path, model) = killed(folder.path(), Domain::Auto);
        let name = "wal/000000000002.log";
        let log = path.join(name);
        let mut bytes = fs::read(&log).unwrap();
        bytes[64 + 48 + 100] ^= 1; // the first record of the segment
        fs::write(&log, &bytes).unwrap();
        let (status, object) = look(&path);
        assert_eq!(
            (status, object["state"].as_str()),
            (2, Some("damaged")),
            "{object}"
        );
        assert_eq!(state_of(&object, "wal/000000000001.log"), "needs_recovery");
        assert_eq!(state_of(&object, name), "damaged");
        assert!(object["error"].as_str().unwrap().contains(name), "{object}");
        let before = files(&path);
        let (status, object) = tool(&[], &path);
        assert_eq!(
            (status, object["state"].as_str()),
            (2, Some("damaged")),
            "{object}"
        );
        assert!(files(&path) == before, "a refusal has changed a file");
        assert!(Store::open(&path, &options()).is_err());
        let (status, object) = tool(&["--salvage"], &path);
        assert_eq!(
            (status, object["state"].as_str()),
            (2, Some("damaged")),
            "{object}"
        );
        assert_eq!(look(&path).0, 0);
        let found = open(&path);
        assert!(found.iter().all(|item| model.get(item.0) == Some(item.1)));
        // In memory the index has them all. On a disk it has nothing since its checkpoint.
        let kept = found.len();
        assert!((4..=13).contains(&kept), "{kept}");
    }
}

#[test]
fn missing_and_damaged_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, model) = killed(folder.path(), Domain::Checkpointed);
    let path = folder.path().join("spoilt");
    let again = || {
        if path.exists() {
            fs::remove_dir_all(&path).unwrap();
        }
        copy(&whole, &path);
    };
    // A segment in the middle.
    again();
    let name = "wal/000000000002.log";
    fs::remove_file(path.join(name)).unwrap();
    let (status, object) = look(&path);
    assert_eq!(status, 2);
    assert_eq!(state_of(&object, name), "damaged");
    assert_eq!(tool(&["--salvage"], &path).0, 2);
    assert_eq!(look(&path).0, 0);
    assert!(open(&path).len() < model.len());
    // The index.
    again();
    fs::remove_file(path.join("index.gph")).unwrap();
    for arguments in [&["--check"][..], &[], &["--salvage"]] {
        let (status, object) = tool(arguments, &path);
        assert_eq!(status, 2);
        assert_eq!(state_of(&object, "index.gph"), "damaged");
        assert_eq!(state_of(&object, name), "needs_recovery");
    }
    again();
    fs::write(path.join("index.gph"), b"not an index").unwrap();
    let (status, object) = look(&path);
    assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
    // The manifest.
    again();
    let mut bytes = fs::read(path.join("MANIFEST")).unwrap();
    bytes[40] ^= 1;
    fs::write(path.join("MANIFEST"), &bytes).unwrap();
    for arguments in [&["--check"][..], &[], &["--salvage"]] {
        let (status, object) = tool(arguments, &path);
        assert_eq!((status, object["state"].as_str()), (2, Some("damaged")));
    }
    again();
    fs::remove_file(path.join("MANIFEST")).unwrap();
    let (status, object) = look(&path);
    assert_eq!(
        (status, object["state"].as_str()),
        (2, Some("damaged")),
        "{object}"
    );
    // None of that was the directory's fault.
    again();
    assert_eq!(tool(&[], &path).0, 0);
    assert!(open(&path) == model);
}

#[test]
fn an_index_is_mended_and_what_the_log_has_comes_back() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return println!("skipped: no /dev/shm");
    }
    let folder = tempfile::tempdir_in(memory).unwrap();
    let (path, model) = killed(folder.path(), Domain::Shared);
    let index = path.join("index.gph");
    let mut bytes = fs::read(&index).unwrap();
    let value = [5; 900];
    let at = bytes.windows(900).position(|bytes| bytes == value).unwrap();
    bytes[at] ^= 1;
    fs::write(&index, &bytes).unwrap();
    let (status, object) = look(&path);
    assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
    let (status, object) = tool(&[], &path);
    assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
    assert_eq!(object["items"], 13);
    assert_eq!(look(&path).0, 0);
    assert!(open(&path) == model);
}

/// A closed store of which most items have left the index, what is in it, and its sorted files.
fn spilled(folder: &Path) -> (PathBuf, Model, Vec<String>) {
    let path = folder.join("store");
    let options = options().durability(Durability::None);
    let budget = StoreOptions::MIN_BUDGET;
    let store = Store::open(&path, &options.memory_budget(budget)).unwrap();
    let mut model = Model::new();
    for numbers in (0..6000u32).collect::<Vec<_>>().chunks(200) {
        let mut batch = WriteBatch::new();
        for number in numbers {
            let key = number.wrapping_mul(0x9E37_79B9).to_be_bytes().to_vec();
            batch.put(key.clone(), vec![*number as u8; 100]);
            model.insert(key, vec![*number as u8; 100]);
        }
        store.write(batch).unwrap();
    }
    store.close().unwrap();
    let (status, object) = look(&path);
    assert_eq!(status, 0, "{object}");
    let files = object["files"].as_array().unwrap().iter();
    let names = files.map(|file| file["name"].as_str().unwrap().to_owned());
    let names: Vec<_> = names.filter(|name| name.starts_with("sst/")).collect();
    assert!(names.len() > 1, "{object}");
    (path, model, names)
}

#[test]
fn damaged_sorted_files_are_named_and_saved_only_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model, names) = spilled(folder.path());
    let sst = path.join(&names[0]);
    let mut bytes = fs::read(&sst).unwrap();
    // In the first block, however short the file is.
    bytes[80] ^= 1;
    fs::write(&sst, bytes).unwrap();
    for arguments in [&["--check"][..], &[]] {
        let before = files(&path);
        let (status, object) = tool(arguments, &path);
        assert_eq!(status, 2, "{object}");
        assert_eq!(state_of(&object, &names[0]), "damaged");
        assert_eq!(state_of(&object, &names[1]), "clean");
        assert!(files(&path) == before, "{arguments:?} has changed a file");
    }
    // What is whole can be read; the others are errors.
    let store = Store::open(&path, &options()).unwrap();
    let mut unreadable = BTreeSet::new();
    for (key, value) in &model {
        match store.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value)),
            Err(error) => {
                assert!(matches!(error, Error::Damaged { .. }), "{error}");
                unreadable.insert(key);
            }
        }
    }
    let count = unreadable.len();
    assert!((1..200).contains(&count), "{count} items cannot be read");
    assert_eq!(store.verify(&|_| {}).state, ReportState::Damaged);
    store.close().unwrap();
    let (_, object) = tool(&["--salvage"], &path);
    assert_eq!(state_of(&object, &names[0]), "damaged", "{object}");
    let (status, object) = look(&path);
    assert_eq!(status, 0, "{object}");
    let found = open(&path);
    assert!(found.len() < model.len());
    // Of some the filter had said that the block may have them, and another file has them.
    let is_lost = |key: &&Vec<u8>| !found.contains_key(*key);
    assert!(
        model
            .keys()
            .filter(is_lost)
            .all(|key| unreadable.contains(key))
    );
    assert!(found.iter().all(|(key, value)| model[key] == *value));
}

#[test]
fn a_sorted_file_that_is_missing_is_given_up_only_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model, names) = spilled(folder.path());
    fs::remove_file(path.join(&names[0])).unwrap();
    let error = Store::open(&path, &options()).err().unwrap();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    for arguments in [&["--check"][..], &[]] {
        let (status, object) = tool(arguments, &path);
        assert_eq!(status, 2, "{object}");
        assert_eq!(state_of(&object, &names[0]), "damaged");
    }
    tool(&["--salvage"], &path);
    let (status, object) = look(&path);
    assert_eq!(status, 0, "{object}");
    let found = open(&path);
    assert!(!found.is_empty() && found.len() < model.len());
    assert!(found.iter().all(|(key, value)| model[key] == *value));
}
