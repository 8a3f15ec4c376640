//! Jobs that are executed together, against one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::pool::split::position;
use crate::store::columns::ValueColumns;
use crate::store::columns::requests::ColumnBatch;
use crate::store::mvcc::group_writes::Unfinished;
use crate::store::wal::record::Entry;
use crate::store::{
    Columns, Durability, Request, RequestKind, Store, StoreOptions, Transaction, WriteBatch,
};

fn put(key: &str, value: &str) -> Request {
    Request::Put {
        key: key.into(),
        value: value.into(),
    }
}

fn get(key: &str) -> Request {
    Request::Get { key: key.into() }
}

/// The answers to gets; those to others are left out.
fn values(answer: &Answer) -> Vec<Option<Vec<u8>>> {
    let value = |response: &Response| match response {
        Response::Value(value) => Some(value.clone()),
        Response::Done | Response::Present | Response::Mismatch(_) => None,
        Response::Failed(error) => panic!("{error}"),
    };
    let Answers::Responses(responses) = answer.as_ref().unwrap() else {
        panic!("no job has come in columns");
    };
    responses.iter().filter_map(value).collect()
}

fn value(bytes: &str) -> Option<Vec<u8>> {
    Some(bytes.as_bytes().to_vec())
}

fn transaction(store: &Store, change: impl Fn(&mut Transaction)) -> Job {
    let mut transaction = store.transaction();
    change(&mut transaction);
    Job::of(transaction.into_work())
}

/// A batch of columns of these kinds, keys and values.
fn columns<const N: usize>(requests: [(RequestKind, &str, &str); N]) -> Job {
    let kinds = requests.map(|(kind, ..)| kind);
    let keys: Columns = requests.iter().map(|(_, key, _)| key).collect();
    let values: Columns = requests.iter().map(|(.., value)| value).collect();
    let batch = ColumnBatch::mixed(&kinds, &keys, &values, ValueColumns::default()).unwrap();
    Job::of(Work::Columns(batch))
}

#[test]
fn columns_join_the_group_of_other_jobs() {
    use RequestKind::{Delete, Get, Put};
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::new()).unwrap();
    store.put("stored", "0").unwrap();
    let late = transaction(&store, |late| {
        assert!(late.get(b"b").unwrap().is_none());
        late.put("late", "1").unwrap();
    });
    let mut group = [
        Job::of(Work::Batch(vec![put("a", "1"), get("b")], None)),
        columns([
            (Get, "a", ""),
            (Put, "b", "2"),
            (Put, "a", ""),
            (Get, "stored", ""),
        ]),
        Job::of(Work::Batch(vec![get("a"), get("b")], None)),
        columns([(Delete, "b", ""), (Get, "b", ""), (Get, "a", "")]),
        // The columns have changed what it has read.
        late,
        Job::of(Work::Columns(ColumnBatch::deletes(
            &["a"].into_iter().collect(),
        ))),
        Job::of(Work::Batch(vec![get("a"), get("stored")], None)),
    ];
    let answers = store.state().commit_group(&mut group);
    let in_columns = |nth: usize| match &answers[nth] {
        Ok(Answers::Columns(answers)) => answers.values.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(values(&answers[0]), [None]);
    assert!(
        in_columns(1)
            .iter()
            .eq([Some(&b"1"[..]), None, None, Some(b"0")])
    );
    assert_eq!(values(&answers[2]), [value(""), value("2")]);
    assert!(in_columns(3).iter().eq([None, None, Some(&b""[..])]));
    assert!(matches!(answers[4], Err(Error::Conflict)));
    assert!(in_columns(5).is_empty());
    assert_eq!(values(&answers[6]), [None, value("0")]);
}

