//! What readers see of the newest commits before the table has them.
//!
//! A group of changes is *published* by one store before it goes into the table, and readers find its final values
//! here until the table has them all. So a reader sees a group as a whole or not at all, and waits for nobody.
//! A group that the table has no room for stays here, in memory of its own.
//!
//! The final values lie where the one who publishes has them. He waits, when the table has the group, until no
//! reader compares keys here any more: readers hold a count meanwhile, as in a read-side section of RCU
//! (McKenney and Slingwine 1998), and most have no need to, because no group is shown.

#[cfg(all(test, loom))]
mod loom_tests;

use std::ptr;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::group_writes::{GroupWrites, Unfinished, Writes};
use super::old_versions::Value;
use crate::store::wal::record::Entry;
use crate::sync::commit_clock::CommitClock;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, RwLock, fence, pause, thread_number};

/// The state says that a group is on its way into the table.
const IS_SHOWN: u64 = 1;

/// The state says that there are groups which the table has no room for.
const IS_UNFINISHED: u64 = 2;

/// By how many bits the number of the newest commit is shifted in the state.
const SEQ_SHIFT: u32 = 2;

/// Counts of readers: threads share one only if they are more.
const COUNTS: usize = if cfg!(loom) { 2 } else { 32 };

/// See the [module](self). Who changes something here is alone.
pub struct Published {
    clock: Arc<CommitClock>,
    /// The number of this partition.
    partition: usize,
    /// The number of the newest commit, and two bits.
    state: AtomicU64,
    /// The group that is shown, while one is.
    shown: AtomicPtr<GroupWrites<'static>>,
    /// Readers that may have it.
    readers: Box<[CachePadded<AtomicU64>]>,
    /// The oldest first.
    unfinished: RwLock<Vec<Arc<Unfinished>>>,
}

impl Published {
    /// That of a partition, which has no commit yet.
    pub fn new(clock: Arc<CommitClock>, partition: usize) -> Self {
        let count = || CachePadded::new(AtomicU64::new(0));
        Self {
            clock,
            partition,
            state: AtomicU64::new(0),
            shown: AtomicPtr::new(ptr::null_mut()),
            readers: std::iter::repeat_with(count).take(COUNTS).collect(),
            unfinished: RwLock::new(Vec::new()),
        }
    }

    /// The number of this partition.
    pub fn partition(&self) -> usize {
        self.partition
    }

    /// Number of the newest commit in this partition.
    pub fn newest(&self) -> u64 {
        self.state.load(Ordering::Acquire) >> SEQ_SHIFT
    }

