//! How long the buffers of a batch are.

use super::abi::Counters;
use super::budget::IndexBudget;
use super::order::OrderMemory;

/// Longest batch whose groups of equal keys are found in a large table.
const SHORT_BATCH_MAX: u32 = 1 << 14;

/// Words of the answers of `len` positions.
pub fn answer_words(len: u32) -> u32 {
    len.div_ceil(64)
}

/// Entries of the table in which `len` positions are put into groups. A short batch waits for the key with the most
/// neighbours, so these get few; to clear the entries of a long one takes time, too.
pub fn group_entries(len: u32) -> usize {
    let room = if len <= SHORT_BATCH_MAX { 8 } else { 2 };
    (len as usize * room).next_power_of_two()
}

/// Bytes of these groups.
pub fn groups_len(len: u32) -> usize {
    (group_entries(len) * 3 + len as usize) * 4
}

/// Bytes of the blocks for `len` positions with so many bytes of keys and of values in all, as they are reserved: keys,
/// values, answers, which positions are pending, and groups.
pub fn blocks(len: u32, keys: usize, values: usize) -> [u64; 5] {
    let count = len as usize;
    let answers = answer_words(len) as usize * size_of::<u64>();
    let blocks = [keys, values, answers, count, groups_len(len)];
    blocks.map(|block| match block {
        0 => 0,
        block => block.next_power_of_two() as u64,
    })
}

/// Most positions of a part, up to `most`, with so many bytes of keys and of values each, whose buffers a stream may have: a
/// multiple of 64 if `most` is. Shorter parts have room then, too.
pub fn part_ops(budget: &IndexBudget, most: u32, key_size: usize, value_size: usize) -> u32 {
    let counters = size_of::<Counters>() as u64;
    let bytes = |len: u32| {
        let count = len as usize;
        let mut blocks = blocks(len, count * key_size, count * value_size);
        // The last part may be a short one, whose groups have more room.
        let short = groups_len(len.min(SHORT_BATCH_MAX)).next_power_of_two();
        blocks[4] = blocks[4].max(short as u64);
        blocks.iter().sum::<u64>() + OrderMemory::len_for(len) + counters
    };
    let mut len = most;
    while len > 64 && bytes(len) > budget.stream_bytes_max {
        len = ((len / 2) & !63).max(64);
    }
    len
}

#[cfg(test)]
mod tests;
