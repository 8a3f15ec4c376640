//! The figures: the shapes of Figures 5, 7, 11, 14 and 15 of the GPHash paper for this machine.

use std::path::Path;

use crate::chart::{Axis, Chart, Line, Scale};
use crate::kind::{Kind, Limit};
use crate::report::{Accesses, Finding, OfIndex};
use crate::workload::target::Failure;

/// Writes every figure that there are results for into a folder.
pub fn all(findings: &[Finding], limits: &[Limit], folder: &Path) -> Result<(), Failure> {
    for (name, chart) in [
        ("limits-by-region", by_region(findings)),
        ("limits-by-batch", by_batch(findings)),
        ("throughput-by-batch", throughput(findings, limits)),
        ("latency-by-batch", latency(findings)),
        ("cache", cache(findings)),
        ("load-factor", load_factor(findings)),
        ("resize", resize(findings)),
        ("recovery", recovery(findings)),
    ] {
        chart.write(&folder.join(format!("{name}.svg")))?;
    }
    Ok(())
}

const MILLIONS: Axis = Axis {
    label: "million operations a second",
    scale: Scale::Decimal,
    mark: number,
};

const BATCH: Axis = Axis {
    label: "operations in a batch",
    scale: Scale::Binary,
    mark: power,
};

const ITEMS: Axis = Axis {
    label: "items, millions",
    scale: Scale::Decimal,
    mark: number,
};

const MILLISECONDS: Axis = Axis {
    label: "milliseconds",
    scale: Scale::Decimal,
    mark: number,
};

/// Reads of whole records by the size of the region, in the largest batches or with all threads.
fn by_region(findings: &[Finding]) -> Chart {
    let reads = reads(findings);
    let most = reads.iter().map(at_once).max().unwrap_or(0);
    let reads: Vec<&Accesses> = reads.into_iter().filter(|of| at_once(of) == most).collect();
    let title = match reads.first().and_then(|of| of.batch) {
        Some(batch) => format!(
            "Random 128-byte reads of the GPU, batches of {}",
            power(batch as f64)
        ),
        None => format!("Random 128-byte reads of the CPU, {most} threads"),
    };
    Chart {
        title,
        x: Axis {
            label: "region of host memory, MiB",
            scale: Scale::Binary,
            mark: number,
        },
        y: Axis {
            label: "million reads a second",
            ..MILLIONS
        },
        right: None,
        lines: by_variant(&reads, |of| (of.region_bytes >> 20) as f64),
    }
}

/// Reads of whole records by the size of the batch, in the largest region.
fn by_batch(findings: &[Finding]) -> Chart {
    let reads = reads(findings);
    let largest = reads.iter().map(|of| of.region_bytes).max().unwrap_or(0);
    let reads: Vec<&Accesses> = reads
        .into_iter()
        .filter(|of| of.region_bytes == largest && of.batch.is_some())
        .collect();
    Chart {
        title: format!("Random 128-byte reads of the GPU in {} MiB", largest >> 20),
        x: BATCH,
        y: Axis {
            label: "million reads a second",
            ..MILLIONS
        },
        right: None,
        lines: by_variant(&reads, |of| of.batch.unwrap_or(0) as f64),
    }
}

/// Every workload, and its limit, by the size of the batch.
fn throughput(findings: &[Finding], limits: &[Limit]) -> Chart {
    let mut lines = Vec::new();
    for (colour, kind) in kinds().enumerate() {
        let points = by_batch_of(findings, kind, |of| of.mops);
        let batches: Vec<f64> = points.iter().map(|(batch, _)| *batch).collect();
        lines.push(line(kind.name(), points, colour));
        let limits = limits.iter().filter(|limit| limit.kind == kind);
        let limit: Vec<(f64, f64)> = limits
            .flat_map(|limit| match limit.batch {
                Some(batch) => vec![(batch as f64, limit.mops)],
                None => batches.iter().map(|batch| (*batch, limit.mops)).collect(),
            })
            .filter(|(_, mops)| mops.is_finite())
            .collect();
        lines.push(Line {
            dashed: true,
            ..line(&format!("limit: {}", kind.name()), limit, colour)
        });
    }
    Chart {
        title: "Throughput of the index by batch size".into(),
        x: BATCH,
        y: MILLIONS,
        right: None,
        lines,
    }
}

/// What half of the batches, and almost all, stay within.
fn latency(findings: &[Finding]) -> Chart {
    let mut lines = Vec::new();
    for (colour, kind) in kinds().enumerate() {
        let half = by_batch_of(findings, kind, |of| of.p50_us / 1e3);
        let most = by_batch_of(findings, kind, |of| of.p99_us / 1e3);
        lines.push(line(&format!("p50: {}", kind.name()), half, colour));
        lines.push(Line {
            dashed: true,
            ..line(&format!("p99: {}", kind.name()), most, colour)
        });
    }
    Chart {
        title: "Latency of a batch on the index by its size".into(),
        x: BATCH,
        y: MILLISECONDS,
        right: None,
        lines,
    }
}

fn kinds() -> impl Iterator<Item = Kind> {
    std::iter::once(Kind::Load).chain(Kind::ON_LOADED)
}

