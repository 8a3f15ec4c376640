//! The store at work: how groups of jobs are carried out, and what readers see meanwhile.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::{Mutex, MutexGuard};
use rayon::prelude::*;

use super::batch::{
    Changed, Early, Execution, PARALLEL, Request, Response, SHARE, Sorter, check_key,
};
use super::budget::Budget;
use super::directory::Directory;
use super::history::{History, Snapshot, Snapshots, Value};
use super::merge::MergeOperator;
use super::queue::{Answer, Job, Work};
use super::stats::Steps;
use super::threads::Threads;
use super::tiers::{Stamp, Tiers};
use super::view::Order;
use super::wal::record::{self, Entry};
use super::wal::{LONGEST_IN_MEMORY, Log, Sealed};
use crate::index::records::Change;
use crate::threads::undisturbed;
use crate::{Error, Result};

/// From how many look-ups of one reader on several threads do them.
const MANY: usize = 1 << 14;

/// All that the callers and the threads of a store share.
pub struct State {
    pub(super) tiers: Tiers,
    /// What the table may take; nothing if all items stay there.
    pub(super) budget: Option<Budget>,
    pub(super) log: Log,
    pub(super) directory: Arc<Directory>,
    pub(super) operator: Option<Arc<dyn MergeOperator>>,
    pub(super) sorter: Sorter,
    pub(super) threads: Threads,
    /// Changes are durable when they are answered.
    pub(super) durably: bool,
    pub(super) visible: ShardedLock<Visible>,
    /// Number of the last group of changes of which none are left to be made.
    pub(super) finished: AtomicU64,
    pub(super) snapshots: Snapshots,
    /// Held by the one who makes the ordered view.
    pub(super) building: Mutex<()>,
    /// Changes that are in the log and that the index had no room for.
    pub(super) unfinished: Mutex<Option<Unfinished>>,
    /// The log before a checkpoint that was begun.
    pub(super) begun: Mutex<Option<Sealed>>,
    pub(super) steps: Mutex<Steps>,
}

/// What readers see beside the index. Changes hold it alone, so that a reader sees a group of them
/// wholly or not at all.
pub struct Visible {
    /// Number of the last group of changes.
    pub epoch: u64,
    /// When which keys were changed.
    pub changed: Changed,
    pub history: History,
    pub order: Order,
    /// Items are on their way into a file that nobody sees yet.
    pub are_leaving: bool,
}

/// Changes that wait for room.
pub struct Unfinished {
    /// Sequence number of the batch's first request.
    first: u64,
    /// Keys, final values and positions of the requests.
    changes: Vec<(Vec<u8>, Value, u32)>,
}

impl State {
    /// What readers see; no change runs beside it.
    pub fn visible(&self) -> ShardedLockReadGuard<'_, Visible> {
        self.visible.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change_visible(&self) -> ShardedLockWriteGuard<'_, Visible> {
        self.visible.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment that is now.
    pub fn snapshot(&self) -> Snapshot<'_> {
        let visible = self.visible();
        self.snapshots.take(visible.epoch)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Value> {
        check_key(key)?;
        let _visible = self.visible();
        self.tiers.get(key)
    }

    /// The value that a key had in a live snapshot.
    pub fn get_at(&self, key: &[u8], epoch: u64) -> Result<Value> {
        check_key(key)?;
        let visible = self.visible();
        match visible.history.value(key, epoch) {
            Some(value) => Ok(value.clone()),
            None => self.tiers.get(key),
        }
    }

    /// The values of keys at one moment; `found` gets the position and the value of each that has
    /// one.
    pub fn get_many(&self, keys: &[&[u8]], found: impl FnMut(usize, Vec<u8>) + Send) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        if keys.len() < MANY {
            let _visible = self.visible();
            return self.tiers.get_some(keys, found);
        }
        undisturbed(|| {
            let _visible = self.visible();
            self.threads
                .reads
                .install(|| self.tiers.get_many(keys, MANY, found))
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
            0..PARALLEL => {
                let _visible = self.visible();
                answer()
            }
            _ => undisturbed(|| {
                let _visible = self.visible();
                self.threads.reads.install(answer)
            }),
        }
    }

    /// Answers the gets of a batch before its turn, if that is worth while; `alone` says that nobody else
    /// is at work or waits.
    pub fn read_early(&self, requests: &[Request], alone: bool) -> Option<Early> {
        let since = self.finished.load(Ordering::Acquire);
        Early::read(requests, &self.tiers, since, alone)
    }

