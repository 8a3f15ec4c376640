//! Superblocks that a crash has torn, or that were damaged after one; and what stands half removed beside
//! an insertion.

use rand::RngExt;

use super::Kind;
use super::check::check;
use super::explorer::{on_one_thread, rng, seed};
use super::history::Allowed;
use super::kind::{keys, killed, open, open_and_scan, open_with, superblock};
use super::operation::Op;
use super::operation::Run;
use crate::engine::Write;
use crate::index::crash_tests::operation::Op::{
    AddLevel, Compact, Drain, Insert, Kill, Recycle, Remove, Reopen, Reserve, Update, UseUp,
};
use crate::layout::bucket::SlotAddr;
use crate::layout::{EMPTY, PAGE, Superblock};
use crate::pm::Medium;
use crate::pm::sim::{CrashState, Simulated};
use crate::table::recovery::Policy;

/// Keys that are used.
const KEYS: u64 = 9;

/// All that writes superblocks, with items in between that rely on them.
fn life() -> Vec<Op> {
    vec![
        AddLevel,
        Insert(4),
        Insert(5),
        Drain,
        UseUp,
        Insert(6),
        Recycle,
        Reopen,
        Remove(4),
        Compact,
        Update(5),
        Kill,
        Insert(7),
        UseUp,
        Update(7),
        AddLevel,
        Insert(8),
        Reserve(8),
        Insert(9),
        Reopen,
        Kill,
        Remove(1),
        Compact,
        Insert(1),
        Compact,
        Reopen,
    ]
}

/// Flips a bit of the newest copy.
fn damage_newest(memory: &Simulated, newest: &Superblock, bit: u64) {
    let word = newest.file_offset() + bit / 64 * 8;
    memory.store(word, memory.load(word) ^ 1 << (bit % 64));
}

#[test]
fn superblock_damage_in_the_newest_copy_loses_nothing() {
    let seed = seed();
    println!("GPHASH_TEST_SEED={seed}");
    let mut rng = rng(seed);
    on_one_thread(|| {
        for key_size in [8, 32, 0] {
            let kind = Kind::of((1, 2, 4), key_size);
            let mut run = Run::new(kind, seed, &[Insert(1), Insert(2), Insert(3)]);
            for op in life() {
                // So many records of all size classes take long.
                if key_size == 0 && matches!(op, UseUp) {
                    continue;
                }
                run = run.apply(&op);
                let state = run.table.medium.crash_state();
                let allowed = run.history.allowed(state.step, keys(KEYS));
                let left = || state.process_crash().memory();
                let closed = open(left()).0;
                closed.close().unwrap();
                for memory in [left(), left(), killed(&closed.medium)] {
                    let newest = superblock(&memory);
                    let bit = rng.random_range(0..8 * size_of::<Superblock>() as u64);
                    println!("{op:?}: {}, bit {bit}", newest.generation);
                    damage_newest(&memory, &newest, bit);
                    check(&kind, killed(&memory), KEYS, &allowed);
                }
            }
        }
    });
}

/// The slots of the live levels that are not empty.
fn full_slots(kind: &Kind, memory: &Simulated) -> Vec<SlotAddr> {
    let (superblock, shape) = (superblock(memory), kind.shape());
    let levels = superblock.bottom_level..=superblock.top_level;
    let buckets = levels.flat_map(|level| {
        let first = superblock.level_directory[level as usize];
        (0..1 << level).map(move |bucket| first + bucket * shape.bucket_size)
    });
    buckets
        .flat_map(|at| (0..shape.slots).map(move |slot| shape.slot_addr(at, slot)))
        .filter(|addr| memory.load(addr.state) != EMPTY)
        .collect()
}

#[test]
fn superblock_of_a_torn_close_stays_unclean() {
    on_one_thread(|| {
        let kind = Kind::of((2, 2, 4), 8);
        let run = Run::new(kind, 5, &[Insert(1), Insert(2), Insert(3)]);
        run.table.close().unwrap();
        // All of the close but for the generation of its superblock.
        let recording = run.table.medium.recorded();
        let is_closed = |state: &CrashState| {
            state.pending_stores() > 0 && superblock(&state.process_crash().memory()).is_clean()
        };
        let state = recording.states().filter(is_closed).last().unwrap();
        let generation = superblock(&run.table.medium).file_offset()
            + std::mem::offset_of!(Superblock, generation) as u64;
        let torn = state.power_cut_but_for(|at| at != generation).memory();
        assert!(!superblock(&torn).is_clean());
        // An item that the recovery drops, so that the close would no longer be right.
        let slot = full_slots(&kind, &torn)[0];
        torn.store(slot.record, torn.load(slot.record) + 1);
        let torn = killed(&torn);
        torn.record();
        let policy = Policy {
            repair_damage: true,
            ..Policy::INDEX
        };
        let (table, recovery) = open_with(torn, policy);
        assert_eq!((recovery.items, recovery.damage.len()), (2, 1));
        for state in table.medium.recorded().states() {
            for word in (0..2 * PAGE).step_by(8) {
                let memory = state.power_cut_but_for(|at| at == word).memory();
                if superblock(&memory).is_clean() {
                    let (table, recovery) = open_and_scan(memory);
                    assert_eq!(recovery.items, table.superblock().items, "word {word}");
                }
            }
        }
    });
}

#[test]
fn insertion_makes_another_threads_removal_durable() {
    const ITEMS: u64 = 10;

    on_one_thread(|| {
        let kind = Kind::of((2, 2, 4), 8);
        let prepare: Vec<Op> = (1..=ITEMS).map(Insert).collect();
        // Also such whose bucket is full, so that the new item is on another line than the old one.
        for key in 1..=ITEMS {
            let run = Run::new(kind, 5, &prepare);
            let medium = &run.table.medium;
            let slots = full_slots(&kind, medium);
            let slot = slots.iter().find(|slot| medium.load(slot.state) == key);
            let slot = slot.unwrap();
            // A removal that has come no further than this when the insertion begins.
            let removal = || medium.store(slot.record, 0);
            std::thread::scope(|scope| scope.spawn(removal).join().unwrap());
            let removed = medium.steps();
            assert_eq!(kind.write(&run.table, Write::Insert, &[key], &[99]), [true]);
            let recording = run.table.medium.recorded();
            let answered = recording.count() - 1;
            for (nth, state) in recording.states().enumerate() {
                if state.step < removed {
                    continue;
                }
                let mut allowed: Allowed = keys(ITEMS)
                    .map(|other| {
                        let version = (1..=ITEMS).contains(&other).then_some(other);
                        (other, [version].into())
                    })
                    .collect();
                let may_be: &[Option<u64>] = match nth {
                    _ if nth == answered => &[Some(99)],
                    _ => &[Some(key), None, Some(99)],
                };
                allowed.insert(key, may_be.iter().copied().collect());
                for image in state.power_cuts(24, &mut rng(nth as u64)) {
                    check(&kind, image.memory(), ITEMS, &allowed);
                }
            }
        }
    });
}
