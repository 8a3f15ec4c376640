//! Persistent memory that exists only in a test: it knows what a crash may take back.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::{Rng, RngExt};

use super::Medium;
use super::flush::LINE;
use super::journal::HEAD;
use crate::layout::{PAGE, Superblock, align_up};
use crate::{Domain, Error, Result};

/// A medium in the `Dax` domain, with crashes to order.
///
/// Each word (8 bytes, aligned) has a value that is certain to survive, and the pending ones that
/// have been stored since, which may. A write-back of its line and a fence make the value of
/// the moment of the write-back certain. After a crash a word holds its certain value or any
/// pending one, whatever other words of the line hold.
///
/// Any thread may use it, but a fence here speaks for all threads, so crash images mean something
/// only for what one thread has done.
#[derive(Debug)]
pub struct Simulated {
    state: Mutex<State>,
    max_len: u64,
}

#[derive(Debug)]
struct State {
    /// What loads see.
    words: Vec<u64>,
    /// What is certain to survive.
    certain: Vec<u64>,
    /// What may survive, by the number of the word.
    pending: BTreeMap<usize, Pending>,
    /// Bytes that were prepared.
    prepared: u64,
    /// Stores of words and fences so far.
    steps: u64,
    stop_at: Option<u64>,
}

/// The values of one word since it was last certain, oldest first.
#[derive(Debug, Default)]
struct Pending {
    values: Vec<u64>,
    /// How many of them had been stored when the line was last written back.
    written_back: usize,
}

impl State {
    fn is_stopped(&self) -> bool {
        self.stop_at.is_some_and(|stop| self.steps >= stop)
    }

    /// Counts a step and tells whether it still reaches the memory.
    fn step(&mut self) -> bool {
        let happens = !self.is_stopped();
        self.steps += u64::from(happens);
        happens
    }

    fn store(&mut self, number: usize, word: u64) {
        self.words[number] = word;
        if self.step() {
            self.pending.entry(number).or_default().values.push(word);
        }
    }

    fn number(&self, at: u64) -> usize {
        assert!(
            at.is_multiple_of(8) && at / 8 < self.words.len() as u64,
            "word at {at} of {} bytes",
            self.words.len() * 8
        );
        (at / 8) as usize
    }
}

impl Simulated {
    /// Memory of `len` zero bytes, rounded up to whole pages, that can grow to `max_len`.
    #[must_use]
    pub fn new(len: u64, max_len: u64) -> Self {
        Self::holding(vec![0; align_up(len, PAGE) as usize / 8], max_len)
    }

    fn holding(words: Vec<u64>, max_len: u64) -> Self {
        let state = State {
            certain: words.clone(),
            words,
            pending: BTreeMap::new(),
            prepared: 0,
            steps: 0,
            stop_at: None,
        };
        Self {
            state: Mutex::new(state),
            max_len,
        }
    }

    /// Stores of words and fences that have reached the memory.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Lets the process die after `steps` more stores and fences: what it stores then, only it
    /// sees, so that it can run on to some end.
    pub fn stop_after(&self, steps: u64) {
        let mut state = self.state();
        state.stop_at = Some(state.steps + steps);
    }

