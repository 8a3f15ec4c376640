//! What the machine can do at most, and what the index makes of it, in one run.
//!
//! ```text
//! cargo bench --features cust --bench limits -- --plots figures   # without a GPU: no feature
//! ```
//!
//! First the limits: bandwidths, latencies, and accesses to random places of host memory in a file
//! that is mapped as the index maps its own, by the GPU in batches of several sizes and orders, or
//! by the CPU's threads where there is no GPU. Then the index on the same machine: every workload
//! beside its limit, caches of different sizes, recovery, and growth.

mod cpu;
#[cfg(feature = "cust")]
mod gpu;
mod growth;
mod index;
mod kind;
#[cfg(feature = "cust")]
mod launch;
mod places;
mod plot;
mod region;
mod report;
#[cfg(feature = "cust")]
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use gphash::{AddressOrder, CachePolicy, Engine, Index, Options};
#[cfg(feature = "cust")]
use gphash_bench::order;
use gphash_bench::{chart, limit, status, workload};

use cpu::Cpu;
use index::Setting;
use kind::Limit;
use places::Layout;
use region::{Region, room};
use report::{Finding, Report};
use workload::sizes::{KEY_SIZES, sizes};
use workload::target::Failure;

/// The limits of this machine, and the index beside them.
#[derive(Parser)]
#[command(name = "limits", version)]
struct Arguments {
    /// Who is measured: cpu, cuda, cuda:N or auto
    #[arg(long, default_value = "auto")]
    engine: Engine,
    /// Items of the table [default: 16000000 on a GPU, 4000000 on a CPU; a quarter with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1 << 16..=1 << 32))]
    records: Option<u64>,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = sizes(KEY_SIZES))]
    key_size: usize,
    /// Operations in a batch [default: 6 sizes from 1024 to 1048576; 3 with --quick]
    #[arg(long, value_name = "N", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(64..=1 << 24))]
    batch: Vec<u32>,
    /// Share of the buckets that the bucket cache in device memory may hold
    #[arg(long, value_name = "X", default_value_t = 0.2)]
    cache_ratio: f64,
    /// Which buckets a load of the bucket cache takes: lfu, lru or random
    #[arg(long, default_value = "lfu")]
    cache_policy: CachePolicy,
    /// Which batches are put in the order of the places they touch: auto, always or never
    #[arg(long, default_value = "auto")]
    address_order: AddressOrder,
    /// Probe the file, not a copy of its buckets in device memory
    #[arg(long)]
    no_mirror: bool,
    /// Measure less
    #[arg(long)]
    quick: bool,
    /// Measure the machine only
    #[arg(long)]
    machine_only: bool,
    /// Write figures into this folder, as SVG, and all results as JSON (results.jsonl)
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// Print a JSON object a line in place of tables
    #[arg(long)]
    json: bool,
    /// Fill a table and end without closing it
    #[arg(long, value_name = "FILE", hide = true)]
    abandon: Option<PathBuf>,
    /// Cargo passes it to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    status("limits", run(&Arguments::parse()))
}

/// What is measured.
struct Scope<const K: usize> {
    setting: Setting<K>,
    batches: Vec<usize>,
    /// Those of loads, each of which takes a new table, and of random places in all regions.
    few_batches: Vec<usize>,
    /// Bytes that random places are spread over.
    regions: Vec<u64>,
    /// Shares of the buckets that the cache may hold.
    cache_ratios: Vec<f64>,
    /// Items of the tables that crash and grow.
    sizes: Vec<u64>,
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    match arguments.key_size {
        8 => with_key::<1>(arguments),
        16 => with_key::<2>(arguments),
        32 => with_key::<4>(arguments),
        64 => with_key::<8>(arguments),
        128 => with_key::<16>(arguments),
        size => Err(format!("keys of {size} bytes; there are {KEY_SIZES:?}").into()),
    }
}

