use std::time::Duration;

use gphash_bench_reckoning::latency::Latencies;

fn of_us(batches: impl IntoIterator<Item = u64>) -> Latencies {
    Latencies::new(batches.into_iter().map(Duration::from_micros).collect())
}

#[test]
fn percentile_bounds_its_share_of_latencies() {
    let latencies = of_us((1..=200).rev());
    let percentiles = [1, 50, 99, 100].map(|percent| latencies.percentile_us(percent).round());
    assert_eq!(percentiles, [2.0, 100.0, 198.0, 200.0]);
}

#[test]
fn percentiles_of_one_batch_are_equal_and_of_none_zero() {
    assert_eq!(of_us([7]).percentile_us(0).round(), 7.0);
    assert_eq!(of_us([7]).percentile_us(99).round(), 7.0);
    assert_eq!(of_us([]).percentile_us(50), 0.0);
}
