//! The slots of a bucket: which may hold a key, which are empty, and what stands in one.

use super::Table;
use super::key::{Bucket, ProbeKey};
use crate::layout::bucket::SlotAddr;
use crate::layout::{EMPTY, KeyClass, KeyHash, LINE, RecordWord};
use crate::pm::Medium;
use crate::sync::tags::{Tag, TagWord, Tags8};

impl<M: Medium> Table<M> {
    /// Which slots of a bucket may hold the target's key, and whether the bucket itself was read
    /// to know.
    #[inline(always)]
    pub(super) fn candidate_slots(&self, bucket: Bucket, target: &ProbeKey) -> (u32, bool) {
        if bucket.tags.is_none() {
            return (self.matches(bucket, target.word), true);
        }
        let (mut mask, mut read) = (0, false);
        for (first, word) in bucket.tags.words() {
            let tags = word.load().unwrap_or_else(|| {
                read = true;
                self.learn(bucket, first, word)
            });
            mask |= tags.match_mask(target.tag) << first;
        }
        (mask, read)
    }

    /// Which slots of a bucket are empty: bit *i* for slot *i*.
    #[inline(always)]
    pub fn vacant(&self, bucket: Bucket) -> u32 {
        if bucket.tags.is_none() {
            return self.matches(bucket, EMPTY);
        }
        bucket.tags.words().fold(0, |mask, (first, word)| {
            let tags = word
                .load()
                .unwrap_or_else(|| self.learn(bucket, first, word));
            mask | tags.empty() << first
        })
    }

    /// Makes the tags of the slots from `first` on known.
    #[cold]
    fn learn(&self, bucket: Bucket, first: u32, word: TagWord) -> Tags8 {
        word.fill(Tags8::of((first..self.shape.slots).map(|slot| {
            let state = self
                .medium
                .load(self.shape.slot_addr(bucket.at, slot).state);
            (state != EMPTY).then(|| Tag::of(self.hash_of_state(state)))
        })))
    }

    /// The hash of the key that this state word stands for.
    pub(super) fn hash_of_state(&self, state: u64) -> KeyHash {
        match self.shape.key_class() {
            KeyClass::Word => KeyHash::of_word(state, self.hash_seed),
            KeyClass::Wide | KeyClass::Variable => KeyHash(state),
        }
    }

    /// Empties a slot that is the caller's, its record word being none already. Starts the
    /// write-back of the state; from then on the slot is anybody's.
    pub(crate) fn vacate(&self, addr: SlotAddr) {
        let tags = self.tags_of(addr);
        if let Some((bucket, first, word, _)) = tags
            && word.load().is_none()
        {
            self.learn(bucket, first, word);
        }
        self.medium.store(addr.state, EMPTY);
        self.medium.write_back(addr.state, 8);
        if let Some((_, _, word, slot)) = tags {
            word.release(slot);
        }
    }

    /// Whether probes find what stands in a slot under the target's key.
    pub(super) fn is_shown(&self, addr: SlotAddr, target: &ProbeKey) -> bool {
        match self.tags_of(addr) {
            Some((.., word, slot)) => word
                .load()
                .is_some_and(|tags| tags.match_mask(target.tag) >> slot & 1 == 1),
            // Those of reserved buckets are found by their states.
            None => true,
        }
    }

    /// Where the tag of a slot is: its bucket, the first slot of its word, the word, and the slot's
    /// number there. Nowhere for slots of reserved buckets, and of levels that have been left.
    fn tags_of(&self, addr: SlotAddr) -> Option<(Bucket<'_>, u32, TagWord<'_>, u32)> {
        let levels = self.levels.live();
        (levels.bottom..=levels.top).find_map(|level| {
            let inside = addr.state.checked_sub(self.levels.offset(level))?;
            let index = inside / self.shape.bucket_size;
            if index >> level != 0 {
                return None;
            }
            let bucket = self.bucket(level, index);
            let slot = self.shape.slot_at(inside % self.shape.bucket_size);
            let (word, number) = bucket.tags.slot(slot)?;
            Some((bucket, slot - number, word, number))
        })
    }

    /// Which slots of a bucket have this state word: bit *i* for slot *i*.
    #[inline]
    pub fn matches(&self, bucket: Bucket, word: u64) -> u32 {
        (0..self.shape.slots).fold(0, |mask, slot| {
            let state = self
                .medium
                .load(self.shape.slot_addr(bucket.at, slot).state);
            mask | u32::from(state == word) << slot
        })
    }

    /// Whether the key of a slot is the target's, given that the state words agree and that the
    /// slot names `record`.
    #[inline(always)]
    pub fn key_equals(&self, addr: SlotAddr, record: RecordWord, target: &ProbeKey) -> bool {
        match self.shape.key_class() {
            KeyClass::Word => true,
            KeyClass::Wide => self.slot_has_key(addr, target),
            KeyClass::Variable => self.record_has_key(record, target),
        }
    }

    /// Whether the words of a slot's key are the target's.
    #[inline(never)]
    fn slot_has_key(&self, addr: SlotAddr, target: &ProbeKey) -> bool {
        (0..)
            .zip(target.key_words())
            .all(|(i, word)| self.medium.load(addr.key + i * 8) == word)
    }

    /// Copies the key of a slot, which may change meanwhile: then so has the slot's record word.
    pub(crate) fn read_key(&self, addr: SlotAddr, key: &mut [u8]) {
        for (at, bytes) in (addr.key..).step_by(8).zip(key.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&self.medium.load(at).to_le_bytes());
        }
    }

    /// Lines that hold a slot's key, beside those of its words.
    #[inline]
    pub(crate) fn key_touches(&self, addr: SlotAddr) -> u64 {
        if self.shape.key_class() != KeyClass::Wide {
            return 0;
        }
        let (first, last) = (addr.key, addr.key + self.shape.key_size - 1);
        let shared = first / LINE == addr.record / LINE;
        last / LINE - first / LINE + u64::from(!shared)
    }
}
