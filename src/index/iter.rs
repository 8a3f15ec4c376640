//! Iterating over all items.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::lookup::Member;
use super::table::Table;
use super::target::reserved_bucket_at;
use crate::Result;
use crate::layout::bucket::SlotPlace;
use crate::layout::{BUSY, EMPTY, KeyClass, RecordWord};
use crate::pm::Medium;
use crate::sync::thread_number;

/// Iterator over the items of an index; see [`Index::iter`](crate::Index::iter).
pub struct Iter<'t, M: Medium, K, V> {
    buckets: Buckets<'t, M>,
    ready: Vec<(K, V)>,
    types: PhantomData<(K, V)>,
}

/// Iterator over the buckets of a table: the offset of each, and the key that all its items have if
/// it is a reserved one.
struct Buckets<'t, M: Medium> {
    table: &'t Table<M>,
    /// Buckets still to come: level (`None` for the reserved buckets), bucket.
    level: Option<u32>,
    bucket: u64,
}

impl<'t, M: Medium> Buckets<'t, M> {
    fn new(table: &'t Table<M>) -> Self {
        table.finish_draining_quietly();
        Self {
            table,
            level: None,
            bucket: 0,
        }
    }
}

impl<M: Medium> Iterator for Buckets<'_, M> {
    type Item = (u64, Option<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        let levels = self.table.directory.levels();
        match self.level {
            None if self.table.shape.key_class() == KeyClass::Word && self.bucket < 2 => {
                let bucket = self.bucket as u32;
                self.bucket += 1;
                let key = if bucket == 0 { EMPTY } else { BUSY };
                return Some((reserved_bucket_at(bucket), Some(key)));
            }
            None => {
                self.level = Some(levels.bottom);
                self.bucket = 0;
            }
            Some(level) if self.bucket == 1 << level => {
                self.level = Some(level + 1);
                self.bucket = 0;
            }
            Some(_) => {}
        }
        let level = self.level.filter(|&level| level <= levels.top)?;
        let at = self.table.directory.offset(level) + self.bucket * self.table.shape.bucket_size;
        self.bucket += 1;
        Some((at, None))
    }
}

impl<M: Medium> Table<M> {
    /// Lets `read` copy a slot's key and what its record holds, if it has a member, again and again
    /// until the slot has not changed meanwhile. The caller is pinned.
    fn read_slot<T>(
        &self,
        place: SlotPlace,
        mut read: impl FnMut(RecordWord) -> T,
    ) -> Option<(RecordWord, T)> {
        loop {
            let record = RecordWord(self.medium.load(place.record));
            let state = self.medium.load(place.state);
            if state == EMPTY || state == BUSY || !record.is_member() {
                return None;
            }
            let copied = read(record);
            if self.medium.load(place.record) == record.0 {
                return Some((record, copied));
            }
        }
    }

    /// Calls `visit` with key, sequence number and value of every item of variable length. The
    /// caller is not pinned, and nor is `visit`.
    pub(crate) fn visit_items(&self, mut visit: impl FnMut(&[u8], u64, &[u8])) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for (at, _) in Buckets::new(self) {
            for slot in 0..self.shape.slots {
                let place = self.shape.slot_place(at, slot);
                if matches!(self.medium.load(place.state), EMPTY | BUSY) {
                    continue;
                }
                let pin = self.pin(thread_number());
                let read = self.read_slot(place, |record| {
                    self.read_item(Member { place, record }, &mut key, &mut value)
                });
                drop(pin);
                if let Some((_, sequence)) = read {
                    visit(&key, sequence?, &value);
                }
            }
        }
        Ok(())
    }
}

impl<'t, M: Medium, K: Pod, V: Pod> Iter<'t, M, K, V> {
    pub(crate) fn new(table: &'t Table<M>) -> Self {
        Self {
            buckets: Buckets::new(table),
            ready: Vec::new(),
            types: PhantomData,
        }
    }

    /// Copies the members of one bucket, pinned.
    fn read_bucket(&mut self, at: u64, reserved: Option<u64>) {
        let table = self.buckets.table;
        let _pin = table.pin(thread_number());
        for slot in 0..table.shape.slots {
            let place = table.shape.slot_place(at, slot);
            let read = table.read_slot(place, |_| {
                let mut key = K::zeroed();
                match reserved {
                    Some(word) => {
                        bytemuck::bytes_of_mut(&mut key).copy_from_slice(&word.to_le_bytes())
                    }
                    None => table.read_key(place, bytemuck::bytes_of_mut(&mut key)),
                }
                key
            });
            if let Some((record, key)) = read
                && table.record_in_bounds(record)
            {
                let mut value = V::zeroed();
                table
                    .medium
                    .read(record.offset(), bytemuck::bytes_of_mut(&mut value));
                self.ready.push((key, value));
            }
        }
    }
}

impl<M: Medium, K: Pod, V: Pod> Iterator for Iter<'_, M, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.ready.is_empty() {
            let (at, reserved) = self.buckets.next()?;
            self.read_bucket(at, reserved);
        }
        self.ready.pop()
    }
}
