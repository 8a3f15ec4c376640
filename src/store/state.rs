//! The store at work: how groups of jobs are carried out, and what readers see meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

use super::batch::{Execution, Request, Response, apply, check_key, look_up};
use super::directory::Directory;
use super::history::{History, Snapshot, Snapshots, Value};
use super::merge::MergeOperator;
use super::queue::{Answer, Job, Work};
use super::transaction::Claims;
use super::view::Order;
use super::wal::Log;
use super::wal::record::Entry;
use crate::index::records::{Change, Records};
use crate::{Error, Result};

/// From how many look-ups of one reader on several threads do them.
const MANY: usize = 1 << 14;

/// All that the callers and the threads of a store share.
pub struct State {
    pub(super) records: Records,
    pub(super) log: Log,
    pub(super) directory: Arc<Directory>,
    pub(super) operator: Option<Arc<dyn MergeOperator>>,
    /// Changes are durable when they are answered.
    pub(super) durably: bool,
    pub(super) visible: ShardedLock<Visible>,
    pub(super) snapshots: Snapshots,
    /// Held by the one who makes the ordered view.
    pub(super) building: Mutex<()>,
    /// Changes that are in the log and that the index had no room for.
    pub(super) unfinished: Mutex<Option<Unfinished>>,
}

/// What readers see beside the index. Changes hold it alone, so that a reader sees a group of them
/// wholly or not at all.
pub struct Visible {
    /// Number of the last group of changes.
    pub epoch: u64,
    pub history: History,
    pub order: Order,
}

