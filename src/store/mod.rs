//! A key-value store of byte strings in a directory: [`Store`].
//!
//! It adds to the index keys and values of any length, batches of mixed requests, atomic batches,
//! ranges in order, transactions and merges. A write-ahead log keeps what was answered, on an
//! ordinary disk, too.
//!
//! ```
//! use gphash::store::{Request, Response, Store, StoreOptions, WriteBatch};
//!
//! # let directory = tempfile::tempdir()?;
//! let store = Store::open(directory.path().join("names"), &StoreOptions::new())?;
//! store.put(b"ada", b"lovelace")?;
//! assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
//!
//! let mut batch = WriteBatch::new(); // all of it or nothing
//! batch.put(b"alan", b"turing");
//! batch.put(b"grace", b"hopper");
//! batch.delete(b"ada");
//! store.write(batch)?;
//!
//! let answers = store.execute(vec![ // as one after the other
//!     Request::Get { key: b"alan".to_vec() },
//!     Request::Delete { key: b"alan".to_vec() },
//!     Request::Get { key: b"alan".to_vec() },
//! ])?;
//! assert!(matches!(&answers[0], Response::Value(Some(value)) if value == b"turing"));
//! assert!(matches!(&answers[2], Response::Value(None)));
//!
//! let keys: Vec<_> = store.range(..).map(|item| Ok(item?.0)).collect::<gphash::Result<_>>()?;
//! assert_eq!(keys, [b"grace".to_vec()]);
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Long batches are faster in [`Columns`], which take no allocation a request.
//!
//! `docs/store.md` in the repository draws the directory byte by byte, and says what each durability
//! promises in each domain.

mod async_verbs;
mod column_verbs;
mod columns;
mod commit;
#[cfg(all(test, not(loom)))]
mod crash_tests;
#[cfg(all(test, not(loom)))]
mod fault_tests;
mod files;
mod inner;
mod lifecycle;
mod merge;
mod mvcc;
mod options;
mod ordered;
mod partition;
mod partitions;
mod prometheus;
mod range;
mod read_modify_write;
mod reads;
mod request;
mod resident;
mod shared;
mod snapshot;
mod stats;
mod store_ref;
#[cfg(test)]
mod tests;
mod transaction;
mod verify;
mod wal;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::partition::Partition;
use self::partitions::Partitions;
pub use crate::Repair;
#[doc(inline)]
pub use crate::hot_cache::{HotCacheOptions, HotCacheStats};
use crate::metrics::calls::{StoreMetrics, TimedPath};
use crate::pool::threads::{PARALLEL_REQUESTS_MIN, Threads};
pub use async_verbs::Pending;
pub use columns::requests::RequestKind;
pub use columns::{ColumnAnswers, Columns, Offsets, ValueColumns};
use commit::REQUESTS_PER_THREAD_MIN;
use commit::group::into_unit;
use commit::queue::{Answer, Answers, Work};
use commit::user_code;
use inner::StoreInner;
pub use lifecycle::recover::{compact, recover};
pub use lifecycle::report::{FileReport, StoreFile, StoreReport};
pub use merge::MergeOperator;
pub use options::{Durability, StoreOptions, WhenFull};
pub use partitions::Partitioner;
pub use prometheus::prometheus;
pub use range::{KeyBounds, Keys, Range};
pub use request::{Request, Response, WriteBatch};
pub use snapshot::Snapshot;
pub use stats::{
    Latencies, LatencyStats, LevelStats, SpillStats, StallEvent, StallReason, StallStats, Stalls,
    Steps, StoreStats,
};
pub use transaction::Transaction;

use crate::pool::parallel;
use crate::process::Own;
use crate::{Error, Result};

/// A key-value store in a directory.
///
/// Keys have 0 bytes to 64 KiB, values 0 bytes to 1 GiB. All methods take `&self` and may be called
/// from many threads at once. Batches of callers that change the store at the same time are
/// executed together, in the order of their arrival, with one record in the log of each partition that they
/// change (group commit). A reader sees each batch wholly or not at all, and waits for none, but for some pages of
/// [ranges](Self::range).
///
/// What was answered outlives the process, and from the moment that [`Durability`] names also the
/// machine. An error says that a change was not made. After
/// [`Error::Broken`] the next opening may find the change made, and so it may after an error of the
/// disk, if the process or the machine stops soon.
///
/// In a child that the process forks, verbs return [`Error::Forked`]: the store is the parent's. Those that cannot fail must
/// not be called there.
///
/// Dropping a store closes it as well as it can; only [`close`](Self::close) can report an error. What borrows
/// the store is gone by then, and what [shares](Self::snapshot_owned) it keeps it open.
pub struct Store {
    /// There until it is closed.
    partitions: Own<Option<Arc<Partitions>>>,
}

