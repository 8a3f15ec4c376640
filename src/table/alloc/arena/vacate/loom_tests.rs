use std::collections::BTreeSet;

use gphash_sync::be_thread;
use loom::thread;

use super::*;

/// Parts leave while another thread takes records and gives them back: none is in two hands, and none is lost.
#[test]
fn part_is_emptied_beside_allocation() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 20_000;
    builder.check(|| {
        let arena = Arena::new([4096].into_iter());
        arena.add_extent(0, 0x10000, 3 * 4096);
        let arena = std::sync::Arc::new(arena);
        let mut records = Vec::new();
        while let Some(run) = arena.take_run(0, 1) {
            records.push(run.start);
        }
        arena.give(records[..1].to_vec());
        arena.give(records[1..].to_vec());
        let other = std::sync::Arc::clone(&arena);
        let user = thread::spawn(move || {
            be_thread(1);
            let mut shard = other.shard(1);
            let mut held = Vec::new();
            held.extend(other.allocate(&mut shard, 0, || 9));
            held.extend(other.allocate(&mut shard, 0, || 9));
            drop(shard);
            if let Some(record) = held.pop() {
                other.give(vec![record]);
            }
            held
        });
        let begun = arena.begin_vacating(Victims::Empty, 4096, 9, || 9);
        let gone = match begun {
            Some(_) => arena.end_vacating(99, || 9),
            None => Vec::new(),
        };
        let held = user.join().unwrap();
        let mut seen: BTreeSet<u64> = gone.iter().map(|(offset, _)| *offset).collect();
        for record in held.iter().copied().chain(arena.take_all()) {
            assert!(seen.insert(record), "{record:#x} is in two hands");
        }
        assert_eq!(seen, records.iter().copied().collect());
        assert_eq!(arena.total(0), 3 - gone.len() as u64);
    });
}
