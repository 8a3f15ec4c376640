//! Changes of one key that depend on the value before it, or tell it, each in one step.

use super::request::{Request, Response};
use crate::Result;
use crate::store::Store;

impl Store {
    /// Gives a key a value if it has none. Says whether it did: `false` leaves the key as it is.
    ///
    /// It is one step: of several callers at the same time exactly one gets `true`. One that wants the present
    /// value calls [`compare_and_swap`](Self::compare_and_swap) with `None` as what it expects. A crash leaves
    /// what [`put`](Self::put) leaves.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// assert!(store.put_if_absent("leader", "ada")?);
    /// assert!(!store.put_if_absent("leader", "alan")?);
    /// assert_eq!(store.get(b"leader")?, Some(b"ada".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put), and as [`get`](Self::get) if the present value cannot be read: nothing was
    /// changed then.
    pub fn put_if_absent(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<bool> {
        let (key, value) = (key.into(), value.into());
        let answer = self.answer_one(Request::PutIfAbsent { key, value })?;
        Ok(matches!(answer, Response::Done))
    }

    /// Gives a key the value `new`, or takes its value away for `None`, if it has the value `expected`, or none
    /// for `None`. The inner result is `Ok` if it did; else it is `Err` with what the key has, which it keeps.
    ///
    /// It is one step: nobody changes the key between the comparison and the change. Values are compared as
    /// bytes, so one that was changed and changed back compares equal. A crash leaves what [`put`](Self::put)
    /// leaves. Both values are copied; [`Request::CompareAndSwap`] takes them as they are.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// assert_eq!(store.compare_and_swap("turn", None, Some(b"1"))?, Ok(()));
    /// assert_eq!(store.compare_and_swap("turn", Some(b"1"), Some(b"2"))?, Ok(()));
    /// let found = store.compare_and_swap("turn", Some(b"1"), Some(b"3"))?;
    /// assert_eq!(found, Err(Some(b"2".to_vec())));
    /// assert_eq!(store.compare_and_swap("turn", Some(b"2"), None)?, Ok(()));
    /// assert_eq!(store.get(b"turn")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put_if_absent`](Self::put_if_absent); [`Error::TooLong`](crate::Error::TooLong) for an expected
    /// value that no key can have, too.
    pub fn compare_and_swap(
        &self,
        key: impl Into<Vec<u8>>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<std::result::Result<(), Option<Vec<u8>>>> {
        let answer = self.answer_one(Request::CompareAndSwap {
            key: key.into(),
            expected: expected.map(<[u8]>::to_vec),
            new: new.map(<[u8]>::to_vec),
        })?;
        Ok(match answer {
            Response::Mismatch(found) => Err(found),
            _ => Ok(()),
        })
    }

    /// Gives a key a value, and gives the one before, or `None` if it had none: a [`put`](Self::put) that
    /// returns what it replaces, as the `swap` of an atomic does.
    ///
    /// It is one step: each value is given back to exactly one caller. A crash leaves what [`put`](Self::put)
    /// leaves.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// assert_eq!(store.swap("ada", "byron")?, None);
    /// assert_eq!(store.swap("ada", "lovelace")?, Some(b"byron".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put_if_absent`](Self::put_if_absent).
    pub fn swap(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let (key, new) = (key.into(), Some(value.into()));
        self.swap_any(Request::Swap { key, new })
    }

    /// Takes a key's value away and gives it, or `None` if it has none: a [`delete`](Self::delete) that returns
    /// what it deletes, as the `take` of an [`Option`] does.
    ///
    /// It is one step: of several callers at the same time one gets the value, and the others `None`. The caller
    /// has it only once this returns: a crash before that may find it deleted.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("job", "print")?;
    /// assert_eq!(store.take("job")?, Some(b"print".to_vec()));
    /// assert_eq!(store.take("job")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put_if_absent`](Self::put_if_absent).
    pub fn take(&self, key: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let (key, new) = (key.into(), None);
        self.swap_any(Request::Swap { key, new })
    }

    fn swap_any(&self, request: Request) -> Result<Option<Vec<u8>>> {
        match self.answer_one(request)? {
            Response::Value(before) => Ok(before),
            other => unreachable!("a swap is answered by a value, not {other:?}"),
        }
    }

    /// Has one change made that cannot fail by itself.
    fn answer_one(&self, request: Request) -> Result<Response> {
        let answers = self.submit_one(request)?.into_responses();
        Ok(answers.into_iter().next().expect("one answer a request"))
    }
}
