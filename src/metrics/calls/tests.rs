use super::*;

#[test]
fn latencies_of_short_calls_are_sampled_per_thread_and_others_are_all_there() {
    let metrics = StoreMetrics::default();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2 * GET_SAMPLE_INTERVAL {
                    metrics.time(TimedPath::Get, || ());
                    metrics.time(TimedPath::SingleChange, || ());
                    metrics.time(TimedPath::Batch, || ());
                }
            });
        }
    });
    assert_eq!(metrics.latency(TimedPath::Get).count, 6);
    let changes = metrics.latency(TimedPath::SingleChange);
    assert_eq!(changes.sample_interval, SHORT_SAMPLE_INTERVAL);
    let timed = (2 * GET_SAMPLE_INTERVAL).div_ceil(SHORT_SAMPLE_INTERVAL);
    assert_eq!(changes.count, u64::from(3 * timed));
    let batches = metrics.latency(TimedPath::Batch);
    assert_eq!(batches.count, u64::from(6 * GET_SAMPLE_INTERVAL));
    assert_eq!(batches.sample_interval, 1);
    assert_eq!(metrics.latency(TimedPath::Commit).count, 0);
}
