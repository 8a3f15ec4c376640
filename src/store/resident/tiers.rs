//! Where items are: in the table, or below it among the sorted files that the coldest have left for.
//! What the table says of a key holds, whatever the files say: a deleted key that may be in a file has
//! a *tombstone* in the table.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fixedbitset::FixedBitSet;
use parking_lot::Mutex;

use super::room::Tombstones;
use crate::Result;
use crate::hot_cache::access_counts::AccessCounts;
use crate::index::bytes::BytesIndex;
use crate::lsm::{Lookup, LsmVersion, Spill, get_each};
use crate::pool::parallel;
use crate::pool::threads::PARALLEL_REQUESTS_MIN;
use crate::pool::worker::Worker;
use crate::store::files::dir::StoreDir;
use crate::store::mvcc::old_versions::Value;
use crate::store::wal::record::Entry;
pub use crate::store::wal::record::EntryMeta;
use crate::table::item::Mutation;

/// Lookups that one thread does at a time.
const TASK_LOOKUPS: usize = 256;

/// Fewest and most changes that one thread makes at a time.
const TASK_CHANGES_MIN: usize = 64;
const TASK_CHANGES_MAX: usize = 4096;

/// Parts of changes for each thread: one that is late leaves some to the others.
const TASKS_PER_THREAD: usize = 4;

/// Keys that wait for their way up at most, and their bytes, which are no more than those of the longest item that may
/// come up either.
const PROMOTABLE_KEYS_MAX: usize = 4096;
const PROMOTABLE_BYTES_MAX: u64 = 256 << 10;

/// What is in files at one moment.
pub struct Below<'t> {
    tiers: &'t TieredItems,
    version: Arc<LsmVersion>,
}

impl AsRef<LsmVersion> for Below<'_> {
    fn as_ref(&self) -> &LsmVersion {
        &self.version
    }
}

impl<'t> Below<'t> {
    /// Gives `found`, in no order, position and value of each of the keys that has one in the files below its table.
    ///
    /// # Errors
    /// Those of the files.
    pub fn read<'k>(
        keys: impl Iterator<Item = (usize, &'k [u8], &'t Self)>,
        mut found: impl FnMut(usize, Cow<'_, [u8]>),
    ) -> Result<()> {
        let lookups = keys.map(|(nth, key, files)| Lookup { nth, key, files });
        get_each(lookups, |of, value| {
            of.files.tiers.note_read(of.key, value.as_deref());
            if let Some(value) = value {
                found(of.nth, value.into());
            }
        })
    }
}

/// The table and what is below it.
pub struct TieredItems {
    /// The items in memory.
    pub table: BytesIndex,
    /// The others.
    pub spill: Spill,
    /// What is read often; nothing if all stays in the table.
    pub access_counts: Option<AccessCounts>,
    /// Keys that were read below the table again and again.
    promotable: Mutex<Promotable>,
    /// Bytes of the longest item that may come up, its key and its value.
    longest_promoted: AtomicU64,
    /// Brings them up.
    worker: Worker,
    /// Values that were found below the table.
    read_below: AtomicU64,
    /// What deleting those below the table takes.
    pub(super) tombstones: Tombstones,
}

/// Keys that wait for their way up.
#[derive(Default)]
struct Promotable {
    keys: Vec<Vec<u8>>,
    bytes: u64,
}

impl Promotable {
    /// Adds a key, if there is room for it beside items of at most so many bytes; else `false`.
    fn add(&mut self, key: &[u8], longest: u64) -> bool {
        let bytes = self.bytes + key.len() as u64;
        let bytes_max = longest.min(PROMOTABLE_BYTES_MAX);
        let has_room = self.keys.len() < PROMOTABLE_KEYS_MAX && bytes <= bytes_max;
        if has_room {
            self.keys.push(key.to_vec());
            self.bytes = bytes;
        }
        has_room
    }
}

impl TieredItems {
    /// The keys of items of which a file has a newer version: after damage the table may be older than it was. Items
    /// that were promoted from a file which has lost them count as changed.
    ///
    /// # Errors
    /// Those of the files and of the index.
    pub fn older_than_files(&self) -> Result<Vec<Vec<u8>>> {
        let version = self.spill.version();
        let mut keys: Vec<(Vec<u8>, EntryMeta)> = Vec::new();
        self.table.for_each_of(
            |_| true,
            |item| {
                if let Ok((key, stamp, _)) = item
                    && (EntryMeta(stamp).was_promoted()
                        || version.may_have_unread(key).unwrap_or(true))
                {
                    keys.push((key.to_vec(), EntryMeta(stamp)));
                }
            },
        );
        // Of neighbours one filter tells, which may have to be read.
        keys.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let newest = |key: &[u8], sequence| match version.find(key)? {
            // It counts only if its value can be read.
            Some((newer, _)) if newer > sequence => version.get(key).map(|_| Some(newer)),
            found => Ok(found.map(|(sequence, _)| sequence)),
        };
        let mut older = Vec::new();
        for (key, meta) in keys {
            let below = match newest(&key, meta.sequence()) {
                Err(error) if error.is_refusal() => return Err(error),
                // What a damaged file has is for its readers to hear.
                Err(error) => {
                    tracing::warn!(%error, "an item is taken as it is in the table");
                    None
                }
                Ok(below) => below,
            };
            if below > Some(meta.sequence()) {
                older.push(key);
            } else if below < Some(meta.sequence())
                && meta.was_promoted()
                // A damaged one is for its readers, too.
                && let Ok(Some(value)) = self.table.get(&key, |_, value| value)
            {
                let sequence = EntryMeta::new(meta.sequence(), false).0;
                let (key, value) = (&key, &value);
                self.apply(&[Mutation::Put {
                    key,
                    value,
                    sequence,
                }])?;
            }
        }
        Ok(older)
    }

