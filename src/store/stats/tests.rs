use std::sync::mpsc;

use crate::metrics::StallReason;
use crate::store::{Request, Store, StoreOptions, WriteBatch};

#[test]
fn latencies_and_stalls_of_each_path_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Store::open(dir.path(), &StoreOptions::new()).unwrap();
    open().put("ada", "byron").unwrap();
    let store = open();
    // A thread of its own times its first reads.
    let verbs = || {
        store.put("ada", "lovelace").unwrap();
        store.put_if_absent("alan", "turing").unwrap();
        store.get(b"ada").unwrap();
        store.multi_get(&["ada", "alan"]).unwrap();
        assert_eq!(store.range(..).count(), 2);
        store.write(WriteBatch::new()).unwrap();
        let key = b"ada".to_vec();
        store.execute(vec![Request::Get { key }]).unwrap();
        let mut transaction = store.transaction();
        transaction.put("grace", "hopper").unwrap();
        transaction.commit().unwrap();
        let (sender, outcome) = mpsc::channel();
        store.put_async("dennis", "ritchie", move |result| {
            sender.send(result).unwrap();
        });
        outcome.recv().unwrap().unwrap();
        store.flush().unwrap();
        store.checkpoint().unwrap();
    };
    std::thread::scope(|scope| scope.spawn(verbs).join().unwrap());
    let stats = store.stats();
    let counts = stats.latencies.iter().map(|(path, of)| (path, of.count));
    let counts: Vec<(&str, u64)> = counts.filter(|(path, _)| *path != "log_sync").collect();
    let expected = [
        ("get", 1),
        ("multi_get", 1),
        ("range_page", 1),
        ("change", 1),
        ("batch", 2),
        ("commit", 1),
        ("checkpoint", 1),
        ("compaction", 0),
    ];
    assert_eq!(counts, expected);
    assert!(stats.latencies.log_sync.count > 0);
    let stalls = stats.stalls;
    assert_eq!(stalls.checkpoint.count, 1);
    assert!(stalls.log.count > 0, "the first change begins a segment");
    assert_eq!(stalls.full_disk.count + stalls.queue.count, 0);
    let last = stalls.recent.last().unwrap();
    assert_eq!(last.reason, StallReason::Checkpoint);
    assert!(stalls.recent.is_sorted_by_key(|event| event.began));
}
