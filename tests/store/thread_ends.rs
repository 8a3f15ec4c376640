//! A thread that ends, whose own data uses the store while it is dropped: what the store keeps of a thread is gone by then.

use std::cell::RefCell;
use std::sync::{Arc, mpsc};

use gphash::store::{Columns, Store, StoreOptions, WriteBatch};

use super::append;

/// What the thread that has it does once more as it ends.
struct AtItsEnd(Option<Box<dyn FnOnce()>>);

impl Drop for AtItsEnd {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

thread_local! {
    static AT_ITS_END: RefCell<AtItsEnd> = const { RefCell::new(AtItsEnd(None)) };
}

/// Every kind of verb, for keys that begin with `prefix`.
fn use_verbs(store: &Store, prefix: &str, told: &mpsc::Sender<()>) {
    let key = |nth: u32| format!("{prefix}{nth}").into_bytes();
    let mut batch = WriteBatch::new();
    (0..100).for_each(|nth| batch.put(key(nth), "a"));
    store.write(batch).unwrap();
    store.put(key(100), "a").unwrap();
    store.merge(key(0), "b").unwrap();
    assert_eq!(store.swap(key(1), "c").unwrap(), Some(b"a".to_vec()));
    assert!(store.delete(key(2)).is_ok());
    for nth in [3, 4] {
        let told = told.clone();
        store.put_async(key(nth), "d", move |answer| {
            answer.unwrap();
            told.send(()).unwrap();
        });
    }
    let mut transaction = store.transaction();
    assert_eq!(transaction.get(&key(0)).unwrap(), Some(b"ab".to_vec()));
    transaction.put(key(5), "e").unwrap();
    transaction.commit().unwrap();
    let keys: Columns = (0..101).map(key).collect();
    let values = store.get_columns(&keys).unwrap();
    assert_eq!(values.get(5), Some(&b"e"[..]));
    assert_eq!(values.get(2), None);
    store.put_columns(&keys, &keys).unwrap();
    assert_eq!(store.multi_get(&[key(7)]).unwrap(), [Some(key(7))]);
    assert_eq!(store.range(key(0)..).next().unwrap().unwrap().0, key(0));
    store.flush().unwrap();
}

#[test]
fn thread_that_ends_uses_every_verb() {
    for partitions in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new()
            .partitions(partitions)
            .merge_operator(append());
        let store = Arc::new(Store::open(folder.path(), &options).unwrap());
        let (told, all_told) = mpsc::channel();
        let shared = Arc::clone(&store);
        let thread = std::thread::spawn(move || {
            // What is used first is dropped last: after all that the verbs below leave with the thread.
            let (at_end, told_at_end) = (Arc::clone(&shared), told.clone());
            AT_ITS_END.with_borrow_mut(|work| {
                work.0 = Some(Box::new(move || use_verbs(&at_end, "end ", &told_at_end)));
            });
            use_verbs(&shared, "life ", &told);
        });
        thread.join().unwrap();
        // A panic while it ends would end the process, or break the store.
        assert_eq!(all_told.iter().count(), 4);
        store.put("more", "").unwrap();
        assert_eq!(store.range(..).count(), 2 * 101 + 1);
    }
}
