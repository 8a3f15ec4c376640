//! A column of values, made of parts that threads have read while they read the next ones.

use super::bytes::Bytes;
use super::gather::{End, Lent, Run, ValuesPart, set_valid};
use super::{BinaryColumn, Offsets};

/// Room that is taken for values of which nothing is known yet. It is not touched before they come.
const UNTOUCHED_BYTES_MAX: usize = 1 << 30;

/// Of the room for all values, if they are as long as those that have come, this part is added.
const SPARE_FRACTION: usize = 16;

/// Positions whose ends one thread notes: a multiple of 8, as for parts.
const ENDS_AT_ONCE: usize = 1 << 14;

/// A column that becomes longer with each part.
pub struct ColumnBuilder {
    /// Of all positions. Those of parts that have not come mean nothing.
    offsets: Offsets,
    validity: Vec<u8>,
    /// At least those of all parts that have come, unless somebody else [has them](Self::extend).
    bytes: Bytes,
    /// Positions of these parts, and bytes of their values.
    len: usize,
    filled: usize,
}

impl ColumnBuilder {
    /// A column of `len` values, in the buffers of another one.
    pub fn new(len: usize, buffers: BinaryColumn) -> Self {
        let BinaryColumn {
            offsets,
            bytes,
            mut validity,
        } = buffers;
        validity.resize(len.div_ceil(8), 0);
        let mut offsets = match offsets {
            Offsets::I32(offsets) => offsets,
            Offsets::I64(_) => Vec::new(),
        };
        offsets.resize(len + 1, 0);
        offsets[0] = 0;
        Self {
            offsets: Offsets::I32(offsets),
            validity,
            bytes,
            len: 0,
            filled: 0,
        }
    }

    /// Makes room for the next parts, all of which but the last one of all have the same multiple of 8 positions.
    /// Gives what copies each of them there, out of their own bytes and what was `lent`.
    pub fn add<'b>(&'b mut self, parts: &'b [ValuesPart], lent: Lent<'b>) -> Vec<PartCopy<'b>> {
        let len: usize = parts.iter().map(ValuesPart::len).sum();
        let bytes: usize = parts.iter().map(ValuesPart::bytes_len).sum();
        self.make_room(self.len + len, self.filled + bytes);
        let mut room = self.room();
        let copy = |part: &'b ValuesPart| PartCopy {
            to: room.take(part).expect("there is room for all of them"),
            run: Run::of(part, lent),
        };
        parts.iter().map(copy).collect()
    }

    /// What is left of its buffers as they are.
    pub fn room(&mut self) -> ColumnRoom<'_> {
        let bytes = self.bytes.as_mut().get_mut(self.filled..);
        ColumnRoom {
            ends: Ends::of(&mut self.offsets, self.len + 1),
            validity: &mut self.validity[self.len / 8..],
            bytes: bytes.unwrap_or_default(),
            len: &mut self.len,
            filled: &mut self.filled,
        }
    }

    /// Makes the buffer as long as `len` values of `filled` bytes, or as all will be if the rest is like those. What it has
    /// stays.
    fn make_room(&mut self, len: usize, filled: usize) {
        self.widen(filled);
        if self.bytes.len() >= filled {
            return;
        }
        let used = self.filled;
        let half_more = filled.saturating_add(filled / 2);
        let of_each = filled.div_ceil(len.max(1));
        let all = of_each.saturating_mul(self.offsets.count() - 1);
        let with_spare = all.saturating_add(all / SPARE_FRACTION);
        let most = UNTOUCHED_BYTES_MAX.max(half_more);
        let wanted = with_spare.clamp(filled, most);
        if self.bytes.capacity() >= filled {
            // Zeros are written there.
            let len = all.clamp(filled, self.bytes.capacity());
            return self.bytes.resize(len);
        }
        let old = std::mem::take(&mut self.bytes);
        // What is in the way is not in memory beside what takes its place.
        let old = if used > 0 { old } else { Bytes::default() };
        // Fresh zeros cost nothing until they are used, unlike those behind a vector's end.
        let mut bytes = vec![0; wanted];
        bytes[..used].copy_from_slice(&old[..used]);
        self.bytes = bytes.into();
    }

    /// Makes offsets wide if those of so many bytes must be.
    fn widen(&mut self, filled: usize) {
        if let Offsets::I32(offsets) = &self.offsets
            && i32::try_from(filled).is_err()
        {
            let wide = offsets.iter().copied().map(i64::from).collect();
            self.offsets = Offsets::I64(wide);
        }
    }

    /// Adds positions, whose values are so many bytes, which end where `ends` says, counted from the first of them, with
    /// [`NULL_END`](super::NULL_END) for one that has none. They are in a buffer that somebody else has, behind those of the
    /// positions before, which came so as well. Gives what notes where they end.
    pub fn extend<'b>(&'b mut self, ends: &'b [u32], bytes: usize) -> Vec<EndsCopy<'b>> {
        let (first, begin) = (self.len, self.filled);
        self.len += ends.len();
        self.filled += bytes;
        self.widen(self.filled);
        let mut validity = &mut self.validity[first / 8..self.len.div_ceil(8)];
        let mut all = Ends::of(&mut self.offsets, first + 1);
        let copy = |ends: &'b [u32]| EndsCopy {
            begin,
            from: ends,
            to: all.split_off(ends.len()),
            validity: split_off(&mut validity, ends.len().div_ceil(8)),
        };
        ends.chunks(ENDS_AT_ONCE).map(copy).collect()
    }

    /// How many positions have come.
    #[expect(
        clippy::len_without_is_empty,
        reason = "nobody asks whether none has come"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many bytes of values have come.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Puts the buffer that has all values so far in place of the column's own.
    pub fn set_bytes(&mut self, bytes: Bytes) {
        self.bytes = bytes;
    }

    /// Gives the buffer back if it is lent, which no values have come to.
    pub fn return_bytes(&mut self) {
        if self.bytes.are_lent() {
            self.bytes = Bytes::default();
        }
    }

    /// Puts a value in place of the one at a position, which is as long.
    ///
    /// # Panics
    /// If it is not, or if the bytes of the column are elsewhere.
    pub fn overwrite(&mut self, position: usize, value: &[u8]) {
        let (begin, end) = self.offsets.span(position);
        self.bytes.as_mut()[begin..end].copy_from_slice(value);
    }

    /// Whether so many bytes of values fit into the buffer as it is.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.bytes.capacity() >= bytes
    }

    /// The column, once all parts have been copied.
    pub fn finish(mut self) -> BinaryColumn {
        self.bytes.resize(self.filled);
        if self.bytes.capacity() / 2 > self.filled {
            self.bytes.shrink_to_fit();
        }
        if self.validity.capacity() / 2 > self.validity.len() {
            self.validity.shrink_to_fit();
            self.offsets.shrink_to_fit();
        }
        BinaryColumn {
            offsets: self.offsets,
            bytes: self.bytes,
            validity: self.validity,
        }
    }
}

