//! A bucket of the cache: entries of any length up to a bound, read without a lock.
//!
//! The version is odd while somebody holds the bucket to change it. A reader copies what it wants, and then takes it
//! only if the version is even and still the same (a seqlock). Readers write nothing, but for the bit that an entry
//! was used, and that only once.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;

use super::Value;
use super::descriptor::{Descriptor, words};

/// Entries of a bucket, at most: version, blockers, used bits and descriptors are two lines.
const ENTRIES: usize = 13;

/// Words of keys and values of a bucket: with the two lines they are 2 KiB.
const DATA_WORDS: usize = 240;

/// Words of an entry, at most: half of a bucket.
const ENTRY_WORDS_MAX: usize = DATA_WORDS / 2;

/// How often somebody who waits for a bucket checks it before it lets other threads run.
const SPINS_MAX: u32 = 64;

/// See the [module](self).
#[repr(C, align(128))]
pub struct Bucket {
    version: AtomicU64,
    /// Changes that have blocked a key here.
    blockers: AtomicU64,
    /// A bit for each entry that was used since it was looked for a victim last.
    used: AtomicU64,
    descriptors: [AtomicU64; ENTRIES],
    data: [AtomicU64; DATA_WORDS],
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            version: AtomicU64::new(0),
            blockers: AtomicU64::new(0),
            used: AtomicU64::new(0),
            descriptors: [const { AtomicU64::new(0) }; ENTRIES],
            data: [const { AtomicU64::new(0) }; DATA_WORDS],
        }
    }
}

/// What a bucket says of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The value, or that it has none.
    Hit(Value),
    /// The bucket does not have the key.
    Miss(Missed),
    /// The bucket was being changed.
    Busy,
}

/// A bucket without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    version: u64,
    /// It has fewer entries than it may have.
    pub has_room: bool,
}

/// A key and its value, which are short enough for an entry.
#[derive(Debug, Clone, Copy)]
pub struct Item<'e> {
    key: &'e [u8],
    value: Option<&'e [u8]>,
}

impl<'e> Item<'e> {
    /// `None` if they are too long.
    #[inline]
    pub fn of(key: &'e [u8], value: Option<&'e [u8]>) -> Option<Self> {
        let item = Self { key, value };
        let is_short = |len: usize| len <= 8 * ENTRY_WORDS_MAX;
        let is_entry = is_short(key.len()) && is_short(value.map_or(0, <[u8]>::len));
        (is_entry && item.words() <= ENTRY_WORDS_MAX as u64).then_some(item)
    }

    /// Words of data that it takes.
    pub fn words(&self) -> u64 {
        words(self.key.len() as u64) + words(self.value.map_or(0, <[u8]>::len) as u64)
    }
}

impl Bucket {
    /// Bytes that one takes.
    pub const BYTES: u64 = size_of::<Self>() as u64;

    /// Entries that one has, at most.
    pub const ENTRIES: usize = ENTRIES;

    /// Words for the keys and values of one.
    pub const DATA_WORDS: u64 = DATA_WORDS as u64;

