//! The store under YCSB and other workloads, and on request beside RocksDB and fjall.
//!
//! ```text
//! cargo bench --bench store -- --workload load,a,b,c,d,e,f --records 4000000
//! ```
//!
//! All stores are open at the same time, each in a directory of its own, and a workload runs on one
//! after the other before the next one does. Parameters that take several values, separated by
//! commas, sweep.

mod beside;
mod drive;
mod gphash;
mod partitioned;
#[cfg(feature = "bench-fjall")]
mod peers;
mod plot;
mod process;
mod record;
mod replay;
mod report;
mod target;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gphash_bench::workload::{distribution, store as plan};
use gphash_bench::{chart, status};
use mimalloc::MiMalloc;

use ::gphash::Engine;
use ::gphash::store::{Steps, StoreOptions};
use distribution::Law;
use drive::{Arrival, Measured};
use plan::{Draw, Operation, Workload};
use process::written;
use record::{LEAST_KEY, LEAST_VALUE, Sizes};
use report::{Report, Row, Shares};
use target::{Compacted, Failure, HotGets, Manner, Settings, Target};

/// One thread makes a request, another one drops it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A gphash store, RocksDB and fjall: throughput and latencies.
///
/// RocksDB takes the feature `bench-peers`, fjall that or `bench-fjall`. Parameters that take several
/// values, separated by commas, sweep.
#[derive(Parser)]
#[command(name = "store", version)]
struct Arguments {
    /// What to run; a load goes before all others, shown or not
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,c")]
    workload: Vec<Workload>,
    /// What to run it on [default: all that the build has]
    #[arg(long, value_enum, value_delimiter = ',')]
    store: Vec<Kind>,
    /// Records to load
    #[arg(long, value_name = "N", default_value = "1000000",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    records: u64,
    /// Operations to run; a load has as many as records, and no record is deleted twice
    #[arg(long, value_name = "N", default_value = "1000000",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    operations: u64,
    /// Operations in a batch; 1 for single requests that wait for their answers
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1000",
        value_parser = clap::value_parser!(u32).range(1..))]
    batch: Vec<u32>,
    /// Threads that issue batches or requests at the same time
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Operations that arrive in a second, whether those before are answered or not
    /// [default: each thread waits for its answer]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_rate)]
    rate: Vec<f64>,
    /// Which records are hot [default: latest for workload d, zipfian for all others]
    #[arg(long, value_enum)]
    distribution: Option<Law>,
    /// Skew of zipfian and latest, or share of the records in the hot spot, above 0 and below 1
    #[arg(long, value_name = "X", default_value = "0.99", value_parser = parse_theta)]
    theta: f64,
    /// Bytes of a key
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = parse_size::<LEAST_KEY, { 64 << 10 }>)]
    key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = parse_size::<LEAST_VALUE, { 1 << 30 }>)]
    value_size: usize,
    /// MiB that RocksDB and fjall may cache blocks in
    #[cfg(feature = "bench-fjall")]
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    cache: u64,
    /// MiB that each store may use for records, in place of `--cache`: the others half of it for blocks
    /// and half for what is not yet in files
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    memory_budget: Option<u64>,
    /// Who sorts the versions of large batches, for the store of this crate
    #[arg(long, value_enum, default_value = "auto")]
    engine: Processor,
    /// Reads do not compare the checksums of records, for the store of this crate
    #[arg(long)]
    no_checksums: bool,
    /// Batches go in columns of keys and of values, to the store of this crate
    #[arg(long)]
    columns: bool,
    /// Partitions of the store of this crate; else it chooses
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=StoreOptions::PARTITIONS_MAX.into()))]
    partitions: Option<u32>,
    /// Most requests that the store of this crate commits together; else it chooses
    #[arg(long, value_name = "N")]
    group_requests: Option<usize>,
    /// Threads that compact sorted files of the store of this crate; 0 for half of the cores
    #[arg(long, value_name = "N", default_value_t = 0)]
    compaction_threads: usize,
    /// MiB a second that compaction of the store of this crate may read and write; else as many as it can
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    compaction_rate: Option<u64>,
    /// Bytes of a value from which on the store of this crate keeps it in a value file; else it chooses
    #[arg(long, value_name = "N")]
    value_file_threshold: Option<usize>,
    /// MiB of the hot cache of the store of this crate; 0 for none
    #[arg(long, value_name = "MIB", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=1 << 20))]
    hot_cache: u64,
    /// Bins of the hot cache's model; else the store of this crate chooses
    #[arg(long, value_name = "N")]
    hot_bins: Option<u32>,
    /// Every answer is durable
    #[arg(long)]
    always: bool,
    /// Milliseconds from an answer until it is durable, at most
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 100,
        conflicts_with = "always"
    )]
    interval: u64,
    /// Measure instead how fast the log of the records is replayed, after the death of its process
    #[arg(long)]
    replay: bool,
    /// Measure instead single gets of `--threads` threads and puts of one, while another caller executes columns of
    /// these workloads, of the first `--batch` requests each; without and with `--hot-cache`, by the CPU and by `--engine`
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "replay")]
    beside: Vec<Workload>,
    /// Measure instead single puts of `--threads` threads into stores of 1 to 16 partitions, with groups of what has queued and
    /// without, of `--records` values of 128 bytes, and of fewer longer ones
    #[arg(long, conflicts_with_all = ["replay", "beside", "partitions", "group_requests"])]
    partitioned: bool,
    /// Seconds that each measurement of `--beside` takes, in whose middle other records become hot
    #[arg(long, value_name = "N", default_value = "6",
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Fill a store in this directory, and end without closing it
    #[arg(long, hide = true, value_name = "DIR")]
    abandon: Option<PathBuf>,
    /// Seed of the operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for the directories of the stores, which are removed afterwards
    /// [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Draw throughput and latencies into SVG files in this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Print how much of their time the steps of batches took
    #[arg(long)]
    steps: bool,
    /// Print a JSON object a line in place of the table
    #[arg(long)]
    json: bool,
    /// Cargo passes it to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Processor {
    Auto,
    Cpu,
    Cuda,
}

