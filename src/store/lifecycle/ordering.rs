//! Making the ordered view, beside changes.

use rayon::slice::ParallelSliceMut;

use crate::pool::parallel;
use crate::pool::run_off_pool;
use crate::store::inner::StoreInner;
use crate::store::mvcc::old_versions::OldVersions;
use crate::store::ordered::OrderedView;
use crate::store::ordered::view::OrderedViewState;
use crate::{Error, Result};

/// Keys of which one thread takes the fingerprints.
const KEYS_PER_THREAD_MIN: usize = 4096;

impl StoreInner {
    /// Has `read` called with the ordered view, which is made if there is none. No change runs
    /// beside it.
    ///
    /// # Errors
    /// [`Error::Unordered`], and those of `read` and of reading the index.
    pub fn with_order<T>(
        &self,
        read: impl Fn(&OrderedView, &OldVersions) -> Result<T>,
    ) -> Result<T> {
        loop {
            {
                let visible = self.visible();
                match &visible.order {
                    OrderedViewState::Off => return Err(Error::Unordered),
                    OrderedViewState::Ready(view) => return read(view, &visible.old_versions),
                    OrderedViewState::Absent | OrderedViewState::Underway(_) => {}
                }
            }
            run_off_pool(|| self.make_order())?;
        }
    }

    /// Makes the ordered view. Changes go on meanwhile.
    fn make_order(&self) -> Result<()> {
        let _alone = self.building.lock();
        match &mut self.change_visible().order {
            order @ OrderedViewState::Absent => *order = OrderedViewState::Underway(Vec::new()),
            _ => return Ok(()),
        }
        let made = self.read_view();
        let mut visible = self.change_visible();
        let order = std::mem::replace(&mut visible.order, OrderedViewState::Absent);
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
            visible.order = OrderedViewState::Ready(view);
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
