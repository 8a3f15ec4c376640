//! What a run has to say.

use std::io::{self, Write};
use std::path::PathBuf;

use gphash::Stats;
use indicatif::{HumanBytes, HumanCount};
use num_traits::ToPrimitive;
use serde_json::json;

use crate::table::{Check, Timing};

/// The figures of a run.
pub struct Report {
    /// Rows that were streamed in.
    pub rows: u64,
    /// Seconds that took.
    pub fill_seconds: f64,
    /// The index file, and whether it goes in the end.
    pub path: PathBuf,
    /// Whether the file goes in the end.
    pub temporary: bool,
    /// Counters when the lookups after reopening were done.
    pub stats: Stats,
    /// Lookups of both halves in the frozen bucket cache, and those that hit.
    pub cache: (u64, u64),
    /// Places of the file that the lookups touched.
    pub pm_touches: u64,
    /// Milliseconds that opening the closed file took.
    pub reopen_ms: f64,
    /// Latencies of the lookups.
    pub timing: Timing,
    /// What was compared.
    pub check: Check,
}

impl Report {
    /// One object, for programs.
    pub fn print_json(&mut self) {
        let (cache_lookups, cache_hits) = self.cache;
        let object = json!({
            "engine": self.stats.engine.to_string(),
            "domain": self.stats.domain,
            "rows": self.rows,
            "lookups": self.timing.lookups,
            "lookups_per_s": self.timing.lookups_per_second().round(),
            "batch_p50_us": round(self.timing.percentile_us(50)),
            "batch_p99_us": round(self.timing.percentile_us(99)),
            "cache_hit_rate": ratio(cache_hits, cache_lookups),
            "reopen_ms": round(self.reopen_ms),
            "mismatches": self.check.mismatches,
        });
        print(&object.to_string());
    }

    /// A short table, for people.
    pub fn print_text(&mut self) {
        let row = |label: &str, value: String| print(&format!("  {label:<22} {value}"));
        print("embedding table");
        row(
            "rows",
            format!("{} in {:.1} s", HumanCount(self.rows), self.fill_seconds),
        );
        row("vectors", HumanCount(self.stats.items).to_string());
        let fate = if self.temporary {
            "removed now"
        } else {
            "kept"
        };
        row("file", format!("{} ({fate})", self.path.display()));
        row("file size", HumanBytes(self.stats.file_len).to_string());
        row("domain", self.stats.domain.to_string());
        row(
            "load factor",
            format!("{:.1} %", self.stats.load_factor * 100.0),
        );
        print("lookups");
        row("engine", self.stats.engine.to_string());
        row(
            "vectors looked up",
            HumanCount(self.timing.lookups).to_string(),
        );
        let rate = self.timing.lookups_per_second();
        row(
            "lookups/s",
            HumanCount(rate.to_u64().unwrap_or_default()).to_string(),
        );
        let [p50, p95, p99] = [50, 95, 99].map(|percent| self.timing.percentile_us(percent));
        row(
            "batch p50, p95, p99",
            format!("{p50:.0}, {p95:.0}, {p99:.0} µs"),
        );
        let touches = self.pm_touches as f64 / self.timing.lookups.max(1) as f64;
        row("PM touches/lookup", format!("{touches:.2}"));
        if self.cache.0 > 0 {
            let rate = ratio(self.cache.1, self.cache.0);
            row("cache hit rate", format!("{:.1} %", rate * 100.0));
        }
        print("checks");
        row("time to reopen", format!("{:.2} ms", self.reopen_ms));
        row(
            "vectors compared",
            HumanCount(self.check.vectors).to_string(),
        );
        row("mismatches", HumanCount(self.check.mismatches).to_string());
        if let Some(first) = &self.check.first {
            row("first mismatch", first.clone());
        }
    }
}

/// A reader that has gone away is no reason to fail: the exit status still tells.
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

fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
