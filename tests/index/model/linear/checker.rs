//! Whether a history is linearizable: whether every operation can have taken effect at one moment
//! between its call and its return.
//!
//! Calls and returns are gone through in the order of time, with all that can be true by then: what
//! the map holds, and which of the operations under way have taken effect. When a call returns, its
//! operations must have. (Wing and Gong, *Testing and verifying concurrent objects*, 1993; in the
//! order of time and without repetition as in Lowe, *Testing for linearizability*, 2017.)

use std::collections::HashSet;

use super::history::Call;

/// What can be true at a moment.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    held: Option<u64>,
    /// How many operations of each call under way have taken effect.
    done: Vec<usize>,
}

/// Checks the calls on one key, which begins absent. If they are not linearizable, gives those that
/// were under way when that became certain; the first of them returned then.
pub fn check(calls: &[Call]) -> Result<(), Vec<Call>> {
    let mut events: Vec<_> = (0..calls.len())
        .flat_map(|call| [(calls[call].called, call), (calls[call].returned, call)])
        .collect();
    events.sort_unstable();
    let mut under_way: Vec<usize> = Vec::new();
    let mut states = HashSet::from([State {
        held: None,
        done: Vec::new(),
    }]);
    for (_, call) in events {
        let Some(place) = under_way.iter().position(|&other| other == call) else {
            under_way.push(call);
            states = states
                .into_iter()
                .map(|mut state| {
                    state.done.push(0);
                    state
                })
                .collect();
            continue;
        };
        states = reachable(states, calls, &under_way)
            .into_iter()
            .filter(|state| state.done[place] == calls[call].operations.len())
            .map(|mut state| {
                state.done.swap_remove(place);
                state
            })
            .collect();
        under_way.swap(0, place);
        if states.is_empty() {
            return Err(under_way.iter().map(|&call| calls[call].clone()).collect());
        }
        under_way.swap(0, place);
        under_way.swap_remove(place);
    }
    Ok(())
}

/// The states, and all that come from them when operations under way take effect.
fn reachable(states: HashSet<State>, calls: &[Call], under_way: &[usize]) -> HashSet<State> {
    let mut ahead: Vec<State> = states.iter().cloned().collect();
    let mut reached = states;
    while let Some(state) = ahead.pop() {
        for (place, &call) in under_way.iter().enumerate() {
            let Some(&(operation, answer)) = calls[call].operations.get(state.done[place]) else {
                continue;
            };
            let (expected, held) = operation.apply(state.held);
            if expected != answer {
                continue;
            }
            let mut next = state.clone();
            next.held = held;
            next.done[place] += 1;
            if reached.insert(next.clone()) {
                ahead.push(next);
            }
        }
    }
    reached
}

mod tests {
    use rand::RngExt;
    use rand::seq::IndexedRandom;

    use super::*;
    use crate::linear::history::{Answer, Operation};
    use crate::rng;

    use Answer::{Bit, Got};
    use Operation::{Contains, Get, Insert, Remove, Update, Upsert};

    fn call(called: u64, returned: u64, operations: &[(Operation, Answer)]) -> Call {
        Call {
            called,
            returned,
            operations: operations.to_vec(),
        }
    }

    #[test]
    fn operations_that_overlap_take_effect_in_any_order() {
        let inserted = call(0, 5, &[(Insert(1), Bit(true))]);
        for answer in [None, Some(1)] {
            let got = call(1, 4, &[(Get, Got(answer))]);
            assert!(check(&[inserted.clone(), got]).is_ok());
        }
        let removed = call(1, 6, &[(Remove, Bit(true)), (Insert(2), Bit(true))]);
        let updated = call(2, 3, &[(Update(3), Bit(false))]);
        let got = call(7, 8, &[(Get, Got(Some(2)))]);
        assert!(check(&[inserted, removed, updated, got]).is_ok());
    }

    #[test]
    fn checker_finds_a_history_without_an_order() {
        let stored = call(0, 1, &[(Upsert(1), Bit(true))]);
        let wrong: [&[Call]; 8] = [
            // Not there any more, though nobody took it away.
            &[call(2, 3, &[(Contains, Bit(false))])],
            // Two insertions of one key both stored it.
            &[
                call(2, 3, &[(Remove, Bit(true))]),
                call(4, 7, &[(Insert(2), Bit(true))]),
                call(5, 6, &[(Insert(3), Bit(true))]),
            ],
            // It was removed twice.
            &[
                call(2, 5, &[(Remove, Bit(true))]),
                call(3, 4, &[(Remove, Bit(true))]),
            ],
            // A value from before an update that had returned.
            &[
                call(2, 3, &[(Update(2), Bit(true))]),
                call(4, 5, &[(Get, Got(Some(1)))]),
            ],
            // A later lookup sees less than an earlier one.
            &[
                call(2, 9, &[(Update(2), Bit(true))]),
                call(3, 4, &[(Get, Got(Some(2)))]),
                call(5, 6, &[(Get, Got(Some(1)))]),
            ],
            // A value that nobody has stored, or not yet.
            &[call(2, 3, &[(Get, Got(Some(7)))])],
            &[
                call(2, 3, &[(Get, Got(Some(2)))]),
                call(4, 5, &[(Update(2), Bit(true))]),
            ],
            // Equal keys of one batch out of their order.
            &[call(
                2,
                3,
                &[(Get, Got(None)), (Remove, Bit(true)), (Get, Got(Some(1)))],
            )],
        ];
        for calls in wrong {
            let calls = [std::slice::from_ref(&stored), calls].concat();
            assert!(check(&calls).is_err(), "{calls:?}");
        }
    }

    #[test]
    fn checker_finds_every_wrong_result_of_sequential_calls() {
        let mut rng = rng("wrong answers");
        for round in 0..200 {
            let overlap = round % 2 * 500;
            let mut held = None;
            let mut calls: Vec<Call> = (1..40)
                .map(|n| {
                    let verbs = [Insert(n), Upsert(n), Update(n), Remove, Get, Contains];
                    let operation = *verbs.choose(&mut rng).unwrap();
                    let (answer, after) = operation.apply(held);
                    held = after;
                    // It takes effect at one moment, and its number keeps all moments apart.
                    let moment = 1000 + n * 100;
                    let called = (moment - rng.random_range(0..=overlap)) * 100 + n;
                    let returned = (moment + 1 + rng.random_range(0..=overlap)) * 100 + n;
                    call(called, returned, &[(operation, answer)])
                })
                .collect();
            assert!(check(&calls).is_ok(), "{calls:?}");
            let wrong = rng.random_range(0..calls.len());
            let (_, answer) = &mut calls[wrong].operations[0];
            *answer = match *answer {
                Bit(bit) => Bit(!bit),
                Got(None) => Got(Some(1)),
                Got(Some(_)) => Got(None),
            };
            let is_found = check(&calls).is_err();
            assert!(is_found || overlap > 0, "answer {wrong} of {calls:?}");
        }
    }
}
