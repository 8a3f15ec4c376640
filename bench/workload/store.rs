//! What a run of the bench `store` does, as operations that are drawn before the clock starts.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::distribution::{Distribution, Law};

/// The core workloads of YCSB, and workloads of one verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Put all records into an empty store.
    Load,
    /// 50 % gets, 50 % puts.
    A,
    /// 95 % gets, 5 % puts.
    B,
    /// Gets.
    C,
    /// 95 % gets of the latest records, 5 % puts of new ones.
    D,
    /// 95 % ranges of 1 to 100 records, 5 % puts of new ones.
    E,
    /// 50 % gets, 50 % read-modify-writes.
    F,
    /// Puts of records that are there.
    Put,
    /// Gets of records that are not there.
    Absent,
    /// Merges that add to a counter in the value.
    Merge,
    /// Deletes of records that are there.
    Delete,
    /// Ranges of 100 records.
    Range,
    /// Transactions, one a batch: half gets, half puts of records that are there.
    Transaction,
}

/// Most records of a range.
const LONGEST_RANGE: u32 = 100;

/// Record numbers from here on belong to no record.
const ABSENT: u64 = 1 << 60;

/// One operation on a record.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Get(u64),
    /// A get that finds nothing.
    Miss(u64),
    Put(u64),
    /// A get and then a put.
    Modify(u64),
    Merge(u64),
    Delete(u64),
    /// So many records from the key of one on.
    Range(u64, u32),
}

impl Operation {
    /// How many records it concerns, at most.
    pub fn records(&self) -> usize {
        match self {
            Operation::Range(_, most) => *most as usize,
            _ => 1,
        }
    }
}

impl Workload {
    /// The name that is printed.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Whether it can be executed again and again, in columns.
    pub fn suits_columns(self) -> bool {
        !matches!(
            self,
            Workload::Load
                | Workload::D
                | Workload::E
                | Workload::Delete
                | Workload::Range
                | Workload::Transaction
        )
    }

    /// The law that records are drawn by unless another one is chosen.
    fn law(self) -> Law {
        match self {
            Workload::D => Law::Latest,
            _ => Law::Zipfian,
        }
    }
}

/// What operations are drawn from.
#[derive(Debug, Clone, Copy)]
pub struct Draw {
    pub workload: Workload,
    pub law: Option<Law>,
    pub theta: f64,
    /// Records that are there before.
    pub records: u64,
    /// Records that others have added since.
    pub added: u64,
    pub operations: u64,
    /// Operations in a batch.
    pub batch: usize,
    pub threads: usize,
    pub seed: u64,
}

impl Draw {
    /// The operations of each thread.
    pub fn operations(&self) -> Vec<Vec<Operation>> {
        if self.workload == Workload::Load {
            let load = |thread| self.share(self.records, thread).map(Operation::Put);
            return (0..self.threads)
                .map(|thread| load(thread).collect())
                .collect();
        }
        if self.workload == Workload::Delete {
            let deleted = self.operations.min(self.records);
            let delete = |thread| self.share(deleted, thread).map(Operation::Delete);
            return (0..self.threads)
                .map(|thread| delete(thread).collect())
                .collect();
        }
        let law = self.law.unwrap_or(self.workload.law());
        let distribution = Distribution::new(law, self.records, self.theta);
        (0..self.threads)
            .map(|thread| self.of_thread(thread, &distribution))
            .collect()
    }

    fn share(&self, total: u64, thread: usize) -> std::ops::Range<u64> {
        let place = |thread| {
            let place = u128::from(total) * thread as u128 / self.threads as u128;
            u64::try_from(place).expect("at most the total")
        };
        place(thread)..place(thread + 1)
    }

    fn of_thread(&self, thread: usize, distribution: &Distribution) -> Vec<Operation> {
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(thread as u64));
        let share = self.share(self.operations, thread);
        // Every thread adds records of its own, behind those that are there.
        let first_new = self.records + self.added + share.start;
        let mut added = 0;
        let mut before = 0;
        share
            .enumerate()
            .map(|(nth, _)| {
                // Peers read before they write, so the reads of a batch meet what earlier batches have added.
                if nth % self.batch == 0 {
                    before = added;
                }
                let other: f64 = random.random();
                let mut draw = || distribution.draw(&mut random, first_new, before);
                let mut add = || {
                    added += 1;
                    Operation::Put(first_new + added - 1)
                };
                match self.workload {
                    Workload::A if other < 0.5 => Operation::Put(draw()),
                    Workload::B if other < 0.05 => Operation::Put(draw()),
                    Workload::D | Workload::E if other < 0.05 => add(),
                    Workload::F if other < 0.5 => Operation::Modify(draw()),
                    Workload::E => {
                        let start = draw();
                        Operation::Range(start, random.random_range(1..=LONGEST_RANGE))
                    }
                    Workload::Transaction if other < 0.5 => Operation::Put(draw()),
                    Workload::Put => Operation::Put(draw()),
                    Workload::Absent => Operation::Miss(draw() + ABSENT),
                    Workload::Merge => Operation::Merge(draw()),
                    Workload::Range => Operation::Range(draw(), LONGEST_RANGE),
                    Workload::Load | Workload::Delete => {
                        unreachable!("their records are not drawn")
                    }
                    Workload::A
                    | Workload::B
                    | Workload::C
                    | Workload::D
                    | Workload::F
                    | Workload::Transaction => Operation::Get(draw()),
                }
            })
            .collect()
    }
}
