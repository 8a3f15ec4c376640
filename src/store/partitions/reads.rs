//! Reads of several partitions at one moment.

use std::borrow::Cow;

use fixedbitset::FixedBitSet;

use super::Partitions;
use crate::Result;
use crate::index::bytes::BytesIndex;
use crate::pool::{parallel, run_off_pool};
use crate::store::columns::PART_VALUES;
use crate::store::inner::{PARALLEL_LOOKUPS_MIN, UNREGISTERED_READS};
use crate::store::mvcc::old_versions::Value;
use crate::store::request::check_key;
use crate::store::resident::tiers::EntryMeta;
use crate::width::low_byte;

/// Keys that a partition has, and their positions among those that are asked for.
pub(super) struct KeysOf<'k> {
    number: usize,
    keys: Vec<&'k [u8]>,
    pub positions: Vec<usize>,
    /// Where the keys' records may be, if a GPU was asked.
    pub hints: Vec<u64>,
}

impl Partitions {
    /// Which partition has which of these keys.
    fn share_out_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Vec<KeysOf<'k>> {
        self.share_out(keys.map(|key| (key, self.number_of(key), None)))
    }

    /// The same of keys whose partitions are known, and perhaps where their records may be.
    pub(super) fn share_out<'k>(
        &self,
        keys: impl Iterator<Item = (&'k [u8], usize, Option<u64>)>,
    ) -> Vec<KeysOf<'k>> {
        let none = |number| KeysOf {
            number,
            keys: Vec::new(),
            positions: Vec::new(),
            hints: Vec::new(),
        };
        let mut shares: Vec<KeysOf> = (0..self.all().len()).map(none).collect();
        let (len, _) = keys.size_hint();
        let of_each = len / shares.len();
        if of_each > 4 {
            // Most partitions have no more than that.
            let room = of_each + of_each / 4;
            for share in &mut shares {
                share.keys.reserve(room);
                share.positions.reserve(room);
            }
        }
        for (position, (key, number, hint)) in keys.enumerate() {
            let share = &mut shares[number];
            share.keys.push(key);
            share.positions.push(position);
            share.hints.extend(hint);
        }
        shares.retain(|share| !share.keys.is_empty());
        shares
    }

    /// What `read` finds in all partitions at one moment. It is given none, and reads what is newest, and if that
    /// changes meanwhile the number of a live snapshot.
    pub(super) fn at_one_moment<T>(
        &self,
        mut read: impl FnMut(Option<u64>) -> Result<T>,
    ) -> Result<T> {
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
        let read =
            |is_shared| self.at_one_moment(|snapshot| self.lookup(keys, snapshot, is_shared));
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
        let read = |is_shared| self.lookup(keys, Some(commit_seq), is_shared);
        match keys.len() {
            0..PARALLEL_LOOKUPS_MIN => read(false),
            _ => run_off_pool(|| self.shared().threads.reads.install(|| read(true))),
        }
    }

    /// The values of keys in a live snapshot, or the newest ones. With `is_shared`, the threads of the pool in which the
    /// caller is do it side by side.
    fn lookup(&self, keys: &[&[u8]], snapshot: Option<u64>, is_shared: bool) -> Result<Vec<Value>> {
        let read = |keys: &[&[u8]]| -> Result<Vec<Value>> {
            let mut values = vec![None; keys.len()];
            let found = |nth: usize, value: Cow<'_, [u8]>| values[nth] = Some(value.into_owned());
            self.read(keys.len(), |nth| keys[nth], snapshot, found)?;
            Ok(values)
        };
        if !is_shared {
            return read(keys);
        }
        let parts = parallel::map(keys.chunks(PART_VALUES), read);
        let mut values = Vec::with_capacity(keys.len());
        for part in parts {
            values.extend(part?);
        }
        Ok(values)
    }

    /// Gives `found` position and value of each of `len` keys that has one in a live snapshot, or the newest one.
    pub(super) fn read<'k>(
        &self,
        len: usize,
        key: impl Fn(usize) -> &'k [u8] + Copy,
        snapshot: Option<u64>,
        mut found: impl FnMut(usize, Cow<'_, [u8]>) + Send,
    ) -> Result<()> {
        if snapshot.is_none() && self.all().iter().all(|one| one.state.published.is_quiet()) {
            let number = |nth| low_byte(self.number_of(key(nth)) as u64);
            let numbers: Vec<u8> = (0..len).map(number).collect();
            return self.read_tables(&numbers, key, found);
        }
        for share in self.share_out_keys((0..len).map(key)) {
            self.read_share(&share, snapshot, &mut found)?;
        }
        Ok(())
    }

    /// The same of keys that one partition has.
    pub(super) fn read_share(
        &self,
        share: &KeysOf,
        snapshot: Option<u64>,
        mut found: impl FnMut(usize, Cow<'_, [u8]>) + Send,
    ) -> Result<()> {
        let KeysOf {
            keys,
            positions,
            hints,
            ..
        } = share;
        let state = &self.all()[share.number].state;
        if snapshot.is_none() {
            let found = |nth: usize, value: Cow<'_, [u8]>| found(positions[nth], value);
            return state.read_up_to(keys, hints, u64::MAX, usize::MAX, found);
        }
        let values = state.lookup(keys, hints, snapshot, usize::MAX)?;
        for (&position, value) in positions.iter().zip(values) {
            if let Some(value) = value {
                found(position, value.into());
            }
        }
        Ok(())
    }

    /// Gives `found` position and newest value of each key that has one, of partitions of these numbers whose tables have
    /// all commits. One key comes after the other, whatever partition has it: the memory of the next ones is always on
    /// its way.
    pub(super) fn read_tables<'k>(
        &self,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8] + Copy,
        mut found: impl FnMut(usize, Cow<'_, [u8]>),
    ) -> Result<()> {
        let (all, len) = (self.all(), numbers.len());
        let tiers = |nth: usize| &all[usize::from(numbers[nth])].state.tiers;
        if all[0].state.tiers.access_counts.is_some() {
            (0..len).for_each(|nth| tiers(nth).count(key(nth)));
        }
        let mut above = FixedBitSet::with_capacity(len);
        BytesIndex::get_many_of(
            |number| self.index(number),
            numbers,
            key,
            |nth, stamp, value| {
                above.insert(nth);
                if !EntryMeta(stamp).is_tombstone() {
                    found(nth, value);
                }
            },
        )?;
        let mut left: Vec<usize> = above.zeroes().collect();
        left.sort_unstable_by_key(|&nth| numbers[nth]);
        for left in left.chunk_by(|&one, &next| numbers[one] == numbers[next]) {
            let keys = left.iter().map(|&nth| (nth, key(nth)));
            tiers(left[0]).read_left(keys, &mut found)?;
        }
        Ok(())
    }
}