fn with_key<const K: usize>(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(folder) = &arguments.plots {
        std::fs::create_dir_all(folder)?;
    }
    if let Some(path) = &arguments.abandon {
        let folder = path.parent().unwrap_or(path);
        let setting = scope::<K>(arguments, arguments.engine, folder)?.setting;
        let path = path.clone();
        return growth::abandon(&Setting { path, ..setting });
    }
    let folder = temporary_folder()?;
    let mut report = Report::new(arguments.json);
    let engine = engine(arguments.engine, folder.path(), &mut report)?;
    let scope = scope::<K>(arguments, engine, folder.path())?;
    let batches = scope.batches.len();
    report.expect(machine_steps(&scope));
    if !arguments.machine_only {
        report.expect(
            index::steps(scope.few_batches.len(), batches)
                + scope.cache_ratios.len()
                + 2 * scope.sizes.len(),
        );
    }
    report.add(Finding::Machine {
        what: "table",
        found: scope.setting.caption(),
    });
    let limits = measure_machine(&scope, folder.path(), &mut report)?;
    if !arguments.machine_only {
        index::measure(
            &scope.setting,
            &scope.few_batches,
            &scope.batches,
            &limits,
            &mut report,
        )?;
        let middle = scope.batches[batches / 2];
        index::by_cache(&scope.setting, &scope.cache_ratios, middle, &mut report)?;
        std::fs::remove_file(&scope.setting.path)?;
        growth::measure(&scope.setting, &scope.sizes, &mut report)?;
    }
    report.finish();
    if let Some(folder) = &arguments.plots {
        std::fs::write(folder.join("results.jsonl"), report.as_json())?;
        plot::all(&report.findings, &limits, folder)?;
    }
    Ok(())
}

/// The engine that a table has on this machine; never `Auto`.
fn engine(wanted: Engine, folder: &Path, report: &mut Report) -> Result<Engine, Failure> {
    let path = folder.join("probe.gph");
    let options = Options::new().engine(wanted);
    let engine = Index::<u64, u64>::create(&path, &options)?.stats().engine;
    std::fs::remove_file(&path)?;
    let found = match (engine, wanted, cfg!(feature = "cust")) {
        (Engine::Cpu, Engine::Auto, true) => "cpu: this machine has no GPU that can be used".into(),
        (Engine::Cpu, Engine::Auto, false) => "cpu: built without the feature `cust`".into(),
        (engine, ..) => engine.to_string(),
    };
    report.add(Finding::Machine {
        what: "engine",
        found,
    });
    Ok(engine)
}

fn scope<const K: usize>(
    arguments: &Arguments,
    engine: Engine,
    folder: &Path,
) -> Result<Scope<K>, Failure> {
    let on_gpu = matches!(engine, Engine::Cuda { .. });
    let cores = std::thread::available_parallelism()?.get();
    let usual = if on_gpu { 16_000_000 } else { 4_000_000 };
    let records = match (arguments.records, arguments.quick) {
        (Some(records), _) => records,
        (None, true) => usual / 4,
        (None, false) => usual,
    };
    let few = vec![1 << 12, 1 << 16, 1 << 20];
    let batches: Vec<usize> = match (arguments.batch.is_empty(), arguments.quick) {
        (false, _) => arguments
            .batch
            .iter()
            .map(|&batch| batch as usize)
            .collect(),
        (true, true) => few.clone(),
        (true, false) => (10..=20).step_by(2).map(|bits| 1 << bits).collect(),
    };
    // As much again may lie beside the region: the rest of the table.
    let most = room(folder)?;
    let table = Layout {
        records,
        key_size: 8 * K as u64,
    };
    let own = own_region(table);
    if own > most {
        return Err(format!(
            "{records} records take {} MiB, and {} MiB may be used; choose fewer with --records",
            own >> 20,
            most >> 20
        )
        .into());
    }
    let regions: &[u64] = if arguments.quick {
        &[1 << 28, 1 << 30]
    } else {
        &[1 << 28, 1 << 30, 1 << 31, 1 << 32, 1 << 33]
    };
    let regions = regions.iter().copied().filter(|region| *region <= most);
    let cache_ratios: &[f64] = match (on_gpu, arguments.quick) {
        (false, _) => &[],
        (true, true) => &[0.0, 0.1, 0.2, 0.5],
        (true, false) => &[0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7],
    };
    let parts = if arguments.quick {
        [4, 2, 1].as_slice()
    } else {
        &[16, 8, 4, 2, 1]
    };
    let mut sizes: Vec<u64> = parts
        .iter()
        .map(|part| (records / part).max(1 << 17))
        .collect();
    sizes.dedup();
    Ok(Scope {
        setting: Setting {
            engine,
            on_device: on_gpu,
            threads: if on_gpu { 1 } else { cores },
            records,
            cache_ratio: arguments.cache_ratio,
            cache_policy: arguments.cache_policy,
            address_order: arguments.address_order,
            mirror: !arguments.no_mirror,
            path: folder.join("records.gph"),
        },
        few_batches: if arguments.batch.is_empty() {
            few
        } else {
            batches.clone()
        },
        batches,
        regions: regions.collect(),
        cache_ratios: cache_ratios.to_vec(),
        sizes,
    })
}

