//! The metadata block after crashes: the user's bytes are the old ones or the new ones, and no version that
//! was reported is reported for another state.

use super::Kind;
use super::explorer::{on_one_thread, rng, seed};
use super::kind::{killed, open, open_with, superblock};
use super::operation::Op::{Insert, Kill, Publish, Reopen, SetUser};
use super::operation::{Op, Run};
use crate::layout::{METADATA, MetadataPage, PAGE};
use crate::pm::Medium;
use crate::pm::sim::{CrashState, Simulated};
use crate::table::recovery::Policy;

/// What a table reports of itself from a step on.
#[derive(Debug, Clone)]
struct Reported {
    /// Steps of the medium.
    from: u64,
    user: Vec<u8>,
    version: u64,
}

/// Does what an index does for an operation, whose close publishes.
fn apply(run: Run, op: &Op) -> Run {
    if matches!(op, Insert(_)) {
        run.table.note_change();
    }
    if matches!(op, Reopen) {
        run.table.begin_last_version();
    }
    run.apply(op)
}

/// Opens what a crash leaves at a state, and checks it; gives what the table reports then.
fn check(memory: Simulated, state: &CrashState, reported: &[Reported]) -> Reported {
    let was_clean = superblock(&memory).is_clean();
    let (table, _) = open(memory);
    let metadata = table.metadata();
    let begun = reported.partition_point(|reported| reported.from <= state.step);
    let allowed = &reported[begun - 1..reported.len().min(begun + 1)];
    assert!(
        allowed
            .iter()
            .any(|reported| reported.user == metadata.user),
        "step {}: {metadata:?}, expected one of {allowed:?}",
        state.step
    );
    let last = allowed[0].version;
    let is_new = metadata.version > last;
    assert!(
        is_new || was_clean && metadata.version == last,
        "step {}: version {} after {last}",
        state.step,
        metadata.version
    );
    Reported {
        from: 0,
        user: metadata.user,
        version: metadata.version,
    }
}

#[test]
fn metadata_after_a_crash_is_old_or_new() {
    let seed = seed();
    println!("GPHASH_TEST_SEED={seed}");
    let mut rng = rng(seed);
    on_one_thread(|| {
        let kind = Kind::of((2, 2, 4), 8);
        let mut run = Run::new(kind, seed, &[Insert(1)]);
        let report = |run: &Run| {
            let metadata = run.table.metadata();
            Reported {
                from: run.table.medium.steps(),
                user: metadata.user,
                version: metadata.version,
            }
        };
        let mut reported = vec![report(&run)];
        let ops = [
            SetUser(1),
            Insert(2),
            Publish,
            Publish,
            SetUser(2),
            SetUser(3),
            Kill,
            Insert(3),
            SetUser(4),
            Reopen,
            Insert(4),
            Reopen,
        ];
        for op in &ops {
            run = apply(run, op);
            let after = report(&run);
            let before = reported.last().unwrap();
            assert!(
                after.version >= before.version,
                "{op:?}: {after:?} after {before:?}"
            );
            reported.push(after);
        }
        let versions: Vec<u64> = reported.iter().map(|reported| reported.version).collect();
        let first = versions[0];
        let steps: Vec<u64> = versions.iter().map(|version| version - first).collect();
        assert_eq!(steps, [0, 0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5]);
        let (_, recording) = run.end();
        let mut images = 0;
        // What comes before is the opening of the run.
        let begun = reported[0].from;
        for state in recording.states().filter(|state| state.step >= begun) {
            let mut memories = vec![state.process_crash().memory(), state.after_kill()];
            memories.extend(
                state
                    .power_cuts(6, &mut rng)
                    .iter()
                    .map(|image| image.memory()),
            );
            images += memories.len();
            for memory in memories {
                check(memory, &state, &reported);
            }
            if state.step % 7 == 0 {
                // A crash of the recovery.
                let memory = state.power_cut(&mut rng).memory();
                memory.record();
                let (table, _) = open(memory);
                for inner in table.medium.recorded().states() {
                    check(inner.power_cut(&mut rng).memory(), &state, &reported);
                    images += 1;
                }
            }
        }
        println!("{images} images of {} steps", recording.count());
    });
}

#[test]
fn metadata_copy_that_is_damaged_leaves_the_other() {
    on_one_thread(|| {
        let kind = Kind::of((2, 2, 4), 8);
        let mut run = Run::new(kind, 3, &[Insert(1), SetUser(1), Publish]);
        for op in [SetUser(2), Publish] {
            run = apply(run, &op);
        }
        let reported = run.table.metadata();
        assert_eq!(reported.user, 2u64.to_ne_bytes());
        run.table.close().unwrap();
        let medium = &run.table.medium;
        for (nth, at) in METADATA.into_iter().enumerate() {
            for word in (0..PAGE).step_by(8) {
                let memory = killed(medium);
                memory.store(at + word, memory.load(at + word) ^ 1 << (word / 8 % 64));
                let (table, recovery) = open(memory);
                let found = table.metadata();
                assert!(recovery.clean);
                assert_eq!(found.user, reported.user, "copy {nth}, word {word}");
                assert!(found.version > reported.version, "copy {nth}, word {word}");
                // Both are whole again.
                let mut copies = [bytemuck::Zeroable::zeroed(); 2];
                for (copy, at) in copies.iter_mut().zip(METADATA) {
                    table.medium.read(at, bytemuck::bytes_of_mut(copy));
                }
                assert!(copies.iter().all(MetadataPage::is_whole));
            }
        }
        let memory = killed(medium);
        for at in METADATA {
            memory.store(at + 1024, !memory.load(at + 1024));
        }
        let left = killed(&memory);
        let shape = kind.shape();
        let path = std::path::Path::new("memory");
        let refused = crate::table::Table::find_metadata(&left, &shape, path, false);
        let error = refused.err().unwrap().to_string();
        assert!(
            error.contains("metadata at byte 65536: neither copy"),
            "{error}"
        );
        let policy = Policy {
            repair_damage: true,
            ..Policy::INDEX
        };
        let (table, recovery) = open_with(memory, policy);
        assert!(
            recovery.damage[0].starts_with("metadata at byte"),
            "{recovery:?}"
        );
        assert_eq!((table.len(), table.metadata().user), (1, Vec::new()));
    });
}
