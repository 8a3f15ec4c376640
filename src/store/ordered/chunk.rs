//! A chunk of the ordered view: neighbouring keys, in order, of each a few bytes, its partition and its
//! fingerprint.

use std::cmp::Ordering;
use std::ops::Range;

use super::Item;
use super::page::Filling;
use crate::store::mvcc::old_versions::Value;
use crate::table::item::{ItemId, Wanted};
use crate::{Error, Result};

/// Bytes of a key that a chunk holds behind the prefix that all its keys share.
const TAIL_BYTES: usize = 6;

type Tail = [u8; TAIL_BYTES];

/// Most keys that are read without need when a range begins.
const RUN_KEYS_MAX: usize = 4;

/// Where the view finds the keys of an id: mostly one.
pub trait Keys {
    /// The keys, in no order.
    ///
    /// # Errors
    /// What reading them meets.
    fn keys(&self, id: ItemId) -> Result<Vec<Vec<u8>>>;

    /// The error for an item that should be there and is not.
    fn lost(&self, id: ItemId) -> Error;
}

/// Where the view finds the items of an id.
pub trait Items: Keys {
    /// Keys and, if they are wanted, values, in no order. Else values are empty.
    ///
    /// # Errors
    /// As [`keys`](Keys::keys).
    fn items(&self, id: ItemId, wanted: Wanted) -> Result<Vec<Item>>;

    /// Gives `sink` one of the items of each id that has one, in the order of the ids: reading many at a time is
    /// faster.
    ///
    /// # Errors
    /// As [`keys`](Keys::keys).
    fn visit(&self, ids: &[ItemId], sink: &mut impl Sink) -> Result<()>;
}

/// Takes what is read.
pub trait Sink {
    /// What is wanted of the item at a position, with this key and a value of so many bytes: [the
    /// end](Wanted::End) says that nothing more is.
    fn wanted(&mut self, nth: usize, key: &[u8], value_bytes: u64) -> Wanted;

    /// Takes the item, of which something was wanted. Of one of which only the key was, the value is empty.
    fn take(&mut self, key: &[u8], value: impl FnOnce() -> Value);
}

/// Fills a page with the items of a chunk's entries, until one comes that may not be the item of its entry.
struct Reading<'c, 'f, 'b, E> {
    chunk: &'c Chunk,
    /// The entries that have not been read.
    coming: E,
    /// How many have.
    read: usize,
    /// Nothing was found of the next one, or something that may be another's.
    is_unsure: bool,
    filling: &'f mut Filling<'b>,
}

impl<E: Iterator<Item = usize>> Sink for Reading<'_, '_, '_, E> {
    fn wanted(&mut self, nth: usize, key: &[u8], value_bytes: u64) -> Wanted {
        if self.is_unsure || self.filling.missing() == 0 {
            return Wanted::End;
        }
        if nth != self.read {
            self.is_unsure = true;
            return Wanted::End;
        }
        let entry = self.coming.next().expect("each is given once");
        if !self.chunk.is_only(entry, key) {
            self.is_unsure = true;
            return Wanted::End;
        }
        self.filling.wanted(key, value_bytes)
    }

    fn take(&mut self, key: &[u8], value: impl FnOnce() -> Value) {
        self.filling.take(key, value);
        self.read += 1;
    }
}

/// Keys in order. What stands in a chunk says which of two keys is the lesser in most cases; the
/// index does in the others.
///
/// Different keys can have one id. If their tails are equal too, their entries are, and the
/// *n*th of them is that of the *n*th key.
#[derive(Debug, Default, Clone)]
pub struct Chunk {
    prefix: Box<[u8]>,
    /// What follows the prefix, filled up with zeros.
    tails: Vec<Tail>,
    tables: Vec<u8>,
    fingerprints: Vec<u64>,
}

