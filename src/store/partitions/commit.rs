//! Changes of several partitions, which are committed together.
//!
//! Whoever leads the queue holds the queues of the partitions that a group reads or changes, so that no request
//! comes between. Then
//!
//! 1. each partition executes what is its own;
//! 2. each that is changed, but for the first one, writes a *prepare record* with it into its log. Beside them the first one, the
//!    coordinator, writes the *commit record* with its own changes, which names the others;
//! 3. the group is published in all of them at once, and goes into their tables.
//!
//! No table changes before all these records are as durable as answers are (p²KVS §4.5). A group counts after a crash if all of
//! them are there. If one cannot be written, the group is aborted: the others are taken back.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, atomic};
use std::time::Instant;

use parking_lot::MutexGuard;

use super::Partitions;
use super::apart::Apart;
use crate::engine::VersionSorter;
use crate::hot_cache::Blocked;
use crate::pool::parallel;
use crate::pool::split::{Split, SplitAnswers, position};
use crate::pool::threads::PARALLEL_REQUESTS_MIN;
use crate::pool::worker::words;
use crate::process;
use crate::store::columns::ColumnAnswers;
use crate::store::commit::REQUESTS_PER_THREAD_MIN;
use crate::store::commit::apply::Stays;
use crate::store::commit::execute::Execution;
use crate::store::commit::group::{answer_each, drop_conflicting, goes_before, read_sets};
use crate::store::commit::queue::{Answer, Answers, Held, Job, Leader, Work};
use crate::store::commit::requests::{AnswerForm, Batch, Requests};
use crate::store::files::dir::Room;
use crate::store::inner::{Applying, StoreInner};
use crate::store::mvcc::group_writes::GroupWrites;
use crate::store::mvcc::published::Published;
use crate::store::mvcc::read_set::ReadSet;
use crate::store::options::WhenFull;
use crate::store::partition::Partition;
use crate::store::request::Response;
use crate::store::wal::IN_MEMORY_RECORD_BYTES_MAX;
use crate::store::wal::record::{self, Entry, GroupPart};
use crate::table::room::Need;
use crate::{Error, Result};

/// Most requests of a group that callers who wait execute themselves, for each of them and in all. Of more, threads
/// of the store do their share.
const CREW_SHARE_MAX: usize = 512;
const CREW_REQUESTS_MAX: usize = 4096;

impl Leader for Arc<Partitions> {
    fn commit_group(&self, group: &mut [Job]) -> Vec<Answer> {
        let with_split = |job| {
            let Job { work, split, .. }: &Job = job;
            let split = split.as_ref();
            (work, split.expect("whoever queues here has split it"))
        };
        let works: Vec<SplitWork> = group.iter().map(with_split).collect();
        self.commit_works(&works)
    }

    fn broke(&self, words: String) -> Error {
        self.all_broke(&words)
    }

    fn share(&self) {
        unreachable!("callers are the leaders of this queue");
    }

    fn waits_for_disk(&self) -> bool {
        self.first().state.durably
    }

    fn when_full(&self) -> WhenFull {
        self.shared().when_full
    }

    fn discard(&self, work: Work) {
        work.discard(&self.shared().threads);
    }

    fn serve_others(&self) {
        self.serve_if_nobody_does();
    }

    fn lacks_server(&self) -> &atomic::AtomicBool {
        &self.shared().lacks_server
    }
}

/// What is to be done, and which partition has which requests of it.
type SplitWork<'w> = (&'w Work, &'w Arc<Split>);

/// A batch, and which partition has which requests of it.
type SplitBatch<'r> = (Batch<'r>, &'r Arc<Split>);

/// What a partition has of a group.
struct Share<'p, 'r> {
    number: usize,
    partition: &'p Arc<Partition>,
    /// How many requests.
    len: usize,
    runs: Vec<Run>,
    requests: OnceLock<Requests<'r>>,
}

/// The requests of a share that are of one job.
struct Run {
    job: usize,
    /// The rank of the share in the job's [`Split`].
    rank: usize,
    len: usize,
}

