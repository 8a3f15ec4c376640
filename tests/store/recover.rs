//! `gphash-recover` on directories of stores: what it says, how it ends, and what it leaves.

mod compaction;
mod formats;
mod headers;
mod partitions;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io, iter};

use gphash::pm::{Call, Faults};
use gphash::store::{Durability, Store, StoreOptions, WriteBatch};
use gphash::{Domain, Error, Index, Options, ReportState};
use gphash_block::frame::{self, BLOCK_HEADER};
use gphash_recover::Arguments;
use gphash_recover::clap::Parser;
use serde_json::Value;

use super::append;
use super::disk::{copy, files, folders, room_taken};
use super::model::{Model, contents};

fn options() -> StoreOptions {
    crate::options()
        .partitions(1)
        .capacity(16)
        .durability(Durability::Always)
        .segment_bytes(4096)
        .checkpoint_bytes(u64::MAX)
        .merge_operator(append())
}

/// Runs the tool; gives exit status, standard output and standard error.
fn run(arguments: &[&str], path: &Path) -> (u8, String, String) {
    let given = arguments.iter().map(OsStr::new);
    let given = iter::once(OsStr::new("gphash-recover")).chain(given);
    let given = Arguments::try_parse_from(given.chain([path.as_os_str()])).unwrap();
    let (mut text, mut errors) = (Vec::new(), Vec::new());
    let status = gphash_recover::run(&given, &mut text, &mut errors);
    let text = String::from_utf8(text).unwrap();
    (status, text, String::from_utf8(errors).unwrap())
}

/// Runs the tool with `--json`, and a check once more without; gives exit status and object.
fn tool(arguments: &[&str], path: &Path) -> (u8, Value) {
    let run = |more: &[&str]| run(&[more, arguments].concat(), path);
    if arguments == ["--check"] {
        let (status, text, errors) = run(&[]);
        let (again, quiet, _) = run(&["--quiet"]);
        assert_eq!((again, &quiet[..]), (status, ""));
        assert!(
            text.contains("index.gph") || path.is_file() || status == 2 && !errors.is_empty(),
            "{text}{errors}"
        );
    }
    let (status, text, errors) = run(&["--json"]);
    assert_eq!(errors, "");
    (status, serde_json::from_str(&text).expect(&text))
}

fn look(path: &Path) -> (u8, Value) {
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
fn index_of_a_store_is_not_salvaged_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = killed(folder.path(), Domain::Auto);
    let index = path.join("index.gph");
    let before = files(&path);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&index, &link).unwrap();
    for named in [&index, &link] {
        let (status, _, errors) = run(&["--salvage"], named);
        assert_eq!(status, 2);
        assert!(errors.contains("the directory of the store"), "{errors}");
    }
    assert!(files(&path) == before, "a file was changed");
    let (status, object) = tool(&["--check"], &index);
    assert_eq!(status, 1, "{object}");
    assert_eq!(tool(&["--salvage"], &path).0, 0);
    assert_eq!(open(&path), model);
}

