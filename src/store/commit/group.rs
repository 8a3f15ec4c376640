//! The store at work: how groups of jobs are carried out, and what readers see meanwhile.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::{Mutex, MutexGuard};
use rayon::prelude::*;

use super::REQUESTS_PER_THREAD_MIN;
use super::execute::Execution;
use super::optimistic_reads::{Changed, OptimisticReads};
use super::queue::{Answer, Job, Work};
use super::sorter::Sorter;
use crate::pool::run_off_pool;
use crate::store::files::dir::{Room, StoreDir, is_full};
use crate::store::files::reserve;
use crate::store::merge::MergeOperator;
use crate::store::mvcc::old_versions::{Before, OldVersions, Snapshot, Snapshots, Value};
use crate::store::mvcc::read_set::ReadSet;
use crate::store::ordered::view::OrderedViewState;
use crate::store::request::{Request, Response, check_key};
use crate::store::resident::budget::Budget;
use crate::store::resident::tiers::{EntryMeta, TieredItems};
use crate::store::stats::Steps;
use crate::store::threads::PARALLEL_REQUESTS_MIN;
use crate::store::threads::Threads;
use crate::store::wal::record;
use crate::store::wal::record::Entry;
use crate::store::wal::{LONGEST_IN_MEMORY, Log, SealedPrefix};
use crate::table::item::Mutation;
use crate::table::room::Need;
use crate::{Error, Result};

/// From how many lookups of one reader on several threads do them.
const PARALLEL_LOOKUPS_MIN: usize = 1 << 14;

/// All that the callers and the threads of a store share.
pub struct StoreInner {
    pub(in crate::store) tiers: TieredItems,
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
    /// Why nothing is changed any more.
    pub(in crate::store) broken: OnceLock<Error>,
    /// The log before a checkpoint that was begun.
    pub(in crate::store) begun: Mutex<Option<SealedPrefix>>,
    pub(in crate::store) steps: Mutex<Steps>,
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
    pub are_leaving: bool,
}

/// Changes that wait for room.
pub struct PendingApply {
    /// Sequence number of the batch's first request.
    first: u64,
    /// Keys, final values and positions of the requests.
    changes: Vec<(Vec<u8>, Value, u32)>,
}