impl From<Processor> for Engine {
    fn from(processor: Processor) -> Self {
        match processor {
            Processor::Auto => Self::Auto,
            Processor::Cpu => Self::Cpu,
            Processor::Cuda => Self::Cuda { device: 0 },
        }
    }
}

/// Records in a batch of a load that is not measured.
const FILL_BATCH: usize = 1000;

/// A store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Gphash,
    /// RocksDB with a larger cache, Bloom filters, no compression, and else its defaults
    #[cfg(feature = "bench-peers")]
    Rocksdb,
    /// RocksDB tuned for data that fits into memory
    #[cfg(feature = "bench-peers")]
    RocksdbTuned,
    #[cfg(feature = "bench-fjall")]
    Fjall,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Gphash => "gphash",
            #[cfg(feature = "bench-peers")]
            Kind::Rocksdb => "rocksdb",
            #[cfg(feature = "bench-peers")]
            Kind::RocksdbTuned => "rocksdb-tuned",
            #[cfg(feature = "bench-fjall")]
            Kind::Fjall => "fjall",
        }
    }

    fn open(self, folder: &Path, settings: &Settings) -> Result<Box<dyn Runs>, Failure> {
        let path = folder.join(self.name());
        Ok(match self {
            Kind::Gphash => Box::new(gphash::Gphash::open(&path, settings)?),
            #[cfg(feature = "bench-peers")]
            Kind::Rocksdb => Box::new(peers::rocksdb::Rocks::open(&path, settings, false)?),
            #[cfg(feature = "bench-peers")]
            Kind::RocksdbTuned => Box::new(peers::rocksdb::Rocks::open(&path, settings, true)?),
            #[cfg(feature = "bench-fjall")]
            Kind::Fjall => Box::new(peers::fjall::Fjall::open(&path, settings)?),
        })
    }

    /// Workloads that it does not offer: the others have transactions in databases of another type
    /// only, and fjall has no merges.
    fn lacks(self) -> &'static [Workload] {
        match self {
            Kind::Gphash => &[],
            #[cfg(feature = "bench-peers")]
            Kind::Rocksdb | Kind::RocksdbTuned => &[Workload::Transaction],
            #[cfg(feature = "bench-fjall")]
            Kind::Fjall => &[Workload::Transaction, Workload::Merge],
        }
    }
}

/// A target of any type.
trait Runs {
    fn run(
        &self,
        plan: &[Vec<Operation>],
        batch: usize,
        manner: Manner,
        arrival: Arrival,
    ) -> Result<Measured, Failure>;

    fn settle(&self) -> Result<(), Failure>;

    fn options(&self) -> &str;
    fn memory(&self) -> Option<u64>;
    fn compacted(&self) -> Option<Compacted>;
    fn steps(&self) -> Option<Steps>;
    fn hot_gets(&self) -> Option<HotGets>;
}

impl<T: Target> Runs for T {
    fn run(
        &self,
        plan: &[Vec<Operation>],
        batch: usize,
        manner: Manner,
        arrival: Arrival,
    ) -> Result<Measured, Failure> {
        drive::drive(self, plan, batch, manner, arrival)
    }