/// How many bytes two keys have in common from their start on.
pub fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Chunk {
    /// The chunk of keys in order.
    pub fn of(keys: &[(&[u8], ItemId)]) -> Self {
        let (Some((first, _)), Some((last, _))) = (keys.first(), keys.last()) else {
            return Self::default();
        };
        let mut chunk = Self {
            prefix: first[..common(first, last)].into(),
            ..Self::default()
        };
        chunk.tails = keys.iter().map(|(key, _)| chunk.tail(key)).collect();
        chunk.tables = keys.iter().map(|(_, id)| id.table).collect();
        chunk.fingerprints = keys.iter().map(|(_, id)| id.fingerprint).collect();
        chunk
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.tails.len()
    }

    /// Bytes of memory behind this.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        let entries = self.tails.capacity() * TAIL_BYTES
            + self.tables.capacity()
            + self.fingerprints.capacity() * 8;
        self.prefix.len() + entries
    }

    /// Where the item of an entry is.
    fn id(&self, nth: usize) -> ItemId {
        ItemId {
            table: self.tables[nth],
            fingerprint: self.fingerprints[nth],
        }
    }

    /// Has a page filled with the items of some entries, in their order, as far as they go into it. Gives how many were
    /// read: none only if it has no room.
    ///
    /// # Errors
    /// Those of the source.
    pub fn read(
        &self,
        entries: impl Iterator<Item = usize> + Clone,
        source: &impl Items,
        filling: &mut Filling,
    ) -> Result<usize> {
        let ids: Vec<ItemId> = entries.clone().map(|nth| self.id(nth)).collect();
        let mut reading = Reading {
            chunk: self,
            coming: entries.clone(),
            read: 0,
            is_unsure: false,
            filling,
        };
        let visited = source.visit(&ids, &mut reading);
        let Reading {
            read, is_unsure, ..
        } = reading;
        match visited {
            // The next page begins with what is damaged, and tells of it.
            Err(Error::Damaged { .. }) if filling.end_early() => return Ok(read),
            visited => visited?,
        }
        // What was not given either, if the page has room for it, is missing.
        if read == ids.len() || !is_unsure && filling.missing() == 0 {
            return Ok(read);
        }
        let nth = entries.clone().nth(read).expect("it has not been read");
        let id = ids[read];
        let chosen = self.choose(nth, source.items(id, filling.what())?, |(key, _)| key);
        match chosen {
            Some(item) => Ok(read + usize::from(filling.take_read(item))),
            // It has left its table meanwhile.
            None if filling.end_early() => Ok(read),
            None => Err(source.lost(id)),
        }
    }

    /// Whether `key`, which has the id of entry `nth`, can only be the one of this entry.
    fn is_only(&self, nth: usize, key: &[u8]) -> bool {
        let tail = self.tails[nth];
        let neighbour = |other: usize| self.tails.get(other) == Some(&tail);
        let is_here = key.starts_with(&self.prefix) && self.tail(key) == tail;
        let alone = !neighbour(nth + 1) && !nth.checked_sub(1).is_some_and(neighbour);
        is_here && (alone || self.twins(key, self.id(nth)).len() == 1)
    }

    /// What is kept of a key with the chunk's prefix.
    fn tail(&self, key: &[u8]) -> Tail {
        tail_of(&key[self.prefix.len()..])
    }

    /// The keys that the chunk cannot tell from `key`, or where they would be.
    fn run(&self, key: &[u8]) -> Range<usize> {
        let head = &key[..key.len().min(self.prefix.len())];
        match head.cmp(&self.prefix) {
            Ordering::Less => 0..0,
            Ordering::Greater => self.len()..self.len(),
            Ordering::Equal => self.run_of(self.tail(key)),
        }
    }

    fn run_of(&self, tail: Tail) -> Range<usize> {
        let start = self
            .tails
            .partition_point(|other| number(*other) < number(tail));
        let equal = self.tails[start..]
            .iter()
            .take_while(|other| **other == tail);
        start..start + equal.count()
    }

    /// Which of `found`, the keys or items of its id, entry `nth` stands for.
    pub fn choose<T>(&self, nth: usize, found: Vec<T>, key: impl Fn(&T) -> &[u8]) -> Option<T> {
        let tail = self.tails[nth];
        let id = self.id(nth);
        let is_here = |found: &T| {
            let key = key(found);
            key.starts_with(&self.prefix) && self.tail(key) == tail
        };
        let mut found: Vec<T> = found.into_iter().filter(is_here).collect();
        if found.len() > 1 {
            found.sort_by(|a, b| key(a).cmp(key(b)));
        }
        let run = self.run_of(tail);
        let before = (run.start..nth).filter(|&other| self.id(other) == id);
        let before = before.count();
        found.into_iter().nth(before)
    }

    /// A key.
    ///
    /// # Errors
    /// Those of the source.
    pub fn key(&self, nth: usize, source: &impl Keys) -> Result<Vec<u8>> {
        let id = self.id(nth);
        self.choose(nth, source.keys(id)?, |key| key)
            .ok_or_else(|| source.lost(id))
    }

    /// How many keys are less than `key`.
    ///
    /// # Errors
    /// Those of the source.
    pub fn rank(&self, key: &[u8], source: &impl Keys) -> Result<usize> {
        let mut run = self.run(key);
        while !run.is_empty() {
            let middle = run.start + run.len() / 2;
            match self.key(middle, source)?.as_slice() < key {
                true => run.start = middle + 1,
                false => run.end = middle,
            }
        }
        Ok(run.start)
    }

    /// An entry at or before the first one whose key is not less than `key`. Keys of the first
    /// entries may be less: reading them with the others takes less time than asking for them
    /// first.
    ///
    /// # Errors
    /// Those of the source.
    pub fn seek(&self, key: &[u8], source: &impl Keys) -> Result<usize> {
        let run = self.run(key);
        match run.len() <= RUN_KEYS_MAX {
            true => Ok(run.start),
            false => self.rank(key, source),
        }
    }

    /// Takes a key in or out, as the source has it or not: `is_there` says which.
    ///
    /// # Errors
    /// Those of the source; the chunk has the keys that it had.
    pub fn update(
        &mut self,
        key: &[u8],
        id: ItemId,
        is_there: bool,
        source: &impl Keys,
    ) -> Result<()> {
        if self.len() == 0 {
            self.prefix = key.into();
        } else if !key.starts_with(&self.prefix) {
            if !is_there {
                return Ok(());
            }
            self.shorten(common(key, &self.prefix));
        }
        let twins = self.twins(key, id);
        if twins.is_empty() {
            if is_there {
                let nth = self.rank(key, source)?;
                self.insert_at(nth, key, id);
            }
            return Ok(());
        }
        let keys = self.same_tail(key, source.keys(id)?);
        if twins.len() == keys.len() {
            return Ok(());
        }
        // All of one id come in again, in order: each then has its position.
        let mut changed = self.clone();
        for nth in twins.into_iter().rev() {
            changed.remove_at(nth);
        }
        for key in keys {
            let nth = changed.rank(&key, source)?;
            changed.insert_at(nth, &key, id);
        }
        *self = changed;
        Ok(())
    }

    /// Takes a key out that the source still has, if it has it.
    ///
    /// # Errors
    /// Those of the source; the chunk is as it was.
    pub fn remove(&mut self, key: &[u8], id: ItemId, source: &impl Keys) -> Result<()> {
        if self.len() == 0 || !key.starts_with(&self.prefix) {
            return Ok(());
        }
        let twins = self.twins(key, id);
        if twins.is_empty() {
            return Ok(());
        }
        let keys = self.same_tail(key, source.keys(id)?);
        if twins.len() != keys.len() {
            return Err(source.lost(id));
        }
        if let Some(nth) = keys.iter().position(|other| other == key) {
            self.remove_at(twins[nth]);
        }
        Ok(())
    }

    /// The entries of this id that may be those of `key`.
    fn twins(&self, key: &[u8], id: ItemId) -> Vec<usize> {
        self.run(key).filter(|&nth| self.id(nth) == id).collect()
    }

    /// Those of `keys` that the chunk cannot tell from `key`, in order.
    fn same_tail(&self, key: &[u8], mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let tail = self.tail(key);
        keys.retain(|other| other.starts_with(&self.prefix) && self.tail(other) == tail);
        keys.sort();
        keys
    }

    fn insert_at(&mut self, nth: usize, key: &[u8], id: ItemId) {
        let tail = self.tail(key);
        // Memory counts here, and copying a chunk costs little.
        if self.tails.len() == self.tails.capacity() {
            let more = self.tails.len() / 16 + 1;
            self.tails.reserve_exact(more);
            self.tables.reserve_exact(more);
            self.fingerprints.reserve_exact(more);
        }
        self.tails.insert(nth, tail);
        self.tables.insert(nth, id.table);
        self.fingerprints.insert(nth, id.fingerprint);
    }

    fn remove_at(&mut self, nth: usize) {
        self.tails.remove(nth);
        self.tables.remove(nth);
        self.fingerprints.remove(nth);
    }

    /// Makes the prefix one of `len` bytes.
    fn shorten(&mut self, len: usize) {
        let (prefix, rest) = self.prefix.split_at(len);
        for tail in &mut self.tails {
            *tail = tail_of(&[rest, tail.as_slice()].concat());
        }
        self.prefix = prefix.into();
    }

    /// Leaves the first `len` keys here and gives the others, with what separates them: a key that
    /// is greater than all here, and not greater than any there.
    ///
    /// # Errors
    /// Those of the source; the chunk is as it was.
    pub fn split(&mut self, len: usize, source: &impl Keys) -> Result<(Box<[u8]>, Self)> {
        let (last, first) = (self.key(len - 1, source)?, self.key(len, source)?);
        let separator = first[..=common(&last, &first)].into();
        let part = |range: Range<usize>| Self {
            prefix: self.prefix.clone(),
            tails: self.tails[range.clone()].to_vec(),
            tables: self.tables[range.clone()].to_vec(),
            fingerprints: self.fingerprints[range].to_vec(),
        };
        let (mut lower, mut upper) = (part(0..len), part(len..self.len()));
        lower.tighten(&self.key(0, source)?, &last, source)?;
        upper.tighten(&first, &self.key(self.len() - 1, source)?, source)?;
        *self = lower;
        Ok((separator, upper))
    }

    /// Makes the prefix longer, if that tells keys apart that could not be told before.
    fn tighten(&mut self, first: &[u8], last: &[u8], source: &impl Keys) -> Result<()> {
        let is_clear = self.tails.windows(2).all(|pair| pair[0] != pair[1]);
        if is_clear || common(first, last) == self.prefix.len() {
            return Ok(());
        }
        let keys: Vec<Vec<u8>> = (0..self.len())
            .map(|nth| self.key(nth, source))
            .collect::<Result<_>>()?;
        let with_ids = keys.iter().enumerate();
        let with_ids = with_ids.map(|(nth, key)| (key.as_slice(), self.id(nth)));
        *self = Self::of(&with_ids.collect::<Vec<_>>());
        Ok(())
    }

    /// Appends the chunk that follows.
    pub fn append(&mut self, mut next: Self) {
        if self.len() == 0 {
            *self = next;
        } else if next.len() > 0 {
            let len = common(&self.prefix, &next.prefix);
            self.shorten(len);
            next.shorten(len);
            self.tails.extend_from_slice(&next.tails);
            self.tables.extend_from_slice(&next.tables);
            self.fingerprints.extend_from_slice(&next.fingerprints);
        }
    }
}

/// A number that orders tails: it is compared without a call.
fn number(tail: Tail) -> u64 {
    let mut bytes = [0; 8];
    bytes[8 - TAIL_BYTES..].copy_from_slice(&tail);
    u64::from_be_bytes(bytes)
}

fn tail_of(rest: &[u8]) -> Tail {
    // Most keys are long enough, and a copy of known length takes no call.
    rest.first_chunk().copied().unwrap_or_else(|| {
        let mut tail = [0; TAIL_BYTES];
        tail[..rest.len()].copy_from_slice(rest);
        tail
    })
}
