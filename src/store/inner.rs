//! All that the callers and the threads of a store share, and how it is read.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::Mutex;

use crate::pool::changed::Changed;
use crate::pool::snapshots::Snapshot;
use crate::pool::threads::Threads;
use crate::store::commit::optimistic_reads::OptimisticReads;
use crate::store::files::dir::StoreDir;
use crate::store::merge::MergeOperator;
use crate::store::mvcc::old_versions::{OldVersion, OldVersions, Value};
use crate::store::mvcc::published::Published;
use crate::store::mvcc::spill_file::VersionSpill;
use crate::store::request::{Request, check_key};
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::{EntryMeta, TieredItems};
use crate::store::shared::Shared;
use crate::store::stats::Steps;
use crate::store::wal::{Log, SealedPrefix};
use crate::width::low_byte;
use crate::{Error, Result};

/// From how many lookups of one reader on several threads do them.
pub const PARALLEL_LOOKUPS_MIN: usize = 1 << 14;

/// All that the callers and the threads of a store share. What each group of changes stores to has lines of its own, so
/// that readers have the rest in their caches.
pub struct StoreInner {
    pub(in crate::store) tiers: TieredItems,
    /// Takes old versions out of memory, if there is a memory budget.
    pub(in crate::store) version_spill: Option<VersionSpill>,
    /// What the table may take; nothing if all items stay there.
    pub(in crate::store) budget: Option<Budget>,
    pub(in crate::store) log: Arc<Log>,
    pub(in crate::store) store_dir: Arc<StoreDir>,
    pub(in crate::store) operator: Option<Arc<dyn MergeOperator>>,
    pub(in crate::store) threads: Threads,
    pub(in crate::store) shared: Arc<Shared>,
    /// Changes are durable when they are answered.
    pub(in crate::store) durably: bool,
    /// Commits, and those that the table may not have yet.
    pub(in crate::store) published: CachePadded<Published>,
    /// Number of the last commit that the table has, with all before it.
    pub(in crate::store) finished: CachePadded<AtomicU64>,
    /// What live snapshots see that the table has no more. It is changed before the table is.
    pub(in crate::store) old_versions: ShardedLock<OldVersions>,
    /// Held by the one who changes the table.
    pub(in crate::store) applying: CachePadded<Mutex<Applying>>,
    /// Locked while items are on their way into a file.
    pub(in crate::store) evicting: Mutex<()>,
    /// The disk had no room for a change, which a checkpoint may make.
    pub(in crate::store) was_full: AtomicBool,
    /// The disk had no room for the last checkpoint.
    pub(in crate::store) is_unsaved: AtomicBool,
    /// The table is not what the last checkpoint has made durable.
    pub(in crate::store) has_changed: AtomicBool,
    /// There are old versions.
    pub(in crate::store) has_old_versions: AtomicBool,
    /// They take more memory than may stay for a moment once nobody sees them, or disk.
    pub(in crate::store) has_many_old_versions: AtomicBool,
    /// Number of the newest commit of whose changes some are among the old versions, or were.
    pub(in crate::store) newest_kept: AtomicU64,
    /// The oldest snapshot at the last time that all of them were swept.
    pub(in crate::store) swept_for: Mutex<Option<u64>>,
    /// Bytes of memory that were freed in small blocks since the allocator was last told to give them back.
    pub(in crate::store) freed_bytes: AtomicU64,
    /// Why nothing is changed any more.
    pub(in crate::store) broken: OnceLock<Error>,
    /// The log before a checkpoint that was begun.
    pub(in crate::store) begun: Mutex<Option<SealedPrefix>>,
    pub(in crate::store) steps: CachePadded<Mutex<Steps>>,
    /// Short groups of changes until the next one whose steps are timed.
    pub(in crate::store) short_groups: CachePadded<AtomicU32>,
    /// Records of the log that the opening has replayed.
    pub(in crate::store) replayed_records: u64,
}

/// What only the one who changes the table uses. No reader waits for it.
pub struct Applying {
    /// When which keys were changed.
    pub changed: Changed,
    /// Items are on their way into a file that nobody sees yet.
    pub is_evicting: bool,
}

impl StoreInner {
    /// The number of this partition.
    pub fn number(&self) -> u8 {
        low_byte(self.published.partition() as u64)
    }

