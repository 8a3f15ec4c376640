//! Iterating over all items.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::Table;
use super::key::reserved_bucket_at;
use super::probe::Occupied;
use super::shrink::Walking;
use crate::Result;
use crate::layout::bucket::SlotAddr;
use crate::layout::{BUSY, EMPTY, KeyClass, RecordWord};
use crate::pm::Medium;
use crate::sync::thread_number;

/// Iterator over the items of a table whose keys and values have one size.
pub(crate) struct Items<'t, M: Medium, K, V> {
    buckets: Buckets<'t, M>,
    ready: Vec<(K, V)>,
    types: PhantomData<(K, V)>,
}

/// Iterator over the buckets of a table, from the lowest level up: items move in this direction.
pub(super) struct Buckets<'t, M: Medium> {
    table: &'t Table<M>,
    /// The next one.
    next: Bucket,
    _walking: Walking<'t>,
}

/// Which bucket. Where it is, is known only while the caller is pinned.
#[derive(Clone, Copy)]
pub(super) enum Bucket {
    Reserved(u32),
    Level { level: u32, index: u64 },
}

impl Bucket {
    /// Offset of the bucket, valid while the caller is pinned; `None` if its level has been emptied,
    /// and may hold records now.
    pub(super) fn offset<M: Medium>(self, table: &Table<M>) -> Option<u64> {
        match self {
            Self::Reserved(bucket) => Some(reserved_bucket_at(bucket)),
            Self::Level { level, index } => {
                let is_live = level >= table.levels.live().bottom;
                is_live.then(|| table.levels.offset(level) + index * table.shape.bucket_size)
            }
        }
    }

    /// The key that all its items have, if it is a reserved one.
    fn key(self) -> Option<u64> {
        match self {
            Self::Reserved(0) => Some(EMPTY),
            Self::Reserved(_) => Some(BUSY),
            Self::Level { .. } => None,
        }
    }
}

impl<'t, M: Medium> Buckets<'t, M> {
    pub(super) fn new(table: &'t Table<M>) -> Self {
        table.finish_draining_quietly();
        let next = match table.shape.key_class() {
            KeyClass::Word => Bucket::Reserved(0),
            KeyClass::Wide | KeyClass::Variable => Bucket::Level { level: 0, index: 0 },
        };
        Self {
            table,
            next,
            _walking: table.walk_levels(),
        }
    }
}

impl<M: Medium> Iterator for Buckets<'_, M> {
    type Item = Bucket;

    fn next(&mut self) -> Option<Bucket> {
        let levels = self.table.levels.live();
        if let Bucket::Level { level, index } = &mut self.next {
            if *index == 1 << *level {
                (*level, *index) = (*level + 1, 0);
            }
            if *level < levels.bottom {
                (*level, *index) = (levels.bottom, 0);
            }
            if *level > levels.top {
                return None;
            }
        }
        let this = self.next;
        self.next = match this {
            Bucket::Reserved(0) => Bucket::Reserved(1),
            Bucket::Reserved(_) => Bucket::Level { level: 0, index: 0 },
            Bucket::Level { level, index } => Bucket::Level {
                level,
                index: index + 1,
            },
        };
        Some(this)
    }
}

impl<M: Medium> Table<M> {
    /// Lets `read` copy a slot's key and what its record holds, if it has a member, again and again
    /// until the slot has not changed meanwhile. The caller is pinned.
    fn read_slot<T>(
        &self,
        addr: SlotAddr,
        mut read: impl FnMut(RecordWord) -> T,
    ) -> Option<(RecordWord, T)> {
        loop {
            let record = RecordWord(self.medium.load(addr.record));
            let state = self.medium.load(addr.state);
            if state == EMPTY || state == BUSY || !record.is_member() {
                return None;
            }
            let copied = read(record);
            if self.medium.load(addr.record) == record.0 {
                return Some((record, copied));
            }
        }
    }

    /// Calls `visit` with what `read` makes of every item of variable length whose fingerprint is
    /// `chosen`, until it fails. The caller is not pinned, nor is `visit`, but `read` is.
    pub(crate) fn visit_items<T, E>(
        &self,
        mut chosen: impl FnMut(u64) -> bool,
        mut read: impl FnMut(Occupied, u64) -> T,
        mut visit: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        for bucket in Buckets::new(self) {
            for slot in 0..self.shape.slots {
                let pin = self.pin_reader(thread_number());
                let Some(at) = bucket.offset(self) else { break };
                let addr = self.shape.slot_addr(at, slot);
                let state = self.medium.load(addr.state);
                if state == EMPTY || state == BUSY || !chosen(state) {
                    continue;
                }
                let item = self.read_slot(addr, |record| read(Occupied { addr, record }, state));
                drop(pin);
                if let Some((_, item)) = item {
                    visit(item)?;
                }
            }
        }
        Ok(())
    }
}

impl<'t, M: Medium, K: Pod, V: Pod> Items<'t, M, K, V> {
    pub(crate) fn new(table: &'t Table<M>) -> Self {
        Self {
            buckets: Buckets::new(table),
            ready: Vec::new(),
            types: PhantomData,
        }
    }

    /// Copies the members of one bucket, pinned.
    fn read_bucket(&mut self, bucket: Bucket) {
        let table = self.buckets.table;
        let _pin = table.pin_reader(thread_number());
        let Some(at) = bucket.offset(table) else {
            return;
        };
        for slot in 0..table.shape.slots {
            let addr = table.shape.slot_addr(at, slot);
            let read = table.read_slot(addr, |_| {
                let mut key = K::zeroed();
                match bucket.key() {
                    Some(word) => {
                        bytemuck::bytes_of_mut(&mut key).copy_from_slice(&word.to_le_bytes())
                    }
                    None => table.read_key(addr, bytemuck::bytes_of_mut(&mut key)),
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

impl<M: Medium, K: Pod, V: Pod> Iterator for Items<'_, M, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.ready.is_empty() {
            let bucket = self.buckets.next()?;
            self.read_bucket(bucket);
        }
        self.ready.pop()
    }
}
