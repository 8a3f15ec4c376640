//! A table of keys and values of variable length in its file, and what the store does with it.

use std::path::Path;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::open::{map_options, read_superblock};
use super::recover::{Policy, Progress, Recovery};
use super::stats::Stats;
use super::table::Table;
use super::upkeep::{Pace, Upkeeper};
use super::verify::Verified;
use crate::engine::cpu::CpuEngine;
use crate::layout::DATA_START;
use crate::layout::size_class::{MAX_VARIABLE_KEY, MAX_VARIABLE_VALUE};
use crate::options::{Engine, Options};
use crate::pm::{self, Mapping, Medium};
use crate::{Error, Result};

/// An index of byte strings in one file, on the CPU engine. Keys of 0 to 65,536 bytes, values of 0 to
/// 2^30; every key is legal. All methods take `&self` and may be called from many threads at once.
///
/// Beside its value each key has a sequence number, which is the caller's. Changes are as durable,
/// and as whole after a crash, as those of an [`Index`](super::Index).
pub(crate) struct Records {
    upkeeper: Upkeeper<Mapping>,
    engine: CpuEngine,
    table: Arc<Table<Mapping>>,
    closed: bool,
}

/// A key, its sequence number and its value.
pub(crate) type Item = (Vec<u8>, u64, Vec<u8>);

/// A change of one key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    /// Stores a value, with its sequence number, whether the key is there or not.
    Put {
        key: &'a [u8],
        value: &'a [u8],
        sequence: u64,
    },
    /// Takes the key out.
    Delete { key: &'a [u8] },
}

impl<'a> Change<'a> {
    /// The key that is changed.
    pub(crate) fn key(&self) -> &'a [u8] {
        match *self {
            Change::Put { key, .. } | Change::Delete { key } => key,
        }
    }
}

impl Records {
    /// Opens the file at `path` if there is one, and recovers it if it was not closed in order; else
    /// makes it. The engine that the options name is not asked for.
    ///
    /// # Errors
    /// As [`Index::open`](super::Index::open) and [`Index::create`](super::Index::create).
    pub(crate) fn open_or_create(path: &Path, options: &Options) -> Result<(Self, Recovery)> {
        match Self::create(path, options) {
            Err(Error::AlreadyExists { .. }) => Self::open(path, options),
            made => made,
        }
    }

    fn create(path: &Path, options: &Options) -> Result<(Self, Recovery)> {
        let shape = options.variable_shape()?;
        let medium = Mapping::create(path, DATA_START, &map_options(options))?;
        let made = Table::create(medium, shape, options.capacity, path)
            .and_then(|table| table.sync().map(|()| table));
        let recovery = Recovery {
            created: true,
            ..Recovery::default()
        };
        match made {
            Ok(table) => Ok((Self::with_table(table, options), recovery)),
            Err(error) => {
                pm::discard(path);
                Err(error)
            }
        }
    }

    fn open(path: &Path, options: &Options) -> Result<(Self, Recovery)> {
        options.variable_shape()?;
        let medium = Mapping::open(path, &map_options(options))?;
        let superblock = read_superblock(&medium, path)?;
        if !superblock.is_variable() {
            return Err(Error::WrongKind {
                path: path.to_path_buf(),
                found: "keys and values of fixed size",
                expected: "keys and values of variable length",
            });
        }
        let (table, recovery) = Table::open(medium, superblock, path, Policy::INDEX)?;
        tracing::info!(path = %path.display(), ?recovery, "opened");
        Ok((Self::with_table(table, options), recovery))
    }

    fn with_table(table: Table<Mapping>, options: &Options) -> Self {
        let table = Arc::new(table);
        let mut pace = Pace::default();
        Self {
            upkeeper: Upkeeper::start(&table, move |table| table.keep_up(&mut pace)),
            engine: CpuEngine::new(options.threads),
            table,
            closed: false,
        }
    }

    /// Gives `read` the sequence number and the value of a key, if it is there. The value is whole.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a slot names a record outside the file.
    pub(crate) fn get<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(u64, &[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut value = Vec::new();
        let mut session = self.table.session();
        let sequence = session.get(key, &mut value)?;
        drop(session);
        Ok(sequence.map(|sequence| read(sequence, &value)))
    }

    /// Calls `found` with the position, the sequence number and the value of each of `keys` that is
    /// there, in their order. `found` must not use these records: a checkpoint or a change may wait
    /// for this look-up.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn get_many(
        &self,
        keys: &[&[u8]],
        found: impl FnMut(usize, u64, &[u8]),
    ) -> Result<()> {
        self.engine.get_many(&self.table, keys, found)
    }

