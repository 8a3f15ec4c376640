//! YCSB on an index file, and on request on its peers.
//!
//! ```text
//! cargo bench --bench ycsb -- --workload load,a,c --records 4000000 --peers
//! ```
//!
//! A run makes an index, loads the records, and then executes the workload in batches of
//! operations that were drawn before the clock starts. A batch of a mixed workload is one call
//! for each verb, reads first. Parameters that take several values, separated by commas, sweep.
//!
//! Batches in device memory (`--device-slices`) are issued back to back on one stream a thread, and
//! the time is that from the first call to the end of the stream; the latency of a batch is that
//! between the events before and behind it.

mod peers;
mod report;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use gphash::{AddressOrder, CachePolicy, Domain, Engine};
use gphash_bench::{status, workload};

use workload::case::Case;
use workload::distribution::Law;
use workload::plan::Workload;
use workload::sizes::{KEY_SIZES, sizes};
use workload::target::Failure;

/// YCSB on a gphash index: throughput, batch latencies, load factor and PM touches.
///
/// Parameters that take several values, separated by commas, sweep.
#[derive(Parser)]
#[command(name = "ycsb", version)]
struct Arguments {
    /// Processors that execute the batches: cpu, cuda, cuda:N or auto
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    engine: Vec<Engine>,
    /// What to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "c")]
    workload: Vec<Workload>,
    /// Records to load
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4000000",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    records: Vec<u64>,
    /// Operations to run; a load has as many as records, and no record is deleted twice
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4000000",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    operations: Vec<u64>,
    /// Operations in a batch
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4096",
        value_parser = clap::value_parser!(u32).range(1..))]
    batch: Vec<u32>,
    /// Which records are hot [default: latest for workload d, zipfian for all others]
    #[arg(long, value_enum, value_delimiter = ',')]
    distribution: Vec<Law>,
    /// Skew of zipfian and latest, above 0 and below 1
    #[arg(long, value_name = "X", value_delimiter = ',', default_value = "0.99",
        value_parser = parse_theta)]
    theta: Vec<f64>,
    /// Bytes of a key
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8",
        value_parser = sizes(KEY_SIZES))]
    key_size: Vec<usize>,
    /// Bytes of a value
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "128",
        value_parser = sizes(run::VALUE_SIZES))]
    value_size: Vec<usize>,
    /// Keep a checksum beside each value
    #[arg(long)]
    checksums: bool,
    /// Compare the checksums in lookups
    #[arg(long, requires = "checksums")]
    verify_checksums: bool,
    /// Share of the buckets that the bucket cache in device memory may hold
    #[arg(long, value_name = "X", value_delimiter = ',', default_value = "0.2")]
    cache_ratio: Vec<f64>,
    /// Which buckets a load of the bucket cache takes: lfu, lru or random
    #[arg(long, default_value = "lfu")]
    cache_policy: CachePolicy,
    /// Lookups before what is measured, for the bucket cache to learn from; 0 for none
    /// [default: as many as operations]
    #[arg(long, value_name = "N")]
    warm_up: Option<u64>,
    /// Load the bucket cache again and again beside what is measured
    #[arg(long)]
    reload_during: bool,
    /// Which batches are put in the order of the places they touch (engine cuda): auto, always or
    /// never
    #[arg(long, default_value = "auto")]
    address_order: AddressOrder,
    /// Probe the file, not a copy of its buckets in device memory (engine cuda)
    #[arg(long)]
    no_mirror: bool,
    /// Persistence domain: auto, dax, shared or checkpointed
    #[arg(long, default_value = "auto")]
    domain: Domain,
    /// Values in host memory are pinned, so that the device reaches them (engine cuda)
    #[arg(long)]
    pinned: bool,
    /// Batches lie in device memory, so that nothing crosses to the host and back (engine cuda)
    #[arg(long)]
    device_slices: bool,
    /// Threads that issue batches at the same time
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Run papaya (volatile) and redb (durable at each batch) too, and print how many times as
    /// fast gphash is
    #[arg(long)]
    peers: bool,
    /// Seed of the operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Index file to make for each run and to remove after it; must not exist. A temporary file
    /// in memory without it
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// Print a JSON object a line in place of the table
    #[arg(long)]
    json: bool,
    /// Cargo passes it to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    status("ycsb", run_all(&arguments))
}

