//! Where the records of an arena stand.

/// A range of records in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaExtent {
    /// Offset of the first record.
    pub offset: u64,
    /// Size class of the records.
    pub class: u32,
    /// Bytes from one to the next.
    pub stride: u64,
    /// Number of the first record, counted over all arena extents of its class in order.
    pub first: u64,
    /// How many records.
    pub count: u64,
}

/// The extents of an arena by their offsets.
pub struct ExtentMap(Vec<ArenaExtent>);

impl FromIterator<ArenaExtent> for ExtentMap {
    fn from_iter<I: IntoIterator<Item = ArenaExtent>>(extents: I) -> Self {
        let mut extents: Vec<ArenaExtent> = extents.into_iter().collect();
        extents.sort_unstable_by_key(|extent| extent.offset);
        Self(extents)
    }
}

impl ExtentMap {
    /// Class and number of the record at `offset`, or `None` if no record starts there.
    #[inline]
    pub fn record(&self, offset: u64) -> Option<(u32, u64)> {
        let after = self.0.partition_point(|extent| extent.offset <= offset);
        let extent = &self.0[after.checked_sub(1)?];
        let inside = offset - extent.offset;
        let ordinal = inside / extent.stride;
        (inside.is_multiple_of(extent.stride) && ordinal < extent.count)
            .then(|| (extent.class, extent.first + ordinal))
    }
}