    /// What live snapshots see that the table has no more.
    pub fn old_versions(&self) -> ShardedLockReadGuard<'_, OldVersions> {
        self.old_versions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The old versions, if they may have what a snapshot sees: it is asked after the table. They have it before the
    /// table loses it.
    pub fn old_versions_at(
        &self,
        commit_seq: u64,
    ) -> Option<ShardedLockReadGuard<'_, OldVersions>> {
        let has_some = self.newest_kept.load(Ordering::SeqCst) > commit_seq;
        has_some.then(|| self.old_versions())
    }

    pub(in crate::store) fn change_old_versions(&self) -> ShardedLockWriteGuard<'_, OldVersions> {
        self.old_versions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are old versions.
    pub fn has_old_versions(&self) -> bool {
        self.has_old_versions.load(Ordering::SeqCst)
    }

    /// Whether there are old versions that no snapshot sees.
    pub fn has_unseen_versions(&self) -> bool {
        self.has_old_versions() && self.shared.snapshots.is_empty()
    }

    /// Whether the disk had no room for the last checkpoint.
    pub fn is_unsaved(&self) -> bool {
        self.is_unsaved.load(Ordering::Relaxed)
    }

    /// The moment that is now.
    pub fn snapshot(&self) -> Snapshot {
        self.shared
            .snapshots
            .take_newest(|| self.shared.clock.moment())
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Value> {
        check_key(key)?;
        self.value_up_to(key, u64::MAX)
    }

    /// The value that a key had in a live snapshot.
    pub fn get_at(&self, key: &[u8], commit_seq: u64) -> Result<Value> {
        check_key(key)?;
        let old_version = || {
            let old_versions = self.old_versions_at(commit_seq)?;
            old_versions.value(key, commit_seq).cloned()
        };
        if let Some(old_version) = old_version() {
            return old_version.into_value();
        }
        let value = self.value_up_to(key, commit_seq);
        // It was kept before the table lost it.
        match old_version() {
            Some(old_version) => old_version.into_value(),
            None => value,
        }
    }

    /// The value of a key in a commit or in a later one that the table has.
    fn value_up_to(&self, key: &[u8], commit_seq: u64) -> Result<Value> {
        // The table may have more than was published when this call began, but never less.
        match self.published.value(key, commit_seq) {
            Some(value) => Ok(value),
            None => self.tiers.get(key),
        }
    }

    /// Gives `found` position and value of each of the keys that has one in a commit, or in a later one that the
    /// table has. `hints` are those of
    /// [`BytesIndex::get_many`](crate::index::bytes::BytesIndex::get_many), or none; the caller has held the index since a
    /// moment when the table had all commits up to that one.
    pub(in crate::store) fn read_up_to(
        &self,
        keys: &[&[u8]],
        hints: &[u64],
        commit_seq: u64,
        mut found: impl FnMut(usize, Cow<'_, [u8]>),
    ) -> Result<()> {
        if self.published.is_quiet() {
            return self.tiers.read_some(keys, hints, found);
        }
        let mut asked: Vec<usize> = Vec::with_capacity(keys.len());
        for (nth, key) in keys.iter().enumerate() {
            match self.published.value(key, commit_seq) {
                Some(Some(value)) => found(nth, value.into()),
                Some(None) => {}
                None => asked.push(nth),
            }
        }
        let below: Vec<&[u8]> = asked.iter().map(|&nth| keys[nth]).collect();
        let hints: Vec<u64> = match hints {
            [] => Vec::new(),
            hints => asked.iter().map(|&nth| hints[nth]).collect(),
        };
        let found = |nth: usize, value: Cow<'_, [u8]>| found(asked[nth], value);
        self.tiers.read_some(&below, &hints, found)
    }

    /// Whether a key has a value.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.has_value(key, u64::MAX)
    }

    /// Whether a key had a value in a live snapshot.
    pub fn contains_at(&self, key: &[u8], commit_seq: u64) -> Result<bool> {
        check_key(key)?;
        let old = || {
            let old_versions = self.old_versions_at(commit_seq)?;
            let old_version = old_versions.value(key, commit_seq);
            old_version.map(OldVersion::has_value)
        };
        if let Some(had_value) = old() {
            return had_value;
        }
        let has_value = self.has_value(key, commit_seq);
        // As for [`get_at`](Self::get_at).
        old().unwrap_or(has_value)
    }

    /// Whether a key has a value in a commit or in a later one that the table has. The value is not read from the
    /// table.
    fn has_value(&self, key: &[u8], commit_seq: u64) -> Result<bool> {
        if let Some(value) = self.published.value(key, commit_seq) {
            return Ok(value.is_some());
        }
        let mut meta = None;
        let found = |_, sequence| meta = Some(EntryMeta(sequence));
        self.tiers.table.sequences(&[key], found)?;
        match meta {
            Some(meta) => Ok(!meta.is_tombstone()),
            None => {
                // Not earlier: what leaves the table is in a file before.
                let version = self.tiers.spill.version_if_any();
                let below = version.map(|version| version.find(key)).transpose()?;
                Ok(below.flatten().is_some_and(|(_, value)| value.is_some()))
            }
        }
    }

    /// Answers the gets of a batch before its turn, if that is worth while; `alone` says that nobody else
    /// is at work or waits.
    pub fn read_early(&self, requests: &[Request], alone: bool) -> Option<OptimisticReads> {
        let since = self.finished.load(Ordering::Acquire);
        OptimisticReads::read(requests, &self.tiers, since, alone)
    }
}
