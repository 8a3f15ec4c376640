use super::*;

#[test]
fn latency_percentiles_are_within_a_percent() {
    let latency = Latency::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let latency = &latency;
            scope.spawn(move || {
                for micros in (1..=10_000).skip(thread).step_by(4) {
                    latency.record(Duration::from_micros(micros));
                }
            });
        }
    });
    let stats = latency.stats(1);
    assert_eq!(stats.count, 10_000);
    assert_eq!(stats.max, Duration::from_millis(10));
    assert_eq!(stats.total, Duration::from_micros(50_005_000));
    assert_eq!(stats.mean, Duration::from_nanos(5_000_500));
    let expected = [
        (stats.p50, 5_000),
        (stats.p90, 9_000),
        (stats.p99, 9_900),
        (stats.p999, 9_990),
        (stats.p9999, 9_999),
    ];
    for (found, micros) in expected {
        let exact = Duration::from_micros(micros);
        assert!(
            exact <= found && found <= exact + exact / 100,
            "{found:?} {exact:?}"
        );
    }
}

#[test]
fn latency_buckets_ascend_and_miss_only_what_is_longer() {
    let latency = Latency::new();
    for nanos in [100, 700, 1_500_000, 20_000_000_000] {
        latency.record(Duration::from_nanos(nanos));
    }
    let stats = latency.stats(1);
    let counts: Vec<u64> = stats.buckets().map(|(_, count)| count).collect();
    assert!(counts.is_sorted());
    let at = |bound| stats.buckets().find(|(nanos, _)| nanos.as_nanos() == bound);
    assert_eq!(at(200).unwrap().1, 1);
    assert_eq!(at(1_000).unwrap().1, 2);
    assert_eq!(at(2_000_000).unwrap().1, 3);
    assert_eq!(at(10_000_000_000).unwrap().1, 3);
    assert_eq!(stats.count, 4);
}

#[test]
fn latency_of_no_calls_is_zero() {
    let stats = Latency::new().stats(61);
    assert_eq!((stats.count, stats.sample_interval), (0, 61));
    assert_eq!((stats.mean, stats.p9999), (Duration::ZERO, Duration::ZERO));
}