    fn settle(&self) -> Result<(), Failure> {
        Target::settle(self)
    }

    fn options(&self) -> &str {
        Target::options(self)
    }

    fn memory(&self) -> Option<u64> {
        Target::memory(self)
    }

    fn compacted(&self) -> Option<Compacted> {
        Target::compacted(self)
    }

    fn steps(&self) -> Option<Steps> {
        Target::steps(self)
    }

    fn hot_gets(&self) -> Option<HotGets> {
        Target::hot_gets(self)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    status("store", run_all(&arguments))
}

fn run_all(arguments: &Arguments) -> Result<(), Failure> {
    let sizes = Sizes {
        key: arguments.key_size,
        value: arguments.value_size,
    };
    if let Some(path) = &arguments.abandon {
        return replay::abandon(path, arguments.records, arguments.partitions, sizes);
    }
    let parent = arguments.path.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("gphash-store-")
        .tempdir_in(&parent)
        .map_err(|error| format!("{}: {error}; choose another with --path", parent.display()))?;
    let doomed = folder.path().to_path_buf();
    ctrlc::set_handler(move || {
        // The process ends here, so nothing else can be done with an error.
        let _ = std::fs::remove_dir_all(&doomed);
        std::process::exit(130);
    })?;
    if arguments.replay {
        let path = folder.path().join("abandoned");
        let replayed = replay::measure(&path, arguments.records, arguments.partitions, sizes)?;
        return report::print_replayed(&replayed, arguments.json);
    }
    let settings = Settings {
        engine: arguments.engine.into(),
        checksums: !arguments.no_checksums,
        columns: arguments.columns,
        partitions: arguments.partitions,
        group_requests_max: arguments.group_requests,
        compaction_threads: arguments.compaction_threads,
        compaction_rate: arguments.compaction_rate.map(|mib| mib << 20),
        value_file_threshold: arguments.value_file_threshold,
        hot_cache: arguments.hot_cache << 20,
        hot_bins: arguments.hot_bins,
        always: arguments.always,
        interval: Duration::from_millis(arguments.interval),
        #[cfg(feature = "bench-fjall")]
        cache: arguments.cache << 20,
        budget: arguments.memory_budget.map(|mib| mib << 20),
        records: arguments.records,
        sizes,
    };
    if arguments.partitioned {
        let draw = Draw {
            workload: Workload::Load,
            law: None,
            theta: arguments.theta,
            records: arguments.records,
            added: 0,
            operations: arguments.operations,
            batch: 1,
            threads: arguments.threads[0].into(),
            seed: arguments.seed,
        };
        let places = (folder.path(), arguments.plots.as_deref());
        return partitioned::measure(&settings, &draw, places, arguments.json);
    }
    if !arguments.beside.is_empty() {
        let unsuited = arguments.beside.iter().find(|other| !other.suits_columns());
        if let Some(other) = unsuited {
            let name = other.name();
            return Err(format!("--beside: {name} does not go in columns again and again").into());
        }
        let plan = beside::Plan {
            settings: &Settings {
                columns: true,
                ..settings
            },
            others: &arguments.beside,
            batch: arguments.batch[0] as usize,
            threads: arguments.threads[0],
            took: Duration::from_secs(arguments.seconds.into()),
            theta: arguments.theta,
            seed: arguments.seed,
        };
        let places = (folder.path(), arguments.plots.as_deref());
        return beside::measure(&plan, places, arguments.json);
    }
    let kinds = match arguments.store.is_empty() {
        true => <Kind as clap::ValueEnum>::value_variants(),
        false => &arguments.store,
    };
    let stores = kinds
        .iter()
        .map(|kind| Ok((*kind, kind.open(folder.path(), &settings)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut runs = Runner {
        arguments,
        folder: folder.path(),
        settings: &settings,
        stores,
        report: Report::new(arguments.json, arguments.steps),
        is_filled: false,
        added: 0,
    };
    for (kind, store) in &runs.stores {
        runs.report.introduce(kind.name(), store.options())?;
    }
    if arguments.workload.first() != Some(&Workload::Load) {
        runs.fill()?;
    }
    for workload in &arguments.workload {
        for batch in &arguments.batch {
            for threads in &arguments.threads {
                runs.run(*workload, *batch as usize, *threads)?;
            }
        }
    }
    match &arguments.plots {
        Some(folder) => plot::draw(folder, runs.report.rows()),
        None => Ok(()),
    }
}

struct Runner<'a> {
    arguments: &'a Arguments,
    /// Where the directories of the stores are.
    folder: &'a Path,
    settings: &'a Settings,
    stores: Vec<(Kind, Box<dyn Runs>)>,
    report: Report,
    /// The stores hold records.
    is_filled: bool,
    /// Records that workloads have added.
    added: u64,
}

impl Runner<'_> {
    fn draw(&self, workload: Workload, batch: usize, threads: u16) -> Draw {
        Draw {
            workload,
            law: self.arguments.distribution,
            theta: self.arguments.theta,
            records: self.arguments.records,
            added: self.added,
            operations: self.arguments.operations,
            batch,
            threads: threads.into(),
            seed: self.arguments.seed,
        }
    }

    /// Replaces all stores by empty ones.
    fn empty(&mut self) -> Result<(), Failure> {
        for (kind, store) in std::mem::take(&mut self.stores) {
            drop(store);
            std::fs::remove_dir_all(self.folder.join(kind.name()))?;
            let store = kind.open(self.folder, self.settings)?;
            self.stores.push((kind, store));
        }
        self.added = 0;
        Ok(())
    }

    /// Puts all records into all stores.
    fn fill(&mut self) -> Result<(), Failure> {
        self.is_filled = true;
        let plan = self.draw(Workload::Load, FILL_BATCH, 1).operations();
        for (_, store) in &self.stores {
            store.run(&plan, FILL_BATCH, Manner::Batch, Arrival::Closed)?;
            store.settle()?;
        }
        Ok(())
    }

    fn run(&mut self, workload: Workload, batch: usize, threads: u16) -> Result<(), Failure> {
        let manner = match (workload, batch) {
            (Workload::Transaction, _) => Manner::Transaction,
            (_, 1) => Manner::Single,
            _ => Manner::Batch,
        };
        let mut arrivals: Vec<Arrival> = self
            .arguments
            .rate
            .iter()
            .copied()
            .map(Arrival::Open)
            .collect();
        if arrivals.is_empty() {
            arrivals.push(Arrival::Closed);
        }
        if matches!(workload, Workload::E | Workload::Range) {
            // The first range after an opening makes the ordered view.
            let first = [vec![Operation::Range(0, 1)]];
            for (_, store) in &self.stores {
                store.run(&first, 1, Manner::Single, Arrival::Closed)?;
            }
        }
        for arrival in arrivals {
            if workload == Workload::Load && std::mem::replace(&mut self.is_filled, true) {
                self.empty()?;
            }
            // What the runs before have added is not added again.
            let plan = self.draw(workload, batch, threads).operations();
            for (kind, store) in &self.stores {
                if kind.lacks().contains(&workload) {
                    continue;
                }
                let before = store.steps();
                let hot_before = store.hot_gets();
                let (compacted, written_before) = (store.compacted(), written());
                let measured = store.run(&plan, batch, manner, arrival)?;
                let after = store.steps();
                store.settle()?;
                self.report.add(Row {
                    store: kind.name(),
                    workload: workload.name(),
                    batch,
                    threads,
                    rate: match arrival {
                        Arrival::Closed => None,
                        Arrival::Open(rate) => Some(rate),
                    },
                    kops: measured.kops(),
                    p50_us: measured.percentile_us(50.0),
                    p99_us: measured.percentile_us(99.0),
                    p999_us: measured.percentile_us(99.9),
                    max_us: measured.percentile_us(100.0),
                    bytes: store.memory(),
                    written: written_before
                        .zip(written())
                        .map(|(before, after)| after - before),
                    compaction_mb_s: compacted.zip(store.compacted()).and_then(rate_of),
                    hot_hits: hot_before
                        .zip(store.hot_gets())
                        .and_then(|(before, after)| after.share_since(before)),
                    options: store.options().to_owned(),
                    shares: before
                        .zip(after)
                        .map(|(before, after)| Shares::of(&before, &after, measured.elapsed)),
                })?;
            }
            self.added += self.arguments.operations;
            if workload == Workload::Delete {
                self.fill()?;
            }
        }
        Ok(())
    }
}

/// MB a second that were compacted between two moments, if any were.
fn rate_of((before, after): (Compacted, Compacted)) -> Option<f64> {
    let seconds = (after.time - before.time).as_secs_f64();
    let bytes = after.bytes - before.bytes;
    (bytes > 0).then(|| bytes as f64 / 1e6 / seconds)
}

fn parse_theta(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(theta) if theta > 0.0 && theta < 1.0 => Ok(theta),
        _ => Err("expected a number above 0 and below 1".into()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate >= 1.0 => Ok(rate),
        _ => Err("expected a number from 1 on".into()),
    }
}

fn parse_size<const LEAST: usize, const MOST: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if (LEAST..=MOST).contains(&size) => Ok(size),
        _ => Err(format!("expected a number from {LEAST} to {MOST}")),
    }
}
