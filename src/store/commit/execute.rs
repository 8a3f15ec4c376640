//! Executing a batch (H-Rocks §4, §6). Its requests are told apart into writes, read-modify-writes and
//! reads, and each kind is executed at a time. All versions of a key that writes make are kept until
//! each read has found the one before it. So every answer is that of one request after the other, in
//! the order of their arrival.

use fixedbitset::FixedBitSet;
use rayon::slice::ParallelSliceMut;

use super::REQUESTS_PER_THREAD_MIN;
use super::key_writes::{KeyWrite, KeyWrites, position};
use crate::engine::VersionSorter;
use crate::pool::parallel;
use crate::store::merge::{MergeOperator, merge};
use crate::store::request::{Request, Response};
use crate::store::resident::tiers::TieredItems;
use crate::store::threads::PARALLEL_REQUESTS_MIN;
use crate::store::wal::record::Entry;
use crate::{Error, Result};

/// Requests of which one thread answers the reads at a time.
const TASK_READS: usize = 512;

/// A batch that is being executed. What it changes is not in the index yet.
pub struct Execution<'r, K: Fn(u32) -> &'r [u8]> {
    requests: &'r [&'r Request],
    versions: KeyWrites<'r, K>,
    /// What has become of read-modify-writes, by their positions; empty if there are none.
    outcomes: Vec<Option<Outcome>>,
}

/// What has become of a read-modify-write.
enum Outcome {
    /// A merge has made this value.
    Merged(Vec<u8>),
    /// The condition of a write held.
    Met,
    /// Nothing was changed, and this is the answer.
    Refused(Response),
}

impl Outcome {
    /// What becomes of a request whose key has the value `before`; `None` for one that needs not know it.
    fn of(request: &Request, before: Value, operator: Option<&dyn MergeOperator>) -> Option<Self> {
        match request {
            Request::Merge { key, operand } => {
                let operator = operator.expect("without an operator, merges are refused");
                Some(match merge(operator, key, before, operand) {
                    Ok(value) => Self::Merged(value),
                    Err(error) => Self::Refused(Response::Failed(Box::new(error))),
                })
            }
            Request::PutIfAbsent { .. } => Some(match before {
                None => Self::Met,
                Some(_) => Self::Refused(Response::Present),
            }),
            Request::CompareAndSwap { expected, .. } => Some(match before == expected.as_deref() {
                true => Self::Met,
                false => Self::Refused(Response::Mismatch(before.map(<[u8]>::to_vec))),
            }),
            Request::Get { .. }
            | Request::Put { .. }
            | Request::Delete { .. }
            | Request::Swap { .. } => None,
        }
    }
}

/// A value, or `None` where it was deleted.
type Value<'v> = Option<&'v [u8]>;

/// What a request leaves of its key, by its outcome if it has one; `None` if it changes nothing.
fn written<'v>(request: &'v Request, outcome: Option<&'v Outcome>) -> Option<Value<'v>> {
    match (request, outcome) {
        (_, Some(Outcome::Merged(value))) => Some(Some(value)),
        (_, Some(Outcome::Refused(_))) | (Request::Get { .. } | Request::Merge { .. }, _) => None,
        (Request::Put { value, .. } | Request::PutIfAbsent { value, .. }, _) => Some(Some(value)),
        (Request::Swap { new, .. } | Request::CompareAndSwap { new, .. }, _) => {
            Some(new.as_deref())
        }
        (Request::Delete { .. }, _) => Some(None),
    }
}

impl<'r> Execution<'r, fn(u32) -> &'r [u8]> {
    /// Makes the versions of all keys that the batch changes, those of read-modify-writes included; the GPU
    /// sorts them, if there is one. Merges want an `operator`.
    ///
    /// # Errors
    /// Those of the index. What becomes of a merge that fails is its own answer.
    pub fn start(
        requests: &'r [&'r Request],
        tiers: &TieredItems,
        operator: Option<&dyn MergeOperator>,
        gpu: Option<&VersionSorter>,
    ) -> Result<Execution<'r, impl Fn(u32) -> &'r [u8] + Sync>> {
        let len = u32::try_from(requests.len()).map_err(|_| Error::Limit {
            path: tiers.table.path().into(),
            what: "the number of requests in a batch",
            needed: requests.len() as u64,
            limit: u32::MAX.into(),
        })?;
        let is_change = |position: u32| !requests[position as usize].is_get();
        let key = |position: u32| requests[position as usize].key();
        let mut execution = Execution {
            requests,
            versions: KeyWrites::sort(len, is_change, key, gpu),
            outcomes: Vec::new(),
        };
        let is_none = |nth: usize| !requests[nth].is_read_modify_write();
        if !parallel::all(requests.len(), REQUESTS_PER_THREAD_MIN, is_none) {
            execution.read_modify_write(tiers, operator)?;
        }
        Ok(execution)
    }
}