#[test]
fn transactions_of_a_group_conflict_with_those_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::new().durability(Durability::Always);
    let store = Store::open(dir.path(), &options).unwrap();
    let mut first = WriteBatch::new();
    for key in ["a", "b", "c", "g"] {
        first.put(key, "old");
    }
    store.write(first).unwrap();
    let early = transaction(&store, |early| {
        assert!(early.get(b"g").unwrap().is_some());
        early.put("early", "1").unwrap();
    });
    store.put("g", "new").unwrap();
    let mut group = [
        early,
        Job::of(Work::Batch(vec![put("a", "1"), get("a"), get("b")], None)),
        transaction(&store, |reader| {
            assert_eq!(reader.get(b"a").unwrap(), Some(b"old".to_vec()));
            reader.put("b", "2").unwrap();
        }),
        transaction(&store, |other| {
            assert!(other.get(b"b").unwrap().is_some());
            other.put("d", "3").unwrap();
            other.delete("c").unwrap();
        }),
        transaction(&store, |ranger| {
            assert_eq!(ranger.range(b"c".to_vec()..b"e".to_vec()).count(), 1);
            ranger.put("e", "4").unwrap();
        }),
        transaction(&store, |ranger| {
            assert_eq!(ranger.range(b"x".to_vec()..b"b".to_vec()).count(), 0);
            assert_eq!(ranger.range(b"x".to_vec()..).count(), 0);
            ranger.put("f", "5").unwrap();
        }),
        transaction(&store, |blind| blind.put("a", "6").unwrap()),
        Job::of(Work::Batch(
            vec![get("a"), get("b"), get("c"), get("d")],
            None,
        )),
    ];
    let sequence = store.state().log.next_sequence();
    let answers = store.state().commit_group(&mut group);
    let is_conflict: Vec<bool> = answers
        .iter()
        .map(|answer| matches!(answer, Err(Error::Conflict)))
        .collect();
    assert_eq!(
        is_conflict,
        [true, false, true, false, true, false, false, false]
    );
    assert_eq!(values(&answers[1]), [value("1"), value("old")]);
    assert_eq!(
        values(&answers[7]),
        [value("6"), value("old"), None, value("3")]
    );
    // Requests of those in conflict have no numbers.
    assert_eq!(store.state().log.next_sequence(), sequence + 11);
    assert!(store.state().shared.snapshots.live().is_empty());
    let items = |store: &Store| -> Vec<(Vec<u8>, Vec<u8>)> {
        store.range(..).collect::<Result<_>>().unwrap()
    };
    let before = items(&store);
    assert_eq!(before.len(), 5);
    drop(store);
    assert_eq!(items(&Store::open(dir.path(), &options).unwrap()), before);
}

/// Publishes the final value of a key, as if the index had no room for it.
fn leave_unfinished(state: &StoreInner, key: &str, value: &str) {
    let finals = [Entry {
        key: key.as_bytes(),
        value: Some(value.as_bytes()),
        position: 0,
    }];
    let find = |asked: &[u8]| (asked == finals[0].key).then_some(finals[0].value);
    let first = state.log.next_sequence();
    state
        .published
        .show(&GroupWrites::new(&finals, &find), |commit_seq| {
            state
                .applying()
                .changed
                .note([key.as_bytes()].into_iter(), commit_seq);
            let group = Unfinished::of(commit_seq, first, &finals).into();
            state
                .published
                .change_unfinished(|groups| groups.push(group));
        });
}

#[test]
fn group_without_room_is_read_and_comes_before_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::new()).unwrap();
    store.put("a", "old").unwrap();
    let mut transaction = store.transaction();
    assert_eq!(transaction.get(b"a").unwrap(), value("old"));
    transaction.put("b", "of the old one").unwrap();
    let before = store.snapshot();
    leave_unfinished(store.state(), "a", "late");
    leave_unfinished(store.state(), "c", "later");
    let after = store.snapshot();
    let read = || {
        assert_eq!(store.get(b"a").unwrap(), value("late"));
        assert_eq!(
            store.multi_get(&["a", "c"]).unwrap(),
            [value("late"), value("later")]
        );
        assert!(store.contains_key(b"c").unwrap());
        let keys: Vec<_> = store.keys(..).map(Result::unwrap).collect();
        assert_eq!(keys, [b"a", b"c"]);
        assert_eq!(before.get(b"a").unwrap(), value("old"));
        assert_eq!(before.iter().count(), 1);
        assert_eq!(after.get(b"a").unwrap(), value("late"));
        let items: Vec<_> = after.iter().rev().map(Result::unwrap).collect();
        assert_eq!(items[1..], [(b"a".to_vec(), b"late".to_vec())], "{items:?}");
    };
    read();
    let refused = transaction.commit();
    assert!(matches!(refused, Err(Error::Conflict)), "{refused:?}");
    assert!(store.state().published.is_finished());
    read();
    assert_eq!(store.get(b"b").unwrap(), None);
}

