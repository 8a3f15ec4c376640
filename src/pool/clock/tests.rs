use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Clock, Held, SLOTS_MIN, Slot};

fn slots(clock: &Arc<Clock<usize>>, share: &Arc<AtomicU64>, count: usize) -> Vec<Arc<Slot<usize>>> {
    (0..count)
        .map(|nth| Slot::new(clock, share, nth, 10))
        .collect()
}

/// One in which nothing stays for good.
fn unpinned<T>(bytes_max: u64) -> Clock<T> {
    let clock = Clock::new(bytes_max);
    clock.pinned.store(bytes_max / 2, Ordering::Relaxed);
    clock
}

fn there(slots: &[Arc<Slot<usize>>]) -> Vec<usize> {
    let is_there = |&nth: &usize| slots[nth].value.load().is_some();
    (0..slots.len()).filter(is_there).collect()
}

#[test]
fn all_stay_while_there_is_room() {
    let (clock, share) = (Arc::new(unpinned(100)), Arc::default());
    let all = slots(&clock, &share, 10);
    assert_eq!(there(&all), (0..10).collect::<Vec<_>>());
    assert_eq!(share.load(Ordering::Relaxed), 100);
}

#[test]
fn what_is_used_stays_and_the_rest_is_made_again() {
    let (clock, share) = (Arc::new(unpinned(40)), Arc::default());
    let all = slots(&clock, &share, 4);
    // The first pass takes from all what they had when they came, and the first one goes.
    let more = slots(&clock, &share, 1);
    assert_eq!(there(&all), [1, 2, 3]);
    assert_eq!(all[2].get().as_deref(), Some(&2));
    let again = all[0].get_or_make(|| Ok::<_, Infallible>(100));
    assert_eq!(again.map(|value| *value), Ok(100));
    assert_eq!(there(&all), [0, 2, 3]);
    assert_eq!(there(&more), [0]);
    assert_eq!(share.load(Ordering::Relaxed), 40);
    let failed = all[1].get_or_make(|| Err("not there"));
    assert_eq!(failed.map(|value| *value), Err("not there"));
    assert_eq!(there(&all), [0, 2, 3]);
}

#[test]
fn one_that_is_too_long_stays_until_the_next() {
    let (clock, share) = (Arc::new(unpinned(5)), Arc::default());
    let all = slots(&clock, &share, 3);
    assert_eq!(there(&all), [2]);
    assert_eq!(share.load(Ordering::Relaxed), 10);
}

#[test]
fn slots_that_are_gone_cost_nothing() {
    let (clock, share) = (Arc::new(unpinned(u64::MAX)), Arc::default());
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
    let (clock, share) = (Arc::new(unpinned(30)), Arc::default());
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
                    wrong.fetch_add(
                        usize::from(made.map(|value| *value) != Ok(nth)),
                        Ordering::Relaxed,
                    );
                }
            });
        }
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
    let there = there(&all).len() as u64;
    assert_eq!(share.load(Ordering::Relaxed), 10 * there);
    assert!((1..=3).contains(&there), "{there}");
}

/// Who has a value goes on with it after it was let go.
#[test]
fn value_stays_while_it_is_held() {
    let (clock, share) = (Arc::new(unpinned(0)), Arc::default());
    let all = slots(&clock, &share, 2);
    let held: Vec<_> = (0..100)
        .map(|_| all[1].get().expect("the last one is there"))
        .collect();
    let kept = all[1].get().expect("the last one is there").for_long();
    drop(all[0].get_or_make(|| Ok::<_, Infallible>(7)));
    assert_eq!(there(&all), [0]);
    assert!(held.iter().all(|value| **value == 1));
    drop(held);
    assert_eq!(*kept, 1);
}

#[test]
fn half_of_the_room_is_for_values_that_stay() {
    let (clock, share) = (Arc::new(Clock::new(40)), Arc::default());
    let first = slots(&clock, &share, 2);
    let others = slots(&clock, &share, 20);
    assert!(there(&first).is_empty(), "they are elsewhere");
    for (nth, slot) in first.iter().enumerate() {
        assert!(matches!(slot.get(), Some(Held::Pinned(value)) if *value == nth));
    }
    assert_eq!(there(&others), [18, 19]);
    assert_eq!(share.load(Ordering::Relaxed), 40);
    // Their room is for whoever comes next, though others have taken it meanwhile.
    drop(first);
    for slot in &others {
        drop(slot.get_or_make(|| Ok::<_, Infallible>(7)));
    }
    assert_eq!(share.load(Ordering::Relaxed), 40);
    drop(slots(&clock, &share, 2));
    assert_eq!(share.load(Ordering::Relaxed), 20);
    let [next, last] = [slots(&clock, &share, 1), slots(&clock, &share, 2)];
    assert!(there(&next).is_empty());
    assert_eq!(there(&last), [1]);
    assert_eq!(share.load(Ordering::Relaxed), 40);
    drop((others, next, last));
    assert_eq!(clock.bytes.load(Ordering::Relaxed), 0);
    assert_eq!(clock.pinned.load(Ordering::Relaxed), 0);
}
