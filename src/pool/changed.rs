//! When keys were last changed.

use gphash_layout::width::{product_top, to_usize};
use xxhash_rust::xxh3::xxh3_64;

/// Slots of [`Changed`], at least and at most. A key has that of its hash.
const CHANGE_SLOTS: (usize, usize) = (1 << 10, 1 << 16);

/// For so many bytes of a memory budget there is a slot.
const BUDGET_PER_SLOT: u64 = 1 << 10;

/// When keys were last changed, in numbers of groups of changes. Keys that share a slot count as
/// changed together.
#[derive(Debug)]
pub struct Changed {
    /// Empty until the first change.
    groups: Vec<u64>,
    /// How many there are then.
    slots: usize,
    /// The last group of so many changes that all keys count as changed by it.
    all: u64,
}

impl Changed {
    /// As if no key had ever been changed, for what a partition has of a memory budget.
    pub fn new(budget: Option<u64>) -> Self {
        let (least, most) = CHANGE_SLOTS;
        let slots = |bytes| to_usize(bytes / BUDGET_PER_SLOT).clamp(least, most);
        Self {
            groups: Vec::new(),
            slots: budget.map_or(most, slots),
            all: 0,
        }
    }

    /// Notes that a group changes these keys.
    pub fn note<'k>(&mut self, keys: impl ExactSizeIterator<Item = &'k [u8]>, group: u64) {
        if keys.len() > self.slots / 4 {
            self.all = group;
            return;
        }
        self.groups.resize(self.slots, 0);
        for key in keys {
            let slot = self.slot(key);
            self.groups[slot] = group;
        }
    }

    /// The last group that may have changed a key.
    #[inline]
    pub fn last(&self, key: &[u8]) -> u64 {
        let group = self.groups.get(self.slot(key));
        group.map_or(self.all, |&group| group.max(self.all))
    }

    #[inline]
    fn slot(&self, key: &[u8]) -> usize {
        to_usize(product_top(xxh3_64(key), self.slots as u64))
    }
}
