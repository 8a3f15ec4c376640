//! Persistent memory that exists only in a test: it knows what a crash may take back.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

use parking_lot::{Mutex, MutexGuard};

use super::write_back::LINE;
use super::{Medium, Priority};
use crate::layout::{PAGE, align_up};
use crate::width::to_usize;
use crate::{Domain, Error, Result};

mod crash;
mod pages;
#[cfg(test)]
mod tests;

use crash::Word;
pub use crash::{CrashState, Image};
use pages::Pages;

/// Words of a cache line.
const LINE_WORDS: usize = LINE / 8;

/// Most turns for which an access waits for those of other threads: they may be stopped by something else.
const TURNS: u64 = 4000;

/// After so many of them it looks whether all others wait as well.
const TURNS_PER_LOOK: u64 = 32;

/// A medium in the `Dax` domain, with crashes to order.
///
/// Each word (8 bytes, aligned) has a value that is certain to survive, and the pending ones that
/// have been stored since, which may. A write-back of its line and a fence by the same thread make
/// the value of the moment of the write-back certain. After a crash a word holds its certain value
/// or any pending one, whatever other words of the line hold.
#[derive(Debug)]
pub struct Simulated {
    state: Mutex<SimState>,
    /// Seed of the accesses that give way to other threads; 0 for none.
    unrest: AtomicU64,
    /// Accesses since it was stirred.
    accesses: AtomicU64,
    /// Threads that were to work on it when it was stirred and have not [left](Self::leave).
    present: AtomicUsize,
    /// The accesses that give way just now, by their numbers.
    waiting: Mutex<Vec<u64>>,
}

/// A store that may survive.
#[derive(Debug, Clone, Copy)]
struct Stored {
    step: u64,
    /// Number of the word.
    number: usize,
    word: u64,
}

#[derive(Debug)]
struct SimState {
    /// What loads see.
    words: Pages,
    /// What is certain to survive.
    certain: Pages,
    certain_hash: u64,
    /// What may survive, by the number of the line: what was stored since it was last certain, oldest first.
    /// By lines, since they are written back whole and most have several words stored to.
    pending: BTreeMap<usize, Vec<Stored>>,
    /// Room of lines that are certain, for the next ones.
    spare: Vec<Vec<Stored>>,
    /// Lines that a thread has written back since its last fence, each as of a step.
    written_back: HashMap<ThreadId, Vec<(Range<usize>, u64)>>,
    max_len: u64,
    /// Bytes that were prepared.
    prepared: u64,
    /// Stores of words and fences so far.
    steps: u64,
    /// The state before the first step, and after each one.
    recorded: Option<Vec<CrashState>>,
    /// The step of a fence that does nothing.
    forgotten: Option<u64>,
}

/// What a word adds to the hash of a memory; zeros add nothing, so that growing does not.
fn mark(number: usize, word: u64) -> u64 {
    let mix = word.wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ word >> 29;
    let mix = mix.wrapping_mul((number as u64) << 1 | 1);
    (mix ^ mix >> 32).wrapping_mul(0x94D0_49BB_1331_11EB) ^ mix >> 27
}

impl SimState {
    fn store(&mut self, number: usize, word: u64) {
        self.words.set(number, word);
        self.steps += 1;
        let step = self.steps;
        self.pend(Stored { step, number, word });
        self.note();
    }

    fn pend(&mut self, stored: Stored) {
        let line = self.pending.entry(stored.number / LINE_WORDS);
        let spare = &mut self.spare;
        line.or_insert_with(|| spare.pop().unwrap_or_default())
            .push(stored);
    }

    fn note(&mut self) {
        if self.recorded.is_some() {
            let now = self.crash_state();
            self.recorded.get_or_insert_default().push(now);
        }
    }

