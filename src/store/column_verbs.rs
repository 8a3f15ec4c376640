//! The verbs of a store that take columns.

use crate::Result;
use crate::metrics::calls::TimedPath;
use crate::store::Store;
use crate::store::columns::requests::{ColumnBatch, RequestKind};
use crate::store::columns::{ColumnAnswers, Columns, ValueColumns};
use crate::store::commit::queue::{Answers, Work};
use crate::store::commit::requests::Batch;

impl Store {
    /// The values of keys at one moment, in their order: [`multi_get`](Self::multi_get) in columns. They are
    /// copied from the index into one buffer, without an allocation for each. A key without a value has null.
    ///
    /// A key may come several times. Of a batch of another caller all is seen or nothing.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::Columns;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let keys = Columns::new(vec![0i32, 4, 7], *b"alanada")?;
    /// let values = store.get_columns(&keys)?;
    /// assert!(values.iter().eq([None, Some(&b"lovelace"[..])]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_columns(&self, keys: &Columns) -> Result<ValueColumns> {
        self.get_columns_into(keys, ValueColumns::default())
    }

    /// As [`get_columns`](Self::get_columns), in the buffers of earlier values, which mean nothing any more: for one who
    /// asks again and again. Fresh memory for a million values takes as long as to read them. Buffers that are too
    /// short or much too long, or that a clone shares, are replaced; so may all be if others change the store meanwhile.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Columns, ValueColumns};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// let mut values = ValueColumns::default();
    /// for batch in [["ada", "alan"], ["grace", "ada"]] {
    ///     values = store.get_columns_into(&batch.into_iter().collect(), values)?;
    /// }
    /// assert!(values.iter().eq([None, Some(&b"lovelace"[..])]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get). The buffers are dropped then.
    pub fn get_columns_into(&self, keys: &Columns, buffers: ValueColumns) -> Result<ValueColumns> {
        ColumnBatch::gets(keys).check()?;
        let read = || self.here()?.read_columns(keys, None, buffers);
        self.metrics().time(TimedPath::MultiGet, read)
    }

    /// Gives keys values, whether they had some or not: key *i* gets value *i*, and of equal keys the last one
    /// counts. All of them become visible together, and survive a crash together or not at all.
    ///
    /// The columns are shared with the store until this returns, and not copied. Then the caller may
    /// [take them apart](Columns::into_parts), and fill them again. Several callers at a time are executed one
    /// after the other, as by [`execute`](Self::execute).
    ///
    /// # Examples
    /// ```
    /// use gphash::store::Columns;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let keys = Columns::new(vec![0i32, 3, 7], *b"adaalan")?;
    /// let values = Columns::new(vec![0i32, 8, 14], *b"lovelaceturing")?;
    /// store.put_columns(&keys, &values)?;
    /// assert_eq!(store.get(b"alan")?, Some(b"turing".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) if there are not as many values as keys; as
    /// [`execute`](Self::execute).
    pub fn put_columns(&self, keys: &Columns, values: &Columns) -> Result<()> {
        self.change_columns(ColumnBatch::puts(keys, values)?)?;
        Ok(())
    }

    /// Takes the values of keys away, of those that have one: all together, as [`put_columns`](Self::put_columns)
    /// gives them.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "lovelace")?;
    /// store.delete_columns(&["ada", "alan"].into_iter().collect())?;
    /// assert_eq!(store.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn delete_columns(&self, keys: &Columns) -> Result<()> {
        self.change_columns(ColumnBatch::deletes(keys))?;
        Ok(())
    }

    /// Executes mixed requests as if one came after the other: [`execute`](Self::execute) in columns. Request *i*
    /// has kind, key and value *i*. The value of a merge is its operand, and that of a get or a deletion means
    /// nothing: it is best empty.
    ///
    /// The changes become visible, and survive a crash, together. The answers have a value or null for each
    /// request, and the merges that failed, which changed nothing. The kinds are copied, a byte each; the
    /// columns are [shared](Self::put_columns).
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Columns, RequestKind};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let kinds = [RequestKind::Put, RequestKind::Get, RequestKind::Delete, RequestKind::Get];
    /// let keys: Columns = ["ada"; 4].into_iter().collect();
    /// let values: Columns = ["lovelace", "", "", ""].into_iter().collect();
    /// let answers = store.execute_columns(&kinds, &keys, &values)?;
    /// assert_eq!(answers.values.get(1), Some(&b"lovelace"[..])); // it sees the put
    /// assert_eq!(answers.values.get(3), None); // and this one the deletion
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) if there are not as many values as keys, and
    /// [`Error::InvalidColumns`](crate::Error::InvalidColumns) if there are not as many kinds; as
    /// [`execute`](Self::execute).
    pub fn execute_columns(
        &self,
        kinds: &[RequestKind],
        keys: &Columns,
        values: &Columns,
    ) -> Result<ColumnAnswers> {
        self.execute_columns_into(kinds, keys, values, ValueColumns::default())
    }

    /// As [`execute_columns`](Self::execute_columns), in the buffers of earlier values, as
    /// [`get_columns_into`](Self::get_columns_into) uses them.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Columns, RequestKind, ValueColumns};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let (keys, values): (Columns, Columns) = (["ada"; 2].into_iter().collect(), ["1", ""].into_iter().collect());
    /// let mut answered = ValueColumns::default();
    /// for kinds in [[RequestKind::Put, RequestKind::Get], [RequestKind::Delete, RequestKind::Get]] {
    ///     answered = store.execute_columns_into(&kinds, &keys, &values, answered)?.values;
    /// }
    /// assert_eq!(answered.null_count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute_columns`](Self::execute_columns). The buffers are dropped then.
    pub fn execute_columns_into(
        &self,
        kinds: &[RequestKind],
        keys: &Columns,
        values: &Columns,
        buffers: ValueColumns,
    ) -> Result<ColumnAnswers> {
        let batch = ColumnBatch::mixed(kinds, keys, values, buffers)?;
        match batch.count_gets() == batch.len() {
            true => Ok(ColumnAnswers {
                values: self.get_columns_into(keys, batch.take_buffers())?,
                failures: Vec::new(),
            }),
            false => self.change_columns(batch),
        }
    }

    fn change_columns(&self, batch: ColumnBatch) -> Result<ColumnAnswers> {
        self.here()?;
        batch.check()?;
        let has_merge = || batch.has_merge();
        if self.threads().run_for_caller(batch.len(), has_merge) {
            self.operator()?;
        }
        let partition = self.partitions().of_all(Batch::Columns(&batch).keys());
        let submit = || self.submit(Work::Columns(batch), partition);
        let answers = self.metrics().time(TimedPath::Batch, submit);
        answers.map(Answers::into_columns)
    }
}