/// Changes that wait for room.
pub struct Unfinished {
    changes: Vec<(Vec<u8>, Value, u64)>,
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
        self.records.get(key, |_, value| value.to_vec())
    }

    /// The value that a key had in a live snapshot.
    pub fn get_at(&self, key: &[u8], epoch: u64) -> Result<Value> {
        check_key(key)?;
        let visible = self.visible();
        match visible.history.value(key, epoch) {
            Some(value) => Ok(value.clone()),
            None => self.records.get(key, |_, value| value.to_vec()),
        }
    }

    /// The values of keys at one moment; `found` gets the position and the value of each that has
    /// one.
    pub fn get_many(&self, keys: &[&[u8]], found: impl FnMut(usize, Vec<u8>)) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let _visible = self.visible();
        look_up(&self.records, keys, MANY, found)
    }

    /// Carries out a group of jobs, as their leader.
    pub fn lead(&self, group: &mut [Job]) -> Vec<Answer> {
        match &mut group[0].work {
            Work::Batch(_) => self.run_batches(group),
            Work::Whole(requests, claims) => {
                let requests = std::mem::take(requests);
                vec![self.run_whole(&requests, claims.take())]
            }
            Work::Checkpoint => vec![self.checkpoint().map(|()| Vec::new())],
        }
    }

    fn run_batches(&self, group: &[Job]) -> Vec<Answer> {
        let batch = |job: &Job| match &job.work {
            Work::Batch(requests) => requests.len(),
            Work::Whole(..) | Work::Checkpoint => unreachable!("a group is of one kind"),
        };
        let all: Vec<&Request> = group
            .iter()
            .flat_map(|job| match &job.work {
                Work::Batch(requests) => requests.as_slice(),
                Work::Whole(..) | Work::Checkpoint => &[],
            })
            .collect();
        match self.run(&all, false) {
            Ok(responses) => {
                let mut responses = responses.into_iter();
                let answer = |job: &Job| Ok(responses.by_ref().take(batch(job)).collect());
                group.iter().map(answer).collect()
            }
            Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn run_whole(&self, requests: &[Request], claims: Option<Claims>) -> Answer {
        if let Some(claims) = claims {
            let holds = claims.hold(&self.visible().history);
            // The changes of the transaction need not be kept for its own sake.
            self.snapshots.release(claims.epoch);
            if !holds {
                return Err(Error::Conflict);
            }
        }
        self.run(&requests.iter().collect::<Vec<_>>(), true)
    }

    /// Carries out requests in their order; with `whole`, all of them or none.
    fn run(&self, requests: &[&Request], whole: bool) -> Answer {
        self.finish()?;
        let execution = Execution::start(requests, &self.records, self.operator.as_deref())?;
        if let Some(error) = execution.failure().filter(|_| whole) {
            return Err(error.clone());
        }
        let responses = execution.answer(&self.records)?;
        let finals = execution.finals();
        if !finals.is_empty() {
            self.commit(requests.len() as u64, &finals)?;
        }
        Ok(responses)
    }

    /// Puts the final values of a batch of `span` requests into the log, and then into the index.
    fn commit(&self, span: u64, finals: &[Entry]) -> Result<()> {
        let first = self.log.next_sequence();
        self.log.append(span, finals, self.durably)?;
        let sequence = |entry: &Entry| first + u64::from(entry.position);
        let changes: Vec<Change> = finals
            .iter()
            .map(|entry| Change::of(entry.key, entry.value, sequence(entry)))
            .collect();
        self.apply(&changes).map_err(|error| {
            let owned = |entry: &Entry| {
                let value = entry.value.map(<[u8]>::to_vec);
                (entry.key.to_vec(), value, sequence(entry))
            };
            let changes = finals.iter().map(owned).collect();
            *self.unfinished() = Some(Unfinished { changes });
            Error::Unfinished {
                source: Arc::new(error),
            }
        })
    }

    fn unfinished(&self) -> std::sync::MutexGuard<'_, Option<Unfinished>> {
        self.unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the index what it had no room for.
    fn finish(&self) -> Result<()> {
        let mut unfinished = self.unfinished();
        let Some(Unfinished { changes }) = &*unfinished else {
            return Ok(());
        };
        let changes: Vec<Change> = changes
            .iter()
            .map(|(key, value, sequence)| Change::of(key, value.as_deref(), *sequence))
            .collect();
        self.apply(&changes)?;
        *unfinished = None;
        Ok(())
    }

    /// Makes changes, no two of one key, and shows them.
    fn apply(&self, changes: &[Change]) -> Result<()> {
        let mut visible = self.change_visible();
        let Visible {
            epoch,
            history,
            order,
        } = &mut *visible;
        let newest = {
            let live = self.snapshots.live();
            history.prune(&live);
            live.keys().next_back().copied()
        };
        if let Some(newest) = newest {
            self.keep(changes, history, *epoch + 1, newest)?;
        }
        *epoch += 1;
        match apply(&self.records, changes) {
            Ok(were_there) => {
                order.follow(changes, &were_there, &self.records);
                Ok(())
            }
            Err(error) => {
                // Which of them have been made is not known.
                order.forget();
                Err(error)
            }
        }
    }

    /// Keeps what the snapshots see of the keys that change.
    fn keep(
        &self,
        changes: &[Change],
        history: &mut History,
        epoch: u64,
        newest: u64,
    ) -> Result<()> {
        let keys: Vec<&[u8]> = changes
            .iter()
            .map(Change::key)
            .filter(|key| history.is_needed(key, newest))
            .collect();
        let mut values = vec![None; keys.len()];
        look_up(&self.records, &keys, MANY, |nth, value| {
            values[nth] = Some(value);
        })?;
        for (key, value) in keys.into_iter().zip(values) {
            history.keep(key, epoch, value);
        }
        Ok(())
    }

    /// Makes the index durable in place of the log. No change runs beside it.
    fn checkpoint(&self) -> Result<()> {
        self.finish()?;
        let number = self.log.seal()?;
        self.records.sync()?;
        let sequence = self.log.next_sequence() - 1;
        self.directory.edit(|manifest| {
            manifest.first_segment = number;
            manifest.sequence = sequence;
        })?;
        self.log.was_taken();
        self.directory.remove_old_segments();
        Ok(())
    }

    /// Closes the index and the log in order.
    pub fn close(self) -> Result<()> {
        let checkpoint = self.checkpoint();
        self.records.close()?;
        checkpoint
    }
}

/// The answers of a batch in which no request can fail by itself.
pub fn nothing(answer: Answer) -> Result<()> {
    match answer?.into_iter().next_back() {
        Some(Response::Failed(error)) => Err(error),
        _ => Ok(()),
    }
}
