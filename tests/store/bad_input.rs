//! Every kind of bad input has its answer, and leaves everything as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gphash::store::{
    Durability, MergeOperator, Request, Response, Store, StoreOptions, WriteBatch,
};
use gphash::{Domain, Error};

use super::disk::{copy, files};
use super::model::{Model, contents};
use super::{append, lacks_operator};

fn options() -> StoreOptions {
    StoreOptions::new()
        .partitions(1)
        .domain(Domain::Checkpointed)
        .durability(Durability::Always)
        .segment_bytes(4096)
        .merge_operator(append())
}

/// What the death of the process leaves of a store that was written to ten times; and what it held
/// after each.
fn left(folder: &Path) -> (PathBuf, Vec<Model>) {
    let path = folder.join("live");
    let store = Store::open(&path, &options()).unwrap();
    let mut models = vec![Model::new()];
    for nth in 0..10u8 {
        store.put([nth], vec![nth; 900]).unwrap();
        models.push(contents(&store));
    }
    let left = folder.join("left");
    copy(&path, &left);
    (left, models)
}

/// Opening must answer an error that `is_told`, and touch nothing.
fn refused(path: &Path, options: &StoreOptions, is_told: impl Fn(&Error) -> bool) -> String {
    let before = files(path);
    let error = Store::open(path, options).expect_err("it is refused");
    assert!(is_told(&error), "{error:?}");
    let mut after = files(path);
    // The lock means nothing.
    after.retain(|path, _| before.contains_key(path) || !path.ends_with("LOCK"));
    assert!(after == before, "{error} has changed a file");
    error.to_string()
}

#[test]
fn keys_and_values_that_are_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &options()).unwrap();
    let long = vec![0; 65537];
    let is_told = |error: Error| {
        assert!(
            matches!(
                error,
                Error::TooLong {
                    what: "key",
                    found: 65537,
                    limit: 65536
                }
            ),
            "{error:?}"
        );
    };
    store.put("key", "value").unwrap();
    is_told(store.put(long.clone(), "value").unwrap_err());
    is_told(store.get(&long).unwrap_err());
    is_told(store.get_with(&long, |_| ()).unwrap_err());
    is_told(store.contains_key(&long).unwrap_err());
    is_told(store.delete(long.clone()).unwrap_err());
    is_told(store.merge(long.clone(), "x").unwrap_err());
    is_told(store.multi_get(std::slice::from_ref(&long)).unwrap_err());
    let mut batch = WriteBatch::new();
    batch.put("other", "value");
    batch.delete(long.clone());
    is_told(store.write(batch).unwrap_err());
    let requests = vec![
        Request::Delete {
            key: b"key".to_vec(),
        },
        Request::Get { key: long.clone() },
    ];
    is_told(store.execute(requests).unwrap_err());
    let mut transaction = store.transaction();
    is_told(transaction.get(&long).unwrap_err());
    is_told(transaction.put(long, "value").unwrap_err());
    let huge = vec![0; (1 << 30) + 1];
    let error = store.put("huge", huge).unwrap_err();
    assert!(
        matches!(error, Error::TooLong { what: "value", .. }),
        "{error:?}"
    );
    assert_eq!(
        contents(&store),
        Model::from([(b"key".to_vec(), b"value".to_vec())])
    );
    let longest = vec![1; 65536];
    store.put(longest.clone(), "value").unwrap();
    assert_eq!(store.get(&longest).unwrap(), Some(b"value".to_vec()));
}

