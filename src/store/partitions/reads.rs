//! Reads of several partitions at one moment.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use fixedbitset::FixedBitSet;

use super::Partitions;
use crate::Result;
use crate::index::bytes::BytesIndex;
use crate::pool::{parallel, run_off_pool};
use crate::store::columns::PART_VALUES;
use crate::store::inner::PARALLEL_LOOKUPS_MIN;
use crate::store::mvcc::old_versions::{OldVersion, Value};
use crate::store::mvcc::published::Published;
use crate::store::request::check_key;
use crate::store::resident::tiers::{Below, EntryMeta};
use crate::width::low_byte;

/// How often a reader of several keys tries without a snapshot, for which changes keep old versions.
const UNREGISTERED_READS: usize = 2;

/// What a snapshot sees.
pub(super) enum Seen {
    /// Of some keys, by their positions.
    Some(Vec<(usize, Value)>),
    /// Of each key.
    All(Vec<Value>),
}

impl Partitions {
    /// What `read` finds in all partitions at one moment. It is given none, and reads what is newest, and if that
    /// changes meanwhile the number of a live snapshot. If it `is_long`, it is given one at once after a long read that
    /// others have changed something beside.
    pub(super) fn at_one_moment<T>(
        &self,
        is_long: bool,
        mut read: impl FnMut(Option<u64>) -> Result<T>,
    ) -> Result<T> {
        // Each only grows, and so does their sum.
        let newest = || -> u64 {
            let newest = self.all().iter().map(|one| one.state.published.newest());
            newest.fold(0, u64::wrapping_add)
        };
        let tries = match is_long {
            true => usize::from(!self.was_overtaken.load(Ordering::Relaxed)),
            false => UNREGISTERED_READS,
        };
        for _ in 0..tries {
            let before = newest();
            let found = read(None);
            let clock = &self.shared().clock;
            // A commit that some of them have and others do not is published all the while.
            let is_publishing = |number| clock.is_publishing(number);
            let is_whole = self.only().is_some() || !(0..self.all().len()).any(is_publishing);
            if is_whole && newest() == before {
                return found;
            }
        }
        let before = newest();
        let snapshot = self.snapshot();
        let found = read(Some(snapshot.commit_seq));
        if is_long {
            let is_overtaken = newest() != before;
            self.was_overtaken.store(is_overtaken, Ordering::Relaxed);
        }
        found
    }

    /// The values of keys at one moment, in their order. `parallel` keys or more are asked for by several threads.
    pub fn get_many(&self, keys: &[&[u8]], parallel: usize) -> Result<Vec<Value>> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let read =
            |is_long| self.at_one_moment(is_long, |snapshot| self.lookup(keys, snapshot, is_long));
        match keys.len() < parallel {
            true => read(false),
            false => run_off_pool(|| self.shared().threads.reads.install(|| read(true))),
        }
    }

    /// The values that keys had in a live snapshot, in their order.
    pub fn get_many_at(&self, keys: &[&[u8]], commit_seq: u64) -> Result<Vec<Value>> {
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
            let key = |nth: usize| keys[nth];
            let numbers = || self.numbers(keys.len(), key);
            let found = |nth: usize, value: Cow<'_, [u8]>| values[nth] = Some(value.into_owned());
            let read = match self.only() {
                Some(only) => {
                    let moment = snapshot.unwrap_or(u64::MAX);
                    only.state.read_up_to(keys, &[], moment, found)
                }
                None => self.read(&numbers(), key, snapshot, found),
            };
            let Some(snapshot) = snapshot else {
                return read.map(|()| values);
            };
            match self.seen(&numbers(), key, snapshot, read)? {
                Seen::Some(seen) => seen
                    .into_iter()
                    .for_each(|(nth, value)| values[nth] = value),
                Seen::All(all) => values = all,
            }
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

    /// The numbers of the partitions that have so many keys.
    pub(super) fn numbers<'k>(&self, len: usize, key: impl Fn(usize) -> &'k [u8]) -> Vec<u8> {
        let number = |nth| low_byte(self.number_of(key(nth)) as u64);
        (0..len).map(number).collect()
    }

    /// Gives `found` position and value of each key that has one, of partitions of these numbers: the newest one or, with a
    /// live snapshot, that of its moment or of a later one. Then [`seen`](Self::seen) has what the snapshot sees.
    pub(super) fn read<'k>(
        &self,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8] + Copy,
        snapshot: Option<u64>,
        mut found: impl FnMut(usize, Cow<'_, [u8]>) + Send,
    ) -> Result<()> {
        let published = self.all().iter().map(|one| &*one.state.published);
        if published.clone().all(Published::is_quiet) {
            return self.read_tables(numbers, key, found);
        }
        let is_busy = |published: &&Published| !published.is_quiet();
        let published: Vec<Option<&Published>> = published
            .map(|published| Some(published).filter(is_busy))
            .collect();
        let moment = snapshot.unwrap_or(u64::MAX);
        let mut asked: Vec<usize> = Vec::with_capacity(numbers.len());
        for (nth, &number) in numbers.iter().enumerate() {
            let published = published[usize::from(number)];
            match published.and_then(|published| published.value(key(nth), moment)) {
                Some(Some(value)) => found(nth, value.into()),
                Some(None) => {}
                None => asked.push(nth),
            }
        }
        let numbers: Vec<u8> = asked.iter().map(|&nth| numbers[nth]).collect();
        let key = |of_asked: usize| key(asked[of_asked]);
        self.read_tables(&numbers, key, |nth, value| found(asked[nth], value))
    }

    /// What a live snapshot sees of keys of partitions of these numbers, where that is not what tables have given since, if they
    /// have `given`.
    ///
    /// # Errors
    /// Those of the tables, unless it is damage that the snapshot does not see, and those of the files of old versions.
    pub(super) fn seen<'k>(
        &self,
        numbers: &[u8],
        key: impl Fn(usize) -> &'k [u8] + Copy,
        snapshot: u64,
        given: Result<()>,
    ) -> Result<Seen> {
        let len = numbers.len();
        if given.is_err() {
            let value = |nth| self.of(key(nth)).state.get_at(key(nth), snapshot);
            return (0..len).map(value).collect::<Result<_>>().map(Seen::All);
        }
        let mut seen: Vec<(usize, OldVersion)> = Vec::new();
        let states = self.all().iter().map(|one| &one.state);
        for (number, state) in (0..=u8::MAX).zip(states) {
            let Some(old_versions) = state.old_versions_at(snapshot) else {
                continue;
            };
            let keys = (0..len).filter(|&nth| numbers[nth] == number);
            let version = |nth| Some((nth, old_versions.value(key(nth), snapshot)?.clone()));
            seen.extend(keys.filter_map(version));
        }
        // Nobody waits while files are read.
        let value = |(nth, version): (usize, OldVersion)| Ok((nth, version.into_value()?));
        let seen = seen.into_iter().map(value);
        seen.collect::<Result<_>>().map(Seen::Some)
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
        if above.is_full() {
            return Ok(());
        }
        // Not earlier: what leaves a table is in a file before.
        let mut below: Vec<Option<Below>> = all.iter().map(|_| None).collect();
        for number in above.zeroes().map(|nth| usize::from(numbers[nth])) {
            if below[number].is_none() {
                below[number] = all[number].state.tiers.below();
            }
        }
        let left = above.zeroes().filter_map(|nth| {
            let below = below[usize::from(numbers[nth])].as_ref()?;
            Some((nth, key(nth), below))
        });
        Below::read(left, found)
    }
}
