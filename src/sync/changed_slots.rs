//! Notes of slots that have changed, a bit for each. The table says which it notes, and what for.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use gphash_layout::DIRECTORY;
use gphash_layout::width::to_usize;

/// Bits of a word of notes.
const WORD_BITS: u64 = u64::BITS as u64;

/// Words of words of a part: of 65,536 slots.
const PART_WORDS: usize = 16;

/// The notes of all levels of a table.
pub struct ChangedSlots {
    is_watched: AtomicBool,
    /// Not in the table itself, which models have on short stacks.
    levels: Box<[OnceLock<Notes>]>,
}

/// The notes of a level.
pub struct Notes {
    /// A bit for each slot.
    slots: Box<[AtomicU64]>,
    /// A bit for each word of these that has some, or will have.
    words: Box<[AtomicU64]>,
}

impl Notes {
    fn of_slots(slots: u64) -> Self {
        let none = |bits: u64| {
            let words = 0..bits.div_ceil(WORD_BITS);
            words.map(|_| AtomicU64::new(0)).collect::<Box<[_]>>()
        };
        Self {
            slots: none(slots),
            words: none(slots.div_ceil(WORD_BITS)),
        }
    }

    /// Notes a slot, unless it is noted.
    #[inline]
    pub fn note(&self, slot: u64) {
        set(&self.slots, slot);
        // Also where another has noted the slot, who may not have come to this.
        set(&self.words, slot / WORD_BITS);
    }

    /// All of them, in parts which threads may take side by side.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let len = self.words.len();
        let firsts = (0..len).step_by(PART_WORDS);
        firsts.map(move |first| first..len.min(first + PART_WORDS))
    }

    /// Takes the notes of a part, and gives `visit` each slot.
    pub fn take(&self, words: Range<usize>, mut visit: impl FnMut(u64)) {
        take(&self.words, words, |word| {
            let word = to_usize(word);
            take(&self.slots, word..word + 1, &mut visit);
        });
    }
}

/// Sets a bit of some words.
fn set(words: &[AtomicU64], number: u64) {
    let word = &words[to_usize(number / WORD_BITS)];
    let bit = 1 << (number % WORD_BITS);
    if word.load(Ordering::SeqCst) & bit == 0 {
        word.fetch_or(bit, Ordering::SeqCst);
    }
}

/// Clears the bits of a range of words, and gives `visit` the number of each.
fn take(words: &[AtomicU64], range: Range<usize>, mut visit: impl FnMut(u64)) {
    for nth in range {
        if words[nth].load(Ordering::Relaxed) == 0 {
            continue;
        }
        let mut bits = words[nth].swap(0, Ordering::SeqCst);
        // What is read of the slots from here on has what was stored before a note.
        fence(Ordering::SeqCst);
        while bits != 0 {
            visit(nth as u64 * WORD_BITS + u64::from(bits.trailing_zeros()));
            bits &= bits - 1;
        }
    }
}

impl Default for ChangedSlots {
    fn default() -> Self {
        Self {
            is_watched: AtomicBool::new(false),
            levels: (0..DIRECTORY).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl ChangedSlots {
    /// Whether changes are to be noted. To be asked after a pin.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    /// Has changes noted, or no longer so.
    pub fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// The notes of a level of so many slots.
    #[inline]
    pub fn level(&self, level: u32, slots: u64) -> &Notes {
        self.levels[level as usize].get_or_init(|| Notes::of_slots(slots))
    }
}
