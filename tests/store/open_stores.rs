//! Many stores in one process: what rests has no threads and few descriptors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gphash::store::{Durability, Repair, Request, Store, StoreOptions, WriteBatch};
use gphash::{Error, Index, Options};
use gphash_test_support::setting;
use rayon::ThreadPoolBuilder;

use super::ByFirstByte;
use super::disk::folders;

/// Descriptors of a store that rests: its directory, its lock, its index, the segment of its log.
const DESCRIPTORS: usize = 4;

/// How many stores are open: `GPHASH_MANY_STORES`.
fn count() -> usize {
    setting("GPHASH_MANY_STORES").unwrap_or(100)
}

/// The descriptors that lead to something in this folder.
fn descriptors(folder: &Path) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.flat_map(|entry| fs::read_link(entry.unwrap().path()));
    targets.filter(|path| path.starts_with(folder)).count()
}

/// Threads of stores whose names begin like this; a name has 15 bytes at most.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = tasks.filter_map(name);
    names.filter(|name| name.starts_with("gphash")).collect()
}

fn raise_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls read or write `limit` alone.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

/// Lets this process have no more of something.
fn limit(resource: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the call reads `limit` alone.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

/// A salvage that makes the manifest anew reads all sorted files side by side, of which there may be thousands.
#[test]
fn salvage_needs_few_descriptors() {
    if !is_alone("salvage_needs_few_descriptors") {
        return;
    }
    let folder = folders().pop().expect("there is one");
    let path = folder.path().join("store");
    let options = StoreOptions::new().partitions(1);
    let options = options.memory_budget(StoreOptions::MIN_BUDGET);
    let store = Store::open(&path, &options).unwrap();
    for keys in 0..250u32 {
        let mut batch = WriteBatch::new();
        let key = |nth: u32| (nth * 250 + keys).to_be_bytes();
        (0..100).for_each(|nth| batch.put(key(nth), vec![7; 400]));
        store.write(batch).unwrap();
    }
    store.close().unwrap();
    let entries = fs::read_dir(path.join("sst")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_sorted = |path: &PathBuf| path.extension().is_some_and(|found| found == "sst");
    let sorted = paths.filter(is_sorted).count();
    assert!(sorted > 60, "{sorted} files");
    for name in ["MANIFEST", "MANIFEST.2"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    limit(libc::RLIMIT_NOFILE, 50);
    let report = gphash::store::recover(&path, Repair::Salvage, &|_| {}).unwrap();
    assert!(report.was_repaired, "{report:?}");
    let store = Store::open(&path, &options).unwrap();
    assert_eq!(store.keys(..).count(), 25_000);
}

/// Partitions of a store.
fn partitions(nth: usize) -> u32 {
    if nth.is_multiple_of(7) { 3 } else { 1 }
}

/// Has a test of this file run in a process of its own; `true` there.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "GPHASH_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("open_stores::{test}")])
        .env(ALONE, "1")
        .status();
    assert!(status.unwrap().success());
    false
}

/// The threads of other tests would count.
#[test]
fn stores_at_rest_have_no_threads_and_few_descriptors() {
    if !is_alone("stores_at_rest_have_no_threads_and_few_descriptors") {
        return;
    }
    raise_limit();
    let folder = folders().pop().expect("there is one");
    let options = |nth: usize| {
        let options = StoreOptions::new().partitions(partitions(nth)).capacity(16);
        let options = options.durability(match nth % 3 {
            0 => Durability::Always,
            1 => Durability::Interval(Duration::from_millis(50)),
            _ => Durability::None,
        });
        match nth % 2 {
            0 => options.memory_budget(StoreOptions::MIN_BUDGET),
            _ => options,
        }
    };
    let all: usize = (0..count()).map(|nth| partitions(nth) as usize).sum();
    let work = |store: &Store, nth: usize, round: u8| {
        // Some have more than their budget, and files below.
        let len = if nth.is_multiple_of(50) { 20_000 } else { 100 };
        for key in 0..10u8 {
            store.put([key], vec![round; len]).unwrap();
        }
        store.put_async("async", [round], |answer| answer.unwrap());
    };
    let check = |store: &Store, round: u8| {
        for key in 0..10u8 {
            assert_eq!(store.get(&[key]).unwrap().unwrap()[0], round);
        }
        assert_eq!(store.get(b"async").unwrap().unwrap(), [round]);
    };
    let stores: Vec<Store> = (0..count())
        .map(|nth| {
            let path = folder.path().join(nth.to_string());
            Store::open(path, &options(nth)).unwrap()
        })
        .collect();
    for round in 1..3 {
        for (nth, store) in stores.iter().enumerate() {
            work(store, nth, round);
        }
        let start = Instant::now();
        while !threads().is_empty() || descriptors(folder.path()) > DESCRIPTORS * all {
            let (threads, descriptors) = (threads(), descriptors(folder.path()));
            assert!(
                start.elapsed() < Duration::from_secs(600),
                "{descriptors} descriptors, threads {threads:?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        println!(
            "{} stores: {} descriptors, no threads after {:?}",
            stores.len(),
            descriptors(folder.path()),
            start.elapsed()
        );
        stores.iter().for_each(|store| check(store, round));
    }
    for store in stores {
        store.close().unwrap();
    }
    assert_eq!(descriptors(folder.path()), 0);
}

#[test]
fn root_of_a_file_system_becomes_a_store() {
    for folder in folders() {
        let path = folder.path().join("root");
        fs::create_dir_all(path.join("lost+found")).unwrap();
        let store = Store::open(&path, &StoreOptions::new()).unwrap();
        store.put("key", "value").unwrap();
        store.close().unwrap();
        let store = Store::open(&path, &StoreOptions::new()).unwrap();
        assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
        assert!(path.join("lost+found").is_dir());
    }
}

/// A batch system may limit the addresses of a process. What files do not need of them is left to it.
#[test]
fn store_of_many_partitions_is_used_with_few_addresses() {
    const LIMIT: u64 = 24 << 30;
    if !is_alone("store_of_many_partitions_is_used_with_few_addresses") {
        return;
    }
    limit(libc::RLIMIT_AS, LIMIT);
    for folder in folders() {
        let path = folder.path().join("store");
        let options = StoreOptions::new().partitions(24).capacity(24 << 12);
        for round in 0..2u8 {
            let store = Store::open(&path, &options).unwrap();
            for key in 0..20_000u32 {
                let before = store.get(&key.to_le_bytes()).unwrap();
                assert_eq!(before.is_some(), round == 1);
                store.put(key.to_le_bytes(), [round; 100]).unwrap();
            }
            let items = store.iter().map(|item| item.unwrap().1[0]);
            assert!(items.eq(vec![round; 20_000]));
            store.close().unwrap();
        }
    }
}

/// A program that has closed its standard output goes on to print, or opens something else there.
#[test]
fn store_takes_no_descriptor_of_standard_output() {
    if !is_alone("store_takes_no_descriptor_of_standard_output") {
        return;
    }
    let folder = folders().pop().expect("there is one");
    let path = folder.path().join("store");
    let options = StoreOptions::new()
        .partitions(2)
        .memory_budget(StoreOptions::MIN_BUDGET);
    let kept = [0, 1, 2].map(|standard| {
        // SAFETY: neither call touches memory; nothing is printed until the descriptors are back.
        unsafe {
            let kept = libc::fcntl(standard, libc::F_DUPFD_CLOEXEC, 3);
            libc::close(standard);
            kept
        }
    });
    let opened = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let store = Store::open(&path, &options).unwrap();
        for key in 0..2_000u32 {
            store.put(key.to_le_bytes(), vec![7; 2_000]).unwrap();
        }
        store.checkpoint().unwrap();
        let words = b"what a program prints";
        // SAFETY: the call reads `words` alone.
        let printed =
            [0, 1, 2].map(|to| unsafe { libc::write(to, words.as_ptr().cast(), words.len()) });
        (store.close(), printed)
    }));
    for (standard, kept) in (0..).zip(kept) {
        // SAFETY: the call touches no memory.
        unsafe { libc::dup2(kept, standard) };
    }
    let (closed, printed) = opened.unwrap();
    closed.unwrap();
    assert_eq!(printed, [-1; 3], "something of the store is there");
    let store = Store::open(&path, &options).unwrap();
    assert_eq!(store.iter().count(), 2_000);
}

