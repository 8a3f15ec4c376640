//! The index: a table of fixed keys and values in a file, and the verbs on it.

pub(crate) mod bytes;
mod columns;
#[cfg(all(test, not(loom)))]
mod crash_tests;
#[cfg(all(test, not(loom)))]
mod damage_tests;
#[cfg(feature = "cuda")]
mod device;
#[cfg(all(test, not(loom)))]
pub(crate) mod fault_tests;
#[cfg(all(test, not(loom)))]
mod flip_tests;
mod iter;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod lost_journal_tests;
mod open;
pub(crate) mod repair;
mod stats;
#[cfg(all(test, not(loom)))]
mod tag_tests;
#[cfg(all(test, not(loom)))]
mod variable_tests;

use std::fmt;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use fixedbitset::FixedBitSet;

use crate::engine::{Backend, Write};
use crate::layout::Column;
use crate::pm::Mapping;
use crate::process::Own;
use crate::table::Table;
use crate::table::iter::Items;
use crate::table::maintenance::Maintainer;
use crate::table::record::ValuePart;
use crate::{Error, Result};

pub use crate::table::recovery::{Progress, Recovery};
pub use iter::Iter;
pub use repair::{Repair, Report, ReportState, compact, recover};
pub use stats::Stats;

/// A persistent hash index of keys `K` and values `V` in one file.
///
/// Keys are [`Pod`] of 8 to 128 bytes in multiples of 8, values [`Pod`] of 1 byte to 64 KiB.
/// Every key is legal. All methods take `&self` and may be called from many threads at once.
///
/// A batch behaves as if its operations ran one after another in the order given, also for equal
/// keys inside it. Batches of several threads run side by side; two operations on one key then take
/// effect in one order or the other, each whole. A value is never seen torn. A key that was there
/// before a [`get`](Self::get) began and is not removed is found, also while the table grows. When
/// a batch returns, its changes are as durable as the [`Domain`](crate::Domain) says.
///
/// Gets of one key in one batch may see the changes of another thread, made meanwhile, in any order
/// in two cases. Either the batch lies in device memory, or it has 16,384 keys or more on the CPU
/// engine, whose threads share it then.
///
/// In a child that the process forks, verbs return [`Error::Forked`]: the file is the parent's. Those that cannot fail must
/// not be called there.
///
/// The structure is that of GPHash (USENIX ATC 2025) §3: levels of buckets with several slots,
/// several hash locations, buckets of lower levels shared by those above.
///
/// ```
/// use gphash::{Index, Options};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("embeddings");
/// let index = Index::<u64, [f32; 4]>::create(&path, &Options::new().capacity(1000))?;
/// let stored = index.insert(&[7, 8, 7], &[[0.5; 4], [1.5; 4], [2.5; 4]])?;
/// assert_eq!(stored.ones().collect::<Vec<_>>(), [0, 1]); // the first of equal keys wins
///
/// let mut values = [[0.0; 4]; 3];
/// let found = index.get(&[8, 9, 7], &mut values)?;
/// assert_eq!(found.ones().collect::<Vec<_>>(), [0, 2]);
/// assert_eq!(values[2], [0.5; 4]);
/// index.close()?;
///
/// let index = Index::<u64, [f32; 4]>::open(&path, &Options::new())?;
/// assert!(index.recovery().clean);
/// assert_eq!(index.get_one(&8)?, Some([1.5; 4]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Index<K: Pod, V: Pod> {
    maintainer: Own<Maintainer<Mapping>>,
    backend: Own<Backend>,
    table: Own<std::sync::Arc<Table<Mapping>>>,
    /// Those of the file, which never change.
    columns: Vec<Column>,
    recovery: Recovery,
    closed: bool,
    types: std::marker::PhantomData<fn(K) -> V>,
}