#[test]
fn options_that_cannot_be() {
    struct Nameless;
    impl MergeOperator for Nameless {
        fn name(&self) -> &str {
            ""
        }
        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[u8]) -> Result<Vec<u8>, String> {
            Ok(Vec::new())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let zero = Durability::Interval(Duration::ZERO);
    for (option, options) in [
        ("segment_bytes", StoreOptions::new().segment_bytes(4095)),
        ("durability", StoreOptions::new().durability(zero)),
        ("compaction_rate", StoreOptions::new().compaction_rate(0)),
        (
            "group_requests_max",
            StoreOptions::new().group_requests_max(0),
        ),
        (
            "merge_operator",
            StoreOptions::new().merge_operator(Arc::new(Nameless)),
        ),
        ("capacity", StoreOptions::new().capacity(0)),
    ] {
        let path = folder.path().join(option);
        let error = Store::open(&path, &options).expect_err("it is refused");
        assert!(
            matches!(&error, Error::InvalidOption { option: found, .. } if *found == option),
            "{error:?}"
        );
    }
    let path = folder.path().join("plain");
    let store = Store::open(&path, &StoreOptions::new().partitions(1).ordered(false)).unwrap();
    let error = store.merge("key", "operand").unwrap_err();
    assert!(lacks_operator(&error), "{error:?}");
    let error = store.range(..).next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Unordered), "{error:?}");
    assert!(store.range(..).next_back().unwrap().is_err());
    drop(store);
    refused(&path, &options(), |error| {
        matches!(
            error,
            Error::OptionMismatch {
                option: "merge_operator",
                ..
            }
        )
    });
    let store = Store::open(&path, &StoreOptions::new().partitions(1)).unwrap();
    assert_eq!(store.range(..).count(), 0);
}

#[test]
fn dir_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CURRENT"), "MANIFEST-000001\n").unwrap();
    let text = refused(folder.path(), &options(), |error| {
        matches!(error, Error::ForeignDirectory { .. })
    });
    assert!(text.contains("CURRENT"), "{text}");
    assert!(text.contains("a new store needs"), "{text}");
    assert!(!folder.path().join("LOCK").exists());
    fs::write(
        folder.path().join("MANIFEST"),
        "a manifest of something else",
    )
    .unwrap();
    refused(folder.path(), &options(), |error| {
        matches!(error, Error::Foreign { .. })
    });
    let file = folder.path().join("CURRENT");
    let error = Store::open(&file, &options()).expect_err("it is refused");
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
}

#[test]
fn store_is_open_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &options()).unwrap();
    let error = Store::open(folder.path(), &options()).expect_err("it is refused");
    assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    store.put("key", "value").unwrap();
    drop(store);
    let store = Store::open(folder.path(), &options()).unwrap();
    assert_eq!(store.get(b"key").unwrap(), Some(b"value".to_vec()));
}

#[test]
fn files_that_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (left, models) = left(folder.path());
    let segments: Vec<PathBuf> = files(&left.join("wal")).into_keys().collect();
    assert!(segments.len() >= 3, "{segments:?}");
    // One copy of the manifest is enough.
    let other = left.join("MANIFEST.2");
    let copy = fs::read(&other).unwrap();
    fs::remove_file(&other).unwrap();
    let mut needed = vec![left.join("MANIFEST"), left.join("index.gph")];
    needed.extend(segments.iter().cloned());
    for file in needed {
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let text = refused(&left, &options(), |error| {
            matches!(error, Error::Missing { .. })
        });
        assert!(text.contains(file.to_str().unwrap()), "{text}");
        fs::write(&file, bytes).unwrap();
    }
    fs::write(&other, copy).unwrap();
    fs::remove_file(left.join("MANIFEST")).unwrap();
    // What lies before the segment that is gone can be kept.
    fs::remove_file(&segments[1]).unwrap();
    let store = Store::open(&left, &options().salvage(true)).unwrap();
    let found = contents(&store);
    let nth = models.iter().position(|model| *model == found).unwrap();
    assert!(0 < nth && nth < models.len() - 1, "{nth}");
}

