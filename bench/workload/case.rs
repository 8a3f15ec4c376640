//! One combination of parameters.

use std::path::PathBuf;

use clap::ValueEnum;
use gphash::{AddressOrder, CachePolicy, Domain, Engine, Options};

use super::distribution::Law;
use super::plan::Workload;

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
    /// Whether records have checksums.
    pub checksums: bool,
    /// Whether lookups compare them.
    pub verify_checksums: bool,
    pub cache_ratio: f64,
    pub cache_policy: CachePolicy,
    pub address_order: AddressOrder,
    /// Whether the buckets are copied to device memory.
    pub mirror: bool,
    /// Whether batches lie in device memory.
    pub on_device: bool,
    /// Lookups before what is measured, for the bucket cache to learn from.
    pub warm_up: u64,
    /// Whether the bucket cache is loaded again and again beside what is measured.
    pub reload_during: bool,
    /// Whether the values of batches in host memory are pinned (engine cuda).
    pub pinned: bool,
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
        let law = name(self.law());
        format!("{law} (theta {}), {}", self.theta, self.making())
    }

    /// How the index is made and run, as far as that can be chosen.
    pub fn making(&self) -> String {
        let cache = match self.cache_ratio {
            0.0 => "no cache".into(),
            ratio => format!("cache ratio {ratio} {:?}", self.cache_policy),
        };
        let checksums = match (self.checksums, self.verify_checksums) {
            (false, _) => "",
            (true, false) => "checksums, ",
            (true, true) => "checksums verified, ",
        };
        format!(
            "{cache}, address order {:?}, {}{}{} threads",
            self.address_order,
            if self.mirror { "" } else { "no mirror, " },
            checksums,
            self.threads
        )
    }

    /// The lookups that warm the cache up: reads drawn as the workload draws.
    pub fn warming(&self) -> Option<Case> {
        let workload = match self.workload {
            Workload::Load => return None,
            Workload::Negative => Workload::Negative,
            _ => Workload::C,
        };
        let cached = self.cache_ratio > 0.0 && self.warm_up > 0;
        cached.then(|| Case {
            workload,
            wanted: self.warm_up,
            chosen: Some(self.law()),
            seed: self.seed ^ 1 << 63,
            ..self.clone()
        })
    }

    /// Items that the table holds in the end, at most.
    pub fn capacity(&self) -> u64 {
        self.records + self.workload.added(self.operations())
    }

    /// How the index is made and opened.
    pub fn options(&self) -> Options {
        Options::new()
            .capacity(self.capacity())
            .engine(self.engine)
            .domain(self.domain)
            .checksums(self.checksums)
            .verify_checksums(self.verify_checksums)
            .cache_ratio(self.cache_ratio)
            .device_mirror(self.mirror)
            .address_order(self.address_order)
            .cache_policy(self.cache_policy)
            // Loads are part of what is run, and come when it says so.
            .cache_period(None)
            // The callers are the threads; more of them would only share their cores.
            .threads(1)
    }
}

/// The name of a choice on the command line.
pub fn name(choice: impl ValueEnum) -> String {
    choice
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_string())
}
