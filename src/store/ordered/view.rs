//! Whether there is an ordered view, and how it keeps up with the index.

use std::sync::{OnceLock, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::Mutex;

use super::{Keys, OrderedView, Size};
use crate::Result;
use crate::table::item::ItemId;

/// The ordered view of a store, once somebody has asked for it.
pub struct SharedView {
    state: ShardedLock<OrderedViewState>,
    /// Held by the one who makes it.
    pub building: Mutex<()>,
    /// The keys of all indexes.
    pub keys: OnceLock<Box<dyn Keys + Send + Sync>>,
}

/// The ordered view and its life.
#[derive(Debug)]
pub enum OrderedViewState {
    /// The store has none.
    Off,
    /// Nobody has asked for it yet.
    Absent,
    /// It is being made; these keys came or went meanwhile.
    Underway(Mutex<Vec<Vec<u8>>>),
    /// It has the keys of the indexes. They leave it before they leave their index, and enter it afterwards.
    Ready(OrderedView),
}

impl SharedView {
    /// That of a store which has an ordered view or not.
    pub fn new(is_ordered: bool) -> Self {
        let state = match is_ordered {
            true => OrderedViewState::Absent,
            false => OrderedViewState::Off,
        };
        Self {
            state: ShardedLock::new(state),
            building: Mutex::new(()),
            keys: OnceLock::new(),
        }
    }

    /// What there is. Readers and those who change some keys hold this side by side.
    pub fn read(&self) -> ShardedLockReadGuard<'_, OrderedViewState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change what there is. Everybody else waits.
    pub fn write(&self) -> ShardedLockWriteGuard<'_, OrderedViewState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a view that may no longer be that of the indexes. The next range makes another.
    pub fn forget(&self) {
        self.write().forget();
    }
}

impl OrderedViewState {
    /// Takes in a key that its table has by now, or out one that it still has if it ever had it: `is_there`
    /// says which. `None` if there is no view that could have it.
    ///
    /// # Errors
    /// Those of the source; then the view may lack keys.
    pub fn follow(
        &self,
        key: &[u8],
        id: ItemId,
        is_there: bool,
        source: &impl Keys,
    ) -> Result<Option<Size>> {
        match self {
            Self::Off | Self::Absent => Ok(None),
            Self::Underway(keys) => {
                keys.lock().push(key.to_vec());
                Ok(Some(Size::Fits))
            }
            Self::Ready(view) if is_there => view.update(key, id, true, source).map(Some),
            Self::Ready(view) => view.remove(key, id, source).map(Some),
        }
    }

    /// As [`OrderedView::balance`], if there is a view.
    ///
    /// # Errors
    /// As there.
    pub fn balance(&mut self, key: &[u8], source: &impl Keys) -> Result<()> {
        match self {
            Self::Ready(view) => view.balance(key, source),
            _ => Ok(()),
        }
    }

    /// As [`SharedView::forget`].
    pub fn forget(&mut self) {
        if !matches!(self, Self::Off) {
            *self = Self::Absent;
        }
    }
}
