//! Transactions: reads of one moment, and changes that are made together if nobody has changed
//! meanwhile what was read.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::Result;
use crate::metrics::calls::TimedPath;
#[cfg(doc)]
use crate::store::Store;
use crate::store::commit::group::into_unit;
use crate::store::commit::queue::Work;
use crate::store::commit::user_code;
use crate::store::merge::merge;
use crate::store::mvcc::read_set::ReadSet;
use crate::store::range::{KeyBounds, Keys, PagesOf, Range, Writes};
use crate::store::request::{Request, check_key, check_value};
use crate::store::store_ref::StoreRef;

/// Changes that are made together if nothing that was read has been changed by others, else not at
/// all. So transactions are serializable: they have the effects of one after the other, in the
/// order of their commits.
///
/// It reads the store as it was when the transaction began, and its own changes. Nobody else sees
/// these before [`commit`](Self::commit): a crash leaves all of them or none. Dropping it does nothing.
///
/// A change takes about 250 bytes of memory beside its key and its value until it is committed, a
/// key that was read about 60; with a [memory budget](super::StoreOptions::memory_budget) many of these are in a
/// file. While the transaction is open, values that others replace are kept.
///
/// ```
/// use gphash::Error;
/// use gphash::store::{Store, StoreOptions};
///
/// # let directory = tempfile::tempdir()?;
/// let store = Store::open(directory.path(), &StoreOptions::new())?;
/// store.put(b"stock", b"7")?;
/// loop {
///     let mut transaction = store.transaction();
///     let stock = transaction.get(b"stock")?.unwrap_or_default();
///     let stock: u32 = String::from_utf8_lossy(&stock).parse().unwrap();
///     transaction.put(b"stock", (stock - 1).to_string())?;
///     match transaction.commit() {
///         Err(Error::Conflict) => continue, // another one was faster
///         done => break done?,
///     }
/// }
/// assert_eq!(store.get(b"stock")?, Some(b"6".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Store::transaction`] borrows the store, [`Store::transaction_owned`] shares it and gives a
/// `Transaction<'static>`.
pub struct Transaction<'s> {
    writes: Writes,
    /// Before the store: nothing is kept for it once that closes.
    read_set: ReadSet,
    store: StoreRef<'s>,
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

impl<'s> Transaction<'s> {
    pub(in crate::store) fn new(store: StoreRef<'s>) -> Self {
        Self {
            writes: Writes::new(),
            read_set: ReadSet::new(store.partitions().snapshot()),
            store,
        }
    }

