//! What a workload runs against.

use std::time::Duration;

use gphash::Engine;
use gphash::store::Steps;

use crate::plan::Operation;
use crate::record::Sizes;

pub use gphash_bench::workload::target::Failure;

/// How a store is opened, the same for all.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Who sorts large batches of the store of this crate.
    pub engine: Engine,
    /// Reads of the store of this crate compare checksums.
    pub checksums: bool,
    /// Batches go to the store of this crate in columns.
    pub columns: bool,
    /// Partitions of the store of this crate, if it does not choose.
    pub partitions: Option<u32>,
    /// Most requests that the store of this crate commits together, if it does not choose.
    pub group_requests_max: Option<usize>,
    /// Threads that compact sorted files of the store of this crate, if it does not choose.
    pub compaction_threads: usize,
    /// Bytes a second that compaction of the store of this crate may read and write, if they are bounded.
    pub compaction_rate: Option<u64>,
    /// Bytes of values that the store of this crate keeps apart from their keys, if it does not choose.
    pub value_file_threshold: Option<usize>,
    /// Bytes of the hot cache of the store of this crate, and bins of its model, if it does not choose.
    pub hot_cache: u64,
    pub hot_bins: Option<u32>,
    /// Every answer is durable; else a thread syncs the log at this interval.
    pub always: bool,
    pub interval: Duration,
    /// Bytes that a cache of blocks may have; the store of this crate has none.
    #[cfg(feature = "bench-fjall")]
    pub cache: u64,
    /// Bytes that a store may use for records, if not all of them should stay in memory.
    pub budget: Option<u64>,
    /// Records that will be there.
    pub records: u64,
    pub sizes: Sizes,
}

impl Settings {
    /// How durable answers are, for people.
    pub fn durability(&self) -> String {
        match self.always {
            true => "synced before each answer".into(),
            false => format!("synced every {} ms", self.interval.as_millis()),
        }
    }
}

/// What compaction has done.
#[derive(Debug, Clone, Copy)]
pub struct Compacted {
    /// Bytes of files, read and written.
    pub bytes: u64,
    pub time: Duration,
}

/// Sampled gets so far.
#[derive(Debug, Clone, Copy)]
pub struct HotGets {
    /// Those that the hot cache has answered.
    pub hits: u64,
    pub all: u64,
}

impl HotGets {
    /// Percentage of the gets since a moment that the hot cache has answered, if there were any.
    pub fn share_since(self, before: Self) -> Option<f64> {
        let all = self.all - before.all;
        (all > 0).then(|| 100.0 * (self.hits - before.hits) as f64 / all as f64)
    }
}

/// How the operations of a batch go to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Together.
    Batch,
    /// One by one, each waiting for its answer.
    Single,
    /// As one transaction.
    Transaction,
}

/// A store under test.
pub trait Target: Sync {
    /// The calls of one batch, made before the clock starts.
    type Calls: Send;
    /// What they have answered, looked at after the clock has stopped.
    type Answers: Send;

    /// Makes the calls for operations.
    fn prepare(&self, operations: &[Operation], manner: Manner) -> Self::Calls;

    /// Executes them.
    fn execute(&self, calls: Self::Calls) -> Result<Self::Answers, Failure>;

    /// Fails if the answers are not those to the operations.
    fn check(&self, operations: &[Operation], answers: Self::Answers) -> Result<(), Failure>;

    /// What it was opened with, for people.
    fn options(&self) -> &str;

    /// Waits until what was written does no more work in the background.
    fn settle(&self) -> Result<(), Failure>;

    /// Bytes of memory that the store says it uses for records, if it does.
    fn memory(&self) -> Option<u64>;

    /// What was compacted so far, if the store says so.
    fn compacted(&self) -> Option<Compacted> {
        None
    }

    /// Gets so far, if the store has a hot cache.
    fn hot_gets(&self) -> Option<HotGets> {
        None
    }

    /// What the steps of batches have taken so far, if the store says so.
    fn steps(&self) -> Option<Steps> {
        None
    }
}

/// Fails if these are not the answers to operations: values of records in the order in which they
/// were asked for, and how many records each range gave.
pub fn check_answers<'a>(
    operations: &[Operation],
    sizes: &Sizes,
    values: impl IntoIterator<Item = Option<&'a [u8]>>,
    ranges: impl IntoIterator<Item = usize>,
) -> Result<(), Failure> {
    let (mut values, mut ranges) = (values.into_iter(), ranges.into_iter());
    for operation in operations {
        match operation {
            Operation::Get(record) | Operation::Modify(record) => {
                let value = values.next().ok_or("a get was not answered")?;
                sizes.check(*record, value)?;
            }
            Operation::Miss(record) => {
                let value = values.next().ok_or("a get was not answered")?;
                if value.is_some() {
                    return Err(format!("record {record} is there").into());
                }
            }
            Operation::Range(_, most) => {
                let found = ranges.next().ok_or("a range was not answered")?;
                if found == 0 || found > *most as usize {
                    return Err(format!("a range of {most} gave {found} records").into());
                }
            }
            _ => {}
        }
    }
    Ok(())
}
