//! Which records items name, as a scan finds out.

use std::sync::atomic::AtomicU64;

use gphash_layout::width::to_usize;
use gphash_sync::Ordering;

use crate::Arena;

/// One bit for each record: of every class in whole words, in the order of their numbers.
pub struct ReachableRecords {
    words: Vec<AtomicU64>,
    /// First word of each class, and the end of the last.
    first: Vec<usize>,
}

impl ReachableRecords {
    /// No record of `arena` is used. The arena must not grow meanwhile.
    pub fn new(arena: &Arena) -> Self {
        let mut first = vec![0];
        for class in arena.classes() {
            let end = first[class as usize] + to_usize(arena.end(class).div_ceil(64));
            first.push(end);
        }
        let len = first[first.len() - 1];
        Self {
            words: (0..len).map(|_| AtomicU64::new(0)).collect(),
            first,
        }
    }

    /// All words.
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// The words of one class.
    #[inline]
    pub fn class(&self, class: u32) -> &[AtomicU64] {
        let class = class as usize;
        &self.words[self.first[class]..self.first[class + 1]]
    }

    /// Sets the bit of a record; says whether it was set before.
    #[inline]
    pub fn set(&self, class: u32, ordinal: u64) -> bool {
        let bit = 1u64 << (ordinal % 64);
        let word = &self.class(class)[(ordinal / 64) as usize];
        word.fetch_or(bit, Ordering::Relaxed) & bit != 0
    }
}
