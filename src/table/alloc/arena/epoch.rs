//! Epochs: when a record that was taken out of the table may be used again.
//!
//! Every operation runs pinned to the global epoch. The epoch advances only when all pinned
//! operations have seen it, so what was unlinked in epoch *e* is out of everybody's reach in
//! epoch *e* + [`GRACE`]. (Epoch-based reclamation; Fraser, *Practical lock-freedom*, 2004, §5.2.3.)

use crossbeam_utils::CachePadded;

use gphash_sync::{AtomicU64, Ordering, fence, pause};

/// Most operations that can be pinned at once; a further one waits for a pin.
#[cfg(not(loom))]
pub const MAX_PINS: usize = 256;
/// One for each thread of a model; every pin costs states.
#[cfg(loom)]
pub const MAX_PINS: usize = 3;

/// Epochs after which nobody that could have reached an unlinked record is still pinned.
pub const GRACE: u64 = 2;

/// Value of a pin that nobody holds; epochs start above it.
const FREE: u64 = 0;

/// The epochs of one table.
pub struct Epochs {
    global: CachePadded<AtomicU64>,
    pins: Box<[CachePadded<AtomicU64>]>,
}

/// Holds an operation in its epoch until dropped.
pub struct Pin<'e> {
    epochs: &'e Epochs,
    number: usize,
}

impl Default for Epochs {
    /// No one is pinned.
    fn default() -> Self {
        Self {
            global: CachePadded::new(AtomicU64::new(1)),
            pins: (0..MAX_PINS)
                .map(|_| CachePadded::new(AtomicU64::new(FREE)))
                .collect(),
        }
    }
}

impl Epochs {
    /// The global epoch.
    #[inline]
    pub fn current(&self) -> u64 {
        self.global.load(Ordering::Acquire)
    }

    /// Pins the caller. `hint` picks where to look for a free pin first: the same one for the same
    /// thread keeps its cache line there.
    #[inline]
    pub fn pin(&self, hint: usize) -> Pin<'_> {
        let mut number = hint % MAX_PINS;
        loop {
            let epoch = self.current();
            if self.pins[number]
                .compare_exchange(FREE, epoch, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                return self.publish(number, epoch);
            }
            number = (number + 1) % MAX_PINS;
            if number == hint % MAX_PINS {
                pause();
            }
        }
    }

    /// Moves a fresh pin to the newest epoch: the global one may have advanced between reading
    /// it and being seen in the pin.
    #[inline]
    fn publish(&self, number: usize, mut epoch: u64) -> Pin<'_> {
        loop {
            fence(Ordering::SeqCst);
            let current = self.global.load(Ordering::SeqCst);
            if current == epoch {
                return Pin {
                    epochs: self,
                    number,
                };
            }
            epoch = current;
            self.pins[number].store(epoch, Ordering::SeqCst);
        }
    }

    /// Whether nobody is pinned.
    pub fn is_unpinned(&self) -> bool {
        let mut pins = self.pins.iter();
        pins.all(|pin| pin.load(Ordering::SeqCst) == FREE)
    }

    /// Advances the global epoch if everyone who is pinned has seen it; gives the epoch after.
    pub fn try_advance(&self) -> u64 {
        let epoch = self.global.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let seen_by_all = self.pins.iter().all(|pin| {
            let pinned = pin.load(Ordering::SeqCst);
            pinned == FREE || pinned == epoch
        });
        if seen_by_all {
            let _ =
                self.global
                    .compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::Relaxed);
        }
        self.current()
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.epochs.pins[self.number].store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
