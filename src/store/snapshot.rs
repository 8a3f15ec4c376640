//! Reads of one moment, which threads may share.

use std::fmt;
use std::iter::Take;
use std::sync::Arc;

use crate::Result;
use crate::metrics::calls::TimedPath;
use crate::pool::snapshots;
#[cfg(doc)]
use crate::store::Store;
use crate::store::columns::requests::ColumnBatch;
use crate::store::columns::{Columns, ValueColumns};
use crate::store::range::{KeyBounds, Keys, PagesOf, Range, Writes, of_prefix};
use crate::store::store_ref::StoreRef;

/// The store as it was at one moment: [`Store::snapshot`] borrows the store, [`Store::snapshot_owned`] shares
/// it and gives a `Snapshot<'static>`.
///
/// All reads of a snapshot, of its clones and of its iterators are of that moment, whatever is changed
/// meanwhile. They may run on several threads, beside changes. A clone is a count, and not another snapshot.
///
/// While a snapshot, a clone or an iterator of it lives, the values that it sees and that others replace are
/// kept: at most as many as the store had then, in memory, or with a
/// [memory budget](super::StoreOptions::memory_budget) mostly in a file. None of it outlives the process, and a
/// crash leaves nothing of a snapshot.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
/// store.put("ada", "byron")?;
/// let snapshot = store.snapshot();
/// store.put("ada", "lovelace")?;
/// store.put("alan", "turing")?;
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| assert_eq!(snapshot.get(b"ada").unwrap(), Some(b"byron".to_vec())));
///     }
/// });
/// assert_eq!(snapshot.iter().count(), 1);
/// assert_eq!(store.iter().count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Snapshot<'s> {
    /// Before the store: nothing is kept for it once that closes.
    live: Arc<snapshots::Snapshot>,
    store: StoreRef<'s>,
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("commit_seq", &self.live.commit_seq)
            .field("store", &*self.store)
            .finish_non_exhaustive()
    }
}

impl<'s> Snapshot<'s> {
    /// The moment that is now.
    pub(in crate::store) fn of(store: StoreRef<'s>) -> Self {
        let live = Arc::new(store.partitions().snapshot());
        Self { live, store }
    }

    /// The value that a key had, or `None`. See [`Store::get`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let snapshot = store.snapshot();
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(snapshot.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::get`]. [`Error::Damaged`](crate::Error::Damaged) and [`Error::Io`](crate::Error::Io) also of
    /// a value that was replaced and cannot be read any more.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let state = &self.store.here()?.of(key).state;
        let get = || state.get_at(key, self.live.commit_seq);
        state.shared.metrics.time(TimedPath::Get, get)
    }

    /// What `read` makes of the value that a key had, or `None`. See [`Store::get_with`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(store.snapshot().get_with(b"ada", <[u8]>::len)?, Some(8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.get(key)?.map(|value| read(&value)))
    }

    /// The values that keys had, in their order. See [`Store::multi_get`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "byron")?;
    /// let snapshot = store.snapshot();
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(snapshot.multi_get(&["alan", "ada"])?, [None, Some(b"byron".to_vec())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        let partitions = self.store.here()?;
        self.store.metrics().time(TimedPath::MultiGet, || {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            partitions.get_many_at(&keys, self.live.commit_seq)
        })
    }

    /// The values that keys in columns had, in their order. See [`Store::get_columns`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "byron")?;
    /// let snapshot = store.snapshot();
    /// store.put("ada", "lovelace")?;
    /// let values = snapshot.get_columns(&["alan", "ada"].into_iter().collect())?;
    /// assert!(values.iter().eq([None, Some(&b"byron"[..])]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_columns(&self, keys: &Columns) -> Result<ValueColumns> {
        self.get_columns_into(keys, ValueColumns::default())
    }

    /// As [`get_columns`](Self::get_columns), in the buffers of earlier values. See [`Store::get_columns_into`].
    ///
    /// # Errors
    /// As [`get`](Self::get). The buffers are dropped then.
    pub fn get_columns_into(&self, keys: &Columns, buffers: ValueColumns) -> Result<ValueColumns> {
        ColumnBatch::gets(keys).check()?;
        let partitions = self.store.here()?;
        let read = || partitions.read_columns(keys, Some(self.live.commit_seq), buffers);
        self.store.metrics().time(TimedPath::MultiGet, read)
    }

    /// Whether a key had a value. See [`Store::contains_key`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let snapshot = store.snapshot();
    /// store.delete("ada")?;
    /// assert!(snapshot.contains_key(b"ada")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::contains_key`].
    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        let state = &self.store.here()?.of(key).state;
        state.contains_at(key, self.live.commit_seq)
    }

    /// The items of a range of keys in ascending order, or from its end with [`rev`](Iterator::rev). The
    /// iterator may outlive the snapshot. See [`Store::range`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let items = store.snapshot().range("a".."b");
    /// store.delete("ada")?;
    /// assert_eq!(items.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&self, range: impl KeyBounds) -> Range<'s> {
        Range::new(self.pages_of(range))
    }

    /// All items in ascending order of their keys, or from their end with [`rev`](Iterator::rev): `range(..)`.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// for item in store.snapshot().iter() {
    ///     let (key, value) = item?;
    ///     assert_eq!((&key[..], &value[..]), (&b"ada"[..], &b"lovelace"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Range<'s> {
        self.range(..)
    }

    /// The keys of a range in ascending order, or from its end with [`rev`](Iterator::rev). See
    /// [`Store::keys`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(store.snapshot().keys(..).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(&self, range: impl KeyBounds) -> Keys<'s> {
        Keys::new(self.pages_of(range))
    }

    /// The item of the first key, or `None` if there was none. See [`Store::first`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(store.snapshot().first()?, Some((b"ada".to_vec(), b"lovelace".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::first`].
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().expecting(1).next().transpose()
    }

    /// The item of the last key, or `None` if there was none. See [`Store::first`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// assert_eq!(store.snapshot().last()?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::first`].
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().expecting(1).next_back().transpose()
    }

    /// The first `n` items from the key `start` on. See [`range`](Self::range).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// store.put("alan", "turing")?;
    /// assert_eq!(store.snapshot().scan("a", 1).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(&self, start: impl Into<Vec<u8>>, n: usize) -> Take<Range<'s>> {
        let start: Vec<u8> = start.into();
        self.range(start..).expecting(n).take(n)
    }

    /// The items whose keys begin with `prefix`. See [`range`](Self::range).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(store.snapshot().prefix("al").count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, prefix: impl Into<Vec<u8>>) -> Range<'s> {
        self.range(of_prefix(prefix.into()))
    }

    fn pages_of(&self, range: impl KeyBounds) -> PagesOf<'s> {
        PagesOf {
            store: self.store.clone(),
            snapshot: self.live.again(),
            range: range.into_key_range(),
            writes: Writes::new(),
        }
    }
}
