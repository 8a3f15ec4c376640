//! The order of commits over all partitions of a store (p²KVS §4.5: a global sequence number).
//!
//! A commit takes its number and is published in each partition that it changes within a few instructions. A
//! reader of several partitions reads as of a number, and waits until all commits up to it are published. So it
//! sees a commit in all partitions or in none.

use crossbeam_utils::CachePadded;

use crate::{AtomicU64, Ordering, pause};

/// What a partition says while it publishes nothing.
const IDLE: u64 = 0;

/// See the [module](self).
pub struct CommitClock {
    /// The last number that was given to a commit.
    newest: CachePadded<AtomicU64>,
    /// A number that the commit which a partition publishes has or exceeds, or [`IDLE`].
    publishing: Box<[CachePadded<AtomicU64>]>,
}

impl CommitClock {
    /// That of so many partitions, without any commit.
    pub fn new(partitions: usize) -> Self {
        let idle = || CachePadded::new(AtomicU64::new(IDLE));
        Self {
            newest: CachePadded::new(AtomicU64::new(0)),
            publishing: std::iter::repeat_with(idle).take(partitions).collect(),
        }
    }

    /// Gives the next commit its number, and has it published in these partitions, in which nobody else publishes
    /// meanwhile. `publish` does nothing that takes long.
    pub fn publish(
        &self,
        partitions: impl Iterator<Item = usize> + Clone,
        publish: impl FnOnce(u64),
    ) -> u64 {
        let least = self.newest.load(Ordering::SeqCst) + 1;
        for partition in partitions.clone() {
            self.publishing[partition].store(least, Ordering::SeqCst);
        }
        // Whoever reads a number that includes this one finds the partitions busy until it is published.
        let commit_seq = self.newest.fetch_add(1, Ordering::SeqCst) + 1;
        publish(commit_seq);
        for partition in partitions {
            self.publishing[partition].store(IDLE, Ordering::Release);
        }
        commit_seq
    }

    /// The number of the newest commit. It and all before it are published everywhere.
    pub fn moment(&self) -> u64 {
        let newest = self.newest.load(Ordering::SeqCst);
        for publishing in &self.publishing {
            while (1..=newest).contains(&publishing.load(Ordering::SeqCst)) {
                pause();
            }
        }
        newest
    }

    /// Whether a partition publishes something now.
    pub fn is_publishing(&self, partition: usize) -> bool {
        self.publishing[partition].load(Ordering::SeqCst) != IDLE
    }
}
