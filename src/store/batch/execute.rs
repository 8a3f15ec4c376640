//! Carrying out a batch (H-Rocks §4, §6): its requests are told apart into writes, merges and gets,
//! and each kind is done at a time. All versions of a key that writes and merges make are kept until
//! the gets have found the one before them, so that every answer is that of one request after the
//! other, in the order of their arrival.

use rayon::prelude::*;

use super::versions::{Version, Versions};
use super::{Request, Response};
use crate::store::merge::{MergeOperator, merge};
use crate::store::tiers::Tiers;
use crate::store::wal::record::Entry;
use crate::{Error, Result};

/// From how many requests on several threads carry them out: others wait for the batch.
pub const PARALLEL: usize = 384;

/// A batch that is being carried out. What it changes is not in the index yet.
pub struct Execution<'r, K: Fn(u32) -> &'r [u8]> {
    requests: &'r [&'r Request],
    versions: Versions<'r, K>,
    /// What merges have made, by their positions; empty if there are none.
    merged: Vec<Option<Result<Vec<u8>>>>,
}

/// A value, or `None` where it was deleted.
type Value<'v> = Option<&'v [u8]>;

impl<'r> Execution<'r, fn(u32) -> &'r [u8]> {
    /// Makes the versions of all keys that the batch changes, merges included.
    ///
    /// # Errors
    /// Those of the index. What becomes of a merge that fails is its own answer.
    pub fn start(
        requests: &'r [&'r Request],
        tiers: &Tiers,
        operator: Option<&dyn MergeOperator>,
    ) -> Result<Execution<'r, impl Fn(u32) -> &'r [u8] + Sync>> {
        let writes = (0..requests.len() as u32).filter(|&nth| !requests[nth as usize].is_get());
        let key = |position: u32| requests[position as usize].key();
        let mut execution = Execution {
            requests,
            versions: Versions::sort(writes, key),
            merged: Vec::new(),
        };
        if let Some(operator) = operator
            && requests.iter().any(|request| request.is_merge())
        {
            execution.merge(tiers, operator)?;
        }
        Ok(execution)
    }
}

impl<'r, K: Fn(u32) -> &'r [u8] + Sync> Execution<'r, K> {
    fn request(&self, version: &Version) -> &'r Request {
        self.requests[version.position as usize]
    }

    /// Runs the merges: those of one key in order, those of different keys side by side.
    fn merge(&mut self, tiers: &Tiers, operator: &dyn MergeOperator) -> Result<()> {
        let has_merge =
            |run: &&[Version]| run.iter().any(|version| self.request(version).is_merge());
        let runs: Vec<&[Version]> = self.versions.keys().filter(has_merge).collect();
        let needs = |run: &&[Version]| self.request(&run[0]).is_merge();
        let asked: Vec<usize> = (0..runs.len()).filter(|&nth| needs(&runs[nth])).collect();
        let keys: Vec<&[u8]> = asked
            .iter()
            .map(|&nth| self.request(&runs[nth][0]).key())
            .collect();
        let mut bases = vec![None; runs.len()];
        tiers.get_many(&keys, PARALLEL, |nth, value| {
            bases[asked[nth]] = Some(value);
        })?;
        let work = runs.par_iter().zip(&bases);
        let run = |(run, base): (&&[Version], &Option<Vec<u8>>)| {
            self.merge_run(run, base.as_deref(), operator)
        };
        let made: Vec<_> = match runs.len() {
            PARALLEL.. => work.map(run).collect(),
            _ => runs.iter().zip(&bases).map(run).collect(),
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
        run: &[Version],
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

    /// The newest of some versions of a key, and which request has made it; `None` if none of them
    /// came about.
    fn newest(&self, versions: &[Version]) -> Option<(u32, Value<'_>)> {
        versions.iter().rev().find_map(|version| {
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

    /// What is left of the batch in the end: the final values of the keys that it changes.
    pub fn finals(&self) -> Vec<Entry<'_>> {
        let last = |run: &[Version]| {
            let (position, value) = self.newest(run)?;
            Some(Entry {
                key: self.request(&run[0]).key(),
                value,
                position,
            })
        };
        self.versions.keys().filter_map(last).collect()
    }

    /// The first merge that failed.
    pub fn failure(&self) -> Option<&Error> {
        self.merged
            .iter()
            .find_map(|merged| merged.as_ref()?.as_ref().err())
    }

    /// The answers. The index must not have taken the batch in yet.
    ///
    /// # Errors
    /// Those of the index.
    pub fn answer(&self, tiers: &Tiers) -> Result<Vec<Response>> {
        let mut asked: Vec<u32> = Vec::new();
        let mut keys: Vec<&[u8]> = Vec::new();
        let mut respond = |(position, request): (usize, &&'r Request)| {
            let position = position as u32;
            match *request {
                Request::Get { key } => {
                    let versions = self.versions.before(key, position);
                    match self.newest(versions) {
                        Some((_, value)) => Response::Value(value.map(<[u8]>::to_vec)),
                        None => {
                            asked.push(position);
                            keys.push(key);
                            Response::Value(None)
                        }
                    }
                }
                Request::Merge { .. } => match &self.merged[position as usize] {
                    Some(Err(error)) => Response::Failed(error.clone()),
                    _ => Response::Done,
                },
                Request::Put { .. } | Request::Delete { .. } => Response::Done,
            }
        };
        let mut responses: Vec<Response> =
            self.requests.iter().enumerate().map(&mut respond).collect();
        tiers.get_many(&keys, PARALLEL, |nth, value| {
            responses[asked[nth] as usize] = Response::Value(Some(value));
        })?;
        Ok(responses)
    }
}
