use super::*;

/// A queue that is taken at moments after one another.
struct Queue {
    threshold: Threshold,
    now: Instant,
}

impl Queue {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            threshold: Threshold::new(now),
            now,
        }
    }

    /// So many requests, this long after the queue was last taken.
    fn take(&mut self, waiting: usize, after: Duration) -> Side {
        self.now += after;
        self.threshold.choose(waiting, self.now)
    }
}

const LONG_INTERVAL: Duration = Duration::from_millis(5);

#[test]
fn threshold_sends_long_queues_to_the_gpu() {
    let mut queue = Queue::new();
    assert_eq!(
        queue.take(THRESHOLD_REQUESTS_MIN - 1, LONG_INTERVAL),
        Side::Cpu
    );
    assert_eq!(queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL), Side::Gpu);
    assert_eq!(queue.take(1, LONG_INTERVAL), Side::Cpu);
}

#[test]
fn threshold_reached_too_soon_rises_to_its_limit() {
    let mut queue = Queue::new();
    let mut reached = THRESHOLD_REQUESTS_MIN;
    for _ in 0..6 {
        assert_eq!(
            queue.threshold.requests,
            reached.min(THRESHOLD_REQUESTS_MAX)
        );
        assert_eq!(
            queue.take(THRESHOLD_REQUESTS_MAX, RAISE_INTERVAL_MAX),
            Side::Gpu
        );
        reached *= RAISE_FACTOR;
    }
    // Reached, but in more time.
    let mut slow = Queue::new();
    assert_eq!(
        slow.take(
            THRESHOLD_REQUESTS_MIN,
            RAISE_INTERVAL_MAX + Duration::from_nanos(1)
        ),
        Side::Gpu
    );
    assert_eq!(slow.threshold.requests, THRESHOLD_REQUESTS_MIN);
}

#[test]
fn threshold_is_halved_while_the_rate_falls() {
    let mut queue = Queue::new();
    queue.take(THRESHOLD_REQUESTS_MIN, RAISE_INTERVAL_MAX);
    assert_eq!(
        queue.threshold.requests,
        THRESHOLD_REQUESTS_MIN * RAISE_FACTOR
    );
    queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL);
    assert_eq!(
        queue.threshold.requests,
        THRESHOLD_REQUESTS_MIN * RAISE_FACTOR / 2
    );
    // The rate stays, and rises.
    queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL);
    queue.take(2 * THRESHOLD_REQUESTS_MIN, LONG_INTERVAL);
    assert_eq!(
        queue.threshold.requests,
        THRESHOLD_REQUESTS_MIN * RAISE_FACTOR / 2
    );
    for waiting in (0..9).rev() {
        queue.take(waiting, LONG_INTERVAL);
    }
    assert_eq!(queue.threshold.requests, THRESHOLD_REQUESTS_MIN);
}

#[test]
fn threshold_switches_rarely_at_an_unsteady_rate() {
    let turns = SWITCH_PERIOD.as_nanos() / LONG_INTERVAL.as_nanos();
    let mut queue = Queue::new();
    let mut before = Side::Cpu;
    for _ in 0..5 {
        let (mut switches, mut on_cpu) = (0, 0);
        for turn in 0..turns {
            let waiting = if turn % 2 == 0 { 100_000 } else { 10 };
            let side = queue.take(waiting, LONG_INTERVAL);
            switches += u32::from(side != before);
            on_cpu += u32::from(side == Side::Cpu);
            before = side;
        }
        assert!(
            (1..=PERIOD_SWITCHES_MAX + 2).contains(&switches),
            "{switches}"
        );
        assert!(on_cpu <= PERIOD_SWITCHES_MAX, "{on_cpu} of {turns}");
    }
}

#[test]
fn threshold_accepts_clocks_out_of_order() {
    let mut queue = Queue::new();
    assert_eq!(queue.take(0, Duration::ZERO), Side::Cpu);
    assert_eq!(
        queue.take(THRESHOLD_REQUESTS_MIN, Duration::ZERO),
        Side::Gpu
    );
    // Clocks of different threads may be read in the other order.
    let earlier = queue.now;
    queue.take(1, LONG_INTERVAL);
    assert_eq!(queue.threshold.choose(1, earlier), Side::Cpu);
}

#[test]
fn threshold_stays_on_the_cpu_after_many_switches() {
    let mut queue = Queue::new();
    for side in [Side::Gpu, Side::Cpu, Side::Gpu] {
        let waiting = if side == Side::Gpu {
            THRESHOLD_REQUESTS_MIN
        } else {
            1
        };
        assert_eq!(queue.take(waiting, LONG_INTERVAL), side);
    }
    assert_eq!(queue.take(1, LONG_INTERVAL), Side::Cpu);
    assert_eq!(queue.take(THRESHOLD_REQUESTS_MIN, LONG_INTERVAL), Side::Cpu);
    // In the next period the queue's length decides again.
    assert_eq!(queue.take(THRESHOLD_REQUESTS_MIN, SWITCH_PERIOD), Side::Gpu);
}