/// Lets this process have no more threads than it has, once it is [nobody's](be_nobody).
fn start_no_more_threads() {
    limit(libc::RLIMIT_NPROC, 1);
    let started = thread::Builder::new().spawn(|| ());
    assert!(started.is_err(), "there are threads");
}

/// Gives up the rights of root, to whom a limit of threads says nothing. The folder is everybody's then.
fn be_nobody(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    // SAFETY: the calls touch no memory. Other threads of this process wait for its end.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setuid(65534), 0);
        }
    }
}

/// The thread of one partition is in a callback, which asks another partition for something, and there is no thread for
/// that. Nobody else calls the store.
#[test]
fn partition_without_threads_is_served_by_others() {
    if !is_alone("partition_without_threads_is_served_by_others") {
        return;
    }
    let folder = folders().pop().expect("there is one");
    be_nobody(folder.path());
    // No other thread looks after the partition at rest.
    let options = StoreOptions::new()
        .partitions(3)
        .idle_compaction(None)
        .partitioner(Arc::new(ByFirstByte));
    let store = Arc::new(Store::open(folder.path().join("store"), &options).unwrap());
    let (told, is_told) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let shared = Arc::clone(&store);
    let tell = told.clone();
    store.put_async([1], "value", move |answer| {
        tell.send(answer).unwrap();
        may_go_on.recv().unwrap();
        shared.put_async([2], "other", move |answer| tell.send(answer).unwrap());
    });
    is_told.recv().unwrap().unwrap();
    start_no_more_threads();
    go_on.send(()).unwrap();
    let answer = is_told.recv_timeout(Duration::from_secs(600));
    answer.expect("nobody serves it").unwrap();
    assert_eq!(store.get(&[2]).unwrap(), Some(b"other".to_vec()));
}

