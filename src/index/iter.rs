//! Iterating over all items.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::table::Table;
use super::target::reserved_bucket_at;
use crate::layout::{BUSY, EMPTY, KeyClass, RecordWord};
use crate::pm::Medium;
use crate::sync::thread_number;

/// Iterator over the items of an index; see [`Index::iter`](crate::Index::iter).
pub struct Iter<'t, M: Medium, K, V> {
    table: &'t Table<M>,
    /// Buckets still to come: level (`None` for the reserved buckets), bucket.
    level: Option<u32>,
    bucket: u64,
    ready: Vec<(K, V)>,
    types: PhantomData<(K, V)>,
}

impl<'t, M: Medium, K: Pod, V: Pod> Iter<'t, M, K, V> {
    pub(crate) fn new(table: &'t Table<M>) -> Self {
        table.finish_draining_quietly();
        Self {
            table,
            level: None,
            bucket: 0,
            ready: Vec::new(),
            types: PhantomData,
        }
    }

    /// Offset of the next bucket, and the key that all its items have if it is a reserved one.
    fn next_bucket(&mut self) -> Option<(u64, Option<u64>)> {
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

    /// Copies the members of one bucket, pinned.
    fn read_bucket(&mut self, at: u64, reserved: Option<u64>) {
        let table = self.table;
        let _pin = table.pin(thread_number());
        for slot in 0..table.shape.slots {
            let place = table.shape.slot_place(at, slot);
            loop {
                let record = RecordWord(table.medium.load(place.record));
                let state = table.medium.load(place.state);
                if state == EMPTY || state == BUSY || !record.is_member() {
                    break;
                }
                let mut key = K::zeroed();
                match reserved {
                    Some(word) => {
                        bytemuck::bytes_of_mut(&mut key).copy_from_slice(&word.to_le_bytes())
                    }
                    None => table.read_key(place, bytemuck::bytes_of_mut(&mut key)),
                }
                if table.medium.load(place.record) != record.0 {
                    continue;
                }
                if table.record_in_bounds(record) {
                    let mut value = V::zeroed();
                    table
                        .medium
                        .read(record.offset(), bytemuck::bytes_of_mut(&mut value));
                    self.ready.push((key, value));
                }
                break;
            }
        }
    }
}

impl<M: Medium, K: Pod, V: Pod> Iterator for Iter<'_, M, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.ready.is_empty() {
            let (at, reserved) = self.next_bucket()?;
            self.read_bucket(at, reserved);
        }
        self.ready.pop()
    }
}
