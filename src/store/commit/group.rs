//! Group commit: the leader executes the batches and transactions of a group as one, and gives what they
//! change to the log, and then to the table.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::execute::Execution;
use super::optimistic_reads::OptimisticReads;
use super::queue::{Answer, Answers, Job, Work};
use super::requests::{Batch, Requests};
use crate::pool::threads::PARALLEL_REQUESTS_MIN;
use crate::store::files::dir::is_full;
use crate::store::inner::StoreInner;
use crate::store::mvcc::group_writes::GroupWrites;
use crate::store::mvcc::read_set::ReadSet;
use crate::store::request::{Request, Response};
use crate::store::stats::Steps;
use crate::store::wal::IN_MEMORY_RECORD_BYTES_MAX;
use crate::store::wal::record::{self, Entry};
use crate::{Error, Result};

/// Of groups of few requests one in so many is timed: the clock would take a tenth of a single change. A prime,
/// so that no pattern of calls is in step with it.
pub const SHORT_GROUPS: u32 = 31;

impl StoreInner {
    /// Refuses all further changes: one of them has panicked. Gives what callers are told.
    pub fn broke(&self, words: String) -> Error {
        let error = || {
            tracing::error!(words, "a change panicked; the store takes no more of them");
            Error::Broken {
                path: self.store_dir.path().to_path_buf(),
                found: words,
            }
        };
        self.broken.get_or_init(error).clone()
    }

    /// Commits a group of jobs, as their leader.
    pub fn commit_group(&self, group: &mut [Job]) -> Vec<Answer> {
        if let Some(error) = self.broken.get() {
            return group.iter().map(|_| Err(error.clone())).collect();
        }
        if let [job] = &*group
            && let Some(request) = job.work.single_write()
        {
            let takes_long = !self.published.is_finished();
            let write = || self.write_one(request);
            return vec![self.threads.run_for_leader(takes_long, write)];
        }
        let len = group
            .iter()
            .map(|job| job.work.len())
            .fold(0, usize::saturating_add);
        let early = group.iter_mut().map(|job| job.work.take_early()).collect();
        let works: Vec<&Work> = group.iter().map(|job| &job.work).collect();
        let takes_long = len >= PARALLEL_REQUESTS_MIN || !self.published.is_finished();
        self.threads
            .run_for_leader(takes_long, || self.execute_group(&works, early))
    }

    fn execute_group(&self, group: &[&Work], early: Vec<Option<OptimisticReads>>) -> Vec<Answer> {
        match group[0] {
            Work::Batch(..) | Work::Transaction(..) | Work::Columns(_) => {
                self.run_joined(group, early)
            }
            Work::Whole(requests) => {
                let job = Batch::Owned(requests);
                let finished = goes_before(self.finish(), || Requests::One(job).only_delete());
                vec![finished.and_then(|()| self.run_alone(job, &[], true))]
            }
            Work::Checkpoint => vec![self.begin_checkpoint().map(|()| Answers::NONE)],
            Work::Evict(leaving) => vec![self.evict(leaving).map(|()| Answers::NONE)],
            Work::Promote(promotion) => vec![self.promote(promotion).map(|()| Answers::NONE)],
            Work::Hold => vec![Ok(Answers::NONE)],
        }
    }

    /// Executes a put or a deletion for which nothing needs to be put in order, looked up or joined. Most groups of
    /// callers who find nobody at work are one.
    fn write_one(&self, request: &Request) -> Answer {
        let finished = self.finish();
        goes_before(finished, || request.is_removal())?;
        let value = match request {
            Request::Put { value, .. } => Some(&value[..]),
            _ => None,
        };
        let only = Entry {
            key: request.key(),
            value,
            position: 0,
        };
        let find = |key: &[u8]| (key == only.key).then_some(only.value);
        let timer = StepTimer::start(1, &self.short_groups);
        let answer = || Ok((Response::Done, Duration::ZERO));
        let answer = self.commit(1, &GroupWrites::new(&[only], &find), &[], answer, timer)?;
        Ok(Answers::Responses(vec![answer]))
    }

    /// Executes batches and transactions as if one came after the other.
    fn run_joined(&self, group: &[&Work], early: Vec<Option<OptimisticReads>>) -> Vec<Answer> {
        // What is finished now is a change, too, that a transaction may not have seen.
        let finished = self.finish();
        let jobs = drop_conflicting(group, |read_set, changed| {
            read_set.hold(&self.old_versions(), changed)
        });
        let executed: Vec<Batch> = jobs.iter().flatten().copied().collect();
        let requests = Requests::of(&executed);
        let finished = goes_before(finished, || requests.only_delete());
        let early = self.still_valid(&jobs, early);
        let answers = finished
            .and_then(|()| self.run((&executed, &requests), early, &read_sets(group), false));
        answer_each(&jobs, answers, |nth, job| {
            goes_before(self.finish(), || Requests::One(job).only_delete())?;
            self.run_alone(job, &read_sets(&group[nth..=nth]), false)
        })
    }

