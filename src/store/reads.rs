//! The verbs of a store that read it.

use std::sync::Arc;

use crate::Result;
use crate::metrics::calls::TimedPath;
use crate::store::Store;
use crate::store::inner::PARALLEL_LOOKUPS_MIN;
use crate::store::range::{KeyBounds, Keys, PagesOf, Range, Writes, of_prefix};
use crate::store::snapshot::Snapshot;
use crate::store::store_ref::StoreRef;
use crate::store::transaction::Transaction;

impl Store {
    /// The value of a key, or `None` if it has none.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// assert_eq!(store.get(b"alan")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLong`](crate::Error::TooLong); [`Error::Damaged`](crate::Error::Damaged) when the item, or what a sorted
    /// file has of it, does not have its checksum, or the index names a record outside its file;
    /// [`Error::Io`](crate::Error::Io) of sorted files.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let partitions = self.here()?;
        match &partitions.shared().hot_cache {
            Some(cache) => partitions.get_cached(cache, key),
            None => {
                let get = || partitions.of(key).state.get(key);
                self.metrics().time(TimedPath::Get, get)
            }
        }
    }

    /// What `read` makes of the value of a key, or `None` if it has none: for one who needs a part of a value,
    /// or wants to decode it where it is.
    ///
    /// The value is copied out of the store once, as by [`get`](Self::get), and `read` borrows the copy. Nothing
    /// waits for `read`, however long it takes. It may call any verb, also one that changes the store; what it
    /// has borrowed stays as it is. If it panics, so does this call, and the store goes on.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("count", 7u64.to_le_bytes())?;
    /// let decode = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap_or_default());
    /// assert_eq!(store.get_with(b"count", decode)?, Some(7));
    /// assert_eq!(store.get_with(b"none", <[u8]>::len)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.get(key)?.map(|value| read(&value)))
    }

    /// Whether a key has a value. That is not read, unless it is in a sorted file, and its checksum is not
    /// compared. With a [memory budget](super::StoreOptions::memory_budget) it does not count as a use of the
    /// key.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "")?;
    /// assert!(store.contains_key(b"ada")?);
    /// assert!(!store.contains_key(b"alan")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLong`](crate::Error::TooLong); [`Error::Damaged`](crate::Error::Damaged) when the index names
    /// a record outside its file, or for a damaged block of a sorted file; [`Error::Io`](crate::Error::Io) of a sorted file.
    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        self.here()?.of(key).state.contains(key)
    }

    /// The values of keys at one moment, in their order.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// assert_eq!(store.multi_get(&["alan", "ada"])?, [None, Some(b"lovelace".to_vec())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.metrics().time(TimedPath::MultiGet, || {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            self.here()?.get_many(&keys, PARALLEL_LOOKUPS_MIN)
        })
    }

    /// The items of a range of keys in ascending order, or from its end with
    /// [`rev`](Iterator::rev), as they are now. The iterator does not see later changes. The first
    /// range after an opening makes the ordered view, in time proportional to *n* log *n*; one of
    /// *k* items then takes time proportional to log *n* + *k*.
    ///
    /// The items are `Result`s: [`Error::Unordered`](crate::Error::Unordered) if the store has no ordered view,
    /// otherwise those of [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// for key in ["ada", "alan", "grace"] {
    ///     store.put(key, "")?;
    /// }
    /// for item in store.range("a".."b") {
    ///     let (key, value) = item?;
    ///     println!("{} {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// let last = store.range(..).next_back().transpose()?;
    /// assert_eq!(last, Some((b"grace".to_vec(), b"".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&self, range: impl KeyBounds) -> Range<'_> {
        Range::new(self.pages_of(range))
    }

    /// As [`range`](Self::range), with an iterator that shares the store instead of borrowing it. The store
    /// stays open for it: see [`snapshot_owned`](Self::snapshot_owned), which has the other iterators, too.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let store = Arc::new(store);
    /// store.put("ada", "lovelace")?;
    /// let items = store.range_owned("a".."b");
    /// let reader = std::thread::spawn(move || items.count());
    /// assert_eq!(reader.join().unwrap(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range_owned(self: &Arc<Self>, range: impl KeyBounds) -> Range<'static> {
        self.snapshot_owned().range(range)
    }

    /// All items in ascending order of their keys, or from their end with [`rev`](Iterator::rev), as they are
    /// now: `range(..)`.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// store.put("alan", "turing")?;
    /// let items: Vec<_> = store.iter().collect::<gphash::Result<_>>()?;
    /// assert_eq!(items[0], (b"ada".to_vec(), b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Range<'_> {
        self.range(..)
    }

    /// The keys of a range in ascending order, or from its end with [`rev`](Iterator::rev), as they are now.
    /// As [`range`](Self::range), but values are not read: of a record of the table only the key is. A sorted
    /// file, which has items only where the store has a [budget](super::StoreOptions::memory_budget), is read as
    /// for a range, because each of its blocks has one checksum; values are not copied out of it.
    ///
    /// The keys are `Result`s, with the errors of [`range`](Self::range).
    /// [`Error::Damaged`](crate::Error::Damaged) is also given for a record of the table whose key is damaged. One
    /// whose value is damaged is noticed when that is read.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// for key in ["ada", "alan", "grace"] {
    ///     store.put(key, "")?;
    /// }
    /// let keys: Vec<Vec<u8>> = store.keys("al"..).collect::<gphash::Result<_>>()?;
    /// assert_eq!(keys, [b"alan".to_vec(), b"grace".to_vec()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(&self, range: impl KeyBounds) -> Keys<'_> {
        Keys::new(self.pages_of(range))
    }

    /// Whether no key has a value. It looks for the first key, in the time of [`first`](Self::first).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// assert!(store.is_empty()?);
    /// store.put("ada", "")?;
    /// assert!(!store.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.keys(..).next().transpose()?.is_none())
    }

    /// The item of the first key in ascending order, or `None` if there is none. The first call after an
    /// opening makes the ordered view, as [`range`](Self::range) does; one then takes time proportional to
    /// log *n*.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// assert_eq!(store.first()?, None);
    /// store.put("alan", "turing")?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(store.first()?, Some((b"ada".to_vec(), b"lovelace".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().expecting(1).next().transpose()
    }

    /// The item of the last key in ascending order, or `None` if there is none. See [`first`](Self::first).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("alan", "turing")?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(store.last()?, Some((b"alan".to_vec(), b"turing".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().expecting(1).next_back().transpose()
    }

    /// The first `n` items from the key `start` on. See [`range`](Self::range).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// for key in ["ada", "alan", "grace"] {
    ///     store.put(key, "")?;
    /// }
    /// let keys: Vec<_> = store.scan("al", 2).map(|item| Ok(item?.0)).collect::<gphash::Result<_>>()?;
    /// assert_eq!(keys, [b"alan".to_vec(), b"grace".to_vec()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(&self, start: impl Into<Vec<u8>>, n: usize) -> std::iter::Take<Range<'_>> {
        let start: Vec<u8> = start.into();
        self.range(start..).expecting(n).take(n)
    }

    /// The items whose keys begin with `prefix`. See [`range`](Self::range).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// for key in ["ada", "alan", "grace"] {
    ///     store.put(key, "")?;
    /// }
    /// assert_eq!(store.prefix("a").count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, prefix: impl Into<Vec<u8>>) -> Range<'_> {
        self.range(of_prefix(prefix.into()))
    }

    /// The store as it is now, for any number of reads, and of threads.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "byron")?;
    /// let snapshot = store.snapshot();
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(snapshot.get(b"ada")?, Some(b"byron".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::of(StoreRef::Borrowed(self))
    }

    /// As [`snapshot`](Self::snapshot), with a snapshot that shares the store instead of borrowing it. It, its
    /// clones and its iterators may go wherever an [`Arc`] may.
    ///
    /// The store stays open for them: it is closed, as by dropping it, when the last that shares it is dropped.
    /// So nobody can [`close`](Self::close) it while one of them lives: [`Arc::into_inner`] gives the store,
    /// which closing takes, to the last owner alone, and `None` to the others. Nothing is lost either way.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let store = Arc::new(store);
    /// store.put("ada", "lovelace")?;
    /// let snapshot = store.snapshot_owned();
    /// let reader = std::thread::spawn(move || snapshot.get(b"ada"));
    /// assert_eq!(reader.join().unwrap()?, Some(b"lovelace".to_vec()));
    /// Arc::into_inner(store).expect("the snapshot is gone").close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot_owned(self: &Arc<Self>) -> Snapshot<'static> {
        Snapshot::of(StoreRef::Shared(Arc::clone(self)))
    }

    /// Begins a transaction.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let mut transaction = store.transaction();
    /// if transaction.get(b"ada")?.is_none() {
    ///     transaction.put(b"ada", b"lovelace")?;
    /// }
    /// transaction.commit()?; // `Error::Conflict` if another has put `ada` meanwhile
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(StoreRef::Borrowed(self))
    }

    /// As [`transaction`](Self::transaction), with one that shares the store instead of borrowing it. The store
    /// stays open for it: see [`snapshot_owned`](Self::snapshot_owned). If it is the last that does, the store
    /// is closed once the commit is done.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let store = Arc::new(store);
    /// let mut transaction = store.transaction_owned();
    /// transaction.put("ada", "lovelace")?;
    /// let committer = std::thread::spawn(move || transaction.commit());
    /// committer.join().unwrap()?;
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transaction_owned(self: &Arc<Self>) -> Transaction<'static> {
        Transaction::new(StoreRef::Shared(Arc::clone(self)))
    }

    fn pages_of(&self, range: impl KeyBounds) -> PagesOf<'_> {
        PagesOf {
            store: StoreRef::Borrowed(self),
            snapshot: self.partitions().snapshot(),
            range: range.into_key_range(),
            writes: Writes::new(),
        }
    }
}
