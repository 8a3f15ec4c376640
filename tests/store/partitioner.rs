//! Partitioners of the user: which partition has a key, and what becomes of one that changes its mind.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gphash::Error;
use gphash::ReportState;
use gphash::store::{
    Columns, Partitioner, Repair, Request, RequestKind, Response, Store, StoreOptions, recover,
};

const PARTITIONS: u32 = 4;

/// The partition of the number that a key begins with, plus `shift`. Panics for a key that says so.
struct ByNumber {
    name: &'static str,
    shift: usize,
}

const BY_NUMBER: ByNumber = ByNumber {
    name: "by number",
    shift: 0,
};

impl Partitioner for ByNumber {
    fn name(&self) -> &str {
        self.name
    }

    fn partition(&self, key: &[u8], partitions: usize) -> usize {
        assert_eq!(partitions, PARTITIONS as usize);
        assert_ne!(key, b"panic", "as it was told");
        // Greater numbers than there are, too.
        self.shift + usize::from(key.first().copied().unwrap_or_default())
    }
}

/// Panics when it is asked for the last of so many times.
struct PanicsOnce(AtomicU32);

impl Partitioner for PanicsOnce {
    fn name(&self) -> &str {
        "panics once"
    }

    fn partition(&self, key: &[u8], _: usize) -> usize {
        assert_ne!(self.0.fetch_sub(1, Ordering::Relaxed), 1, "as it was told");
        key.len()
    }
}

/// Whenever it panics, that is the panic of the call which asks, and of no other one.
#[test]
fn partitioner_that_panics_once_breaks_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let partitioner = Arc::new(PanicsOnce(AtomicU32::new(0)));
    let options = StoreOptions::new()
        .partitions(PARTITIONS)
        .partitioner(partitioner.clone());
    let store = Store::open(folder.path(), &options).unwrap();
    let columns = |strings: &[&str]| strings.iter().copied().collect::<Columns>();
    let keys = columns(&["a", "bb", "a", "ccc", "dddd", "bb"]);
    let values = columns(&["1", "", "", "2", "", ""]);
    let (put, get) = (RequestKind::Put, RequestKind::Get);
    let kinds = [put, get, get, put, get, get];
    store.put("bb", "bb").unwrap();
    let mut panics = 0;
    loop {
        partitioner.0.store(panics + 1, Ordering::Relaxed);
        let execute = || store.execute_columns(&kinds, &keys, &values);
        let Ok(answers) = catch_unwind(AssertUnwindSafe(execute)) else {
            panics += 1;
            continue;
        };
        let found = answers.expect("nothing is broken").values;
        assert_eq!(found.get(1), Some(&b"bb"[..]));
        assert_eq!((found.get(2), found.get(4)), (Some(&b"1"[..]), None));
        break;
    }
    assert!(panics >= 6, "each key is asked for");
    partitioner.0.store(0, Ordering::Relaxed);
    store.put("more", "than before").unwrap();
}

fn options(partitioner: ByNumber) -> StoreOptions {
    StoreOptions::new()
        .partitions(PARTITIONS)
        .partitioner(Arc::new(partitioner))
}

fn mismatch(path: &Path, options: &StoreOptions) -> String {
    let error = Store::open(path, options).expect_err("it is another partitioner");
    assert!(
        matches!(&error, Error::OptionMismatch { option, .. } if *option == "partitioner"),
        "{error:?}"
    );
    error.to_string()
}

/// The bytes of the log of each partition.
fn logs(path: &Path) -> Vec<Vec<u8>> {
    let first = path.join("wal");
    let others = (1..PARTITIONS).map(|nth| path.join(format!("partition-{nth:03}/wal")));
    let bytes = |folder: std::path::PathBuf| {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
            .iter()
            .flat_map(|file| fs::read(file).unwrap())
            .collect()
    };
    [first].into_iter().chain(others).map(bytes).collect()
}

