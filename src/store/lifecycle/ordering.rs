//! Making the ordered view, beside changes.

use std::sync::PoisonError;

use crossbeam_utils::sync::{ShardedLockReadGuard, ShardedLockWriteGuard};
use fixedbitset::FixedBitSet;
use rayon::slice::ParallelSliceMut;

use crate::pool::parallel;
use crate::pool::run_off_pool;
use crate::store::inner::StoreInner;
use crate::store::ordered::view::OrderedViewState;
use crate::store::ordered::{Chunks, OrderedView};
use crate::table::item::Mutation;
use crate::{Error, Result};

/// Keys of which one thread takes the fingerprints.
const KEYS_PER_THREAD_MIN: usize = 4096;

/// Keys that come or go while readers of the order wait.
const FOLLOWED_KEYS_MAX: usize = 64;

impl StoreInner {
    /// Keys in order, which are all in the table while this is held.
    pub(in crate::store) fn order(&self) -> ShardedLockReadGuard<'_, OrderedViewState> {
        self.order.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change it takes being the one who changes the table, too.
    pub(in crate::store) fn change_order(&self) -> ShardedLockWriteGuard<'_, OrderedViewState> {
        self.order.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `read` called with `chunks` of the ordered view, which is made if there is none. Nobody waits for `read`: keys
    /// may come and go meanwhile.
    ///
    /// # Errors
    /// [`Error::Unordered`], and those of `read` and of reading the index.
    pub fn with_order<T>(
        &self,
        chunks: impl Fn(&OrderedView) -> Chunks,
        read: impl Fn(&Chunks) -> Result<T>,
    ) -> Result<T> {
        loop {
            for is_alone in [false, false, true] {
                // A key is missed that leaves meanwhile, or that shares its fingerprint with one on its way in or
                // out. Alone there is none. Who reads for a change of the table meets one at most, in the first try, and
                // must not wait for that change.
                let _alone = is_alone.then(|| self.applying());
                let chunks = match &*self.order() {
                    OrderedViewState::Off => return Err(Error::Unordered),
                    OrderedViewState::Ready(view) => chunks(view),
                    OrderedViewState::Absent | OrderedViewState::Underway(_) => break,
                };
                match read(&chunks) {
                    Err(Error::Damaged { .. }) if !is_alone => {}
                    found => return found,
                }
            }
            run_off_pool(|| self.make_order())?;
        }
    }

    /// Takes keys that are to leave the table out of the order. Says whether there is one that follows.
    pub(in crate::store) fn leave_order(&self, changes: &[Mutation]) -> bool {
        if matches!(
            *self.order(),
            OrderedViewState::Off | OrderedViewState::Absent
        ) {
            return false;
        }
        let went = |change: &&Mutation| matches!(change, Mutation::Delete { .. });
        self.follow(changes.iter().filter(went).map(|change| (change, false)))
    }

    /// Takes keys that have entered the table into the order: those of puts that were not there before. Says
    /// whether there is one still.
    pub(in crate::store) fn enter_order(
        &self,
        changes: &[Mutation],
        were_there: &FixedBitSet,
    ) -> bool {
        let came = |(nth, change): &(usize, &Mutation)| {
            matches!(change, Mutation::Put { .. }) && !were_there.contains(*nth)
        };
        let came = changes.iter().enumerate().filter(came);
        self.follow(came.map(|(_, change)| (change, true)))
    }

    /// Has the order follow changes, a few at a time: readers of it wait no longer. Says whether it could.
    fn follow<'c>(&self, changes: impl Iterator<Item = (&'c Mutation<'c>, bool)>) -> bool {
        let mut changes = changes.peekable();
        while changes.peek().is_some() {
            let mut order = self.change_order();
            for (change, is_there) in changes.by_ref().take(FOLLOWED_KEYS_MAX) {
                if !order.follow(change.key(), is_there, &self.tiers.table) {
                    return false;
                }
            }
        }
        true
    }

    /// Makes the ordered view. Changes go on meanwhile.
    fn make_order(&self) -> Result<()> {
        let _alone = self.building.lock();
        {
            let _alone = self.applying();
            match &mut *self.change_order() {
                order @ OrderedViewState::Absent => *order = OrderedViewState::Underway(Vec::new()),
                _ => return Ok(()),
            }
        }
        let made = self.read_view();
        let _alone = self.applying();
        let order = std::mem::replace(&mut *self.change_order(), OrderedViewState::Absent);
        let mut view = made?;
        if let OrderedViewState::Underway(keys) = order {
            // Those that are gone first: a key is compared with others that are there.
            for wanted in [false, true] {
                for key in &keys {
                    if self.tiers.table.get(key, |_, _| ())?.is_some() == wanted {
                        let fingerprint = self.tiers.table.fingerprint(key);
                        view.update(key, fingerprint, wanted, &self.tiers.table)?;
                    }
                }
            }
            *self.change_order() = OrderedViewState::Ready(view);
        }
        Ok(())
    }

    /// The view of the index, more or less: keys that come and go meanwhile are in it or not.
    fn read_view(&self) -> Result<OrderedView> {
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        self.tiers.table.for_each_key(|key| {
            bytes.extend_from_slice(key);
            ends.push(bytes.len());
        })?;
        let key = |nth: usize| {
            let start = nth.checked_sub(1).map_or(0, |before| ends[before]);
            &bytes[start..ends[nth]]
        };
        let fingerprinted = |nth| (key(nth), self.tiers.table.fingerprint(key(nth)));
        let sorted = || {
            let mut keys = parallel::collect(ends.len(), KEYS_PER_THREAD_MIN, fingerprinted);
            keys.par_sort_unstable();
            keys
        };
        let mut keys = self.threads.reads.install(sorted);
        keys.dedup();
        Ok(OrderedView::of(&keys))
    }
}
