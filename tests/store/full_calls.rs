//! A disk that is full for some calls alone, until a checkpoint or for one partition.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use gphash::pm::{Call, Faults, FileEvent};
use gphash::store::{Durability, Request, Store, StoreOptions};
use gphash::{Domain, Error};

use super::full_disk::ByFirstByte;

/// No room for the journal of one partition.
#[derive(Debug, Default)]
struct NoJournal(AtomicBool);

impl Faults for NoJournal {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn after(&self, _: FileEvent, _: &Path) {}

    fn room(&self, _: Call, path: &Path, from: u64, to: u64) -> u64 {
        let is_refused = path.ends_with("partition-001/index.gph.journal");
        match is_refused && self.0.load(Ordering::Relaxed) {
            true => from,
            false => to,
        }
    }
}

#[test]
fn partition_without_room_for_its_checkpoint_keeps_no_other_from_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(NoJournal::default());
    let options = crate::options()
        .partitions(4)
        .partitioner(Arc::new(ByFirstByte))
        .domain(Domain::Checkpointed)
        .faults(Arc::clone(&faults) as Arc<dyn Faults>);
    let store = Store::open(folder.path().join("store"), &options).unwrap();
    let put_all = || (0..4u8).for_each(|key| store.put([key], [key; 5000]).unwrap());
    put_all();
    let log_bytes = || store.stats().log_bytes;
    let all = log_bytes();
    faults.0.store(true, Ordering::Relaxed);
    let refused = store.checkpoint();
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    let left = log_bytes();
    assert!(left <= all / 2, "{left} of {all} bytes are left in logs");
    for key in 0..4u8 {
        store.delete([key]).unwrap();
    }
    faults.0.store(false, Ordering::Relaxed);
    put_all();
    store.checkpoint().unwrap();
    assert_eq!(log_bytes(), 0);
    store.close().unwrap();
}

/// No room for the log until a checkpoint makes some.
#[derive(Debug, Default)]
struct FullLog {
    is_full: AtomicBool,
    /// How often the log was made longer.
    extensions: AtomicUsize,
}

impl FullLog {
    /// Options of a store whose log meets it, and that is as others are otherwise.
    fn options(self: &Arc<Self>, partitions: u32) -> StoreOptions {
        StoreOptions::default()
            .partitions(partitions)
            .partitioner(Arc::new(ByFirstByte))
            .domain(Domain::Checkpointed)
            .faults(Arc::clone(self) as Arc<dyn Faults>)
    }
}

impl Faults for FullLog {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn after(&self, _: FileEvent, _: &Path) {}

    fn room(&self, call: Call, path: &Path, from: u64, to: u64) -> u64 {
        if path.ends_with("index.gph.journal") {
            self.is_full.store(false, Ordering::Relaxed);
        }
        let is_log = call == Call::Allocate && path.parent().unwrap().ends_with("wal");
        self.extensions
            .fetch_add(usize::from(is_log), Ordering::Relaxed);
        match is_log && self.is_full.load(Ordering::Relaxed) {
            true => from,
            false => to,
        }
    }
}

#[test]
fn transaction_of_deletions_is_tried_again_when_its_log_meets_a_full_disk() {
    for partitions in [1, 4] {
        let folder = tempfile::tempdir().unwrap();
        let faults = Arc::new(FullLog::default());
        let options = faults.options(partitions).durability(Durability::Always);
        let store = Store::open(folder.path().join("store"), &options).unwrap();
        let extensions = || faults.extensions.load(Ordering::Relaxed);
        let last = u8::try_from(partitions - 1).unwrap();
        let long_key = |nth: u8| [&[last][..], &[nth; 2000]].concat();
        for nth in 1..=4 {
            store.put(long_key(nth), [nth]).unwrap();
        }
        let put = || store.put([last], [7; 1000]).unwrap();
        let puts_until_extended = || {
            let before = extensions();
            let puts = (1..).find(|_| {
                put();
                extensions() > before
            });
            puts.unwrap()
        };
        puts_until_extended();
        // Until its room has an end within the next record.
        let puts = puts_until_extended();
        (0..puts - 4).for_each(|_| put());
        let before = extensions();
        let mut transaction = store.transaction();
        for nth in 1..=4 {
            let found = transaction.get(&long_key(nth)).unwrap();
            assert_eq!(found.as_deref(), Some(&[nth][..]));
            transaction.delete(long_key(nth)).unwrap();
        }
        faults.is_full.store(true, Ordering::Relaxed);
        transaction.commit().unwrap();
        assert!(extensions() > before, "the log needed no more room");
        assert!(
            !faults.is_full.load(Ordering::Relaxed),
            "nothing was refused"
        );
        for nth in 1..=4 {
            assert_eq!(store.get(&long_key(nth)).unwrap(), None);
        }
        store.close().unwrap();
    }
}

/// Nobody who calls waits for a checkpoint, and the next requests find the room that one has made.
#[test]
fn asynchronous_requests_have_a_checkpoint_make_room_for_their_log() {
    for partitions in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let faults = Arc::new(FullLog::default());
        let options = faults.options(partitions);
        let store = Store::open(folder.path().join("store"), &options).unwrap();
        let last = u8::try_from(partitions - 1).unwrap();
        let put = || {
            let (sender, answer) = mpsc::channel();
            let put = Request::Put {
                key: vec![last],
                value: vec![7; 1000],
            };
            // Of two partitions one is changed.
            let get = Request::Get { key: vec![0, 0] };
            store.execute_async(vec![get, put], move |answers| sender.send(answers).unwrap());
            answer.recv().unwrap()
        };
        put().unwrap();
        faults.is_full.store(true, Ordering::Relaxed);
        let refused = (0..10_000).find_map(|_| put().err()).unwrap();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused:?}");
        let started = Instant::now();
        while put().is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{partitions}: no checkpoint has made room"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        store.close().unwrap();
    }
}

/// No room for the log beyond so many bytes of each file.
#[derive(Debug)]
struct ShortLog(u64);

impl Faults for ShortLog {
    fn before(&self, _: Call, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn room(&self, _: Call, path: &Path, from: u64, to: u64) -> u64 {
        match path.parent().unwrap().ends_with("wal") {
            true => to.min(self.0).max(from),
            false => to,
        }
    }
}

#[test]
fn long_record_that_the_disk_has_no_room_for_leaves_nothing_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let options = crate::options()
        .partitions(1)
        .domain(Domain::Checkpointed)
        .durability(Durability::None)
        .faults(Arc::new(ShortLog(4 << 20)));
    let store = Store::open(&path, &options).unwrap();
    let log_bytes = || {
        let segments = std::fs::read_dir(path.join("wal")).unwrap();
        let lens = segments.map(|segment| segment.unwrap().metadata().unwrap().len());
        lens.sum::<u64>()
    };
    store.put("first", [1]).unwrap();
    store.checkpoint().unwrap();
    let before = log_bytes();
    let refused = store.put("long", vec![2; 8 << 20]);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    assert!(log_bytes() <= before, "{} of {before}", log_bytes());
    store.put("last", [3]).unwrap();
    store.close().unwrap();
    let store = Store::open(&path, &options).unwrap();
    assert_eq!(store.get(b"long").unwrap(), None);
    assert_eq!(store.get(b"last").unwrap(), Some(vec![3]));
}
