use std::path::Path;
use std::thread;

use super::*;
use crate::layout::{DATA_START, Shape};
use crate::pm::sim::Simulated;

fn new_table() -> Table<Simulated> {
    let shape = Shape::new(8, 8, 4, 2, 2).unwrap();
    let memory = Simulated::new(DATA_START, 1 << 24);
    Table::create(memory, shape, 1, Path::new("memory")).unwrap()
}

/// Threads that remove and insert one key, and one that updates it: it is never there twice, and
/// nobody takes a copy on its way for damage.
#[test]
fn insertions_beside_removals_leave_one_copy() {
    for is_draining in [false, true] {
        let mut table = new_table();
        table.arena.hurry();
        if is_draining {
            table.add_level(table.levels.live()).unwrap();
            assert!(table.levels.live().draining(table.shape.levels));
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

/// Others help an insertion to its end, remove what it has inserted, and are struck out in its slot before it looks.
#[test]
fn insertion_is_not_taken_for_another_one_in_its_slot() {
    let table = new_table();
    let key = 7u64.to_ne_bytes();
    let target = table.target(&key);
    let slot = table.claim(&target).unwrap().unwrap();
    let mut session = table.session();
    let [record, other] = [(); 2].map(|()| session.allocate(0).unwrap());
    let tentative = |record| RecordWord::member(target.word, record).with(RecordWord::TENTATIVE);
    let put = |word: RecordWord| {
        table.medium.store(slot.addr.record, word.0);
        table.medium.store(slot.addr.state, target.word);
        slot.show(&target);
    };
    let mine = tentative(record);
    for (found, is_won) in [
        (mine, true),
        (mine.with(0), true),
        (mine.with(RecordWord::COLLIDED), false),
        (tentative(other).with(RecordWord::COLLIDED), true),
        (RecordWord::NONE, true),
    ] {
        put(found);
        assert_eq!(table.decide(&target, slot.addr, mine), is_won, "{found:?}");
    }
}

/// A file that is believed may hold what no crash leaves.
#[test]
fn rival_that_names_no_record_is_not_helped() {
    let table = new_table();
    let key = 7u64.to_ne_bytes();
    let target = table.target(&key);
    let slot = table.claim(&target).unwrap().unwrap();
    let beyond = RecordWord::member(target.word, table.medium.len());
    let rival = beyond.with(RecordWord::TENTATIVE);
    table.medium.store(slot.addr.record, rival.0);
    table.medium.store(slot.addr.state, target.word);
    slot.show(&target);
    let hint = ProbeHint::of(&table, &target);
    let inserted = (table.session()).insert(&target, &hint, &Content::fixed(&key));
    assert_eq!(inserted.unwrap(), Inserted::New);
    let found = table.find(&target, &mut 0).unwrap();
    assert!(found.addr != slot.addr && table.record_in_bounds(found.record));
}

/// Who has a slot may be held up for long, by a disk that is slow to bring a page.
#[test]
fn reserved_bucket_whose_slots_are_in_use_is_not_damaged() {
    let table = new_table();
    for slot in 0..table.shape.slots {
        let addr = table.shape.slot_addr(reserved_bucket_at(0), slot);
        table.medium.store(addr.state, BUSY);
    }
    let owner = table.pin(0);
    let mut full = None;
    table.check_progress(0, &mut full).unwrap();
    let full_for_long = full.as_mut().unwrap();
    full_for_long.since -= 2 * BUCKET_WAIT_MAX;
    full_for_long.checks = BUCKET_CHECKS_MAX;
    for _ in 0..10 {
        table.check_progress(0, &mut full).unwrap();
    }
    drop(owner);
    let checked = [(); 2].map(|()| table.check_progress(0, &mut full));
    assert!(matches!(checked, [.., Err(Error::Damaged { .. })]));
}