/// What is left of the buffers of a column, for parts that come one after the other.
pub struct ColumnRoom<'b> {
    ends: Ends<'b>,
    validity: &'b mut [u8],
    bytes: &'b mut [u8],
    /// Those of the column.
    len: &'b mut usize,
    filled: &'b mut usize,
}

impl<'b> ColumnRoom<'b> {
    /// Where the next part belongs, if there is room for it. All parts of a column but the last one have the same multiple of 8
    /// positions.
    pub fn take(&mut self, part: &ValuesPart) -> Option<PartTarget<'b>> {
        let (len, bytes) = (part.len(), part.bytes_len());
        let begin = *self.filled;
        if bytes > self.bytes.len() || !self.ends.hold(begin + bytes) {
            return None;
        }
        *self.len += len;
        *self.filled += bytes;
        Some(PartTarget {
            begin,
            ends: self.ends.split_off(len),
            bytes: split_off(&mut self.bytes, bytes),
            validity: split_off(&mut self.validity, len.div_ceil(8)),
        })
    }
}

/// Where a part belongs.
pub struct PartTarget<'b> {
    begin: usize,
    bytes: &'b mut [u8],
    ends: Ends<'b>,
    validity: &'b mut [u8],
}

impl PartTarget<'_> {
    /// Copies a part there that has its own bytes.
    pub fn fill(self, part: &ValuesPart) {
        self.fill_with(&Run::of(part, Lent::default()));
    }

    fn fill_with(self, run: &Run) {
        match self.ends {
            Ends::I32(ends) => run.fill(self.begin, self.bytes, ends, self.validity),
            Ends::I64(ends) => run.fill(self.begin, self.bytes, ends, self.validity),
        }
    }
}

/// Copies a part to where it belongs.
pub struct PartCopy<'b> {
    run: Run<'b>,
    to: PartTarget<'b>,
}

impl PartCopy<'_> {
    /// Does so.
    pub fn run(self) {
        self.to.fill_with(&self.run);
    }
}

/// Notes where values end, and which ones there are.
pub struct EndsCopy<'b> {
    begin: usize,
    from: &'b [u32],
    to: Ends<'b>,
    validity: &'b mut [u8],
}

impl EndsCopy<'_> {
    /// Does so.
    pub fn run(self) {
        set_valid(self.validity, self.from);
        match self.to {
            Ends::I32(to) => i32::put_ends(to, self.begin, self.from),
            Ends::I64(to) => i64::put_ends(to, self.begin, self.from),
        }
    }
}

/// Where values end, in either width.
enum Ends<'b> {
    I32(&'b mut [i32]),
    I64(&'b mut [i64]),
}

impl<'b> Ends<'b> {
    fn of(offsets: &'b mut Offsets, first: usize) -> Self {
        match offsets {
            Offsets::I32(offsets) => Self::I32(&mut offsets[first..]),
            Offsets::I64(offsets) => Self::I64(&mut offsets[first..]),
        }
    }

    /// Whether they are wide enough for so many bytes.
    fn hold(&self, bytes: usize) -> bool {
        match self {
            Self::I32(_) => i32::try_from(bytes).is_ok(),
            Self::I64(_) => true,
        }
    }

    fn split_off(&mut self, len: usize) -> Self {
        match self {
            Self::I32(ends) => Self::I32(split_off(ends, len)),
            Self::I64(ends) => Self::I64(split_off(ends, len)),
        }
    }
}

/// The first `len` of what is left.
pub fn split_off<'b, T>(left: &mut &'b mut [T], len: usize) -> &'b mut [T] {
    left.split_off_mut(..len).expect("as long as all parts")
}
