//! Where the records of an arena stand.

use std::sync::Arc;

/// A range of records in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaExtent {
    /// Offset of the first record.
    pub offset: u64,
    /// Bytes of the extent; behind the last record there may be some that belong to none.
    pub len: u64,
    /// Size class of the records.
    pub class: u32,
    /// Bytes from one to the next.
    pub stride: u64,
    /// Number of the first record, counted over all arena extents of its class in order.
    pub first: u64,
    /// How many records.
    pub count: u64,
}

impl ArenaExtent {
    /// Number behind that of the last record.
    pub fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Offsets of its records.
    pub fn records(&self) -> impl Iterator<Item = u64> + use<> {
        let Self {
            offset,
            stride,
            count,
            ..
        } = *self;
        (0..count).map(move |nth| offset + nth * stride)
    }

    /// The records of this extent with the numbers from `first` on, `count` of them. What belongs to no record
    /// stays with the last ones.
    pub fn part(&self, first: u64, count: u64) -> Self {
        let from = (first - self.first) * self.stride;
        let is_last = first + count == self.end();
        let to = if is_last {
            self.len
        } else {
            from + count * self.stride
        };
        Self {
            offset: self.offset + from,
            len: to - from,
            first,
            count,
            ..*self
        }
    }
}

/// The extents of an arena at one time, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Extents(pub(crate) Arc<[ArenaExtent]>);

impl Extents {
    /// One after another.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ArenaExtent> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Offset of the record of `class` with number `ordinal`.
    pub fn offset(&self, class: u32, ordinal: u64) -> Option<u64> {
        let mut extents = self.iter().rev();
        let extent = extents.find(|extent| extent.class == class && ordinal >= extent.first)?;
        let inside = ordinal - extent.first;
        (inside < extent.count).then(|| extent.offset + inside * extent.stride)
    }
}

/// The extents of an arena by their offsets.
#[derive(Debug, Clone, Default)]
pub struct ExtentMap(Vec<ArenaExtent>);

impl FromIterator<ArenaExtent> for ExtentMap {
    fn from_iter<I: IntoIterator<Item = ArenaExtent>>(extents: I) -> Self {
        let mut extents: Vec<ArenaExtent> = extents.into_iter().collect();
        extents.sort_unstable_by_key(|extent| extent.offset);
        Self(extents)
    }
}

impl ExtentMap {
    /// All of them.
    pub fn extents(&self) -> &[ArenaExtent] {
        &self.0
    }

    /// Index of the extent in which a record starts at `offset`, and which one of it that is.
    #[inline]
    pub fn find(&self, offset: u64) -> Option<(usize, u64)> {
        let after = self.0.partition_point(|extent| extent.offset <= offset);
        let index = after.checked_sub(1)?;
        let extent = &self.0[index];
        let inside = offset - extent.offset;
        let nth = inside / extent.stride;
        (inside.is_multiple_of(extent.stride) && nth < extent.count).then_some((index, nth))
    }

    /// Class and number of the record at `offset`, or `None` if no record starts there.
    #[inline]
    pub fn record(&self, offset: u64) -> Option<(u32, u64)> {
        let (index, nth) = self.find(offset)?;
        let extent = &self.0[index];
        Some((extent.class, extent.first + nth))
    }
}
