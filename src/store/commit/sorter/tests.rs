use std::time::Duration;

use super::*;
use crate::engine::device_tests::{GPU, alone};

/// More than any threshold.
const LONG: usize = 20_000_000;

#[test]
fn whoever_was_faster_sorts_unless_a_gpu_is_asked_for_by_name() {
    let Some(_alone) = alone() else { return };
    for engine in [Engine::Auto, GPU] {
        let sorter = Sorter::new(engine, &DeviceBudget::new(None)).unwrap();
        let is_named = engine == GPU;
        let is_of_gpu = || sorter.turn(LONG).gpu.is_some();
        if !is_named {
            assert!(!is_of_gpu(), "it is opened first");
            while sorter.gpu.get().is_none() {
                std::thread::yield_now();
            }
        }
        assert!(is_of_gpu(), "nothing is known");
        let took = Duration::from_secs;
        sorter.rates.note(Side::Cpu, LONG as u64, took(1));
        sorter.rates.note(Side::Gpu, LONG as u64, took(2));
        assert_eq!(is_of_gpu(), is_named);
        for _ in 0..10 {
            sorter.rates.note(Side::Cpu, LONG as u64, took(3));
        }
        assert!(is_of_gpu());
        assert!(sorter.turn(PARALLEL_REQUESTS_MIN - 1).gpu.is_none());
        assert_eq!(sorter.gpu_batches(), if is_named { 3 } else { 2 });
        // What is timed counts.
        for _ in 0..30 {
            let turn = Turn {
                sorter: &sorter,
                gpu: None,
                began: Some((LONG as u64, Instant::now())),
            };
            turn.done();
        }
        assert_eq!(is_of_gpu(), is_named);
    }
}
