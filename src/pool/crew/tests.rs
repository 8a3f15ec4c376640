use std::time::{Duration, Instant};

use super::super::parallel;
use super::*;

/// Runs `lead` as a leader beside so many threads that help.
fn beside<T>(helpers: usize, lead: impl FnOnce() -> T) -> T {
    let crew = Arc::new(Crew::default());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|| {
                crew.stand_by(|| {
                    while !is_done.load(Ordering::Acquire) {
                        if !crew.help() {
                            std::thread::yield_now();
                        }
                    }
                });
            });
        }
        while crew.awake.load(Ordering::Relaxed) < helpers {
            std::thread::yield_now();
        }
        let led = catch_unwind(AssertUnwindSafe(|| crew.do_with(lead)));
        is_done.store(true, Ordering::Release);
        led.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[test]
fn each_part_is_done_once_whoever_helps() {
    for helpers in [0, 1, 3] {
        beside(helpers, || {
            for round in 0..2000 {
                let parts = round % 19;
                let nested = |nth: usize| parallel::map(0..3, move |more| nth * 3 + more);
                let done = parallel::map(0..parts, nested).concat();
                assert!(done.into_iter().eq(0..3 * parts), "{round}");
            }
        });
    }
}

#[test]
fn helpers_take_parts_while_the_leader_has_one() {
    let both = AtomicUsize::new(0);
    let part = |_| {
        both.fetch_add(1, Ordering::SeqCst);
        let began = Instant::now();
        // Each waits for the other.
        while both.load(Ordering::SeqCst) < 2 {
            assert!(began.elapsed() < Duration::from_secs(600), "nobody helps");
            std::thread::yield_now();
        }
    };
    beside(1, || parallel::map(0..2, part));
}

#[test]
fn panic_of_a_part_is_the_leader_s() {
    for helpers in [0, 2] {
        for nth in 0..9 {
            let work = || parallel::map(0..9, |part| assert_ne!(part, nth, "as it was told"));
            let told = catch_unwind(AssertUnwindSafe(|| beside(helpers, work)));
            let panic = told.expect_err("a part has panicked");
            let words = panic.downcast_ref::<String>().expect("it has said why");
            assert!(words.contains("as it was told"), "{words}");
        }
    }
}
