//! What growth and recovery cost: how long the batches of a load wait while the table grows, and
//! how long the first answer takes after a crash.
//!
//! ```text
//! cargo bench --bench growth -- --items 16000000 --batch 4096 --folder /dev/shm
//! ```
//!
//! The load goes on until the table has grown once and the resize is over. It runs in a process of
//! its own, which aborts at the end, so that the file is what a crash leaves.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use gphash::{Engine, Index, Options};
use gphash_bench::status;
use gphash_bench::workload::target::Failure;
use num_traits::ToPrimitive;

type Value = [u64; 16];

/// What to measure.
#[derive(Debug, Parser)]
struct Arguments {
    /// Items that the table is made for; it grows when it holds about half as many again.
    #[arg(long, default_value_t = 16_000_000,
        value_parser = clap::value_parser!(u64).range(1..=Options::MAX_CAPACITY))]
    items: u64,
    /// Operations in a batch.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Where the file is made.
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// `auto`, `cpu` or `cuda`.
    #[arg(long, default_value = "cpu")]
    engine: Engine,
    /// Threads of the CPU engine; 0 for one a core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Print what the index says of its phases, on the standard error.
    #[arg(long)]
    trace: bool,
    /// Do the load on this file, then abort.
    #[arg(long, hide = true)]
    load: Option<PathBuf>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn options(&self) -> Options {
        Options::new()
            .capacity(self.items)
            .engine(self.engine)
            .threads(self.threads)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.trace {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(io::stderr)
            .init();
    }
    status("growth", run(&arguments))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(path) = &arguments.load {
        load(arguments, path)?;
        std::process::abort();
    }
    let parent = arguments.folder.display();
    let folder = tempfile::tempdir_in(&arguments.folder)
        .map_err(|error| format!("{parent}: {error}; choose another with --folder"))?;
    let path = folder.path().join("growth.gph");
    let status = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--load")
        .arg(&path)
        .status()?;
    // It aborts when it is done.
    if status.code().is_some() {
        return Err(format!("the load ended with {status}").into());
    }
    first_answer(arguments, &path, "after a crash")?;
    first_answer(arguments, &path, "after a clean close")
}

/// Keys in no order, none of them twice.
fn keys(first: u64, count: u32) -> Vec<u64> {
    (first..first + u64::from(count))
        .map(|n| n.wrapping_mul(0xD129_0D3B_3B6A_3C4B))
        .collect()
}

/// Times of the batches of one stretch of the load.
#[derive(Default)]
struct Stretch {
    times: Vec<Duration>,
}

impl Stretch {
    fn print(mut self, name: &str, batch: u32) {
        let sum: Duration = self.times.iter().sum();
        let count = self.times.len();
        self.times.sort_unstable();
        let at = |share: f64| match count {
            0 => 0.0,
            _ => {
                self.times[((count - 1) as f64 * share).to_usize().unwrap_or_default()]
                    .as_secs_f64()
                    * 1e3
            }
        };
        println!(
            "{name:<24} {count:>6} batches {:>7.2} M/s  p50 {:>8.3} ms  p99 {:>8.3} ms  longest {:>8.3} ms",
            count as f64 * f64::from(batch) / sum.as_secs_f64() / 1e6,
            at(0.5),
            at(0.99),
            at(1.0),
        );
    }
}

fn load(arguments: &Arguments, path: &Path) -> Result<(), Failure> {
    let index = Index::<u64, Value>::create(path, &arguments.options())?;
    let top = index.stats().top_level;
    let values: Vec<Value> = (0..u64::from(arguments.batch)).map(|n| [n; 16]).collect();
    let [mut before, mut during] = [Stretch::default(), Stretch::default()];
    let mut next = 1;
    let mut grown = None;
    let mut ends = u64::MAX;
    // A resize that does not end must not fill the memory.
    while next < ends.min(arguments.items * 4) {
        let keys = keys(next, arguments.batch);
        next += keys.len() as u64;
        let started = Instant::now();
        index.insert(&keys, &values)?;
        let time = started.elapsed();
        let stats = index.stats();
        if stats.top_level == top {
            before.times.push(time);
            continue;
        }
        during.times.push(time);
        let (since, items) = *grown.get_or_insert((Instant::now(), next));
        if ends == u64::MAX && !stats.resizing {
            println!(
                "grew at {items} items; the resize took {:.3} s and {} batches",
                since.elapsed().as_secs_f64(),
                during.times.len()
            );
            ends = next + (arguments.items / 16).max(arguments.batch.into());
        }
    }
    before.print("before the growth", arguments.batch);
    during.print("from the growth on", arguments.batch);
    println!("{:?}", index.stats());
    // The file stays as it is at this moment.
    std::mem::forget(index);
    Ok(())
}

fn first_answer(arguments: &Arguments, path: &Path, what: &str) -> Result<(), Failure> {
    let started = Instant::now();
    let index = Index::<u64, Value>::open(path, &arguments.options())?;
    let open = started.elapsed();
    let found = index.get_one(&keys(1, 1)[0])?;
    if found.is_none() {
        return Err(format!("{what}: the first item is not there").into());
    }
    println!(
        "{what}: {} items, open after {:.3} s, first answer after {:.3} s; {:?}",
        index.len(),
        open.as_secs_f64(),
        started.elapsed().as_secs_f64(),
        index.recovery()
    );
    Ok(index.close()?)
}