    /// What holds of what was read early for jobs, by the positions of their requests; empty if nothing
    /// was read.
    fn still_valid(
        &self,
        jobs: &[Result<Batch>],
        early: Vec<Option<OptimisticReads>>,
    ) -> Vec<Option<Response>> {
        let mut answers = Vec::new();
        if early.iter().all(Option::is_none) {
            return answers;
        }
        let changed = &self.applying().changed;
        for (job, early) in jobs.iter().zip(early) {
            match (job, early) {
                (Err(_), _) => {}
                (Ok(Batch::Owned(requests)), Some(early)) => {
                    answers.extend(early.into_valid(requests, changed));
                }
                (Ok(job), _) => answers.extend(vec![None; job.len()]),
            }
        }
        answers
    }

    /// [Executes](Self::run) one job.
    fn run_alone(&self, job: Batch, read_sets: &[&ReadSet], whole: bool) -> Answer {
        let requests = Requests::One(job);
        let mut answers = self.run((&[job], &requests), Vec::new(), read_sets, whole)?;
        Ok(answers.pop().expect("one answer a job"))
    }

    /// Executes the requests of jobs in their order, nothing being unfinished; with `whole`, all of them or
    /// none. The `read_sets` of their transactions hold. Gives the answers to each job.
    fn run(
        &self,
        (jobs, requests): (&[Batch], &Requests),
        early: Vec<Option<Response>>,
        read_sets: &[&ReadSet],
        whole: bool,
    ) -> Result<Vec<Answers>> {
        let mut timer = StepTimer::start(requests.len(), &self.short_groups);
        let turn = self.shared.sorter.turn(requests.len());
        let operator = self.operator.as_deref();
        let execution = Execution::start(requests, &self.tiers, operator, turn.gpu)?;
        turn.done();
        if let Some((_, error)) = execution.failure().filter(|_| whole) {
            return Err(error.clone());
        }
        self.took(&mut timer, |steps| &mut steps.versions);
        let finals = execution.finals();
        let answer = || {
            let mut timer = timer.again();
            let answers = execution.answer_jobs(&self.tiers, jobs, early)?;
            Ok((answers, timer.lap()))
        };
        match finals.is_empty() {
            true => {
                let (answers, took) = answer()?;
                self.count_step(timer, took, |steps| &mut steps.answers);
                Ok(answers)
            }
            false => {
                let find = |key: &[u8]| execution.value(key);
                let writes = GroupWrites::new(&finals, &find);
                self.commit(requests.len() as u64, &writes, read_sets, answer, timer)
            }
        }
    }

    /// Puts the final values of a batch of `span` requests into the log, and then into the index. The
    /// answers are made before.
    fn commit<T: Send>(
        &self,
        span: u64,
        writes: &GroupWrites,
        read_sets: &[&ReadSet],
        answer: impl FnOnce() -> Result<(T, Duration)> + Send,
        mut timer: StepTimer,
    ) -> Result<T> {
        let finals = writes.finals();
        self.shared.rule_out_failed_commit()?;
        let room = self.hold_for(finals)?;
        let first = self.log.next_sequence();
        self.shared.prefetch_cached(finals);
        // Those threads have more changes than that already.
        let takes_long = finals.len() < PARALLEL_REQUESTS_MIN
            && record::len(finals) > IN_MEMORY_RECORD_BYTES_MAX;
        let append = || self.log.append(span, finals, self.durably, room, answer);
        let appended = self.threads.run_for_leader(takes_long, append);
        let (answers, took) = self.note_full(appended)?;
        // Not earlier: without room, their transactions come again. Not later: what these changes
        // replace need not be kept for them.
        read_sets.iter().for_each(|read_set| read_set.release());
        self.count_step(timer, took, |steps| &mut steps.answers);
        timer.leave_out(took);
        self.took(&mut timer, |steps| &mut steps.log);
        self.apply_logged(first, writes);
        self.took(&mut timer, |steps| &mut steps.index);
        Ok(answers)
    }

    /// Counts the time since the last step for one that ends now.
    fn took(&self, timer: &mut StepTimer, step: impl Fn(&mut Steps) -> &mut Duration) {
        let took = timer.lap();
        self.count_step(*timer, took, step);
    }

    fn count_step(
        &self,
        timer: StepTimer,
        took: Duration,
        step: impl Fn(&mut Steps) -> &mut Duration,
    ) {
        if timer.since.is_some() {
            *step(&mut self.steps.lock()) += took * timer.groups;
        }
    }
}

