//! The memory budget of a store, of which each partition has its share, and what others leave of theirs.

#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::worker::Worker;

/// The part of its share that is lent to nobody: a partition may want it before others have given it back.
const KEPT_SHARE: u64 = 4;

/// What a partition takes is noted as often as it has changed by this part of its share.
const NOTED_SHARE: u64 = 64;

/// The part of the whole that partitions may owe before others wait for that.
const OWED_SHARE: u64 = 16;

/// What a partition takes, how much of that it has to give back, and the thread that keeps it within its budget.
#[derive(Default)]
struct Demand {
    bytes: AtomicU64,
    owed: AtomicU64,
    keeper: OnceLock<Worker>,
}

impl Demand {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// See the [module](self).
pub struct Demands {
    /// What a partition may take if all want as much.
    share: u64,
    /// That of each partition, which stores it after each of its groups.
    all: Box<[CachePadded<Demand>]>,
}

impl Demands {
    /// Those of so many partitions that take nothing yet, and may take `share` each.
    pub fn new(partitions: usize, share: u64) -> Self {
        Self {
            share,
            all: (0..partitions).map(|_| CachePadded::default()).collect(),
        }
    }

    /// What a partition may take if all want as much.
    pub fn share(&self) -> u64 {
        self.share
    }

    /// The part of its share that a partition may fill at once.
    fn kept(&self) -> u64 {
        self.share / KEPT_SHARE
    }

    /// Says whom to wake when others want back what partition `number` takes beyond its share.
    pub fn attend(&self, number: usize, keeper: Worker) {
        // A partition is opened once.
        let _ = self.all[number].keeper.set(keeper);
    }

    /// Notes what partition `number` takes, and how much of that it has to give back. Whoever takes more than their share
    /// learn of it.
    pub fn note(&self, number: usize, bytes: u64, owed: u64) {
        let own = &self.all[number];
        let (before, owed_before) = (own.bytes(), own.owed.load(Ordering::Relaxed));
        let differs = |one: u64, other: u64| one.abs_diff(other) > self.share / NOTED_SHARE;
        if differs(owed, owed_before) || owed == 0 && owed_before > 0 {
            own.owed.store(owed, Ordering::Relaxed);
        }
        if !differs(bytes, before) {
            return;
        }
        own.bytes.store(bytes, Ordering::Relaxed);
        if bytes < before {
            return;
        }
        for (nth, other) in self.all.iter().enumerate() {
            if nth != number
                && other.bytes() > self.share
                && let Some(keeper) = other.keeper.get()
            {
                keeper.call_if_possible();
            }
        }
    }

    /// What partition `number` may take now. Once its share is nearly full that is what the others leave of the whole. Those
    /// whose shares are not nearly full are left a part of them to fill at once; so are the others, up to as much as each
    /// of those gets that want more.
    pub fn granted(&self, number: usize) -> u64 {
        let claim = |demand: &Demand| demand.bytes() + self.kept();
        if claim(&self.all[number]) < self.share {
            return self.share;
        }
        let claims: Vec<u64> = self.all.iter().map(|one| claim(one)).collect();
        let wanting = || claims.iter().filter(|claim| **claim >= self.share);
        let lenders = claims.iter().filter(|claim| **claim < self.share);
        let left = self.share * claims.len() as u64 - lenders.sum::<u64>();
        // This one may want less by now.
        let fair = left / (wanting().count() as u64).max(1);
        let others: u64 = wanting().map(|&claim| claim.min(fair)).sum();
        let own = claims[number];
        let own = if own < self.share { 0 } else { own.min(fair) };
        (left + own - others).max(self.share)
    }

    /// Whether partition `number` should wait until others have given back what it may take. It may fill a part of its share
    /// before that. Who owes no more than such a part has only been late. The others are woken then.
    pub fn lacks_what_others_owe(&self, number: usize) -> bool {
        if self.all[number].bytes() <= self.kept() {
            return false;
        }
        let others = self
            .all
            .iter()
            .enumerate()
            .filter(|(nth, _)| *nth != number);
        let owed = others.map(|(_, other)| (other, other.owed.load(Ordering::Relaxed)));
        let owing: Vec<_> = owed.filter(|(_, owed)| *owed > self.kept()).collect();
        let owed: u64 = owing.iter().map(|(_, owed)| owed).sum();
        let lacks = owed > self.share * self.all.len() as u64 / OWED_SHARE;
        if lacks {
            let keepers = owing.iter().flat_map(|(other, _)| other.keeper.get());
            keepers.for_each(Worker::call_if_possible);
        }
        lacks
    }
}