    /// Carries out a group of jobs, as their leader.
    pub fn lead(&self, group: &mut [Job]) -> Vec<Answer> {
        let len = group
            .iter()
            .map(|job| job.work.len())
            .fold(0, usize::saturating_add);
        let early = group.iter_mut().map(|job| job.work.take_early()).collect();
        let works: Vec<&Work> = group.iter().map(|job| &job.work).collect();
        let takes_long = len >= PARALLEL || self.unfinished().is_some();
        self.threads
            .lead(takes_long, || self.carry_out(&works, early))
    }

    fn carry_out(&self, group: &[&Work], early: Vec<Option<Early>>) -> Vec<Answer> {
        match group[0] {
            Work::Batch(..) | Work::Transaction(..) => self.run_joined(group, early),
            Work::Whole(requests) => {
                let requests: Vec<&Request> = requests.iter().collect();
                let finished = self.finish();
                vec![finished.and_then(|()| self.run(&requests, Vec::new(), true))]
            }
            Work::Checkpoint => vec![self.begin_checkpoint().map(|()| Vec::new())],
            Work::Leave(items) => vec![self.leave(items).map(|()| Vec::new())],
            Work::Rise(keys) => vec![self.rise(keys).map(|()| Vec::new())],
        }
    }

    /// Carries out batches and transactions as if one came after the other.
    fn run_joined(&self, group: &[&Work], early: Vec<Option<Early>>) -> Vec<Answer> {
        // What is finished now is a change, too, that a transaction may not have seen.
        let finished = self.finish();
        let jobs = self.without_conflicts(group);
        let mut all: Vec<&Request> = Vec::new();
        for requests in jobs.iter().copied().flatten() {
            all.par_extend(requests.par_iter().with_min_len(SHARE));
        }
        let early = self.still_valid(&jobs, early);
        let answers = finished.and_then(|()| self.run(&all, early, false));
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
        early: Vec<Option<Early>>,
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
    fn without_conflicts<'j>(&self, group: &[&'j Work]) -> Vec<Option<&'j [Request]>> {
        let visible = self.visible();
        let is_transaction = |work: &&Work| matches!(work, Work::Transaction(..));
        let last = group.iter().rposition(is_transaction).unwrap_or(0);
        // Keys that the jobs so far change, as far as a transaction behind them must know.
        let mut changed = BTreeSet::new();
        let requests = |(nth, work): (usize, &&'j Work)| {
            if let Work::Transaction(_, claims) = work {
                let holds = claims.hold(&visible.history, &changed);
                // The changes of the group need not be kept for the transaction's own sake.
                self.snapshots.release(claims.epoch);
                if !holds {
                    return None;
                }
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
    fn run(&self, requests: &[&Request], early: Vec<Option<Response>>, whole: bool) -> Answer {
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
            false => self.commit(requests.len() as u64, &finals, answer, since),
        }
    }

    /// Puts the final values of a batch of `span` requests into the log, and then into the index. The
    /// answers are made before, and the step before that ended at `since`.
    fn commit(
        &self,
        span: u64,
        finals: &[Entry],
        answer: impl FnOnce() -> Result<(Vec<Response>, Duration)> + Send,
        mut since: Instant,
    ) -> Answer {
        let first = self.log.next_sequence();
        // Those threads have more changes than that already.
        let takes_long = finals.len() < PARALLEL && record::len(finals) > LONGEST_IN_MEMORY;
        let append = || self.log.append(span, finals, self.durably, answer);
        let (answers, took) = self.threads.lead(takes_long, append)?;
        self.steps.lock().answers += took;
        since += took;
        self.took(&mut since, |steps| &mut steps.log);
        let applied = self.apply(first, finals).map_err(|error| {
            let owned = |entry: &Entry| {
                let value = entry.value.map(<[u8]>::to_vec);
                (entry.key.to_vec(), value, entry.position)
            };
            let changes = finals.iter().map(owned).collect();
            *self.unfinished() = Some(Unfinished { first, changes });
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

    fn unfinished(&self) -> MutexGuard<'_, Option<Unfinished>> {
        self.unfinished.lock()
    }

    /// Gives the index what it had no room for.
    fn finish(&self) -> Result<()> {
        let mut unfinished = self.unfinished();
        let Some(Unfinished { first, changes }) = &*unfinished else {
            return Ok(());
        };
        let entries: Vec<Entry> = changes
            .iter()
            .map(|(key, value, position)| Entry {
                key,
                value: value.as_deref(),
                position: *position,
            })
            .collect();
        self.apply(*first, &entries)?;
        *unfinished = None;
        Ok(())
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
        visible.history.prune(&self.snapshots.live());
        let epoch = visible.epoch + 1;
        for (key, value) in kept {
            visible.history.keep(key, epoch, value);
        }
        visible.epoch = epoch;
        let keys = entries.iter().map(|entry| entry.key);
        visible.changed.note(keys, epoch);
        let version = self.tiers.spill.version();
        let are_leaving = visible.are_leaving;
        let change = |entry| {
            let entry: &Entry = entry;
            let sequence = first + u64::from(entry.position);
            self.tiers.change(&version, entry, sequence, are_leaving)
        };
        let entries = entries.par_iter().with_min_len(SHARE);
        let changes: Vec<Change> = entries.map(change).collect();
        self.change_table(&mut visible, &changes)?;
        self.finished.store(epoch, Ordering::Release);
        Ok(())
    }

    /// Makes changes in the table, no two of one key.
    fn change_table(&self, visible: &mut Visible, changes: &[Change]) -> Result<()> {
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
    ) -> Result<Vec<(&'w [u8], Value)>> {
        let Some(seen) = newest else {
            return Ok(Vec::new());
        };
        let keys: Vec<&[u8]> = entries
            .iter()
            .map(|entry| entry.key)
            .filter(|key| visible.history.is_needed(key, seen))
            .collect();
        let mut values = vec![None; keys.len()];
        self.tiers.get_many(&keys, MANY, |nth, value| {
            values[nth] = Some(value);
        })?;
        Ok(keys.into_iter().zip(values).collect())
    }

    /// Takes items out of the table that are in a file now, but for those that have changed since.
    fn leave(&self, items: &[(Vec<u8>, Stamp)]) -> Result<()> {
        let keys: Vec<&[u8]> = items.iter().map(|(key, _)| key.as_slice()).collect();
        let mut changes = Vec::with_capacity(keys.len());
        self.tiers.table.get_many(&keys, |nth, stamp, _| {
            if Stamp(stamp) == items[nth].1 {
                changes.push(Change::Delete { key: keys[nth] });
            }
        })?;
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
        let changes: Vec<Change> = items
            .iter()
            .map(|(key, (sequence, value))| Change::Put {
                key,
                value,
                sequence: Stamp::risen(*sequence).0,
            })
            .collect();
        if let Some(budget) = &self.budget {
            budget.have_risen(changes.len());
        }
        self.change_table(&mut self.change_visible(), &changes)
    }

    /// Begins a checkpoint. No change runs beside it.
    fn begin_checkpoint(&self) -> Result<()> {
        self.finish()?;
        let sealed = self.log.seal()?;
        self.tiers.table.begin_sync()?;
        *self.begun.lock() = Some(sealed);
        Ok(())
    }

    /// Makes the index as it was when the checkpoint was begun durable in place of the log. Changes may
    /// run beside it, but no other checkpoint.
    pub(super) fn complete_checkpoint(&self) -> Result<()> {
        let Some(sealed) = self.begun.lock().take() else {
            return Ok(());
        };
        self.tiers.table.complete_sync()?;
        self.directory.edit(|manifest| {
            manifest.first_segment = sealed.segment;
            manifest.sequence = sealed.sequence;
        })?;
        self.log.was_taken(&sealed);
        Ok(())
    }

    /// Closes the index and the log in order.
    pub fn close(self) -> Result<()> {
        // What stays is a short segment, which the next opening reads, and no other.
        self.directory.retire_old_segments(0);
        let begun = self.begin_checkpoint();
        let checkpoint = begun.and_then(|()| self.complete_checkpoint());
        self.directory.retire_old_segments(0);
        self.tiers.table.close()?;
        checkpoint
    }
}

/// The answers of a batch in which no request can fail by itself.
pub fn nothing(answer: Answer) -> Result<()> {
    match answer?.into_iter().next_back() {
        Some(Response::Failed(error)) => Err(*error),
        _ => Ok(()),
    }
}
