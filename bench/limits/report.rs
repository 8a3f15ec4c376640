//! What was measured: rows for people, objects for programs, and all of it for the figures.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Rates by what was varied in a row, in million a second, as far as they were measured.
#[derive(Debug, Clone, Default)]
pub struct Rates(pub Vec<(String, Option<f64>)>);

impl Serialize for Rates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, rate) in &self.0 {
            if let Some(rate) = rate {
                map.serialize_entry(name, &rounded(*rate))?;
            }
        }
        map.end()
    }
}

/// Accesses to random places of a region.
#[derive(Debug, Clone, Serialize)]
pub struct Accesses {
    /// `gpu` or `cpu`.
    pub processor: &'static str,
    /// `host` or `device`.
    pub memory: &'static str,
    pub access: &'static str,
    /// Bytes of an access.
    pub bytes: u32,
    pub region_bytes: u64,
    /// Accesses of a launch; of a CPU, which has none, nothing.
    pub batch: Option<usize>,
    /// Threads of a CPU.
    pub threads: Option<usize>,
    /// By order of the places, or by prefetches under way at a time.
    pub mops: Rates,
}

/// A workload on the index, beside its limit.
#[derive(Debug, Clone, Serialize)]
pub struct OfIndex {
    pub engine: String,
    pub workload: &'static str,
    pub records: u64,
    /// Bytes of a key.
    pub key_size: usize,
    pub batch: usize,
    pub mops: f64,
    pub limit_mops: f64,
    pub percent_of_limit: f64,
    /// What the limit is made of.
    pub limit: String,
    pub p50_us: f64,
    pub p99_us: f64,
    pub hit_rate: f64,
    pub pm_touches_per_op: f64,
}

/// Lookups with caches of different sizes.
#[derive(Debug, Clone, Serialize)]
pub struct OfCache {
    pub cache_ratio: f64,
    pub batch: usize,
    pub hit_rate: f64,
    pub mops: f64,
}

/// A table that grew for the first time.
#[derive(Debug, Clone, Serialize)]
pub struct OfResize {
    /// When it began to grow; so are slots and load factor.
    pub items: u64,
    pub slots_before: u64,
    pub load_factor: f64,
    /// From the batch that began it to the last item moved, with batches running all the while.
    pub resize_ms: f64,
    pub batch: usize,
    /// Of batches while it grew.
    pub longest_write_ms: f64,
    pub longest_read_ms: f64,
    /// Of batches before.
    pub usual_write_ms: f64,
    pub usual_read_ms: f64,
}

/// A file that was opened after a crash.
#[derive(Debug, Clone, Serialize)]
pub struct OfRecovery {
    pub items: u64,
    pub file_bytes: u64,
    /// From the call to the first answer.
    pub first_answer_ms: f64,
    /// Of that, what opening says it scanned for.
    pub recovery_ms: f64,
}

/// One result; a line of JSON.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    Machine {
        what: &'static str,
        found: String,
    },
    Figure {
        what: String,
        value: f64,
        unit: &'static str,
    },
    Accesses(Accesses),
    Index(OfIndex),
    Cache(OfCache),
    Fill {
        items: u64,
        load_factor: f64,
    },
    Resize(OfResize),
    Recovery(OfRecovery),
}

/// Takes results, prints each at once, and keeps them.
pub struct Report {
    json: bool,
    bar: ProgressBar,
    heading: String,
    pub findings: Vec<Finding>,
}

impl Report {
    /// An empty one; `json` prints objects in place of tables.
    pub fn new(json: bool) -> Self {
        let bar = ProgressBar::new(0);
        // The template is a constant that the library accepts.
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            json,
            bar,
            heading: String::new(),
            findings: Vec::new(),
        }
    }

    /// Says that so many more steps are to come.
    pub fn expect(&self, steps: usize) {
        self.bar.inc_length(steps as u64);
    }

    /// Says what is measured next, as a step.
    pub fn step(&self, what: impl Into<String>) {
        self.bar.inc(1);
        self.bar.set_message(what.into());
    }

    /// Takes a result.
    pub fn add(&mut self, finding: Finding) {
        if self.json {
            self.print(&line(&finding));
        } else if let Some((heading, row)) = as_text(&finding) {
            if heading != self.heading {
                self.print(&format!("\n{heading}"));
                self.heading = heading;
            }
            self.print(&row);
        }
        self.findings.push(finding);
    }

    /// All results, a JSON object a line.
    pub fn as_json(&self) -> String {
        self.findings
            .iter()
            .map(|finding| line(finding) + "\n")
            .collect()
    }

    /// Ends the progress bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn print(&self, line: &str) {
        // A reader that has gone away is no reason to fail.
        self.bar.suspend(|| {
            let _ = writeln!(io::stdout(), "{line}");
        });
    }
}

