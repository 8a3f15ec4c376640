//! A group of operations whose memory is asked for together.

use crate::index::table::Table;
use crate::index::target::Target;
use crate::pm::Medium;

/// Operations in a group: enough to keep the core's outstanding misses busy, few enough that
/// what was asked for is still in the first-level cache when it is used.
pub const GROUP: usize = 16;

/// Up to [`GROUP`] targets with their positions in the batch.
pub struct Group<'k> {
    targets: [Option<(Target<'k>, usize)>; GROUP],
    len: usize,
}

impl<'k> Group<'k> {
    /// An empty group.
    pub fn new() -> Self {
        Self {
            targets: [None; GROUP],
            len: 0,
        }
    }

    /// Hashes a key and asks for its candidate buckets.
    #[inline]
    pub fn push<M: Medium>(&mut self, table: &Table<M>, key: &'k [u8], position: usize) {
        let target = table.target(key);
        let levels = table.directory.levels();
        for bucket in table.candidates(&target, 0, levels.top, levels.bottom) {
            table.medium.prefetch(bucket.at);
            table
                .medium
                .prefetch(bucket.at + u64::from(table.shape.slots) * 8);
        }
        self.targets[self.len] = Some((target, position));
        self.len += 1;
    }

    /// Operations in the group.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The targets and their positions, in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = (&Target<'k>, usize)> {
        self.targets[..self.len]
            .iter()
            .flatten()
            .map(|(target, position)| (target, *position))
    }
}