    /// The value of a key.
    #[inline]
    pub fn get(&self, tag: u32, key: &[u8]) -> Lookup {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 {
            return Lookup::Busy;
        }
        let found = self.find(tag, key);
        let value = found.map(|(nth, descriptor)| (nth, self.value(descriptor)));
        let has_room = value.is_none() && self.free_descriptor().is_some();
        // Either what was read is of this version, or another one is seen here.
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) != version {
            return Lookup::Busy;
        }
        match value {
            Some((nth, value)) => {
                self.note_use(nth);
                Lookup::Hit(value)
            }
            None => Lookup::Miss(Missed { version, has_room }),
        }
    }

    #[inline]
    fn find(&self, tag: u32, key: &[u8]) -> Option<(usize, Descriptor)> {
        let of_key = Descriptor::of_key(tag, key.len());
        let descriptors = self.descriptors.iter().enumerate();
        let mut candidates = descriptors
            .map(|(nth, word)| (nth, Descriptor(word.load(Ordering::Relaxed))))
            .filter(|(_, descriptor)| descriptor.may_be_of(of_key));
        candidates.find(|(_, descriptor)| self.has_key(*descriptor, key))
    }

    #[inline]
    fn has_key(&self, descriptor: Descriptor, key: &[u8]) -> bool {
        let words = &self.data[descriptor.offset()..descriptor.value_offset()];
        let mut pairs = key.chunks(8).zip(words);
        pairs.all(|(bytes, word)| word.load(Ordering::Relaxed) == to_word(bytes))
    }

    #[inline]
    fn value(&self, descriptor: Descriptor) -> Value {
        if descriptor.is_tombstone() {
            return None;
        }
        let words = &self.data[descriptor.value_offset()..descriptor.end()];
        let mut value = Vec::with_capacity(8 * words.len());
        for word in words {
            value.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        value.truncate(descriptor.value_len());
        Some(value)
    }

    fn free_descriptor(&self) -> Option<usize> {
        let is_free = |word: &AtomicU64| !Descriptor(word.load(Ordering::Relaxed)).is_live();
        self.descriptors.iter().position(is_free)
    }

    #[inline]
    fn note_use(&self, nth: usize) {
        let bit = 1 << nth;
        if self.used.load(Ordering::Relaxed) & bit == 0 {
            self.used.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Adds an entry, if nothing has changed since a lookup has missed it, no change is under way, and its bin `is_hot`
    /// still. Whether it may take the room of others is said, too.
    pub fn fill(
        &self,
        Missed { version, .. }: Missed,
        (tag, item): (u32, Item),
        may_evict: bool,
        is_hot: impl FnOnce() -> bool,
    ) {
        let Some(held) = self.try_hold(version) else {
            return;
        };
        if self.blockers.load(Ordering::Relaxed) == 0 && is_hot() {
            held.insert((tag, item), 0, false, may_evict);
        }
    }

    /// Removes the entry of a key, and refuses fills until it is [unblocked](Self::unblock). Gives the offset of the one
    /// that was there.
    ///
    /// Keys are not compared, which would wait for memory: one of the same tag and length goes, too.
    pub fn block(&self, tag: u32, key: &[u8]) -> Option<usize> {
        let held = self.hold();
        let blockers = self.blockers.load(Ordering::Relaxed);
        self.blockers.store(blockers + 1, Ordering::Relaxed);
        let of_key = Descriptor::of_key(tag, key.len());
        let mut offset = None;
        for (nth, descriptor) in self.live().filter(|(_, live)| live.may_be_of(of_key)) {
            held.remove(nth);
            offset = Some(descriptor.offset());
        }
        offset
    }

    /// Ends what [`block`](Self::block) has begun. If the bin `is_hot` still, the key gets an entry, if there is one for
    /// it, at this offset if it fits there.
    pub fn unblock(&self, tag: u32, item: Option<(Item, usize)>, is_hot: impl FnOnce() -> bool) {
        let held = self.hold();
        let blockers = self.blockers.load(Ordering::Relaxed);
        self.blockers.store(blockers - 1, Ordering::Relaxed);
        if let Some((item, offset)) = item
            && is_hot()
        {
            held.insert((tag, item), offset, true, true);
        }
    }

    /// Removes the entries of bins that are no longer hot. What was looked up before is not filled any more.
    pub fn purge(&self, is_hot: impl Fn(u32) -> bool) {
        let held = self.hold();
        for (nth, _) in self.live().filter(|(_, live)| !is_hot(live.tag())) {
            held.remove(nth);
        }
    }

    /// Entries that there are.
    pub fn entries(&self) -> u64 {
        self.live().count() as u64
    }

    /// The entries that there are, and where their descriptors are.
    fn live(&self) -> impl Iterator<Item = (usize, Descriptor)> {
        let words = self.descriptors.iter();
        let descriptors = words.map(|word| Descriptor(word.load(Ordering::Relaxed)));
        descriptors
            .enumerate()
            .filter(|(_, descriptor)| descriptor.is_live())
    }

    /// Keeps others from changing the bucket, if this is its version, an even one.
    fn try_hold(&self, version: u64) -> Option<Held<'_>> {
        let held = self.version.compare_exchange(
            version,
            version + 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        held.is_ok().then(|| Held::new(self, version + 1))
    }

    /// Waits until nobody else changes the bucket.
    fn hold(&self) -> Held<'_> {
        let mut spins = 0;
        loop {
            let version = self.version.load(Ordering::Relaxed) & !1;
            if let Some(held) = self.try_hold(version) {
                return held;
            }
            spins += 1;
            match spins % SPINS_MAX {
                0 => thread::yield_now(),
                _ => spin_loop(),
            }
        }
    }
}

/// Eight bytes or fewer, the rest zeros, as a word.
#[inline]
fn to_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// A bucket that only this thread changes.
struct Held<'b> {
    bucket: &'b Bucket,
    version: u64,
}

