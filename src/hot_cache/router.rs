//! Which bins of keys are hot, a byte each.

use std::sync::atomic::{AtomicU8, Ordering};

/// Gets of the bin's keys ask the cache.
const IS_SERVED: u8 = 1;

/// Changes of the bin's keys block them. A bin that is served is blocked, too.
const IS_BLOCKED: u8 = 2;

/// See the [module](self). Who changes something here is alone.
pub struct Router(Box<[AtomicU8]>);

impl Router {
    /// That of so many bins, none of which is hot.
    pub fn new(bins: u32) -> Self {
        Self((0..bins).map(|_| AtomicU8::new(0)).collect())
    }

    /// The bin of a key.
    #[inline]
    pub fn bin(&self, tag: u32) -> usize {
        let nth = (u64::from(tag) * self.0.len() as u64) >> 32;
        usize::try_from(nth).expect("it is less than the number of bins")
    }

    /// Whether gets of a bin ask the cache.
    #[inline]
    pub fn serves(&self, bin: usize) -> bool {
        self.0[bin].load(Ordering::Acquire) & IS_SERVED != 0
    }

    /// Whether changes of a bin block its keys.
    #[inline]
    pub fn is_blocked(&self, bin: usize) -> bool {
        self.0[bin].load(Ordering::Acquire) & IS_BLOCKED != 0
    }

    /// Bins that are served.
    pub fn served(&self) -> u64 {
        (0..self.0.len()).filter(|&bin| self.serves(bin)).count() as u64
    }

    /// Has changes block these bins, too.
    pub fn block_also(&self, hot: &[bool]) {
        for (bin, _) in self.0.iter().zip(hot).filter(|(_, is_hot)| **is_hot) {
            bin.fetch_or(IS_BLOCKED, Ordering::Release);
        }
    }

    /// Has gets of these bins alone ask the cache. Says whether others did before.
    pub fn serve_only(&self, hot: &[bool]) -> bool {
        let mut has_dropped = false;
        for (bin, is_hot) in self.0.iter().zip(hot) {
            if *is_hot {
                bin.fetch_or(IS_SERVED, Ordering::Release);
            } else {
                let before = bin.fetch_and(!IS_SERVED, Ordering::Release);
                has_dropped |= before & IS_SERVED != 0;
            }
        }
        has_dropped
    }

    /// Has changes block the bins that are served, and no others.
    pub fn block_served(&self) {
        for bin in &self.0 {
            if bin.load(Ordering::Relaxed) & IS_SERVED == 0 {
                bin.store(0, Ordering::Release);
            }
        }
    }
}