    /// Whether the table has all commits.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.state.load(Ordering::Acquire) & (IS_SHOWN | IS_UNFINISHED) == 0
    }

    /// Publishes a group as the next commit, whose number `apply` gets. Readers find the group here until that
    /// has returned.
    pub fn show<T>(&self, group: &GroupWrites, apply: impl FnOnce(u64) -> T) -> T {
        Self::show_all(&[(self, group)], apply)
    }

    /// As [`show`](Self::show), for a group that changes several partitions of a store, of each what it changes
    /// there.
    pub fn show_all<'g, T>(parts: &[(&Self, &GroupWrites<'g>)], apply: impl FnOnce(u64) -> T) -> T {
        let Some((Self { clock, .. }, _)) = parts.first() else {
            unreachable!("a commit changes something");
        };
        for (published, group) in parts {
            let shown = ptr::from_ref(*group).cast_mut();
            published.shown.store(shown.cast(), Ordering::Relaxed);
        }
        // Also if `apply` panics, nobody may have the group when this returns.
        let _hides = Hides(parts);
        let partitions = parts.iter().map(|(published, _)| published.partition);
        let commit_seq = clock.publish(partitions, |commit_seq| {
            for (published, _) in parts {
                let is_unfinished = published.state.load(Ordering::Relaxed) & IS_UNFINISHED;
                let next = commit_seq << SEQ_SHIFT | is_unfinished | IS_SHOWN;
                published.state.store(next, Ordering::Release);
            }
        });
        apply(commit_seq)
    }

    fn hide(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state & !IS_SHOWN, Ordering::Release);
        // Either a reader's count is seen here, or the reader sees that nothing is shown.
        fence(Ordering::SeqCst);
        for count in &self.readers {
            while count.load(Ordering::Acquire) != 0 {
                pause();
            }
        }
    }

    /// Gives `read` the group that is shown, if there is one that the commit `moment` includes.
    fn with_shown<T>(&self, moment: u64, read: impl FnOnce(&GroupWrites) -> T) -> Option<T> {
        if self.state.load(Ordering::Acquire) & IS_SHOWN == 0 {
            return None;
        }
        let count = &*self.readers[thread_number() % self.readers.len()];
        count.fetch_add(1, Ordering::Relaxed);
        // Also if `read` panics.
        let _leaves = Leaves(count);
        fence(Ordering::SeqCst);
        let state = self.state.load(Ordering::Acquire);
        let is_seen = state & IS_SHOWN != 0 && state >> SEQ_SHIFT <= moment;
        is_seen.then(|| {
            // Who sees a commit here sees it in all partitions from now on.
            while self.clock.is_publishing(self.partition) {
                pause();
            }
            let shown = self.shown.load(Ordering::Relaxed);
            // SAFETY: `show_all` has stored the address of a group that its caller borrows to it until `hide` returns.
            // The state, which was loaded while this thread was counted, says that this has not begun to look at the
            // counts; so it waits for the end of this call. The lifetime ends with the call, too.
            read(unsafe { &*shown.cast_const() })
        })
    }

    /// What a key has in the commit `moment`, or in the newest one before it, if the table may not have that yet.
    #[inline]
    pub fn value(&self, key: &[u8], moment: u64) -> Option<Value> {
        if self.is_quiet() {
            return None;
        }
        let shown = self.with_shown(moment, |group| {
            group.value(key).map(|value| value.map(<[u8]>::to_vec))
        });
        shown
            .flatten()
            .or_else(|| self.unfinished_value(key, moment))
    }

    /// What a group up to the commit `moment` that the table has no room for leaves of a key.
    pub fn unfinished_value(&self, key: &[u8], moment: u64) -> Option<Value> {
        let mut found = None;
        self.each_unfinished(moment, |group| {
            if found.is_none()
                && let Some((value, _)) = group.changes.get(key)
            {
                found = Some(value.clone());
            }
        });
        found
    }

    /// Gives `visit` each group up to the commit `moment` that the table may not have yet, the newest first.
    pub fn each(&self, moment: u64, mut visit: impl FnMut(&dyn Writes)) {
        self.with_shown(moment, |group| visit(group));
        self.each_unfinished(moment, |group| visit(group));
    }

    fn each_unfinished(&self, moment: u64, visit: impl FnMut(&Unfinished)) {
        if self.state.load(Ordering::Acquire) & IS_UNFINISHED != 0 {
            let groups = self.unfinished.read();
            let groups = groups.iter().rev().map(|group| &**group);
            groups
                .filter(|group| group.commit_seq <= moment)
                .for_each(visit);
        }
    }

    /// Groups that the table has no room for, the oldest first.
    pub fn unfinished(&self) -> Vec<Arc<Unfinished>> {
        self.unfinished.read().clone()
    }

    /// Whether there are none.
    pub fn is_finished(&self) -> bool {
        self.state.load(Ordering::Acquire) & IS_UNFINISHED == 0
    }

    /// Changes the list of groups that the table has no room for.
    pub fn change_unfinished<T>(&self, change: impl FnOnce(&mut Vec<Arc<Unfinished>>) -> T) -> T {
        let mut groups = self.unfinished.write();
        let changed = change(&mut groups);
        let state = self.state.load(Ordering::Relaxed) & !IS_UNFINISHED;
        let bit = if groups.is_empty() { 0 } else { IS_UNFINISHED };
        self.state.store(state | bit, Ordering::Release);
        changed
    }

    /// Takes keys out of groups that the table has no room for: a later group has changed them there.
    pub fn supersede(&self, finals: &[Entry]) {
        if self.is_finished() {
            return;
        }
        self.change_unfinished(|groups| {
            for group in groups {
                let changes = &mut Arc::make_mut(group).changes;
                finals.iter().for_each(|entry| {
                    changes.remove(entry.key);
                });
            }
        });
    }
}

/// Ends what [`Published::show_all`] has begun.
struct Hides<'p, 'g>(&'p [(&'p Published, &'p GroupWrites<'g>)]);

impl Drop for Hides<'_, '_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|(published, _)| published.hide());
    }
}

/// Takes a reader out of a count.
struct Leaves<'p>(&'p AtomicU64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
