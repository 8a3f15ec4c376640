//! The ordered view: all keys of all partitions in one order, in at most 16 bytes of memory a key.
//!
//! It is made when the first range is asked for, and kept from then on. Of a key it holds six bytes, and its
//! partition and fingerprint, by which the index there finds the item itself. Partitions change it side by side:
//! only those that change the same chunk wait for each other.

mod chunk;
mod page;
#[cfg(test)]
mod tests;
pub mod view;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Result;
use crate::store::files::manifest::PARTITIONS_MAX;
use crate::store::mvcc::old_versions::Value;
pub use crate::store::mvcc::read_set::Limits;
use crate::table::item::ItemId;
use chunk::common;
pub use chunk::{Chunk, Items, Keys, Sink};
use page::Filling;
pub use page::{PAGE_BYTES_MAX, Page, PageOf};

/// Most keys of a chunk; a longer one becomes two.
const CHUNK_KEYS_MAX: usize = 512;

/// Keys of a chunk when a view is made.
const CHUNK_KEYS_INITIAL: usize = 384;

/// A chunk of fewer keys is put together with the next one.
const CHUNK_KEYS_MIN: usize = 64;

/// Keys that an unfit chunk gains or loses until it is said again that it is.
const UNFIT_KEYS: usize = 16;

const _: () = assert!(PARTITIONS_MAX as usize <= 1 << u8::BITS);

/// Keys of the store, in order.
#[derive(Debug)]
pub struct OrderedView {
    /// Each by a key that is not greater than its own, and greater than all in the chunk before.
    /// There is always one of the empty key. A lock is held for a change of a few keys at most, or to take a count.
    chunks: BTreeMap<Box<[u8]>, Mutex<Arc<Chunk>>>,
}

/// Whether a chunk has about as many keys as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Size {
    Fits,
    /// It is too long or too short: the view is to be [balanced](OrderedView::balance).
    Unfit,
}

/// Neighbouring chunks of a view from where a page begins on, one behind the other from its end of the range. They
/// stay as they are while the view changes, so who reads what they name holds no lock.
#[derive(Debug)]
pub struct Chunks {
    chunks: Vec<Arc<Chunk>>,
    /// There are no others in that direction.
    are_all: bool,
}

/// A key, and its value or a tombstone.
pub type Item = (Vec<u8>, Value);

impl OrderedView {
    /// The view of keys in order.
    pub fn of(keys: &[(&[u8], ItemId)]) -> Self {
        let mut chunks = BTreeMap::new();
        let mut last: Option<&[u8]> = None;
        for part in keys.chunks(CHUNK_KEYS_INITIAL) {
            let first = part[0].0;
            let separator = last.map_or(&[][..], |last| &first[..=common(last, first)]);
            let chunk = Arc::new(Chunk::of(part));
            chunks.insert(separator.into(), Mutex::new(chunk));
            last = part.last().map(|(key, _)| *key);
        }
        chunks.entry([].into()).or_default();
        Self { chunks }
    }

    /// How many keys there are.
    pub fn len(&self) -> u64 {
        let len = |chunk: &Mutex<Arc<Chunk>>| chunk.lock().len() as u64;
        self.chunks.values().map(len).sum()
    }

    /// The chunk of a key, and what separates it from the one before.
    fn chunk_of(&self, key: &[u8]) -> (&[u8], &Mutex<Arc<Chunk>>) {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let chunk = self.chunks.range::<[u8], _>(upto).next_back();
        let (separator, chunk) = chunk.expect("there is a chunk of the empty key");
        (separator, chunk)
    }

    /// Takes a key in or out, as `source` has it or not: `is_there` says which.
    ///
    /// # Errors
    /// Those of the source; then the view may lack the key.
    pub fn update(
        &self,
        key: &[u8],
        id: ItemId,
        is_there: bool,
        source: &impl Keys,
    ) -> Result<Size> {
        self.change(key, |chunk| chunk.update(key, id, is_there, source))
    }

    /// Takes a key out that `source` still has, if it has it.
    ///
    /// # Errors
    /// Those of the source; the view is as it was.
    pub fn remove(&self, key: &[u8], id: ItemId, source: &impl Keys) -> Result<Size> {
        self.change(key, |chunk| chunk.remove(key, id, source))
    }

    fn change(&self, key: &[u8], change: impl FnOnce(&mut Chunk) -> Result<()>) -> Result<Size> {
        let (_, chunk) = self.chunk_of(key);
        let mut chunk = chunk.lock();
        let before = chunk.len();
        // Who reads it keeps what it was.
        change(Arc::make_mut(&mut chunk))?;
        let len = chunk.len();
        // Not each time, if there is nothing that could be done, or somebody is about to do it.
        let is_short = len < before && len < CHUNK_KEYS_MIN && len.is_multiple_of(UNFIT_KEYS);
        let is_long = len > CHUNK_KEYS_MAX && len % UNFIT_KEYS == 1;
        Ok(match is_short || is_long {
            true => Size::Unfit,
            false => Size::Fits,
        })
    }

