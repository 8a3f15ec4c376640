//! Executing a batch (H-Rocks §4, §6). Its requests are told apart into writes, read-modify-writes and
//! reads, and each kind is executed at a time. All versions of a key that writes make are kept until
//! each read has found the one before it. So every answer is that of one request after the other, in
//! the order of their arrival.

use std::collections::HashMap;
use std::ops::Range;

use fixedbitset::FixedBitSet;

use super::REQUESTS_PER_THREAD_MIN;
use super::queue::Answers;
use super::requests::{AnswerForm, Batch, Requests, count_of_requests};
use super::sorter::sort_on_gpu;
use crate::engine::VersionSorter;
use crate::pool::key_writes::{KEY_DISTANCE_REQUESTS, KeyWrite, KeyWrites};
use crate::pool::parallel;
use crate::pool::prefetch;
use crate::pool::split::position;
use crate::pool::threads::PARALLEL_REQUESTS_MIN;
use crate::store::columns::{
    ColumnAnswers, ColumnBuilder, PART_VALUES, ValueColumns, ValuesPart, assemble,
};
use crate::store::merge::{MergeOperator, merge};
use crate::store::request::{RequestRef, Response};
use crate::store::resident::tiers::TieredItems;
use crate::store::wal::record::Entry;
use crate::{Error, Result};

/// Requests of which one thread answers the reads at a time.
const TASK_READS: usize = 512;

/// Fewer writes of a key keep the values of all their merges.
const MANY_MERGES: usize = 8;

/// A batch that is being executed. What it changes is not in the index yet.
pub struct Execution<'r, K: Fn(u32) -> &'r [u8]> {
    requests: &'r Requests<'r>,
    versions: KeyWrites<'r, K>,
    /// What has become of read-modify-writes, by their positions; empty if there are none.
    outcomes: Vec<Option<Outcome>>,
}

/// What has become of a read-modify-write.
enum Outcome {
    /// A merge has made this value.
    Merged(Vec<u8>),
    /// The condition of a write held; or a merge has made a value that nobody asks for.
    Met,
    /// Nothing was changed, and this is the answer.
    Refused(Response),
}

impl Outcome {
    /// What becomes of a request whose key has the value `before`; `None` for one that needs not know it.
    fn of(
        request: RequestRef,
        before: Value,
        operator: Option<&dyn MergeOperator>,
    ) -> Option<Self> {
        match request {
            RequestRef::Merge { key, operand } => {
                let operator = operator.expect("without an operator, merges are refused");
                Some(match merge(operator, key, before, operand) {
                    Ok(value) => Self::Merged(value),
                    Err(error) => Self::Refused(Response::Failed(Box::new(error))),
                })
            }
            RequestRef::PutIfAbsent { .. } => Some(match before {
                None => Self::Met,
                Some(_) => Self::Refused(Response::Present),
            }),
            RequestRef::CompareAndSwap { expected, .. } => Some(match before == expected {
                true => Self::Met,
                false => Self::Refused(Response::Mismatch(before.map(<[u8]>::to_vec))),
            }),
            RequestRef::Get { .. }
            | RequestRef::Put { .. }
            | RequestRef::Delete { .. }
            | RequestRef::Swap { .. } => None,
        }
    }
}

/// A value, or `None` where it was deleted.
type Value<'v> = Option<&'v [u8]>;

/// What a request leaves of its key, by its outcome if it has one; `None` if it changes nothing.
fn written<'v>(request: RequestRef<'v>, outcome: Option<&'v Outcome>) -> Option<Value<'v>> {
    match (request, outcome) {
        (_, Some(Outcome::Merged(value))) => Some(Some(value)),
        (_, Some(Outcome::Refused(_))) | (RequestRef::Get { .. } | RequestRef::Merge { .. }, _) => {
            None
        }
        (RequestRef::Put { value, .. } | RequestRef::PutIfAbsent { value, .. }, _) => {
            Some(Some(value))
        }
        (RequestRef::Swap { new, .. } | RequestRef::CompareAndSwap { new, .. }, _) => Some(new),
        (RequestRef::Delete { .. }, _) => Some(None),
    }
}

