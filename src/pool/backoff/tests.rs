use super::*;

/// Notes a failure, after which nothing is tried for so long.
fn fail(backoff: &mut Backoff, interval: Duration) {
    let begun = Instant::now();
    backoff.note(false);
    assert!(backoff.is_failing());
    let rest = backoff.rest().unwrap_or_default();
    // Another thread may have made this one late.
    assert!(
        rest <= interval && rest + begun.elapsed() >= interval,
        "{rest:?} of {interval:?}"
    );
}

#[test]
fn each_failure_rests_for_twice_as_long_as_the_one_before() {
    let mut backoff = Backoff::default();
    assert!(!backoff.is_failing());
    assert_eq!(backoff.rest(), None);
    let intervals = [
        100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
    ];
    for millis in intervals {
        fail(&mut backoff, Duration::from_millis(millis));
    }
    backoff.note(true);
    assert!(!backoff.is_failing());
    assert_eq!(backoff.rest(), None);
    fail(&mut backoff, INTERVALS.0);
}

/// What has failed is known as such until it succeeds, also while it is tried again.
#[test]
fn rest_ends_before_the_failure_is_forgotten() {
    let mut backoff = Backoff::default();
    backoff.note(false);
    while let Some(rest) = backoff.rest() {
        std::thread::sleep(rest);
    }
    assert!(backoff.is_failing());
}
