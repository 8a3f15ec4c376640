//! Slots: their state words, and where the parts of a slot lie in its bucket.
//!
//! A bucket of *S* slots is `{state, record}[S]`, and for keys of 16 bytes and more `keys[S]`. The two words of
//! a slot share a line, so that filling or clearing a slot writes one.
//! The state word of an occupied slot is the key itself (8-byte keys; GPHash §3.1, in-place key
//! placement) or the key's fingerprint.

/// State word of a slot that holds nothing. Fresh extents are zero, hence all empty.
pub const EMPTY: u64 = 0;

/// State word of a slot that someone has claimed and is filling (the paper's INSERT).
pub const BUSY: u64 = u64::MAX;

/// State word of an occupied slot of a reserved bucket. A reserved bucket serves a single key,
/// one that equals [`EMPTY`] or [`BUSY`], so any third word says "this key".
pub const RESERVED_WORD: u64 = 1;

/// Bytes of a slot's state word and record word, which lie side by side.
pub const SLOT_WORDS_BYTES: u64 = 16;

/// Offsets of one slot's parts in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAddr {
    /// Offset of the state word.
    pub state: u64,
    /// Offset of the record word.
    pub record: u64,
    /// Offset of the key bytes (equal to `state` for 8-byte keys).
    pub key: u64,
}
