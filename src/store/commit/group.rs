//! Group commit: the leader executes the batches and transactions of a group as one, and gives what they
//! change to the log, and then to the table.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::execute::Execution;
use super::optimistic_reads::OptimisticReads;
use super::queue::{Answer, Job, Work};
use crate::store::files::dir::is_full;
use crate::store::inner::StoreInner;
use crate::store::mvcc::read_set::ReadSet;
use crate::store::request::{Request, Response};
use crate::store::stats::Steps;
use crate::store::threads::PARALLEL_REQUESTS_MIN;
use crate::store::wal::IN_MEMORY_RECORD_BYTES_MAX;
use crate::store::wal::record;
use crate::store::wal::record::Entry;
use crate::{Error, Result};

impl StoreInner {
    /// Refuses all further changes: one of them has panicked. Gives what callers are told.
    pub fn broke(&self, words: String) -> Error {
        tracing::error!(words, "a change panicked; the store takes no more of them");
        let error = || Error::Broken {
            path: self.store_dir.path().to_path_buf(),
            found: words,
        };
        self.broken.get_or_init(error).clone()
    }

    /// Commits a group of jobs, as their leader.
    pub fn commit_group(&self, group: &mut [Job]) -> Vec<Answer> {
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
            .run_for_leader(takes_long, || self.execute_group(&works, early))
    }

    fn execute_group(&self, group: &[&Work], early: Vec<Option<OptimisticReads>>) -> Vec<Answer> {
        match group[0] {
            Work::Batch(..) | Work::Transaction(..) => self.run_joined(group, early),
            Work::Whole(requests) => {
                let requests: Vec<&Request> = requests.iter().collect();
                let finished = goes_before(self.finish(), requests.iter().copied());
                vec![finished.and_then(|()| self.run(&requests, Vec::new(), &[], true))]
            }
            Work::Checkpoint => vec![self.begin_checkpoint().map(|()| Vec::new())],
            Work::Evict(items) => vec![self.evict(items).map(|()| Vec::new())],
            Work::Promote(keys) => vec![self.promote(keys).map(|()| Vec::new())],
        }
    }

    /// Executes batches and transactions as if one came after the other.
    fn run_joined(&self, group: &[&Work], early: Vec<Option<OptimisticReads>>) -> Vec<Answer> {
        // What is finished now is a change, too, that a transaction may not have seen.
        let finished = self.finish();
        let jobs = self.drop_conflicting(group);
        let mut all: Vec<&Request> = Vec::new();
        for requests in jobs.iter().flatten() {
            all.extend(*requests);
        }
        let finished = goes_before(finished, all.iter().copied());
        let early = self.still_valid(&jobs, early);
        let answers = finished.and_then(|()| self.run(&all, early, &read_sets(group), false));
        if let Err(Error::Damaged { .. } | Error::NoSpace { .. }) = answers
            && jobs.len() > 1
        {
            // Nothing was done; who has not asked for what is damaged, or for too much room, shall not be
            // told so.
            let alone = |(requests, work): (&Result<&[Request]>, &&Work)| match requests {
                Err(error) => Err(error.clone()),
                Ok(requests) => {
                    let requests: Vec<&Request> = requests.iter().collect();
                    self.finish()?;
                    self.run(&requests, Vec::new(), &read_sets(&[work]), false)
                }
            };
            return jobs.iter().zip(group).map(alone).collect();
        }
        let mut answers = answers.map(Vec::into_iter);
        let answer = |requests: &Result<&[Request]>| match (requests, &mut answers) {
            (Err(error), _) => Err(error.clone()),
            (Ok(requests), Ok(all)) => Ok(all.take(requests.len()).collect()),
            (Ok(_), Err(error)) => Err(error.clone()),
        };
        jobs.iter().map(answer).collect()
    }

    /// What holds of what was read early for jobs, by the positions of their requests; empty if nothing
    /// was read.
    fn still_valid(
        &self,
        jobs: &[Result<&[Request]>],
        early: Vec<Option<OptimisticReads>>,
    ) -> Vec<Option<Response>> {
        let mut answers = Vec::new();
        if early.iter().all(Option::is_none) {
            return answers;
        }
        let changed = &self.visible().changed;
        for (requests, early) in jobs.iter().zip(early) {
            match (requests, early) {
                (Err(_), _) => {}
                (Ok(requests), None) => answers.extend(vec![None; requests.len()]),
                (Ok(requests), Some(early)) => {
                    answers.extend(early.into_valid(requests, changed));
                }
            }
        }
        answers
    }

    /// The requests of each job; an error for a transaction that others are in conflict with, those before it
    /// among the jobs included.
    fn drop_conflicting<'j>(&self, group: &[&'j Work]) -> Vec<Result<&'j [Request]>> {
        let visible = self.visible();
        let is_transaction = |work: &&Work| matches!(work, Work::Transaction(..));
        let last = group.iter().rposition(is_transaction).unwrap_or(0);
        // Keys that the jobs so far change, as far as a transaction behind them must know.
        let mut changed = BTreeSet::new();
        let requests = |(nth, work): (usize, &&'j Work)| {
            if let Some(read_set) = work.read_set() {
                let hold = read_set.hold(&visible.old_versions, &changed);
                if !matches!(hold, Ok(true)) {
                    read_set.release();
                    hold?;
                    return Err(Error::Conflict);
                }
            }
            let requests = work.joined().expect("jobs of a group join each other");
            if nth < last {
                let changes = requests.iter().filter(|request| !request.is_get());
                changed.extend(changes.map(Request::key));
            }
            Ok(requests)
        };
        group.iter().enumerate().map(requests).collect()
    }

    /// Executes requests in their order, nothing being unfinished; with `whole`, all of them or none.
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
        let takes_long = finals.len() < PARALLEL_REQUESTS_MIN
            && record::len(finals) > IN_MEMORY_RECORD_BYTES_MAX;
        let append = || self.log.append(span, finals, self.durably, room, answer);
        let (answers, took) = self.threads.run_for_leader(takes_long, append)?;
        self.steps.lock().answers += took;
        since += took;
        self.took(&mut since, |steps| &mut steps.log);
        let applied = self.apply_logged(first, finals);
        self.took(&mut since, |steps| &mut steps.index);
        applied.map(|()| answers)
    }

    /// Counts the time since `since` for a step that ends now.
    fn took(&self, since: &mut Instant, step: impl Fn(&mut Steps) -> &mut Duration) {
        let now = Instant::now();
        *step(&mut self.steps.lock()) += now.saturating_duration_since(*since);
        *since = now;
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

/// The outcome of a batch in which no request can fail by itself.
pub fn into_unit(answer: Answer) -> Result<()> {
    match answer?.into_iter().next_back() {
        Some(Response::Failed(error)) => Err(*error),
        _ => Ok(()),
    }
}
