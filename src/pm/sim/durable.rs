//! What a crash may take back of a memory, and what not.

use std::collections::BTreeMap;
use std::ops::Range;

use super::LINE_WORDS;
use super::crash::{CrashState, Word};
use super::pages::Pages;

/// What changes what a crash would leave.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A store of a word.
    Store { number: usize, word: u64 },
    /// A fence, which makes lines certain, each as of a step.
    Fence(Vec<(Range<usize>, u64)>),
    /// There are so many words now. No step.
    Grow(usize),
    /// What these words held is lost at once. No step.
    Release(Range<usize>),
    /// There are no more than so many words now. No step.
    Cut(usize),
}

impl Event {
    /// Whether a crash before it and one after it are told apart.
    pub(super) fn is_step(&self) -> bool {
        matches!(self, Event::Store { .. } | Event::Fence(_))
    }
}

/// What words hold that were released.
pub(super) const RELEASED: u64 = 0xA5A5_A5A5_A5A5_A5A5;

/// A store that may survive.
#[derive(Debug, Clone, Copy)]
struct Stored {
    step: u64,
    /// Number of the word.
    number: usize,
    word: u64,
}

/// Certain and pending words.
#[derive(Debug, Clone)]
pub(super) struct Durable {
    /// What is certain to survive.
    certain: Pages,
    /// Sum of the marks of all certain words.
    certain_hash: u64,
    /// What may survive, by the number of the line: what was stored since it was last certain, oldest first.
    /// By lines, since they are written back whole and most have several words stored to.
    pending: BTreeMap<usize, Vec<Stored>>,
    /// Room of lines that are certain, for the next ones.
    spare: Vec<Vec<Stored>>,
    /// Stores of words and fences so far.
    steps: u64,
    max_len: u64,
}

/// What a word adds to the hash of a memory; zeros add nothing, so that growing does not.
pub(super) fn mark(number: usize, word: u64) -> u64 {
    let mix = word.wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ word >> 29;
    let mix = mix.wrapping_mul((number as u64) << 1 | 1);
    (mix ^ mix >> 32).wrapping_mul(0x94D0_49BB_1331_11EB) ^ mix >> 27
}

impl Durable {
    /// Words that are certain, and whose marks add up to `hash`.
    pub(super) fn new(words: Pages, hash: u64, max_len: u64) -> Self {
        Self {
            certain: words,
            certain_hash: hash,
            pending: BTreeMap::new(),
            spare: Vec::new(),
            steps: 0,
            max_len,
        }
    }

    /// Takes over what is pending in a crash, and its step.
    pub(super) fn resume(&mut self, crash: &CrashState) {
        for &Word {
            number, ref stored, ..
        } in &crash.pending
        {
            for &(step, word) in stored {
                self.pend(Stored { step, number, word });
            }
        }
        for stored in self.pending.values_mut() {
            stored.sort_unstable_by_key(|stored| stored.step);
        }
        self.steps = crash.step;
    }

    /// Stores of words and fences so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn apply(&mut self, event: &Event) {
        match *event {
            Event::Store { number, word } => {
                self.steps += 1;
                let step = self.steps;
                self.pend(Stored { step, number, word });
            }
            Event::Fence(ref arrived) => {
                self.steps += 1;
                for (lines, step) in arrived {
                    self.persist(lines.clone(), *step);
                }
            }
            Event::Grow(words) => self.certain.resize(words),
            Event::Cut(words) => {
                self.lose(words..self.certain.len(), 0);
                self.certain.resize(words);
            }
            Event::Release(ref words) => self.lose(words.clone(), RELEASED),
        }
    }

    /// Makes words certain to be `word`, whatever was stored.
    fn lose(&mut self, words: Range<usize>, word: u64) {
        self.persist(words.start / LINE_WORDS..words.end / LINE_WORDS, u64::MAX);
        for number in words {
            set_marked(&mut self.certain, &mut self.certain_hash, number, word);
        }
    }

    fn pend(&mut self, stored: Stored) {
        let line = self.pending.entry(stored.number / LINE_WORDS);
        let spare = &mut self.spare;
        line.or_insert_with(|| spare.pop().unwrap_or_default())
            .push(stored);
    }

    /// Makes the stores to some lines up to `step` certain.
    fn persist(&mut self, lines: Range<usize>, step: u64) {
        let mut emptied = Vec::new();
        for (&line, stored) in self.pending.range_mut(lines) {
            let arrived = stored.partition_point(|stored| stored.step <= step);
            for Stored { number, word, .. } in stored.drain(..arrived) {
                set_marked(&mut self.certain, &mut self.certain_hash, number, word);
            }
            if stored.is_empty() {
                emptied.push(line);
            }
        }
        for line in emptied {
            self.spare.extend(self.pending.remove(&line));
        }
    }

    /// What a crash now may leave.
    pub(super) fn crash_state(&self) -> CrashState {
        let mut pending: Vec<Word> = Vec::new();
        for (line, stored) in &self.pending {
            let numbers = line * LINE_WORDS..(line + 1) * LINE_WORDS;
            for number in numbers {
                let of_word = stored.iter().filter(|stored| stored.number == number);
                let stored: Vec<_> = of_word.map(|stored| (stored.step, stored.word)).collect();
                if !stored.is_empty() {
                    pending.push(Word {
                        number,
                        certain: self.certain.get(number),
                        stored,
                    });
                }
            }
        }
        CrashState {
            step: self.steps,
            certain: self.certain.clone(),
            certain_hash: self.certain_hash,
            pending,
            max_len: self.max_len,
        }
    }
}

/// Sets a word of a memory whose marks add up to `hash`.
pub(super) fn set_marked(words: &mut Pages, hash: &mut u64, number: usize, word: u64) {
    let before = mark(number, words.get(number));
    *hash = hash.wrapping_sub(before).wrapping_add(mark(number, word));
    words.set(number, word);
}
