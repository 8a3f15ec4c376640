use std::path::Path;
use std::thread;

use super::*;
use crate::layout::{DATA_START, Shape};
use crate::pm::sim::Simulated;

/// Threads that remove and insert one key, and one that updates it: it is never there twice, and
/// nobody takes a copy on its way for damage.
#[test]
fn insertions_beside_removals_leave_one_copy() {
    for is_draining in [false, true] {
        let shape = Shape::new(8, 8, 4, 2, 2).unwrap();
        let memory = Simulated::new(DATA_START, 1 << 24);
        let mut table = Table::create(memory, shape, 1, Path::new("memory")).unwrap();
        table.arena.hurry();
        if is_draining {
            table.add_level(table.levels.live()).unwrap();
            assert!(table.levels.live().draining(shape.levels));
        }
        table.medium.stir(1, 3);
        let key = 7u64.to_ne_bytes();
        let target = table.target(&key);
        let rounds = 15_000u64;
        let remove_and_insert = || {
            let mut balance = 0;
            for round in 0..rounds {
                let mut session = table.session();
                let hint = ProbeHint::of(&table, &target);
                balance -= i64::from(session.remove(&target, &hint).unwrap());
                let content = round.to_ne_bytes();
                let inserted = session.insert(&target, &hint, &Content::fixed(&content));
                balance += i64::from(inserted.unwrap() == Inserted::New);
            }
            table.medium.leave();
            balance
        };
        let balance: i64 = thread::scope(|scope| {
            let threads = [
                scope.spawn(remove_and_insert),
                scope.spawn(remove_and_insert),
            ];
            for round in 0..rounds {
                let hint = ProbeHint::of(&table, &target);
                let content = round.to_ne_bytes();
                let mut session = table.session();
                let updated = session.update(&target, &hint, &Content::fixed(&content));
                updated.unwrap();
            }
            table.medium.leave();
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        let mut copies = 0;
        let hint = ProbeHint::of(&table, &target);
        while table.session().remove(&target, &hint).unwrap() {
            copies += 1;
        }
        assert_eq!(
            (balance, copies <= 1),
            (copies, true),
            "draining: {is_draining}"
        );
    }
}
