//! The ordered view of all partitions: making it beside changes, reading it, and how it follows each partition.

use std::iter::Peekable;
use std::sync::{Arc, Weak};

use fixedbitset::FixedBitSet;
use parking_lot::{Mutex, MutexGuard};

use super::Partitions;
use crate::index::bytes::BytesIndex;
use crate::pool::parallel;
use crate::pool::run_off_pool;
use crate::store::inner::{Applying, StoreInner};
use crate::store::ordered::view::OrderedViewState;
use crate::store::ordered::{Chunks, Item, Items, Keys, OrderedView, Sink, Size};
use crate::store::resident::tiers::EntryMeta;
use crate::table::item::{Found, ItemId, Mutation, Wanted};
use crate::width::to_usize;
use crate::{Error, Result};

/// Keys of which one thread takes the fingerprints.
const KEYS_PER_THREAD_MIN: usize = 4096;

/// Keys of which all threads make entries at a time.
const KEYS_AT_ONCE: usize = 1 << 20;

/// Keys that are read and sorted without other threads.
const SEQUENTIAL_KEYS_MAX: u64 = 1000;

/// Keys that come or go while those wait who divide a chunk, or put two together.
const FOLLOWED_KEYS_MAX: usize = 64;

/// The keys that the view names, for who changes a partition: he seldom asks for those of another.
struct KeysFor<'s>(&'s StoreInner);

impl KeysFor<'_> {
    fn is_own(&self, id: ItemId) -> bool {
        id.table == self.0.number()
    }

    fn others(&self) -> Result<&(dyn Keys + Send + Sync)> {
        let keys = self.0.shared.view.keys.get();
        keys.map(|keys| &**keys).ok_or(Error::Unordered)
    }
}

impl Keys for KeysFor<'_> {
    fn keys(&self, id: ItemId) -> Result<Vec<Vec<u8>>> {
        match self.is_own(id) {
            true => keys_of(&self.0.tiers.table, id),
            false => self.others()?.keys(id),
        }
    }

    fn lost(&self, id: ItemId) -> Error {
        match (self.is_own(id), self.others()) {
            (false, Ok(others)) => others.lost(id),
            _ => lost_in(&self.0.tiers.table, id),
        }
    }
}

/// The keys of an open store. Nobody has a view any more once it closes.
struct KeysOfOpen(Weak<Partitions>);

impl Keys for KeysOfOpen {
    fn keys(&self, id: ItemId) -> Result<Vec<Vec<u8>>> {
        let partitions = self.0.upgrade().ok_or(Error::Unordered)?;
        partitions.items().keys(id)
    }

    fn lost(&self, id: ItemId) -> Error {
        let partitions = self.0.upgrade();
        partitions.map_or(Error::Unordered, |partitions| partitions.items().lost(id))
    }
}

/// The items that the view names, for those who read the store.
struct ItemsIn<'p>(&'p Partitions);

impl Keys for ItemsIn<'_> {
    fn keys(&self, id: ItemId) -> Result<Vec<Vec<u8>>> {
        keys_of(self.0.index(id.table), id)
    }

    fn lost(&self, id: ItemId) -> Error {
        lost_in(self.0.index(id.table), id)
    }
}

impl Items for ItemsIn<'_> {
    fn items(&self, id: ItemId, wanted: Wanted) -> Result<Vec<Item>> {
        let item = |(key, stamp, value)| (key, EntryMeta(stamp).value(value));
        let found = self.0.index(id.table).find(id.fingerprint, wanted)?;
        Ok(found.into_iter().map(item).collect())
    }

    fn visit(&self, ids: &[ItemId], sink: &mut impl Sink) -> Result<()> {
        BytesIndex::find_many(|number| self.0.index(number), ids, &mut Stamped(sink))
    }
}

/// Gives a sink values in place of stamps.
struct Stamped<'k, S>(&'k mut S);

impl<S: Sink> Found for Stamped<'_, S> {
    fn wanted(&mut self, nth: usize, key: &[u8], value_bytes: u64) -> Wanted {
        self.0.wanted(nth, key, value_bytes)
    }

    fn take(&mut self, key: &[u8], stamp: u64, value: &mut Vec<u8>) {
        let value = || EntryMeta(stamp).value(std::mem::take(value));
        self.0.take(key, value);
    }
}

fn keys_of(index: &BytesIndex, id: ItemId) -> Result<Vec<Vec<u8>>> {
    let found = index.find(id.fingerprint, Wanted::Key)?;
    Ok(found.into_iter().map(|(key, ..)| key).collect())
}

fn lost_in(index: &BytesIndex, id: ItemId) -> Error {
    index.damaged(format!(
        "no item has the fingerprint {:#x} any more",
        id.fingerprint
    ))
}

/// Who has this is the only one who changes tables.
pub type Alone<'p> = Vec<MutexGuard<'p, Applying>>;

impl Partitions {
    /// Lets who changes one of them ask for keys of the others.
    pub fn share_keys(self: &Arc<Self>) {
        let keys = KeysOfOpen(Arc::downgrade(self));
        let _ = self.shared().view.keys.set(Box::new(keys));
    }

    /// The items that the ordered view names.
    pub fn items(&self) -> impl Items {
        ItemsIn(self)
    }

    pub(super) fn index(&self, number: u8) -> &BytesIndex {
        &self.all()[usize::from(number)].state.tiers.table
    }

