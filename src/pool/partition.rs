//! The positions of a batch by the part that each belongs to.

use std::ops::Range;

use super::parallel;

/// Positions of a batch, in their order within each part.
pub struct Partition {
    blocks: Vec<Block>,
    /// Positions of a block, but of the last.
    len: usize,
}

/// The positions of one block of the batch.
struct Block {
    /// Distance of each from the first one of the block, sorted by part.
    distances: Vec<u32>,
    /// Where each part begins, and the end of the last.
    bounds: Vec<u32>,
}

/// Positions of a block at most, so that a distance fits.
const BLOCK_MAX: usize = 1 << 20;

impl Partition {
    /// Positions below `len`, of which `part_of` says the part.
    pub fn new(len: usize, parts: usize, part_of: impl Fn(usize) -> usize + Sync) -> Self {
        let block_len = len.div_ceil(parts).clamp(1, BLOCK_MAX);
        let starts = (0..len).step_by(block_len);
        let block = |start: usize| Block::new(start..len.min(start + block_len), parts, &part_of);
        Self {
            blocks: parallel::map(starts, block),
            len: block_len,
        }
    }

    /// The positions of a part, ascending.
    #[inline]
    pub fn positions(&self, part: usize) -> impl Iterator<Item = usize> + Clone {
        self.blocks
            .iter()
            .enumerate()
            .flat_map(move |(nth, block)| {
                let start = nth * self.len;
                let bounds = block.bounds[part] as usize..block.bounds[part + 1] as usize;
                let of_part = block.distances[bounds].iter();
                of_part.map(move |&distance| start + distance as usize)
            })
    }
}

impl Block {
    fn new(positions: Range<usize>, parts: usize, part_of: impl Fn(usize) -> usize) -> Self {
        let owners: Vec<usize> = positions.map(part_of).collect();
        let mut bounds = vec![0; parts + 1];
        for &part in &owners {
            bounds[part + 1] += 1;
        }
        for part in 0..parts {
            bounds[part + 1] += bounds[part];
        }
        let mut next = bounds.clone();
        let mut distances = vec![0; owners.len()];
        for (distance, &part) in (0..).zip(&owners) {
            distances[next[part] as usize] = distance;
            next[part] += 1;
        }
        Self { distances, bounds }
    }
}

#[cfg(test)]
mod tests;