impl<'r> Execution<'r, fn(u32) -> &'r [u8]> {
    /// Makes the versions of all keys that the batch changes, those of read-modify-writes included; the GPU
    /// sorts them, if there is one. Merges want an `operator`.
    ///
    /// # Errors
    /// Those of the index. What becomes of a merge that fails is its own answer.
    pub fn start(
        requests: &'r Requests<'r>,
        tiers: &TieredItems,
        operator: Option<&dyn MergeOperator>,
        gpu: Option<&VersionSorter>,
    ) -> Result<Execution<'r, impl Fn(u32) -> &'r [u8] + Sync>> {
        let len = count_of_requests(requests.len(), tiers.table.path())?;
        let changes = requests.changes();
        let key = |position: u32| requests.key(position as usize);
        let sorted = |hash: &(dyn Fn(u32) -> u64 + Sync)| sort_on_gpu(gpu, len, &changes, hash);
        let mut execution = Execution {
            requests,
            versions: KeyWrites::sort(len, &changes, key, sorted),
            outcomes: Vec::new(),
        };
        let is_none = |nth: usize| !requests.is_read_modify_write(changes[nth] as usize);
        if !parallel::all(changes.len(), REQUESTS_PER_THREAD_MIN, is_none) {
            execution.read_modify_write(tiers, operator)?;
        }
        Ok(execution)
    }
}