impl Store {
    /// Opens the store in the directory `path`, or makes one there if it does not exist or is empty.
    /// After a crash, what the log holds beyond the last checkpoint is replayed.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Store, StoreOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("names");
    /// let store = Store::open(&path, &StoreOptions::new().capacity(10_000))?;
    /// store.put(b"ada", b"lovelace")?;
    /// store.close()?;
    ///
    /// let store = Store::open(&path, &StoreOptions::new())?;
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Nothing is lost by an opening that fails.
    ///
    /// - of options: [`Error::InvalidOption`], [`Error::OptionMismatch`], and [`Error::Gpu`] if a
    ///   GPU is asked for by name and cannot be had
    /// - of the directory: [`Error::ForeignDirectory`], [`Error::InUse`]
    /// - of a file of the store: [`Error::Foreign`], [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::Damaged`],
    ///   [`Error::DamagedLog`] or [`Error::Missing`]
    /// - those of the index's file ([`Index::open`](crate::Index::open))
    /// - [`Error::NoSpace`], [`Error::ReadOnly`] and [`Error::Io`]
    pub fn open(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self> {
        let states = lifecycle::open::open(path.as_ref(), options)?;
        let partitions = Partitions::start(states, options)?;
        Ok(Self {
            partitions: Own::new(Some(partitions)),
        })
    }

    fn partitions(&self) -> &Arc<Partitions> {
        let partitions = self.partitions.as_ref();
        partitions.expect("they are there until the store is closed")
    }

    /// The partitions, for a verb.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child of the process that has opened the store.
    #[inline]
    fn here(&self) -> Result<&Arc<Partitions>> {
        let path = self.state().store_dir.path();
        self.partitions.here(path)?;
        Ok(self.partitions())
    }

    /// The first partition, or the only one.
    fn core(&self) -> &Arc<Partition> {
        self.partitions().first()
    }

    /// What the first partition has.
    fn state(&self) -> &StoreInner {
        &self.core().state
    }

    fn metrics(&self) -> &StoreMetrics {
        &self.partitions().shared().metrics
    }

    /// Has changes made, once there is room for them: by the partition to whose queue they go, or by all.
    fn submit(&self, work: Work, partition: Option<&Arc<Partition>>) -> Answer {
        // Nothing makes room for a merge operator meanwhile.
        user_code::may_change()?;
        let answer = match partition {
            Some(partition) => {
                partition.wait_for_room();
                partition.submit(work)
            }
            None => self.partitions().submit(work),
        };
        self.partitions().serve_if_nobody_does();
        answer
    }

    /// See [`Partitions::of_all`].
    fn partition_of(&self, requests: &[Request]) -> Option<&Arc<Partition>> {
        self.partitions().of_all(requests.iter().map(Request::key))
    }

    fn operator(&self) -> Result<&dyn MergeOperator> {
        let operator = self.state().operator.as_deref();
        operator.ok_or_else(|| Error::InvalidOption {
            option: "merge_operator",
            found: "none".into(),
            expected: "an operator, to merge with".into(),
        })
    }

    /// The threads that share long work.
    fn threads(&self) -> &Threads {
        &self.partitions().shared().threads
    }

    fn check(&self, requests: &[Request]) -> Result<()> {
        self.here()?;
        let fails = |nth: usize| requests[nth].check().is_err();
        let is_none = |nth: usize| !requests[nth].is_merge();
        let len = requests.len();
        let (failed, has_merge) = self.threads().run_for_caller(len, || {
            let failed = parallel::find_first(len, REQUESTS_PER_THREAD_MIN, fails);
            (
                failed,
                !parallel::all(len, REQUESTS_PER_THREAD_MIN, is_none),
            )
        });
        if let Some(nth) = failed {
            return requests[nth].check();
        }
        match has_merge {
            true => self.operator().map(|_| ()),
            false => Ok(()),
        }
    }

    /// Executes requests as if one came after the other, whatever keys they share. Answer *i* is
    /// that to request *i*. The changes become visible, and survive a crash, together.
    ///
    /// A merge that fails is answered by [`Response::Failed`] and changes nothing; the others are
    /// executed as if it had not been there. So are those beside a write whose condition is not met, which is
    /// answered by [`Response::Present`] or [`Response::Mismatch`].
    ///
    /// # Examples
    /// ```
    /// use gphash::store::{Request, Response};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let answers = store.execute(vec![
    ///     Request::Put { key: b"ada".to_vec(), value: b"lovelace".to_vec() },
    ///     Request::Get { key: b"ada".to_vec() }, // sees the put
    /// ])?;
    /// assert!(matches!(&answers[0], Response::Done));
    /// assert!(matches!(&answers[1], Response::Value(Some(value)) if value == b"lovelace"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::InvalidOption`] for a merge without an operator, [`Error::Reentrant`] and
    /// [`Error::Forked`] before anything is done; [`Error::Limit`] for more than 2^32 - 1 requests.
    /// [`Error::Damaged`] when what is asked for cannot be read, [`Error::NoSpace`], [`Error::Io`] and the like
    /// when the log cannot be written, or the index has no room: nothing was changed. [`Error::Broken`] when a change has panicked: then, as when the log cannot be written, the next opening
    /// may find all the changes.
    pub fn execute(&self, requests: Vec<Request>) -> Result<Vec<Response>> {
        self.check(&requests)?;
        self.metrics()
            .time(TimedPath::Batch, || self.execute_checked(requests))
    }

    fn execute_checked(&self, requests: Vec<Request>) -> Result<Vec<Response>> {
        let is_get = |nth: usize| requests[nth].is_get();
        let only_get = || parallel::all(requests.len(), REQUESTS_PER_THREAD_MIN, is_get);
        match self.threads().run_for_caller(requests.len(), only_get) {
            true => {
                let keys: Vec<&[u8]> = requests.iter().map(Request::key).collect();
                let values = self.partitions().get_many(&keys, PARALLEL_REQUESTS_MIN)?;
                let answers = values.into_iter().map(Response::Value).collect();
                self.state().threads.discard(requests.len(), requests);
                Ok(answers)
            }
            false => {
                let Some(partition) = self.partition_of(&requests) else {
                    let answer = self.submit(Work::Batch(requests, None), None);
                    return answer.map(Answers::into_responses);
                };
                user_code::may_change()?;
                partition.wait_for_room();
                let others = partition.callers.fetch_add(1, Ordering::Relaxed);
                let early = partition.state.read_early(&requests, others == 0);
                let answer = partition.submit(Work::Batch(requests, early));
                partition.callers.fetch_sub(1, Ordering::Relaxed);
                self.partitions().serve_if_nobody_does();
                answer.map(Answers::into_responses)
            }
        }
    }

    fn change(&self, request: Request) -> Result<()> {
        into_unit(self.submit_one(request))
    }

    /// Has one request done.
    fn submit_one(&self, request: Request) -> Answer {
        let requests = vec![request];
        self.check(&requests)?;
        let partition = self.partition_of(&requests);
        let submit = || self.submit(Work::Batch(requests, None), partition);
        self.metrics().time(TimedPath::SingleChange, submit)
    }

    /// Gives a key a value, whether it had one or not. A `Vec` is used as it is; other bytes are copied into
    /// one.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put("ada", "byron")?;
    /// store.put("ada", "lovelace")?;
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        self.change(Request::Put { key, value })
    }