/// Bytes of the records and buckets of a table, at least what bandwidths are measured in.
fn own_region(table: Layout) -> u64 {
    (table.records_len() + table.buckets_len()).max(1 << 30)
}

fn machine_steps<const K: usize>(scope: &Scope<K>) -> usize {
    match scope.setting.engine {
        Engine::Cuda { .. } => {
            3 + scope.few_batches.len() * scope.regions.len() + scope.batches.len()
        }
        _ => 1 + Cpu::steps(scope.regions.len()),
    }
}

/// The machine's figures, and the limits of the table that follow from them.
fn measure_machine<const K: usize>(
    scope: &Scope<K>,
    folder: &Path,
    report: &mut Report,
) -> Result<Vec<Limit>, Failure> {
    let table = scope.setting.layout();
    let largest = scope.regions.iter().copied().max().unwrap_or(0);
    let len = own_region(table).max(largest);
    report.step(format!("{} MiB of memory", len >> 20));
    let region = Region::create(&folder.join("region"), len)?;
    report.add(Finding::Machine {
        what: "memory",
        found: match region.huge_share() {
            Some(share) => format!("file in memory, {:.0} % in huge pages", 100.0 * share),
            None => "file in memory".into(),
        },
    });
    #[cfg(feature = "cust")]
    if let Engine::Cuda { device } = scope.setting.engine {
        let gpu = launch::Gpu::open(device)?;
        report.add(Finding::Machine {
            what: "GPU",
            found: gpu.name.clone(),
        });
        let on_gpu = gpu::OnGpu::new(&gpu, &region)?;
        on_gpu.single_figures(report)?;
        versions::measure(device, report)?;
        on_gpu.places(&scope.regions, &scope.few_batches, report)?;
        let cache_ratio = scope.setting.cache_ratio;
        return on_gpu.limits(table, cache_ratio, &scope.batches, report);
    }
    let cpu = Cpu {
        region: &region,
        threads: scope.setting.threads,
    };
    cpu.measure(&scope.regions, report);
    Ok(cpu.limits(table))
}

/// A folder in memory that goes with its value, or when the process is interrupted.
fn temporary_folder() -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("gphash-limits-")
        .tempdir_in("/dev/shm")
        .map_err(|error| format!("/dev/shm: {error}"))?;
    let doomed = folder.path().to_path_buf();
    ctrlc::set_handler(move || {
        // The process ends here, so nothing else can be done with an error.
        let _ = std::fs::remove_dir_all(&doomed);
        std::process::exit(130);
    })?;
    Ok(folder)
}
