//! Values that can be made again, of which as many stay in memory as there is room for.
//!
//! A hand goes around them, and lets those go that nobody has used since it came by last: the clock of page
//! replacement (Corbató, 1968). Who uses a value that is there writes nothing but a flag that is mostly set.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

/// Slots that are looked at before those that are gone are taken out of the list.
const SLOTS_MIN: usize = 64;

/// See the [module](self).
#[derive(Debug)]
pub struct Clock<T> {
    bytes_max: u64,
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
    value: RwLock<Option<Arc<T>>>,
    was_used: AtomicBool,
    /// Held by who makes it.
    making: Mutex<()>,
}

impl<T> Clock<T> {
    /// One that keeps values of at most so many bytes, and always the one that was made last.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
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
        // Twice around, all have lost their second chance.
        for _ in 0..2 * slots.len() {
            if self.bytes.load(Ordering::Relaxed) <= self.bytes_max {
                break;
            }
            let Some(next) = slots.pop_front() else { break };
            let Some(other) = next.upgrade() else {
                continue;
            };
            if Arc::ptr_eq(&other, slot) || other.was_used.swap(false, Ordering::Relaxed) {
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
        let slot = Arc::new(Self {
            clock: Arc::clone(clock),
            share: Arc::clone(share),
            bytes,
            value: RwLock::new(None),
            was_used: AtomicBool::new(true),
            making: Mutex::new(()),
        });
        slot.put(value);
        slot
    }

    /// The value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<Arc<T>> {
        let value = self.value.read().clone();
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
    ) -> Result<Arc<T>, E> {
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
    ) -> Result<Option<Arc<T>>, E> {
        let Some(_making) = self.making.try_lock() else {
            return Ok(self.get());
        };
        match self.get() {
            Some(value) => Ok(Some(value)),
            None => make().map(|value| Some(self.put(value))),
        }
    }

    #[cold]
    fn make<E>(self: &Arc<Self>, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let _making = self.making.lock();
        match self.get() {
            Some(value) => Ok(value),
            None => make().map(|value| self.put(value)),
        }
    }

    /// Keeps a value where there is none.
    fn put(self: &Arc<Self>, value: T) -> Arc<T> {
        let value = Arc::new(value);
        self.was_used.store(true, Ordering::Relaxed);
        for count in [&self.clock.bytes, &*self.share] {
            count.fetch_add(self.bytes, Ordering::Relaxed);
        }
        *self.value.write() = Some(Arc::clone(&value));
        self.clock.admit(self);
        value
    }

    /// Who has it goes on with it.
    fn let_go(&self) {
        if self.value.write().take().is_some() {
            for count in [&self.clock.bytes, &*self.share] {
                count.fetch_sub(self.bytes, Ordering::Relaxed);
            }
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}
