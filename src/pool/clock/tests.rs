use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Clock, SLOTS_MIN, Slot};

fn slots(clock: &Arc<Clock<usize>>, share: &Arc<AtomicU64>, count: usize) -> Vec<Arc<Slot<usize>>> {
    (0..count)
        .map(|nth| Slot::new(clock, share, nth, 10))
        .collect()
}

fn there(slots: &[Arc<Slot<usize>>]) -> Vec<usize> {
    let is_there = |&nth: &usize| slots[nth].value.read().is_some();
    (0..slots.len()).filter(is_there).collect()
}

#[test]
fn all_stay_while_there_is_room() {
    let (clock, share) = (Arc::new(Clock::new(100)), Arc::default());
    let all = slots(&clock, &share, 10);
    assert_eq!(there(&all), (0..10).collect::<Vec<_>>());
    assert_eq!(share.load(Ordering::Relaxed), 100);
}

#[test]
fn what_is_used_stays_and_the_rest_is_made_again() {
    let (clock, share) = (Arc::new(Clock::new(40)), Arc::default());
    let all = slots(&clock, &share, 4);
    // The first pass takes from all what they had when they came, and the first one goes.
    let more = slots(&clock, &share, 1);
    assert_eq!(there(&all), [1, 2, 3]);
    assert_eq!(all[2].get().as_deref(), Some(&2));
    let again = all[0].get_or_make(|| Ok::<_, Infallible>(100));
    assert_eq!(again.as_deref(), Ok(&100));
    assert_eq!(there(&all), [0, 2, 3]);
    assert_eq!(there(&more), [0]);
    assert_eq!(share.load(Ordering::Relaxed), 40);
    assert_eq!(all[1].get_or_make(|| Err("not there")), Err("not there"));
    assert_eq!(there(&all), [0, 2, 3]);
}

#[test]
fn one_that_is_too_long_stays_until_the_next() {
    let (clock, share) = (Arc::new(Clock::new(5)), Arc::default());
    let all = slots(&clock, &share, 3);
    assert_eq!(there(&all), [2]);
    assert_eq!(share.load(Ordering::Relaxed), 10);
}

#[test]
fn slots_that_are_gone_cost_nothing() {
    let (clock, share) = (Arc::new(Clock::new(u64::MAX)), Arc::default());
    let kept = slots(&clock, &share, 1);
    for _ in 0..20 {
        drop(slots(&clock, &share, SLOTS_MIN));
    }
    assert_eq!(share.load(Ordering::Relaxed), 10);
    assert_eq!(clock.bytes.load(Ordering::Relaxed), 10);
    assert!(clock.hand.lock().slots.len() <= 4 * SLOTS_MIN);
    assert_eq!(there(&kept), [0]);
}

#[test]
fn many_threads_make_what_is_not_there_once_each() {
    let (clock, share) = (Arc::new(Clock::new(30)), Arc::default());
    let all = slots(&clock, &share, 8);
    let are_made: Vec<AtomicBool> = all.iter().map(|_| AtomicBool::new(false)).collect();
    let wrong = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (all, are_made, wrong) = (&all, &are_made, &wrong);
            scope.spawn(move || {
                for round in 0..5000 {
                    let nth = (round * 7 + thread * 3) % all.len();
                    let made = all[nth].get_or_make(|| {
                        let before = are_made[nth].swap(true, Ordering::AcqRel);
                        wrong.fetch_add(usize::from(before), Ordering::Relaxed);
                        std::thread::yield_now();
                        are_made[nth].store(false, Ordering::Release);
                        Ok::<_, Infallible>(nth)
                    });
                    wrong.fetch_add(usize::from(made != Ok(Arc::new(nth))), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
    let there = there(&all).len() as u64;
    assert_eq!(share.load(Ordering::Relaxed), 10 * there);
    assert!((1..=3).contains(&there), "{there}");
}
