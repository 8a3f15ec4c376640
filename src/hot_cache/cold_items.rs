//! Items on their way out of the table, in the order of their keys.

use std::ops::Range;
use std::sync::Arc;

use gphash_pool::parallel;
use memmap2::MmapMut;

/// From how many items on threads sort them together.
const SHARED_SORT_ITEMS_MIN: usize = 4096;

/// Items that are to leave the table, in the order of their keys.
pub struct ColdItems {
    /// Mapped, so that the system has its memory back afterwards: the allocator would keep it between small blocks
    /// that stay. Pages that are not used take none.
    keys: MmapMut,
    /// The items.
    pub items: Vec<ColdItem>,
}

/// An item, as it was found.
#[derive(Clone, Copy)]
pub struct ColdItem {
    /// How its key begins: to compare keys elsewhere takes long.
    prefix: u64,
    /// Its stamp, which tells versions of a key apart: that of a newer one is greater.
    pub stamp: u64,
    /// Where its key begins.
    start: usize,
    /// Bytes of its key.
    pub key_len: u32,
    /// Bytes of its value.
    pub value_len: u32,
}

/// What one thread finds, one key behind the other in its share of the memory.
pub struct Collector<'b> {
    keys: &'b mut [u8],
    /// Where they begin.
    at: usize,
    /// Bytes that it may take.
    left: usize,
    items: Vec<ColdItem>,
}

impl<'b> Collector<'b> {
    /// Room for keys, which begins at a byte of all of it.
    pub fn new(keys: &'b mut [u8], at: usize) -> Self {
        Self {
            left: keys.len(),
            keys,
            at,
            items: Vec::new(),
        }
    }

    /// What was found.
    pub fn into_items(self) -> Vec<ColdItem> {
        self.items
    }

    /// Takes an item; says whether there was room for it.
    pub fn push(&mut self, key: &[u8], stamp: u64, value_bytes: u64) -> bool {
        let taken = key.len() + size_of::<ColdItem>();
        let left = self.left.checked_sub(taken);
        let lens = u32::try_from(key.len())
            .ok()
            .zip(value_bytes.try_into().ok());
        let (Some(left), Some((key_len, value_len))) = (left, lens) else {
            return false;
        };
        let Some(of_item) = self.keys.split_off_mut(..key.len()) else {
            return false;
        };
        of_item.copy_from_slice(key);
        let mut prefix = [0; 8];
        let copied = key.len().min(8);
        prefix[..copied].copy_from_slice(&key[..copied]);
        let start = self.at;
        self.at += key.len();
        self.left = left;
        self.items.push(ColdItem {
            prefix: u64::from_be_bytes(prefix),
            stamp,
            start,
            key_len,
            value_len,
        });
        true
    }
}

impl ColdItem {
    /// Bytes of its key and its value.
    pub fn bytes(&self) -> u64 {
        u64::from(self.key_len) + u64::from(self.value_len)
    }
}

impl ColdItems {
    /// Items whose keys are in this memory, in no order.
    pub fn of(keys: MmapMut, items: Vec<ColdItem>) -> Self {
        let mut cold = Self { keys, items };
        cold.sort();
        cold
    }

    /// The key of one of them.
    pub fn key(&self, item: &ColdItem) -> &[u8] {
        &self.keys[item.start..item.start + item.key_len as usize]
    }

    /// Brings them into order; of an item that was met twice the newer one stays.
    fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        let keys = |a: &ColdItem, b: &ColdItem| {
            let rest = || self.key(a).cmp(self.key(b));
            a.prefix.cmp(&b.prefix).then_with(rest)
        };
        parallel::sort_unstable_by(&mut items, SHARED_SORT_ITEMS_MIN, |a, b| {
            keys(a, b).then_with(|| b.stamp.cmp(&a.stamp))
        });
        items.dedup_by(|b, a| keys(a, b).is_eq());
        self.items = items;
    }

    /// All of them in parts, each of which ends behind an item that `ends` it, and none of which has keys on both sides
    /// of one of the `cuts`. It is also told whether the item is the first one of its part.
    pub fn chunks(
        &self,
        mut ends: impl FnMut(&ColdItem, bool) -> bool,
        cuts: &[Vec<u8>],
    ) -> Vec<Range<usize>> {
        let begins = |cut: &Vec<u8>| self.items.partition_point(|item| self.key(item) < &cut[..]);
        let upto = cuts.iter().map(begins).chain([self.items.len()]);
        let (mut chunks, mut start) = (Vec::new(), 0);
        for end in upto {
            let slice = start..end;
            for nth in slice {
                if ends(&self.items[nth], nth == start) {
                    chunks.push(start..nth + 1);
                    start = nth + 1;
                }
            }
            if start < end {
                chunks.push(start..end);
                start = end;
            }
        }
        chunks
    }
}

/// Some of the items, which files have now, and which leave the table together.
pub struct LeavingItems {
    cold: Arc<ColdItems>,
    numbers: Vec<usize>,
}

impl LeavingItems {
    /// Those with these numbers.
    pub fn new(cold: &Arc<ColdItems>, numbers: &[usize]) -> Self {
        Self {
            cold: Arc::clone(cold),
            numbers: numbers.to_vec(),
        }
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Their keys and stamps, in parts for threads of at most so many.
    pub fn parts(&self, most: usize) -> impl Iterator<Item = (Vec<&[u8]>, Vec<u64>)> {
        self.numbers.chunks(most).map(|numbers| {
            let items = numbers.iter().map(|&nth| &self.cold.items[nth]);
            items.map(|item| (self.cold.key(item), item.stamp)).unzip()
        })
    }
}