    /// Divides the chunk of a key if it is too long, or puts it together with the next one if it is too short.
    ///
    /// # Errors
    /// Those of the source; the view is as it was.
    pub fn balance(&mut self, key: &[u8], source: &impl Keys) -> Result<()> {
        let (separator, chunk) = self.chunk_of(key);
        let len = chunk.lock().len();
        if len > CHUNK_KEYS_MAX {
            let (separator, upper) = Arc::make_mut(&mut chunk.lock()).split(len / 2, source)?;
            self.chunks.insert(separator, Mutex::new(Arc::new(upper)));
        } else if len < CHUNK_KEYS_MIN {
            let separator: Box<[u8]> = separator.into();
            self.join(&separator, len);
        }
        Ok(())
    }

    /// Puts the chunk of `separator`, which has so many keys, together with the next one, if that gives no long one.
    fn join(&mut self, separator: &[u8], len: usize) {
        let behind = (Bound::Excluded(separator), Bound::Unbounded);
        let next = self.chunks.range::<[u8], _>(behind).next();
        let is_short = |next: &Mutex<Arc<Chunk>>| len + next.lock().len() <= CHUNK_KEYS_INITIAL;
        let Some((next, _)) = next.filter(|(_, next)| is_short(next)) else {
            return;
        };
        let next = next.clone();
        if let Some(next) = self.chunks.remove(&next)
            && let Some(chunk) = self.chunks.get_mut(separator)
        {
            let next = Arc::unwrap_or_clone(next.into_inner());
            Arc::make_mut(chunk.get_mut()).append(next);
        }
    }

    /// The chunks in which a page from the start of a range begins, and so many entries behind the first of them.
    pub fn at_start(&self, range: Limits, entries: usize) -> Chunks {
        let from = start_of(range);
        let upto = (Bound::Unbounded, Bound::Included(from));
        let start = self.chunks.range::<[u8], _>(upto).next_back();
        let behind = (Bound::Excluded(from), Bound::Unbounded);
        let behind = self.chunks.range::<[u8], _>(behind);
        let chunks = start.into_iter().chain(behind);
        Chunks::of(chunks.map(|(_, chunk)| chunk), entries)
    }

    /// As [`at_start`](Self::at_start), for a page from the end of a range.
    pub fn at_end(&self, range: Limits, entries: usize) -> Chunks {
        let upto = end_of(range).map_or(Bound::Unbounded, Bound::Included);
        let chunks = self.chunks.range::<[u8], _>((Bound::Unbounded, upto));
        Chunks::of(chunks.rev().map(|(_, chunk)| chunk), entries)
    }
}

impl Chunks {
    fn of<'c>(all: impl Iterator<Item = &'c Mutex<Arc<Chunk>>>, entries: usize) -> Self {
        let mut all = all.map(|chunk| Arc::clone(&chunk.lock()));
        let mut chunks: Vec<Arc<Chunk>> = all.next().into_iter().collect();
        let mut behind = 0;
        while behind < entries {
            let Some(chunk) = all.next() else {
                return Self {
                    chunks,
                    are_all: true,
                };
            };
            behind += chunk.len();
            chunks.push(chunk);
        }
        Self {
            chunks,
            are_all: all.next().is_none(),
        }
    }

    /// The first items of a range, [from whose start](OrderedView::at_start) these are; `None` if more of them are
    /// needed. Values are read as far as the page has room for them.
    ///
    /// # Errors
    /// Those of the source.
    pub fn first(&self, page: PageOf, source: &impl Items) -> Result<Option<Page>> {
        let from = start_of(page.range);
        let mut entry = match self.chunks.first() {
            Some(chunk) => chunk.seek(from, source)?,
            None => 0,
        };
        let mut filling = Filling::from_start(page);
        for chunk in &self.chunks {
            while entry < chunk.len() {
                let upto = chunk.len().min(entry + filling.missing());
                if upto == entry {
                    return Ok(Some(filling.close(false)));
                }
                entry += chunk.read(entry..upto, source, &mut filling)?;
            }
            entry = 0;
        }
        Ok(filling.end(self.are_all))
    }

    /// The last items of a range, [from whose end](OrderedView::at_end) these are, from there on; `None` if more of
    /// them are needed. Values are read as far as the page has room for them.
    ///
    /// # Errors
    /// Those of the source.
    pub fn last(&self, page: PageOf, source: &impl Items) -> Result<Option<Page>> {
        let end = end_of(page.range);
        let mut filling = Filling::from_end(page);
        for (nth, chunk) in self.chunks.iter().enumerate() {
            let mut entries = chunk.len();
            if let Some(end) = end.filter(|_| nth == 0) {
                entries = chunk.rank(end, source)?;
                if let Bound::Included(end) = page.range.1
                    && entries < chunk.len()
                    && chunk.key(entries, source)? == end
                {
                    entries += 1;
                }
            }
            while entries > 0 {
                let from = entries.saturating_sub(filling.missing());
                if from == entries {
                    return Ok(Some(filling.close(false)));
                }
                entries -= chunk.read((from..entries).rev(), source, &mut filling)?;
            }
        }
        Ok(filling.end(self.are_all))
    }
}

/// The key that a range starts at or behind.
fn start_of(range: Limits<'_>) -> &[u8] {
    match range.0 {
        Bound::Unbounded => &[],
        Bound::Included(key) | Bound::Excluded(key) => key,
    }
}

/// The key that a range ends at or before, if it ends.
fn end_of(range: Limits<'_>) -> Option<&[u8]> {
    match range.1 {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
    }
}