/// Times the steps of a group of changes.
#[derive(Debug, Clone, Copy)]
struct StepTimer {
    /// The end of the last step, if the group is timed.
    since: Option<Instant>,
    /// In place of so many groups.
    groups: u32,
}

impl StepTimer {
    /// Begins the first step of a group of so many requests, `short` of which are left until one is timed if it is short.
    fn start(requests: usize, short: &AtomicU32) -> Self {
        if requests >= PARALLEL_REQUESTS_MIN {
            let since = Some(Instant::now());
            return Self { since, groups: 1 };
        }
        // Only the leader counts them.
        let before = short.load(Ordering::Relaxed);
        let is_timed = before == 0;
        let left = if is_timed { SHORT_GROUPS } else { before };
        short.store(left - 1, Ordering::Relaxed);
        Self {
            since: is_timed.then(Instant::now),
            groups: SHORT_GROUPS,
        }
    }

    /// Another one, whose first step begins now.
    fn again(self) -> Self {
        let since = self.since.map(|_| Instant::now());
        Self { since, ..self }
    }

    /// Ends a step: how long it took, or zero if the group is not timed.
    fn lap(&mut self) -> Duration {
        let Some(since) = &mut self.since else {
            return Duration::ZERO;
        };
        let now = Instant::now();
        let began = std::mem::replace(since, now);
        now.saturating_duration_since(began)
    }

    /// Leaves so much out of the step that goes on.
    fn leave_out(&mut self, took: Duration) {
        if let Some(since) = &mut self.since {
            *since += took;
        }
    }
}

/// What the transactions among them have read.
pub fn read_sets<'w>(works: &[&'w Work]) -> Vec<&'w ReadSet> {
    works.iter().filter_map(|work| work.read_set()).collect()
}

/// The requests of each job; an error for a transaction that others are in conflict with, those before it among the
/// jobs included. `holds` says whether nothing of what one has read has changed, nor is among these keys.
pub fn drop_conflicting<'j>(
    group: &[&'j Work],
    holds: impl Fn(&ReadSet, &BTreeSet<&[u8]>) -> Result<bool>,
) -> Vec<Result<Batch<'j>>> {
    let is_transaction = |work: &&Work| matches!(work, Work::Transaction(..));
    let last = group.iter().rposition(is_transaction).unwrap_or(0);
    // Keys that the jobs so far change, as far as a transaction behind them must know.
    let mut changed = BTreeSet::new();
    let requests = |(nth, work): (usize, &&'j Work)| {
        if let Some(read_set) = work.read_set() {
            let hold = holds(read_set, &changed);
            if !matches!(hold, Ok(true)) {
                read_set.release();
                hold?;
                return Err(Error::Conflict);
            }
        }
        let job = work.batch().expect("jobs of a group have requests");
        if nth < last {
            changed.extend(job.changed_keys());
        }
        Ok(job)
    };
    group.iter().enumerate().map(requests).collect()
}

/// The answer to each job of a group, of those to the ones that were executed together; if that has failed for what
/// one of them has asked for, of `alone`, which executes the job of a position.
pub fn answer_each(
    jobs: &[Result<Batch>],
    together: Result<Vec<Answers>>,
    alone: impl Fn(usize, Batch) -> Answer,
) -> Vec<Answer> {
    if let Err(Error::Damaged { .. } | Error::NoSpace { .. }) = together
        && jobs.len() > 1
    {
        // Nothing was done; who has not asked for what is damaged, or for too much room, shall not be told so.
        let jobs = jobs.iter().enumerate();
        return jobs.map(|(nth, job)| alone(nth, job.clone()?)).collect();
    }
    let mut together = together.map(Vec::into_iter);
    let answer = |job: &Result<Batch>| match (job, &mut together) {
        (Err(error), _) => Err(error.clone()),
        (Ok(_), Ok(all)) => Ok(all.next().expect("one answer a job")),
        (Ok(_), Err(error)) => Err(error.clone()),
    };
    jobs.iter().map(answer).collect()
}

/// Lets deletions go before what the disk has no room for: they make some.
pub fn goes_before(finished: Result<()>, only_deletes: impl FnOnce() -> bool) -> Result<()> {
    match is_full(&finished) && only_deletes() {
        true => Ok(()),
        false => finished,
    }
}

/// The outcome of a batch in which no request can fail by itself.
pub fn into_unit(answer: Answer) -> Result<()> {
    match answer?.into_responses().into_iter().next_back() {
        Some(Response::Failed(error)) => Err(*error),
        _ => Ok(()),
    }
}
