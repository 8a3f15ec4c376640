//! Jobs that are carried out together, against one after the other.

use super::*;
use crate::store::{Durability, Store, StoreOptions, Transaction, WriteBatch};

fn put(key: &str, value: &str) -> Request {
    Request::Put {
        key: key.into(),
        value: value.into(),
    }
}

fn transaction(store: &Store, change: impl Fn(&mut Transaction)) -> Job {
    let mut transaction = store.transaction();
    change(&mut transaction);
    Job::of(transaction.into_work())
}

#[test]
fn transactions_of_a_group_conflict_with_those_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions::new().durability(Durability::Always);
    let store = Store::open(folder.path(), &options).unwrap();
    let mut first = WriteBatch::new();
    for key in ["a", "b", "c", "g"] {
        first.put(key, "old");
    }
    store.write(first).unwrap();
    let get = |key: &str| Request::Get { key: key.into() };
    let early = transaction(&store, |early| {
        assert!(early.get(b"g").unwrap().is_some());
        early.put("early", "1").unwrap();
    });
    store.put("g", "new").unwrap();
    let group = [
        early,
        Job::of(Work::Batch(vec![put("a", "1"), get("a"), get("b")])),
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
        Job::of(Work::Batch(vec![get("a"), get("b"), get("c"), get("d")])),
    ];
    let sequence = store.state().log.next_sequence();
    let answers = store.state().lead(&group);
    let is_conflict: Vec<bool> = answers
        .iter()
        .map(|answer| matches!(answer, Err(Error::Conflict)))
        .collect();
    assert_eq!(
        is_conflict,
        [true, false, true, false, true, false, false, false]
    );
    let values = |nth: usize| -> Vec<Option<Vec<u8>>> {
        let value = |response: &Response| match response {
            Response::Value(value) => value.clone(),
            other => panic!("{other:?}"),
        };
        let all = answers[nth].as_ref().unwrap();
        let all = all.iter().filter(|one| !matches!(one, Response::Done));
        all.map(value).collect()
    };
    let value = |bytes: &str| Some(bytes.as_bytes().to_vec());
    assert_eq!(values(1), [value("1"), value("old")]);
    assert_eq!(values(7), [value("6"), value("old"), None, value("3")]);
    // Requests of those in conflict have no numbers.
    assert_eq!(store.state().log.next_sequence(), sequence + 11);
    assert!(store.state().snapshots.live().is_empty());
    let items = |store: &Store| -> Vec<(Vec<u8>, Vec<u8>)> {
        store.range(..).collect::<Result<_>>().unwrap()
    };
    let before = items(&store);
    assert_eq!(before.len(), 5);
    drop(store);
    assert_eq!(
        items(&Store::open(folder.path(), &options).unwrap()),
        before
    );
}

#[test]
fn what_is_finished_late_comes_before_a_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &StoreOptions::new()).unwrap();
    store.put("a", "old").unwrap();
    // As if the index had no room for a batch that the log has.
    *store.state().unfinished() = Some(Unfinished {
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