impl<'r, K: Fn(u32) -> &'r [u8] + Sync> Execution<'r, K> {
    fn request(&self, version: &KeyWrite) -> &'r Request {
        self.requests[version.position as usize]
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
        let depends = |version: &KeyWrite| self.request(version).is_read_modify_write();
        let runs = self
            .versions
            .map_keys(|run| run.iter().any(depends).then_some(run));
        // Whose first write depends on what the index has.
        let asked: Vec<usize> = (0..runs.len())
            .filter(|&nth| depends(&runs[nth][0]))
            .collect();
        let keys: Vec<&[u8]> = asked
            .iter()
            .map(|&nth| self.request(&runs[nth][0]).key())
            .collect();
        let mut bases = vec![None; runs.len()];
        tiers.get_many(&keys, PARALLEL_REQUESTS_MIN, |nth, value| {
            bases[asked[nth]] = Some(value);
        })?;
        let run = |nth: usize| self.outcomes_of_key(runs[nth], bases[nth].as_deref(), operator);
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

    /// What becomes of the read-modify-writes among the writes of one key, which had the value `base` before.
    fn outcomes_of_key(
        &self,
        run: &[KeyWrite],
        base: Value,
        operator: Option<&dyn MergeOperator>,
    ) -> Vec<Option<Outcome>> {
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
                newest = Some(nth);
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
        let last = |run: &[KeyWrite]| {
            let (position, value) = self.newest(run.iter().rev())?;
            Some(Entry {
                key: self.request(&run[0]).key(),
                value,
                position,
            })
        };
        let mut finals = self.versions.map_keys(last);
        match finals.len() {
            0..REQUESTS_PER_THREAD_MIN => finals.sort_unstable_by_key(|entry| entry.position),
            _ => finals.par_sort_unstable_by_key(|entry| entry.position),
        }
        finals
    }

    /// The first merge that failed.
    pub fn failure(&self) -> Option<&Error> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            Some(Outcome::Refused(Response::Failed(error))) => Some(&**error),
            _ => None,
        })
    }

    /// The answers; `early` has those that are there already to some of the gets, by their positions, or is
    /// empty. The index must not have taken the batch in yet.
    ///
    /// # Errors
    /// Those of the index.
    pub fn answer(
        &self,
        tiers: &TieredItems,
        early: Vec<Option<Response>>,
    ) -> Result<Vec<Response>> {
        let unasked = |position: usize| match (self.requests[position], self.outcome(position)) {
            (Request::Get { .. } | Request::Swap { .. }, _) => Response::Value(None),
            (_, Some(Outcome::Refused(answer))) => answer.clone(),
            _ => Response::Done,
        };
        let is_early = (0..early.len()).filter(|&nth| early[nth].is_some());
        let is_early: FixedBitSet = is_early.collect();
        let mut responses: Vec<Response> = match early.is_empty() {
            true => parallel::collect(self.requests.len(), REQUESTS_PER_THREAD_MIN, unasked),
            false => {
                let answer =
                    |(nth, early): (usize, Option<_>)| early.unwrap_or_else(|| unasked(nth));
                early.into_iter().enumerate().map(answer).collect()
            }
        };
        let part = |(nth, responses): (usize, &mut [Response])| {
            self.answer_reads(tiers, nth * TASK_READS, responses, &is_early)
        };
        // A caller who leads has little left to do, and shares no work with the threads of others.
        let is_shared =
            responses.len() >= PARALLEL_REQUESTS_MIN && rayon::current_thread_index().is_some();
        match is_shared {
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
        is_early: &FixedBitSet,
    ) -> Result<()> {
        let mut asked: Vec<usize> = Vec::new();
        let mut keys: Vec<&[u8]> = Vec::new();
        let requests = &self.requests[first..first + responses.len()];
        for (nth, (request, response)) in requests.iter().zip(&mut *responses).enumerate() {
            let (Request::Get { key } | Request::Swap { key, .. }) = request else {
                continue;
            };
            let versions = self.versions.before(key, position(first + nth));
            match self.newest(versions) {
                Some((_, value)) => *response = Response::Value(value.map(<[u8]>::to_vec)),
                None if is_early.contains(first + nth) => {}
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
}