impl<'r, K: Fn(u32) -> &'r [u8] + Sync> Execution<'r, K> {
    fn request(&self, version: &KeyWrite) -> RequestRef<'r> {
        self.requests.get(version.position as usize)
    }

    fn key(&self, version: &KeyWrite) -> &'r [u8] {
        self.requests.key(version.position as usize)
    }

    fn outcome(&self, position: usize) -> Option<&Outcome> {
        self.outcomes.get(position)?.as_ref()
    }

    /// Runs the read-modify-writes: those of one key in order, those of different keys side by side.
    fn read_modify_write(
        &mut self,
        tiers: &TieredItems,
        operator: Option<&dyn MergeOperator>,
    ) -> Result<()> {
        let depends = |version: &KeyWrite| {
            let position = version.position as usize;
            self.requests.is_read_modify_write(position)
        };
        let runs = self
            .versions
            .map_keys(|run| run.iter().any(depends).then_some(run));
        // Whose first write depends on what the index has.
        let asked: Vec<usize> = (0..runs.len())
            .filter(|&nth| depends(&runs[nth][0]))
            .collect();
        let keys: Vec<&[u8]> = asked.iter().map(|&nth| self.key(&runs[nth][0])).collect();
        let mut bases = vec![None; runs.len()];
        tiers.get_many(&keys, PARALLEL_REQUESTS_MIN, |nth, value| {
            bases[asked[nth]] = Some(value);
        })?;
        let reads = self.reads_of(&runs);
        let run = |nth: usize| {
            let reads = reads.get(self.key(&runs[nth][0])).map(Vec::as_slice);
            self.outcomes_of_key(runs[nth], bases[nth].as_deref(), reads, operator)
        };
        let made: Vec<_> = match runs.len() {
            PARALLEL_REQUESTS_MIN.. => parallel::collect(runs.len(), 1, run),
            len => (0..len).map(run).collect(),
        };
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        outcomes.resize_with(self.requests.len(), || None);
        for (version, outcome) in runs.into_iter().flatten().zip(made.into_iter().flatten()) {
            outcomes[version.position as usize] = outcome;
        }
        self.outcomes = outcomes;
        Ok(())
    }

    /// The positions of the gets of each key with many merges.
    fn reads_of(&self, runs: &[&[KeyWrite]]) -> HashMap<&'r [u8], Vec<u32>> {
        let is_merge = |write: &KeyWrite| matches!(self.request(write), RequestRef::Merge { .. });
        let many = runs.iter().filter(|run| {
            run.len() >= MANY_MERGES && run.iter().filter(|write| is_merge(write)).count() > 1
        });
        let mut reads: HashMap<_, _> = many.map(|run| (self.key(&run[0]), Vec::new())).collect();
        if reads.is_empty() {
            return reads;
        }
        let len = self.requests.len();
        let is_read = parallel::collect(len, REQUESTS_PER_THREAD_MIN, |nth| {
            self.requests.is_get(nth) && reads.contains_key(self.requests.key(nth))
        });
        for nth in (0..len).filter(|&nth| is_read[nth]) {
            let of_key = reads.get_mut(self.requests.key(nth));
            of_key.expect("one of them").push(position(nth));
        }
        reads
    }

    /// What becomes of the read-modify-writes among the writes of one key, which had the value `base` before. With `reads`,
    /// of values that others have replaced those alone are kept which a swap or one of these is answered by: merges into a
    /// long value would else take its length each.
    fn outcomes_of_key(
        &self,
        run: &[KeyWrite],
        base: Value,
        reads: Option<&[u32]>,
        operator: Option<&dyn MergeOperator>,
    ) -> Vec<Option<Outcome>> {
        let is_read = |from: u32, to: u32| {
            reads.is_none_or(|reads| {
                let next = reads.partition_point(|&at| at < from);
                reads.get(next).is_some_and(|&at| at < to)
            })
        };
        let mut made: Vec<Option<Outcome>> = Vec::with_capacity(run.len());
        // The last one that has changed the key.
        let mut newest: Option<usize> = None;
        for (nth, version) in run.iter().enumerate() {
            let before = match newest {
                Some(nth) => written(self.request(&run[nth]), made[nth].as_ref()).flatten(),
                None => base,
            };
            let request = self.request(version);
            let outcome = Outcome::of(request, before, operator);
            if written(request, outcome.as_ref()).is_some() {
                let replaced = newest.replace(nth);
                let is_swap = matches!(request, RequestRef::Swap { .. });
                if let Some(replaced) = replaced.filter(|_| !is_swap)
                    && let Some(Outcome::Merged(_)) = made[replaced]
                    && !is_read(run[replaced].position, version.position)
                {
                    made[replaced] = Some(Outcome::Met);
                }
            }
            made.push(outcome);
        }
        made
    }

    /// The newest of some versions of a key, which come newest first, and which request has made it;
    /// `None` if none of them came about.
    fn newest<'v>(
        &self,
        mut versions: impl Iterator<Item = &'v KeyWrite>,
    ) -> Option<(u32, Value<'_>)> {
        versions.find_map(|version| {
            let outcome = self.outcome(version.position as usize);
            let value = written(self.request(version), outcome)?;
            Some((version.position, value))
        })
    }

    /// What is left of the batch in the end: the final values of the keys that it changes, in the order
    /// of the requests, in which they lie in memory.
    pub fn finals(&self) -> Vec<Entry<'_>> {
        // Without a read-modify-write each write comes about.
        let last = |run: &[KeyWrite]| match self.outcomes.is_empty() {
            true => run.last().map(|version| version.position),
            false => self.newest(run.iter().rev()).map(|(position, _)| position),
        };
        // As bits they need not be sorted.
        let mut is_last = FixedBitSet::with_capacity(self.requests.len());
        let positions = self.versions.map_keys(last).into_iter();
        positions.for_each(|position| is_last.insert(position as usize));
        let positions: Vec<usize> = is_last.ones().collect();
        let entry = |nth: usize| {
            let request = self.requests.get(positions[nth]);
            let value = written(request, self.outcome(positions[nth]));
            Entry {
                key: request.key(),
                value: value.expect("the last write of a key comes about"),
                position: position(positions[nth]),
            }
        };
        parallel::collect(positions.len(), REQUESTS_PER_THREAD_MIN, entry)
    }

    /// What is left of a key in the end; `None` if the batch does not change it.
    pub fn value(&self, key: &[u8]) -> Option<Value<'_>> {
        let newest = self.newest(self.versions.all(key));
        newest.map(|(_, value)| value)
    }

    /// The first merge that failed, and its position.
    pub fn failure(&self) -> Option<(usize, &Error)> {
        let mut outcomes = self.outcomes.iter().enumerate();
        outcomes.find_map(|(nth, outcome)| match outcome {
            Some(Outcome::Refused(Response::Failed(error))) => Some((nth, &**error)),
            _ => None,
        })
    }

    /// The answers to each job of the group; `early` has those that are there already to some of the gets, by
    /// their positions, or is empty. The index must not have taken the group in yet.
    ///
    /// # Errors
    /// Those of the index.
    pub fn answer_jobs(
        &self,
        tiers: &TieredItems,
        jobs: &[Batch],
        early: Vec<Option<Response>>,
    ) -> Result<Vec<Answers>> {
        let runs: Vec<_> = jobs.iter().map(|job| (job.len(), job.form())).collect();
        let mut responses = self.answer_runs(tiers, &runs, early)?.into_iter();
        let mut first = 0;
        let answers = |job: &Batch| {
            let positions = first..first + job.len();
            first = positions.end;
            let responses = responses.next().expect("some for each job");
            Ok(match job.form() {
                AnswerForm::Responses => Answers::Responses(responses),
                AnswerForm::Nothing => Answers::Columns(Box::default()),
                AnswerForm::Values => {
                    let failures = self.failures(positions.clone());
                    let values = self.read_column(tiers, positions, job.take_buffers())?;
                    Answers::Columns(Box::new(ColumnAnswers { values, failures }))
                }
            })
        };
        jobs.iter().map(answers).collect()
    }

    /// The responses to runs of so many requests, one behind the other; none to those that are answered otherwise.
    /// `early` is as for jobs.
    ///
    /// # Errors
    /// Those of the index.
    pub fn answer_runs(
        &self,
        tiers: &TieredItems,
        runs: &[(usize, AnswerForm)],
        mut early: Vec<Option<Response>>,
    ) -> Result<Vec<Vec<Response>>> {
        let mut answers = Vec::with_capacity(runs.len());
        let mut first = 0;
        let is_response = |run: &(usize, AnswerForm)| run.1 == AnswerForm::Responses;
        for some in runs.chunk_by(|a, b| is_response(a) && is_response(b)) {
            let end = first + some.iter().map(|(len, _)| len).sum::<usize>();
            let of_others = early.split_off(early.len().min(end - first));
            let early = std::mem::replace(&mut early, of_others);
            match some {
                [run] if !is_response(run) => answers.push(Vec::new()),
                // Its responses may be very many.
                [_] => answers.push(self.answer(tiers, first..end, early)?),
                _ => {
                    let mut responses = self.answer(tiers, first..end, early)?.into_iter();
                    let of_run = |(len, _): &(usize, _)| responses.by_ref().take(*len).collect();
                    answers.extend(some.iter().map(of_run));
                }
            }
            first = end;
        }
        Ok(answers)
    }

    /// The answers to the requests at these positions; `early` has some of them or is empty.
    ///
    /// # Errors
    /// Those of the index.
    fn answer(
        &self,
        tiers: &TieredItems,
        positions: Range<usize>,
        early: Vec<Option<Response>>,
    ) -> Result<Vec<Response>> {
        let first = positions.start;
        let unasked = |nth: usize| {
            let position = first + nth;
            match (self.requests.get(position), self.outcome(position)) {
                (RequestRef::Get { .. } | RequestRef::Swap { .. }, _) => Response::Value(None),
                (_, Some(Outcome::Refused(answer))) => answer.clone(),
                _ => Response::Done,
            }
        };
        let is_early = (0..early.len()).filter(|&nth| early[nth].is_some());
        let is_early: FixedBitSet = is_early.collect();
        let mut responses: Vec<Response> = match early.is_empty() {
            true => parallel::collect(positions.len(), REQUESTS_PER_THREAD_MIN, unasked),
            false => {
                let answer =
                    |(nth, early): (usize, Option<_>)| early.unwrap_or_else(|| unasked(nth));
                early.into_iter().enumerate().map(answer).collect()
            }
        };
        let part = |(nth, responses): (usize, &mut [Response])| {
            let is_early = |of_part: usize| is_early.contains(nth * TASK_READS + of_part);
            self.answer_reads(tiers, first + nth * TASK_READS, responses, is_early)
        };
        match is_shared(responses.len()) {
            true => parallel::map(responses.chunks_mut(TASK_READS).enumerate(), part)
                .into_iter()
                .collect::<Result<()>>()?,
            false => part((0, &mut responses))?,
        }
        Ok(responses)
    }

    /// Answers the gets and swaps among the requests from position `first` on, one for each response; those
    /// that are `early` have an answer, unless the batch itself has another.
    fn answer_reads(
        &self,
        tiers: &TieredItems,
        first: usize,
        responses: &mut [Response],
        is_early: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let mut asked: Vec<usize> = Vec::new();
        let mut keys: Vec<&[u8]> = Vec::new();
        for (nth, response) in responses.iter_mut().enumerate() {
            let request = self.requests.get(first + nth);
            let (RequestRef::Get { key } | RequestRef::Swap { key, .. }) = request else {
                continue;
            };
            match self.value_before(key, || position(first + nth)) {
                Some(value) => *response = Response::Value(value.map(<[u8]>::to_vec)),
                None if is_early(nth) => {}
                None => {
                    asked.push(nth);
                    keys.push(key);
                }
            }
        }
        tiers.get_some(&keys, |nth, value| {
            responses[asked[nth]] = Response::Value(Some(value));
        })
    }

    /// The values for the gets in columns at these positions, in the buffers of a column.
    fn read_column(
        &self,
        tiers: &TieredItems,
        positions: Range<usize>,
        buffers: ValueColumns,
    ) -> Result<ValueColumns> {
        let (first, len) = (positions.start, positions.len());
        let read = |of_column: Range<usize>, part| {
            self.read_part(tiers, first + of_column.start..first + of_column.end, part)
        };
        let builder = ColumnBuilder::new(len, buffers.into_buffers());
        assemble((len, PART_VALUES), is_shared(len), builder, &read).map(Into::into)
    }

    /// What a request before the one at `position`, which may not be asked for, has left of its key; `None` if none has changed
    /// it.
    pub fn value_before(&self, key: &[u8], position: impl FnOnce() -> u32) -> Option<Value<'_>> {
        let newest = self.newest(self.versions.before(key, position));
        newest.map(|(_, value)| value)
    }

    /// Which of the requests at these positions failed, counted from the first one of them.
    pub fn failures(&self, positions: Range<usize>) -> Vec<(usize, Error)> {
        let failure = |position: usize| match self.outcome(position) {
            Some(Outcome::Refused(Response::Failed(error))) => {
                Some((position - positions.start, (**error).clone()))
            }
            _ => None,
        };
        match self.outcomes.is_empty() {
            true => Vec::new(),
            false => positions.clone().filter_map(failure).collect(),
        }
    }

    /// The values for the gets at these positions, in place of those of `part`.
    fn read_part(
        &self,
        tiers: &TieredItems,
        positions: Range<usize>,
        mut part: ValuesPart,
    ) -> Result<ValuesPart> {
        part.clear(positions.len());
        let mut asked: Vec<usize> = Vec::new();
        let mut keys: Vec<&[u8]> = Vec::new();
        let first = positions.start;
        let gets = positions.filter(|&at| self.requests.is_get(at));
        let ask = |at: usize| prefetch::lines(self.requests.key(at));
        for at in prefetch::in_turn(gets, KEY_DISTANCE_REQUESTS, ask) {
            let (nth, key) = (at - first, self.requests.key(at));
            match self.value_before(key, || position(at)) {
                Some(Some(value)) => part.set(nth, value),
                Some(None) => {}
                None => {
                    asked.push(nth);
                    keys.push(key);
                }
            }
        }
        tiers.read_some(&keys, &[], |nth, value| part.set(asked[nth], &value))?;
        Ok(part)
    }
}

/// Whether threads share the answers to so many requests. A caller who leads has little left to do, and
/// shares no work with the threads of others.
fn is_shared(requests: usize) -> bool {
    requests >= PARALLEL_REQUESTS_MIN && rayon::current_thread_index().is_some()
}

#[cfg(test)]
mod tests;
