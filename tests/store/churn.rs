//! Months of use in minutes: items come and go, their sizes drift from class to class, snapshots are held and dropped.
//! What a store takes of disk and memory must not grow with it. Each store has a process of its own.
//!
//! `GPHASH_CHURN_CYCLES` says how many cycles of sizes a quarter has.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gphash::store::{Store, WriteBatch};
use gphash_test_support::setting;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::disk::room_taken;
use super::memory::{private_bytes, run_child};
use super::seed;

/// The memory budget of a child's store in bytes, or 0 for none; says that this process is one.
const BUDGET: &str = "GPHASH_CHURN_BUDGET";

/// The directory of its store.
const PATH: &str = "GPHASH_CHURN_PATH";

const CHILD: &str = "churn::child_churns";

/// Mean lengths of values that follow each other.
const LENGTHS: [usize; 6] = [400, 900, 5_000, 40_000, 2_500, 600];

/// About how many bytes of values there are at most, and at least as a share of that.
const LIVE_BYTES: usize = 12 << 20;
const LEAST_SHARE: usize = 4;

/// Bytes of values that are put in one batch.
const BATCH_BYTES: usize = 1 << 18;

/// Bytes of memory that a process with a budget may have beside it, with its requests.
const OTHER_BYTES: u64 = 32 << 20;

/// Snapshots that are held at a time.
const SNAPSHOTS: usize = 3;

/// What quarters may differ by: one in so many bytes, and so many.
const DIFFERENCE_SHARE: u64 = 20;

/// Cycles before the first quarter, in which files and memory grow to what they stay at.
const FIRST_CYCLES: usize = 2;

/// Cycles of a quarter from which on it has a steady mean. Fewer may differ more.
const STEADY_CYCLES: usize = 5;
const UNSTEADY_SHARE: u64 = 3;
const DIFFERENCE_BYTES: u64 = 2 << 20;

/// What a store takes of its disk and of memory in one quarter: a sample after each batch, however long that took. By
/// the clock, one slow checkpoint more would weigh as much as all of the others.
#[derive(Debug, Default)]
struct Quarter {
    disk: Vec<u64>,
    memory: Vec<u64>,
    /// The most that it took at any time.
    most_memory: u64,
}

impl Quarter {
    fn take_sample(&mut self, path: &Path) {
        self.disk.push(room_taken(path));
        self.memory.push(private_bytes());
    }
}

fn mean(samples: &[u64]) -> u64 {
    samples.iter().sum::<u64>() / samples.len().max(1) as u64
}

fn most(samples: &[u64]) -> u64 {
    samples.iter().copied().max().unwrap_or(0)
}

/// One cycle through all lengths. Keys of one length are put over those of the one before, and then many of them
/// are deleted. Calls `after_batch` after each batch.
fn cycle<'s>(
    store: &'s Store,
    rng: &mut SmallRng,
    held: &mut VecDeque<gphash::store::Range<'s>>,
    mut after_batch: impl FnMut(),
) {
    for len in LENGTHS {
        let most = LIVE_BYTES / len;
        let drift = |rng: &mut SmallRng| rng.random_range(len / 2..len * 3 / 2);
        for first in (0..most).step_by((BATCH_BYTES / len).max(1)) {
            let mut batch = WriteBatch::new();
            for nth in first..most.min(first + (BATCH_BYTES / len).max(1)) {
                batch.put(nth.to_be_bytes(), vec![rng.random(); drift(rng)]);
            }
            store.write(batch).unwrap();
            after_batch();
        }
        if held.len() == SNAPSHOTS {
            held.pop_front();
        }
        let mut range = store.range(..);
        assert!(range.next().is_some());
        held.push_back(range);
        for first in (0..most).step_by(1000) {
            let mut batch = WriteBatch::new();
            for nth in first..most.min(first + 1000) {
                if rng.random_range(0..LEAST_SHARE) > 0 {
                    batch.delete(nth.to_be_bytes());
                }
            }
            store.write(batch).unwrap();
            after_batch();
        }
    }
}

#[test]
fn child_churns() {
    let (Some(budget), Some(path)) = (setting::<u64>(BUDGET), std::env::var_os(PATH)) else {
        return;
    };
    let mut options = crate::options().checkpoint_bytes(16 << 20);
    if budget > 0 {
        options = options.memory_budget(budget);
    }
    let store = Store::open(&path, &options).unwrap();
    let mut rng = SmallRng::seed_from_u64(seed());
    let cycles = setting("GPHASH_CHURN_CYCLES").unwrap_or(1);
    let most_memory = AtomicU64::new(0);
    let has_ended = AtomicBool::new(false);
    let quarters = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                most_memory.fetch_max(private_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let mut held = VecDeque::new();
        for _ in 0..FIRST_CYCLES {
            cycle(&store, &mut rng, &mut held, || ());
        }
        let quarters = [(); 4].map(|()| {
            most_memory.store(0, Ordering::Relaxed);
            let mut quarter = Quarter::default();
            for _ in 0..cycles {
                cycle(&store, &mut rng, &mut held, || {
                    quarter.take_sample(path.as_ref());
                });
            }
            quarter.most_memory = most_memory.load(Ordering::Relaxed);
            for (what, samples, most) in [
                ("disk", &quarter.disk, most(&quarter.disk)),
                ("memory", &quarter.memory, quarter.most_memory),
            ] {
                let mean = mean(samples);
                println!(
                    "{what}: {} MiB on average, {} at most",
                    mean >> 20,
                    most >> 20
                );
            }
            quarter
        });
        has_ended.store(true, Ordering::Relaxed);
        quarters
    });
    store.close().unwrap();
    let [_, second, _, last] = &quarters;
    for (what, before, after) in [
        ("disk", &second.disk, &last.disk),
        ("memory", &second.memory, &last.memory),
    ] {
        let (before, after) = (mean(before), mean(after));
        let share = match cycles >= STEADY_CYCLES {
            true => DIFFERENCE_SHARE,
            false => UNSTEADY_SHARE,
        };
        let most = before + before / share + DIFFERENCE_BYTES;
        assert!(after <= most, "{what}: {before} to {after} bytes");
    }
    let bound = budget + budget / 4 + OTHER_BYTES + BATCH_BYTES as u64;
    for quarter in &quarters {
        let most = quarter.most_memory;
        assert!(budget == 0 || most <= bound, "{most} bytes of {bound}");
    }
}

fn check(budget: u64) {
    run_child(CHILD, PATH, (BUDGET, &budget.to_string()));
}

#[test]
fn churn_takes_no_more_in_the_end() {
    check(0);
}

#[test]
fn churn_within_a_budget_takes_no_more_in_the_end() {
    check(64 << 20);
}