fn run_all(arguments: &Arguments) -> Result<(), Failure> {
    let folder = temporary_folder(arguments)?;
    let path = match (&arguments.path, &folder) {
        (Some(path), _) => path.clone(),
        (None, Some(folder)) => folder.path().join("records.gph"),
        (None, None) => return Err("no place for the index file; choose one with --path".into()),
    };
    let cases = cases(arguments, &path);
    if !arguments.json {
        report::print_head();
    }
    let mut caption = String::new();
    for case in &cases {
        let its_caption = case.caption();
        if !arguments.json && its_caption != caption {
            report::print_caption(&its_caption);
            caption = its_caption;
        }
        run::run(case, arguments.peers, arguments.json)?;
    }
    Ok(())
}

/// A folder that goes with its value, or when the process is interrupted.
fn temporary_folder(arguments: &Arguments) -> Result<Option<tempfile::TempDir>, Failure> {
    if arguments.path.is_some() {
        return Ok(None);
    }
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let folder = tempfile::Builder::new()
        .prefix("gphash-ycsb-")
        .tempdir_in(&parent)
        .map_err(|error| format!("{}: {error}; choose a file with --path", parent.display()))?;
    let doomed = folder.path().to_path_buf();
    ctrlc::set_handler(move || {
        // The process ends here, so nothing else can be done with an error.
        let _ = std::fs::remove_dir_all(&doomed);
        std::process::exit(130);
    })?;
    Ok(Some(folder))
}

fn cases(arguments: &Arguments, path: &Path) -> Vec<Case> {
    let mut laws: Vec<Option<Law>> = arguments.distribution.iter().copied().map(Some).collect();
    if laws.is_empty() {
        laws.push(None);
    }
    let first = Case {
        workload: Workload::C,
        engine: Engine::Auto,
        domain: arguments.domain,
        records: 0,
        wanted: 0,
        batch: 0,
        chosen: None,
        theta: 0.0,
        key_size: 0,
        value_size: 0,
        checksums: arguments.checksums,
        verify_checksums: arguments.verify_checksums,
        cache_ratio: 0.0,
        cache_policy: arguments.cache_policy,
        address_order: arguments.address_order,
        mirror: !arguments.no_mirror,
        warm_up: 0,
        reload_during: arguments.reload_during,
        pinned: arguments.pinned,
        on_device: arguments.device_slices,
        threads: arguments.threads.into(),
        seed: arguments.seed,
        path: path.to_path_buf(),
    };
    let cases = sweep(vec![first], &arguments.key_size, |case, size| {
        case.key_size = size
    });
    let cases = sweep(cases, &arguments.value_size, |case, size| {
        case.value_size = size
    });
    let cases = sweep(cases, &arguments.records, |case, records| {
        case.records = records
    });
    let cases = sweep(cases, &arguments.operations, |case, wanted| {
        case.wanted = wanted;
        case.warm_up = arguments.warm_up.unwrap_or(wanted);
    });
    let cases = sweep(cases, &laws, |case, law| case.chosen = law);
    let cases = sweep(cases, &arguments.theta, |case, theta| case.theta = theta);
    let cases = sweep(cases, &arguments.cache_ratio, |case, ratio| {
        case.cache_ratio = ratio
    });
    let cases = sweep(cases, &arguments.workload, |case, workload| {
        case.workload = workload
    });
    let cases = sweep(cases, &arguments.batch, |case, batch| {
        case.batch = batch as usize
    });
    sweep(cases, &arguments.engine, |case, engine| {
        case.engine = engine
    })
}

/// Every one of `cases` with every one of `values`: a sweep over one more parameter.
fn sweep<T: Clone>(cases: Vec<Case>, values: &[T], set: impl Fn(&mut Case, T)) -> Vec<Case> {
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

fn parse_theta(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(theta) if theta > 0.0 && theta < 1.0 => Ok(theta),
        _ => Err("expected a number above 0 and below 1".into()),
    }
}
