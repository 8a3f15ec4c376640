//! Figures of what runs have measured.

use std::fmt::Display;
use std::path::Path;

use crate::chart::{Axis, Chart, Line, Scale};
use crate::report::Row;
use crate::target::Failure;

/// Draws throughput and latencies of all rows into a folder: by what was varied, batch, threads or
/// rate, a figure for each workload.
pub fn draw(folder: &Path, rows: &[Row]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let mut workloads: Vec<&str> = rows.iter().map(|row| row.workload.as_str()).collect();
    workloads.sort_unstable();
    workloads.dedup();
    for workload in workloads {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.workload == workload).collect();
        let x = varied(&rows);
        throughput(&rows, x, workload).write(&folder.join(format!("store-{workload}.svg")))?;
        latencies(&rows, x, workload)
            .write(&folder.join(format!("store-{workload}-latency.svg")))?;
    }
    Ok(())
}

/// A mark of a decimal scale, whose values are powers that were reckoned.
pub fn decimal(value: f64) -> String {
    format!("{}", (value * 1e3).round() / 1e3)
}

/// What stands along the axis of a figure.
#[derive(Clone, Copy)]
enum Varied {
    Batch,
    Threads,
    Rate,
}

impl Varied {
    fn of(self, row: &Row) -> f64 {
        match self {
            Varied::Batch => row.batch as f64,
            Varied::Threads => row.threads.into(),
            Varied::Rate => row.rate.unwrap_or_default() / 1e3,
        }
    }

    fn axis(self) -> Axis {
        let label = match self {
            Varied::Batch => "operations in a batch",
            Varied::Threads => "threads",
            Varied::Rate => "thousand operations that arrive in a second",
        };
        Axis {
            label,
            scale: match self {
                Varied::Batch | Varied::Threads => Scale::Binary,
                Varied::Rate => Scale::Linear,
            },
            mark: |value| format!("{value}"),
        }
    }
}

/// What differs from row to row.
fn varied(rows: &[&Row]) -> Varied {
    let differs = |of: fn(&Row) -> f64| rows.iter().any(|row| of(row) != of(rows[0]));
    if differs(|row| row.rate.unwrap_or_default()) {
        Varied::Rate
    } else if differs(|row| row.threads.into()) {
        Varied::Threads
    } else {
        Varied::Batch
    }
}

/// A figure of a row, and how its line is called behind the store's name.
type Figure = (&'static str, fn(&Row) -> f64);

/// The lines of each store, one for each of `values`.
fn lines(rows: &[&Row], x: Varied, values: &[Figure]) -> Vec<Line> {
    let mut stores: Vec<&str> = Vec::new();
    for row in rows {
        if !stores.contains(&row.store) {
            stores.push(row.store);
        }
    }
    let mut lines = Vec::new();
    for (colour, store) in stores.iter().enumerate() {
        for (nth, (name, value)) in values.iter().enumerate() {
            let of_store = rows.iter().filter(|row| row.store == *store);
            let mut points: Vec<(f64, f64)> = of_store.map(|row| (x.of(row), value(row))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            lines.push(Line {
                name: format!("{store}{name}"),
                points,
                dashed: nth > 0,
                colour,
                right: false,
            });
        }
    }
    lines
}

fn throughput(rows: &[&Row], x: Varied, workload: impl Display) -> Chart {
    Chart {
        title: format!("Workload {workload}: throughput"),
        x: x.axis(),
        y: Axis {
            label: "thousand operations a second",
            scale: Scale::Decimal,
            mark: decimal,
        },
        right: None,
        lines: lines(rows, x, &[("", |row| row.kops)]),
    }
}

fn latencies(rows: &[&Row], x: Varied, workload: impl Display) -> Chart {
    Chart {
        title: format!("Workload {workload}: latency of a batch, or of a request"),
        x: x.axis(),
        y: Axis {
            label: "microseconds",
            scale: Scale::Decimal,
            mark: decimal,
        },
        right: None,
        lines: lines(
            rows,
            x,
            &[(", 50 %", |row| row.p50_us), (", 99 %", |row| row.p99_us)],
        ),
    }
}