    /// Whether the process has died.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped()
    }

    /// The memory after a power cut now, or when the process died: each word that is not
    /// certain holds one of the values that it may.
    #[must_use]
    pub fn crash_image(&self, rng: &mut impl Rng) -> Self {
        self.image(|values| match rng.random_range(0..=values.len()) {
            0 => None,
            nth => Some(values[nth - 1]),
        })
    }

    /// The memory after the death of the process alone, now or when it died: all stores stand.
    #[must_use]
    pub fn process_crash_image(&self) -> Self {
        self.image(|values| values.last().copied())
    }

    /// Contents, with the pending words as `choose` has them, and as long as the superblock
    /// says: an opening takes no more into reach.
    fn image(&self, mut choose: impl FnMut(&[u64]) -> Option<u64>) -> Self {
        let state = self.state();
        let mut words = state.certain.clone();
        for (&number, pending) in &state.pending {
            if let Some(word) = choose(&pending.values) {
                words[number] = word;
            }
        }
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let head = &bytes[..bytes.len().min(HEAD)];
        if let Ok(superblock) = Superblock::parse(head, bytes.len() as u64, &PathBuf::new()) {
            words.truncate(superblock.file_len as usize / 8);
        }
        Self::holding(words, self.max_len)
    }

    fn full(&self, state: &State, len: u64) -> Error {
        Error::NoSpace {
            path: PathBuf::from("simulated memory"),
            needed: len - state.words.len() as u64 * 8,
            source: io::ErrorKind::StorageFull.into(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic between two stores of a test leaves the memory as a crash would.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for Simulated {
    fn len(&self) -> u64 {
        self.state().words.len() as u64 * 8
    }

    fn load(&self, at: u64) -> u64 {
        let state = self.state();
        state.words[state.number(at)]
    }

    fn store(&self, at: u64, word: u64) {
        let mut state = self.state();
        let number = state.number(at);
        state.store(number, word);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        let mut state = self.state();
        let number = state.number(at);
        let found = state.words[number];
        if found != current {
            return Err(found);
        }
        state.store(number, new);
        Ok(found)
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        let mut state = self.state();
        let number = state.number(at);
        let found = state.words[number];
        state.store(number, found | bits);
        found
    }

    fn read(&self, at: u64, bytes: &mut [u8]) {
        let state = self.state();
        let from = &bytemuck::cast_slice::<_, u8>(&state.words)[at as usize..][..bytes.len()];
        bytes.copy_from_slice(from);
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let mut state = self.state();
        let (mut at, mut rest) = (at as usize, bytes);
        while !rest.is_empty() {
            let within = at % 8;
            let (part, behind) = rest.split_at(rest.len().min(8 - within));
            let mut word = state.words[at / 8].to_ne_bytes();
            word[within..][..part.len()].copy_from_slice(part);
            state.store(at / 8, u64::from_ne_bytes(word));
            at += part.len();
            rest = behind;
        }
    }

    fn write_back(&self, at: u64, len: u64) {
        let mut state = self.state();
        if len == 0 || state.is_stopped() {
            return;
        }
        let line = LINE as u64;
        let first = at / line * line / 8;
        let last = align_up(at + len, line) / 8;
        for (_, pending) in state.pending.range_mut(first as usize..last as usize) {
            pending.written_back = pending.values.len();
        }
    }

    fn fence(&self) {
        let mut state = self.state();
        if !state.step() {
            return;
        }
        let State {
            certain, pending, ..
        } = &mut *state;
        pending.retain(|&number, pending| {
            if pending.written_back > 0 {
                certain[number] = pending.values[pending.written_back - 1];
                pending.values.drain(..pending.written_back);
                pending.written_back = 0;
            }
            !pending.values.is_empty()
        });
    }

    fn grow(&self, len: u64) -> Result<()> {
        let mut state = self.state();
        let words = align_up(len, PAGE) as usize / 8;
        if len > self.max_len {
            return Err(self.full(&state, len));
        }
        if words > state.words.len() {
            state.words.resize(words, 0);
            state.certain.resize(words, 0);
        }
        Ok(())
    }

    fn prepare(&self, len: u64) -> Result<()> {
        let mut state = self.state();
        if len > self.max_len {
            return Err(self.full(&state, len));
        }
        state.prepared = state.prepared.max(align_up(len, PAGE));
        Ok(())
    }

    fn prepared(&self) -> u64 {
        let state = self.state();
        state.prepared.max(state.words.len() as u64 * 8)
    }

    fn trim(&self) {
        self.state().prepared = 0;
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    fn domain(&self) -> Domain {
        Domain::Dax
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    /// The values that the words at 0, 8 and 64 have in many crash images.
    fn outcomes(memory: &Simulated) -> std::collections::BTreeSet<[u64; 3]> {
        let mut rng = SmallRng::seed_from_u64(1);
        (0..1000)
            .map(|_| memory.crash_image(&mut rng))
            .map(|image| [0, 8, 64].map(|at| image.load(at)))
            .collect()
    }

    #[test]
    fn an_unfenced_word_has_any_of_its_values() {
        let memory = Simulated::new(1, 1 << 20);
        memory.store(0, 1);
        memory.write_back(0, 8);
        memory.store(0, 2);
        memory.write(8, &3u64.to_ne_bytes());
        assert_eq!(outcomes(&memory).len(), 3 * 2);
        memory.fence();
        assert_eq!(memory.load(0), 2);
        let fenced = outcomes(&memory);
        assert_eq!(fenced, [[1, 0, 0], [1, 3, 0], [2, 0, 0], [2, 3, 0]].into());
        memory.write_back(8, 1);
        memory.fence();
        assert_eq!(outcomes(&memory), [[2, 3, 0]].into());
    }

    #[test]
    fn nothing_reaches_the_memory_of_a_dead_process() {
        let memory = Simulated::new(1, 1 << 20);
        memory.store(64, 5);
        memory.write_back(64, 8);
        memory.stop_after(2);
        memory.fence();
        assert!(!memory.is_stopped());
        memory.write(0, &[1; 16]);
        assert!(memory.is_stopped());
        memory.write_back(0, 16);
        memory.fence();
        let first = u64::from_ne_bytes([1; 8]);
        assert_eq!(memory.load(8), first);
        assert_eq!(outcomes(&memory), [[0, 0, 5], [first, 0, 5]].into());
        let image = memory.process_crash_image();
        assert_eq!([0, 8, 64].map(|at| image.load(at)), [first, 0, 5]);
        assert_eq!(memory.steps(), 3);
    }

    #[test]
    fn it_grows_to_its_limit() {
        let memory = Simulated::new(1, 3 * PAGE);
        memory.grow(3 * PAGE).unwrap();
        memory.store(3 * PAGE - 8, 1);
        let full = memory.grow(3 * PAGE + 1);
        assert!(matches!(full, Err(Error::NoSpace { needed: 1, .. })));
        assert_eq!(memory.len(), 3 * PAGE);
    }
}
