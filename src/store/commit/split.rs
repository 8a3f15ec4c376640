//! Which partition has which requests of a batch. A caller finds that out before he waits, and puts the answers in
//! order afterwards, so that whoever leads does nothing for each request.

use std::sync::Arc;

use super::execute::RunAnswers;
use super::queue::Answers;
use super::requests::AnswerForm;
use crate::Error;
use crate::pool::parallel;
use crate::store::columns::{ColumnAnswers, PART_VALUES, ValuesPart, scatter};
use crate::store::request::Response;

/// Numbers that partitions may have.
const NUMBERS: usize = 256;

/// Requests that one thread splits at a time. Their positions have 16 bits, and no two threads share a byte of the
/// validity of their values.
const CHUNK_REQUESTS: usize = 8192;

const _: () = assert!(CHUNK_REQUESTS.is_multiple_of(PART_VALUES) && CHUNK_REQUESTS <= 1 << 16);

/// The requests of a batch by the partitions that have their keys. What it says of each of these has a *rank* among them.
#[derive(Debug)]
pub struct Split {
    len: usize,
    /// The numbers of the partitions that have some, ascending, and how many each has.
    counts: Vec<(usize, usize)>,
    chunks: Vec<Chunk>,
}

/// Consecutive requests of a batch.
#[derive(Debug)]
struct Chunk {
    /// Their positions among these, one partition after the other.
    positions: Vec<u16>,
    /// Where those of each partition end, by ranks.
    ends: Vec<u16>,
    /// How many each partition has in the chunks before, by ranks.
    before: Vec<usize>,
}

impl Chunk {
    /// Requests of partitions of these ranks, all of which are below `ranks`.
    fn new(of_requests: &[u8], ranks: usize) -> Self {
        let mut ends = vec![0u16; ranks];
        for &rank in of_requests {
            ends[usize::from(rank)] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += std::mem::replace(count, end);
        }
        let mut positions = vec![0; of_requests.len()];
        // What was the begin of each becomes its end.
        for (nth, &rank) in (0..).zip(of_requests) {
            let next = &mut ends[usize::from(rank)];
            positions[usize::from(*next)] = nth;
            *next += 1;
        }
        Self {
            positions,
            ends,
            before: Vec::new(),
        }
    }

    /// The positions of what a partition has.
    fn of(&self, rank: usize) -> &[u16] {
        let begin = rank.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.positions[begin.into()..self.ends[rank].into()]
    }
}

impl Split {
    /// That of a batch of so many requests. Threads of the caller's pool do it together.
    pub fn new(len: usize, number_of: impl Fn(usize) -> usize + Sync) -> Arc<Self> {
        let numbers = |first: usize| {
            let end = len.min(first + CHUNK_REQUESTS);
            let number = |nth| u8::try_from(number_of(nth)).expect("there are at most 256");
            let numbers: Vec<u8> = (first..end).map(number).collect();
            let mut is_there = [false; NUMBERS];
            for &number in &numbers {
                is_there[usize::from(number)] = true;
            }
            (numbers, is_there)
        };
        let mut chunks = parallel::map_if_shared((0..len).step_by(CHUNK_REQUESTS), numbers);
        let mut rank_of = [0; NUMBERS];
        let mut counts = Vec::new();
        for (number, rank_of) in rank_of.iter_mut().enumerate() {
            if chunks.iter().any(|(_, is_there)| is_there[number]) {
                *rank_of = u8::try_from(counts.len()).expect("there are at most 256");
                counts.push((number, 0));
            }
        }
        let chunk = |(numbers, _): &mut (Vec<u8>, _)| {
            for number in &mut *numbers {
                *number = rank_of[usize::from(*number)];
            }
            Chunk::new(numbers, counts.len())
        };
        let mut chunks = parallel::map_if_shared(&mut chunks, chunk);
        for chunk in &mut chunks {
            chunk.before = counts.iter().map(|(_, count)| *count).collect();
            for (rank, (_, count)) in counts.iter_mut().enumerate() {
                *count += chunk.of(rank).len();
            }
        }
        Arc::new(Self {
            len,
            counts,
            chunks,
        })
    }

    /// The number of each partition that has some of the requests, and how many, by ranks.
    pub fn counts(&self) -> &[(usize, usize)] {
        &self.counts
    }

    /// The positions of what the partition of a rank has, in ascending order.
    pub fn positions(&self, rank: usize) -> impl Iterator<Item = usize> {
        let firsts = (0..).step_by(CHUNK_REQUESTS);
        firsts.zip(&self.chunks).flat_map(move |(first, chunk)| {
            let of_chunk = chunk.of(rank).iter();
            of_chunk.map(move |&nth| first + usize::from(nth))
        })
    }