    /// Puts the two together; the table takes about `budget` bytes, if there is one.
    pub fn new(table: BytesIndex, spill: Spill, budget: Option<u64>, worker: Worker) -> Self {
        if budget.is_some() {
            table.count_bytes();
        }
        Self {
            table,
            spill,
            access_counts: budget.map(AccessCounts::new),
            promotable: Mutex::default(),
            longest_promoted: AtomicU64::new(u64::MAX),
            worker,
            read_below: AtomicU64::new(0),
            tombstones: Tombstones::default(),
        }
    }

    /// Notes in the table which manifest there is, and up to which request it has all.
    pub fn mark(&self, store_dir: &StoreDir, sequence: Option<u64>) {
        let manifest = store_dir.manifest();
        self.table
            .mark(manifest.store_id, sequence, manifest.generation);
    }

    /// How many keys there are; tombstones and items that are in several places count, too.
    pub fn keys(&self) -> u64 {
        self.table.len() + self.spill.version().entries()
    }

    /// Values that were found below the table so far.
    pub fn read_below(&self) -> u64 {
        self.read_below.load(Ordering::Relaxed)
    }

    /// Counts a use of a key, if there is a budget.
    pub fn count(&self, key: &[u8]) {
        if let Some(access_counts) = &self.access_counts {
            access_counts.count(self.table.fingerprint(key));
        }
    }

    /// The value of a key. An item may leave the table meanwhile: the files are asked afterwards.
    ///
    /// # Errors
    /// Those of the index and of the files.
    pub fn get(&self, key: &[u8]) -> Result<Value> {
        self.count(key);
        let found = |stamp, value| EntryMeta(stamp).value(value);
        match self.table.get(key, found)? {
            Some(value) => Ok(value),
            None => match self.spill.version_if_any() {
                Some(version) => {
                    let below = version.get(key)?;
                    Ok(below.and_then(|(_, value)| {
                        self.note_read(key, value.as_deref());
                        value
                    }))
                }
                None => Ok(None),
            },
        }
    }

    /// Notes that a key was read in the files, and its value, or that it has none.
    fn note_read(&self, key: &[u8], value: Option<&[u8]>) {
        self.read_below.fetch_add(1, Ordering::Relaxed);
        let is_revisit =
            |access_counts: &AccessCounts| access_counts.is_revisit(self.table.fingerprint(key));
        let longest = self.longest_promoted.load(Ordering::Relaxed);
        if value.is_some_and(|value| (key.len() + value.len()) as u64 <= longest)
            && self.access_counts.as_ref().is_some_and(is_revisit)
            && let Some(mut promotable) = self.promotable.try_lock()
            && promotable.add(key, longest)
        {
            self.worker.call_if_possible();
        }
    }

    /// Whether there are keys that should come up into the table.
    pub fn has_promotable(&self) -> bool {
        !self.promotable.lock().keys.is_empty()
    }

    /// Says how long an item may be that comes up into the table.
    pub fn set_longest_promoted(&self, bytes: u64) {
        self.longest_promoted.store(bytes, Ordering::Relaxed);
    }