/// A container may limit how many there are.
#[test]
fn indexes_and_stores_are_used_without_threads() {
    if !is_alone("indexes_and_stores_are_used_without_threads") {
        return;
    }
    let folder = folders().pop().expect("there is one");
    be_nobody(folder.path());
    start_no_more_threads();
    // Long enough for threads to share the batches.
    let path = folder.path().join("index");
    let index = Index::<u64, u64>::create(&path, &Options::new()).unwrap();
    let keys: Vec<u64> = (0..100_000).collect();
    index.insert(&keys, &keys).unwrap();
    index.remove(&keys[..60_000]).unwrap();
    index.compact(&|_| ()).unwrap();
    index.close().unwrap();
    let index = Index::<u64, u64>::open(&path, &Options::new()).unwrap();
    let mut values = vec![0; keys.len()];
    let found = index.get(&keys, &mut values).unwrap();
    assert_eq!(found.count_ones(..), 40_000);
    assert_eq!(values[60_000..], keys[60_000..]);
    drop(index);
    // Much more than the budget: items leave. Who compacts in place of a thread does not wait for the rate.
    let options = StoreOptions::new()
        .partitions(3)
        .compaction_rate(1)
        .memory_budget(StoreOptions::MIN_BUDGET);
    let path = folder.path().join("store");
    let store = Store::open(&path, &options).unwrap();
    let key = |nth: u32| nth.to_be_bytes();
    let value = |nth: u32| vec![nth.to_le_bytes()[0]; 1000];
    let put = |nth: u32| Request::Put {
        key: key(nth).to_vec(),
        value: value(nth),
    };
    (0..3000).for_each(|nth| store.put(key(nth), value(nth)).unwrap());
    store.execute((3000..6000).map(put).collect()).unwrap();
    // A thread of a pool of the program's must not wait for another pool, and here it does all by itself.
    let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    pool.build().unwrap().install(|| {
        store.execute((6000..9000).map(put).collect()).unwrap();
        assert_eq!(store.range(..).count(), 9000);
    });
    let compactions = store.stats().spill.compactions;
    assert!(compactions > 0, "who waits compacts");
    let snapshot = store.snapshot();
    let (answered, answers) = mpsc::channel();
    store.put_async(key(0), "other", move |answer| {
        answered.send(answer).unwrap()
    });
    answers.recv().unwrap().unwrap();
    assert_eq!(snapshot.get(&key(0)).unwrap(), Some(value(0)));
    drop(snapshot);
    store.checkpoint().unwrap();
    store.compact(&|_| ()).unwrap();
    store.delete(key(1)).unwrap();
    store.close().unwrap();
    let store = Store::open(&path, &options).unwrap();
    let items: Vec<_> = store.iter().collect::<Result<_, _>>().unwrap();
    let expected = (0..9000).filter(|nth| *nth != 1).map(|nth| match nth {
        0 => (key(0).to_vec(), b"other".to_vec()),
        _ => (key(nth).to_vec(), value(nth)),
    });
    assert!(items.into_iter().eq(expected));
    store.close().unwrap();
}

