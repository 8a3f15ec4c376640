use std::time::Duration;

use super::*;
use crate::engine::device_tests::{GPU, alone};
use crate::pool::key_writes::KeyWrites;

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

/// As the CPU finds them.
#[test]
fn versions_of_a_key_are_found_in_order() {
    let Some(_alone) = alone() else { return };
    let keys: [&[u8]; 7] = [b"b", b"a", b"", b"b", b"a", b"b", b"c"];
    let changes = [0, 1, 2, 3, 5];
    let key = |position| keys[position as usize];
    let gpu = version_sorter(GPU, &DeviceBudget::new(None)).unwrap();
    let sorted = |hash: &(dyn Fn(u32) -> u64 + Sync)| {
        let sorted = sort_on_gpu(gpu.as_ref(), 7, &changes, hash);
        assert!(sorted.is_some());
        sorted
    };
    let of_gpu = KeyWrites::sort(7, &changes, key, sorted);
    let of_cpu = KeyWrites::sort(7, &changes, key, |_| None);
    for (nth, before) in [(5, &[3, 0][..]), (3, &[0]), (4, &[1]), (0, &[]), (2, &[])] {
        let position = |version: &KeyWrite| version.position;
        let of_gpu: Vec<u32> = of_gpu.before(key(nth), || nth).map(position).collect();
        let of_cpu: Vec<u32> = of_cpu.before(key(nth), || nth).map(position).collect();
        assert_eq!((&of_gpu[..], &of_cpu[..]), (before, before), "{nth}");
    }
}
