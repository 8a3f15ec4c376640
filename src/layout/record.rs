//! The record word of a slot: where the item's value stands, and how far its life has come.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0 to 55 | offset of the record in the file, 0 for none |
//! | 61 | `FROZEN`: a member that a resize is moving to another slot; no one else changes it |
//! | 62 | `COLLIDED`: an insertion that lost to another one of the same key |
//! | 63 | `TENTATIVE`: an insertion that has not yet been decided |
//!
//! An item is a **member** of the table exactly when its slot's state word is a key or
//! fingerprint and its record word has an offset and neither `TENTATIVE` nor `COLLIDED`. So one
//! word decides an item's fate: publishing, updating and removing are each one CAS on it.

/// A record word. See the [module](self) for its bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordWord(pub u64);

impl RecordWord {
    /// No record: the slot's item is not there (yet, or any more).
    pub const NONE: Self = Self(0);
    /// Bits of the offset.
    pub const OFFSET: u64 = super::MAX_FILE - 1;
    /// A member that a resize is moving.
    pub const FROZEN: u64 = 1 << 61;
    /// An insertion that lost.
    pub const COLLIDED: u64 = 1 << 62;
    /// An undecided insertion.
    pub const TENTATIVE: u64 = 1 << 63;

    /// The word of a member whose record is at `offset`.
    #[inline]
    pub fn member(offset: u64) -> Self {
        debug_assert!(offset != 0 && offset & !Self::OFFSET == 0);
        Self(offset)
    }

    /// Offset of the record in bytes; 0 for none.
    #[inline]
    pub fn offset(self) -> u64 {
        self.0 & Self::OFFSET
    }

    /// Whether a reader finds the item.
    #[inline]
    pub fn is_member(self) -> bool {
        self.0 & Self::OFFSET != 0 && self.0 & (Self::TENTATIVE | Self::COLLIDED) == 0
    }

    /// Whether this is an undecided insertion.
    #[inline]
    pub fn is_tentative(self) -> bool {
        self.0 & Self::TENTATIVE != 0
    }

    /// Whether a resize is moving the item.
    #[inline]
    pub fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    /// The same record with `flag` as its only flag.
    #[inline]
    pub fn with(self, flag: u64) -> Self {
        Self(self.offset() | flag)
    }
}

impl std::fmt::Debug for RecordWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordWord({:#x}", self.offset())?;
        for (flag, name) in [
            (Self::FROZEN, "frozen"),
            (Self::COLLIDED, "collided"),
            (Self::TENTATIVE, "tentative"),
        ] {
            if self.0 & flag != 0 {
                write!(f, " {name}")?;
            }
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_words_of_members_are_plain_or_frozen() {
        let plain = RecordWord::member(64);
        assert!(plain.is_member());
        assert!(plain.with(RecordWord::FROZEN).is_member());
        assert!(!plain.with(RecordWord::TENTATIVE).is_member());
        assert!(!plain.with(RecordWord::COLLIDED).is_member());
        assert!(!RecordWord::NONE.is_member());
        assert_eq!(plain.with(RecordWord::FROZEN).with(0), plain);
    }
}