impl<'r> Share<'_, 'r> {
    /// Its requests, those of one of the group's jobs after the other.
    fn requests(&self, jobs: &[SplitBatch<'r>]) -> &Requests<'r> {
        self.requests.get_or_init(|| {
            if let [run] = &self.runs[..] {
                let (batch, split) = jobs[run.job];
                let mut positions = Vec::with_capacity(run.len);
                positions.extend(split.positions(run.rank).map(position));
                return Requests::Part(batch, positions);
            }
            let mut requests = Vec::with_capacity(self.len);
            for run in &self.runs {
                let (batch, split) = jobs[run.job];
                requests.extend(split.positions(run.rank).map(|nth| batch.at(nth)));
            }
            Requests::Joined(requests)
        })
    }
}

/// The final values of a share, and the room that is there for them.
struct Prepared<'e> {
    finals: Vec<Entry<'e>>,
    /// The responses to each run that is answered so.
    responses: Vec<Vec<Response>>,
    /// What of the reserve its log may have.
    room: Room,
    /// How long its record will be, but for what all records have.
    record_bytes: u64,
}

/// What a group changes in a partition.
struct PartitionWrites<'c> {
    number: usize,
    state: &'c StoreInner,
    /// How many requests of the group it has.
    span: u64,
    writes: &'c GroupWrites<'c>,
    prepared: &'c Prepared<'c>,
}

impl<'c> PartitionWrites<'c> {
    fn finals(&self) -> &'c [Entry<'c>] {
        self.writes.finals()
    }
}

/// What the first partition has of a group.
#[derive(Clone, Copy)]
struct Coordinator {
    /// Which of the changes are its own, if there are any.
    nth: Option<usize>,
    /// What of the reserve its log may have.
    room: Room,
}

/// The partitions that a group reads or changes, which do nothing else meanwhile.
struct HeldPartitions<'p> {
    numbers: Vec<usize>,
    _held: Vec<Held<'p, Arc<Partition>>>,
}

impl Partitions {
    /// Refuses all further changes. Gives what callers are told.
    pub(in crate::store) fn all_broke(&self, words: &str) -> Error {
        let broke = |partition: &Arc<Partition>| partition.state.broke(words.to_string());
        let errors: Vec<Error> = self.all().iter().map(broke).collect();
        errors[0].clone()
    }

    fn commit_works(&self, works: &[SplitWork]) -> Vec<Answer> {
        let held = self.hold(works);
        // Who was before may have panicked.
        let mut broken = self.all().iter().filter_map(|one| one.state.broken.get());
        if let Some(error) = broken.next() {
            return works.iter().map(|_| Err(error.clone())).collect();
        }
        let state = |&number: &usize| &self.all()[number].state;
        let is_finished = |state: &StoreInner| state.published.is_finished();
        let takes_long = !held.numbers.iter().map(state).all(is_finished);
        let threads = &self.shared().threads;
        let execute = || threads.run_for_leader(takes_long, || self.execute(&held, works));
        let executed = catch_unwind(AssertUnwindSafe(execute));
        let answers = executed.unwrap_or_else(|panic| {
            // Nothing may come behind a prepare record that has no commit record.
            let error = self.all_broke(&words(&*panic));
            works.iter().map(|_| Err(error.clone())).collect()
        });
        for &number in &held.numbers {
            let partition = &self.all()[number];
            partition.background.wake(&partition.state);
        }
        answers
    }

