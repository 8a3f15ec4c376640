use std::sync::mpsc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Nothing should take so long.
const PATIENCE: Duration = Duration::from_secs(600);

fn bucket(bytes_per_second: u64) -> TokenBucket {
    TokenBucket {
        bytes_per_second,
        paid_at: Duration::ZERO,
    }
}

#[test]
fn token_bucket_gives_no_more_than_its_rate() {
    let mut rng = SmallRng::seed_from_u64(7);
    for rate in [1, 1000, 20 << 20, 1 << 40] {
        let mut bucket = bucket(rate);
        let (mut now, mut taken) = (Duration::ZERO, 0);
        let mut last = 0;
        for _ in 0..1000 {
            let bytes = rng.random_range(1..200_000);
            while let Err(wait) = bucket.take(bytes, now) {
                let early = bucket.take(bytes, now + wait - Duration::from_nanos(1));
                assert_eq!(early, Err(Duration::from_nanos(1)), "it says how long");
                now += wait;
            }
            taken += bytes;
            last = bytes;
            // Nobody comes just when there are tokens.
            now += Duration::from_micros(rng.random_range(0..2000));
        }
        // The last debt need not be paid.
        let given = now.as_secs_f64() * rate as f64;
        assert!((taken - last) as f64 <= given + 1.0, "rate {rate}");
    }
}

#[test]
fn token_bucket_saves_up_one_burst() {
    let mut bucket = bucket(1000);
    let later = Duration::from_secs(50);
    // A tenth of a second, in bytes, and one more time.
    assert_eq!(bucket.take(100, later), Ok(()));
    assert_eq!(bucket.take(100, later), Ok(()));
    assert_eq!(bucket.take(1, later), Err(BURST));
    assert_eq!(bucket.take(1, later + BURST), Ok(()));
}

#[test]
fn token_bucket_of_any_rate_counts() {
    let mut slow = bucket(1);
    assert_eq!(slow.take(u64::MAX, Duration::ZERO), Ok(()));
    let wait = slow.take(1, Duration::ZERO).unwrap_err();
    assert!(wait > Duration::from_secs(3600 * 24 * 365 * 500));
    assert_eq!(slow.take(u64::MAX, Duration::MAX), Ok(()));
    assert_eq!(slow.paid_at, Duration::MAX);
    let mut fast = bucket(u64::MAX);
    for step in 0..1000 {
        assert_eq!(fast.take(1 << 30, Duration::from_nanos(step)), Ok(()));
    }
}

#[test]
fn limiter_without_a_bound_never_waits() {
    let (limiter, waited) = (RateLimiter::new(None), AtomicU64::new(0));
    for _ in 0..1000 {
        assert_eq!(limiter.take(u64::MAX, &waited, || true), Duration::ZERO);
    }
    assert_eq!(waited.into_inner(), 0);
    assert!(!limiter.has_bound());
}

/// Has threads wait for years, and then what `lift` does.
fn check_that_threads_go_on(lift: impl FnOnce(&Arc<RateLimiter>)) {
    let limiter = Arc::new(RateLimiter::new(Some(1)));
    let waited = Arc::new(AtomicU64::new(0));
    limiter.take(1 << 30, &waited, || true);
    assert_eq!(waited.load(Ordering::Relaxed), 0, "the first one has not");
    let (sender, went_on) = mpsc::channel();
    for _ in 0..3 {
        let (limiter, waited) = (Arc::clone(&limiter), Arc::clone(&waited));
        let sender = sender.clone();
        std::thread::spawn(move || sender.send(limiter.take(1, &waited, || true)));
    }
    // It is said while it goes on.
    let started = Instant::now();
    while waited.load(Ordering::Relaxed) < 1_000_000_000 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    lift(&limiter);
    let mut total = Duration::ZERO;
    for _ in 0..3 {
        total += went_on.recv_timeout(PATIENCE).expect("it goes on");
    }
    assert_eq!(total.as_nanos(), waited.load(Ordering::Relaxed).into());
}

#[test]
fn threads_that_wait_go_on_when_the_bound_is_lifted() {
    check_that_threads_go_on(|limiter| {
        let (first, second) = (limiter.lift(), limiter.lift());
        drop(first);
        assert_eq!(limiter.take(1, &AtomicU64::new(0), || true), Duration::ZERO);
        drop(second);
        let _again = limiter.lift();
        assert_eq!(limiter.take(1, &AtomicU64::new(0), || true), Duration::ZERO);
        std::mem::forget(limiter.lift());
    });
}

#[test]
fn threads_that_wait_go_on_when_the_store_is_closed() {
    check_that_threads_go_on(|limiter| limiter.end());
}

#[test]
fn thread_that_may_not_wait_any_longer_goes_on() {
    let (limiter, waited) = (RateLimiter::new(Some(1)), AtomicU64::new(0));
    limiter.take(1 << 30, &waited, || true);
    let asked = AtomicU64::new(0);
    let took = limiter.take(1, &waited, || asked.fetch_add(1, Ordering::Relaxed) < 2);
    assert!(took > Duration::ZERO, "it has waited before");
    assert_eq!(asked.into_inner(), 3);
}