/// While a group goes into the table, readers see all of it, and old snapshots nothing.
#[test]
fn readers_see_a_group_before_the_table_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::new()).unwrap();
    for nth in 0..1000 {
        store.put(format!("{nth:04}"), "old").unwrap();
    }
    assert_eq!(store.keys(..).count(), 1000);
    let before = store.snapshot();
    // Every third key is deleted, every third gets a value, and others come between.
    let keys: Vec<String> = (0..2000)
        .rev()
        .map(|nth| format!("{:04}{}", nth / 2, if nth % 2 == 0 { "" } else { "+" }))
        .collect();
    let left = |nth: usize| match nth % 3 {
        0 => None,
        _ => Some(&b"new"[..]),
    };
    let changed = || keys.iter().enumerate().filter(|(nth, _)| nth % 3 < 2);
    let finals: Vec<Entry> = changed()
        .map(|(nth, key)| Entry {
            key: key.as_bytes(),
            value: left(nth),
            position: position(nth),
        })
        .collect();
    let find = |asked: &[u8]| {
        let entry = finals.iter().find(|entry| entry.key == asked)?;
        Some(entry.value)
    };
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = store.iter().map(Result::unwrap).collect();
    let old: Vec<_> = expected.clone().into_iter().collect();
    for entry in &finals {
        match entry.value {
            Some(value) => expected.insert(entry.key.to_vec(), value.to_vec()),
            None => expected.remove(entry.key),
        };
    }
    let expected: Vec<_> = expected.into_iter().collect();
    let state = store.state();
    let check = || {
        let mut items: Vec<_> = store.iter().map(Result::unwrap).collect();
        assert!(items == expected);
        let part: Vec<_> = store.range("0100".."0200+").map(Result::unwrap).collect();
        let is_within = |(key, _): &&(Vec<u8>, Vec<u8>)| {
            (&b"0100"[..]..&b"0200+"[..]).contains(&key.as_slice())
        };
        assert!(part.iter().eq(expected.iter().filter(is_within)));
        items = store.iter().rev().map(Result::unwrap).collect();
        items.reverse();
        assert!(items == expected);
        let values = store.multi_get(&keys).unwrap();
        for (key, found) in keys.iter().zip(values) {
            let value = expected.binary_search_by_key(&key.as_bytes(), |(key, _)| key);
            let value = value.ok().map(|nth| expected[nth].1.clone());
            assert_eq!(found, value);
            assert_eq!(store.get(key.as_bytes()).unwrap(), value);
            assert_eq!(store.contains_key(key.as_bytes()).unwrap(), value.is_some());
        }
        assert!(before.iter().map(Result::unwrap).eq(old.iter().cloned()));
        assert_eq!(before.get(keys[0].as_bytes()).unwrap(), None);
        assert_eq!(before.get(b"0999").unwrap(), value("old"));
    };
    let first = state.log.next_sequence();
    let writes = GroupWrites::new(&finals, &find);
    state
        .log
        .append(
            finals.len() as u64 * 3,
            &finals,
            false,
            crate::store::files::dir::Room::ALL,
            || Ok(()),
        )
        .unwrap();
    let mut applied = false;
    state.published.show(&writes, |commit_seq| {
        check();
        let alone = state.applying();
        for part in finals.chunks(100) {
            state.apply(&alone, commit_seq, first, part).unwrap();
            check();
        }
        applied = true;
    });
    assert!(applied);
    check();
    drop(before);
}