    /// Waits until nobody changes a table.
    pub fn alone(&self) -> Alone<'_> {
        let states = self.all().iter().map(|one| &one.state);
        states.map(StoreInner::applying).collect()
    }

    /// Has `read` called with `chunks` of the ordered view, which is made if there is none. Nobody waits for `read`: keys
    /// may come and go meanwhile.
    ///
    /// # Errors
    /// [`Error::Unordered`], and those of `read` and of reading the indexes.
    pub fn with_order<T>(
        &self,
        chunks: impl Fn(&OrderedView) -> Chunks,
        read: impl Fn(&Chunks) -> Result<T>,
    ) -> Result<T> {
        loop {
            for is_alone in [false, false, true] {
                // A key is missed that leaves meanwhile, or that shares its fingerprint with one on its way in or
                // out. Alone there is none. Who reads for a change of a table meets one at most, in the first try, and
                // must not wait for that change.
                let _alone = is_alone.then(|| self.alone());
                let chunks = match &*self.shared().view.read() {
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

    /// Makes the ordered view. Changes go on meanwhile.
    fn make_order(&self) -> Result<()> {
        let shared = &self.shared().view;
        let _building = shared.building.lock();
        {
            let _alone = self.alone();
            match &mut *shared.write() {
                OrderedViewState::Off | OrderedViewState::Ready(_) => return Ok(()),
                // Nobody else makes it now: who has begun and did not end it has panicked.
                order => *order = OrderedViewState::Underway(Mutex::default()),
            }
        }
        let made = self.read_view();
        let _alone = self.alone();
        let underway = std::mem::replace(&mut *shared.write(), OrderedViewState::Absent);
        let mut view = made?;
        if let OrderedViewState::Underway(keys) = underway {
            let (keys, items) = (keys.into_inner(), self.items());
            // Those that are gone first: a key is compared with others that are there.
            for wanted in [false, true] {
                for key in &keys {
                    let state = &self.of(key).state;
                    if state.tiers.table.get(key, |_, _| ())?.is_some() == wanted
                        && view.update(key, state.id_of(key), wanted, &items)? == Size::Unfit
                    {
                        view.balance(key, &items)?;
                    }
                }
            }
            *shared.write() = OrderedViewState::Ready(view);
        }
        Ok(())
    }

    /// The view of the indexes, more or less: keys that come and go meanwhile are in it or not.
    fn read_view(&self) -> Result<OrderedView> {
        let view = || {
            let read = parallel::map(self.all(), |one| KeysOf::read(&one.state));
            let read = read.into_iter().collect::<Result<Vec<KeysOf>>>()?;
            let len = read.iter().map(|keys| keys.ends.len()).sum();
            let mut keys = Vec::with_capacity(len);
            for part in &read {
                // Some at a time: what threads make is there twice.
                for first in (0..part.ends.len()).step_by(KEYS_AT_ONCE) {
                    let count = KEYS_AT_ONCE.min(part.ends.len() - first);
                    let at = |nth| part.at(first + nth);
                    keys.extend(parallel::collect(count, KEYS_PER_THREAD_MIN, at));
                }
            }
            parallel::sort_unstable_by_key(&mut keys, KEYS_PER_THREAD_MIN, |&key| key);
            keys.dedup();
            Ok(OrderedView::of(&keys))
        };
        let tables = self.all().iter().map(|one| &one.state.tiers.table);
        match tables.map(|table| table.len()).sum::<u64>() <= SEQUENTIAL_KEYS_MAX {
            // To wake others takes longer.
            true => parallel::alone(view),
            false => self.shared().threads.reads.install(view),
        }
    }
}

/// The keys of a partition, in no order.
struct KeysOf<'p> {
    state: &'p StoreInner,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<'p> KeysOf<'p> {
    fn read(state: &'p StoreInner) -> Result<Self> {
        let count = to_usize(state.tiers.table.len());
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
        state.tiers.table.for_each_key(|key| {
            bytes.extend_from_slice(key);
            ends.push(bytes.len());
        })?;
        Ok(Self { state, bytes, ends })
    }

    fn at(&self, nth: usize) -> (&[u8], ItemId) {
        let start = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        let key = &self.bytes[start..self.ends[nth]];
        (key, self.state.id_of(key))
    }
}

impl StoreInner {
    fn id_of(&self, key: &[u8]) -> ItemId {
        ItemId {
            table: self.number(),
            fingerprint: self.tiers.table.fingerprint(key),
        }
    }

    /// Takes keys that are to leave the table out of the order. Says whether there is one that follows.
    pub(in crate::store) fn leave_order(&self, changes: &[Mutation]) -> bool {
        if matches!(
            *self.shared.view.read(),
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

    /// Has the order follow changes. Says whether it could.
    fn follow<'c>(&self, changes: impl Iterator<Item = (&'c Mutation<'c>, bool)>) -> bool {
        let followed = self.try_follow(changes.peekable());
        if let Err(error) = &followed {
            tracing::warn!(%error, "the ordered view is given up");
            self.shared.view.forget();
        }
        followed.unwrap_or(false)
    }

    fn try_follow<'c>(
        &self,
        mut changes: Peekable<impl Iterator<Item = (&'c Mutation<'c>, bool)>>,
    ) -> Result<bool> {
        let shared = &self.shared.view;
        let keys = KeysFor(self);
        let mut unfit: Vec<&[u8]> = Vec::new();
        while changes.peek().is_some() {
            {
                let order = shared.read();
                for (change, is_there) in changes.by_ref().take(FOLLOWED_KEYS_MAX) {
                    let key = change.key();
                    match order.follow(key, self.id_of(key), is_there, &keys)? {
                        Some(Size::Fits) => {}
                        Some(Size::Unfit) => unfit.push(key),
                        None => return Ok(false),
                    }
                }
            }
            for key in unfit.drain(..) {
                shared.write().balance(key, &keys)?;
            }
        }
        Ok(true)
    }
}
