//! The tables beside peers, in one command: runs the benches `ycsb` and `store`, and prints what they
//! measured as Markdown.
//!
//! ```text
//! cargo bench --bench peers --features bench-peers
//! ```
//!
//! Without the feature there is no RocksDB, which takes long to build; `bench-fjall` has fjall alone.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use clap::Parser;
use gphash_bench::status;
use gphash_bench::workload::target::Failure;
use serde::Deserialize;

/// The index beside papaya and redb, the store beside RocksDB and fjall.
///
/// Each figure is the median of the rounds, in million operations a second; in brackets, how many times as
/// fast gphash is.
#[derive(Parser)]
#[command(name = "peers", version)]
struct Arguments {
    /// Threads that issue batches at the same time [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How often each bench runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Records of the index: keys of 8 bytes, values of 128
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    index_records: u64,
    /// Records of the store: keys of 16 bytes, values of 100
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    store_records: u64,
    /// Cargo passes it to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What both benches print of a run.
#[derive(Deserialize)]
struct Line {
    workload: String,
    /// Whom the bench `ycsb` ran.
    engine: Option<String>,
    mops: Option<f64>,
    /// Whom the bench `store` ran.
    store: Option<String>,
    kops: Option<f64>,
}

/// Whose figures of a row there are, and all of them.
type Row = BTreeMap<String, Vec<f64>>;

/// Rows of a table by their heads, in the order of their runs.
#[derive(Default)]
struct Table(Vec<(String, Row)>);

impl Table {
    fn add(&mut self, head: &str, name: &str, mops: f64) {
        let nth = self.0.iter().position(|(found, _)| found == head);
        let nth = nth.unwrap_or_else(|| {
            self.0.push((head.to_string(), Row::new()));
            self.0.len() - 1
        });
        self.0[nth]
            .1
            .entry(name.to_string())
            .or_default()
            .push(mops);
    }

    /// As Markdown, with a column for each of `columns` that ran.
    fn print(&mut self, caption: &str, columns: &[(&str, &str)]) -> io::Result<()> {
        let ran = |name| self.0.iter().any(|(_, row)| row.contains_key(name));
        let columns: Vec<_> = columns.iter().filter(|(name, _)| ran(*name)).collect();
        let mut text = format!("\n| {caption} |");
        columns.iter().for_each(|(_, title)| {
            let _ = write!(text, " {title} |");
        });
        text += "\n| --- |";
        text += &" ---: |".repeat(columns.len());
        for (head, row) in &mut self.0 {
            let _ = write!(text, "\n| {head} |");
            let mut ours = None;
            for (name, _) in &columns {
                let Some(mops) = row.get_mut(*name).and_then(|figures| median(figures)) else {
                    text += " |";
                    continue;
                };
                let ours = *ours.get_or_insert(mops);
                let _ = match *name == columns[0].0 {
                    true => write!(text, " {mops:.2} |"),
                    false => write!(text, " {mops:.2} ({:.1} ×) |", ours / mops),
                };
            }
        }
        writeln!(io::stdout(), "{text}")
    }
}

fn median(figures: &mut [f64]) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn main() -> ExitCode {
    status("peers", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let threads = match arguments.threads {
        Some(threads) => threads.into(),
        None => thread::available_parallelism()?.get(),
    };
    let (mut index, mut store) = (Table::default(), Table::default());
    for round in 1..=arguments.rounds {
        let _ = writeln!(io::stderr(), "round {round} of {}", arguments.rounds);
        for (law, name) in [("uniform", "uniform"), ("zipfian", "Zipf 0.99")] {
            let records = arguments.index_records;
            let text = format!(
                "--workload load,c --distribution {law} --peers --threads {threads} --records {records} \
                 --operations {records}"
            );
            for line in lines_of("ycsb", &text)? {
                let head = match line.workload.as_str() {
                    "load" => "index, load".to_string(),
                    _ => format!("index, get, {name}"),
                };
                if let (Some(engine), Some(mops)) = (line.engine, line.mops) {
                    index.add(&head, &engine, mops);
                }
            }
        }
        let records = arguments.store_records;
        let text = format!(
            "--workload load,a,b,c --threads {threads} --records {records} --operations {records}"
        );
        for line in lines_of("store", &text)? {
            let head = match line.workload.as_str() {
                "load" => "store, load".to_string(),
                letter => format!("store, YCSB-{}", letter.to_uppercase()),
            };
            if let (Some(name), Some(kops)) = (line.store, line.kops) {
                store.add(&head, &name, kops / 1000.0);
            }
        }
    }
    index.print(
        &format!("million operations a second, {threads} threads, batches of 4,096"),
        &[
            ("cpu", "gphash"),
            ("papaya", "papaya"),
            ("papaya-foldhash", "papaya, foldhash"),
            ("redb", "redb"),
        ],
    )?;
    store.print(
        &format!("million operations a second, {threads} threads, batches of 1,000"),
        &[
            ("gphash", "gphash"),
            ("rocksdb", "RocksDB"),
            ("rocksdb-tuned", "RocksDB, tuned"),
            ("fjall", "fjall"),
        ],
    )?;
    Ok(())
}

/// What a bench prints when it is run with these arguments.
fn lines_of(bench: &str, arguments: &str) -> Result<Vec<Line>, Failure> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["bench", "--quiet", "--bench", bench]);
    if cfg!(feature = "bench-peers") {
        command.args(["--features", "bench-peers"]);
    } else if cfg!(feature = "bench-fjall") {
        command.args(["--features", "bench-fjall"]);
    }
    let output = command
        .arg("--")
        .args(arguments.split(' '))
        .arg("--json")
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the bench {bench} ended with {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let lines = text.lines().filter(|line| line.starts_with('{'));
    Ok(lines.map(serde_json::from_str).collect::<Result<_, _>>()?)
}