    /// The value of a key: the transaction's own, or the one that it had when the transaction began.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"byron")?;
    /// let mut transaction = store.transaction();
    /// store.put(b"ada", b"lovelace")?; // by another, after the transaction has begun
    /// assert_eq!(transaction.get(b"ada")?, Some(b"byron".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.writes.get(key) {
            return Ok(value.as_deref().cloned());
        }
        let partitions = self.store.here()?;
        let number = partitions.number_of(key);
        let state = &partitions.all()[number].state;
        let get = || state.get_at(key, self.read_set.commit_seq);
        let value = state.shared.metrics.time(TimedPath::Get, get)?;
        let spill = state.version_spill.as_ref();
        let spill = spill.filter(|_| !state.store_dir.is_tight());
        self.read_set.keys.note(key, spill);
        self.read_set.note_partition(number);
        Ok(value)
    }

    /// The items of a range of keys, as [`Store::range`], with the transaction's own changes so far. That nobody else
    /// changes, adds or removes any key of the range is part of what `commit` checks, wherever the iterator ends.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// let mut transaction = store.transaction();
    /// transaction.put(b"alan", b"turing")?;
    /// assert_eq!(transaction.range(..).count(), 2); // its own change among them
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&mut self, range: impl KeyBounds) -> Range<'s> {
        Range::new(self.pages_of(range))
    }

    /// The keys of a range, as [`Store::keys`], with the transaction's own changes so far. `commit` checks the
    /// range as [`range`](Self::range) does: it is in conflict with who changes only a value, too.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// let mut transaction = store.transaction();
    /// transaction.delete(b"ada")?;
    /// transaction.put(b"alan", b"turing")?;
    /// let keys: Vec<Vec<u8>> = transaction.keys(..).collect::<gphash::Result<_>>()?;
    /// assert_eq!(keys, [b"alan".to_vec()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(&mut self, range: impl KeyBounds) -> Keys<'s> {
        Keys::new(self.pages_of(range))
    }

    /// Reads of a range, which counts as read.
    fn pages_of(&mut self, range: impl KeyBounds) -> PagesOf<'s> {
        let range = range.into_key_range();
        let partitions = self.store.partitions();
        let is_within = |(key, _): &(&Vec<u8>, _)| range.contains(*key);
        let writes = self.writes.iter().filter(is_within);
        let pages = PagesOf {
            store: self.store.clone(),
            snapshot: self.read_set.snapshot(),
            range: range.clone(),
            writes: writes
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        };
        (0..partitions.all().len()).for_each(|number| self.read_set.note_partition(number));
        self.read_set.ranges.push(range);
        pages
    }

    /// Gives a key a value.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let mut transaction = store.transaction();
    /// transaction.put(b"ada", b"lovelace")?;
    /// assert_eq!(store.get(b"ada")?, None); // not yet
    /// transaction.commit()?;
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLong`](crate::Error::TooLong); the transaction is as it was.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        check_key(&key)?;
        check_value("value", &value)?;
        self.writes.insert(key, Some(Arc::new(value)));
        Ok(())
    }

    /// Takes the value of a key away.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// let mut transaction = store.transaction();
    /// transaction.delete(b"ada")?;
    /// transaction.commit()?;
    /// assert_eq!(store.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLong`](crate::Error::TooLong); the transaction is as it was.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) -> Result<()> {
        let key = key.into();
        check_key(&key)?;
        self.writes.insert(key, None);
        Ok(())
    }

    /// Merges an operand into the value of a key, which counts as read.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use gphash::store::{MergeOperator, Store, StoreOptions};
    /// # struct Append;
    /// # impl MergeOperator for Append {
    /// #     fn name(&self) -> &str { "append" }
    /// #     fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
    /// #         Ok([value.unwrap_or_default(), operand].concat())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// // `Append` puts the operand behind the value: see `MergeOperator`.
    /// let store = Store::open(dir.path(), &StoreOptions::new().merge_operator(Arc::new(Append)))?;
    /// let mut transaction = store.transaction();
    /// transaction.put(b"list", b"one ")?;
    /// transaction.merge(b"list", b"two")?;
    /// assert_eq!(transaction.get(b"list")?, Some(b"one two".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`Store::merge`]; the transaction is as it was, but that the key was read.
    pub fn merge(&mut self, key: impl Into<Vec<u8>>, operand: &[u8]) -> Result<()> {
        let key = key.into();
        check_value("operand", operand)?;
        let store = self.store.clone();
        let operator = store.operator()?;
        let value = self.get(&key)?;
        let merged = merge(operator, &key, value.as_deref(), operand)?;
        self.writes.insert(key, Some(Arc::new(merged)));
        Ok(())
    }

    /// Makes the changes, all at once.
    ///
    /// # Examples
    /// ```
    /// use gphash::Error;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let mut transaction = store.transaction();
    /// transaction.get(b"ada")?;
    /// transaction.put(b"seen", b"yes")?;
    /// store.put(b"ada", b"lovelace")?; // by another
    /// assert!(matches!(transaction.commit(), Err(Error::Conflict)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) if others have changed what was read; nothing
    /// was changed then. Those of [`Store::write`].
    pub fn commit(self) -> Result<()> {
        if self.writes.is_empty() {
            // All that was read is of one moment.
            return Ok(());
        }
        let store = self.store.clone();
        user_code::may_change()?;
        let partitions = store.here()?;
        let read = self.read_set.partitions();
        let written = self.writes.keys().map(|key| partitions.number_of(key));
        let partition = partitions.serving(read.chain(written));
        let commit = || into_unit(store.submit(self.into_work(), partition));
        store.metrics().time(TimedPath::Commit, commit)
    }

    /// What the store has to do.
    pub(in crate::store) fn into_work(self) -> Work {
        let request = |(key, value)| match value {
            Some(value) => Request::Put {
                key,
                value: Arc::unwrap_or_clone(value),
            },
            None => Request::Delete { key },
        };
        let requests = self.writes.into_iter().map(request).collect();
        Work::Transaction(requests, self.read_set)
    }

    /// Gives the changes up, as dropping the transaction does.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let mut transaction = store.transaction();
    /// transaction.put(b"ada", b"lovelace")?;
    /// transaction.rollback();
    /// assert_eq!(store.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rollback(self) {}
}
