//! Which partition has which requests of a batch. A caller finds that out before he waits, and puts the answers in
//! order afterwards, so that whoever leads does nothing for each request.

use std::sync::Arc;

use super::parallel;

/// Numbers that partitions may have.
const NUMBERS: usize = 256;

/// Requests that one thread splits, or answers, at a time. Their positions have 16 bits.
pub const CHUNK_REQUESTS: usize = 2048;

const _: () = assert!(CHUNK_REQUESTS <= 1 << 16);

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
    /// The rank of the partition that has each.
    ranks: Vec<u8>,
    /// Their positions among these, one partition after the other.
    positions: Vec<u16>,
    /// Where those of each partition end, by ranks.
    ends: Vec<u16>,
    /// How many each partition has in the chunks before, by ranks.
    before: Vec<usize>,
}

impl Chunk {
    /// Requests of partitions of these ranks, of which there are so many.
    fn new(ranks: Vec<u8>, count: usize) -> Self {
        let mut ends = vec![0u16; count];
        for &rank in &ranks {
            ends[usize::from(rank)] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += std::mem::replace(count, end);
        }
        let mut positions = vec![0; ranks.len()];
        // What was the begin of each becomes its end.
        for (nth, &rank) in (0..).zip(&ranks) {
            let next = &mut ends[usize::from(rank)];
            positions[usize::from(*next)] = nth;
            *next += 1;
        }
        Self {
            ranks,
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
        let chunks = parallel::map_if_shared((0..len).step_by(CHUNK_REQUESTS), numbers);
        let mut rank_of = [0; NUMBERS];
        let mut counts = Vec::new();
        for (number, rank_of) in rank_of.iter_mut().enumerate() {
            if chunks.iter().any(|(_, is_there)| is_there[number]) {
                *rank_of = u8::try_from(counts.len()).expect("there are at most 256");
                counts.push((number, 0));
            }
        }
        let chunk = |(mut numbers, _): (Vec<u8>, _)| {
            for number in &mut numbers {
                *number = rank_of[usize::from(*number)];
            }
            Chunk::new(numbers, counts.len())
        };
        let mut chunks = parallel::map_if_shared(chunks, chunk);
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

    /// How many requests there are.
    #[inline]
    pub fn requests(&self) -> usize {
        self.len
    }

    /// The number of each partition that has some of the requests, and how many, by ranks.
    #[inline]
    pub fn counts(&self) -> &[(usize, usize)] {
        &self.counts
    }

    /// The positions of what the partition of a rank has, in ascending order.
    #[inline]
    pub fn positions(&self, rank: usize) -> impl Iterator<Item = usize> {
        let firsts = (0..).step_by(CHUNK_REQUESTS);
        firsts.zip(&self.chunks).flat_map(move |(first, chunk)| {
            let of_chunk = chunk.of(rank).iter();
            of_chunk.map(move |&nth| first + usize::from(nth))
        })
    }

    /// The rank of the partition that has the request at a position.
    #[inline]
    pub fn rank(&self, position: usize) -> usize {
        let chunk = &self.chunks[position / CHUNK_REQUESTS];
        chunk.ranks[position % CHUNK_REQUESTS].into()
    }

    /// Which one the request at a position is of those that its partition has.
    pub fn nth(&self, position: usize) -> usize {
        let chunk = &self.chunks[position / CHUNK_REQUESTS];
        let of_chunk = position % CHUNK_REQUESTS;
        let rank = usize::from(chunk.ranks[of_chunk]);
        let before = |&other: &u16| usize::from(other) < of_chunk;
        chunk.before[rank] + chunk.of(rank).partition_point(before)
    }

    /// The position of request `nth` of those that the partition of a rank has.
    pub fn position(&self, rank: usize, nth: usize) -> usize {
        let behind = self
            .chunks
            .partition_point(|chunk| chunk.before[rank] <= nth);
        let chunk = &self.chunks[behind - 1];
        let of_chunk = chunk.of(rank)[nth - chunk.before[rank]];
        (behind - 1) * CHUNK_REQUESTS + usize::from(of_chunk)
    }
}

/// The answers to a batch that did not come in columns, as its partitions have given them.
#[derive(Debug)]
pub struct SplitAnswers<T> {
    split: Arc<Split>,
    /// By ranks.
    answers: Vec<(usize, Vec<T>)>,
}

impl<T: Clone + Send> SplitAnswers<T> {
    /// None yet.
    pub fn new(split: &Arc<Split>) -> Self {
        Self {
            split: Arc::clone(split),
            answers: Vec::new(),
        }
    }

    /// Adds those to all that the partition of a rank has.
    pub fn add(&mut self, rank: usize, answers: Vec<T>) {
        self.answers.push((rank, answers));
    }

    /// How many requests they answer.
    #[inline]
    pub fn requests(&self) -> usize {
        self.split.len
    }

    /// The answers in the order of the requests, with `other` for those that have none. Threads of the caller's pool put
    /// them there together.
    pub fn in_order(mut self, other: T) -> Vec<T> {
        let mut responses = vec![other; self.split.len];
        let left = self.answers.iter_mut();
        let mut left: Vec<(usize, &mut [T])> = left
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
}

/// The position of a request in its batch, whose length has 32 bits.
pub fn position(nth: usize) -> u32 {
    u32::try_from(nth).expect("a batch has fewer requests")
}

#[cfg(test)]
mod tests;
