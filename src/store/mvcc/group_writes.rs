//! The final values of groups of changes that are not in the table, or not wholly.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::OnceLock;

use static_assertions::assert_impl_all;

use super::old_versions::{Value, is_empty};
use super::read_set::Limits;
use crate::store::wal::record::Entry;

/// A key that a group changes, and its final value; `None` if it is deleted.
pub type Write<'g> = (&'g [u8], Option<&'g [u8]>);

/// What a group leaves of a key; `None` if it does not change it.
pub type Find<'g> = dyn Fn(&[u8]) -> Option<Option<&'g [u8]>> + Sync + 'g;

/// A group whose changes are asked for in the order of keys.
pub trait Writes {
    /// The changes of keys in a range, in order.
    fn range<'s>(
        &'s self,
        limits: Limits<'s>,
    ) -> Box<dyn DoubleEndedIterator<Item = Write<'s>> + 's>;
}

/// Those of a group that goes into the table.
pub struct GroupWrites<'g> {
    finals: &'g [Entry<'g>],
    find: &'g Find<'g>,
    /// Positions among the final values by ascending keys, once a range has asked for them.
    order: OnceLock<Vec<u32>>,
}

impl<'g> GroupWrites<'g> {
    /// Final values, which `find` finds by their keys.
    pub fn new(finals: &'g [Entry<'g>], find: &'g Find<'g>) -> Self {
        Self {
            finals,
            find,
            order: OnceLock::new(),
        }
    }

    /// All of them, in the order of their requests.
    pub fn finals(&self) -> &'g [Entry<'g>] {
        self.finals
    }

    /// What the group leaves of a key; `None` if it does not change it.
    pub fn value(&self, key: &[u8]) -> Option<Option<&'g [u8]>> {
        (self.find)(key)
    }

    fn in_order(&self) -> &[u32] {
        self.order.get_or_init(|| {
            let count = u32::try_from(self.finals.len()).expect("a group has fewer changes");
            let mut order: Vec<u32> = (0..count).collect();
            order.sort_unstable_by_key(|&nth| self.finals[nth as usize].key);
            order
        })
    }
}

impl Writes for GroupWrites<'_> {
    fn range<'s>(
        &'s self,
        limits: Limits<'s>,
    ) -> Box<dyn DoubleEndedIterator<Item = Write<'s>> + 's> {
        let order = self.in_order();
        let key = |nth: &u32| self.finals[*nth as usize].key;
        let start = match limits.0 {
            Bound::Unbounded => 0,
            Bound::Included(start) => order.partition_point(|nth| key(nth) < start),
            Bound::Excluded(start) => order.partition_point(|nth| key(nth) <= start),
        };
        let end = match limits.1 {
            Bound::Unbounded => order.len(),
            Bound::Included(end) => order.partition_point(|nth| key(nth) <= end),
            Bound::Excluded(end) => order.partition_point(|nth| key(nth) < end),
        };
        let within = order.get(start..end).unwrap_or_default();
        Box::new(within.iter().map(|&nth| {
            let entry = &self.finals[nth as usize];
            (entry.key, entry.value)
        }))
    }
}

// Readers have it beside the one who publishes it.
assert_impl_all!(GroupWrites<'static>: Sync);

/// A group in the log that the table has no room for.
#[derive(Debug, Clone)]
pub struct Unfinished {
    /// Its number.
    pub commit_seq: u64,
    /// Sequence number of its first request in the log.
    pub first: u64,
    /// Final values of keys, and positions of the requests.
    pub changes: BTreeMap<Vec<u8>, (Value, u32)>,
}

impl Unfinished {
    /// A copy of final values.
    pub fn of(commit_seq: u64, first: u64, finals: &[Entry]) -> Self {
        let owned = |entry: &Entry| {
            let value = entry.value.map(<[u8]>::to_vec);
            (entry.key.to_vec(), (value, entry.position))
        };
        Self {
            commit_seq,
            first,
            changes: finals.iter().map(owned).collect(),
        }
    }

    /// Its final values.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let changes = self.changes.iter();
        changes
            .map(|(key, (value, position))| Entry {
                key,
                value: value.as_deref(),
                position: *position,
            })
            .collect()
    }
}

impl Writes for Unfinished {
    fn range<'s>(
        &'s self,
        limits: Limits<'s>,
    ) -> Box<dyn DoubleEndedIterator<Item = Write<'s>> + 's> {
        let within = (!is_empty(&limits)).then(|| self.changes.range::<[u8], _>(limits));
        let write = |(key, (value, _)): (&'s Vec<u8>, &'s (Value, u32))| -> Write<'s> {
            (key.as_slice(), value.as_deref())
        };
        Box::new(within.into_iter().flatten().map(write))
    }
}
