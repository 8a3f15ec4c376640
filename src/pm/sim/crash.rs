//! What memory may hold after a power cut, from a moment of which all stores are known.

use std::path::Path;

use rand::{Rng, RngExt};

use super::durable::mark;
use super::pages::Pages;
use super::{LINE_WORDS, Simulated};
use crate::layout::Superblock;
use crate::pm::journal::HEAD;
use crate::width::to_usize;

/// A moment at which a crash is imagined.
#[derive(Debug, Clone)]
pub struct CrashState {
    /// Stores and fences before it.
    pub step: u64,
    pub(super) certain: Pages,
    /// Sum of the marks of all certain words.
    pub(super) certain_hash: u64,
    pub(super) pending: Vec<Word>,
    pub(super) max_len: u64,
}

/// A word that is not certain.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub(super) number: usize,
    pub(super) certain: u64,
    /// What has been stored since, each with the step that did it.
    pub(super) stored: Vec<(u64, u64)>,
}

impl Word {
    /// All that it may hold, without repetition.
    fn outcomes(&self) -> Vec<u64> {
        let mut outcomes = vec![self.certain];
        for &(_, value) in &self.stored {
            if !outcomes.contains(&value) {
                outcomes.push(value);
            }
        }
        outcomes
    }
}

/// Memory after a crash at some moment.
#[derive(Debug, Clone)]
pub struct Image<'s> {
    state: &'s CrashState,
    /// What the pending words hold.
    words: Vec<u64>,
}

impl Image<'_> {
    /// Equal for equal memories, and for no two others that anyone will meet.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let pending = self.state.pending.iter().zip(&self.words);
        pending.fold(self.state.certain_hash, |hash, (word, &value)| {
            hash.wrapping_sub(mark(word.number, word.certain))
                .wrapping_add(mark(word.number, value))
        })
    }

    /// The memory, as long as its superblock says: an opening takes no more into reach.
    #[must_use]
    pub fn memory(&self) -> Simulated {
        let mut pages = self.state.certain.clone();
        for (word, &value) in self.state.pending.iter().zip(&self.words) {
            pages.set(word.number, value);
        }
        Simulated::after_crash(pages, self.hash(), self.state.max_len)
    }
}

impl Simulated {
    /// Memory that holds what a crash has left, as long as its superblock says.
    pub(super) fn after_crash(mut pages: Pages, hash: u64, max_len: u64) -> Self {
        let mut head = vec![0; HEAD.min(pages.len() * 8)];
        pages.read(0, &mut head);
        let len = pages.len() as u64 * 8;
        if let Ok(superblock) = Superblock::parse(&head, len, Path::new("memory")) {
            pages.resize(to_usize(superblock.file_len) / 8);
        }
        Self::holding(pages, hash, max_len)
    }
}

impl CrashState {
    /// How many stores are not certain.
    #[must_use]
    pub fn pending_stores(&self) -> usize {
        self.pending.iter().map(|word| word.stored.len()).sum()
    }