    /// The position of request `nth` of those that the partition of a rank has.
    fn position(&self, rank: usize, nth: usize) -> usize {
        let behind = self
            .chunks
            .partition_point(|chunk| chunk.before[rank] <= nth);
        let chunk = &self.chunks[behind - 1];
        let of_chunk = chunk.of(rank)[nth - chunk.before[rank]];
        (behind - 1) * CHUNK_REQUESTS + usize::from(of_chunk)
    }
}

/// The answers to a batch, as its partitions have given them.
#[derive(Debug)]
pub struct SplitAnswers {
    split: Arc<Split>,
    form: AnswerForm,
    /// By ranks.
    answers: Vec<(usize, RunAnswers)>,
}

impl SplitAnswers {
    /// None yet, to requests that are answered so.
    pub fn new(split: &Arc<Split>, form: AnswerForm) -> Self {
        Self {
            split: Arc::clone(split),
            form,
            answers: Vec::new(),
        }
    }

    /// Adds those to all that the partition of a rank has.
    pub fn add(&mut self, rank: usize, answers: RunAnswers) {
        self.answers.push((rank, answers));
    }

    /// How many requests they answer.
    pub fn len(&self) -> usize {
        self.split.len
    }

    /// The answers in the order of the requests. Threads of the caller's pool put them there together.
    pub fn in_order(self) -> Answers {
        match self.form {
            AnswerForm::Responses => Answers::Responses(self.into_responses()),
            AnswerForm::Values | AnswerForm::Nothing => {
                Answers::Columns(Box::new(self.into_columns()))
            }
        }
    }

    /// The answers to requests that did not come in columns, in the order of these.
    pub fn into_responses(self) -> Vec<Response> {
        let mut responses = vec![Response::Done; self.split.len];
        let mut of_partitions: Vec<(usize, Vec<Response>)> = Vec::new();
        for (rank, answers) in self.answers {
            if let RunAnswers::Responses(responses) = answers {
                of_partitions.push((rank, responses));
            }
        }
        let left = of_partitions.iter_mut();
        let mut left: Vec<(usize, &mut [Response])> = left
            .map(|(rank, responses)| (*rank, &mut responses[..]))
            .collect();
        let mut parts = Vec::with_capacity(self.split.chunks.len());
        let chunks = self.split.chunks.iter();
        for (chunk, responses) in chunks.zip(responses.chunks_mut(CHUNK_REQUESTS)) {
            let mut answers = Vec::with_capacity(left.len());
            for (rank, left) in &mut left {
                let positions = chunk.of(*rank);
                let of_chunk = left.split_off_mut(..positions.len());
                answers.push((positions, of_chunk.expect("one for each request")));
            }
            parts.push((responses, answers));
        }
        parallel::map_if_shared(parts, |(responses, answers)| {
            for (positions, answers) in answers {
                for (&nth, answer) in positions.iter().zip(answers) {
                    std::mem::swap(&mut responses[usize::from(nth)], answer);
                }
            }
        });
        responses
    }

    /// The answers to requests that came in columns, in the order of these.
    pub fn into_columns(self) -> ColumnAnswers {
        let Self {
            split,
            form,
            answers,
        } = self;
        if form == AnswerForm::Nothing {
            return ColumnAnswers::default();
        }
        let mut failures: Vec<(usize, Error)> = Vec::new();
        let mut ranks: Vec<usize> = Vec::new();
        let mut shares: Vec<Vec<ValuesPart>> = Vec::new();
        for (rank, answers) in answers {
            let RunAnswers::Values(parts, failed) = answers else {
                continue;
            };
            ranks.push(rank);
            shares.push(parts);
            let failed = failed.into_iter();
            failures.extend(failed.map(|(nth, error)| (split.position(rank, nth), error)));
        }
        failures.sort_by_key(|(nth, _)| *nth);
        let values = scatter((split.len, CHUNK_REQUESTS), shares, |nth, set| {
            let chunk = &split.chunks[nth];
            for (share, &rank) in ranks.iter().enumerate() {
                let of_share = (chunk.before[rank]..).zip(chunk.of(rank));
                of_share.for_each(|(at, &nth)| set(nth.into(), share, at));
            }
        });
        ColumnAnswers {
            values: values.into(),
            failures,
        }
    }
}

#[cfg(test)]
mod tests;