/// A figure of a workload at each batch size.
fn by_batch_of(findings: &[Finding], kind: Kind, figure: fn(&OfIndex) -> f64) -> Vec<(f64, f64)> {
    let of_index = findings.iter().filter_map(|finding| match finding {
        Finding::Index(of) if of.workload == kind.name() => Some(of),
        _ => None,
    });
    of_index.map(|of| (of.batch as f64, figure(of))).collect()
}

/// Hit rate and throughput by the size of the cache.
fn cache(findings: &[Finding]) -> Chart {
    let (mut rates, mut hits) = (Vec::new(), Vec::new());
    for finding in findings {
        if let Finding::Cache(of) = finding {
            rates.push((100.0 * of.cache_ratio, of.mops));
            hits.push((100.0 * of.cache_ratio, 100.0 * of.hit_rate));
        }
    }
    Chart {
        title: "Gets, Zipf 0.99, by the size of the cache".into(),
        x: Axis {
            label: "cached buckets, %",
            scale: Scale::Linear,
            mark: number,
        },
        y: Axis {
            scale: Scale::Linear,
            ..MILLIONS
        },
        right: Some(Axis {
            label: "hit rate, %",
            scale: Scale::Linear,
            mark: number,
        }),
        lines: vec![
            line("throughput", rates, 0),
            Line {
                right: true,
                ..line("hit rate", hits, 1)
            },
        ],
    }
}

/// How full a table is while it is loaded.
fn load_factor(findings: &[Finding]) -> Chart {
    let points = findings.iter().filter_map(|finding| match finding {
        Finding::Fill { items, load_factor } => Some((*items as f64 / 1e6, 100.0 * load_factor)),
        _ => None,
    });
    Chart {
        title: "Load factor while loading".into(),
        x: Axis {
            scale: Scale::Linear,
            ..ITEMS
        },
        y: Axis {
            label: "items by slots, %",
            scale: Scale::Linear,
            mark: number,
        },
        right: None,
        lines: vec![line("load factor", points.collect(), 0)],
    }
}

/// What growing takes, and what the batches beside it see of it.
fn resize(findings: &[Finding]) -> Chart {
    let mut lines = [
        line("whole resize", Vec::new(), 0),
        line("longest write batch", Vec::new(), 1),
        line("longest read batch", Vec::new(), 2),
    ];
    let mut batch = 0;
    for finding in findings {
        if let Finding::Resize(of) = finding {
            batch = of.batch;
            let values = [of.resize_ms, of.longest_write_ms, of.longest_read_ms];
            for (line, value) in lines.iter_mut().zip(values) {
                line.points.push((of.items as f64 / 1e6, value));
            }
        }
    }
    Chart {
        title: format!("The first growth beside batches of {batch}"),
        x: ITEMS,
        y: MILLISECONDS,
        right: None,
        lines: lines.into(),
    }
}

/// What opening a file after a crash takes.
fn recovery(findings: &[Finding]) -> Chart {
    let mut lines = [
        line("until the first answer", Vec::new(), 0),
        line("recovery in it", Vec::new(), 1),
    ];
    for finding in findings {
        if let Finding::Recovery(of) = finding {
            let values = [of.first_answer_ms, of.recovery_ms];
            for (line, value) in lines.iter_mut().zip(values) {
                line.points.push((of.items as f64 / 1e6, value));
            }
        }
    }
    Chart {
        title: "Opening a file after a crash".into(),
        x: ITEMS,
        y: MILLISECONDS,
        right: None,
        lines: lines.into(),
    }
}

/// Reads of whole records in host memory.
fn reads(findings: &[Finding]) -> Vec<&Accesses> {
    let accesses = findings.iter().filter_map(|finding| match finding {
        Finding::Accesses(of) => Some(of),
        _ => None,
    });
    accesses
        .filter(|of| of.memory == "host" && of.access == "read" && of.bytes == 128)
        .collect()
}

/// What runs at the same time: the places of a batch, or threads.
fn at_once(of: &&Accesses) -> usize {
    of.batch.or(of.threads).unwrap_or(0)
}

/// A line for each order, or for each number of prefetches.
fn by_variant(reads: &[&Accesses], x: impl Fn(&Accesses) -> f64) -> Vec<Line> {
    let Some(first) = reads.first() else {
        return Vec::new();
    };
    let variants = first.mops.0.iter().enumerate();
    variants
        .map(|(number, (name, _))| {
            let points = reads.iter().filter_map(|of| {
                let (_, rate) = of.mops.0.get(number)?;
                Some((x(of), (*rate)?))
            });
            let name = match first.batch {
                Some(_) => format!("order: {}", name.replace('_', " ")),
                None => format!("{name} asked for ahead"),
            };
            line(&name, points.collect(), number)
        })
        .collect()
}

fn line(name: &str, points: Vec<(f64, f64)>, colour: usize) -> Line {
    Line {
        name: name.into(),
        points,
        dashed: false,
        colour,
        right: false,
    }
}

/// A number with as many digits as it needs.
fn number(value: f64) -> String {
    let digits = if value.abs() >= 10.0 { 0 } else { 3 };
    let text = format!("{value:.digits$}");
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').into(),
        None => text,
    }
}

/// A power of two: 65536 is 64 Ki.
fn power(value: f64) -> String {
    if value >= 1_048_576.0 {
        format!("{} Mi", number(value / 1_048_576.0))
    } else if value >= 1024.0 {
        format!("{} Ki", number(value / 1024.0))
    } else {
        number(value)
    }
}