impl<'b> Held<'b> {
    /// Of a bucket whose version this thread has made odd.
    fn new(bucket: &'b Bucket, version: u64) -> Self {
        // A reader that sees what is stored from now on sees the odd version, too, or a later one.
        fence(Ordering::Release);
        Self { bucket, version }
    }

    fn remove(&self, nth: usize) {
        self.bucket.descriptors[nth].store(Descriptor::NONE.0, Ordering::Relaxed);
    }

    /// Adds an entry for a key that has none, if it `may_evict` in the room of entries that were not used lately. If all
    /// were, it is not added, and all must be used again to stay the next time (CLOCK's second chance).
    /// It begins at the `offset` that is given, if that is free.
    fn insert(&self, (tag, item): (u32, Item), offset: usize, is_used: bool, may_evict: bool) {
        let Item { key, value } = item;
        let words = key.len().div_ceil(8) + value.map_or(0, <[u8]>::len).div_ceil(8);
        let Some((nth, offset)) = self.make_room(words, offset, may_evict) else {
            return;
        };
        let bytes = key.chunks(8).chain(value.unwrap_or_default().chunks(8));
        for (bytes, word) in bytes.zip(&self.bucket.data[offset..]) {
            word.store(to_word(bytes), Ordering::Relaxed);
        }
        let bit = 1 << nth;
        match is_used {
            true => self.bucket.used.fetch_or(bit, Ordering::Relaxed),
            false => self.bucket.used.fetch_and(!bit, Ordering::Relaxed),
        };
        let descriptor = Descriptor::new(tag, offset, key.len(), value.map(<[u8]>::len));
        self.bucket.descriptors[nth].store(descriptor.0, Ordering::Relaxed);
    }

    /// An unused descriptor and the offset of so many free words, this one if it will do.
    fn make_room(&self, words: usize, offset: usize, may_evict: bool) -> Option<(usize, usize)> {
        loop {
            let descriptors = &self.bucket.descriptors;
            let descriptor = |nth: usize| Descriptor(descriptors[nth].load(Ordering::Relaxed));
            if let Some(nth) = self.bucket.free_descriptor()
                && let Some(offset) = self.gap(words, offset)
            {
                return Some((nth, offset));
            }
            if !may_evict {
                return None;
            }
            // The version is another one for each fill.
            let start = usize::try_from(self.version / 2 % ENTRIES as u64).unwrap_or(0);
            let used = self.bucket.used.load(Ordering::Relaxed);
            let mut others = (start..ENTRIES).chain(0..start);
            let victim = others.find(|&nth| descriptor(nth).is_live() && used >> nth & 1 == 0);
            let Some(victim) = victim else {
                self.bucket.used.store(0, Ordering::Relaxed);
                return None;
            };
            self.remove(victim);
        }
    }

    /// An offset of so many words that no entry has: this one, or the first one behind another entry.
    fn gap(&self, words: usize, offset: usize) -> Option<usize> {
        let live = || self.bucket.live().map(|(_, descriptor)| descriptor);
        let is_free = |start: usize, end: usize| {
            live().all(|other| other.end() <= start || end <= other.offset())
        };
        let mut starts = [offset, 0].into_iter().chain(live().map(Descriptor::end));
        starts.find(|&start| start + words <= DATA_WORDS && is_free(start, start + words))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.bucket
            .version
            .store(self.version + 1, Ordering::Release);
    }
}