#[test]
fn optimistic_read_is_repeated_if_the_key_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::new()).unwrap();
    let state = store.state();
    for key in ["kept", "changed", "deleted", "earlier", "own", "late"] {
        store.put(key, "old").unwrap();
    }
    let keys = [
        "kept", "changed", "deleted", "new", "earlier", "own", "late",
    ];
    let requests =
        || -> Vec<Request> { keys.map(get).into_iter().chain([put("own", "2")]).collect() };
    let read = || state.read_early(&requests(), true).unwrap();
    let holds = |early: OptimisticReads| -> Vec<bool> {
        let valid = early.into_valid(&requests(), &state.applying().changed);
        valid.iter().map(Option::is_some).collect()
    };
    assert_eq!(holds(read()), [[true; 7].as_slice(), &[false]].concat());

    let early = [read(), read()];
    store.put("changed", "1").unwrap();
    store.delete("deleted").unwrap();
    store.put("new", "1").unwrap();
    // The group does first what the index had no room for.
    leave_unfinished(state, "late", "1");
    let [first, second] = early;
    let expected = [true, false, false, false, true, true, false, false];
    assert_eq!(holds(first), expected);
    let before = vec![put("earlier", "1"), get("own")];
    let mut group = [
        Job::of(Work::Batch(before, None)),
        Job::of(Work::Batch(requests(), Some(second))),
        Job::of(Work::Batch(vec![get("own")], None)),
    ];
    let answers = state.commit_group(&mut group);
    assert_eq!(values(&answers[0]), [value("old")]);
    let expected = ["old", "1", "", "1", "1", "old", "1"];
    let expected = expected.map(|bytes| value(bytes).filter(|bytes| !bytes.is_empty()));
    assert_eq!(values(&answers[1]), expected);
    assert_eq!(values(&answers[2]), [value("2")]);

    // So many changes are not told apart.
    let early = read();
    let many: Vec<Request> = (0..1 << 15).map(|nth| put(&nth.to_string(), "")).collect();
    store.execute(many).unwrap();
    assert_eq!(holds(early), [false; 8]);
    assert_eq!(holds(read())[..7], [true; 7]);
    // What threads share is not read early by one who is alone, and very long batches by nobody.
    let half = vec![[get("kept"), put("kept", "")]; 400].concat();
    assert!(state.read_early(&half, false).is_some());
    assert!(state.read_early(&half, true).is_none());
    assert!(
        state
            .read_early(&vec![get("kept"); 1 << 13], false)
            .is_none()
    );
}

/// A disk that has room for nothing more, once it is full.
#[derive(Debug, Default)]
struct Full(std::sync::atomic::AtomicBool);

impl crate::pm::Faults for Full {
    fn before(&self, _: crate::pm::Call, _: &std::path::Path) -> std::io::Result<()> {
        Ok(())
    }

    fn room(&self, _: crate::pm::Call, path: &std::path::Path, from: u64, to: u64) -> u64 {
        let is_index = path.ends_with("index.gph");
        match is_index && self.0.load(Ordering::Relaxed) {
            true => from,
            false => to,
        }
    }
}

/// Whether it shares its group with others is chance.
#[test]
fn deletion_goes_before_what_has_no_room_whoever_is_beside_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = Arc::new(Full::default());
    let options = StoreOptions::new()
        .capacity(1)
        .faults(Arc::clone(&disk) as _);
    let store = Store::open(dir.path(), &options).unwrap();
    store.put("a", "old").unwrap();
    let state = store.state();
    disk.0.store(true, Ordering::Relaxed);
    leave_unfinished(state, "b", &"long".repeat(8 << 20));
    assert!(matches!(state.finish(), Err(Error::NoSpace { .. })));
    let deletion = vec![Request::Delete { key: "a".into() }];
    let mut group = [
        Job::of(Work::Batch(vec![put("c", "")], None)),
        Job::of(Work::Batch(deletion, None)),
    ];
    let answers = state.commit_group(&mut group);
    assert!(matches!(answers[0], Err(Error::NoSpace { .. })));
    assert!(answers[1].is_ok());
    assert_eq!(store.get(b"a").unwrap(), None);
    disk.0.store(false, Ordering::Relaxed);
    store.put("c", "").unwrap();
    assert_eq!(store.keys(..).count(), 2);
}
