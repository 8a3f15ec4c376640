//! Ranges: their bounds, and what is over all keys.

use std::ops::Bound;

use gphash::Error;
use gphash::store::{Range, Store, WriteBatch};

use super::model::Model;

#[test]
fn bounds_of_a_range_are_anything_that_is_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned()).unwrap();
    let model: Model = ["", "a", "b", "ba", "c"]
        .map(|key| (key.into(), b"value".to_vec()))
        .into();
    for (key, value) in &model {
        store.put(key.clone(), value.clone()).unwrap();
    }
    let expect = |found: Range, keys: &[&str]| {
        let found: Model = found.map(Result::unwrap).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), keys);
    };
    let owned = vec![b'b'];
    expect(store.range(..), &["", "a", "b", "ba", "c"]);
    expect(store.iter(), &["", "a", "b", "ba", "c"]);
    expect(store.range("a".."c"), &["a", "b", "ba"]);
    expect(store.range("a"..="c"), &["a", "b", "ba", "c"]);
    expect(store.range(b"b"..), &["b", "ba", "c"]);
    expect(store.range([b'b']..), &["b", "ba", "c"]);
    expect(store.range(..b"ba".as_slice()), &["", "a", "b"]);
    expect(store.range(..=&owned), &["", "a", "b"]);
    expect(store.range(owned.clone()..), &["b", "ba", "c"]);
    expect(store.range(String::from("ba")..), &["ba", "c"]);
    let pair = (Bound::Excluded("b"), Bound::Unbounded);
    expect(store.range(pair), &["ba", "c"]);
    // None of these has keys, and none panics.
    expect(store.range("c".."a"), &[]);
    expect(store.range("a".."a"), &[]);
    let pair = (Bound::Excluded(&owned), Bound::Excluded(&owned));
    expect(store.range(pair), &[]);
    let mut transaction = store.transaction();
    transaction.delete("b").unwrap();
    expect(transaction.range("a".."c"), &["a", "ba"]);
    let keys: Vec<_> = transaction.keys("b"..).map(Result::unwrap).collect();
    assert_eq!(keys, [&b"ba"[..], b"c"]);
}

#[test]
fn all_items_need_the_ordered_view() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &crate::partitioned().ordered(false)).unwrap();
    store.put("key", "value").unwrap();
    assert!(matches!(store.first(), Err(Error::Unordered)));
    assert!(matches!(store.is_empty(), Err(Error::Unordered)));
    assert!(matches!(store.last(), Err(Error::Unordered)));
    assert!(matches!(store.iter().next(), Some(Err(Error::Unordered))));
}

/// The first item is found behind many deleted ones without a page for each.
#[test]
fn first_item_behind_tombstones_is_found_at_once() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = crate::partitioned().memory_budget(16 << 20);
    let store = Store::open(folder.path(), &options).unwrap();
    let key = |n: u32| n.to_be_bytes();
    let count = 150_000;
    store.put(key(count), [7; 100]).unwrap();
    for from in (0..count).step_by(1000) {
        let mut puts = WriteBatch::new();
        (from..from + 1000).for_each(|n| puts.put(key(n), [7; 100]));
        store.write(puts).unwrap();
    }
    for from in (0..count).step_by(1000) {
        let mut deletes = WriteBatch::new();
        (from..from + 1000).for_each(|n| deletes.delete(key(n)));
        store.write(deletes).unwrap();
    }
    let pages = || store.stats().latencies.range_page.count;
    let before = pages();
    let (first, _) = store.first().unwrap().unwrap();
    assert_eq!(first, key(count));
    let read = pages() - before;
    // As many as it takes to double a page up to its longest, and those behind.
    assert!(read < 200, "{read} pages");
}
