//! What is done to a table, and a run of one thread that does it.

use super::Kind;
use super::history::{Event, History, Model};
use super::kind::open;
use crate::Error;
use crate::engine::Write;
use crate::pm::sim::{Recording, Simulated};
use crate::pm::{Medium, Priority};
use crate::table::Table;
use crate::width::to_usize;

/// What is done to a table. Numbers are keys; each operation stores a version of its own.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Insert(u64),
    Upsert(u64),
    Update(u64),
    Remove(u64),
    /// Several operations in one batch; keys may be equal.
    Batch(Write, Vec<u64>),
    /// Puts a level on top, so that a resize begins.
    AddLevel,
    /// Makes the table ready for so many more items.
    Reserve(u64),
    /// Empties a slice of the bottom level, as a batch does on its way.
    Slice,
    /// Drives a resize to its end, or as far as there are slots above.
    Drain,
    /// Frees the retired records at once, as if their epochs had passed.
    Recycle,
    /// Moves records together and enters what is empty as free.
    Compact,
    /// Moves every record elsewhere, as a compaction of a larger table does.
    Move,
    /// Takes all free records away until the table is closed, as other threads might.
    UseUp,
    /// Preallocates room for whatever comes, as the maintenance does.
    MakeRoom,
    Sync,
    /// A sync that publishes a version.
    Publish,
    /// Replaces the user's metadata by the bytes of a number.
    SetUser(u64),
    /// The halves of a sync; changes may come between them.
    Capture,
    CompleteJournal,
    /// Closes the table and opens it again.
    Reopen,
    /// Kills the process and opens what it has left. The machine goes on, so what was not certain
    /// in memory still is not.
    Kill,
}

/// Runs a batch of changes and tells what became of each.
pub(super) fn write<M: Medium>(
    kind: &Kind,
    table: &Table<M>,
    verb: Write,
    keys: &[u64],
    version: u64,
    clock: impl Fn() -> u64,
) -> Vec<Event> {
    let versions: Vec<u64> = (version..).take(keys.len()).collect();
    let invoked = clock();
    let answers = kind.write(table, verb, keys, &versions);
    let answered = clock();
    let event = |(nth, (&key, &version))| Event {
        key,
        verb,
        version,
        answer: answers[nth],
        invoked,
        answered,
    };
    keys.iter().zip(&versions).enumerate().map(event).collect()
}

/// Does something to a table that changes no item and needs no new handle.
pub(super) fn maintain<M: Medium>(table: &Table<M>, op: &Op) {
    match op {
        Op::AddLevel => match table.add_level(table.levels.live()) {
            Ok(()) | Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        },
        // A small table may find no slots above for what it moves.
        Op::Reserve(items) => match table.reserve(*items) {
            Ok(()) | Err(Error::Limit { .. }) => {}
            Err(error) => panic!("{error}"),
        },
        Op::Slice => table.drain_slice(),
        Op::Drain => table.finish_draining_quietly(),
        Op::Recycle => table.arena.give(table.arena.take_all()),
        Op::Compact => {
            assert!(table.compact(&|_| true));
            table.release_free();
        }
        Op::Move => assert!(table.move_out_of(&table.arena.map(), &|_| true)),
        Op::MakeRoom => table
            .medium
            .prepare(table.medium.len() + (1 << 20), Priority::Beside)
            .unwrap(),
        Op::Sync => table.sync().unwrap(),
        Op::Publish => table.publish().unwrap(),
        Op::SetUser(user) => table.set_user_metadata(&user.to_ne_bytes()).unwrap(),
        Op::Capture => table.capture().unwrap(),
        Op::CompleteJournal => table.complete().unwrap(),
        _ => unreachable!("{op:?} changes items or the handle"),
    }
}

/// One thread at work on a table, whose medium records every step.
pub(super) struct Run {
    kind: Kind,
    pub(super) table: Table<Simulated>,
    model: Model,
    pub(super) history: History,
    version: u64,
    /// Records that were taken away.
    held: Vec<u64>,
}

impl Run {
    /// A table that `prepare` has filled and that has come through a crash of the process since.
    pub(super) fn new(kind: Kind, seed: u64, prepare: &[Op]) -> Self {
        let mut run = Self {
            kind,
            table: kind.create(seed),
            model: Model::new(),
            history: History::default(),
            version: 1,
            held: Vec::new(),
        };
        for op in prepare {
            run = run.apply(op);
        }
        let killed = run.table.medium.process_crash();
        killed.record();
        run.table = open(killed).0;
        run.held.clear();
        run.history = History {
            start: run.model.clone(),
            threads: vec![Vec::new()],
        };
        run
    }

    /// Does `op`, and compares its answers with the model.
    pub(super) fn apply(mut self, op: &Op) -> Self {
        match op {
            Op::Insert(n) => self.write(Write::Insert, &[*n]),
            Op::Upsert(n) => self.write(Write::Upsert, &[*n]),
            Op::Update(n) => self.write(Write::Update, &[*n]),
            Op::Remove(n) => self.write(Write::Remove, &[*n]),
            Op::Batch(verb, keys) => self.write(*verb, keys),
            Op::Reopen => {
                self.table.arena.give(std::mem::take(&mut self.held));
                self.table.close().unwrap();
                let (table, recovery) = open(self.table.medium);
                assert!(recovery.clean);
                self.table = table;
            }
            Op::Kill => {
                self.held.clear();
                self.table = open(self.table.medium).0;
            }
            Op::UseUp => {
                let arena = &self.table.arena;
                self.held.extend(arena.take_all());
                for class in arena.classes() {
                    let stride = to_usize(self.table.shape.record_size(class));
                    let runs = std::iter::from_fn(|| arena.take_run(class, u64::MAX >> 1));
                    self.held.extend(runs.flat_map(|run| run.step_by(stride)));
                }
            }
            op => maintain(&self.table, op),
        }
        self
    }

    fn write(&mut self, verb: Write, keys: &[u64]) {
        let clock = || self.table.medium.steps();
        let events = write(&self.kind, &self.table, verb, keys, self.version, clock);
        self.version += keys.len() as u64;
        for event in &events {
            event.apply(&mut self.model);
        }
        if let [events_so_far] = &mut self.history.threads[..] {
            events_so_far.extend(events);
        }
    }

    /// What was done, and what a crash would have left at each step.
    pub(super) fn end(self) -> (History, Recording) {
        (self.history, self.table.medium.recorded())
    }
}
