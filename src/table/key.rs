//! What an operation looks for: a key with its hash, its state word and its candidate buckets.

use std::ops::ControlFlow;

use super::Table;
use crate::layout::hash::OVERFLOW_ROUNDS;
use crate::layout::{
    BUSY, EMPTY, KeyClass, KeyHash, RESERVED_BUCKET_STRIDE, RESERVED_BUCKETS, RESERVED_WORD,
    RecordWord,
};
use crate::pm::Medium;
use crate::sync::levels::Levels;
use crate::sync::tags::{BucketTags, Tag};

/// Number of the hash location sets of a key: the normal one and the further ones.
pub const ROUNDS: u32 = 1 + OVERFLOW_ROUNDS;

/// Which items of a fingerprint are meant, in a table of variable length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// That of the key.
    Key,
    /// That which has this record: an item on its way to another slot. So moving it reads no key.
    Record(u64),
    /// All.
    Any,
}

/// A key on its way to its slot.
#[derive(Debug, Clone, Copy)]
pub struct ProbeKey<'k> {
    /// The bytes of the key; none if it is known otherwise.
    pub key: &'k [u8],
    /// How its items are told from others of the same fingerprint, if keys have variable length.
    pub identity: Identity,
    /// The state word of a slot that holds it.
    pub word: u64,
    /// Its hash.
    pub hash: KeyHash,
    /// The tag of a slot that holds it.
    pub tag: Tag,
    /// Which reserved bucket serves it, if the key equals a slot state.
    pub reserved: Option<u32>,
}

/// One candidate bucket.
#[derive(Clone, Copy)]
pub struct Bucket<'t> {
    /// Offset in the file.
    pub at: u64,
    /// Its level.
    pub level: u32,
    /// The tags of its slots.
    pub tags: BucketTags<'t>,
}

impl<'k> ProbeKey<'k> {
    /// Hashes `key` for a table of keys of class `class`.
    #[inline(always)]
    pub fn new(key: &'k [u8], class: KeyClass, seed: u64) -> Self {
        match class {
            KeyClass::Word => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(key);
                let word = u64::from_le_bytes(bytes);
                let reserved = reserved_bucket(word);
                let hash = KeyHash::of_word(word, seed);
                Self {
                    key,
                    identity: Identity::Key,
                    word: if reserved.is_some() {
                        RESERVED_WORD
                    } else {
                        word
                    },
                    hash,
                    tag: Tag::of(hash),
                    reserved,
                }
            }
            KeyClass::Wide | KeyClass::Variable => {
                let hash = KeyHash::of_bytes(key, seed);
                Self {
                    key,
                    identity: Identity::Key,
                    word: hash.0,
                    hash,
                    tag: Tag::of(hash),
                    reserved: None,
                }
            }
        }
    }

    /// The item of variable length that has this fingerprint and this record.
    pub fn of_record(fingerprint: u64, record: RecordWord) -> Self {
        Self::of_fingerprint(fingerprint, Identity::Record(record.offset()))
    }

    /// Items of variable length that have this fingerprint.
    pub fn of_fingerprint(fingerprint: u64, identity: Identity) -> Self {
        Self::of_state(fingerprint, KeyHash(fingerprint), identity)
    }

    /// Items whose state word and hash are these.
    pub fn of_state(word: u64, hash: KeyHash, identity: Identity) -> Self {
        Self {
            key: &[],
            identity,
            word,
            hash,
            tag: Tag::of(hash),
            reserved: None,
        }
    }
}

impl ProbeKey<'_> {
    /// The key as the words that its slot holds.
    #[inline]
    pub fn key_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.key.chunks_exact(8).map(|bytes| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        })
    }
}

/// Which reserved bucket serves an 8-byte key, if any.
#[inline]
pub fn reserved_bucket(key: u64) -> Option<u32> {
    match key {
        EMPTY => Some(0),
        BUSY => Some(1),
        _ => None,
    }
}

/// Offset of a reserved bucket.
#[inline]
pub fn reserved_bucket_at(bucket: u32) -> u64 {
    RESERVED_BUCKETS + u64::from(bucket) * RESERVED_BUCKET_STRIDE
}

impl<M: Medium> Table<M> {
    /// Hashes a key.
    #[inline(always)]
    pub fn target<'k>(&self, key: &'k [u8]) -> ProbeKey<'k> {
        ProbeKey::new(key, self.shape.key_class(), self.hash_seed)
    }

    /// A bucket of a level.
    #[inline]
    pub fn bucket(&self, level: u32, index: u64) -> Bucket<'_> {
        Bucket {
            at: self.levels.offset(level) + index * self.shape.bucket_size,
            level,
            tags: self.tags.level(level).bucket(index),
        }
    }

    /// Visits the candidate buckets of one round, without repetition, level by level from `from`
    /// to `to` (either may be the higher one), until `visit` breaks.
    #[inline(always)]
    pub fn candidates<'t, B>(
        &'t self,
        target: &ProbeKey<'_>,
        round: u32,
        from: u32,
        to: u32,
        mut visit: impl FnMut(Bucket<'t>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if let Some(bucket) = target.reserved {
            let at = reserved_bucket_at(bucket);
            return visit(Bucket {
                at,
                level: from,
                tags: BucketTags::NONE,
            });
        }
        let count = self.shape.locations;
        // Computed once for all levels, as far as they are the usual two.
        let first = target.hash.location(round * count);
        let second = target.hash.location(round * count + 1);
        let location = |nth: u32| match nth {
            0 => first,
            1 => second,
            _ => target.hash.location(round * count + nth),
        };
        let mut level = from;
        loop {
            let offset = self.levels.offset(level);
            let tags = self.tags.level(level);
            for nth in 0..count {
                let index = KeyHash::bucket(location(nth), level);
                if (0..nth).any(|before| KeyHash::bucket(location(before), level) == index) {
                    continue;
                }
                let at = offset + index * self.shape.bucket_size;
                visit(Bucket {
                    at,
                    level,
                    tags: tags.bucket(index),
                })?;
            }
            if level == to {
                return ControlFlow::Continue(());
            }
            level = if from < to { level + 1 } else { level - 1 };
        }
    }

    /// How many rounds a lookup of `target` must read. To be asked after reading round 0: an
    /// item placed in a further round had its bit set before.
    #[inline]
    pub fn rounds(&self, target: &ProbeKey, levels: Levels) -> u32 {
        if target.reserved.is_some() {
            return 1;
        }
        if !self.overflow.is_any_set() {
            return 1;
        }
        let overflowed = (levels.bottom..=levels.top).any(|level| {
            let home = KeyHash::bucket(target.hash.location(0), level);
            self.overflow.is_set(level, home)
        });
        if overflowed { ROUNDS } else { 1 }
    }
}
