//! Which pages have been stored to since the last checkpoint.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// One bit a page. Its memory costs only what has been touched.
#[derive(Debug)]
pub struct DirtyMap {
    words: MmapRaw,
    /// How many pages are marked.
    count: AtomicI64,
}

impl DirtyMap {
    /// A clean map for `len` bytes.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn new(len: u64) -> io::Result<Self> {
        let words = to_usize(len.div_ceil(PAGE).div_ceil(64));
        let words = MmapOptions::new()
            .len(words.max(1) * 8)
            .no_reserve_swap()
            .map_anon()?;
        Ok(Self {
            words: MmapRaw::from(words),
            count: AtomicI64::new(0),
        })
    }

    /// How many pages are marked: what is marked at the same time may be missing.
    pub fn count(&self) -> u64 {
        // A page is marked before it is counted, and may be taken in between.
        u64::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Sets bits of a word.
    fn set(&self, word: &AtomicU64, bits: u64) {
        let fresh = bits & !word.fetch_or(bits, Ordering::Relaxed);
        self.count
            .fetch_add(i64::from(fresh.count_ones()), Ordering::Relaxed);
    }

    /// All words, the lowest page in the lowest bit of the first.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, zeroed, lives as long as `self`, and is only
        // ever reached through these atomic words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() / 8) }
    }

    /// Marks every page that `len` bytes from `at` on touch.
    #[inline]
    pub fn mark(&self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        for page in at / PAGE..=(at + len - 1) / PAGE {
            let word = &self.words()[(page / 64) as usize];
            let bit = 1 << (page % 64);
            // Almost every store meets a page that is marked already; looking first keeps the
            // map's lines shared between the CPUs.
            if word.load(Ordering::Relaxed) & bit == 0 {
                self.set(word, bit);
            }
        }
    }

    /// Marks the pages whose bits are set in `words`, which stand for the pages from
    /// 64 × `first_word` on.
    pub fn merge(&self, first_word: usize, words: &[u64]) {
        for (mine, &bits) in self.words()[first_word..][..words.len()].iter().zip(words) {
            if bits != 0 {
                self.set(mine, bits);
            }
        }
    }

    /// Takes the numbers of all marked pages below `len` bytes, in order, and clears their bits.
    #[must_use]
    pub fn take(&self, len: u64) -> Vec<u64> {
        let words = to_usize(len.div_ceil(PAGE).div_ceil(64));
        let mut pages = Vec::new();
        let mut count = 0;
        for (number, word) in self.words()[..words].iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Relaxed);
            count += i64::from(bits.count_ones());
            while bits != 0 {
                pages.push(number as u64 * 64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        self.count.fetch_sub(count, Ordering::Relaxed);
        pages
    }

    /// Clears the marks of the whole pages `from..to`, which nobody stores to.
    pub fn clear(&self, from: u64, to: u64) {
        let (mut page, end) = (from / PAGE, to / PAGE);
        while page < end {
            let inside = page % 64;
            let count = (64 - inside).min(end - page);
            let bits = (u64::MAX >> (64 - count)) << inside;
            let before = self.words()[to_usize(page / 64)].fetch_and(!bits, Ordering::Relaxed);
            let cleared = i64::from((before & bits).count_ones());
            self.count.fetch_sub(cleared, Ordering::Relaxed);
            page += count;
        }
    }

    /// Marks pages by their numbers: what [`take`](Self::take) took, when it could not be saved.
    pub fn put_back(&self, pages: &[u64]) {
        for page in pages {
            self.set(&self.words()[(page / 64) as usize], 1 << (page % 64));
        }
    }
}

/// That of a number of words.
fn to_usize(words: u64) -> usize {
    usize::try_from(words).expect("an address space of 64 bits")
}

#[cfg(test)]
mod tests;