    /// Takes the keys that should come up into the table.
    pub fn take_promotable(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.promotable.lock()).keys
    }

    /// Lets keys wait again that were taken, as far as there is room for them.
    pub fn put_back_promotable(&self, keys: impl Iterator<Item = Vec<u8>>) {
        let longest = self.longest_promoted.load(Ordering::Relaxed);
        let mut promotable = self.promotable.lock();
        for key in keys {
            promotable.add(&key, longest);
        }
        self.worker.call_if_possible();
    }

    /// Gives `found` position and value of each of the keys that has one, in no order. `parallel` keys
    /// or more are looked up by several threads. As for [`get`](Self::get) otherwise.
    ///
    /// # Errors
    /// Those of the index and of the files.
    pub fn get_many(
        &self,
        keys: &[&[u8]],
        parallel: usize,
        mut found: impl FnMut(usize, Vec<u8>),
    ) -> Result<()> {
        if keys.len() < parallel {
            return self.get_some(keys, found);
        }
        let chunk = |(chunk, keys): (usize, &[&[u8]])| -> Result<_> {
            let mut values = Vec::with_capacity(keys.len());
            self.get_some(keys, |nth, value| {
                values.push((chunk * TASK_LOOKUPS + nth, value));
            })?;
            Ok(values)
        };
        for values in parallel::map(keys.chunks(TASK_LOOKUPS).enumerate(), chunk) {
            for (nth, value) in values? {
                found(nth, value);
            }
        }
        Ok(())
    }

    /// As [`get_many`](Self::get_many), on the caller's thread.
    ///
    /// # Errors
    /// Those of the index and of the files.
    pub fn get_some(&self, keys: &[&[u8]], mut found: impl FnMut(usize, Vec<u8>)) -> Result<()> {
        self.read_some(keys, &[], |nth, value| found(nth, value.into_owned()))
    }

    /// As [`get_some`](Self::get_some), but `found` borrows most values. `hints` are those of [`BytesIndex::get_many`].
    ///
    /// # Errors
    /// Those of the index and of the files.
    pub fn read_some(
        &self,
        keys: &[&[u8]],
        hints: &[u64],
        mut found: impl FnMut(usize, Cow<'_, [u8]>),
    ) -> Result<()> {
        if self.access_counts.is_some() {
            keys.iter().for_each(|key| self.count(key));
        }
        let mut above = FixedBitSet::with_capacity(keys.len());
        self.table.get_many(keys, hints, |nth, stamp, value| {
            above.insert(nth);
            if !EntryMeta(stamp).is_tombstone() {
                found(nth, value);
            }
        })?;
        if above.is_full() {
            return Ok(());
        }
        // Not earlier: what leaves the table is in a file before.
        match self.below() {
            Some(below) => Below::read(above.zeroes().map(|nth| (nth, keys[nth], &below)), found),
            None => Ok(()),
        }
    }

    /// What is below the table at this moment, if there is anything.
    pub fn below(&self) -> Option<Below<'_>> {
        let version = self.spill.version_if_any()?;
        Some(Below {
            tiers: self,
            version,
        })
    }

    /// Whether a deletion of a key must leave a tombstone: a file may have the key, or may soon have it.
    /// `precisely` says to look into the files.
    pub fn leaves_tombstone(
        &self,
        version: &LsmVersion,
        key: &[u8],
        is_evicting: bool,
        precisely: bool,
    ) -> bool {
        is_evicting
            || version.may_have_unread(key).unwrap_or(true)
                && !(precisely && matches!(version.find(key), Ok(None | Some((_, None)))))
    }

    /// The change of the table by which a key gets a value or, for `None`, loses it: by a tombstone
    /// where that [must be](Self::leaves_tombstone).
    pub fn change<'a>(
        &self,
        version: &LsmVersion,
        &Entry { key, value, .. }: &Entry<'a>,
        sequence: u64,
        (is_evicting, precisely): (bool, bool),
    ) -> Mutation<'a> {
        self.count(key);
        match value {
            None if !self.leaves_tombstone(version, key, is_evicting, precisely) => {
                Mutation::Delete { key }
            }
            _ => Mutation::Put {
                key,
                value: value.unwrap_or_default(),
                sequence: EntryMeta::new(sequence, value.is_none()).0,
            },
        }
    }

    /// Whether the table has what a later request than this one has left of a key, as far as it can be
    /// told; it has all requests up to `reached`.
    pub fn has_newer(&self, key: &[u8], sequence: u64, reached: u64) -> bool {
        let mut is_newer = sequence <= reached;
        // A record outside the file is for its reader to complain about.
        let _ = self.table.sequences(&[key], |_, stamp| {
            is_newer |= EntryMeta(stamp).sequence() > sequence;
        });
        is_newer
    }

    /// Makes changes in the table, no two of one key, on several threads if they are many. Bit *i* of
    /// the answer says that the key of change *i* was in the table before.
    ///
    /// # Errors
    /// Those of the index; some of the changes may have been made.
    pub fn apply(&self, changes: &[Mutation]) -> Result<FixedBitSet> {
        if changes.len() < PARALLEL_REQUESTS_MIN {
            return self.table.apply(changes);
        }
        let part = changes
            .len()
            .div_ceil(TASKS_PER_THREAD * parallel::threads());
        let part = part.clamp(TASK_CHANGES_MIN, TASK_CHANGES_MAX);
        let apply = |changes| self.table.apply(changes);
        let mut were_there = FixedBitSet::with_capacity(changes.len());
        for (nth, answers) in parallel::map(changes.chunks(part), apply)
            .into_iter()
            .enumerate()
        {
            were_there.extend(answers?.ones().map(|bit| nth * part + bit));
        }
        Ok(were_there)
    }
}
