//! The record word of a slot: where the item's value stands, and how far its life has come.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0 to 55 | offset of the record in the file, 0 for none |
//! | 59 | `INSERTION`: set beside `TENTATIVE` and `COLLIDED` |
//! | 60 | `PARITY`: the slot's state word and this word together have an even number of ones |
//! | 61 | `FROZEN`: a member that a resize is moving to another slot; no one else changes it |
//! | 62 | `COLLIDED`: an insertion that lost to another one of the same key |
//! | 63 | `TENTATIVE`: an insertion that has not yet been decided |
//!
//! An item is a **member** of the table exactly when its slot's state word is a key or
//! fingerprint and its record word has an offset and neither `TENTATIVE` nor `COLLIDED`. So one
//! word decides an item's fate: publishing, updating and removing are each one CAS on it.
//!
//! One flipped bit of a member's slot is noticed by its parity. A crash may leave an insertion that is no member
//! beside the state word of the slot's item before, so its parity says nothing. `INSERTION` does: a member
//! of which one bit is flipped has it not, and is not taken for an insertion that a crash cut short.

/// A record word. See the [module](self) for its bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordWord(pub u64);

impl RecordWord {
    /// No record: the slot's item is not there (yet, or any more).
    pub const NONE: Self = Self(0);
    /// Bits of the offset.
    pub const OFFSET: u64 = super::MAX_FILE - 1;
    /// Set beside [`COLLIDED`](Self::COLLIDED) and [`TENTATIVE`](Self::TENTATIVE).
    pub const INSERTION: u64 = 1 << 59;
    /// Makes the number of ones in the state word and the record word even.
    pub const PARITY: u64 = 1 << 60;
    /// A member that a resize is moving.
    pub const FROZEN: u64 = 1 << 61;
    /// An insertion that lost.
    pub const COLLIDED: u64 = 1 << 62;
    /// An undecided insertion.
    pub const TENTATIVE: u64 = 1 << 63;

    /// The word of a member whose record is at `offset`, beside the state word `state`.
    #[inline]
    pub fn member(state: u64, offset: u64) -> Self {
        debug_assert!(offset != 0 && offset & !Self::OFFSET == 0);
        Self::even(offset, state)
    }

    /// `bits` with the parity that makes the ones in it and in `other` even.
    #[inline]
    fn even(bits: u64, other: u64) -> Self {
        let odd = (bits ^ other).count_ones() & 1;
        Self(bits | (Self::PARITY * u64::from(odd)))
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

    /// The same record with `flag` as its only flag, in the same slot.
    #[inline]
    pub fn with(self, flag: u64) -> Self {
        let is_insertion = flag & (Self::TENTATIVE | Self::COLLIDED) != 0;
        let beside = if is_insertion { Self::INSERTION } else { 0 };
        // The ones of this word are even or odd as those of the state word are.
        Self::even(self.offset() | flag | beside, self.0)
    }

    /// Whether this can be the word of a slot whose state word is `state`, as far as one flipped bit of a
    /// member goes. Words of insertions are right beside any state.
    #[inline]
    pub fn is_sound(self, state: u64) -> bool {
        match self {
            Self::NONE => true,
            word if word.is_member() => (word.0 ^ state).count_ones().is_multiple_of(2),
            word => word.0 & Self::INSERTION != 0,
        }
    }
}

impl std::fmt::Debug for RecordWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordWord({:#x}", self.offset())?;
        for (flag, name) in [
            (Self::INSERTION, "insertion"),
            (Self::PARITY, "parity"),
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
mod tests;
