//! Reads of several partitions at one moment.

use std::ops::Range;

use super::Partitions;
use crate::Result;
use crate::pool::{parallel, run_off_pool};
use crate::store::columns::{Columns, PART_VALUES, ValueColumns, ValuesPart, concat};
use crate::store::inner::{PARALLEL_LOOKUPS_MIN, UNREGISTERED_READS};
use crate::store::mvcc::old_versions::Value;
use crate::store::request::check_key;

/// Keys that a partition has, and their positions among those that are asked for.
struct KeysOf<'k> {
    number: usize,
    keys: Vec<&'k [u8]>,
    positions: Vec<usize>,
}

impl Partitions {
    /// Which partition has which of these keys.
    fn share_out_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Vec<KeysOf<'k>> {
        let none = |number| KeysOf {
            number,
            keys: Vec::new(),
            positions: Vec::new(),
        };
        let mut shares: Vec<KeysOf> = (0..self.all().len()).map(none).collect();
        for (position, key) in keys.enumerate() {
            let share = &mut shares[self.number_of(key)];
            share.keys.push(key);
            share.positions.push(position);
        }
        shares.retain(|share| !share.keys.is_empty());
        shares
    }

    /// What `read` finds in all partitions at one moment. It is given none, and reads what is newest, and if that
    /// changes meanwhile the number of a live snapshot.
    fn at_one_moment<T>(&self, read: impl Fn(Option<u64>) -> Result<T>) -> Result<T> {
        if let Some(only) = self.only() {
            return only.state.at_one_moment(read);
        }
        let newest = || -> Vec<u64> {
            let partitions = self.all().iter();
            partitions.map(|one| one.state.published.newest()).collect()
        };
        for _ in 0..UNREGISTERED_READS {
            let before = newest();
            let found = read(None);
            let clock = &self.shared().clock;
            // A commit that some of them have and others do not is published all the while.
            let is_whole = !(0..self.all().len()).any(|number| clock.is_publishing(number));
            if is_whole && newest() == before {
                return found;
            }
        }
        let snapshot = self.snapshot();
        read(Some(snapshot.commit_seq))
    }

    /// The values of keys at one moment, in their order. `parallel` keys or more are asked for by several threads.
    pub fn get_many(&self, keys: &[&[u8]], parallel: usize) -> Result<Vec<Value>> {
        if let Some(partition) = self.of_all(keys.iter().copied()) {
            return partition.state.get_many(keys, parallel);
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        let shares = self.share_out_keys(keys.iter().copied());
        let read = |is_shared: bool| {
            self.at_one_moment(|snapshot| self.lookup(&shares, keys.len(), snapshot, is_shared))
        };
        match keys.len() < parallel {
            true => read(false),
            false => run_off_pool(|| self.shared().threads.reads.install(|| read(true))),
        }
    }

    /// The values that keys had in a live snapshot, in their order.
    pub fn get_many_at(&self, keys: &[&[u8]], commit_seq: u64) -> Result<Vec<Value>> {
        if let Some(partition) = self.of_all(keys.iter().copied()) {
            return partition.state.get_many_at(keys, commit_seq);
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        let shares = self.share_out_keys(keys.iter().copied());
        let read = |is_shared| self.lookup(&shares, keys.len(), Some(commit_seq), is_shared);
        match keys.len() {
            0..PARALLEL_LOOKUPS_MIN => read(false),
            _ => run_off_pool(|| self.shared().threads.reads.install(|| read(true))),
        }
    }

    /// The values of so many keys in a live snapshot, or the newest ones. With `is_shared`, the threads of the pool in
    /// which the caller is do it side by side.
    fn lookup(
        &self,
        shares: &[KeysOf],
        len: usize,
        snapshot: Option<u64>,
        is_shared: bool,
    ) -> Result<Vec<Value>> {
        let read = |share: &KeysOf| {
            let state = &self.all()[share.number].state;
            state.lookup(&share.keys, snapshot, usize::MAX)
        };
        let found: Vec<Result<Vec<Value>>> = match is_shared {
            true => parallel::map(shares, read),
            false => shares.iter().map(read).collect(),
        };
        let mut values = vec![None; len];
        for (share, found) in shares.iter().zip(found) {
            for (&position, value) in share.positions.iter().zip(found?) {
                values[position] = value;
            }
        }
        Ok(values)
    }

    /// The values of keys in columns in a live snapshot, or at one moment.
    pub fn read_columns(&self, keys: &Columns, snapshot: Option<u64>) -> Result<ValueColumns> {
        let at_that_moment = |read: &dyn Fn(Option<u64>) -> Result<Vec<ValuesPart>>| match snapshot
        {
            Some(_) => read(snapshot),
            None => self.at_one_moment(read),
        };
        if keys.len() < PARALLEL_LOOKUPS_MIN {
            let read = |snapshot| Ok(vec![self.read_part(keys, 0..keys.len(), snapshot)?]);
            return Ok(concat(at_that_moment(&read)?));
        }
        let threads = &self.shared().threads.reads;
        run_off_pool(|| {
            let parts = at_that_moment(&|snapshot| {
                let firsts = (0..keys.len()).step_by(PART_VALUES);
                let part = |first: usize| {
                    let end = keys.len().min(first + PART_VALUES);
                    self.read_part(keys, first..end, snapshot)
                };
                let parts = threads.install(|| parallel::map(firsts, part));
                parts.into_iter().collect::<Result<_>>()
            })?;
            Ok(threads.install(|| concat(parts)))
        })
    }

    /// The values of the keys at these positions in a live snapshot, or the newest ones.
    fn read_part(
        &self,
        keys: &Columns,
        positions: Range<usize>,
        snapshot: Option<u64>,
    ) -> Result<ValuesPart> {
        let mut part = ValuesPart::nulls(positions.len());
        for share in self.share_out_keys(positions.map(|nth| keys.at(nth))) {
            let state = &self.all()[share.number].state;
            match snapshot {
                None => state.read_up_to(&share.keys, u64::MAX, usize::MAX, |nth, value| {
                    part.set(share.positions[nth], value);
                })?,
                Some(_) => {
                    let values = state.lookup(&share.keys, snapshot, usize::MAX)?;
                    for (&position, value) in share.positions.iter().zip(values) {
                        if let Some(value) = value {
                            part.set(position, &value);
                        }
                    }
                }
            }
        }
        Ok(part)
    }
}
