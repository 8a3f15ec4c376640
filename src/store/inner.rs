//! All that the callers and the threads of a store share, and how it is read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::Mutex;

use crate::pool::run_off_pool;
use crate::store::commit::apply::PendingApply;
use crate::store::commit::execute::Execution;
use crate::store::commit::optimistic_reads::{Changed, OptimisticReads};
use crate::store::commit::requests::{Batch, Requests};
use crate::store::commit::sorter::Sorter;
use crate::store::files::dir::StoreDir;
use crate::store::merge::MergeOperator;
use crate::store::metrics::StoreMetrics;
use crate::store::mvcc::old_versions::{OldVersion, OldVersions, Snapshot, Snapshots, Value};
use crate::store::mvcc::spill_file::VersionSpill;
use crate::store::ordered::view::OrderedViewState;
use crate::store::request::{Request, Response, check_key};
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::{EntryMeta, TieredItems};
use crate::store::stats::Steps;
use crate::store::threads::PARALLEL_REQUESTS_MIN;
use crate::store::threads::Threads;
use crate::store::wal::{Log, SealedPrefix};
use crate::{Error, Result};

/// From how many lookups of one reader on several threads do them.
pub const PARALLEL_LOOKUPS_MIN: usize = 1 << 14;

/// All that the callers and the threads of a store share.
pub struct StoreInner {
    pub(in crate::store) tiers: TieredItems,
    /// Takes old versions out of memory, if there is a memory budget.
    pub(in crate::store) version_spill: Option<VersionSpill>,
    /// What the table may take; nothing if all items stay there.
    pub(in crate::store) budget: Option<Budget>,
    pub(in crate::store) log: Log,
    pub(in crate::store) store_dir: Arc<StoreDir>,
    pub(in crate::store) operator: Option<Arc<dyn MergeOperator>>,
    pub(in crate::store) sorter: Sorter,
    pub(in crate::store) threads: Threads,
    /// Changes are durable when they are answered.
    pub(in crate::store) durably: bool,
    pub(in crate::store) visible: ShardedLock<Visible>,
    /// Number of the last group of changes of which none are left to be made.
    pub(in crate::store) finished: AtomicU64,
    pub(in crate::store) snapshots: Snapshots,
    /// Held by the one who makes the ordered view.
    pub(in crate::store) building: Mutex<()>,
    /// Groups of changes that are in the log and that the index had no room for.
    pub(in crate::store) unfinished: Mutex<Vec<PendingApply>>,
    /// The disk had no room for a change, which a checkpoint may make.
    pub(in crate::store) was_full: AtomicBool,
    /// The disk had no room for the last checkpoint.
    pub(in crate::store) is_unsaved: AtomicBool,
    /// The table is not what the last checkpoint has made durable.
    pub(in crate::store) has_changed: AtomicBool,
    /// Bytes of memory that were freed in small blocks since the allocator was last told to give them back.
    pub(in crate::store) freed_bytes: AtomicU64,
    /// Why nothing is changed any more.
    pub(in crate::store) broken: OnceLock<Error>,
    /// The log before a checkpoint that was begun.
    pub(in crate::store) begun: Mutex<Option<SealedPrefix>>,
    pub(in crate::store) steps: Mutex<Steps>,
    pub(in crate::store) metrics: Arc<StoreMetrics>,
}

/// What readers see beside the index. Changes hold it alone, so that a reader sees a group of them
/// wholly or not at all.
pub struct Visible {
    /// Number of the last group of changes.
    pub commit_seq: u64,
    /// When which keys were changed.
    pub changed: Changed,
    pub old_versions: OldVersions,
    pub order: OrderedViewState,
    /// Items are on their way into a file that nobody sees yet.
    pub is_evicting: bool,
}