    /// After the death of the process alone: all stores stand.
    #[must_use]
    pub fn process_crash(&self) -> Image<'_> {
        self.image(|word| word.stored.last().map_or(word.certain, |&(_, last)| last))
    }

    /// The memory that the next process finds after the death of one: all stores are seen, and those
    /// that were not certain still are not. What the dead process has written back but not fenced
    /// counts for nothing.
    #[must_use]
    pub fn after_kill(&self) -> Simulated {
        Simulated::resuming(self)
    }

    /// After power cuts. All images that the domain allows, each word holding its certain value or
    /// any later one, if they are at most `most`. Else `most` of them, chosen by `rng`; among them
    /// are, all if they are few, such in which the stores to each line stand up to one of them
    /// and not from there on. An x86 CPU leaves no others, since it writes a line as it is at one
    /// moment; that the rest is tried as well asks less of the hardware than it gives.
    #[must_use]
    pub fn power_cuts(&self, most: usize, rng: &mut impl Rng) -> Vec<Image<'_>> {
        let outcomes: Vec<Vec<u64>> = self.pending.iter().map(Word::outcomes).collect();
        if let Some(count) = product(outcomes.iter().map(Vec::len), most) {
            return (0..count)
                .map(|nth| self.nth_image(&outcomes, nth))
                .collect();
        }
        let lines = self.lines();
        let mut images: Vec<Image> =
            match product(lines.iter().map(|line| line.len() + 1), most / 2) {
                Some(count) => (0..count)
                    .map(|nth| {
                        let mut rest = nth;
                        self.in_order(&lines, |stores| digit(&mut rest, stores + 1))
                    })
                    .collect(),
                None => (0..most / 4)
                    .map(|_| self.in_order(&lines, |stores| rng.random_range(0..=stores)))
                    .collect(),
            };
        while images.len() < most {
            images.push(self.power_cut(rng));
        }
        images
    }

    /// After a power cut: one image of those that the domain allows.
    #[must_use]
    pub fn power_cut(&self, rng: &mut impl Rng) -> Image<'_> {
        // Many bugs show when a single word is missing, or a single one has arrived.
        let missing = [0.02, 0.2, 0.5, 0.8, 0.98][rng.random_range(0..5)];
        self.image(|word| match word.stored.last() {
            Some(&(_, last)) if !rng.random_bool(missing) => last,
            _ => match rng.random_range(0..=word.stored.len()) {
                0 => word.certain,
                _ if rng.random() => word.certain,
                nth => word.stored[nth - 1].1,
            },
        })
    }

    /// After a power cut that the words which are stored last at these offsets have come through, and
    /// no other store that was not certain.
    #[must_use]
    pub fn power_cut_but_for(&self, arrives: impl Fn(u64) -> bool) -> Image<'_> {
        self.image(|word| match word.stored.last() {
            Some(&(_, last)) if arrives(word.number as u64 * 8) => last,
            _ => word.certain,
        })
    }

    fn image(&self, choose: impl FnMut(&Word) -> u64) -> Image<'_> {
        Image {
            state: self,
            words: self.pending.iter().map(choose).collect(),
        }
    }

    fn nth_image(&self, outcomes: &[Vec<u64>], nth: usize) -> Image<'_> {
        let mut rest = nth;
        let words = outcomes
            .iter()
            .map(|outcomes| outcomes[digit(&mut rest, outcomes.len())])
            .collect();
        Image { state: self, words }
    }

    /// The stores to each line, in order: step, which pending word, value.
    fn lines(&self) -> Vec<Vec<(u64, usize, u64)>> {
        let same_line = |a: &(usize, &Word), b: &(usize, &Word)| {
            a.1.number / LINE_WORDS == b.1.number / LINE_WORDS
        };
        let words: Vec<(usize, &Word)> = self.pending.iter().enumerate().collect();
        words
            .chunk_by(same_line)
            .map(|line| {
                let mut stores: Vec<_> = line
                    .iter()
                    .flat_map(|&(nth, word)| word.stored.iter().map(move |&(s, v)| (s, nth, v)))
                    .collect();
                stores.sort_unstable();
                stores
            })
            .collect()
    }

    /// Of each line, as many stores as `choose` says of so many.
    fn in_order(
        &self,
        lines: &[Vec<(u64, usize, u64)>],
        mut choose: impl FnMut(usize) -> usize,
    ) -> Image<'_> {
        let mut image = self.image(|word| word.certain);
        for stores in lines {
            for &(_, nth, value) in &stores[..choose(stores.len())] {
                image.words[nth] = value;
            }
        }
        image
    }
}

/// The product of `factors`, if it is at most `most`.
fn product(mut factors: impl Iterator<Item = usize>, most: usize) -> Option<usize> {
    factors.try_fold(1usize, |product, factor| {
        product
            .checked_mul(factor)
            .filter(|&product| product <= most)
    })
}

/// Takes the lowest digit, of a number system with `base` digits there, off a number.
fn digit(number: &mut usize, base: usize) -> usize {
    let digit = *number % base;
    *number /= base;
    digit
}