#[test]
fn partitioner_says_which_partition_has_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options(BY_NUMBER)).unwrap();
    let key = |number: u8, nth: u8| vec![number, nth];
    let mut model = BTreeMap::new();
    for number in [0, 1, 2, 3, 250] {
        // One call each: alone, in a batch of one partition, and in one of all.
        let value = format!("value of {number}");
        store.put(key(number, 0), value.as_bytes()).unwrap();
        model.insert(key(number, 0), value.clone().into_bytes());
        let keys: Columns = (1..9).map(|nth| key(number, nth)).collect();
        let values: Columns = (1..9).map(|_| &value).collect();
        store.put_columns(&keys, &values).unwrap();
        model.extend(
            keys.iter()
                .map(|key| (key.to_vec(), value.clone().into_bytes())),
        );
    }
    let all = (0..8u8).map(|number| Request::Put {
        key: key(number, 9),
        value: vec![number],
    });
    assert_eq!(store.execute(all.collect()).unwrap().len(), 8);
    model.extend((0..8).map(|number| (key(number, 9), vec![number])));
    let is_model = |store: &Store| {
        let items: BTreeMap<_, _> = store.iter().map(Result::unwrap).collect();
        assert_eq!(items, model);
        let keys: Vec<&Vec<u8>> = model.keys().collect();
        let values: Vec<_> = model.values().cloned().map(Some).collect();
        assert_eq!(store.multi_get(&keys).unwrap(), values);
        assert!(
            model
                .iter()
                .all(|(key, value)| store.get(key).unwrap().as_ref() == Some(value))
        );
        let gets = model.keys().cloned().map(|key| Request::Get { key });
        let mut answers = store.execute(gets.collect()).unwrap().into_iter();
        assert!(values.iter().all(|value| matches!(
            answers.next(), Some(Response::Value(found)) if found == *value
        )));
    };
    is_model(&store);
    // Each value is in the log of its key's partition, and in no other.
    for (number, partition) in [(0, 0), (1, 1), (2, 2), (3, 3), (250, 2)] {
        let value = format!("value of {number}");
        for (nth, log) in logs(&path).iter().enumerate() {
            let is_there = log
                .windows(value.len())
                .any(|bytes| bytes == value.as_bytes());
            assert_eq!(is_there, nth == partition, "{value} in partition {nth}");
        }
    }
    store.close().unwrap();
    let store = Store::open(&path, &options(BY_NUMBER)).unwrap();
    is_model(&store);
    drop(store);
    // A tool needs no partitioner.
    let report = recover(&path, Repair::Recover, &|_| {}).unwrap();
    assert_eq!(
        (report.state, report.items),
        (ReportState::Clean, model.len() as u64)
    );
    is_model(&Store::open(&path, &options(BY_NUMBER)).unwrap());
}