impl<K: Pod, V: Pod> Index<K, V> {
    /// Stores the value of every key that is absent. Bit *i* of the answer says that key *i* was
    /// absent and is now stored. A key that is present keeps its value. Of equal keys in the batch
    /// the first is stored.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// let stored = index.insert(&[1, 2, 1], &[10, 20, 30])?;
    /// assert_eq!(stored.ones().collect::<Vec<_>>(), [0, 1]); // the first of equal keys wins
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] before anything is done. [`Error::NoSpace`] or [`Error::Limit`]
    /// when the table cannot grow: then some operations of the batch may have been done, each
    /// whole, and the table goes on working. A table that is nearly empty does not grow for keys
    /// that all go to the same buckets: that is `Limit`, too. [`Error::Io`], [`Error::Damaged`] and [`Error::Gpu`] may
    /// also come after some operations.
    pub fn insert(&self, keys: &[K], values: &[V]) -> Result<FixedBitSet> {
        same_length(keys.len(), values.len())?;
        self.backend()?.write(
            &self.table,
            Write::Insert,
            cast_slice(keys),
            cast_slice(values),
        )
    }

    /// Stores every value. Bit *i* of the answer says that key *i* was absent before; of equal
    /// keys in the batch the last value stays.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// let was_absent = index.upsert(&[1, 2], &[11, 20])?;
    /// assert_eq!(was_absent.ones().collect::<Vec<_>>(), [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn upsert(&self, keys: &[K], values: &[V]) -> Result<FixedBitSet> {
        same_length(keys.len(), values.len())?;
        self.backend()?.write(
            &self.table,
            Write::Upsert,
            cast_slice(keys),
            cast_slice(values),
        )
    }

    /// Stores the value of every key that is present. Bit *i* of the answer says that key *i* is;
    /// of equal keys in the batch the last value stays.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// let updated = index.update(&[1, 2], &[11, 20])?;
    /// assert_eq!(updated.ones().collect::<Vec<_>>(), [0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn update(&self, keys: &[K], values: &[V]) -> Result<FixedBitSet> {
        same_length(keys.len(), values.len())?;
        self.backend()?.write(
            &self.table,
            Write::Update,
            cast_slice(keys),
            cast_slice(values),
        )
    }

    /// Copies the values of the keys that are present. Bit *i* of the answer says that key *i*
    /// is; `values[i]` is untouched otherwise.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert(&[1, 2], &[10, 20])?;
    /// let mut values = [0; 3];
    /// let found = index.get(&[2, 3, 1], &mut values)?;
    /// assert_eq!(found.ones().collect::<Vec<_>>(), [0, 2]);
    /// assert_eq!(values, [20, 0, 10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] before anything is done; [`Error::Damaged`] when a slot names a record outside the file, or a
    /// value does not have its checksum, where that is [compared](crate::Options::verify_checksums); [`Error::Gpu`].
    /// `values` then holds some of the values, perhaps a damaged one, and nothing tells which.
    pub fn get(&self, keys: &[K], values: &mut [V]) -> Result<FixedBitSet> {
        same_length(keys.len(), values.len())?;
        let whole = ValuePart::whole(&self.table.shape);
        self.backend()?
            .get(&self.table, whole, cast_slice(keys), cast_slice_mut(values))
    }

    /// Says of every key whether it is present.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// assert_eq!(index.contains(&[1, 2])?.ones().collect::<Vec<_>>(), [0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::Gpu`] when the device fails. No others on the CPU.
    pub fn contains(&self, keys: &[K]) -> Result<FixedBitSet> {
        self.backend()?.contains(&self.table, cast_slice(keys))
    }

    /// Removes the keys. Bit *i* of the answer says that key *i* was present and is gone; of
    /// equal keys in the batch the first has it.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// assert_eq!(index.remove(&[1, 1, 2])?.ones().collect::<Vec<_>>(), [0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`] when a slot names no record, or a bit of its record word is flipped: that key stays, as nobody
    /// knows which record to give up, and all others of the batch may be gone. [`Error::Gpu`].
    pub fn remove(&self, keys: &[K]) -> Result<FixedBitSet> {
        self.backend()?
            .write(&self.table, Write::Remove, cast_slice(keys), &[])
    }

    /// [`insert`](Self::insert) of one key: whether it was absent and is now stored.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// assert!(index.insert_one(&1, &10)?);
    /// assert!(!index.insert_one(&1, &11)?); // the key keeps its value
    /// assert_eq!(index.get_one(&1)?, Some(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_one(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.insert(from_ref(key), from_ref(value))?.contains(0))
    }

    /// [`upsert`](Self::upsert) of one key: whether it was absent before.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// assert!(index.upsert_one(&1, &10)?);
    /// assert!(!index.upsert_one(&1, &11)?);
    /// assert_eq!(index.get_one(&1)?, Some(11));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn upsert_one(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.upsert(from_ref(key), from_ref(value))?.contains(0))
    }

    /// [`update`](Self::update) of one key: whether it is present.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// assert!(!index.update_one(&1, &10)?); // absent, and stays so
    /// index.insert_one(&1, &10)?;
    /// assert!(index.update_one(&1, &11)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn update_one(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.update(from_ref(key), from_ref(value))?.contains(0))
    }

    /// [`get`](Self::get) of one key: its value, if it is present.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// assert_eq!((index.get_one(&1)?, index.get_one(&2)?), (Some(10), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_one(&self, key: &K) -> Result<Option<V>> {
        let mut value = V::zeroed();
        let found = self.get(from_ref(key), std::slice::from_mut(&mut value))?;
        Ok(found.contains(0).then_some(value))
    }

    /// [`contains`](Self::contains) of one key: whether it is present.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// assert!(index.contains_one(&1)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`contains`](Self::contains).
    pub fn contains_one(&self, key: &K) -> Result<bool> {
        Ok(self.contains(from_ref(key))?.contains(0))
    }

    /// [`remove`](Self::remove) of one key: whether it was present.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// assert!(index.remove_one(&1)?);
    /// assert!(!index.remove_one(&1)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_one(&self, key: &K) -> Result<bool> {
        Ok(self.remove(from_ref(key))?.contains(0))
    }

    /// Items in the index. Batches that run at the same time count when they end.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert(&[1, 2], &[10, 20])?;
    /// assert_eq!(index.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.table.len()
    }

    /// Whether there are no items.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// assert!(index.is_empty());
    /// index.insert_one(&1, &10)?;
    /// assert!(!index.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All items, in no order.
    ///
    /// Items that others insert or remove meanwhile may be seen or not. An item that is there all
    /// the while is seen exactly once, unless the table begins to grow meanwhile: then it may be
    /// seen twice. A resize that is under way is finished first.
    ///
    /// It tells of no damage: an item whose slot is damaged may be left out, and checksums of values are not compared.
    /// [`recover`](crate::recover) with [`Repair::Check`](crate::Repair::Check) finds both.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert(&[1, 2], &[10, 20])?;
    /// let mut items: Vec<(u64, u64)> = index.iter().collect();
    /// items.sort();
    /// assert_eq!(items, [(1, 10), (2, 20)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        #[cfg(feature = "cuda")]
        if let Backend::Cuda(engine) = &*self.backend
            && let Err(error) = engine.finish_draining(&self.table)
        {
            tracing::warn!(%error, "iterating although a resize is under way");
        }
        Iter {
            items: Items::new(&self.table),
        }
    }

    /// Makes room for `additional` more items, so that inserting them does not wait for the file
    /// to grow.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.reserve(100_000)?;
    /// assert!(index.stats().slots >= 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Limit`] and [`Error::Gpu`]. Where there is no room for all of it, the table is as it
    /// was; after other errors, and on the CUDA engine, what was gained before stays.
    pub fn reserve(&self, additional: u64) -> Result<()> {
        self.backend()?.reserve(&self.table, additional)
    }

    /// In the domain `Checkpointed`, makes one atomic checkpoint of all batches that have
    /// returned; a crash leaves it or the one before. Waits for running batches to pause, and lets them
    /// go on once it has copied what has changed. In other domains what has returned is durable already.
    ///
    /// In all domains it publishes the next [version](Self::metadata), which covers these batches.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// index.sync()?; // a power cut no longer takes it back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`] and [`Error::Gpu`]; the last checkpoint stands, and a further `sync` may
    /// try again. But [`Error::Damaged`] tells once of what a resize or lookups on device slices have met: the
    /// version is published all the same.
    pub fn sync(&self) -> Result<()> {
        self.table.opener().check(self.table.path())?;
        self.backend.sync(&self.table)?;
        self.table.tell_staying()
    }

    /// Gives room back that the index does not need any more: to the file system, and to records of any size.
    /// Records move together, so that whole ranges of the file become free. In `Checkpointed` this takes a checkpoint,
    /// as [`sync`](Self::sync) does in all domains. `progress` is called now and then. It must not use the index: while
    /// the levels shrink, what makes them grow or goes through them waits for this call.
    ///
    /// Batches run beside it, also of other threads, and none waits for more than a slice of it. On the CUDA engine the
    /// CPU executes them meanwhile, those on device slices wait, and all wait while the device lets go of the file and
    /// takes it up again. That fills what is free with pages again, which the file system gets when the index is closed.
    /// A second call beside this one only syncs. What a reader holds for longer than a second stays where it is, and the levels keep their size
    /// while an [iterator](Self::iter) is there. Room that was [reserved](Self::reserve), or
    /// [expected](crate::Options::capacity), and never used is given back, too. A crash leaves every item with its value.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = gphash::Options::new().engine(gphash::Engine::Cpu);
    /// # let index = gphash::Index::<u64, [u64; 64]>::create(dir.path().join("index"), &options)?;
    /// let keys: Vec<u64> = (0..10_000).collect();
    /// index.insert(&keys, &vec![[7; 64]; keys.len()])?;
    /// index.remove(&keys[100..])?;
    /// index.compact(&|_| {})?;
    /// assert!(index.stats().free_bytes > 4_000_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`sync`](Self::sync): what has moved is free with the next one.
    pub fn compact(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
        self.table.opener().check(self.table.path())?;
        self.backend.compact(&self.table, progress)
    }

    /// Chooses the buckets of the cache in device memory anew, by the lookups so far, and fills in
    /// those that it does not hold. Batches go on meanwhile; when the call returns, the cache
    /// holds them. It waits for lookups that are under way, also for those on the caller's streams.
    /// Without a GPU, or with a [`cache_ratio`](crate::Options::cache_ratio) of 0, there is no such
    /// cache and nothing to do.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// index.get_one(&1)?;
    /// index.reload_cache()?; // on a GPU the bucket of key 1 may be in the cache now
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Gpu`]. The index goes on with what the cache holds.
    pub fn reload_cache(&self) -> Result<()> {
        self.backend()?.reload_cache(&self.table)
    }

    /// What opening the file found, and what it repaired.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// assert!(index.recovery().created);
    /// index.close()?;
    ///
    /// let index = gphash::Index::<u64, u64>::open(dir.path().join("index"), &gphash::Options::new())?;
    /// assert!(index.recovery().clean);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Closes the index cleanly, so that the next open scans nothing. Finishes a resize under
    /// way, and publishes a [version](Self::metadata) if something was changed since the last one. (Dropping does the same but cannot say what failed.)
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let index = gphash::Index::<u64, u64>::create(dir.path().join("index"), &gphash::Options::new())?;
    /// index.insert_one(&1, &10)?;
    /// index.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`sync`](Self::sync); the file is then as after a crash, and the next open recovers it. But
    /// [`Error::Damaged`] is what a resize or lookups on device slices have met: the file is cleanly closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    /// What executes a verb.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child of the process that has opened the index.
    #[inline]
    fn backend(&self) -> Result<&Backend> {
        self.backend.here(self.table.path())
    }

    fn shut(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        self.table.opener().check(self.table.path())?;
        self.maintainer.stop();
        let detached = self.backend.detach(&self.table);
        if let Err(Error::Gpu { .. }) = detached {
            return detached;
        }
        self.table.begin_last_version();
        self.table.close()?;
        // Lookups or a resize may have met damage, of which nobody was told.
        detached.and_then(|()| self.table.tell_staying())
    }
}

impl<K: Pod, V: Pod> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("path", &self.table.path())
            .field("items", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K: Pod, V: Pod> Drop for Index<K, V> {
    fn drop(&mut self) {
        if !self.table.opener().is_here() {
            return;
        }
        if let Err(error) = self.shut() {
            tracing::error!(%error, "closing the index");
        }
    }
}

fn same_length(keys: usize, values: usize) -> Result<()> {
    if keys == values {
        Ok(())
    } else {
        Err(Error::LengthMismatch { keys, values })
    }
}

fn from_ref<T>(one: &T) -> &[T] {
    std::slice::from_ref(one)
}
