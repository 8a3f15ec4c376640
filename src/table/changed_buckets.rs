//! Which buckets have changed since they were read last by one who keeps copies of all, to look for records in them.
//!
//! Who takes a record out of a slot notes the bucket before the record waits for its epoch. So it is enough to be pinned,
//! then to take the notes, and then to read the buckets that were noted: no copy names a record that may be used
//! again before the pin ends. What copies lack, or have from before, is known by its key.
//!
//! A resize clears a slot whose record lives on in another one, where it may change at once. So the bucket is noted before,
//! once the record is frozen. A copy made after that has nothing there, or a frozen record, which its reader passes over. A
//! copy from before names a record that cannot be used again while its reader is pinned.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::Table;
use super::levels::Levels;
use crate::layout::bucket::SlotAddr;
use crate::layout::superblock::DIRECTORY;
use crate::pm::Medium;
use crate::width::to_usize;

/// Buckets that a word of notes has a bit for.
const WORD_BUCKETS: u64 = u64::BITS as u64;

/// See the [module](self).
pub(crate) struct ChangedBuckets {
    is_watched: AtomicBool,
    /// A bit for each bucket of a level that is noted. Not in the table itself, which models have on short stacks.
    levels: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Default for ChangedBuckets {
    fn default() -> Self {
        Self {
            is_watched: AtomicBool::new(false),
            levels: (0..DIRECTORY).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl ChangedBuckets {
    /// Whether changes are to be noted. To be asked after a pin.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    fn level(&self, level: u32) -> &[AtomicU64] {
        self.levels[level as usize].get_or_init(|| {
            let words = (1u64 << level).div_ceil(WORD_BUCKETS);
            (0..words).map(|_| AtomicU64::new(0)).collect()
        })
    }
}

impl<M: Medium> Table<M> {
    /// Has all changes noted; `false` if that takes longer, because somebody is at an operation that notes none. The
    /// caller is not pinned.
    pub(crate) fn watch_buckets(&self) -> bool {
        self.changed_buckets.is_watched() || {
            self.changed_buckets
                .is_watched
                .store(true, Ordering::SeqCst);
            let is_noted = self.wait_for_pins();
            self.changed_buckets
                .is_watched
                .store(is_noted, Ordering::SeqCst);
            is_noted
        }
    }

    /// Notes the bucket of a slot.
    pub(super) fn note_bucket(&self, addr: SlotAddr) {
        let levels = self.levels.live();
        let of_level = |level: u32| {
            let inside = addr.state.checked_sub(self.levels.offset(level))?;
            let number = inside / self.shape.bucket_size;
            (number >> level == 0).then_some((level, number))
        };
        // Mostly it is in the highest one.
        if let Some((level, number)) = (levels.bottom..=levels.top).rev().find_map(of_level) {
            let word = &self.changed_buckets.level(level)[to_usize(number / WORD_BUCKETS)];
            let bit = 1 << (number % WORD_BUCKETS);
            if word.load(Ordering::SeqCst) & bit == 0 {
                word.fetch_or(bit, Ordering::SeqCst);
            }
        }
    }

    /// Takes the notes of all buckets of `levels`, and gives `visit` level and number of each, up to where that fails.
    pub(crate) fn take_changed_buckets<E>(
        &self,
        levels: Levels,
        mut visit: impl FnMut(u32, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for level in levels.bottom..=levels.top {
            let words = self.changed_buckets.level(level);
            for (first, word) in (0u64..).step_by(to_usize(WORD_BUCKETS)).zip(words) {
                if word.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut bits = word.swap(0, Ordering::SeqCst);
                // What is read of the buckets from here on has what was stored before a note.
                fence(Ordering::SeqCst);
                while bits != 0 {
                    visit(level, first + u64::from(bits.trailing_zeros()))?;
                    bits &= bits - 1;
                }
            }
        }
        Ok(())
    }

    /// Puts the words of a bucket into `words`, each as it is when it is read.
    pub(crate) fn copy_bucket(&self, level: u32, number: u64, words: &mut [u64]) {
        let at = self.levels.offset(level) + number * self.shape.bucket_size;
        for (at, word) in (at..).step_by(size_of::<u64>()).zip(words) {
            *word = self.medium.load(at);
        }
    }
}