impl PendingApply {
    fn entries(&self) -> Vec<Entry<'_>> {
        self.changes
            .iter()
            .map(|(key, value, position)| Entry {
                key,
                value: value.as_deref(),
                position: *position,
            })
            .collect()
    }
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
        let visible = self.visible();
        match visible.old_versions.value(key, commit_seq) {
            Some(before) => before.clone().map_err(|error| *error),
            None => self.tiers.get(key),
        }
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

    /// The answers to requests that are all gets, at one moment.
    pub fn answer(&self, requests: &[Request]) -> Result<Vec<Response>> {
        let requests: Vec<&Request> = requests.iter().collect();
        let answer = || {
            let execution = Execution::start(&requests, &self.tiers, None, None)?;
            execution.answer(&self.tiers, Vec::new())
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

    /// Refuses all further changes: one of them has panicked. Gives what callers are told.
    pub fn broke(&self, words: String) -> Error {
        tracing::error!(words, "a change panicked; the store takes no more of them");
        let error = || Error::Broken {
            path: self.store_dir.path().to_path_buf(),
            found: words,
        };
        self.broken.get_or_init(error).clone()
    }

    /// Carries out a group of jobs, as their leader.
    pub fn lead(&self, group: &mut [Job]) -> Vec<Answer> {
        if let Some(error) = self.broken.get() {
            return group.iter().map(|_| Err(error.clone())).collect();
        }
        let len = group
            .iter()
            .map(|job| job.work.len())
            .fold(0, usize::saturating_add);
        let early = group.iter_mut().map(|job| job.work.take_early()).collect();
        let works: Vec<&Work> = group.iter().map(|job| &job.work).collect();
        let takes_long = len >= PARALLEL_REQUESTS_MIN || !self.unfinished().is_empty();
        self.threads
            .lead(takes_long, || self.carry_out(&works, early))
    }

    fn carry_out(&self, group: &[&Work], early: Vec<Option<OptimisticReads>>) -> Vec<Answer> {
        match group[0] {
            Work::Batch(..) | Work::Transaction(..) => self.run_joined(group, early),
            Work::Whole(requests) => {
                let requests: Vec<&Request> = requests.iter().collect();
                let finished = goes_before(self.finish(), requests.iter().copied());
                vec![finished.and_then(|()| self.run(&requests, Vec::new(), &[], true))]
            }
            Work::Checkpoint => vec![self.begin_checkpoint().map(|()| Vec::new())],
            Work::Evict(items) => vec![self.leave(items).map(|()| Vec::new())],
            Work::Promote(keys) => vec![self.rise(keys).map(|()| Vec::new())],
        }
    }

    /// Carries out batches and transactions as if one came after the other.
    fn run_joined(&self, group: &[&Work], early: Vec<Option<OptimisticReads>>) -> Vec<Answer> {
        // What is finished now is a change, too, that a transaction may not have seen.
        let finished = self.finish();
        let jobs = self.drop_conflicting(group);
        let mut all: Vec<&Request> = Vec::new();
        for requests in jobs.iter().copied().flatten() {
            all.par_extend(requests.par_iter().with_min_len(REQUESTS_PER_THREAD_MIN));
        }
        let finished = goes_before(finished, all.iter().copied());
        let early = self.still_valid(&jobs, early);
        let answers = finished.and_then(|()| self.run(&all, early, &read_sets(group), false));
        if let Err(Error::Damaged { .. } | Error::NoSpace { .. }) = answers
            && jobs.len() > 1
        {
            // Nothing was done; who has not asked for what is damaged, or for too much room, shall not be
            // told so.
            let alone = |(requests, work): (&Option<&[Request]>, &&Work)| match requests {
                None => Err(Error::Conflict),
                Some(requests) => {
                    let requests: Vec<&Request> = requests.iter().collect();
                    self.finish()?;
                    self.run(&requests, Vec::new(), &read_sets(&[work]), false)
                }
            };
            return jobs.iter().zip(group).map(alone).collect();
        }
        let mut answers = answers.map(Vec::into_iter);
        let answer = |requests: &Option<&[Request]>| match (requests, &mut answers) {
            (None, _) => Err(Error::Conflict),
            (Some(requests), Ok(all)) => Ok(all.take(requests.len()).collect()),
            (Some(_), Err(error)) => Err(error.clone()),
        };
        jobs.iter().map(answer).collect()
    }

    /// What holds of what was read early for jobs, by the positions of their requests; empty if nothing
    /// was read.
    fn still_valid(
        &self,
        jobs: &[Option<&[Request]>],
        early: Vec<Option<OptimisticReads>>,
    ) -> Vec<Option<Response>> {
        let mut answers = Vec::new();
        if early.iter().all(Option::is_none) {
            return answers;
        }
        let changed = &self.visible().changed;
        for (requests, early) in jobs.iter().zip(early) {
            match (requests, early) {
                (None, _) => {}
                (Some(requests), None) => answers.extend(vec![None; requests.len()]),
                (Some(requests), Some(early)) => {
                    answers.extend(early.into_valid(requests, changed));
                }
            }
        }
        answers
    }

    /// The requests of each job; none of a transaction that others are in conflict with, those before
    /// it among the jobs included.
    fn drop_conflicting<'j>(&self, group: &[&'j Work]) -> Vec<Option<&'j [Request]>> {
        let visible = self.visible();
        let is_transaction = |work: &&Work| matches!(work, Work::Transaction(..));
        let last = group.iter().rposition(is_transaction).unwrap_or(0);
        // Keys that the jobs so far change, as far as a transaction behind them must know.
        let mut changed = BTreeSet::new();
        let requests = |(nth, work): (usize, &&'j Work)| {
            if let Some(read_set) = work.read_set()
                && !read_set.hold(&visible.old_versions, &changed)
            {
                read_set.release();
                return None;
            }
            let requests = work.joined().expect("jobs of a group join each other");
            if nth < last {
                let changes = requests.iter().filter(|request| !request.is_get());
                changed.extend(changes.map(Request::key));
            }
            Some(requests)
        };
        group.iter().enumerate().map(requests).collect()
    }

    /// Carries out requests in their order, nothing being unfinished; with `whole`, all of them or none.
    /// The `read_sets` of their transactions hold.
    fn run(
        &self,
        requests: &[&Request],
        early: Vec<Option<Response>>,
        read_sets: &[&ReadSet],
        whole: bool,
    ) -> Answer {
        let mut since = Instant::now();
        let gpu = self.sorter.gpu(requests.len());
        let operator = self.operator.as_deref();
        let execution = Execution::start(requests, &self.tiers, operator, gpu)?;
        if let Some(error) = execution.failure().filter(|_| whole) {
            return Err(error.clone());
        }
        self.took(&mut since, |steps| &mut steps.versions);
        let finals = execution.finals();
        let answer = || {
            let began = Instant::now();
            execution
                .answer(&self.tiers, early)
                .map(|answers| (answers, began.elapsed()))
        };
        match finals.is_empty() {
            true => {
                let (answers, took) = answer()?;
                self.steps.lock().answers += took;
                Ok(answers)
            }
            false => self.commit(requests.len() as u64, &finals, read_sets, answer, since),
        }
    }

    /// Puts the final values of a batch of `span` requests into the log, and then into the index. The
    /// answers are made before, and the step before that ended at `since`.
    fn commit(
        &self,
        span: u64,
        finals: &[Entry],
        read_sets: &[&ReadSet],
        answer: impl FnOnce() -> Result<(Vec<Response>, Duration)> + Send,
        mut since: Instant,
    ) -> Answer {
        let room = self.hold_for(finals)?;
        // Not earlier: without room, their transactions come again. Not later: what these changes
        // replace need not be kept for them.
        read_sets.iter().for_each(|read_set| read_set.release());
        let first = self.log.next_sequence();
        // Those threads have more changes than that already.
        let takes_long =
            finals.len() < PARALLEL_REQUESTS_MIN && record::len(finals) > LONGEST_IN_MEMORY;
        let append = || self.log.append(span, finals, self.durably, room, answer);
        let (answers, took) = self.threads.lead(takes_long, append)?;
        self.steps.lock().answers += took;
        since += took;
        self.took(&mut since, |steps| &mut steps.log);
        let applied = self.with_last_room(|| self.apply(first, finals));
        self.supersede(finals);
        let applied = applied.map_err(|error| {
            let owned = |entry: &Entry| {
                let value = entry.value.map(<[u8]>::to_vec);
                (entry.key.to_vec(), value, entry.position)
            };
            let changes = finals.iter().map(owned).collect();
            self.unfinished().push(PendingApply { first, changes });
            Error::Unfinished {
                source: Arc::new(error),
            }
        });
        self.took(&mut since, |steps| &mut steps.index);
        applied.map(|()| answers)
    }

    /// Counts the time since `since` for a step that ends now.
    fn took(&self, since: &mut Instant, step: impl Fn(&mut Steps) -> &mut Duration) {
        let now = Instant::now();
        *step(&mut self.steps.lock()) += now.saturating_duration_since(*since);
        *since = now;
    }

    fn unfinished(&self) -> MutexGuard<'_, Vec<PendingApply>> {
        self.unfinished.lock()
    }

    /// Gives the index what it had no room for.
    fn finish(&self) -> Result<()> {
        let mut unfinished = self.unfinished();
        while let Some(group) = unfinished.first() {
            let entries = group.entries();
            self.with_last_room(|| self.apply(group.first, &entries))?;
            unfinished.remove(0);
        }
        Ok(())
    }

    /// Has the index do what it must, with all of the disk's room but for a checkpoint's.
    fn with_last_room(&self, apply: impl Fn() -> Result<()>) -> Result<()> {
        let keep = self.journal_bytes() + reserve::LAST;
        self.store_dir.with_room(Room::Reserve { keep }, || {
            let applied = apply();
            if !is_full(&applied) {
                return applied;
            }
            self.tiers.table.trim();
            apply()
        })
    }

    /// Takes out of what is unfinished what is changed by a later group, which has come before it.
    fn supersede(&self, finals: &[Entry]) {
        let mut unfinished = self.unfinished();
        if unfinished.is_empty() {
            return;
        }
        let keys: BTreeSet<&[u8]> = finals.iter().map(|entry| entry.key).collect();
        for group in unfinished.iter_mut() {
            group.changes.retain(|(key, ..)| !keys.contains(&key[..]));
        }
    }

    /// Makes the changes of a batch whose first request has the sequence number `first`, no two of one
    /// key, and shows them.
    fn apply(&self, first: u64, entries: &[Entry]) -> Result<()> {
        // Reading what the snapshots see may take the disk, so that is done before readers must wait.
        let newest = self.snapshots.newest();
        let mut kept = self.to_keep(entries, newest, &self.visible())?;
        let mut visible = self.change_visible();
        let newest_now = self.snapshots.newest();
        if newest_now != newest {
            kept = self.to_keep(entries, newest_now, &visible)?;
        }
        visible.old_versions.prune(&self.snapshots.live());
        let commit_seq = visible.commit_seq + 1;
        for (key, value) in kept {
            visible.old_versions.keep(key, commit_seq, value);
        }
        visible.commit_seq = commit_seq;
        let keys = entries.iter().map(|entry| entry.key);
        visible.changed.note(keys, commit_seq);
        let version = self.tiers.spill.version();
        let leaving = (visible.are_leaving, self.store_dir.is_tight());
        let change = |entry| {
            let entry: &Entry = entry;
            let sequence = first + u64::from(entry.position);
            self.tiers.change(&version, entry, sequence, leaving)
        };
        let entries = entries.par_iter().with_min_len(REQUESTS_PER_THREAD_MIN);
        let changes: Vec<Mutation> = entries.map(change).collect();
        self.change_table(&mut visible, &changes)?;
        self.finished.store(commit_seq, Ordering::Release);
        Ok(())
    }

    /// Makes changes in the table, no two of one key.
    fn change_table(&self, visible: &mut Visible, changes: &[Mutation]) -> Result<()> {
        self.has_changed.store(true, Ordering::Relaxed);
        match self.tiers.apply(changes) {
            Ok(were_there) => {
                let order = &mut visible.order;
                order.follow(changes, &were_there, &self.tiers.table);
                if let Some(budget) = &self.budget {
                    budget.look(&self.tiers.table);
                }
                Ok(())
            }
            Err(error) => {
                // Which of them have been made is not known.
                visible.order.forget();
                Err(error)
            }
        }
    }

    /// What the newest snapshot sees of the keys that change, as far as it must be kept.
    fn to_keep<'w>(
        &self,
        entries: &[Entry<'w>],
        newest: Option<u64>,
        visible: &Visible,
    ) -> Result<Vec<(&'w [u8], Before)>> {
        let Some(seen) = newest else {
            return Ok(Vec::new());
        };
        let keys: Vec<&[u8]> = entries
            .iter()
            .map(|entry| entry.key)
            .filter(|key| visible.old_versions.is_needed(key, seen))
            .collect();
        let mut values = vec![Ok(None); keys.len()];
        let read = self
            .tiers
            .get_many(&keys, PARALLEL_LOOKUPS_MIN, |nth, value| {
                values[nth] = Ok(Some(value));
            });
        if let Err(Error::Damaged { .. }) = read {
            // What is damaged is for the snapshot's reader to hear of; the change takes its place.
            for (value, key) in values.iter_mut().zip(&keys) {
                *value = match self.tiers.get(key) {
                    Err(error @ Error::Damaged { .. }) => Err(Box::new(error)),
                    value => Ok(value?),
                };
            }
        } else {
            read?;
        }
        Ok(keys.into_iter().zip(values).collect())
    }

    /// Takes items out of the table that are in a file now, but for those that have changed since.
    fn leave(&self, items: &[(Vec<u8>, EntryMeta)]) -> Result<()> {
        let keys: Vec<&[u8]> = items.iter().map(|(key, _)| key.as_slice()).collect();
        let mut changes = Vec::with_capacity(keys.len());
        self.tiers.table.sequences(&keys, |nth, stamp| {
            if EntryMeta(stamp) == items[nth].1 {
                changes.push(Mutation::Delete { key: keys[nth] });
            }
        })?;
        self.hold_to_remove(changes.len())?;
        self.change_table(&mut self.change_visible(), &changes)
    }

    /// Takes items out of the table of which a file has a newer version: after damage the table may be
    /// older than it was.
    pub(in crate::store) fn yield_to_newer(&self) -> Result<()> {
        let version = self.tiers.spill.version();
        if version.is_empty() {
            return Ok(());
        }
        let mut keys: Vec<(Vec<u8>, u64)> = Vec::new();
        self.tiers.table.for_each_of(
            |_| true,
            |item| {
                if let Ok((key, stamp, _)) = item
                    && version.may_have(key)
                {
                    keys.push((key.to_vec(), EntryMeta(stamp).sequence()));
                }
            },
        );
        let mut changes = Vec::new();
        for (key, sequence) in &keys {
            if version
                .get(key)?
                .is_some_and(|(newer, _)| newer > *sequence)
            {
                changes.push(Mutation::Delete { key });
            }
        }
        self.change_table(&mut self.change_visible(), &changes)
    }

    /// Brings items up that a file has, but for those that the table has by now.
    fn rise(&self, keys: &[Vec<u8>]) -> Result<()> {
        let version = self.tiers.spill.version();
        // Two changes of a table are never of one key.
        let mut items = BTreeMap::new();
        for key in keys {
            if self.tiers.table.get(key, |_, _| ())?.is_none()
                && let Some((sequence, Some(value))) = version.get(key)?
            {
                items.insert(key, (sequence, value));
            }
        }
        let changes: Vec<Mutation> = items
            .iter()
            .map(|(key, (sequence, value))| Mutation::Put {
                key,
                value,
                sequence: EntryMeta::risen(*sequence).0,
            })
            .collect();
        self.hold_to_add(&self.tiers.need_of(&changes), 0)?;
        if let Some(budget) = &self.budget {
            budget.count_promoted(changes.len());
        }
        self.change_table(&mut self.change_visible(), &changes)
    }

    /// Notes in the index which manifest there is, and up to which request it has all.
    pub(in crate::store) fn mark(&self, sequence: Option<u64>) {
        let manifest = self.store_dir.manifest();
        self.tiers
            .table
            .mark(manifest.store_id, sequence, manifest.generation);
    }

    /// Begins a checkpoint. No change runs beside it.
    fn begin_checkpoint(&self) -> Result<()> {
        let begun = self.try_checkpoint();
        self.is_unsaved.store(is_full(&begun), Ordering::Relaxed);
        begun
    }

    fn try_checkpoint(&self) -> Result<()> {
        let finished = self.finish();
        let sealed = self.log.seal()?;
        if finished.is_err() {
            self.log_again()?;
        }
        self.mark(Some(sealed.sequence));
        self.store_dir.with_room(Room::ALL, || {
            let begun = self.tiers.table.begin_sync();
            begun.inspect_err(|_| self.tiers.table.trim())
        })?;
        *self.begun.lock() = Some(sealed);
        Ok(())
    }

    /// Puts what the index had no room for into the log once more, behind what a checkpoint takes the
    /// place of.
    fn log_again(&self) -> Result<()> {
        for group in self.unfinished().iter_mut() {
            let entries = group.entries();
            let Some(span) = entries.iter().map(|entry| entry.position + 1).max() else {
                continue;
            };
            let first = self.log.next_sequence();
            self.log
                .append(u64::from(span), &entries, true, Room::ALL, || Ok(()))?;
            group.first = first;
        }
        Ok(())
    }

    /// Makes the index as it was when the checkpoint was begun durable in place of the log. Changes may
    /// run beside it, but no other checkpoint.
    pub(in crate::store) fn complete_checkpoint(&self) -> Result<()> {
        let Some(sealed) = self.begun.lock().take() else {
            return Ok(());
        };
        self.tiers.table.complete_sync()?;
        self.store_dir.edit(|manifest| {
            manifest.marked = true;
            manifest.first_segment = sealed.segment;
            manifest.sequence = sealed.sequence;
        })?;
        self.log.was_taken(&sealed);
        self.fill_reserve();
        Ok(())
    }

    /// Closes the index and the log cleanly.
    pub fn close(self) -> Result<()> {
        if let Some(error) = self.broken.get().cloned() {
            // The log has all that was answered; what the index has is not known.
            self.tiers.table.abandon();
            return Err(error);
        }
        if !self.has_changed.load(Ordering::Relaxed) && self.log.is_new() {
            return self.tiers.table.close_unchanged();
        }
        // What stays is a short segment, which the next opening reads, and no other.
        self.store_dir.retire_old_segments(0);
        let begun = self.begin_checkpoint();
        let checkpoint = begun.and_then(|()| self.complete_checkpoint());
        self.store_dir.retire_old_segments(0);
        let is_copied = self.tiers.table.is_copied();
        if is_full(&checkpoint) {
            // The log stays in its place, with all that was answered.
            tracing::warn!(
                "the store is closed without a checkpoint: the disk has no room for one"
            );
            self.log.sync()?;
            if is_copied {
                self.tiers.table.abandon();
                return Ok(());
            }
            return self.tiers.table.close();
        }
        let wanted = self.tiers.to_leave(&Need::default(), 0);
        // What is free is written down, which may be much.
        self.store_dir.reserve().shrink(0);
        let closed = self.tiers.table.close();
        // A store that is closed has room to be opened and worked with, as far as it can be had.
        self.store_dir.reserve().hold_most(wanted);
        match is_copied && is_full(&closed) {
            // The last checkpoint stands, and the next opening looks through it.
            true => checkpoint,
            false => closed.and(checkpoint),
        }
    }
}

/// What the transactions among them have read.
fn read_sets<'w>(works: &[&'w Work]) -> Vec<&'w ReadSet> {
    works.iter().filter_map(|work| work.read_set()).collect()
}

/// Lets deletions go before what the disk has no room for: they make some.
fn goes_before<'r>(
    finished: Result<()>,
    mut requests: impl Iterator<Item = &'r Request>,
) -> Result<()> {
    match requests.all(|request| matches!(request, Request::Delete { .. })) {
        true if is_full(&finished) => Ok(()),
        _ => finished,
    }
}

/// The answers of a batch in which no request can fail by itself.
pub fn nothing(answer: Answer) -> Result<()> {
    match answer?.into_iter().next_back() {
        Some(Response::Failed(error)) => Err(*error),
        _ => Ok(()),
    }
}
