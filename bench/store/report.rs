//! What runs have measured, for people and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use gphash::store::Steps;
use serde::Serialize;

use crate::replay::Replayed;
use crate::target::Failure;

/// What one run has measured.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub store: &'static str,
    pub workload: String,
    pub batch: usize,
    pub threads: u16,
    /// Operations that arrived in a second, if they did not wait for each other.
    pub rate: Option<f64>,
    /// Thousand operations in a second.
    pub kops: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Bytes that the store keeps its records in, if it says so.
    pub bytes: Option<u64>,
    /// Bytes that calls have written, until all was compacted that was due.
    pub written: Option<u64>,
    /// MB of sorted files that a second of compaction has read and written.
    pub compaction_mb_s: Option<f64>,
    /// Percentage of gets that the hot cache has answered, if there is one.
    pub hot_hits: Option<f64>,
    /// What the steps of batches took, if the store says so.
    pub shares: Option<Shares>,
    /// What the store was opened with.
    pub options: String,
}

/// Percentages of a run's time.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Shares {
    versions: f64,
    answers: f64,
    log: f64,
    index: f64,
}

impl Shares {
    /// Those of steps that had taken `before` and `after` at a run's ends.
    pub fn of(before: &Steps, after: &Steps, elapsed: Duration) -> Self {
        let share = |step: fn(&Steps) -> Duration| {
            100.0 * (step(after) - step(before)).as_secs_f64() / elapsed.as_secs_f64()
        };
        Self {
            versions: share(|steps| steps.versions),
            answers: share(|steps| steps.answers),
            log: share(|steps| steps.log),
            index: share(|steps| steps.index),
        }
    }
}

/// Prints runs as they come.
pub struct Report {
    json: bool,
    /// Steps are printed, too.
    shares: bool,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(json: bool, shares: bool) -> Self {
        Self {
            json,
            shares,
            rows: Vec::new(),
        }
    }

    /// All runs so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Prints what a store was opened with; JSON has it in each run.
    pub fn introduce(&self, store: &str, options: &str) -> Result<(), Failure> {
        if !self.json {
            writeln!(io::stdout(), "{store}: {options}")?;
        }
        Ok(())
    }

    /// Prints a run. Those of other stores are compared with that of the first one.
    pub fn add(&mut self, row: Row) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        } else {
            if self.rows.is_empty() {
                writeln!(
                    out,
                    "{:<12} {:>7} {:>7} {:>9} {:<13} {:>10} {:>7} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9}",
                    "workload",
                    "batch",
                    "threads",
                    "rate/s",
                    "store",
                    "kops/s",
                    "gphash",
                    "p50 us",
                    "p99 us",
                    "p99.9 us",
                    "max us",
                    "MiB",
                    "written"
                )?;
            }
            let first = self.rows.iter().rev().find(|other| {
                other.store == "gphash"
                    && other.workload == row.workload
                    && (other.batch, other.threads) == (row.batch, row.threads)
                    && other.rate == row.rate
            });
            let ratio = first.map_or("-".into(), |first| format!("{:.2}x", first.kops / row.kops));
            writeln!(
                out,
                "{:<12} {:>7} {:>7} {:>9} {:<8} {:>10.1} {:>7} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>9} {:>9}",
                row.workload,
                row.batch,
                row.threads,
                row.rate.map_or("-".into(), |rate| format!("{rate:.0}")),
                row.store,
                row.kops,
                ratio,
                row.p50_us,
                row.p99_us,
                row.p999_us,
                row.max_us,
                mib(row.bytes),
                mib(row.written),
            )?;
            if let Some(hits) = row.hot_hits {
                writeln!(out, "  hot cache: {hits:.1} % of the gets")?;
            }
            if let Some(rate) = row.compaction_mb_s {
                writeln!(out, "  compaction: {rate:.0} MB/s, read and written")?;
            }
            if let Some(shares) = row.shares.filter(|_| self.shares) {
                writeln!(
                    out,
                    "  of its time: versions {:.0} %, answers {:.0} %, log {:.0} %, index {:.0} %",
                    shares.versions, shares.answers, shares.log, shares.index
                )?;
            }
        }
        self.rows.push(row);
        Ok(())
    }
}

fn mib(bytes: Option<u64>) -> String {
    bytes.map_or("-".into(), |bytes| {
        format!("{:.0}", bytes as f64 / 1048576.0)
    })
}

/// Prints what a replay took.
pub fn print_replayed(replayed: &Replayed, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match json {
        true => writeln!(out, "{}", serde_json::to_string(replayed)?)?,
        false => writeln!(
            out,
            "{} records, {} bytes of log: opened in {:.2} s, {:.0} MB/s",
            replayed.records, replayed.log_bytes, replayed.seconds, replayed.mb_per_s
        )?,
    }
    Ok(())
}
