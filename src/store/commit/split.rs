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

/// Requests that one thread splits at a time. Their positions have 16 bits, and no two threads share a byte of the
/// validity of their values.
const CHUNK_REQUESTS: usize = 8192;

const _: () = assert!(CHUNK_REQUESTS.is_multiple_of(PART_VALUES) && CHUNK_REQUESTS <= 1 << 16);

/// The requests of a batch by the partitions that have their keys.
#[derive(Debug)]
pub struct Split {
    len: usize,
    chunks: Vec<Chunk>,
}

/// Consecutive requests of a batch.
#[derive(Debug)]
struct Chunk {
    /// Their positions among these, one partition after the other.
    positions: Vec<u16>,
    /// Where those of each partition end.
    ends: Vec<usize>,
    /// How many each partition has in the chunks before.
    before: Vec<usize>,
}

impl Chunk {
    fn new(partitions: usize, numbers: impl Iterator<Item = usize> + Clone) -> Self {
        let mut ends = vec![0; partitions];
        numbers.clone().for_each(|number| ends[number] += 1);
        let mut end = 0;
        for count in &mut ends {
            end += std::mem::replace(count, end);
        }
        let mut positions = vec![0; end];
        // What was the begin of each becomes its end.
        for (nth, number) in (0..).zip(numbers) {
            positions[ends[number]] = nth;
            ends[number] += 1;
        }
        Self {
            positions,
            ends,
            before: Vec::new(),
        }
    }

    /// The positions of what a partition has.
    fn of(&self, number: usize) -> &[u16] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.positions[begin..self.ends[number]]
    }
}

impl Split {
    /// That of a batch of so many requests, among so many partitions. Threads of the caller's pool do it together.
    pub fn new(
        len: usize,
        partitions: usize,
        number_of: impl Fn(usize) -> usize + Sync,
    ) -> Arc<Self> {
        let chunk = |first: usize| {
            let end = len.min(first + CHUNK_REQUESTS);
            let numbers: Vec<u8> = (first..end).map(|nth| narrow(number_of(nth))).collect();
            Chunk::new(partitions, numbers.iter().map(|&number| number.into()))
        };
        let mut chunks = parallel::map_if_shared((0..len).step_by(CHUNK_REQUESTS), chunk);
        let mut before = vec![0; partitions];
        for chunk in &mut chunks {
            chunk.before.clone_from(&before);
            let counts = before.iter_mut().enumerate();
            counts.for_each(|(number, before)| *before += chunk.of(number).len());
        }
        Arc::new(Self { len, chunks })
    }

    /// Whether a batch of so many requests is split by several threads.
    pub fn is_shared(len: usize) -> bool {
        len > CHUNK_REQUESTS
    }

    /// How many requests a partition has.
    pub fn count(&self, number: usize) -> usize {
        let last = self.chunks.last();
        last.map_or(0, |last| last.before[number] + last.of(number).len())
    }

    /// The positions of what a partition has, in ascending order.
    pub fn positions(&self, number: usize) -> impl Iterator<Item = usize> {
        let firsts = (0..).step_by(CHUNK_REQUESTS);
        firsts.zip(&self.chunks).flat_map(move |(first, chunk)| {
            let of_chunk = chunk.of(number).iter();
            of_chunk.map(move |&nth| first + usize::from(nth))
        })
    }

    /// The position of request `nth` of those that a partition has.
    fn position(&self, number: usize, nth: usize) -> usize {
        let behind = self
            .chunks
            .partition_point(|chunk| chunk.before[number] <= nth);
        let chunk = &self.chunks[behind - 1];
        let of_chunk = chunk.of(number)[nth - chunk.before[number]];
        (behind - 1) * CHUNK_REQUESTS + usize::from(of_chunk)
    }
}

/// The number of one of up to 256 partitions.
fn narrow(number: usize) -> u8 {
    u8::try_from(number).expect("there are at most 256")
}

/// The answers to a batch, as its partitions have given them.
#[derive(Debug)]
pub struct SplitAnswers {
    split: Arc<Split>,
    form: AnswerForm,
    /// Of each partition that has some of the requests.
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

    /// Adds those to all that a partition has.
    pub fn add(&mut self, number: usize, answers: RunAnswers) {
        self.answers.push((number, answers));
    }