#[test]
fn store_is_checked_and_repaired() {
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
fn store_in_use_is_left_alone() {
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
fn dir_that_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let refused = || {
        for arguments in [&["--check"][..], &[], &["--salvage"]] {
            let (status, object) = tool(arguments, path);
            let told = object["error"].as_str().unwrap();
            assert!(told.contains("not a gphash store"), "{object}");
            assert!(!told.contains("new store"), "{object}");
            assert_eq!((status, object["state"].as_str()), (2, Some("error")));
        }
    };
    refused();
    assert!(files(path).is_empty());
    fs::write(path.join("letter.txt"), "Dear").unwrap();
    refused();
    assert_eq!(files(path).len(), 1);
    // Only looking, or throwing something away.
    let both = ["gphash-recover", "--check", "--salvage", "store"];
    assert!(Arguments::try_parse_from(both).is_err());
}

#[test]
fn log_damage_is_salvaged_only_on_request() {
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

fn spoil_manifest(path: &Path, name: &str) {
    let mut bytes = fs::read(path.join(name)).unwrap();
    bytes[40] ^= 1;
    fs::write(path.join(name), &bytes).unwrap();
}

#[test]
fn files_missing_or_damaged_are_named() {
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
    for arguments in [&["--check"][..], &[]] {
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
    let names = ["MANIFEST", "MANIFEST.2"];
    for name in names {
        again();
        spoil_manifest(&path, name);
        let (status, object) = look(&path);
        assert_eq!((status, state_of(&object, name)), (1, "needs_recovery"));
        let (status, object) = tool(&[], &path);
        assert_eq!((status, state_of(&object, name)), (0, "recovered"));
        assert_eq!(look(&path).0, 0);
        assert!(open(&path) == model);
    }
    again();
    for name in names {
        spoil_manifest(&path, name);
    }
    for arguments in [&["--check"][..], &[]] {
        let (status, object) = tool(arguments, &path);
        assert_eq!((status, object["state"].as_str()), (2, Some("damaged")));
    }
    again();
    for name in names {
        fs::remove_file(path.join(name)).unwrap();
    }
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
fn index_is_repaired_and_refilled_from_the_log() {
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
    assert_eq!(object["keys_lost"], serde_json::json!(["6b05"]));
    // A check does not search the log for them.
    let (_, text, _) = run(&["--check"], &path);
    assert!(text.contains("  damaged index items  1\n"), "{text}");
    assert!(text.contains("  damaged key          6b05\n"), "{text}");
    let before = files(&path);
    let (status, object) = tool(&[], &path);
    assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
    assert!(files(&path) == before, "a refusal has changed a file");
    let (status, object) = tool(&["--salvage"], &path);
    assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
    // The log has it.
    assert_eq!(
        (&object["items_lost"], &object["items_reverted"]),
        (&0.into(), &0.into())
    );
    assert_eq!(object["items"], 13);
    assert_eq!(look(&path).0, 0);
    assert!(open(&path) == model);
}

/// Lets no page get home to the index, once it is told to; its journal is written all the same.
#[derive(Debug, Default)]
struct Away(AtomicBool);

impl Faults for Away {
    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_page = call == Call::Write && path.ends_with("index.gph");
        match is_page && self.0.load(Ordering::Relaxed) {
            true => Err(io::Error::other("kept away")),
            false => Ok(()),
        }
    }
}

/// The process died while a checkpoint of the index came home, and the journal is gone, or damaged. The log
/// has all that was changed since the checkpoint before.
#[test]
fn index_without_its_journal_is_kept() {
    const PAGE: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let away = Arc::new(Away::default());
    let on = options().domain(Domain::Checkpointed).capacity(400);
    let store = Store::open(&live, &on.faults(away.clone())).unwrap();
    let mut model = Model::new();
    let mut put = |numbers: std::ops::Range<u32>, length: usize| {
        for number in numbers {
            let (key, value) = (number.to_be_bytes(), vec![number.to_le_bytes()[0]; length]);
            store.put(key, value.clone()).unwrap();
            model.insert(key.to_vec(), value);
        }
    };
    put(0..300, 40);
    store.checkpoint().unwrap();
    put(250..350, 30);
    for number in 0..20u32 {
        store.delete(number.to_be_bytes()).unwrap();
        model.remove(&number.to_be_bytes()[..]);
    }
    away.0.store(true, Ordering::Relaxed);
    store.checkpoint().unwrap_err();
    let left = folder.path().join("left");
    copy(&live, &left);
    let before = fs::read(live.join("index.gph")).unwrap();
    away.0.store(false, Ordering::Relaxed);
    store.checkpoint().unwrap();
    let after = fs::read(live.join("index.gph")).unwrap();
    store.close().unwrap();
    let journal = fs::read(left.join("index.gph.journal")).unwrap();
    let mut spoilt = journal.clone();
    spoilt[journal.len() / 2] ^= 1;
    let path = folder.path().join("work");
    let mut mixtures = BTreeSet::new();
    for nth in 0..24 {
        let _ = fs::remove_dir_all(&path);
        copy(&left, &path);
        let mut home = before.clone();
        // The superblocks come first.
        let is_home = |page: usize| page < 2 || (page * 7 + nth) % 5 < nth % 6;
        for page in (0..home.len() / PAGE).filter(|page| is_home(*page)) {
            home[page * PAGE..][..PAGE].copy_from_slice(&after[page * PAGE..][..PAGE]);
        }
        mixtures.insert(home.clone());
        fs::write(path.join("index.gph"), &home).unwrap();
        match nth % 2 {
            0 => fs::remove_file(path.join("index.gph.journal")).unwrap(),
            _ => fs::write(path.join("index.gph.journal"), &spoilt).unwrap(),
        }
        assert!(Store::open(&path, &options()).is_err());
        let (status, object) = look(&path);
        assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
        let refused = files(&path);
        let (status, object) = tool(&[], &path);
        assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
        assert!(files(&path) == refused, "a refusal has changed a file");
        let (status, object) = tool(&["--salvage"], &path);
        assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
        let told = object["error"].as_str().unwrap();
        assert!(told.contains("journal: it"), "{object}");
        assert!(!told.contains("made anew"), "{object}");
        let kept = fs::read(path.join("index.gph.journal.damaged")).ok();
        assert_eq!(kept.is_some(), nth % 2 == 1);
        assert_eq!(look(&path).0, 0);
        assert!(open(&path) == model, "mixture {nth}");
    }
    assert!(mixtures.len() > 10, "{}", mixtures.len());
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
            batch.put(key.clone(), vec![number.to_le_bytes()[0]; 100]);
            model.insert(key, vec![number.to_le_bytes()[0]; 100]);
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
fn sst_damage_is_named_and_salvaged_only_on_request() {
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

/// The store would go on with sequence numbers that its manifest may not have.
#[test]
fn sst_whose_sequence_numbers_cannot_be_counted_up_is_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut model, names) = spilled(folder.path());
    let sst = path.join(&names[0]);
    let mut bytes = fs::read(&sst).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let footer = bytes.len() - 40;
    let (checksum, at) = (word(40), word(footer + 16));
    let seed = !checksum.wrapping_add(at);
    let properties = usize::try_from(at).unwrap()..footer;
    let mut content = bytes[properties.clone()][BLOCK_HEADER..].to_vec();
    content[24..32].copy_from_slice(&(1_u64 << 62).to_le_bytes());
    let mut block = Vec::new();
    frame::write(&content, seed, &mut block);
    bytes[properties].copy_from_slice(&block);
    fs::write(&sst, bytes).unwrap();
    let (status, object) = look(&path);
    assert_eq!((status, state_of(&object, &names[0])), (2, "damaged"));
    tool(&["--salvage"], &path);
    assert_eq!(look(&path).0, 0);
    let store = Store::open(&path, &options()).unwrap();
    store.put("last", "").unwrap();
    store.close().unwrap();
    model.insert(b"last".to_vec(), Vec::new());
    assert!(open(&path) == model);
}

#[test]
fn sst_that_is_missing_is_dropped_only_on_request() {
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

/// What stands in the sorted files is older than what the index has of some keys, whose records are
/// damaged.
#[test]
fn items_revert_to_older_values_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut model, _) = spilled(folder.path());
    let key = |number: u32| number.wrapping_mul(0x9E37_79B9).to_be_bytes().to_vec();
    // No byte of theirs is the first one that the test looks for.
    let (overwritten, deleted, fresh) = (key(100), key(200), b"another".to_vec());
    let budget = StoreOptions::MIN_BUDGET;
    let store = Store::open(&path, &options().memory_budget(budget)).unwrap();
    store.put(overwritten.clone(), "the newer value").unwrap();
    store.put(fresh.clone(), "the only value").unwrap();
    store.delete(deleted.clone()).unwrap();
    store.close().unwrap();
    model.remove(&deleted);
    let index = path.join("index.gph");
    let mut bytes = fs::read(&index).unwrap();
    for value in [&b"the newer value"[..], b"the only value"] {
        let at = bytes.windows(value.len()).position(|bytes| bytes == value);
        bytes[at.unwrap()] ^= 1;
    }
    // A tombstone: a key of four bytes, no value, and the sequence number behind.
    let head = [4u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
    let is_tombstone = |bytes: &[u8]| bytes[..8] == head && bytes[24..] == deleted;
    let at = bytes.windows(28).position(is_tombstone).unwrap();
    bytes[at + 17] ^= 1;
    fs::write(&index, bytes).unwrap();
    for arguments in [&["--check"][..], &[]] {
        let before = files(&path);
        let (status, object) = tool(arguments, &path);
        assert_eq!((status, state_of(&object, "index.gph")), (2, "damaged"));
        assert_eq!(object["items_lost"], 3);
        assert!(files(&path) == before, "{arguments:?} has changed a file");
    }
    let (status, object) = tool(&["--salvage"], &path);
    assert_eq!((status, object["state"].as_str()), (2, Some("damaged")));
    let digits = |key: &Vec<u8>| {
        key.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let mut reverted = vec![digits(&overwritten), digits(&deleted)];
    reverted.sort();
    assert_eq!(object["items_reverted"], 2, "{object}");
    assert_eq!(object["keys_reverted"], serde_json::json!(reverted));
    assert_eq!(object["items_lost"], 1);
    assert_eq!(object["keys_lost"], serde_json::json!([digits(&fresh)]));
    assert_eq!(look(&path).0, 0);
    let found = open(&path);
    assert_eq!(found.get(&overwritten), model.get(&overwritten));
    assert!(!found.contains_key(&fresh));
    assert_eq!(found.len(), model.len() + 1);
}

/// Sums up what a salvage without some files has left: how many items are right, and how many others
/// there are.
fn salvaged(path: &Path, model: &Model) -> (usize, usize) {
    let (status, object) = tool(&["--salvage"], path);
    assert_eq!(
        (status, object["state"].as_str()),
        (2, Some("damaged")),
        "{object}"
    );
    let (status, object) = look(path);
    assert_eq!(
        (status, object["state"].as_str()),
        (0, Some("clean")),
        "{object}"
    );
    let found = open(path);
    let right = found
        .iter()
        .filter(|item| model.get(item.0) == Some(item.1))
        .count();
    (right, found.len() - right)
}

#[test]
fn store_is_rebuilt_from_each_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, mut model, _) = spilled(folder.path());
    // More than is in sorted files, in a log that has not come to a checkpoint.
    let options = options().domain(Domain::Checkpointed);
    let store = Store::open(&whole, &options).unwrap();
    for number in 0..30u8 {
        store.put([b'n', number], vec![number; 400]).unwrap();
        model.insert(vec![b'n', number], vec![number; 400]);
    }
    let left = folder.path().join("left");
    copy(&whole, &left);
    drop(store);
    let path = folder.path().join("path");
    let without = |names: &[&str]| {
        let _ = fs::remove_dir_all(&path);
        copy(&left, &path);
        for name in names {
            let gone = path.join(name);
            match gone.is_dir() {
                true => fs::remove_dir_all(gone).unwrap(),
                false => fs::remove_file(gone).unwrap(),
            }
        }
        let arguments: &[&str] = &[];
        let before = files(&path);
        assert_eq!(tool(arguments, &path).0, 2);
        assert!(files(&path) == before, "a refusal has changed a file");
        salvaged(&path, &model)
    };
    let manifests = ["MANIFEST", "MANIFEST.2"];
    // Nothing but the manifests: all items come back.
    assert_eq!(without(&manifests), (model.len(), 0));
    let in_index = {
        let (right, other) = without(&["MANIFEST", "MANIFEST.2", "sst", "wal"]);
        assert_eq!(other, 0);
        right
    };
    assert!((1..model.len()).contains(&in_index), "{in_index}");
    let (in_files, other) = without(&["MANIFEST", "MANIFEST.2", "index.gph", "wal"]);
    assert_eq!(other, 0);
    assert!(
        in_files + in_index >= model.len() - 30,
        "{in_files} and {in_index}"
    );
    // What was written since the last checkpoint, and what else the log still has.
    let (in_log, other) = without(&["MANIFEST", "MANIFEST.2", "index.gph", "sst"]);
    assert_eq!(other, 0);
    assert!(in_log >= 30, "{in_log}");
    let (right, other) = without(&["index.gph"]);
    assert_eq!(other, 0);
    assert!(right >= in_files + 30, "{right} of {in_files} and the log");
    assert!(!path.join("index.gph.damaged").exists());
    let (right, other) = without(&["wal"]);
    assert_eq!((right, other), (model.len() - 30, 0));
    // An index that is no index is kept.
    let _ = fs::remove_dir_all(&path);
    copy(&left, &path);
    fs::write(path.join("index.gph"), b"not an index").unwrap();
    assert_eq!(salvaged(&path, &model), (in_files + 30, 0));
    assert_eq!(
        fs::read(path.join("index.gph.damaged")).unwrap(),
        b"not an index"
    );
}