    /// Executes changes, each whole, those of one key in the order given; several threads do if they
    /// are many. Bit *i* of the answer says that the key of change *i* was there before.
    ///
    /// # Errors
    /// [`Error::Limit`] before anything is done if a key or a value is too long. [`Error::NoSpace`] or
    /// [`Error::Limit`] when the table cannot grow: then some of the changes may have been done.
    pub(crate) fn apply(&self, changes: &[Change]) -> Result<FixedBitSet> {
        self.engine.apply(&self.table, changes)
    }

    /// The fingerprint of a key, by which [`find`](Self::find) finds it.
    pub(crate) fn fingerprint(&self, key: &[u8]) -> u64 {
        self.table.target(key).word
    }

    /// Keys, sequence numbers and values of the items that have a fingerprint, in no order: mostly
    /// one, or none. Changes that run at the same time are seen or not.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn find(&self, fingerprint: u64) -> Result<Vec<Item>> {
        self.table.session().find_all(fingerprint)
    }

    /// Calls `found` with the position, key, sequence number and value of an item of each of `fingerprints` that
    /// has one, in their order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn find_many(
        &self,
        fingerprints: &[u64],
        found: impl FnMut(usize, &[u8], u64, &[u8]),
    ) -> Result<()> {
        self.engine.find_many(&self.table, fingerprints, found)
    }

    /// Calls `visit` with key, sequence number and value of every item, in no order. What others
    /// change meanwhile may be seen or not; an item that is there all the while is seen, and once
    /// unless the table begins to grow meanwhile.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn for_each(&self, visit: impl FnMut(&[u8], u64, &[u8])) -> Result<()> {
        self.table.visit_items(|_| true, visit)
    }

    /// As [`for_each`](Self::for_each), with the items of the fingerprints that are `chosen` alone.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn for_each_of(
        &self,
        chosen: impl FnMut(u64) -> bool,
        visit: impl FnMut(&[u8], u64, &[u8]),
    ) -> Result<()> {
        self.table.visit_items(chosen, visit)
    }

    /// Begins to count [`record_bytes`](Self::record_bytes). It reads all that says which records are
    /// free. Nothing else may run beside it.
    pub(crate) fn count_bytes(&self) {
        self.table.count_record_bytes();
    }

    /// Bytes of the records that items name, rounded up to their size classes.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.table.record_bytes()
    }

    /// Bytes of the levels. A table that has grown keeps them.
    pub(crate) fn level_bytes(&self) -> u64 {
        self.table.level_bytes()
    }

    /// Items. Batches that run at the same time count when they end.
    pub(crate) fn len(&self) -> u64 {
        self.table.len()
    }

    /// Makes what has returned durable, in the domain `Checkpointed` by one atomic checkpoint.
    ///
    /// # Errors
    /// As [`Index::sync`](super::Index::sync).
    pub(crate) fn sync(&self) -> Result<()> {
        self.table.sync()
    }

    /// Begins a sync: what has returned is in it, and what comes before its
    /// [completion](Self::complete_sync) is not, in the domain `Checkpointed`.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn begin_sync(&self) -> Result<()> {
        self.table.capture()
    }

    /// Makes durable what the last [beginning](Self::begin_sync) has taken; changes may run beside it.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn complete_sync(&self) -> Result<()> {
        self.table.medium.complete()
    }

    /// Checks all that the file says, beside running changes; see [`Table::verify`].
    pub(crate) fn verify(&self, progress: &(dyn Fn(Progress) + Sync)) -> Verified {
        self.table.verify(progress)
    }

    /// Figures.
    pub(crate) fn stats(&self) -> Stats {
        self.table.stats(Engine::Cpu)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        self.table.path()
    }

    /// The error for an index that contradicts itself.
    pub(crate) fn damaged(&self, found: String) -> Error {
        self.table.damaged("index", 0, found)
    }

    /// Seed of the hash of keys.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn hash_seed(&self) -> u64 {
        self.table.hash_seed
    }

    /// Closes the file in order, so that the next open scans nothing. (Dropping does the same but
    /// cannot say what failed.)
    ///
    /// # Errors
    /// As [`sync`](Self::sync); the next open recovers the file then.
    pub(crate) fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        self.upkeeper.stop();
        self.table.close()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::error!(%error, "the records were not closed in order");
        }
    }
}

impl<M: Medium> Table<M> {
    /// Says whether key and value of a change are too long.
    pub(crate) fn check_lengths(&self, change: &Change) -> Result<()> {
        let (key, value) = match change {
            Change::Put { key, value, .. } => (key.len(), value.len()),
            Change::Delete { key } => (key.len(), 0),
        };
        for (what, len, limit) in [
            ("the length of a key", key as u64, MAX_VARIABLE_KEY),
            ("the length of a value", value as u64, MAX_VARIABLE_VALUE),
        ] {
            if len > limit {
                return Err(self.limit(what, len, limit));
            }
        }
        Ok(())
    }
}