fn line(finding: &Finding) -> String {
    // Text and numbers always have a JSON form.
    serde_json::to_string(finding).unwrap_or_default()
}

/// A heading and a row under it; what only a figure can show has none.
fn as_text(finding: &Finding) -> Option<(String, String)> {
    Some(match finding {
        Finding::Machine { what, found } => ("Machine".into(), format!("  {what:<24} {found}")),
        Finding::Figure { what, value, unit } => (
            "Single figures".into(),
            format!("  {what:<52} {value:>10.2} {unit}"),
        ),
        Finding::Accesses(accesses) => accesses_as_text(accesses),
        Finding::Index(of_index) => index_as_text(of_index),
        Finding::Cache(cache) => (
            format!(
                "Gets by size of the cache, Zipf 0.99, batches of {}\n  {:>12} {:>9} {:>9}",
                cache.batch, "cache ratio", "hit rate", "M/s"
            ),
            format!(
                "  {:>12.2} {:>9.3} {:>9.1}",
                cache.cache_ratio, cache.hit_rate, cache.mops
            ),
        ),
        Finding::Fill { .. } => return None,
        Finding::Resize(resize) => (
            format!(
                "The first growth, batches of {} running; the longest of them and (the usual one)\n  {:>11} {:>11} {:>11} {:>9} {:>19} {:>19}",
                resize.batch,
                "items",
                "slots",
                "load factor",
                "ms",
                "write batch, ms",
                "read batch, ms"
            ),
            format!(
                "  {:>11} {:>11} {:>11.3} {:>9.1} {:>10.2} ({:>6.2}) {:>10.2} ({:>6.2})",
                resize.items,
                resize.slots_before,
                resize.load_factor,
                resize.resize_ms,
                resize.longest_write_ms,
                resize.usual_write_ms,
                resize.longest_read_ms,
                resize.usual_read_ms
            ),
        ),
        Finding::Recovery(recovery) => (
            format!(
                "Opening after a crash\n  {:>11} {:>11} {:>18} {:>13}",
                "items", "file MiB", "first answer ms", "recovery ms"
            ),
            format!(
                "  {:>11} {:>11} {:>18.1} {:>13.1}",
                recovery.items,
                recovery.file_bytes >> 20,
                recovery.first_answer_ms,
                recovery.recovery_ms
            ),
        ),
    })
}

fn accesses_as_text(accesses: &Accesses) -> (String, String) {
    let varied = match accesses.batch {
        Some(_) => "by order of the places",
        None => "by places asked for ahead",
    };
    let names: String = accesses
        .mops
        .0
        .iter()
        .map(|(name, _)| format!(" {name:>10}"))
        .collect();
    let rates: String = accesses
        .mops
        .0
        .iter()
        .map(|(_, rate)| match rate {
            Some(rate) => format!(" {rate:>10.1}"),
            None => format!(" {:>10}", "-"),
        })
        .collect();
    let at_once = match (accesses.batch, accesses.threads) {
        (Some(batch), _) => batch.to_string(),
        (None, Some(threads)) => format!("{threads} threads"),
        (None, None) => String::new(),
    };
    (
        format!(
            "Accesses of the {} to random places of {} memory, M/s, {varied}\n  {:<7} {:>5} {:>10} {:>10}{names}",
            accesses.processor, accesses.memory, "access", "bytes", "region MiB", "batch"
        ),
        format!(
            "  {:<7} {:>5} {:>10} {at_once:>10}{rates}",
            accesses.access,
            accesses.bytes,
            accesses.region_bytes >> 20
        ),
    )
}

fn index_as_text(of_index: &OfIndex) -> (String, String) {
    (
        format!(
            "The index on engine {}, {} records of {} + 128 bytes\n  {:<22} {:>8} {:>9} {:>9} {:>5} {:>10} {:>10} {:>6} {:>6}  limit",
            of_index.engine,
            of_index.records,
            of_index.key_size,
            "workload",
            "batch",
            "M/s",
            "limit",
            "%",
            "p50 us",
            "p99 us",
            "hits",
            "PM/op"
        ),
        format!(
            "  {:<22} {:>8} {:>9.1} {:>9.1} {:>5.0} {:>10.1} {:>10.1} {:>6.3} {:>6.2}  {}",
            of_index.workload,
            of_index.batch,
            of_index.mops,
            of_index.limit_mops,
            of_index.percent_of_limit,
            of_index.p50_us,
            of_index.p99_us,
            of_index.hit_rate,
            of_index.pm_touches_per_op,
            of_index.limit
        ),
    )
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}
