//! Iterating over all items.

use std::marker::PhantomData;
use std::ops::Range;

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
    /// The number of the first one behind them.
    end: u64,
    _walking: Walking<'t>,
}

/// Which bucket. Where it is, is known only while the caller is pinned.
#[derive(Clone, Copy)]
pub(super) enum Bucket {
    Reserved(u32),
    /// Numbered as in a heap: level *l* has those from 2^*l* on.
    Level(u64),
}

impl Bucket {
    /// Offset of the bucket, valid while the caller is pinned; `None` if its level has been emptied,
    /// and may hold records now.
    pub(super) fn offset<M: Medium>(self, table: &Table<M>) -> Option<u64> {
        match self {
            Self::Reserved(bucket) => Some(reserved_bucket_at(bucket)),
            Self::Level(number) => {
                let level = number.ilog2();
                let index = number - (1 << level);
                let is_live = table.bucket_numbers().contains(&number);
                is_live.then(|| table.levels.offset(level) + index * table.shape.bucket_size)
            }
        }
    }

    /// The key that all its items have, if it is a reserved one.
    fn key(self) -> Option<u64> {
        match self {
            Self::Reserved(0) => Some(EMPTY),
            Self::Reserved(_) => Some(BUSY),
            Self::Level(_) => None,
        }
    }
}

impl<'t, M: Medium> Buckets<'t, M> {
    pub(super) fn new(table: &'t Table<M>) -> Self {
        let first = match table.shape.key_class() {
            KeyClass::Word => Bucket::Reserved(0),
            KeyClass::Wide | KeyClass::Variable => Bucket::Level(1),
        };
        Self::between(table, first, u64::MAX)
    }

    /// Those from one to before another, as far as there are some.
    fn between(table: &'t Table<M>, next: Bucket, end: u64) -> Self {
        table.finish_draining_quietly();
        Self {
            table,
            next,
            end,
            _walking: table.walk_levels(),
        }
    }
}

impl<M: Medium> Iterator for Buckets<'_, M> {
    type Item = Bucket;

    fn next(&mut self) -> Option<Bucket> {
        if let Bucket::Level(number) = &mut self.next {
            let live = self.table.bucket_numbers();
            *number = live.start.max(*number);
            if *number >= live.end.min(self.end) {
                return None;
            }
        }
        let this = self.next;
        self.next = match this {
            Bucket::Reserved(0) => Bucket::Reserved(1),
            Bucket::Reserved(_) => Bucket::Level(1),
            Bucket::Level(number) => Bucket::Level(number + 1),
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

    /// The numbers of the live buckets. They may be others at once.
    pub(crate) fn bucket_numbers(&self) -> Range<u64> {
        let levels = self.levels.live();
        1 << levels.bottom..2 << levels.top
    }

    /// Calls `visit` with what `read` makes of every item of variable length in some of the buckets whose
    /// fingerprint is `chosen`, until it fails. The caller is not pinned, nor is `visit`, but `read` is.
    pub(crate) fn visit_items<T, E>(
        &self,
        buckets: Range<u64>,
        mut chosen: impl FnMut(u64) -> bool,
        mut read: impl FnMut(Occupied, u64) -> T,
        mut visit: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut slots = Vec::new();
        for bucket in Buckets::between(self, Bucket::Level(buckets.start), buckets.end) {
            let pin = self.pin_reader(thread_number());
            let Some(at) = bucket.offset(self) else {
                continue;
            };
            for slot in 0..self.shape.slots {
                let addr = self.shape.slot_addr(at, slot);
                let state = self.medium.load(addr.state);
                if state != EMPTY && state != BUSY && chosen(state) {
                    // Records are anywhere: what they take to come is waited for once.
                    let record = RecordWord(self.medium.load(addr.record));
                    self.medium.prefetch(record.offset());
                    slots.push((slot, state));
                }
            }
            drop(pin);
            for (slot, state) in slots.drain(..) {
                let pin = self.pin_reader(thread_number());
                let Some(at) = bucket.offset(self) else { break };
                let addr = self.shape.slot_addr(at, slot);
                let read = |record| read(Occupied { addr, record }, state);
                let is_same = self.medium.load(addr.state) == state;
                let item = is_same.then(|| self.read_slot(addr, read));
                drop(pin);
                if let Some((_, item)) = item.flatten() {
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
