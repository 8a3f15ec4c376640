//! A recommendation model's embedding table that outlives its process.
//!
//! The 26 categorical features of the Criteo click logs share one persistent table, keyed by
//! feature and category, with a vector of 32 floats each. Rows stream in and give every new
//! category its vector; bags of 26 vectors are looked up and sum-pooled, as in DLRM; in the
//! middle the table is closed and opened again. Every vector and sum is compared bit by bit.
//!
//! ```text
//! cargo run --release --example dlrm_embedding
//! cargo run --release --example dlrm_embedding -- --criteo train.txt --path embeddings.gph
//! ```

mod criteo;
mod embedding;
mod generate;
mod report;
mod rows;
mod table;
mod table_file;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use gphash::{Engine, Options};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use num_traits::ToPrimitive;

use embedding::FEATURES;
use report::Report;
use rows::{Rows, Sample};
use table::{Check, Table, Timing};
use table_file::TableFile;

/// Build or reopen a persistent embedding table for Criteo rows, look bags up, check all of it.
///
/// Exit status: 0 when every vector was right, 1 when one was not, 2 when something failed.
#[derive(Parser)]
#[command(name = "dlrm_embedding")]
struct Arguments {
    /// Rows in the Criteo format (label, 13 integers, 26 categories); generated ones without it
    #[arg(long, value_name = "FILE.tsv")]
    criteo: Option<PathBuf>,
    /// Rows to put in [default: 1000000 generated ones, or the whole file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rows: Option<u64>,
    /// Vectors to look up, 26 in a bag; half of them before the table is closed, half after
    #[arg(long, value_name = "N", default_value_t = 20_000_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    lookups: u64,
    /// Bags in a batch
    #[arg(long, value_name = "N", default_value_t = 2048,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: u32,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "E", default_value_t = Engine::Auto)]
    engine: Engine,
    /// Index file to make or go on with; it is kept. A temporary one without it
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// Print one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

const GENERATED_ROWS: u64 = 1_000_000;

/// Bytes that an item takes in a table that has just grown, at most.
const ITEM_BYTES: u64 = 512;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(mut report) => {
            if arguments.json {
                report.print_json();
            } else {
                report.print_text();
            }
            ExitCode::from(u8::from(report.check.mismatches > 0))
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "dlrm_embedding: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Report, Box<dyn Error>> {
    let mut rows = match &arguments.criteo {
        Some(file) => Rows::of_file(file, arguments.rows)?,
        None => Rows::generated(arguments.rows.unwrap_or(GENERATED_ROWS)),
    };
    let vectors = expected_vectors(rows.expected());
    let file = match &arguments.path {
        Some(path) => TableFile::at(path.clone()),
        None => TableFile::temporary(vectors * ITEM_BYTES)?,
    };
    let options = Options::new().capacity(vectors).engine(arguments.engine);
    let batch = arguments.batch as usize;
    let mut check = Check::default();
    let mut sample = Sample::new();
    let mut timing = Timing::default();

    let table = Table::open_or_create(&file.path, &options)?;
    let bar = progress(arguments, "filling", rows.expected());
    let start = Instant::now();
    let count = table::fill(&table, &mut rows, batch, &mut sample, &mut check, &bar)?;
    let fill_seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    if count == 0 {
        let file = arguments.criteo.as_deref().unwrap_or(&file.path);
        return Err(format!("{}: holds no rows", file.display()).into());
    }

    let bags = arguments.lookups.div_ceil(FEATURES as u64);
    let before = table.stats();
    let bar = progress(arguments, "looking up", bags / 2);
    table::lookup(
        &table,
        &sample.rows,
        bags / 2,
        batch,
        &mut timing,
        &mut check,
        &bar,
    )?;
    bar.finish_and_clear();
    let first_half = table.stats();
    let items = table.len();
    table.close()?;

    let start = Instant::now();
    let table = Table::open(&file.path, &options)?;
    let reopen_ms = start.elapsed().as_secs_f64() * 1e3;
    let bar = progress(arguments, "looking up again", bags - bags / 2);
    table::lookup(
        &table,
        &sample.rows,
        bags - bags / 2,
        batch,
        &mut timing,
        &mut check,
        &bar,
    )?;
    bar.finish_and_clear();
    let stats = table.stats();
    let bar = progress(arguments, "checking", items);
    table::check_all(&table, items, &mut check, &bar)?;
    bar.finish_and_clear();
    table.close()?;

    Ok(Report {
        rows: count,
        fill_seconds,
        temporary: file.is_temporary(),
        cache: (
            first_half.cache_lookups - before.cache_lookups + stats.cache_lookups,
            first_half.cache_hits - before.cache_hits + stats.cache_hits,
        ),
        pm_touches: first_half.pm_touches - before.pm_touches + stats.pm_touches,
        path: file.path.clone(),
        stats,
        reopen_ms,
        timing,
        check,
    })
}

/// Categories that occur in so many rows, about: measured on generated rows, and bounded by the
/// number of categories of the Kaggle set.
fn expected_vectors(rows: u64) -> u64 {
    let vectors = 20.0 * (rows as f64).powf(0.81);
    vectors
        .clamp(1024.0, 33_762_577.0)
        .to_u64()
        .expect("it is clamped")
}

fn progress(arguments: &Arguments, what: &'static str, length: u64) -> ProgressBar {
    let target = if arguments.json {
        ProgressDrawTarget::hidden()
    } else {
        // Draws nothing by itself when standard error is no terminal.
        ProgressDrawTarget::stderr()
    };
    let style = ProgressStyle::with_template(
        "{msg:<16} [{wide_bar}] {percent:>3} % {human_pos}/{human_len} {eta}",
    )
    .map_or_else(
        |_| ProgressStyle::default_bar(),
        |style| style.progress_chars("=> "),
    );
    ProgressBar::with_draw_target(Some(length), target)
        .with_style(style)
        .with_message(what)
}