#[test]
fn store_refuses_another_partitioner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, &options(BY_NUMBER)).unwrap();
    // So many that the store's own hash does not find them all right.
    for nth in 0..40 {
        store.put([1, nth], "value").unwrap();
    }
    store.close().unwrap();
    let text = mismatch(&path, &StoreOptions::new().partitions(PARTITIONS));
    assert!(text.contains("by number"), "{text}");
    mismatch(
        &path,
        &options(ByNumber {
            name: "by another",
            shift: 0,
        }),
    );
    // The same name, and another answer.
    let text = mismatch(
        &path,
        &options(ByNumber {
            name: "by number",
            shift: 1,
        }),
    );
    assert!(
        text.contains("partition 1") && text.contains("partition 2"),
        "{text}"
    );
    let store = Store::open(&path, &options(BY_NUMBER)).unwrap();
    assert_eq!(store.get(&[1, 7]).unwrap(), Some(b"value".to_vec()));
    drop(store);
    let plain = folder.path().join("plain");
    Store::open(&plain, &StoreOptions::new().partitions(PARTITIONS))
        .unwrap()
        .close()
        .unwrap();
    mismatch(&plain, &options(BY_NUMBER));
    // Nothing says any more that there was one, but the keys do.
    for folder in [path.clone()]
        .into_iter()
        .chain((1..PARTITIONS).map(|nth| path.join(format!("partition-{nth:03}"))))
    {
        ["MANIFEST", "MANIFEST.2"]
            .iter()
            .for_each(|name| fs::remove_file(folder.join(name)).unwrap());
    }
    recover(&path, Repair::Salvage, &|_| {}).unwrap();
    // What is refused leaves nothing behind.
    for _ in 0..2 {
        mismatch(&path, &StoreOptions::new());
        mismatch(&path, &StoreOptions::new().salvage(true));
    }
    let store = Store::open(&path, &options(BY_NUMBER)).unwrap();
    assert_eq!(store.get(&[1, 7]).unwrap(), Some(b"value".to_vec()));
    store.close().unwrap();
    mismatch(&path, &StoreOptions::new());
    let nameless = options(ByNumber { name: "", shift: 0 });
    let error = Store::open(folder.path().join("nameless"), &nameless).unwrap_err();
    assert!(
        matches!(
            error,
            Error::InvalidOption {
                option: "partitioner",
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn partitioner_that_panics_harms_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &options(BY_NUMBER)).unwrap();
    let panics = |call: &dyn Fn(&Store)| {
        assert!(catch_unwind(AssertUnwindSafe(|| call(&store))).is_err());
        store.put([2, 2], "still").unwrap();
        assert_eq!(store.get(&[2, 2]).unwrap(), Some(b"still".to_vec()));
    };
    panics(&|store| store.put("panic", "").unwrap());
    panics(&|store| drop(store.get(b"panic")));
    panics(&|store| drop(store.multi_get(&[&[1][..], b"panic"])));
    panics(&|store| {
        let keys: Columns = [&[1][..], &[2], b"panic"].into_iter().collect();
        drop(store.put_columns(&keys, &keys));
    });
    panics(&|store| {
        // Threads of the store find out which partition has which key.
        let keys: Columns = (0..40_000u32)
            .map(|nth| nth.to_le_bytes().to_vec())
            .chain([b"panic".to_vec()])
            .collect();
        drop(store.put_columns(&keys, &keys));
    });
    panics(&|store| store.put_async("panic", "", |_| {}));
    panics(&|store| {
        let requests = [&[1][..], b"panic"].map(|key| Request::Delete { key: key.into() });
        store.execute_async(requests.into(), |_| {});
    });
    panics(&|store| drop(store.get_columns(&[&[1][..], b"panic"].into_iter().collect())));
    panics(&|store| drop(store.snapshot().get(b"panic")));
    panics(&|store| drop(store.transaction().get(b"panic")));
    panics(&|store| {
        let mut transaction = store.transaction();
        transaction.put([1, 1], "").unwrap();
        transaction.put("panic", "").unwrap();
        drop(transaction.commit());
    });
    assert_eq!(store.iter().count(), 1);
}

/// As long as the others leave it, also after the store was closed.
#[test]
fn partition_takes_more_than_its_share_of_the_memory_budget() {
    const ITEMS: u32 = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions::new()
        .partitions(8)
        .partitioner(Arc::new(crate::ByFirstByte))
        .memory_budget(16 << 20);
    let key = |nth: u32| [&[1][..], &nth.to_be_bytes()].concat();
    for round in 0..3u8 {
        let store = Store::open(folder.path(), &options).unwrap();
        let items = if round == 0 { ITEMS } else { 10 };
        (0..items).for_each(|nth| store.put(key(nth), [round; 1_000]).unwrap());
        assert_eq!(store.stats().items_evicted, 0, "round {round}");
        store.close().unwrap();
    }
    // Its items leave once the others want their shares.
    let store = Store::open(folder.path(), &options).unwrap();
    for nth in 0..ITEMS {
        for partition in [0, 2, 3, 4, 5, 6, 7] {
            let key = [&[partition][..], &nth.to_be_bytes()].concat();
            store.put(key, [9; 1_000]).unwrap();
        }
    }
    assert!(store.stats().items_evicted > 0);
    for nth in 0..ITEMS {
        let expected = if nth < 10 { 2 } else { 0 };
        assert_eq!(store.get(&key(nth)).unwrap(), Some(vec![expected; 1_000]));
    }
}