    /// Holds the partitions that are read or changed, and the coordinator.
    fn hold(&self, works: &[SplitWork]) -> HeldPartitions<'_> {
        let mut is_held = vec![false; self.all().len()];
        is_held[0] = true;
        for (work, split) in works {
            let read = work.read_set().into_iter();
            let read = read.flat_map(ReadSet::partitions);
            read.for_each(|number| is_held[number] = true);
            for &(number, _) in split.counts() {
                is_held[number] = true;
            }
        }
        let numbers: Vec<usize> = (0..is_held.len()).filter(|&nth| is_held[nth]).collect();
        // Nobody else holds more than one.
        let hold = |&number: &usize| {
            let partition = &self.all()[number];
            partition.queue.hold(partition)
        };
        let held = numbers.iter().map(hold).collect();
        HeldPartitions {
            numbers,
            _held: held,
        }
    }

    /// Executes batches and transactions as if one came after the other.
    fn execute(&self, held: &HeldPartitions, works: &[SplitWork]) -> Vec<Answer> {
        let (works, splits): (Vec<&Work>, Vec<&Arc<Split>>) = works.iter().copied().unzip();
        // What is finished now is a change, too, that a transaction may not have seen.
        let finished = self.finish(held);
        // No other partition has keys that were read.
        let holds = |read_set: &ReadSet, changed: &BTreeSet<&[u8]>| {
            for &number in &held.numbers {
                if !read_set.hold(&self.all()[number].state.old_versions(), changed)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let jobs = drop_conflicting(&works, holds);
        let with_split = jobs.iter().zip(&splits);
        let executed: Vec<SplitBatch> = with_split
            .filter_map(|(batch, split)| Some((*batch.as_ref().ok()?, *split)))
            .collect();
        let finished = goes_before(finished, || {
            let batches: Vec<Batch> = executed.iter().map(|(batch, _)| *batch).collect();
            Requests::of(&batches).only_delete()
        });
        let whole = matches!(works[..], [Work::Whole(_)]);
        let answers = finished.and_then(|()| self.run(&executed, &read_sets(&works), whole));
        answer_each(&jobs, answers, |nth, job| {
            goes_before(self.finish(held), || Requests::One(job).only_delete())?;
            let read_sets = read_sets(&works[nth..=nth]);
            let job = (job, splits[nth]);
            let mut answers = self.run(&[job], &read_sets, whole)?;
            Ok(answers.pop().expect("one answer a job"))
        })
    }

    /// Gives the tables what they had no room for.
    fn finish(&self, held: &HeldPartitions) -> Result<()> {
        let finish = |&number: &usize| self.all()[number].state.finish();
        held.numbers.iter().map(finish).fold(Ok(()), Result::and)
    }

    /// What each partition has of these jobs.
    fn shares<'r>(&self, jobs: &[SplitBatch<'r>]) -> Vec<Share<'_, 'r>> {
        let share = |number| Share {
            number,
            partition: &self.all()[number],
            len: 0,
            runs: Vec::new(),
            requests: OnceLock::new(),
        };
        let mut shares: Vec<Share> = (0..self.all().len()).map(share).collect();
        for (job, (_, split)) in jobs.iter().enumerate() {
            for (rank, &(number, len)) in split.counts().iter().enumerate() {
                shares[number].len += len;
                shares[number].runs.push(Run { job, rank, len });
            }
        }
        shares.retain(|share| share.len > 0);
        shares
    }

    /// Executes the requests of jobs in their order, nothing being unfinished; with `whole`, all of them or none. The
    /// `read_sets` of their transactions hold. Gives the answers to each job.
    fn run(
        &self,
        jobs: &[SplitBatch],
        read_sets: &[&ReadSet],
        whole: bool,
    ) -> Result<Vec<Answers>> {
        let shares = self.shares(jobs);
        let first = &self.first().state;
        let len: usize = jobs.iter().map(|(batch, _)| batch.len()).sum();
        let run = || self.run_shares(&shares, jobs, read_sets, whole);
        // To wake threads up takes longer than the work of those who wait anyway, or who come meanwhile.
        let crew = self.queue.crew();
        let share = len / (1 + crew.awake());
        let suits_crew = len < PARALLEL_REQUESTS_MIN || share < len && share <= CREW_SHARE_MAX;
        if !first.durably && suits_crew && len <= CREW_REQUESTS_MAX {
            return crew.do_with(run);
        }
        // Syncs go side by side.
        let takes_long = len >= PARALLEL_REQUESTS_MIN || first.durably;
        first.shared.threads.run_for_leader(takes_long, run)
    }

    fn run_shares<'r>(
        &self,
        shares: &[Share<'_, 'r>],
        jobs: &[SplitBatch<'r>],
        read_sets: &[&ReadSet],
        whole: bool,
    ) -> Result<Vec<Answers>> {
        let began = Instant::now();
        let len = jobs.iter().map(|(batch, _)| batch.len()).sum();
        let turn = self.shared().sorter.turn(len);
        let apart = Apart::of(shares.iter().map(|share| share.len));
        let started: Vec<OnceLock<_>> = shares.iter().map(|_| OnceLock::new()).collect();
        let begin = |nth: usize, gpu| {
            if started[nth].get().is_none() {
                let execution = start(&shares[nth], jobs, gpu)?;
                started[nth].get_or_init(|| execution);
            }
            Ok(started[nth].get().expect("it has just been started"))
        };
        let all = 0..shares.len();
        if let Some(gpu) = turn.gpu {
            // One at a time has it, and shares the rest of its work with the other threads.
            let mut begun = all.clone().map(|nth| begin(nth, Some(gpu)));
            begun.try_for_each(|begun| begun.map(drop))?;
        }
        // Nothing but a merge fails by itself.
        if whole && self.first().state.operator.is_some() {
            // Of a batch that changes nothing, none of them needs room.
            let begun = apart.try_map(all.clone(), |nth| begin(nth, None))?;
            let failed = shares.iter().zip(begun).filter_map(|(share, execution)| {
                let (nth, error) = execution.failure()?;
                let Run { job, rank, .. } = share.runs[0];
                Some((jobs[job].1.position(rank, nth), error))
            });
            if let Some((_, error)) = failed.min_by_key(|(position, _)| *position) {
                return Err(error.clone());
            }
        }
        // By one thread each, which finds in its caches what it has just made.
        let mut prepared = apart.try_map(all, |nth| {
            let execution = begin(nth, None)?;
            self.prepare(&shares[nth], jobs, execution)
        })?;
        turn.done();
        let executions: Vec<_> = started.iter().filter_map(OnceLock::get).collect();
        let versions = began.elapsed();
        // Before the tables change.
        let answers = self.answers(&executions, &mut prepared, shares, jobs)?;
        {
            let mut steps = self.first().state.steps.lock();
            steps.versions += versions;
            steps.answers += began.elapsed().saturating_sub(versions);
        }
        let finds: Vec<_> = executions
            .iter()
            .map(|execution| |key: &[u8]| execution.value(key))
            .collect();
        let writes = prepared.iter().zip(&finds);
        let writes: Vec<GroupWrites> = writes
            .map(|(prepared, find)| GroupWrites::new(&prepared.finals, find))
            .collect();
        let of_shares = shares.iter().zip(&prepared).zip(&writes);
        let changes: Vec<PartitionWrites> = of_shares
            .map(|((share, prepared), writes)| PartitionWrites {
                number: share.number,
                state: &share.partition.state,
                span: share.len as u64,
                writes,
                prepared,
            })
            .filter(|change| !change.finals().is_empty())
            .collect();
        if !changes.is_empty() {
            self.commit(&changes, read_sets)?;
        }
        Ok(answers)
    }

    /// Answers what a partition has of a group, and sees to it that there is room for what it will change.
    fn prepare<'e, 's>(
        &self,
        share: &Share,
        jobs: &[SplitBatch],
        execution: &'e Execution<'s, impl Fn(u32) -> &'s [u8] + Sync>,
    ) -> Result<Prepared<'e>> {
        let state = &share.partition.state;
        let finals = execution.finals();
        let mut room = Room::Spares;
        if !finals.is_empty() {
            self.shared().rule_out_failed_commit()?;
            room = state.hold_for(&finals)?;
        }
        let run = |run: &Run| (run.len, jobs[run.job].0.form());
        let runs: Vec<(usize, AnswerForm)> = share.runs.iter().map(run).collect();
        Ok(Prepared {
            record_bytes: record::len(&finals),
            responses: execution.answer_runs(&state.tiers, &runs, Vec::new())?,
            finals,
            room,
        })
    }

    /// The answers to each job, of whose requests each share has executed its own.
    fn answers<'s>(
        &self,
        executions: &[&Execution<'s, impl Fn(u32) -> &'s [u8] + Sync>],
        prepared: &mut [Prepared],
        shares: &[Share],
        jobs: &[SplitBatch],
    ) -> Result<Vec<Answers>> {
        let form = |job: usize| jobs[job].0.form();
        let mut responses: Vec<SplitAnswers<Response>> = jobs
            .iter()
            .map(|(_, split)| SplitAnswers::new(split))
            .collect();
        for (share, prepared) in shares.iter().zip(prepared) {
            for (run, answers) in share.runs.iter().zip(prepared.responses.drain(..)) {
                responses[run.job].add(run.rank, answers);
            }
        }
        let answer = |(job, responses)| {
            Ok(match form(job) {
                AnswerForm::Responses => Answers::Split(Box::new(responses)),
                AnswerForm::Nothing => Answers::Columns(Box::default()),
                AnswerForm::Values => {
                    let answers = self.column_answers(executions, shares, (job, jobs[job]))?;
                    Answers::Columns(Box::new(answers))
                }
            })
        };
        responses.into_iter().enumerate().map(answer).collect()
    }

    /// The answers to a job that has come in columns.
    fn column_answers<'s>(
        &self,
        executions: &[&Execution<'s, impl Fn(u32) -> &'s [u8] + Sync>],
        shares: &[Share],
        (job, (batch, split)): (usize, SplitBatch),
    ) -> Result<ColumnAnswers> {
        // By ranks, which shares are in the order of: who executes its requests, and the position of the first one.
        let mut runs: Vec<(&Execution<'s, _>, u32)> = Vec::new();
        let mut failures: Vec<(usize, Error)> = Vec::new();
        for (execution, share) in executions.iter().zip(shares) {
            let mut first = 0;
            for run in &share.runs {
                if run.job == job {
                    runs.push((execution, position(first)));
                    let failed = execution.failures(first..first + run.len).into_iter();
                    failures
                        .extend(failed.map(|(nth, error)| (split.position(run.rank, nth), error)));
                }
                first += run.len;
            }
        }
        failures.sort_by_key(|(nth, _)| *nth);
        let earlier = |at: usize, key: &[u8]| {
            let (execution, first) = runs[split.rank(at)];
            let nth = || first + position(split.nth(at));
            execution.value_before(key, nth)
        };
        let values = self.answer_columns(batch, split, batch.take_buffers(), earlier)?;
        Ok(ColumnAnswers { values, failures })
    }

    /// Puts what a group changes in each partition into the logs, and then into the tables.
    fn commit(&self, changes: &[PartitionWrites], read_sets: &[&ReadSet]) -> Result<()> {
        let began = Instant::now();
        let apart = Apart::of(changes.iter().map(|change| change.finals().len()));
        let coordinator = self.coordinator(changes)?;
        let firsts: Vec<u64> = changes
            .iter()
            .map(|change| change.state.log.next_sequence())
            .collect();
        let is_long =
            |change: &PartitionWrites| change.prepared.record_bytes > IN_MEMORY_RECORD_BYTES_MAX;
        let takes_long = changes.iter().any(is_long);
        let threads = &self.shared().threads;
        threads.run_for_leader(takes_long, || match changes {
            [change] => {
                let state = change.state;
                let span = change.span;
                let (finals, room) = (change.finals(), change.prepared.room);
                let log = &state.log;
                state.note_full(log.append(span, finals, state.durably, room, || Ok(())))
            }
            _ => self.log_parts(changes, &firsts, coordinator),
        })?;
        // As in a group of one partition.
        read_sets.iter().for_each(|read_set| read_set.release());
        let logged = began.elapsed();
        apply(changes, apart, &firsts);
        let mut steps = self.first().state.steps.lock();
        steps.log += logged;
        steps.index += began.elapsed().saturating_sub(logged);
        Ok(())
    }

    /// What the coordinator has of a group, once the disk has room for its commit record.
    fn coordinator(&self, changes: &[PartitionWrites]) -> Result<Coordinator> {
        let nth = changes.iter().position(|change| change.number == 0);
        let first = &self.first().state;
        let adds = |change: &PartitionWrites| change.prepared.room == Room::Spares;
        let room = match nth {
            Some(nth) => changes[nth].prepared.room,
            None if changes.iter().any(adds) => {
                first.note_full(first.hold_to_add(&Need::default(), 0))?;
                Room::Spares
            }
            None => first.hold_for(&[])?,
        };
        Ok(Coordinator { nth, room })
    }

    /// Writes the prepare records and the commit record of a group, side by side: a recovery counts a group whose records are
    /// all there.
    ///
    /// # Errors
    /// What the operating system answers. The group is aborted then, unless the process or the machine stops before
    /// the next record of the coordinator is written.
    fn log_parts(
        &self,
        changes: &[PartitionWrites],
        firsts: &[u64],
        coordinator: Coordinator,
    ) -> Result<()> {
        let group = process::random_number();
        let others: Vec<usize> = (0..changes.len())
            .filter(|nth| Some(*nth) != coordinator.nth)
            .collect();
        let prepared = GroupPart {
            group,
            participants: Vec::new(),
        };
        let participant = |&nth: &usize| (changes[nth].number as u64, firsts[nth]);
        let committed = GroupPart {
            group,
            participants: others.iter().map(participant).collect(),
        };
        let of_change = |nth: usize, part| {
            let change = &changes[nth];
            LogPart {
                state: change.state,
                part,
                span: change.span,
                first: firsts[nth],
                finals: change.finals(),
                room: change.prepared.room,
            }
        };
        let first = &self.first().state;
        let commit = match coordinator.nth {
            Some(nth) => of_change(nth, &committed),
            None => LogPart {
                state: first,
                part: &committed,
                span: 1,
                first: first.log.next_sequence(),
                finals: &[],
                room: coordinator.room,
            },
        };
        let mut parts: Vec<LogPart> = others
            .iter()
            .map(|&nth| of_change(nth, &prepared))
            .collect();
        parts.push(commit);
        let written = parallel::map_if_shared(&parts, LogPart::write);
        let all_written = written.iter().cloned().fold(Ok(()), Result::and);
        if all_written.is_err() {
            // The commit record may be there, and must not count once others have the numbers of the rest.
            self.shared().note_failed_commit();
            for (part, written) in parts.iter().zip(&written) {
                if written.is_ok() {
                    part.state.log.abort(part.first);
                }
            }
            if let Err(error) = self.shared().rule_out_failed_commit() {
                tracing::warn!(%error, "changes wait until a log can be written again");
            }
        }
        first.note_full(all_written)
    }
}

