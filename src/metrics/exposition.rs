//! Text that Prometheus reads: its exposition format, version 0.0.4.
//!
//! The crate `prometheus-client` writes another one, OpenMetrics, of counters that it owns. What there is here are
//! numbers of one moment.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use super::{LatencyStats, StallReason, StallStats};

/// What all names begin with.
const PREFIX: &str = "gphash_";

/// A label's value between quotes.
pub fn escaped(value: &str) -> Cow<'_, str> {
    match value.contains(['\\', '"', '\n']) {
        false => Cow::Borrowed(value),
        true => Cow::Owned(
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n"),
        ),
    }
}

/// All samples of one name.
struct Family {
    /// Without the prefix.
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

/// Families in the order in which they came first: the format wants the samples of one behind each other.
#[derive(Default)]
pub struct Exposition(Vec<Family>);

impl Exposition {
    fn family(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
    ) -> &mut Family {
        let nth = self.0.iter().position(|family| family.name == name);
        let nth = nth.unwrap_or_else(|| {
            self.0.push(Family {
                name,
                kind,
                help,
                samples: String::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[nth]
    }

    /// Adds samples with the same labels: their names, values, and what they mean.
    pub fn add_all(
        &mut self,
        kind: &'static str,
        labels: &str,
        samples: &[(&'static str, f64, &'static str)],
    ) {
        for (name, value, help) in samples {
            self.family(name, kind, help).sample("", labels, *value);
        }
    }

    /// Adds the latencies of a path.
    pub fn latency(&mut self, labels: &str, path: &str, stats: &LatencyStats) {
        let labels = with(labels, "path", path);
        let help = "How long the calls took that were timed.";
        let family = self.family("latency_seconds", "histogram", help);
        for (bound, calls) in stats.buckets() {
            let labels = with(&labels, "le", bound.as_secs_f64());
            family.sample("_bucket", &labels, calls as f64);
        }
        let count = stats.count as f64;
        family.sample("_bucket", &with(&labels, "le", "+Inf"), count);
        family.sample("_sum", &labels, stats.total.as_secs_f64());
        family.sample("_count", &labels, count);
        let (max, interval) = (stats.max.as_secs_f64(), f64::from(stats.sample_interval));
        let gauges = [
            (
                "latency_max_seconds",
                max,
                "The longest call that was timed.",
            ),
            (
                "latency_sample_interval",
                interval,
                "One in so many calls is timed.",
            ),
        ];
        self.add_all("gauge", &labels, &gauges);
    }

    /// Adds the stalls for a reason.
    pub fn stalls(&mut self, labels: &str, reason: StallReason, stats: &StallStats) {
        let labels = with(labels, "reason", reason.name());
        let (total, longest) = (stats.total.as_secs_f64(), stats.longest.as_secs_f64());
        let counters = [
            ("stalls_total", stats.count as f64, "Stalls of changes."),
            (
                "stall_seconds_total",
                total,
                "How long changes have stalled.",
            ),
        ];
        let gauges = [("stall_longest_seconds", longest, "The longest stall.")];
        self.add_all("counter", &labels, &counters);
        self.add_all("gauge", &labels, &gauges);
    }

    /// All of it.
    pub fn into_text(self) -> String {
        let mut text = String::new();
        for family in self.0 {
            let Family {
                name,
                kind,
                help,
                samples,
            } = family;
            let written = write!(
                text,
                "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n{samples}"
            );
            written.expect("a string takes all");
        }
        text
    }
}

impl Family {
    fn sample(&mut self, suffix: &str, labels: &str, value: f64) {
        let name = self.name;
        let written = match labels.is_empty() {
            true => writeln!(self.samples, "{PREFIX}{name}{suffix} {value}"),
            false => writeln!(self.samples, "{PREFIX}{name}{suffix}{{{labels}}} {value}"),
        };
        written.expect("a string takes all");
    }
}

/// Labels with another one, whose value needs no escapes.
pub fn with(labels: &str, name: &str, value: impl Display) -> String {
    match labels.is_empty() {
        true => format!("{name}=\"{value}\""),
        false => format!("{labels},{name}=\"{value}\""),
    }
}
