//! Persistent memory that exists only in a test: it knows what a crash may take back.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

use parking_lot::{Mutex, MutexGuard};

use super::{Medium, Priority};
use crate::layout::{PAGE, align_up};
use crate::pool::write_back::LINE;
use crate::width::to_usize;
use crate::{Domain, Error, Result};

mod crash;
mod durable;
mod pages;
mod recording;
#[cfg(test)]
mod tests;

pub use crash::{CrashState, Image};
use durable::{Durable, Event, RELEASED, set_marked};
use pages::Pages;
pub use recording::Recording;

/// Words of a cache line.
const LINE_WORDS: usize = LINE / 8;

/// Events that are kept while nobody records.
const EVENTS_MAX: usize = 1 << 16;

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

#[derive(Debug)]
struct SimState {
    /// What loads see.
    words: Pages,
    /// Sum of the marks of these words.
    hash: u64,
    /// What has happened since a state in which it is known what a crash may leave. That is found out when it is
    /// asked for: most memories are never asked.
    recording: Recording,
    /// Whether the states since then will be asked for.
    is_recording: bool,
    /// Lines that a thread has written back since its last fence, each as of a step.
    written_back: HashMap<ThreadId, Vec<(Range<usize>, u64)>>,
    max_len: u64,
    /// Bytes that were prepared.
    prepared: u64,
    /// The step of a fence that does nothing.
    forgotten: Option<u64>,
}

impl SimState {
    fn store(&mut self, number: usize, word: u64) {
        set_marked(&mut self.words, &mut self.hash, number, word);
        self.happen(Event::Store { number, word });
    }

    /// Lets a crash know of an event.
    fn happen(&mut self, event: Event) {
        self.recording.add(event);
        if !self.is_recording && self.recording.events() >= EVENTS_MAX {
            self.recording.conclude();
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
            recording: Recording::new(Durable::new(words.clone(), hash, max_len)),
            is_recording: false,
            words,
            hash,
            max_len,
            written_back: HashMap::new(),
            prepared: 0,
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
            if let Some(&(_, last)) = word.stored.last() {
                let SimState { words, hash, .. } = &mut *state;
                set_marked(words, hash, word.number, last);
            }
        }
        state.recording.resume(crash);
        drop(state);
        memory
    }

    /// Stores of words and fences so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().recording.steps()
    }

    /// The memory as a crash now may leave it.
    #[must_use]
    pub fn crash_state(&self) -> CrashState {
        let state = self.state();
        state.recording.last()
    }

    /// The memory after the death of the process now, which takes nothing back: what is pending need not be found out.
    #[must_use]
    pub fn process_crash(&self) -> Self {
        let state = self.state();
        Self::after_crash(state.words.clone(), state.hash, state.max_len)
    }

    /// Begins to record what a crash would leave before and after each step.
    pub fn record(&self) {
        let mut state = self.state();
        state.recording.conclude();
        state.is_recording = true;
    }

    /// Ends the recording, and gives what was recorded.
    #[must_use]
    pub fn recorded(&self) -> Recording {
        let mut state = self.state();
        state.is_recording = false;
        let recording = state.recording.clone();
        state.recording.conclude();
        recording
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
        let now = state.recording.steps();
        let mine = state.written_back.entry(thread::current().id());
        mine.or_default().push((first..last, now));
    }

    fn fence(&self) {
        self.give_way();
        let mut state = self.state();
        let is_forgotten = state.forgotten == Some(state.recording.steps() + 1);
        let arrived = match is_forgotten {
            true => None,
            false => state.written_back.remove(&thread::current().id()),
        };
        state.happen(Event::Fence(arrived.unwrap_or_default()));
    }

    fn grow(&self, len: u64) -> Result<()> {
        let mut state = self.state();
        let words = to_usize(align_up(len, PAGE)) / 8;
        if len > state.max_len {
            return Err(state.full(len));
        }
        if words > state.words.len() {
            state.words.resize(words);
            state.happen(Event::Grow(words));
        }
        Ok(())
    }

    fn prepare(&self, len: u64, _: Priority) -> Result<()> {
        let mut state = self.state();
        let most = len.min(state.max_len);
        state.prepared = state.prepared.max(align_up(most, PAGE));
        drop(state);
        self.check_room(len)
    }

    fn check_room(&self, len: u64) -> Result<()> {
        let state = self.state();
        match len > state.max_len {
            true => Err(state.full(len)),
            false => Ok(()),
        }
    }

    fn prepared(&self) -> u64 {
        let state = self.state();
        state.prepared.max(state.words.len() as u64 * 8)
    }

    fn trim(&self) {
        self.state().prepared = 0;
    }

    fn release(&self, at: u64, len: u64) -> bool {
        let mut state = self.state();
        let released = to_usize(at / 8)..to_usize((at + len) / 8);
        let SimState { words, hash, .. } = &mut *state;
        for number in released.clone() {
            set_marked(words, hash, number, RELEASED);
        }
        state.happen(Event::Release(released));
        true
    }

    fn cut(&self, len: u64) {
        let mut state = self.state();
        let left = to_usize(len / 8);
        if left < state.words.len() {
            let SimState { words, hash, .. } = &mut *state;
            for number in left..words.len() {
                set_marked(words, hash, number, 0);
            }
            words.resize(left);
            state.happen(Event::Cut(left));
        }
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
