//! With a memory budget, the private memory of a process with a store stays below a bound, whatever is done with it:
//! on a disk, where the index is a private copy, and in memory, where it is shared. Each scenario has a process of
//! its own, in which no other test counts.

use std::fs;
use std::path::Path;
use std::process::{Command, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gphash::store::{Store, StoreOptions, WriteBatch};
use gphash_test_support::{Ends, setting};

use super::ByFirstByte;
use super::memory::{private_bytes, run_child};

/// How long to try what a slow disk may spoil.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a child does; says that this process is one.
const SCENARIO: &str = "GPHASH_MEMORY_SCENARIO";

/// The directory of its store.
const PATH: &str = "GPHASH_MEMORY_PATH";

const CHILD: &str = "memory_bound::child_stays_below_the_bound";

/// The memory budget in MiB; `GPHASH_MEMORY_BUDGET_MIB` says otherwise.
const BUDGET_MIB: usize = 64;

/// Bytes of a process that are no part of the budget.
const OTHER_BYTES: usize = 32 << 20;

/// Bytes of values that are put in one batch: the requests under way.
const BATCH_BYTES: usize = 1 << 20;

/// Most items of a batch.
const BATCH_ITEMS: usize = 4096;

/// Bytes of a value where sizes do not drift.
const VALUE_BYTES: usize = 2048;

/// Bytes of a long value.
const LONG_BYTES: usize = 512 << 10;

/// Sizes of values that come one after the other, up and down.
const DRIFTING_BYTES: [usize; 6] = [100, 700, 5_000, 64 << 10, 2_500, 300];

/// How a process exits that has left no long log.
const SHORT_LOG: i32 = 3;

/// Rounds of values in the log of a process that dies.
const LOGGED_ROUNDS: usize = 3;

/// Keys that a transaction reads; most of them are not there.
const READ_KEYS: usize = 600_000;

/// Partitions of a store of which one at a time is used.
const PARTITIONS: u8 = 8;

/// Threads that share the work of a store.
const THREADS: usize = 16;

fn budget() -> usize {
    setting("GPHASH_MEMORY_BUDGET_MIB").unwrap_or(BUDGET_MIB) << 20
}

/// The most private bytes that a process may have.
fn bound() -> u64 {
    (budget() + budget() / 4 + OTHER_BYTES + BATCH_BYTES) as u64
}

/// As on a machine of many cores: each thread keeps some memory.
fn options() -> StoreOptions {
    StoreOptions::new()
        .threads(THREADS)
        .memory_budget(budget() as u64)
}

fn key(nth: usize) -> Vec<u8> {
    format!("{nth:016}").into_bytes()
}

/// Values that differ from key to key and from one round to the next.
fn value(nth: usize, round: usize, len: usize) -> Vec<u8> {
    let word = ((nth << 8 | round) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut value = word.to_le_bytes().repeat(len.div_ceil(8));
    value.truncate(len);
    value
}

/// How many items take twice the budget.
fn items() -> usize {
    2 * budget() / VALUE_BYTES
}

/// Gives keys the values of a round.
fn put_round(store: &Store, items: usize, round: usize, value_bytes: usize) {
    for first in (0..items).step_by((BATCH_BYTES / value_bytes).min(BATCH_ITEMS)) {
        let mut batch = WriteBatch::new();
        let last = items.min(first + (BATCH_BYTES / value_bytes).min(BATCH_ITEMS));
        for nth in first..last {
            batch.put(key(nth), value(nth, round, value_bytes));
        }
        store.write(batch).unwrap();
    }
}

/// Gives all items the values of a round, and checks that one old version of each is kept, in a file.
fn overwrite_kept(store: &Store, round: usize) {
    put_round(store, items(), round, VALUE_BYTES);
    let stats = store.stats();
    assert_eq!(stats.kept_versions, items());
    let all = 2 * budget() as u64;
    let in_file = stats.kept_file_bytes;
    assert!(in_file > all - all / 16 && in_file <= all, "{stats:?}");
}

/// Checks that nothing is kept once nobody needs it.
fn check_released(store: &Store) {
    store.put("last", "").unwrap();
    crate::wait_for_readers(store);
    let stats = store.stats();
    assert_eq!((stats.kept_memory_bytes, stats.kept_file_bytes), (0, 0));
}

fn hold_iterator(store: &Store) {
    let mut range = store.range(..);
    overwrite_kept(store, 1);
    for nth in 0..items() {
        let item = range.next().unwrap().unwrap();
        assert!(item == (key(nth), value(nth, 0, VALUE_BYTES)), "item {nth}");
    }
    assert!(range.next().is_none());
    drop(range);
    check_released(store);
}

fn hold_transaction(store: &Store) {
    let mut transaction = store.transaction();
    for round in 1..4 {
        overwrite_kept(store, round);
    }
    for nth in (0..items()).step_by(97) {
        let found = transaction.get(&key(nth)).unwrap();
        assert!(found == Some(value(nth, 0, VALUE_BYTES)), "item {nth}");
    }
    drop(transaction);
    check_released(store);
}

/// Reads many keys in one transaction, which notices a change of any of them.
fn read_much(store: &Store) {
    for is_changed in [false, true] {
        let mut transaction = store.transaction();
        for nth in 0..READ_KEYS {
            let found = transaction.get(&key(nth)).unwrap();
            assert_eq!(found.is_some(), nth < items(), "item {nth}");
        }
        let changed = if is_changed { 1 } else { READ_KEYS };
        store.put(key(changed), "new").unwrap();
        transaction.put("last", "").unwrap();
        assert_eq!(transaction.commit().is_err(), is_changed);
    }
}

/// Reads long values below the index again and again, which come up into it.
fn read_again(store: &Store) {
    let items = 4 * budget() / LONG_BYTES;
    put_round(store, items, 1, LONG_BYTES);
    for round in 0..4 {
        std::thread::scope(|scope| {
            for first in 0..4 {
                scope.spawn(move || {
                    for nth in (first..items).step_by(4) {
                        let found = store.get(&key(nth)).unwrap();
                        assert!(found == Some(value(nth, 1, LONG_BYTES)), "{round}: {nth}");
                    }
                });
            }
        });
    }
}

/// Fills the log, and dies; says whether it is long.
fn die(store: &Store) -> ! {
    for round in 0..LOGGED_ROUNDS {
        put_round(store, items(), round, VALUE_BYTES);
    }
    for nth in (0..items()).step_by(7) {
        store.delete(key(nth)).unwrap();
    }
    let is_long = store.stats().log_bytes > 2 * budget() as u64;
    exit(if is_long { 0 } else { SHORT_LOG });
}

/// Has another process fill a log, and die. Where a disk is slow it may take a checkpoint at the end, to give back room of
/// the index: then there is hardly a log.
fn leave_long_log(path: &Path) {
    let started = Instant::now();
    loop {
        let mut other = Command::new(std::env::current_exe().unwrap());
        let other = other.args([CHILD, "--exact"]).env(SCENARIO, "death");
        match other.status().unwrap().code() {
            Some(0) => return,
            code => assert_eq!(code, Some(SHORT_LOG)),
        }
        assert!(started.elapsed() < PATIENCE, "each leaves a short log");
        fs::remove_dir_all(path).unwrap();
    }
}

/// What another process has left is there, and was not in a checkpoint.
fn check_after_death(store: &Store) {
    let stats = store.stats();
    println!("{} records replayed", stats.replayed_records);
    assert!(stats.log_bytes > 2 * budget() as u64, "{stats:?}");
    for nth in 0..items() {
        let found = store.get(&key(nth)).unwrap();
        let last = value(nth, LOGGED_ROUNDS - 1, VALUE_BYTES);
        assert!(found == (nth % 7 > 0).then_some(last), "item {nth}");
    }
}

/// Uses one partition after the other. Each has far more than its share of the budget, as long as the others take less.
fn use_in_turn(store: &Store) {
    let items = 2 * budget() / 5 / VALUE_BYTES;
    let key = |partition: u8, nth: usize| [&[partition][..], &key(nth)].concat();
    for partition in 0..PARTITIONS {
        for first in (0..items).step_by(BATCH_BYTES / VALUE_BYTES) {
            let mut batch = WriteBatch::new();
            for nth in first..items.min(first + BATCH_BYTES / VALUE_BYTES) {
                batch.put(key(partition, nth), value(nth, 0, VALUE_BYTES));
            }
            store.write(batch).unwrap();
        }
        let stats = store.stats();
        assert!(partition > 0 || stats.items_evicted == 0, "{stats:?}");
    }
    assert!(store.stats().items_evicted > 0);
    for (partition, nth) in (0..PARTITIONS).flat_map(|one| (0..items).map(move |nth| (one, nth))) {
        let found = store.get(&key(partition, nth)).unwrap();
        assert!(
            found == Some(value(nth, 0, VALUE_BYTES)),
            "{partition}, {nth}"
        );
    }
}

fn run(scenario: &str, store: &Store) {
    if scenario == "in turn" {
        return use_in_turn(store);
    }
    if scenario == "drifting sizes" {
        for (round, len) in DRIFTING_BYTES.into_iter().enumerate() {
            put_round(store, budget() / len, round, len);
        }
        return;
    }
    if scenario == "replay" {
        return check_after_death(store);
    }
    put_round(store, items(), 0, VALUE_BYTES);
    match scenario {
        "filled" => put_round(store, items(), 1, VALUE_BYTES),
        "iterator" => hold_iterator(store),
        "transaction" => hold_transaction(store),
        "reads" => read_much(store),
        "reads again" => read_again(store),
        scenario => panic!("there is no scenario {scenario}"),
    }
}

#[test]
fn child_stays_below_the_bound() {
    let (Some(scenario), Some(path)) = (setting::<String>(SCENARIO), std::env::var_os(PATH)) else {
        return;
    };
    let options = match &scenario[..] {
        "in turn" => options()
            .partitions(PARTITIONS.into())
            .partitioner(Arc::new(ByFirstByte)),
        _ => options(),
    };
    let open = || Store::open(&path, &options).unwrap();
    match &scenario[..] {
        // Many threads leave the index more free room, to give which back takes a checkpoint, and the log is to be long.
        "death" => die(&Store::open(&path, &options.clone().threads(2)).unwrap()),
        "replay" => leave_long_log(Path::new(&path)),
        _ => {}
    }
    let (most, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                most.fetch_max(private_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let ends = Ends(&has_ended);
        let store = open();
        run(&scenario, &store);
        drop(ends);
        store.close().unwrap();
    });
    let most = most.into_inner();
    println!("{scenario}: {} MiB of {}", most >> 20, bound() >> 20);
    assert!(most <= bound(), "{scenario}: {most} bytes");
}

/// Runs a scenario on a disk and in memory.
fn check(scenario: &str) {
    run_child(CHILD, PATH, (SCENARIO, scenario));
}

#[test]
fn filled_store_stays_below_the_bound() {
    check("filled");
}

#[test]
fn partitions_that_are_used_in_turn_stay_below_the_bound() {
    check("in turn");
}

#[test]
fn drifting_sizes_stay_below_the_bound() {
    check("drifting sizes");
}

#[test]
fn held_iterator_stays_below_the_bound() {
    check("iterator");
}

#[test]
fn held_transaction_stays_below_the_bound() {
    check("transaction");
}

#[test]
fn transaction_that_reads_much_stays_below_the_bound() {
    check("reads");
}

#[test]
fn values_that_are_read_again_stay_below_the_bound() {
    check("reads again");
}

#[test]
fn replay_of_a_long_log_stays_below_the_bound() {
    check("replay");
}
