use std::fs;
use std::path::PathBuf;

use gphash_bench_reckoning::chart::{Axis, Chart, Line, Scale};

fn axis(label: &'static str, scale: Scale) -> Axis {
    Axis {
        label,
        scale,
        mark: |value| format!("{value:.0}"),
    }
}

fn line(name: &str, points: &[(f64, f64)], right: bool) -> Line {
    Line {
        name: name.into(),
        points: points.to_vec(),
        dashed: false,
        colour: usize::from(right),
        right,
    }
}

/// The chart as a file, or nothing if none was written.
fn written(chart: &Chart) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("chart.svg");
    chart.write(&path).unwrap();
    fs::read_to_string(path).ok()
}

#[test]
fn chart_has_its_title_axes_marks_and_legend() {
    let chart = Chart {
        title: "Gets by the size of the cache".into(),
        x: axis("cached, %", Scale::Linear),
        y: axis("million a second", Scale::Decimal),
        right: Some(axis("hit rate, %", Scale::Linear)),
        lines: vec![
            line(
                "throughput",
                &[(0.0, 90.0), (20.0, 260.0), (50.0, 600.0)],
                false,
            ),
            line("hits", &[(0.0, 0.0), (20.0, 61.0), (50.0, 83.0)], true),
        ],
    };
    let svg = written(&chart).unwrap();
    for text in [
        "Gets by the size of the cache",
        "cached, %",
        "million a second",
        "hit rate, %",
        "throughput",
        "hits",
        "200",
        "500",
    ] {
        assert!(svg.contains(text), "{text} is missing");
    }
}

#[test]
fn chart_of_no_points_is_no_file() {
    let chart = |points: &[(f64, f64)]| Chart {
        title: "By batch".into(),
        x: axis("batch", Scale::Binary),
        y: axis("rate", Scale::Decimal),
        right: None,
        lines: vec![line("reads", points, false)],
    };
    assert!(written(&chart(&[(4096.0, 41.0)])).is_some());
    assert!(written(&chart(&[(4096.0, 0.0)])).is_some());
    assert!(written(&chart(&[])).is_none());
}
