//! Tags: one byte of hash for each slot, in volatile memory, so that an operation touches only
//! the buckets of the file that hold its key or take it.
//!
//! A byte says what is in its slot: nothing, something without a key yet, or an item with that tag.
//! It is also the claim of the slot. The thread that brings it from [`EMPTY`] to [`TAKEN`] owns the
//! slot and may store into it. Once the byte is [`EMPTY`] again, nothing of that owner is stored
//! there any more. So the file needs no claims.
//!
//! A word of zero is not known yet: opening a file reads no slot, and the first who comes to the
//! bucket reads its states. Nobody changes a state in a bucket whose tags are not known, so a late
//! reader finds the word known, and drops what it has read.
//!
//! The CUDA engine changes the file without them, so they are forgotten when it takes a table over.
//!
//! All accesses are sequentially consistent: of two insertions of one key that show their tags and
//! then look for each other's, at least one finds the other.

use std::io;
use std::sync::OnceLock;

#[cfg(not(loom))]
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

use gphash_layout::width::{low_byte, low_half, to_usize};
use gphash_layout::{DIRECTORY, KeyHash, Shape};
use gphash_pool::prefetch;

use crate::{AtomicU64, Ordering};

/// Byte of a slot that holds nothing.
const EMPTY: u8 = 1;

/// Byte of a slot that someone is filling, and of the bytes of a word that are no slots.
const TAKEN: u8 = 2;

/// Lowest byte that is a tag.
const FIRST: u8 = 3;

/// Slots that a word has bytes for.
const SLOTS: u32 = 8;

/// How the first tags of a level are stored: whoever comes to them has seen its publication.
#[cfg(not(loom))]
const INITIAL: Ordering = Ordering::Relaxed;
/// loom lets a sequentially consistent load go back to any store that is not.
#[cfg(loom)]
const INITIAL: Ordering = Ordering::SeqCst;

/// A word with 1 in every byte.
const ONES: u64 = u64::MAX / 255;

/// Words from which on a level's tags have pages of their own.
#[cfg(not(loom))]
const LARGE_WORDS_MIN: usize = 1 << 13;

/// The byte that stands for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(u8);

impl Tag {
    /// The tag of a hash: its lowest byte, which no level is high enough to address buckets by.
    #[inline]
    pub fn of(hash: KeyHash) -> Self {
        Self(low_byte(hash.0).max(FIRST))
    }
}

/// The tags of one bucket's next eight slots, or fewer.
#[derive(Clone, Copy)]
pub struct TagWord<'t>(&'t AtomicU64);

impl<'t> TagWord<'t> {
    /// A word by itself.
    #[cfg(all(test, not(loom)))]
    pub fn new(word: &'t AtomicU64) -> Self {
        Self(word)
    }

