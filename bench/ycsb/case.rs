//! One combination of parameters.

use std::path::PathBuf;

use gphash::{Domain, Engine};

use crate::distribution::Law;
use crate::workload::Workload;

/// The parameters of one run.
#[derive(Clone)]
pub struct Case {
    pub workload: Workload,
    pub engine: Engine,
    pub domain: Domain,
    pub records: u64,
    /// Operations asked for; [`Case::operations`] says how many there are.
    pub wanted: u64,
    /// Operations in a batch.
    pub batch: usize,
    /// The law asked for, if any; [`Case::law`] says which one it is.
    pub chosen: Option<Law>,
    pub theta: f64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    pub cache_ratio: f64,
    /// Whether batches lie in device memory.
    pub on_device: bool,
    /// Threads that each issue batches.
    pub threads: usize,
    pub seed: u64,
    /// The index file, made and removed by the run.
    pub path: PathBuf,
}

impl Case {
    /// Operations of the run.
    pub fn operations(&self) -> u64 {
        self.workload.operations(self.records, self.wanted)
    }

    /// The law that records are drawn by.
    pub fn law(&self) -> Law {
        self.chosen.unwrap_or(match self.workload {
            Workload::D => Law::Latest,
            _ => Law::Zipfian,
        })
    }

    /// What distinguishes runs and has no column of its own.
    pub fn caption(&self) -> String {
        format!(
            "{} (theta {}), cache ratio {}, {} threads",
            self.law().name(),
            self.theta,
            self.cache_ratio,
            self.threads
        )
    }

    /// Items that the table holds in the end, at most.
    pub fn capacity(&self) -> u64 {
        self.records + self.workload.added(self.operations())
    }
}

/// Every one of `cases` with every one of `values`: a sweep over one more parameter.
pub fn sweep<T: Clone>(cases: Vec<Case>, values: &[T], set: impl Fn(&mut Case, T)) -> Vec<Case> {
    cases
        .iter()
        .flat_map(|case| {
            values.iter().map(|value| {
                let mut case = case.clone();
                set(&mut case, value.clone());
                case
            })
        })
        .collect()
}
