//! Values that can be made again, of which as many stay in memory as there is room for.
//!
//! Those that come while half of the room is free stay for good: whoever reads them writes nothing. A hand goes around the
//! others, and lets those go that nobody has used since it came by last: the clock of page replacement (Corbató, 1968).
//! Who reads one of these writes nothing that others read, but a flag that is mostly set.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

/// Slots that are looked at before those that are gone are taken out of the list.
const SLOTS_MIN: usize = 64;

/// See the [module](self).
#[derive(Debug)]
pub struct Clock<T> {
    bytes_max: u64,
    /// Bytes of values that stay for good.
    pinned: AtomicU64,
    /// Bytes of all values that are there.
    bytes: AtomicU64,
    hand: Mutex<Hand<T>>,
}

#[derive(Debug)]
struct Hand<T> {
    /// Each slot with a value, where the hand comes next at the front; some are gone.
    slots: VecDeque<Weak<Slot<T>>>,
    /// With so many, those that are gone are taken out.
    slots_max: usize,
}

/// A value, and how to have it.
#[derive(Debug)]
pub struct Slot<T> {
    clock: Arc<Clock<T>>,
    /// Counts its bytes, too, while it is there.
    share: Arc<AtomicU64>,
    bytes: u64,
    /// If it stays for good.
    pinned: Option<T>,
    value: ArcSwapOption<T>,
    was_used: AtomicBool,
    /// Held by who makes it.
    making: Mutex<()>,
}

/// A value that stays while somebody has it.
#[derive(Debug)]
pub enum Held<'s, T> {
    /// Of a slot that keeps it for good.
    Pinned(&'s T),
    /// Never `None`.
    Guarded(Guard<Option<Arc<T>>>),
}

impl<T> Held<'_, T> {
    /// The same, to be held for long: of the others a thread has few at a time.
    pub fn for_long(self) -> Self {
        match self {
            Self::Pinned(value) => Self::Pinned(value),
            Self::Guarded(value) => Self::Guarded(Guard::from_inner(Guard::into_inner(value))),
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Pinned(value) => value,
            Self::Guarded(value) => value.as_deref().expect("it is there"),
        }
    }
}

impl<T> Clock<T> {
    /// One that keeps values of at most so many bytes, and always the one that was made last. Half of them may stay for good.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            pinned: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            hand: Mutex::new(Hand {
                slots: VecDeque::new(),
                slots_max: SLOTS_MIN,
            }),
        }
    }

    /// Takes a value in that has just been made, and lets others go.
    fn admit(&self, slot: &Arc<Slot<T>>) {
        let mut hand = self.hand.lock();
        let Hand { slots, slots_max } = &mut *hand;
        slots.push_back(Arc::downgrade(slot));
        if slots.len() > *slots_max {
            slots.retain(|slot| slot.strong_count() > 0);
            *slots_max = (2 * slots.len()).max(SLOTS_MIN);
        }
        self.make_room(slots, Some(slot));
    }

    /// Lets values go until all have room, but for one that has just been made.
    fn make_room(&self, slots: &mut VecDeque<Weak<Slot<T>>>, made: Option<&Arc<Slot<T>>>) {
        // Twice around, all have lost their second chance.
        for _ in 0..2 * slots.len() {
            if self.bytes.load(Ordering::Relaxed) <= self.bytes_max {
                break;
            }
            let Some(next) = slots.pop_front() else { break };
            let Some(other) = next.upgrade() else {
                continue;
            };
            let is_made = made.is_some_and(|made| Arc::ptr_eq(&other, made));
            if is_made || other.was_used.swap(false, Ordering::Relaxed) {
                slots.push_back(next);
            } else {
                other.let_go();
            }
        }
    }
}

impl<T> Slot<T> {
    /// One with a value that takes so many bytes, now and whenever it is made again. `share` counts them while it is
    /// there.
    pub fn new(clock: &Arc<Clock<T>>, share: &Arc<AtomicU64>, value: T, bytes: u64) -> Arc<Self> {
        let has_room = |pinned: u64| Some(pinned + bytes).filter(|sum| *sum <= clock.bytes_max / 2);
        let is_pinned = clock
            .pinned
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room)
            .is_ok();
        let (pinned, other) = match is_pinned {
            true => (Some(value), None),
            false => (None, Some(value)),
        };
        let slot = Arc::new(Self {
            clock: Arc::clone(clock),
            share: Arc::clone(share),
            bytes,
            pinned,
            value: ArcSwapOption::empty(),
            was_used: AtomicBool::new(true),
            making: Mutex::new(()),
        });
        match other {
            None => {
                slot.count();
                clock.make_room(&mut clock.hand.lock().slots, None);
            }
            Some(value) => drop(slot.put(value)),
        }
        slot
    }

    /// The value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<Held<'_, T>> {
        if let Some(value) = &self.pinned {
            return Some(Held::Pinned(value));
        }
        let value = self.value.load();
        let value = value.is_some().then_some(Held::Guarded(value));
        if value.is_some() && !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        value
    }

    /// The value, which `make` makes if it is not there; others that want it meanwhile wait for that.
    ///
    /// # Errors
    /// Those of `make`.
    #[inline]
    pub fn get_or_make<E>(
        self: &Arc<Self>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Held<'_, T>, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => self.make(make),
        }
    }

    /// As [`get_or_make`](Self::get_or_make), but `None` while another one makes it.
    ///
    /// # Errors
    /// As there.
    pub fn try_make<E>(
        self: &Arc<Self>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Option<Held<'_, T>>, E> {
        let Some(_making) = self.making.try_lock() else {
            return Ok(self.get());
        };
        match self.get() {
            Some(value) => Ok(Some(value)),
            None => make().map(|value| Some(self.put(value))),
        }
    }

    #[cold]
    fn make<E>(self: &Arc<Self>, make: impl FnOnce() -> Result<T, E>) -> Result<Held<'_, T>, E> {
        let _making = self.making.lock();
        match self.get() {
            Some(value) => Ok(value),
            None => make().map(|value| self.put(value)),
        }
    }

    /// Keeps a value where there is none.
    fn put(self: &Arc<Self>, value: T) -> Held<'_, T> {
        let value = Arc::new(value);
        self.was_used.store(true, Ordering::Relaxed);
        self.count();
        self.value.store(Some(Arc::clone(&value)));
        self.clock.admit(self);
        Held::Guarded(Guard::from_inner(Some(value)))
    }

    fn count(&self) {
        for count in [&self.clock.bytes, &*self.share] {
            count.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }

    fn uncount(&self) {
        for count in [&self.clock.bytes, &*self.share] {
            count.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }

    /// Who has it goes on with it.
    fn let_go(&self) {
        if self.value.swap(None).is_some() {
            self.uncount();
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        self.let_go();
        if self.pinned.is_some() {
            self.uncount();
            self.clock.pinned.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