    fn crash_state(&self) -> CrashState {
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

    /// Makes the stores to some lines up to `step` certain.
    fn persist(&mut self, lines: Range<usize>, step: u64) {
        let mut emptied = Vec::new();
        for (&line, stored) in self.pending.range_mut(lines) {
            let arrived = stored.partition_point(|stored| stored.step <= step);
            for Stored { number, word, .. } in stored.drain(..arrived) {
                let before = mark(number, self.certain.get(number));
                let hash = self.certain_hash.wrapping_sub(before);
                self.certain_hash = hash.wrapping_add(mark(number, word));
                self.certain.set(number, word);
            }
            if stored.is_empty() {
                emptied.push(line);
            }
        }
        for line in emptied {
            self.spare.extend(self.pending.remove(&line));
        }
    }

    fn full(&self, len: u64) -> Error {
        Error::NoSpace {
            path: PathBuf::from("simulated memory"),
            needed: len - self.words.len() as u64 * 8,
            source: io::Error::from(io::ErrorKind::StorageFull).into(),
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
        Self::holding(Pages::zeroed(to_usize(len.div_ceil(8))), 0, max_len)
    }

    /// Memory that holds `words`, whose marks add up to `hash`.
    fn holding(words: Pages, hash: u64, max_len: u64) -> Self {
        let state = SimState {
            certain: words.clone(),
            certain_hash: hash,
            words,
            max_len,
            pending: BTreeMap::new(),
            spare: Vec::new(),
            written_back: HashMap::new(),
            prepared: 0,
            steps: 0,
            recorded: None,
            forgotten: None,
        };
        Self {
            state: Mutex::new(state),
            unrest: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            present: AtomicUsize::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Memory in which the pending words of `crash` are still pending.
    fn resuming(crash: &CrashState) -> Self {
        let memory = Self::holding(crash.certain.clone(), crash.certain_hash, crash.max_len);
        let mut state = memory.state();
        for word in &crash.pending {
            for &(step, stored) in &word.stored {
                state.pend(Stored {
                    step,
                    number: word.number,
                    word: stored,
                });
            }
            if let Some(&(_, last)) = word.stored.last() {
                state.words.set(word.number, last);
            }
        }
        for stored in state.pending.values_mut() {
            stored.sort_unstable_by_key(|stored| stored.step);
        }
        state.steps = crash.step;
        drop(state);
        memory
    }

    /// Stores of words and fences so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// The memory as a crash now may leave it.
    #[must_use]
    pub fn crash_state(&self) -> CrashState {
        self.state().crash_state()
    }

    /// Begins to record what a crash would leave before and after each step.
    pub fn record(&self) {
        let mut state = self.state();
        state.recorded = Some(Vec::new());
        state.note();
    }

    /// Ends the recording, and gives what was recorded.
    #[must_use]
    pub fn recorded(&self) -> Vec<CrashState> {
        self.state().recorded.take().unwrap_or_default()
    }

    /// Lets the fence that will be step `step` do nothing, as if the program had none there.
    pub fn forget_fence(&self, step: u64) {
        self.state().forgotten = Some(step);
    }

    /// Makes accesses of so many threads give way to others now and then, so that these meet in more ways.
    pub fn stir(&self, seed: u64, threads: usize) {
        self.present.store(threads, Ordering::Relaxed);
        self.unrest.store(seed | 1, Ordering::Relaxed);
    }

    /// One of these threads is at its end.
    pub fn leave(&self) {
        self.present.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits, now and then, for a few accesses of other threads, or many.
    fn give_way(&self) {
        let seed = self.unrest.load(Ordering::Relaxed);
        if seed == 0 {
            return;
        }
        let next = seed.wrapping_mul(0x5851_F42D_4C95_7F2D);
        self.unrest.store(next, Ordering::Relaxed);
        let now = self.accesses.fetch_add(1, Ordering::Relaxed);
        if next >> 61 != 0 {
            return;
        }
        let others = 1 << (next >> 32 & 7);
        self.waiting.lock().push(now);
        for turn in 1..=TURNS {
            let is_enough = self.accesses.load(Ordering::Relaxed) > now + others;
            if is_enough || turn % TURNS_PER_LOOK == 1 && self.is_first_of_all(now) {
                break;
            }
            // On a machine with other work to do, the processor is not soon had back.
            if turn % (TURNS / 8) == 0 {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        self.waiting.lock().retain(|&waiting| waiting != now);
    }

    /// Whether all threads wait, and the access `now` has for the longest time: it would be the first to
    /// give up.
    fn is_first_of_all(&self, now: u64) -> bool {
        let waiting = self.waiting.lock();
        waiting.len() >= self.present.load(Ordering::Relaxed)
            && waiting.iter().all(|&other| other >= now)
    }

    fn state(&self) -> MutexGuard<'_, SimState> {
        // A panic between two stores of a test leaves the memory as a crash would.
        self.state.lock()
    }
}

impl Medium for Simulated {
    fn len(&self) -> u64 {
        self.state().words.len() as u64 * 8
    }

    fn load(&self, at: u64) -> u64 {
        self.give_way();
        let state = self.state();
        state.words.get(state.number(at))
    }

    fn store(&self, at: u64, word: u64) {
        self.give_way();
        let mut state = self.state();
        let number = state.number(at);
        state.store(number, word);
    }

    fn compare_exchange(&self, at: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.give_way();
        let mut state = self.state();
        let number = state.number(at);
        let found = state.words.get(number);
        if found != current {
            return Err(found);
        }
        state.store(number, new);
        Ok(found)
    }

    fn fetch_or(&self, at: u64, bits: u64) -> u64 {
        self.give_way();
        let mut state = self.state();
        let number = state.number(at);
        let found = state.words.get(number);
        state.store(number, found | bits);
        found
    }

    fn read(&self, at: u64, bytes: &mut [u8]) {
        self.give_way();
        self.state().words.read(to_usize(at), bytes);
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (to_usize(at), bytes);
        while !rest.is_empty() {
            self.give_way();
            let mut state = self.state();
            let within = at % 8;
            let (part, behind) = rest.split_at(rest.len().min(8 - within));
            let mut word = state.words.get(at / 8).to_ne_bytes();
            word[within..][..part.len()].copy_from_slice(part);
            state.store(at / 8, u64::from_ne_bytes(word));
            at += part.len();
            rest = behind;
        }
    }

    fn write_back(&self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        self.give_way();
        let mut state = self.state();
        let first = to_usize(at) / LINE;
        let last = to_usize((at + len).div_ceil(LINE as u64));
        let now = state.steps;
        let mine = state.written_back.entry(thread::current().id());
        mine.or_default().push((first..last, now));
    }

    fn fence(&self) {
        self.give_way();
        let mut state = self.state();
        state.steps += 1;
        if state.forgotten == Some(state.steps) {
            state.note();
            return;
        }
        let mine = state.written_back.remove(&thread::current().id());
        for (lines, step) in mine.unwrap_or_default() {
            state.persist(lines, step);
        }
        state.note();
    }

    fn grow(&self, len: u64) -> Result<()> {
        let mut state = self.state();
        let words = to_usize(align_up(len, PAGE)) / 8;
        if len > state.max_len {
            return Err(state.full(len));
        }
        if words > state.words.len() {
            state.words.resize(words);
            state.certain.resize(words);
        }
        Ok(())
    }

    fn prepare(&self, len: u64, _: Priority) -> Result<()> {
        let mut state = self.state();
        if len > state.max_len {
            return Err(state.full(len));
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

    fn capture(&self) -> Result<()> {
        Ok(())
    }

    fn complete(&self) -> Result<()> {
        Ok(())
    }

    fn domain(&self) -> Domain {
        Domain::Dax
    }
}
