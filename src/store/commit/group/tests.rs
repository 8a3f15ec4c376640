//! Jobs that are executed together, against one after the other.

use super::*;
use crate::store::columns::requests::ColumnBatch;
use crate::store::commit::apply::PendingApply;
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
    let batch = ColumnBatch::mixed(&kinds, &keys, &values).unwrap();
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
    let in_columns = |nth: usize| {
        let answers: Answers = answers[nth].clone().unwrap();
        answers.into_columns().values
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
    assert!(store.state().snapshots.live().is_empty());
    let items = |store: &Store| -> Vec<(Vec<u8>, Vec<u8>)> {
        store.range(..).collect::<Result<_>>().unwrap()
    };
    let before = items(&store);
    assert_eq!(before.len(), 5);
    drop(store);
    assert_eq!(items(&Store::open(dir.path(), &options).unwrap()), before);
}

#[test]
fn pending_apply_comes_before_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &StoreOptions::new()).unwrap();
    store.put("a", "old").unwrap();
    // As if the index had no room for a batch that the log has.
    store.state().unfinished().push(PendingApply {
        first: store.state().log.next_sequence(),
        changes: vec![(b"a".to_vec(), Some(b"late".to_vec()), 0)],
    });
    let mut transaction = store.transaction();
    assert_eq!(transaction.get(b"a").unwrap(), Some(b"old".to_vec()));
    transaction.put("b", "of the old one").unwrap();
    let refused = transaction.commit();
    assert!(matches!(refused, Err(Error::Conflict)), "{refused:?}");
    assert_eq!(store.get(b"a").unwrap(), Some(b"late".to_vec()));
    assert_eq!(store.get(b"b").unwrap(), None);
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
        let valid = early.into_valid(&requests(), &state.visible().changed);
        valid.iter().map(Option::is_some).collect()
    };
    assert_eq!(holds(read()), [[true; 7].as_slice(), &[false]].concat());

    let early = [read(), read()];
    store.put("changed", "1").unwrap();
    store.delete("deleted").unwrap();
    store.put("new", "1").unwrap();
    // As if the index had no room for a batch that the log has: the group does that first.
    state.unfinished().push(PendingApply {
        first: state.log.next_sequence(),
        changes: vec![(b"late".to_vec(), value("1"), 0)],
    });
    let [first, second] = early;
    let expected = [true, false, false, false, true, true, true, false];
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
