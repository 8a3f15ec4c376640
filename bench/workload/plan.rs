//! What a run does, as batches that are made before the clock starts.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::case::Case;
use super::distribution::Distribution;

/// The core workloads of YCSB, and the GPHash paper's workloads of one verb (§4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Insert all records into an empty table.
    Load,
    /// 50 % reads, 50 % updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// 50 % reads, 50 % read-modify-writes.
    F,
    /// Insert records that are not there.
    Insert,
    /// Update records that are there.
    Update,
    /// Remove records that are there.
    Delete,
    /// Read records that are there.
    Positive,
    /// Read records that are not there.
    Negative,
}

/// What the writing operations of a workload do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Insert,
    Update,
    /// A read of the same keys goes before.
    Modify,
    Remove,
}

impl Workload {
    /// The writing operation; workloads that only read have none that counts.
    pub fn write(self) -> Change {
        match self {
            Workload::Load | Workload::D | Workload::Insert => Change::Insert,
            Workload::F => Change::Modify,
            Workload::Delete => Change::Remove,
            _ => Change::Update,
        }
    }

    /// Share of the operations that only read.
    fn reads(self) -> f64 {
        match self {
            Workload::Load | Workload::Insert | Workload::Update | Workload::Delete => 0.0,
            Workload::A | Workload::F => 0.5,
            Workload::B | Workload::D => 0.95,
            Workload::C | Workload::Positive | Workload::Negative => 1.0,
        }
    }

    /// Operations of a run: a load is as long as the table, and nothing is removed twice.
    pub fn operations(self, records: u64, operations: u64) -> u64 {
        match self {
            Workload::Load => records,
            Workload::Delete => operations.min(records),
            _ => operations,
        }
    }

    /// Records that a run adds at most to the loaded ones.
    pub fn added(self, operations: u64) -> u64 {
        match self {
            Workload::Insert => operations,
            Workload::D => operations / 10,
            _ => 0,
        }
    }
}

/// A key of `W` 64-bit words; so are values.
pub type Words<const W: usize> = [u64; W];

/// The operations of one batch, verb by verb: first the reads go out, then the writes.
pub struct Batch<K> {
    /// Keys to read; those of a read-modify-write stand at the end.
    pub reads: Vec<K>,
    /// Keys to write.
    pub writes: Vec<K>,
}

impl<K> Batch<K> {
    /// Operations in the batch: a read-modify-write is one.
    pub fn operations(&self, write: Change) -> usize {
        match write {
            Change::Modify => self.reads.len(),
            _ => self.reads.len() + self.writes.len(),
        }
    }
}

/// The batches of each thread.
pub type Plan<K> = Vec<Vec<Batch<K>>>;

/// Batches that insert the first `records` records.
pub fn load<const W: usize>(records: u64, batch: usize, threads: usize) -> Plan<Words<W>> {
    (0..threads)
        .map(|thread| {
            let (first, last) = share(records, threads, thread);
            let numbers: Vec<u64> = (first..last).collect();
            writes_only(&numbers, batch)
        })
        .collect()
}

/// Batches of the case's workload on a loaded table.
pub fn plan<const W: usize>(case: &Case) -> Plan<Words<W>> {
    let distribution = Distribution::new(case.law(), case.records, case.theta);
    (0..case.threads)
        .map(|thread| {
            let (first, last) = share(case.operations(), case.threads, thread);
            let random = SmallRng::seed_from_u64(case.seed.wrapping_add(thread as u64));
            match case.workload {
                Workload::Delete => removals(case, thread, last - first, random),
                _ => mixed(case, &distribution, first, last - first, random),
            }
        })
        .collect()
}

fn mixed<const W: usize>(
    case: &Case,
    distribution: &Distribution,
    first: u64,
    operations: u64,
    mut random: SmallRng,
) -> Vec<Batch<Words<W>>> {
    let reads = case.workload.reads();
    let write = case.workload.write();
    // Every thread adds records of its own, behind the loaded ones.
    let first_new = case.records + first;
    let mut inserted = 0;
    let mut batches = Vec::new();
    let mut left = operations;
    while left > 0 {
        let size = left.min(case.batch as u64);
        let mut batch = Batch {
            reads: Vec::new(),
            writes: Vec::new(),
        };
        // Reads go first, so they can only meet what earlier batches have inserted.
        let before = inserted;
        for _ in 0..size {
            let read = reads >= 1.0 || random.random::<f64>() < reads;
            if !read && write == Change::Insert {
                batch.writes.push(key(first_new + inserted));
                inserted += 1;
                continue;
            }
            let mut record = distribution.draw(&mut random, first_new, before);
            if case.workload == Workload::Negative {
                record += ABSENT;
            }
            if read {
                batch.reads.push(key(record));
            } else {
                batch.writes.push(key(record));
            }
        }
        if write == Change::Modify {
            batch.reads.extend_from_slice(&batch.writes);
        }
        batches.push(batch);
        left -= size;
    }
    batches
}

fn removals<const W: usize>(
    case: &Case,
    thread: usize,
    operations: u64,
    mut random: SmallRng,
) -> Vec<Batch<Words<W>>> {
    let (first, last) = share(case.records, case.threads, thread);
    let mut numbers: Vec<u64> = (first..last).collect();
    numbers.shuffle(&mut random);
    numbers.truncate(usize::try_from(operations).unwrap_or(usize::MAX));
    writes_only(&numbers, case.batch)
}

fn writes_only<const W: usize>(numbers: &[u64], batch: usize) -> Vec<Batch<Words<W>>> {
    numbers
        .chunks(batch)
        .map(|chunk| Batch {
            reads: Vec::new(),
            writes: chunk.iter().map(|number| key(*number)).collect(),
        })
        .collect()
}

/// Where the share of `thread` begins and ends.
fn share(total: u64, threads: usize, thread: usize) -> (u64, u64) {
    let place = |thread| {
        let place = u128::from(total) * thread as u128 / threads as u128;
        u64::try_from(place).expect("at most the total")
    };
    (place(thread), place(thread + 1))
}

/// Record numbers from here on belong to no record.
const ABSENT: u64 = 1 << 60;

/// The key of a record: the finalizer of SplitMix64, which is one to one, so that no two records
/// share a key; further words differ from each other.
pub fn key<const W: usize>(record: u64) -> Words<W> {
    let mut word = record.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    std::array::from_fn(|position| word.wrapping_add(position as u64))
}