impl StoreInner {
    /// What readers see; no change runs beside it.
    pub fn visible(&self) -> ShardedLockReadGuard<'_, Visible> {
        self.visible.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::store) fn change_visible(&self) -> ShardedLockWriteGuard<'_, Visible> {
        self.visible.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment that is now.
    pub fn snapshot(&self) -> Snapshot {
        let visible = self.visible();
        self.snapshots.take(visible.commit_seq)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Value> {
        check_key(key)?;
        let _visible = self.visible();
        self.tiers.get(key)
    }

    /// The value that a key had in a live snapshot.
    pub fn get_at(&self, key: &[u8], commit_seq: u64) -> Result<Value> {
        check_key(key)?;
        let old_version = {
            let visible = self.visible();
            match visible.old_versions.value(key, commit_seq) {
                Some(old_version) => old_version.clone(),
                None => return self.tiers.get(key),
            }
        };
        old_version.into_value()
    }

    /// The values of keys at one moment; `found` gets the position and the value of each that has
    /// one.
    pub fn get_many(&self, keys: &[&[u8]], found: impl FnMut(usize, Vec<u8>) + Send) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        if keys.len() < PARALLEL_LOOKUPS_MIN {
            let _visible = self.visible();
            return self.tiers.get_some(keys, found);
        }
        run_off_pool(|| {
            let _visible = self.visible();
            self.threads
                .reads
                .install(|| self.tiers.get_many(keys, PARALLEL_LOOKUPS_MIN, found))
        })
    }

    /// The values that keys had in a live snapshot, in their order.
    pub fn get_many_at(&self, keys: &[&[u8]], commit_seq: u64) -> Result<Vec<Value>> {
        keys.iter().try_for_each(|key| check_key(key))?;
        match keys.len() {
            0..PARALLEL_LOOKUPS_MIN => self.lookup_at(keys, commit_seq),
            _ => run_off_pool(|| self.lookup_at(keys, commit_seq)),
        }
    }

    fn lookup_at(&self, keys: &[&[u8]], commit_seq: u64) -> Result<Vec<Value>> {
        let mut values = vec![None; keys.len()];
        let old_versions: Vec<Option<OldVersion>> = {
            let visible = self.visible();
            let old = |key: &&[u8]| visible.old_versions.value(key, commit_seq).cloned();
            let old_versions: Vec<Option<OldVersion>> = keys.iter().map(old).collect();
            let unchanged = (0..keys.len()).filter(|&nth| old_versions[nth].is_none());
            let (asked, keys): (Vec<usize>, Vec<&[u8]>) =
                unchanged.map(|nth| (nth, keys[nth])).unzip();
            let found = |nth: usize, value| values[asked[nth]] = Some(value);
            match keys.len() {
                0..PARALLEL_LOOKUPS_MIN => self.tiers.get_some(&keys, found)?,
                _ => self
                    .threads
                    .reads
                    .install(|| self.tiers.get_many(&keys, PARALLEL_LOOKUPS_MIN, found))?,
            }
            old_versions
        };
        for (value, old_version) in values.iter_mut().zip(old_versions) {
            if let Some(old_version) = old_version {
                *value = old_version.into_value()?;
            }
        }
        Ok(values)
    }

    /// Whether a key has a value.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let _visible = self.visible();
        self.has_value(key)
    }

    /// Whether a key had a value in a live snapshot.
    pub fn contains_at(&self, key: &[u8], commit_seq: u64) -> Result<bool> {
        check_key(key)?;
        let visible = self.visible();
        match visible.old_versions.value(key, commit_seq) {
            Some(old_version) => old_version.has_value(),
            None => self.has_value(key),
        }
    }

    /// Whether a key has a value, which is not read from the table. No item may leave that meanwhile.
    fn has_value(&self, key: &[u8]) -> Result<bool> {
        let mut meta = None;
        let found = |_, sequence| meta = Some(EntryMeta(sequence));
        self.tiers.table.sequences(&[key], found)?;
        match meta {
            Some(meta) => Ok(!meta.is_tombstone()),
            None => {
                let below = self.tiers.spill.version().get(key)?;
                Ok(below.is_some_and(|(_, value)| value.is_some()))
            }
        }
    }

    /// The answers to requests that are all gets, at one moment.
    pub fn answer(&self, requests: &[Request]) -> Result<Vec<Response>> {
        let requests = Requests::One(Batch::Owned(requests));
        let answer = || {
            let execution = Execution::start(&requests, &self.tiers, None, None)?;
            execution.answer(&self.tiers, 0..requests.len(), Vec::new())
        };
        match requests.len() {
            0..PARALLEL_REQUESTS_MIN => {
                let _visible = self.visible();
                answer()
            }
            _ => run_off_pool(|| {
                let _visible = self.visible();
                self.threads.reads.install(answer)
            }),
        }
    }

    /// Answers the gets of a batch before its turn, if that is worth while; `alone` says that nobody else
    /// is at work or waits.
    pub fn read_early(&self, requests: &[Request], alone: bool) -> Option<OptimisticReads> {
        let since = self.finished.load(Ordering::Acquire);
        OptimisticReads::read(requests, &self.tiers, since, alone)
    }
}
