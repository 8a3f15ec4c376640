use std::sync::atomic::AtomicU64;

use super::*;

#[test]
fn worker_misses_no_call_and_ends_when_it_rests() {
    let worker = Worker::new("test");
    let (calls, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, told) = (Arc::clone(&calls), Arc::clone(&done));
    worker.set_work(move || {
        told.store(counted.load(Ordering::SeqCst), Ordering::SeqCst);
        None
    });
    let is_there = || worker.0.state.lock().is_there;
    for nth in 1..2000 {
        calls.store(nth, Ordering::SeqCst);
        worker.call().unwrap();
        while done.load(Ordering::SeqCst) < nth {
            thread::yield_now();
        }
    }
    let start = Instant::now();
    while is_there() {
        assert!(start.elapsed() < 600 * REST, "it does not end");
        thread::sleep(REST / 10);
    }
    calls.store(5000, Ordering::SeqCst);
    worker.call().unwrap();
    while done.load(Ordering::SeqCst) < 5000 {
        thread::yield_now();
    }
    worker.stop();
    assert!(!is_there());
    worker.call().unwrap();
    assert!(!is_there());
}

#[test]
fn worker_continues_after_a_panic_and_reruns_by_itself() {
    let worker = Worker::new("test");
    let rounds = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rounds);
    worker.set_work(move || {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        assert!(nth != 0, "as it was told");
        (nth < 10).then_some(Duration::from_millis(1))
    });
    for least in [1, 11] {
        worker.call().unwrap();
        while rounds.load(Ordering::SeqCst) < least {
            thread::yield_now();
        }
    }
    worker.stop();
    assert_eq!(rounds.load(Ordering::SeqCst), 11);
}

#[test]
fn worker_hears_of_a_later_call_within_a_second() {
    let worker = Worker::new("test");
    let rounds = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rounds);
    worker.set_work(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        None
    });
    let wait_for = |least| {
        let start = Instant::now();
        while rounds.load(Ordering::SeqCst) < least {
            assert!(start.elapsed() < 600 * REST, "nobody has heard of it");
            thread::sleep(REST / 100);
        }
    };
    // There is no thread yet, then there is one that waits.
    for least in 1..4 {
        worker.call_later().unwrap();
        wait_for(least);
    }
    worker.call_later().unwrap();
    // One that must not wait does not wait for the other.
    worker.call().unwrap();
    wait_for(4);
    worker.stop();
}