    /// What is in the slots, if it is known.
    #[inline]
    pub fn load(self) -> Option<Tags8> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            word => Some(Tags8(word)),
        }
    }

    /// Makes known what is in the slots, unless someone else did; gives what is there now.
    #[inline]
    pub fn fill(self, tags: Tags8) -> Tags8 {
        match self
            .0
            .compare_exchange(0, tags.0, Ordering::SeqCst, Ordering::SeqCst)
        {
            Ok(_) => tags,
            Err(known) => Tags8(known),
        }
    }

    /// Takes a slot, if it is still empty. The tags must be known.
    #[inline]
    pub fn take(self, slot: u32) -> bool {
        let mut word = self.0.load(Ordering::SeqCst);
        while byte(word, slot) == EMPTY {
            let taken = word ^ at(EMPTY ^ TAKEN, slot);
            match self
                .0
                .compare_exchange(word, taken, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
        false
    }

    /// Shows what the caller has stored into a slot that it has taken.
    #[inline]
    pub fn show(self, slot: u32, tag: Tag) {
        self.0.fetch_xor(at(TAKEN ^ tag.0, slot), Ordering::SeqCst);
    }

    /// Gives back a slot that is the caller's.
    #[inline]
    pub fn release(self, slot: u32) {
        // Nobody else changes this byte.
        let mine = byte(self.0.load(Ordering::SeqCst), slot);
        self.0.fetch_xor(at(mine ^ EMPTY, slot), Ordering::SeqCst);
    }

    /// Prefetches the word.
    #[inline]
    pub fn prefetch(self) {
        prefetch::line(self.0);
    }
}

/// The tags of eight slots at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tags8(u64);

impl Tags8 {
    /// The tags of slots with these contents, at most eight; `None` is an empty one.
    pub fn of(slots: impl Iterator<Item = Option<Tag>>) -> Self {
        let bytes = slots
            .map(|tag| tag.map_or(EMPTY, |tag| tag.0))
            .chain(std::iter::repeat(TAKEN));
        Self(
            (0..SLOTS)
                .zip(bytes)
                .fold(0, |word, (slot, byte)| word | at(byte, slot)),
        )
    }

    /// Which slots have this tag: bit *i* for slot *i*.
    #[inline]
    pub fn match_mask(self, tag: Tag) -> u32 {
        self.equal(tag.0)
    }

    /// Which slots are empty: bit *i* for slot *i*.
    #[inline]
    pub fn empty(self) -> u32 {
        self.equal(EMPTY)
    }

    #[inline]
    fn equal(self, byte: u8) -> u32 {
        const LOW: u64 = ONES * 0x7F;
        let differing = self.0 ^ (ONES * u64::from(byte));
        // The highest bit of each byte that is zero, and of no other.
        let zero = !(((differing & LOW) + LOW) | differing | LOW);
        // The product brings bit 8 i + 7 to bit 56 + i.
        low_half((zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56)
    }
}

impl std::fmt::Debug for Tags8 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x?}", self.0.to_le_bytes())
    }
}

#[inline]
fn byte(word: u64, slot: u32) -> u8 {
    low_byte(word >> (8 * slot))
}

#[inline]
fn at(byte: u8, slot: u32) -> u64 {
    u64::from(byte) << (8 * slot)
}

/// The tags of one bucket; of a bucket without any, a reserved one, no words.
#[derive(Clone, Copy)]
pub struct BucketTags<'t>(&'t [AtomicU64]);

impl<'t> BucketTags<'t> {
    /// Of a bucket that has none.
    pub const NONE: Self = Self(&[]);

    /// Whether the bucket has none.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0.is_empty()
    }

    /// All words, each with its first slot.
    #[inline]
    pub fn words(self) -> impl Iterator<Item = (u32, TagWord<'t>)> {
        (0..)
            .step_by(SLOTS as usize)
            .zip(self.0.iter().map(TagWord))
    }

    /// The word of a slot and the slot's number in it, if the bucket has tags.
    #[inline]
    pub fn slot(self, slot: u32) -> Option<(TagWord<'t>, u32)> {
        let word = self.0.get((slot / SLOTS) as usize)?;
        Some((TagWord(word), slot % SLOTS))
    }

    /// Prefetches the first word.
    #[inline]
    pub fn prefetch(self) {
        if let Some(word) = self.0.first() {
            TagWord(word).prefetch();
        }
    }

    /// The one word of a bucket that has one.
    #[inline]
    pub fn only(self) -> Option<TagWord<'t>> {
        match self.0 {
            [word] => Some(TagWord(word)),
            _ => None,
        }
    }
}

/// The tags of all live levels, and of those that have been left.
pub struct Tags {
    /// Words of a bucket.
    words: usize,
    slots: u32,
    levels: [OnceLock<LevelTags>; DIRECTORY],
}

