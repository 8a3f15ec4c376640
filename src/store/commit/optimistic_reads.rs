//! Gets that a caller executes itself, beside running groups, before its batch's turn. They are
//! optimistic, and validated when the turn comes (Kung and Robinson 1981, §3). Those whose keys
//! have changed since are asked again then.

use xxhash_rust::xxh3::xxh3_64;

use crate::pool::threads::PARALLEL_REQUESTS_MIN;
use crate::store::request::{Request, Response};
use crate::store::resident::tiers::TieredItems;
use crate::width::{product_top, to_usize};

/// Requests of the longest batch that is read early. Longer ones are shared among threads in their turn.
const BATCH_REQUESTS_MAX: usize = 1 << 12;

/// So many answers that are there already take as long to check as one request to execute.
const CHECKS_PER_REQUEST: usize = 8;

/// Slots of [`Changed`], at least and at most. A key has that of its hash.
const CHANGE_SLOTS: (usize, usize) = (1 << 10, 1 << 16);

/// For so many bytes of a memory budget there is a slot.
const BUDGET_PER_SLOT: u64 = 1 << 10;

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

/// When keys were last changed, in numbers of groups of changes. Keys that share a slot count as
/// changed together.
#[derive(Debug)]
pub struct Changed {
    /// Empty until the first change.
    groups: Vec<u64>,
    /// How many there are then.
    slots: usize,
    /// The last group of so many changes that all keys count as changed by it.
    all: u64,
}

impl Changed {
    /// As if no key had ever been changed, for what a partition has of a memory budget.
    pub fn new(budget: Option<u64>) -> Self {
        let (least, most) = CHANGE_SLOTS;
        let slots = |bytes| to_usize(bytes / BUDGET_PER_SLOT).clamp(least, most);
        Self {
            groups: Vec::new(),
            slots: budget.map_or(most, slots),
            all: 0,
        }
    }

    /// Notes that a group changes these keys.
    pub fn note<'k>(&mut self, keys: impl ExactSizeIterator<Item = &'k [u8]>, group: u64) {
        if keys.len() > self.slots / 4 {
            self.all = group;
            return;
        }
        self.groups.resize(self.slots, 0);
        for key in keys {
            let slot = self.slot(key);
            self.groups[slot] = group;
        }
    }

    /// The last group that may have changed a key.
    fn last(&self, key: &[u8]) -> u64 {
        let group = self.groups.get(self.slot(key));
        group.map_or(self.all, |&group| group.max(self.all))
    }

    fn slot(&self, key: &[u8]) -> usize {
        to_usize(product_top(xxh3_64(key), self.slots as u64))
    }
}
