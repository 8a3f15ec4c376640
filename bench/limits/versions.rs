//! How long the versions of a batch of the store take to be sorted and found, by the GPU and by the
//! CPU's threads. Half of the requests are changes, each key has two of them.

use std::time::{Duration, Instant};

use gphash::{Quota, VersionSorter};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use crate::report::{Finding, Report};
use crate::workload::target::Failure;

/// Requests of a batch.
const BATCHES: [usize; 2] = [1 << 16, 1 << 20];

/// Batches of which the fastest counts.
const TURNS: usize = 10;

/// A change: its hash and its position.
type Change = (u64, u32);

/// Measures both.
pub fn measure(device: u32, report: &mut Report) -> Result<(), Failure> {
    let sorter = VersionSorter::open(device, &Quota::unbounded())?;
    report.step("versions of batches of the store");
    for requests in BATCHES {
        let mut random = SmallRng::seed_from_u64(requests as u64);
        let keys: Vec<u64> = (0..requests / 4).map(|_| random.random()).collect();
        let hashes: Vec<u64> = (0..requests)
            .map(|_| keys[random.random_range(0..keys.len())])
            .collect();
        let changes: Vec<u32> = (0..u32::try_from(requests)?).step_by(2).collect();
        let on_gpu = fastest(|| on_gpu(&sorter, &hashes, &changes))?;
        let on_cpu = fastest(|| Ok(on_cpu(&hashes, &changes)))?;
        for (what, took) in [("GPU", on_gpu), ("CPU", on_cpu)] {
            report.add(Finding::Figure {
                what: format!("{what}, versions of {requests} requests"),
                value: took.as_secs_f64() * 1e6,
                unit: "us",
            });
        }
    }
    Ok(())
}

/// The shortest of some times, the first left out, in which memory is found.
fn fastest(mut turn: impl FnMut() -> Result<Duration, Failure>) -> Result<Duration, Failure> {
    turn()?;
    let mut shortest = Duration::MAX;
    for _ in 0..TURNS {
        shortest = shortest.min(turn()?);
    }
    Ok(shortest)
}

/// From hashes in pinned memory to answers there.
fn on_gpu(sorter: &VersionSorter, hashes: &[u64], changes: &[u32]) -> Result<Duration, Failure> {
    let mut batch = sorter.batch(hashes.len())?;
    let (to_hashes, to_changes) = batch.operands();
    to_hashes.copy_from_slice(hashes);
    to_changes[..changes.len()].copy_from_slice(changes);
    let began = Instant::now();
    batch.sort(changes.len())?;
    Ok(began.elapsed())
}

fn on_cpu(hashes: &[u64], changes: &[u32]) -> Duration {
    let began = Instant::now();
    let change = |&position: &u32| (hashes[position as usize], position);
    let mut sorted: Vec<Change> = changes.par_iter().map(change).collect();
    sorted.par_sort_unstable();
    let before = |(position, &hash): (usize, &u64)| {
        let position = u32::try_from(position).unwrap();
        let older = sorted.partition_point(|&change| change < (hash, position));
        match older.checked_sub(1) {
            Some(newest) if sorted[newest].0 == hash => u32::try_from(newest).unwrap(),
            _ => u32::MAX,
        }
    };
    let before: Vec<u32> = hashes.par_iter().enumerate().map(before).collect();
    std::hint::black_box(before);
    began.elapsed()
}
