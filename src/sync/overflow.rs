//! The overflow maps in volatile memory, so that asking them touches no persistent memory.
//!
//! All candidate buckets of a key may be full while most of the table is not. Then the item goes to
//! a further set of hash locations, and the bit of its home bucket (location 0, top level) says so.
//! Fewer than one item in a thousand has done so when the table grows. So lookups that find nothing
//! read one set in all but a hundredth of the cases. A bit stays until its level is emptied.

use std::sync::OnceLock;

use gphash_layout::DIRECTORY;

use crate::{AtomicU64, Ordering};

/// One map for each live level. Sequentially consistent, as the [tags](crate::tags) are: of two
/// insertions of one key, of which one goes to a further round, at least one finds the other.
pub struct OverflowMaps {
    levels: [OnceLock<Box<[AtomicU64]>>; DIRECTORY],
    /// Not zero once any bit of any level has been set.
    any: AtomicU64,
}

impl Default for OverflowMaps {
    /// No maps.
    fn default() -> Self {
        Self {
            levels: std::array::from_fn(|_| OnceLock::new()),
            any: AtomicU64::new(0),
        }
    }
}

impl OverflowMaps {
    /// Adds the map of `level` with these words. Before the level is published.
    pub fn add(&self, level: u32, words: impl Iterator<Item = u64>) {
        let mut any = 0;
        if let Some(mine) = self.levels[level as usize].get() {
            // There was such a level before.
            for (mine, word) in mine.iter().zip(words) {
                any |= word;
                mine.store(word, Ordering::SeqCst);
            }
            self.any.fetch_or(any, Ordering::SeqCst);
            return;
        }
        let words = words.inspect(|word| any |= word).map(AtomicU64::new);
        let words: Box<[AtomicU64]> = words.collect();
        // loom lets a sequentially consistent load go back to any store that is not.
        #[cfg(loom)]
        for word in &words {
            word.fetch_or(0, Ordering::SeqCst);
        }
        let _ = self.levels[level as usize].set(words);
        self.any.fetch_or(any, Ordering::SeqCst);
    }

    /// Sets the bits of a level that has been added which an engine has set in the file alone.
    pub fn merge(&self, level: u32, words: impl Iterator<Item = u64>) {
        let Some(mine) = self.levels[level as usize].get() else {
            return self.add(level, words);
        };
        for (mine, bits) in mine.iter().zip(words) {
            if bits != 0 {
                mine.fetch_or(bits, Ordering::SeqCst);
                self.any.store(1, Ordering::SeqCst);
            }
        }
    }

    /// Forgets that bits were set, before the maps of all live levels are added anew. Nobody may be asking.
    pub fn forget(&self) {
        self.any.store(0, Ordering::SeqCst);
    }

    /// Whether any bit has ever been set.
    #[inline]
    pub fn is_any_set(&self) -> bool {
        self.any.load(Ordering::SeqCst) != 0
    }

    /// Whether the bit of `bucket` is set.
    #[inline]
    pub fn is_set(&self, level: u32, bucket: u64) -> bool {
        self.levels[level as usize].get().is_some_and(|words| {
            words[(bucket / 64) as usize].load(Ordering::SeqCst) >> (bucket % 64) & 1 != 0
        })
    }

    /// Sets the bit of `bucket`; to be called after the file's own bit is persistent.
    pub fn set(&self, level: u32, bucket: u64) {
        // Not a store: loom would let one be overwritten by what a level that is added found before it.
        self.any.fetch_or(1, Ordering::SeqCst);
        if let Some(words) = self.levels[level as usize].get() {
            words[(bucket / 64) as usize].fetch_or(1 << (bucket % 64), Ordering::SeqCst);
        }
    }
}
