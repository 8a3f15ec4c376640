use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use super::*;

#[test]
fn reader_gate_waits_for_earlier_lookups() {
    let reader_gate = ReaderGate::default();
    for _ in 0..3 {
        let earlier = reader_gate.enter();
        let waited = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                reader_gate.wait();
                waited.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(5));
            assert!(!waited.load(Ordering::SeqCst));
            drop(earlier);
        });
    }
}

#[test]
fn reader_gate_does_not_wait_for_later_lookups() {
    let reader_gate = ReaderGate::default();
    let waited = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut read_guard = reader_gate.enter();
        scope.spawn(|| {
            reader_gate.wait();
            waited.store(true, Ordering::SeqCst);
        });
        while !waited.load(Ordering::SeqCst) {
            let next = reader_gate.enter();
            thread::sleep(Duration::from_micros(200));
            drop(std::mem::replace(&mut read_guard, next));
        }
    });
}
