//! What a run prints.

use std::io::{self, Write};

use gphash::{Domain, Stats};
use serde::Serialize;

use crate::workload::case::{Case, name};
use crate::workload::drive::Measured;

/// The figures of one run; what a peer does not have is null.
#[derive(Serialize)]
pub struct Line {
    workload: String,
    engine: String,
    domain: Option<Domain>,
    records: u64,
    operations: u64,
    batch: usize,
    /// Million operations in a second.
    pub mops: f64,
    p50_us: f64,
    p99_us: f64,
    hit_rate: Option<f64>,
    load_factor: Option<f64>,
    pm_touches_per_op: Option<f64>,
}

impl Line {
    /// The line of a peer.
    pub fn of_peer(case: &Case, engine: &str, measured: &Measured) -> Self {
        Self {
            workload: name(case.workload),
            engine: engine.to_string(),
            domain: None,
            records: case.records,
            operations: measured.operations,
            batch: case.batch,
            mops: rounded(measured.mops()),
            p50_us: rounded(measured.latencies.percentile_us(50)),
            p99_us: rounded(measured.latencies.percentile_us(99)),
            hit_rate: None,
            load_factor: None,
            pm_touches_per_op: None,
        }
    }

    /// The line of an index, whose figures were `before` and `after` the run.
    pub fn of_index(case: &Case, measured: &Measured, before: &Stats, after: &Stats) -> Self {
        let lookups = after.cache_lookups - before.cache_lookups;
        let hits = after.cache_hits - before.cache_hits;
        let touches = after.pm_touches - before.pm_touches;
        Self {
            engine: after.engine.to_string(),
            domain: Some(after.domain),
            hit_rate: Some(rounded(ratio(hits, lookups))),
            load_factor: Some(rounded(after.load_factor)),
            pm_touches_per_op: Some(rounded(ratio(touches, measured.operations))),
            ..Self::of_peer(case, "", measured)
        }
    }

    /// The line as JSON.
    pub fn print_json(&self) {
        // Text and numbers always have a JSON form.
        print(&serde_json::to_string(self).unwrap_or_default());
    }

    /// The line as a row under [`print_head`]; `ratio` is the index's speed by this one's.
    pub fn print_text(&self, case: &Case, ratio: Option<f64>) {
        let optional = |figure: Option<f64>| figure.map_or("-".into(), |f| format!("{f:.3}"));
        print(&format!(
            "{:<9} {:<15} {:<12} {:>11} {:>11} {:>8} {:>9} {:>9.3} {:>11.1} {:>11.1} {:>6} {:>6} {:>7} {:>7}",
            self.workload,
            self.engine,
            self.domain.map_or("-".into(), |domain| domain.to_string()),
            self.records,
            self.operations,
            self.batch,
            format!("{}+{}", case.key_size, case.value_size),
            self.mops,
            self.p50_us,
            self.p99_us,
            optional(self.hit_rate),
            optional(self.load_factor),
            optional(self.pm_touches_per_op),
            ratio.map_or("-".into(), |ratio| format!("{ratio:.2}x")),
        ));
    }
}

/// The head of the table.
pub fn print_head() {
    print(&format!(
        "{:<9} {:<15} {:<12} {:>11} {:>11} {:>8} {:>9} {:>9} {:>11} {:>11} {:>6} {:>6} {:>7} {:>7}",
        "workload",
        "engine",
        "domain",
        "records",
        "operations",
        "batch",
        "key+value",
        "Mops/s",
        "p50 µs",
        "p99 µs",
        "hits",
        "load",
        "PM/op",
        "gphash"
    ));
}

/// What the rows below have in common.
pub fn print_caption(caption: &str) {
    print(&format!("- {caption}"));
}

/// A reader that has gone away is no reason to fail.
fn print(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}