impl Tags {
    /// Tags for no levels.
    pub fn new(shape: &Shape) -> Self {
        Self {
            words: shape.slots.div_ceil(SLOTS) as usize,
            slots: shape.slots,
            levels: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Adds the tags of a level of an existing file. Nothing is known of them.
    ///
    /// # Errors
    /// What the operating system answers when there is no memory.
    pub fn add(&self, level: u32) -> io::Result<()> {
        self.add_with(level, |_| ())
    }

    /// Adds the tags of a level that is empty, unless they are there.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_empty(&self, level: u32) -> io::Result<()> {
        self.add_with(level, |words| {
            let mut slots = (0..self.slots).map(|_| None);
            let bucket: Vec<Tags8> = (0..self.words)
                .map(|_| Tags8::of(slots.by_ref().take(SLOTS as usize)))
                .collect();
            for (word, tags) in words.iter().zip(bucket.iter().cycle()) {
                word.store(tags.0, INITIAL);
            }
        })
    }

    fn add_with(&self, level: u32, init: impl FnOnce(&[AtomicU64])) -> io::Result<()> {
        let cell = &self.levels[level as usize];
        if cell.get().is_none() {
            let tags = LevelTags::new(self.words << level)?;
            init(tags.words());
            let _ = cell.set(tags);
        }
        Ok(())
    }

    /// Forgets all tags, and gives back their memory. Nobody may be asking them.
    pub fn forget(&self) {
        self.levels
            .iter()
            .filter_map(OnceLock::get)
            .for_each(LevelTags::forget);
    }

    /// Forgets the tags of a level that nobody asks any more, and gives back their memory.
    pub fn forget_level(&self, level: u32) {
        if let Some(tags) = self.levels[level as usize].get() {
            tags.forget();
        }
    }

    /// The tags of a level, which has been added.
    #[inline]
    pub fn level(&self, level: u32) -> TagsOfLevel<'_> {
        TagsOfLevel {
            tags: self.levels[level as usize]
                .get()
                .map_or(&[], LevelTags::words),
            words: self.words,
        }
    }
}

/// The tags of one level.
#[derive(Clone, Copy)]
pub struct TagsOfLevel<'t> {
    tags: &'t [AtomicU64],
    words: usize,
}

impl<'t> TagsOfLevel<'t> {
    /// Those of a bucket.
    #[inline]
    pub fn bucket(self, index: u64) -> BucketTags<'t> {
        BucketTags(&self.tags[to_usize(index) * self.words..][..self.words])
    }
}

/// Zeroed words. Those of a large level cost memory only where they have been stored to; for a small one
/// the system is not asked, which would interrupt all other threads when it takes its pages back.
#[cfg(not(loom))]
enum LevelTags {
    Small(Box<[AtomicU64]>),
    Large { memory: MmapRaw, words: usize },
}

#[cfg(not(loom))]
impl LevelTags {
    fn new(words: usize) -> io::Result<Self> {
        if words < LARGE_WORDS_MIN {
            return Ok(Self::Small((0..words).map(|_| AtomicU64::new(0)).collect()));
        }
        let memory = MmapOptions::new().len(words * 8).map_anon()?;
        // Small pages do as well, so nothing is said of failure.
        let _ = memory.advise(Advice::HugePage);
        Ok(Self::Large {
            memory: MmapRaw::from(memory),
            words,
        })
    }

    /// Makes all words zero again.
    fn forget(&self) {
        let is_forgotten = match self {
            Self::Small(_) => false,
            Self::Large { memory, .. } => {
                // SAFETY: the pages are private and anonymous, so they become zeros, and zero is a word
                // that any reader may meet: one that is not known.
                unsafe { memory.unchecked_advise(UncheckedAdvice::DontNeed) }.is_ok()
            }
        };
        if !is_forgotten {
            for word in self.words() {
                word.store(0, Ordering::SeqCst);
            }
        }
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Small(words) => words,
            // SAFETY: the mapping is page aligned, zeroed, long enough, lives as long as `self`, and is
            // only ever reached through these atomic words.
            Self::Large { memory, words } => unsafe {
                std::slice::from_raw_parts(memory.as_ptr().cast(), *words)
            },
        }
    }
}

/// Words of loom, which are no plain memory.
#[cfg(loom)]
struct LevelTags(Box<[AtomicU64]>);

#[cfg(loom)]
impl LevelTags {
    fn new(words: usize) -> io::Result<Self> {
        Ok(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    fn forget(&self) {
        for word in self.words() {
            word.store(0, Ordering::SeqCst);
        }
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
