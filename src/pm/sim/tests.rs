//! Tests of the simulated memory itself.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;

/// The values that the words at 0, 8 and 64 have in the crash images of a moment.
fn outcomes(state: &CrashState, most: usize) -> BTreeSet<[u64; 3]> {
    let mut rng = SmallRng::seed_from_u64(1);
    let images = state.power_cuts(most, &mut rng);
    assert!(images.len() <= most);
    images
        .iter()
        .map(|image| {
            let memory = image.memory();
            assert_eq!(memory.crash_state().process_crash().hash(), image.hash());
            [0, 8, 64].map(|at| memory.load(at))
        })
        .collect()
}

#[test]
fn crash_leaves_any_value_of_an_unfenced_word() {
    let memory = Simulated::new(1, 1 << 20);
    memory.store(0, 1);
    memory.write_back(0, 8);
    memory.store(0, 2);
    memory.write(8, &3u64.to_ne_bytes());
    // All of them, whether they are enumerated or met by chance.
    for most in [6, 1000] {
        assert_eq!(outcomes(&memory.crash_state(), most).len(), 3 * 2);
    }
    memory.fence();
    assert_eq!(memory.load(0), 2);
    let fenced = outcomes(&memory.crash_state(), 1000);
    assert_eq!(fenced, [[1, 0, 0], [1, 3, 0], [2, 0, 0], [2, 3, 0]].into());
    memory.write_back(8, 1);
    memory.fence();
    assert_eq!(outcomes(&memory.crash_state(), 1000), [[2, 3, 0]].into());
}

#[test]
fn fence_covers_the_write_backs_of_its_thread() {
    let memory = Simulated::new(1, 1 << 20);
    memory.store(0, 1);
    memory.write_back(0, 8);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            memory.fence();
            memory.store(64, 2);
            memory.write_back(64, 8);
        });
        other.join().unwrap();
    });
    memory.fence();
    let state = memory.crash_state();
    assert_eq!(outcomes(&state, 1000), [[1, 0, 0], [1, 0, 2]].into());
}

#[test]
fn samples_include_in_order_stores_to_a_line() {
    let memory = Simulated::new(1, 1 << 20);
    for number in 1..=4 {
        memory.store(0, number);
        memory.store(8, number);
        memory.store(64, number);
    }
    let found = outcomes(&memory.crash_state(), 124);
    for first in 0..=8u64 {
        for second in 0..=4 {
            assert!(found.contains(&[first.div_ceil(2), first / 2, second]));
        }
    }
}

#[test]
fn steps_are_all_recorded() {
    let memory = Simulated::new(1, 1 << 20);
    memory.store(64, 5);
    memory.write_back(64, 8);
    memory.record();
    memory.fence();
    memory.write(0, &[1; 16]);
    let recording = memory.recorded();
    let states: Vec<CrashState> = recording.states().collect();
    assert_eq!(recording.count(), states.len());
    let steps: Vec<u64> = states.iter().map(|state| state.step).collect();
    assert_eq!(steps, [1, 2, 3, 4]);
    let first = u64::from_ne_bytes([1; 8]);
    assert_eq!(outcomes(&states[0], 9), [[0, 0, 0], [0, 0, 5]].into());
    assert_eq!(outcomes(&states[2], 9), [[0, 0, 5], [first, 0, 5]].into());
    let killed = states[3].process_crash().memory();
    assert_eq!([0, 8, 64].map(|at| killed.load(at)), [first, first, 5]);
    let some = recording.states_at(&[1, 3]);
    assert_eq!(
        some.iter().map(|state| state.step).collect::<Vec<_>>(),
        [2, 4]
    );
}

#[test]
fn process_crash_is_the_same_with_and_without_pending_stores() {
    let memory = Simulated::new(1, 8 * PAGE);
    let check = |memory: &Simulated| {
        let state = memory.crash_state();
        let (image, left) = (state.process_crash(), memory.process_crash());
        let expected = image.memory();
        assert_eq!(left.len(), expected.len());
        for at in (0..left.len()).step_by(8) {
            assert_eq!(left.load(at), expected.load(at));
        }
        assert_eq!(left.crash_state().process_crash().hash(), image.hash());
    };
    memory.write(4, &[1; 30]);
    memory.write_back(0, 16);
    check(&memory);
    memory.fence();
    memory.grow(4 * PAGE).unwrap();
    memory.store(3 * PAGE, 2);
    memory.release(PAGE, 2 * PAGE);
    memory.store(PAGE, 3);
    check(&memory);
    check(&memory.crash_state().after_kill());
    memory.cut(2 * PAGE);
    check(&memory);
    memory.grow(4 * PAGE).unwrap();
    check(&memory);
}

#[test]
fn simulator_grows_to_its_limit() {
    let memory = Simulated::new(1, 3 * PAGE);
    memory.grow(3 * PAGE).unwrap();
    memory.store(3 * PAGE - 8, 1);
    let full = memory.grow(3 * PAGE + 1);
    assert!(matches!(full, Err(Error::NoSpace { needed: 1, .. })));
    assert_eq!(memory.len(), 3 * PAGE);
}