/// What the log of a partition gets of a group.
struct LogPart<'p> {
    state: &'p StoreInner,
    part: &'p GroupPart,
    span: u64,
    /// The sequence number of the record.
    first: u64,
    finals: &'p [Entry<'p>],
    room: Room,
}

impl LogPart<'_> {
    fn write(&self) -> Result<()> {
        let StoreInner { log, durably, .. } = self.state;
        log.append_part(self.span, self.part, self.finals, *durably, self.room)
    }
}

/// Begins to execute what a partition has of a group.
fn start<'s, 'r: 's>(
    share: &'s Share<'_, 'r>,
    jobs: &[SplitBatch<'r>],
    gpu: Option<&VersionSorter>,
) -> Result<Execution<'s, impl Fn(u32) -> &'s [u8] + Sync>> {
    let state = &share.partition.state;
    let requests = share.requests(jobs);
    Execution::start(requests, &state.tiers, state.operator.as_deref(), gpu)
}

/// Publishes a group that is in the logs, and brings it into the tables.
fn apply(changes: &[PartitionWrites], apart: Apart, firsts: &[u64]) {
    let mut alone: Vec<MutexGuard<Applying>> = changes
        .iter()
        .map(|change| change.state.applying())
        .collect();
    let mut alone: Vec<&mut Applying> = alone.iter_mut().map(|alone| &mut **alone).collect();
    let parts: Vec<(&Published, &GroupWrites)> = changes
        .iter()
        .map(|change| (&*change.state.published, change.writes))
        .collect();
    let blocked = block_cached(changes);
    Published::show_all(&parts, |commit_seq| {
        // Who has seen a part sees all of them also if one of them panics.
        let of_parts = changes.iter().zip(firsts);
        let _stay: Vec<Stays> = of_parts
            .map(|(change, &first)| Stays::of(change.state, commit_seq, first, change.finals()))
            .collect();
        let work = alone.iter_mut().zip(changes).zip(firsts).zip(blocked);
        apart.map(work, |(((alone, change), &first), blocked)| {
            change
                .state
                .bring_into_table(alone, commit_seq, first, change.writes);
            // They are published.
            drop(blocked);
        });
    });
}

/// Keeps gets of what a group changes away from the hot cache, if there is one. The threads of the caller's pool do it side by
/// side, if it is long.
fn block_cached<'c>(changes: &[PartitionWrites<'c>]) -> Vec<Option<Blocked<'c, 'c>>> {
    let finals = changes.iter().map(|change| change.finals().len());
    let len = match changes[0].state.shared.hot_cache {
        Some(_) => finals.sum(),
        None => 0,
    };
    let least = REQUESTS_PER_THREAD_MIN as u64;
    parallel::map_if_long((len as u64, least), changes, |change| {
        change.state.shared.block_cached(change.finals())
    })
}