    /// Takes a key's value away, if it has one.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// store.delete(b"ada")?;
    /// assert_eq!(store.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn delete(&self, key: impl Into<Vec<u8>>) -> Result<()> {
        let key = key.into();
        self.change(Request::Delete { key })
    }

    /// Merges an operand into a key's value, with the store's [`MergeOperator`].
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
    /// store.merge(b"list", b"one ")?;
    /// store.merge(b"list", b"two")?;
    /// assert_eq!(store.get(b"list")?, Some(b"one two".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute`](Self::execute); [`Error::Merge`] if the operator fails: the key keeps its value.
    pub fn merge(&self, key: impl Into<Vec<u8>>, operand: impl Into<Vec<u8>>) -> Result<()> {
        let (key, operand) = (key.into(), operand.into());
        self.change(Request::Merge { key, operand })
    }

    /// Makes changes together: all of them or none, also after a crash.
    ///
    /// # Examples
    /// ```
    /// use gphash::store::WriteBatch;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"ada", b"lovelace");
    /// batch.delete(b"alan");
    /// store.write(batch)?; // both, also across a crash
    /// assert_eq!(store.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute`](Self::execute); [`Error::Merge`] if one of the merges fails.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.check(&batch.requests)?;
        let has_merge = batch.requests.iter().any(Request::is_merge);
        let partition = self.partition_of(&batch.requests);
        let work = match has_merge {
            true => Work::Whole(batch.requests),
            false => Work::Batch(batch.requests, None),
        };
        let submit = || self.submit(work, partition).map(|_| ());
        self.metrics().time(TimedPath::Batch, submit)
    }

    /// Makes all that was answered durable.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// store.flush()?; // a power cut no longer takes it back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`] and the like; what was not durable before may still not be.
    pub fn flush(&self) -> Result<()> {
        self.here()?.flush()
    }

    /// Makes all that was answered durable in the index, so that the log is not needed any more and
    /// the next opening reads none of it. Changes wait only while what has changed since the last one
    /// is copied. A thread does this by itself; see [`StoreOptions::checkpoint_bytes`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// store.checkpoint()?; // the next opening replays nothing
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Self::flush), [`Error::Broken`], and [`Error::Reentrant`] in a merge operator; the log is kept then.
    pub fn checkpoint(&self) -> Result<()> {
        let done = self.here()?.checkpoint();
        self.partitions().serve_if_nobody_does();
        done
    }

    /// Gives room back that is not needed any more: to the file system, and to items of any size. Items of the
    /// index move together, so that whole ranges of its file become free, and a [checkpoint](Self::checkpoint)
    /// follows, after which the log keeps no files for later. Where there are sorted files, deletions and newer values of
    /// what they have leave the index before, for such files, and these are compacted with what they hide. `progress` is called now and then.
    ///
    /// Others may read and change the store meanwhile. What they read for longer than a second stays where it
    /// is. `progress` must not use the store, which may wait for this call. A crash leaves every item with its value.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// for key in 0..1000u32 {
    ///     store.put(&key.to_be_bytes(), &[7; 5000])?;
    /// }
    /// for key in 0..1000u32 {
    ///     store.delete(&key.to_be_bytes())?;
    /// }
    /// store.compact(&|_| {})?;
    /// assert!(store.stats().index.free_bytes > 4_000_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint), and those of sorted files; what has moved is free with the next
    /// checkpoint.
    pub fn compact(&self, progress: &(dyn Fn(crate::Progress) + Sync)) -> Result<()> {
        let done = self.here()?.compact(progress);
        self.partitions().serve_if_nobody_does();
        done
    }

    /// Statistics of the store.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// let stats = store.stats();
    /// assert_eq!((stats.keys, stats.sequence), (1, 1));
    /// println!("a recovery would read {} bytes of the log", stats.log_bytes);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> StoreStats {
        self.partitions().stats()
    }

    /// Waits for asynchronous requests, takes a checkpoint and closes all files. On a full disk the log stays, for the
    /// next opening to replay, and the call succeeds. A store that others [share](Self::snapshot_owned) is not closed
    /// before they are gone.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let store = gphash::store::Store::open(dir.path(), &Default::default())?;
    /// store.put(b"ada", b"lovelace")?;
    /// store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint); the next opening recovers what was answered.
    /// [`Error::Reentrant`] in a callback or a merge operator, for whose end the store must wait: a
    /// thread of its own closes it then, and logs what fails.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        let Some(partitions) = self.partitions.as_ref() else {
            return Ok(());
        };
        let path = partitions.first().state.store_dir.path().to_path_buf();
        self.partitions.opener().check(&path)?;
        let Some(partitions) = self.partitions.take() else {
            return Ok(());
        };
        let Err(reentrant) = user_code::may_close() else {
            return partitions.end();
        };
        partitions
            .end_on_thread()
            .map_err(|source| Error::io(&path, "start the thread that closes", source))?;
        Err(reentrant)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Store");
        if let Some(partitions) = &*self.partitions {
            shown.field("path", &partitions.first().state.store_dir.path());
            shown.field("partitions", &partitions.all().len());
        }
        shown.finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.partitions.opener().is_here() {
            return;
        }
        match self.shut() {
            Ok(()) | Err(Error::Reentrant { .. }) => {}
            Err(error) => tracing::error!(%error, "the store was not cleanly closed"),
        }
    }
}
