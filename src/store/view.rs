//! Whether there is an ordered view, and how it keeps up with the index.

use fixedbitset::FixedBitSet;
use rayon::prelude::*;

use super::history::History;
use super::order::View;
use super::state::State;
use crate::index::records::{Change, Records};
use crate::threads::undisturbed;
use crate::{Error, Result};

/// The ordered view and its life.
#[derive(Debug)]
pub enum Order {
    /// The store has none.
    Off,
    /// Nobody has asked for it yet.
    Absent,
    /// It is being made; these keys came or went meanwhile.
    Underway(Vec<Vec<u8>>),
    /// It has the keys of the index.
    Ready(View),
}

impl Order {
    /// Takes keys out and in, after the index has: `were_there` says of each change whether its key
    /// was there before.
    pub fn follow(&mut self, changes: &[Change], were_there: &FixedBitSet, records: &Records) {
        let went = |nth: &usize| {
            matches!(changes[*nth], Change::Delete { .. }) && were_there.contains(*nth)
        };
        let came =
            |nth: &usize| matches!(changes[*nth], Change::Put { .. }) && !were_there.contains(*nth);
        let all = 0..changes.len();
        match self {
            Self::Off | Self::Absent => {}
            Self::Underway(keys) => {
                let others = all.filter(|nth| went(nth) || came(nth));
                keys.extend(others.map(|nth| changes[nth].key().to_vec()));
            }
            Self::Ready(view) => {
                let went = all.clone().filter(went).map(|nth| (nth, false));
                let came = all.filter(came).map(|nth| (nth, true));
                for (nth, is_there) in went.chain(came) {
                    let key = changes[nth].key();
                    let fingerprint = records.fingerprint(key);
                    if let Err(error) = view.settle(key, fingerprint, is_there, records) {
                        tracing::warn!(%error, "the ordered view is given up");
                        return self.forget();
                    }
                }
            }
        }
    }

    /// Forgets a view that may no longer be that of the index. The next range makes another.
    pub fn forget(&mut self) {
        if !matches!(self, Self::Off) {
            *self = Self::Absent;
        }
    }
}

impl State {
    /// Has `read` called with the ordered view, which is made if there is none. No change runs
    /// beside it.
    ///
    /// # Errors
    /// [`Error::Unordered`], and those of `read` and of reading the index.
    pub fn with_order<T>(&self, read: impl Fn(&View, &History) -> Result<T>) -> Result<T> {
        loop {
            {
                let visible = self.visible();
                match &visible.order {
                    Order::Off => return Err(Error::Unordered),
                    Order::Ready(view) => return read(view, &visible.history),
                    Order::Absent | Order::Underway(_) => {}
                }
            }
            undisturbed(|| self.make_order())?;
        }
    }

    /// Makes the ordered view. Changes go on meanwhile.
    fn make_order(&self) -> Result<()> {
        let _alone = self.building.lock();
        match &mut self.change_visible().order {
            order @ Order::Absent => *order = Order::Underway(Vec::new()),
            _ => return Ok(()),
        }
        let made = self.read_view();
        let mut visible = self.change_visible();
        let order = std::mem::replace(&mut visible.order, Order::Absent);
        let mut view = made?;
        if let Order::Underway(keys) = order {
            // Those that are gone first: a key is compared with others that are there.
            for wanted in [false, true] {
                for key in &keys {
                    if self.tiers.table.get(key, |_, _| ())?.is_some() == wanted {
                        let fingerprint = self.tiers.table.fingerprint(key);
                        view.settle(key, fingerprint, wanted, &self.tiers.table)?;
                    }
                }
            }
            visible.order = Order::Ready(view);
        }
        Ok(())
    }

    /// The view of the index, more or less: keys that come and go meanwhile are in it or not.
    fn read_view(&self) -> Result<View> {
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        self.tiers.table.for_each(|key, _, _| {
            bytes.extend_from_slice(key);
            ends.push(bytes.len());
        })?;
        let key = |nth: usize| {
            let start = nth.checked_sub(1).map_or(0, |before| ends[before]);
            &bytes[start..ends[nth]]
        };
        let fingerprinted = |nth| (key(nth), self.tiers.table.fingerprint(key(nth)));
        let sorted = || {
            let all = (0..ends.len()).into_par_iter();
            let mut keys: Vec<(&[u8], u64)> = all.map(fingerprinted).collect();
            keys.par_sort_unstable();
            keys
        };
        let mut keys = self.threads.reads.install(sorted);
        keys.dedup();
        Ok(View::of(&keys))
    }
}