/// The cores on which each thread of a store may run, by its name.
fn cores_of_threads() -> Vec<(String, String)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of_thread = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        Some((field("Name:")?, field("Cpus_allowed_list:")?))
    };
    tasks.filter_map(of_thread).collect()
}

#[test]
fn threads_that_execute_requests_run_on_the_cores_that_are_given() {
    if !is_alone("threads_that_execute_requests_run_on_the_cores_that_are_given") {
        return;
    }
    let folder = folders().pop().expect("there is one");
    let path = folder.path().join("store");
    let options = StoreOptions::new()
        .partitions(3)
        .partitioner(Arc::new(ByFirstByte));
    let nowhere = Store::open(&path, &options.clone().worker_cores([1 << 20]));
    let error = nowhere.expect_err("there is no such core");
    assert!(
        matches!(&error, Error::InvalidOption { option: "worker_cores", found, .. } if found == "1048576"),
        "{error:?}"
    );
    assert!(!path.exists());
    let allowed = thread::available_parallelism().unwrap().get();
    let core = cores_of_threads()[0]
        .1
        .split(['-', ','])
        .next()
        .unwrap()
        .to_owned();
    let options = options.worker_cores([core.parse().unwrap()]);
    let store = Store::open(&path, &options).unwrap();
    let (told, answers) = mpsc::channel();
    for partition in 0..3u8 {
        let told = told.clone();
        store.put_async([partition], "value", move |answer| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            told.send((name, answer)).unwrap();
        });
    }
    for _ in 0..3 {
        answers.recv().unwrap().1.unwrap();
    }
    let requests = (0..100_000u32).map(|nth| Request::Put {
        key: [&[0][..], &nth.to_be_bytes()].concat(),
        value: b"value".to_vec(),
    });
    store.execute(requests.collect()).unwrap();
    let pinned: Vec<_> = cores_of_threads()
        .into_iter()
        .filter(|(name, _)| name.starts_with("gphash-store-qu") || name.starts_with("gphash-queue"))
        .collect();
    assert!(
        !pinned.is_empty() && pinned.iter().all(|(_, cores)| *cores == core),
        "{pinned:?}"
    );
    assert_eq!(thread::available_parallelism().unwrap().get(), allowed);
    store.close().unwrap();
}