    /// Whether threads of a pool put them in order together.
    pub fn is_shared(&self) -> bool {
        Split::is_shared(self.split.len)
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
        for (number, answers) in self.answers {
            if let RunAnswers::Responses(responses) = answers {
                of_partitions.push((number, responses));
            }
        }
        let left = of_partitions.iter_mut();
        let mut left: Vec<(usize, &mut [Response])> = left
            .map(|(number, responses)| (*number, &mut responses[..]))
            .collect();
        let mut parts = Vec::with_capacity(self.split.chunks.len());
        let chunks = self.split.chunks.iter();
        for (chunk, responses) in chunks.zip(responses.chunks_mut(CHUNK_REQUESTS)) {
            let mut answers = Vec::with_capacity(left.len());
            for (number, left) in &mut left {
                let positions = chunk.of(*number);
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
        let mut numbers: Vec<usize> = Vec::new();
        let mut shares: Vec<Vec<ValuesPart>> = Vec::new();
        for (number, answers) in answers {
            let RunAnswers::Values(parts, failed) = answers else {
                continue;
            };
            numbers.push(number);
            shares.push(parts);
            let failed = failed.into_iter();
            failures.extend(failed.map(|(nth, error)| (split.position(number, nth), error)));
        }
        failures.sort_by_key(|(nth, _)| *nth);
        let values = scatter((split.len, CHUNK_REQUESTS), shares, |nth, set| {
            let chunk = &split.chunks[nth];
            for (share, &number) in numbers.iter().enumerate() {
                let of_share = (chunk.before[number]..).zip(chunk.of(number));
                of_share.for_each(|(at, &nth)| set(nth.into(), share, at));
            }
        });
        ColumnAnswers { values, failures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_goes_to_one_partition_and_its_answer_back() {
        for len in [0, 1, 100, CHUNK_REQUESTS, 2 * CHUNK_REQUESTS + 77] {
            for partitions in [1, 3, 256] {
                let number_of = |nth: usize| nth * nth % partitions;
                let split = Split::new(len, partitions, number_of);
                let mut responses = SplitAnswers::new(&split, AnswerForm::Responses);
                let mut columns = SplitAnswers::new(&split, AnswerForm::Values);
                for number in 0..partitions {
                    let expected: Vec<usize> =
                        (0..len).filter(|&nth| number_of(nth) == number).collect();
                    let positions: Vec<usize> = split.positions(number).collect();
                    assert_eq!(positions, expected);
                    assert_eq!(split.count(number), expected.len());
                    let value = |nth: &usize| nth.to_le_bytes().to_vec();
                    let response = |nth| Response::Value(Some(value(nth)));
                    let all = positions.iter().map(response).collect();
                    if number % 2 == 0 {
                        responses.add(number, RunAnswers::Responses(all));
                    }
                    let parts = positions.chunks(PART_VALUES).map(|positions| {
                        let mut part = ValuesPart::nulls(positions.len());
                        for (at, nth) in positions.iter().enumerate() {
                            part.set(at, &value(nth));
                        }
                        part
                    });
                    let failed = positions.len().checked_sub(1);
                    let failed = failed.map(|nth| (nth, Error::Conflict)).into_iter();
                    let answers = RunAnswers::Values(parts.collect(), failed.collect());
                    columns.add(number, answers);
                }
                let responses = responses.into_responses();
                let columns = columns.into_columns();
                assert_eq!(responses.len(), len);
                for (nth, response) in responses.iter().enumerate() {
                    let expected = nth.to_le_bytes();
                    match (response, number_of(nth) % 2) {
                        (Response::Value(Some(value)), 0) => assert_eq!(value, &expected),
                        (response, _) => assert!(matches!(response, Response::Done)),
                    }
                    assert_eq!(columns.values.get(nth), Some(&expected[..]));
                }
                let mut last: Vec<usize> = (0..partitions)
                    .filter_map(|number| split.positions(number).last())
                    .collect();
                last.sort_unstable();
                let failed: Vec<usize> = columns.failures.iter().map(|(nth, _)| *nth).collect();
                assert_eq!(failed, last);
            }
        }
    }
}
