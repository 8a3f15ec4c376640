//! What a bucket says of an entry, in one word, so that no reader sees half of it.

/// The entry is there.
const IS_LIVE: u64 = 1 << 63;

/// The key has no value.
const IS_TOMBSTONE: u64 = 1 << 62;

const TAG_SHIFT: u32 = 30;
const OFFSET_SHIFT: u32 = 20;
const KEY_LEN_SHIFT: u32 = 10;

/// Lengths and offsets have so many bits.
const LEN_MASK: u64 = (1 << KEY_LEN_SHIFT) - 1;

/// Bits that are the same for all entries that may be of a key.
const KEY_MASK: u64 = IS_LIVE | (u32::MAX as u64) << TAG_SHIFT | LEN_MASK << KEY_LEN_SHIFT;

/// Words that so many bytes take.
pub const fn words(bytes: u64) -> u64 {
    bytes.div_ceil(8)
}

/// See the [module](self). The key's bytes begin at `offset` among the words of the bucket, and the value's with the
/// next word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor(pub u64);

impl Descriptor {
    /// That of no entry.
    pub const NONE: Self = Self(0);

    /// That of an entry; `None` as the length of a value is a tombstone.
    pub fn new(tag: u32, offset: usize, key_len: usize, value_len: Option<usize>) -> Self {
        let tombstone = if value_len.is_none() { IS_TOMBSTONE } else { 0 };
        let value_len = value_len.unwrap_or(0) as u64;
        let (offset, key_len) = (offset as u64, key_len as u64);
        debug_assert!(offset.max(key_len).max(value_len) <= LEN_MASK);
        Self(
            IS_LIVE
                | tombstone
                | u64::from(tag) << TAG_SHIFT
                | offset << OFFSET_SHIFT
                | key_len << KEY_LEN_SHIFT
                | value_len,
        )
    }

    /// The bits by which [`may_be_of`](Self::may_be_of) tells entries of a key of this length apart.
    #[inline]
    pub fn of_key(tag: u32, key_len: usize) -> u64 {
        IS_LIVE | u64::from(tag) << TAG_SHIFT | (key_len as u64) << KEY_LEN_SHIFT
    }

    /// Whether the entry may be of a key.
    #[inline]
    pub fn may_be_of(self, of_key: u64) -> bool {
        self.0 & KEY_MASK == of_key
    }

    #[inline]
    pub fn is_live(self) -> bool {
        self.0 & IS_LIVE != 0
    }

    #[inline]
    pub fn is_tombstone(self) -> bool {
        self.0 & IS_TOMBSTONE != 0
    }

    #[inline]
    pub fn tag(self) -> u32 {
        u32::try_from(self.0 >> TAG_SHIFT & u64::from(u32::MAX)).expect("32 bits are left")
    }

    #[inline]
    pub fn offset(self) -> usize {
        self.bits(OFFSET_SHIFT)
    }

    /// Where the value begins.
    #[inline]
    pub fn value_offset(self) -> usize {
        self.offset() + self.bits(KEY_LEN_SHIFT).div_ceil(8)
    }

    #[inline]
    pub fn value_len(self) -> usize {
        self.bits(0)
    }

    /// The first word behind the entry.
    pub fn end(self) -> usize {
        self.value_offset() + self.value_len().div_ceil(8)
    }

    #[inline]
    fn bits(self, shift: u32) -> usize {
        usize::try_from(self.0 >> shift & LEN_MASK).expect("it has 10 bits")
    }
}