#[test]
fn files_that_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (left, models) = left(folder.path());
    let segments: Vec<PathBuf> = files(&left.join("wal")).into_keys().collect();
    let manifest = left.join("MANIFEST");
    fs::remove_file(left.join("MANIFEST.2")).unwrap();
    for (file, at) in [
        (&manifest, 40),
        (&manifest, 8),
        (&segments[0], 8),
        (&segments[0], 20),
        (&segments[0], 64),
        (&segments[0], 64 + 48 + 300),
        (&segments[1], 64 + 48 + 300),
    ] {
        let bytes = fs::read(file).unwrap();
        let mut broken = bytes.clone();
        broken[at] ^= 0x40;
        fs::write(file, &broken).unwrap();
        let text = refused(&left, &options(), |error| match error {
            Error::Damaged { .. } => *file == manifest,
            Error::DamagedLog { .. } => *file != manifest,
            _ => false,
        });
        assert!(text.contains(file.to_str().unwrap()), "{text}");
        fs::write(file, &bytes).unwrap();
    }
    // Cut short in the middle of the log.
    let bytes = fs::read(&segments[1]).unwrap();
    fs::write(&segments[1], &bytes[..500]).unwrap();
    refused(&left, &options(), |error| {
        matches!(error, Error::DamagedLog { .. })
    });
    let store = Store::open(&left, &options().salvage(true)).unwrap();
    assert!(models.contains(&contents(&store)));
}

/// At the end of the log a record may be torn; in the middle of it none may.
#[test]
fn log_records_torn_and_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live");
    let options = options().segment_bytes(1 << 20);
    let store = Store::open(&path, &options).unwrap();
    let mut ends = Vec::new();
    for nth in 0..5u8 {
        store.put([nth], vec![nth; 100]).unwrap();
        ends.push(64 + usize::try_from(store.stats().log_bytes).unwrap());
    }
    let left = folder.path().join("left");
    copy(&path, &left);
    let (segment, bytes) = files(&left.join("wal")).pop_last().unwrap();
    let last = ends[3]..ends[4];
    // A power cut may take the witness behind the last record, and then tear that record.
    let mut unwitnessed = bytes.clone();
    unwitnessed[ends[4]..ends[4] + 48].fill(0);
    let each = |log| (ends[2]..ends[4]).step_by(7).map(move |at| (log, at));
    for (log, at) in each(&unwitnessed).chain(each(&bytes)) {
        let copied = folder.path().join("copy");
        copy(&left, &copied);
        let segment = copied.join("wal").join(segment.file_name().unwrap());
        let mut broken = log.clone();
        broken[at] ^= 1;
        fs::write(&segment, &broken).unwrap();
        let padding = [ends[3], ends[4]]
            .iter()
            .any(|end| (end - 7..*end).contains(&at));
        let torn = last.contains(&at) && log == &unwitnessed;
        if torn || padding {
            let store = Store::open(&copied, &options).unwrap();
            let len = contents(&store).len();
            assert!(len == 4 || len == 5 && padding, "{len} items, byte {at}");
        } else {
            let (whole, end) = match last.contains(&at) {
                true => (4, ends[3] as u64),
                false => (3, ends[2] as u64),
            };
            let text = refused(
                &copied,
                &options,
                |error| matches!(error, Error::DamagedLog { at, .. } if *at == end),
            );
            assert!(text.contains("salvage"), "{text}");
            let store = Store::open(&copied, &options.clone().salvage(true)).unwrap();
            assert_eq!(contents(&store).len(), whole);
            store.put("more", "value").unwrap();
        }
        fs::remove_dir_all(&copied).unwrap();
    }
    // A cut at any place leaves what is before it.
    for end in [64, ends[0] - 1, ends[0], ends[3] + 20] {
        let copied = folder.path().join("copy");
        copy(&left, &copied);
        let segment = copied.join("wal").join(segment.file_name().unwrap());
        fs::write(&segment, &bytes[..end]).unwrap();
        let store = Store::open(&copied, &options).unwrap();
        // The zeros that fill a record up mean nothing.
        let whole = ends.iter().filter(|other| **other - 7 <= end).count();
        assert_eq!(contents(&store).len(), whole);
        drop(store);
        fs::remove_dir_all(&copied).unwrap();
    }
}

