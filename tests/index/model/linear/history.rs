//! What several threads asked of an index, what they were told, and when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One operation on a key. Values are known by their versions, of which each is stored once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Insert(u64),
    Upsert(u64),
    Update(u64),
    Remove,
    Get,
    Contains,
}

/// What an operation was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The answer bit.
    Bit(bool),
    /// The version that it got.
    Got(Option<u64>),
}

impl Operation {
    /// What a map that holds `held` for the key answers, and what it holds then.
    pub fn apply(self, held: Option<u64>) -> (Answer, Option<u64>) {
        let present = held.is_some();
        match self {
            Self::Insert(version) => (Answer::Bit(!present), held.or(Some(version))),
            Self::Upsert(version) => (Answer::Bit(!present), Some(version)),
            Self::Update(version) => (Answer::Bit(present), held.and(Some(version))),
            Self::Remove => (Answer::Bit(present), None),
            Self::Get => (Answer::Got(held), held),
            Self::Contains => (Answer::Bit(present), held),
        }
    }
}

/// The moments at which batches were called and returned. All of a history differ.
#[derive(Default)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// The operations of one batch on one key. They take effect in this order, between the batch's
/// call and its return.
#[derive(Debug, Clone)]
pub struct Call {
    pub called: u64,
    pub returned: u64,
    pub operations: Vec<(Operation, Answer)>,
}

/// All calls, by key. Operations on different keys do not depend on each other, so a history is
/// linearizable if it is so for each key (Herlihy and Wing, 1990: the property is local).
#[derive(Default)]
pub struct History(pub BTreeMap<u64, Vec<Call>>);

impl History {
    /// Adds a batch: its operations with their keys, in the order given.
    pub fn add(
        &mut self,
        (called, returned): (u64, u64),
        operations: impl Iterator<Item = (u64, Operation, Answer)>,
    ) {
        for (key, operation, answer) in operations {
            let calls = self.0.entry(key).or_default();
            match calls.last_mut() {
                Some(call) if call.called == called => call.operations.push((operation, answer)),
                _ => calls.push(Call {
                    called,
                    returned,
                    operations: vec![(operation, answer)],
                }),
            }
        }
    }

    /// Adds what another thread has done.
    pub fn join(&mut self, other: Self) {
        for (key, calls) in other.0 {
            self.0.entry(key).or_default().extend(calls);
        }
    }

    /// Operations in all calls.
    pub fn operations(&self) -> usize {
        let calls = self.0.values().flatten();
        calls.map(|call| call.operations.len()).sum()
    }
}
