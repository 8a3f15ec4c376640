//! Gets that a caller executes itself, beside running groups, before its batch's turn. They are
//! optimistic, and validated when the turn comes (Kung and Robinson 1981, §3). Those whose keys
//! have changed since are asked again then.

use crate::pool::changed::Changed;
use crate::pool::threads::PARALLEL_REQUESTS_MIN;
use crate::store::request::{Request, Response};
use crate::store::resident::tiers::TieredItems;

/// Requests of the longest batch that is read early. Longer ones are shared among threads in their turn.
const BATCH_REQUESTS_MAX: usize = 1 << 12;

/// So many answers that are there already take as long to check as one request to execute.
const CHECKS_PER_REQUEST: usize = 8;

/// Answers from before the turn of a batch.
#[derive(Debug)]
pub struct OptimisticReads {
    /// Number of the last group of changes that had been made when the reading began.
    since: u64,
    /// One for each request that is a get.
    answers: Vec<Option<Response>>,
    gets: usize,
}

impl OptimisticReads {
    /// Reads what the gets among `requests` ask for, while changes may run; `since` is the number of the
    /// last group of which none are left to be made. Nothing if an error must come again in the batch's
    /// turn, or if that is no gain: threads share what is long, and if the caller is `alone`, they
    /// wait for it.
    pub fn read<'r>(
        requests: &'r [Request],
        tiers: &TieredItems,
        since: u64,
        alone: bool,
    ) -> Option<Self> {
        if requests.len() > BATCH_REQUESTS_MAX {
            return None;
        }
        let gets = |(nth, request): (usize, &'r Request)| match request {
            Request::Get { key } => Some((nth, key.as_slice())),
            _ => None,
        };
        let (asked, keys): (Vec<usize>, Vec<&[u8]>) =
            requests.iter().enumerate().filter_map(gets).unzip();
        let is_shared = left(requests.len(), asked.len()) >= PARALLEL_REQUESTS_MIN;
        if asked.is_empty() || (alone && is_shared) {
            return None;
        }
        let mut answers = vec![None; requests.len()];
        for &nth in &asked {
            answers[nth] = Some(Response::Value(None));
        }
        let found = |nth: usize, value| answers[asked[nth]] = Some(Response::Value(Some(value)));
        tiers.get_some(&keys, found).ok()?;
        Some(Self {
            since,
            answers,
            gets: asked.len(),
        })
    }

    /// How much is left to do of the batch, in requests.
    pub fn left(&self) -> usize {
        left(self.answers.len(), self.gets)
    }

    /// The answers that still hold, to gets among the requests that were read.
    pub fn into_valid(self, requests: &[Request], changed: &Changed) -> Vec<Option<Response>> {
        let mut answers = self.answers;
        for (answer, request) in answers.iter_mut().zip(requests) {
            if answer.is_some() && changed.last(request.key()) > self.since {
                *answer = None;
            }
        }
        answers
    }
}

/// How much is left to do of so many requests when their `gets` have been read.
fn left(requests: usize, gets: usize) -> usize {
    requests - gets + gets / CHECKS_PER_REQUEST
}