/// A merge that fails is its own answer; in a batch that is made as a whole it is the batch's.
#[test]
fn merges_that_fail() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &options()).unwrap();
    let merge = |operand: &str| Request::Merge {
        key: b"key".to_vec(),
        operand: operand.into(),
    };
    let get = || Request::Get {
        key: b"key".to_vec(),
    };
    let requests = vec![
        merge("a"),
        merge("panic"),
        get(),
        merge("fail"),
        merge("b"),
        get(),
    ];
    let answers = store.execute(requests).unwrap();
    let value = |answer: &Response| match answer {
        Response::Value(value) => value.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value(&answers[2]), Some(b"a".to_vec()));
    assert_eq!(value(&answers[5]), Some(b"ab".to_vec()));
    for nth in [1, 3] {
        let Response::Failed(error) = &answers[nth] else {
            panic!("{:?}", answers[nth])
        };
        assert!(error.to_string().contains("as it was told"), "{error}");
    }
    assert!(matches!(
        store.merge("key", "fail"),
        Err(Error::Merge { .. })
    ));
    let mut batch = WriteBatch::new();
    batch.put("other", "value");
    batch.merge("key", "panic");
    assert!(matches!(store.write(batch), Err(Error::Merge { .. })));
    drop(store);
    let store = Store::open(folder.path(), &options()).unwrap();
    assert_eq!(
        contents(&store),
        Model::from([(b"key".to_vec(), b"ab".to_vec())])
    );
}

/// An iterator that is held sees its own moment, and what is kept for it does not grow without bound.
#[test]
fn iterator_that_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &StoreOptions::new().partitions(1)).unwrap();
    for key in 0..1000u32 {
        store.put(key.to_be_bytes(), "old").unwrap();
    }
    let held = store.range(..);
    for round in 0..20 {
        let change = |key: u32| match key % 3 {
            0 => Request::Delete {
                key: key.to_be_bytes().to_vec(),
            },
            _ => Request::Put {
                key: key.to_be_bytes().to_vec(),
                value: vec![round],
            },
        };
        store.execute((0..2000).map(change).collect()).unwrap();
        // Others come and go.
        assert_eq!(store.range(..).count(), 1333);
    }
    let kept = store.stats().kept_versions;
    assert!(kept <= 2 * 2000 + 4096, "{kept} versions");
    assert!(
        held.map(Result::unwrap)
            .eq((0..1000u32).map(|key| (key.to_be_bytes().to_vec(), b"old".to_vec())))
    );
    store.put("last", "one").unwrap();
    assert_eq!(store.stats().kept_versions, 0);
    assert_eq!(store.stats().snapshots, 0);
}

#[test]
fn root_of_a_file_system_becomes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let lost = folder.path().join("lost+found");
    fs::create_dir(&lost).unwrap();
    for value in ["first", "second"] {
        let store = Store::open(folder.path(), &options()).unwrap();
        store.put("key", value).unwrap();
        store.close().unwrap();
        assert!(lost.is_dir());
    }
}

/// An operator that fails, and whose name cannot be had any more.
struct LosesItsName(AtomicBool);

impl MergeOperator for LosesItsName {
    fn name(&self) -> &str {
        assert!(!self.0.load(Ordering::Relaxed), "as it was told");
        "loses its name"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[u8]) -> Result<Vec<u8>, String> {
        Err("as it was told".into())
    }
}

#[test]
fn merge_that_fails_beside_a_name_that_panics_harms_no_other_change() {
    let folder = tempfile::tempdir().unwrap();
    let operator = Arc::new(LosesItsName(AtomicBool::new(false)));
    let options = crate::partitioned().merge_operator(operator.clone());
    let store = Store::open(folder.path(), &options).unwrap();
    for is_lost in [false, true] {
        operator.0.store(is_lost, Ordering::Relaxed);
        let error = store.merge("key", "operand").unwrap_err();
        let named = !is_lost;
        assert!(
            matches!(&error, Error::Merge { operator, .. } if (operator == "loses its name") == named),
            "{error:?}"
        );
        store.put("key", "value").unwrap();
    }
}
