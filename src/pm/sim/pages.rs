//! Words of memory in pages that copies share until one of them is stored to.

use std::sync::Arc;

use crate::layout::PAGE;
use crate::width::to_usize;

/// Words of a page.
const WORDS: usize = to_usize(PAGE) / 8;

/// Memory that costs a pointer a page to copy.
#[derive(Debug, Clone)]
pub(super) struct Pages(Vec<Arc<[u64; WORDS]>>);

impl Pages {
    /// `words` words of zero, rounded up to whole pages.
    pub(super) fn zeroed(words: usize) -> Self {
        let mut pages = Self(Vec::new());
        pages.resize(words);
        pages
    }

    /// Words that there are.
    pub(super) fn len(&self) -> usize {
        self.0.len() * WORDS
    }

    /// Cuts the memory, or extends it by zeros, to `words` rounded up to whole pages.
    pub(super) fn resize(&mut self, words: usize) {
        let zeros = Arc::new([0; WORDS]);
        self.0.resize(words.div_ceil(WORDS), zeros);
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> u64 {
        self.0[number / WORDS][number % WORDS]
    }

    #[inline]
    pub(super) fn set(&mut self, number: usize, word: u64) {
        if self.get(number) != word {
            Arc::make_mut(&mut self.0[number / WORDS])[number % WORDS] = word;
        }
    }

    /// Copies bytes out, from byte `at` on.
    pub(super) fn read(&self, mut at: usize, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let page: &[u8] = bytemuck::cast_slice(&self.0[at / 8 / WORDS][..]);
            let from = &page[at % page.len()..];
            let len = from.len().min(bytes.len());
            let (part, rest) = bytes.split_at_mut(len);
            part.copy_from_slice(&from[..len]);
            at += len;
            bytes = rest;
        }
    }
}
