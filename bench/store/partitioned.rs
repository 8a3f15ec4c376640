//! Partitions, and groups of what has queued (p²KVS §5): single puts of many threads into stores of 1 to 16 partitions, with
//! groups and without, of values of three lengths; what they write, and what they take of the processors.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::chart::{Axis, Chart, Line, Scale};
use crate::drive::{Arrival, drive};
use crate::gphash::Gphash;
use crate::plan::Draw;
use crate::plot::decimal;
use crate::process::{processor_ticks, written};
use crate::record::Sizes;
use crate::target::{Failure, Manner, Settings, Target};

const PARTITIONS: [u32; 5] = [1, 2, 4, 8, 16];

/// Bytes of values, the shortest first. Of longer ones fewer are put, so that all take about as long.
const VALUES: [usize; 3] = [128, 1024, 4096];

/// A tick of the processors.
const TICK_US: f64 = 10_000.0;

/// What the puts of one store have taken.
#[derive(Debug, Serialize)]
struct Row {
    value_bytes: usize,
    partitions: u32,
    /// Requests that have queued are committed together.
    in_groups: bool,
    kops: f64,
    p99_us: f64,
    /// Bytes given to calls that write, until all was done that was due, for a byte of keys and values.
    written: Option<f64>,
    /// Microseconds of processors for a put, of which the making of the request is a part.
    processor_us: Option<f64>,
}

/// Measures all of them, on stores in this folder, and draws figures if there is a folder for these. `draw` makes the puts
/// of the shortest values.
pub fn measure(
    settings: &Settings,
    draw: &Draw,
    (folder, plots): (&Path, Option<&Path>),
    json: bool,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if !json {
        writeln!(
            out,
            "{} threads, log {}\n{:>6} {:>10} {:>7} {:>9} {:>9} {:>8} {:>13}",
            draw.threads,
            settings.durability(),
            "value",
            "partitions",
            "groups",
            "kops/s",
            "p99 us",
            "written",
            "processors us"
        )?;
    }
    let mut rows = Vec::new();
    for value_bytes in VALUES {
        for in_groups in [true, false] {
            for partitions in PARTITIONS {
                let row =
                    measure_one(settings, draw, folder, (value_bytes, partitions, in_groups))?;
                print(&mut out, &row, json)?;
                rows.push(row);
            }
        }
    }
    match plots {
        Some(folder) => draw_all(&rows, folder),
        None => Ok(()),
    }
}

fn measure_one(
    settings: &Settings,
    draw: &Draw,
    folder: &Path,
    (value_bytes, partitions, in_groups): (usize, u32, bool),
) -> Result<Row, Failure> {
    let records = draw.records * VALUES[0] as u64 / value_bytes as u64;
    let sizes = Sizes {
        key: settings.sizes.key,
        value: value_bytes,
    };
    let settings = Settings {
        partitions: Some(partitions),
        group_requests_max: (!in_groups).then_some(1),
        records,
        sizes,
        ..*settings
    };
    let path = folder.join("partitioned");
    let store = Gphash::open(&path, &settings)?;
    let plan = Draw { records, ..*draw }.operations();
    let (ticks, bytes) = (processor_ticks(), written());
    let measured = drive(&store, &plan, 1, Manner::Single, Arrival::Closed)?;
    let spent = ticks.zip(processor_ticks());
    store.settle()?;
    let written = bytes.zip(written());
    drop(store);
    std::fs::remove_dir_all(path)?;
    let user_bytes = records as f64 * (sizes.key + sizes.value) as f64;
    let difference = |(before, after): (u64, u64)| (after - before) as f64;
    Ok(Row {
        value_bytes,
        partitions,
        in_groups,
        kops: measured.kops(),
        p99_us: measured.percentile_us(99.0),
        written: written.map(difference).map(|bytes| bytes / user_bytes),
        processor_us: spent
            .map(difference)
            .map(|ticks| ticks * TICK_US / records as f64),
    })
}

fn print(out: &mut impl Write, row: &Row, json: bool) -> Result<(), Failure> {
    if json {
        writeln!(out, "{}", serde_json::to_string(row)?)?;
        return Ok(());
    }
    let shown = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    writeln!(
        out,
        "{:>6} {:>10} {:>7} {:>9.1} {:>9.1} {:>8} {:>13}",
        row.value_bytes,
        row.partitions,
        if row.in_groups { "yes" } else { "no" },
        row.kops,
        row.p99_us,
        shown(row.written),
        shown(row.processor_us)
    )?;
    Ok(())
}

/// A figure of a row, if it was measured.
type Figure = fn(&Row) -> Option<f64>;

fn draw_all(rows: &[Row], folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let figures: [(&str, &str, &'static str, Figure); 3] = [
        (
            "store-partitions.svg",
            "Single puts by partitions",
            "thousand puts a second",
            |row| Some(row.kops),
        ),
        (
            "store-partitions-written.svg",
            "Bytes written by partitions",
            "bytes written for a byte that was put",
            |row| row.written,
        ),
        (
            "store-partitions-processor.svg",
            "Processor time by partitions",
            "microseconds of processors a put",
            |row| row.processor_us,
        ),
    ];
    for (file, title, label, figure) in figures {
        let chart = Chart {
            title: title.into(),
            x: Axis {
                label: "partitions",
                scale: Scale::Binary,
                mark: |value| format!("{value}"),
            },
            y: Axis {
                label,
                scale: Scale::Linear,
                mark: decimal,
            },
            right: None,
            lines: lines(rows, figure),
        };
        chart.write(&folder.join(file))?;
    }
    Ok(())
}

/// A line for each length of values, and a dashed one without groups.
fn lines(rows: &[Row], figure: Figure) -> Vec<Line> {
    let mut lines = Vec::new();
    for (colour, value_bytes) in VALUES.into_iter().enumerate() {
        for in_groups in [true, false] {
            let of_line = rows
                .iter()
                .filter(|row| row.value_bytes == value_bytes && row.in_groups == in_groups);
            let point = |row: &Row| Some((row.partitions.into(), figure(row)?));
            let suffix = if in_groups { "" } else { ", each alone" };
            lines.push(Line {
                name: format!("{value_bytes} bytes{suffix}"),
                points: of_line.filter_map(point).collect(),
                dashed: !in_groups,
                colour,
                right: false,
            });
        }
    }
    lines
}
