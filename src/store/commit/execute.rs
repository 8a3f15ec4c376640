//! Executing a batch (H-Rocks §4, §6). Its requests are told apart into writes, merges and gets,
//! and each kind is executed at a time. All versions of a key that writes and merges make are kept
//! until each get has found the one before it. So every answer is that of one request after the
//! other, in the order of their arrival.

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

/// Gets that one thread answers at a time.
const TASK_GETS: usize = 512;

/// A batch that is being executed. What it changes is not in the index yet.
pub struct Execution<'r, K: Fn(u32) -> &'r [u8]> {
    requests: &'r [&'r Request],
    versions: KeyWrites<'r, K>,
    /// What merges have made, by their positions; empty if there are none.
    merged: Vec<Option<Result<Vec<u8>>>>,
}

/// A value, or `None` where it was deleted.
type Value<'v> = Option<&'v [u8]>;

impl<'r> Execution<'r, fn(u32) -> &'r [u8]> {
    /// Makes the versions of all keys that the batch changes, merges included; the GPU sorts them, if
    /// there is one.
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
            merged: Vec::new(),
        };
        let has_merge = || {
            let is_none = |nth: usize| !requests[nth].is_merge();
            !parallel::all(requests.len(), REQUESTS_PER_THREAD_MIN, is_none)
        };
        if let Some(operator) = operator
            && has_merge()
        {
            execution.merge(tiers, operator)?;
        }
        Ok(execution)
    }
}

impl<'r, K: Fn(u32) -> &'r [u8] + Sync> Execution<'r, K> {
    fn request(&self, version: &KeyWrite) -> &'r Request {
        self.requests[version.position as usize]
    }

    /// Runs the merges: those of one key in order, those of different keys side by side.
    fn merge(&mut self, tiers: &TieredItems, operator: &dyn MergeOperator) -> Result<()> {
        let has_merge =
            |run: &[KeyWrite]| run.iter().any(|version| self.request(version).is_merge());
        let runs = self.versions.map_keys(|run| has_merge(run).then_some(run));
        let needs = |run: &&[KeyWrite]| self.request(&run[0]).is_merge();
        let asked: Vec<usize> = (0..runs.len()).filter(|&nth| needs(&runs[nth])).collect();
        let keys: Vec<&[u8]> = asked
            .iter()
            .map(|&nth| self.request(&runs[nth][0]).key())
            .collect();
        let mut bases = vec![None; runs.len()];
        tiers.get_many(&keys, PARALLEL_REQUESTS_MIN, |nth, value| {
            bases[asked[nth]] = Some(value);
        })?;
        let run = |nth: usize| self.merge_run(runs[nth], bases[nth].as_deref(), operator);
        let made: Vec<_> = match runs.len() {
            PARALLEL_REQUESTS_MIN.. => parallel::collect(runs.len(), 1, run),
            len => (0..len).map(run).collect(),
        };
        let mut merged = vec![None; self.requests.len()];
        for (position, value) in made.into_iter().flatten() {
            merged[position as usize] = Some(value);
        }
        self.merged = merged;
        Ok(())
    }

    /// The values that the merges of one key make.
    fn merge_run(
        &self,
        run: &[KeyWrite],
        base: Value,
        operator: &dyn MergeOperator,
    ) -> Vec<(u32, Result<Vec<u8>>)> {
        let mut made: Vec<(u32, Result<Vec<u8>>)> = Vec::new();
        // Where the newest value is: in `made`, or else here.
        let mut newest = None;
        let mut other = base;
        for version in run {
            match self.request(version) {
                Request::Put { value, .. } => (newest, other) = (None, Some(value.as_slice())),
                Request::Delete { .. } => (newest, other) = (None, None),
                Request::Merge { key, operand } => {
                    let value = match newest {
                        Some(nth) => {
                            let (_, value): &(u32, Result<Vec<u8>>) = &made[nth];
                            value.as_deref().ok()
                        }
                        None => other,
                    };
                    let value = merge(operator, key, value, operand);
                    if value.is_ok() {
                        newest = Some(made.len());
                    }
                    made.push((version.position, value));
                }
                Request::Get { .. } => unreachable!("a get makes no version"),
            }
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
            let value = match self.request(version) {
                Request::Put { value, .. } => Some(value.as_slice()),
                Request::Merge { .. } => {
                    let merged = self.merged[version.position as usize].as_ref();
                    Some(merged.and_then(|merged| merged.as_deref().ok())?)
                }
                Request::Delete { .. } | Request::Get { .. } => None,
            };
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
        self.merged
            .iter()
            .find_map(|merged| merged.as_ref()?.as_ref().err())
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
        let merge_answer = |position: usize| match &self.merged[position] {
            Some(Err(error)) => Response::Failed(Box::new(error.clone())),
            _ => Response::Done,
        };
        let unasked = |position: usize| match self.requests[position] {
            Request::Get { .. } => Response::Value(None),
            Request::Merge { .. } => merge_answer(position),
            Request::Put { .. } | Request::Delete { .. } => Response::Done,
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
            self.answer_gets(tiers, nth * TASK_GETS, responses, &is_early)
        };
        // A caller who leads has little left to do, and shares no work with the threads of others.
        let is_shared =
            responses.len() >= PARALLEL_REQUESTS_MIN && rayon::current_thread_index().is_some();
        match is_shared {
            true => parallel::map(responses.chunks_mut(TASK_GETS).enumerate(), part)
                .into_iter()
                .collect::<Result<()>>()?,
            false => part((0, &mut responses))?,
        }
        Ok(responses)
    }

    /// Answers the gets among the requests from position `first` on, one for each response; those that
    /// are `early` have an answer, unless the batch itself has another.
    fn answer_gets(
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
            let Request::Get { key } = request else {
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
