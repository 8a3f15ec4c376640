//! How batches are laid out in device memory: many of them before the clock starts, so that they
//! can be issued back to back.

use std::ops::Range;

/// Most batches of a window.
const LONGEST: usize = 256;

/// Cuts batches of these sizes into windows that each take at most `budget` bytes. A batch that
/// takes more has a window of its own.
pub fn windows(sizes: &[usize], budget: usize) -> Vec<Range<usize>> {
    let mut windows: Vec<Range<usize>> = Vec::new();
    let mut taken = 0;
    for (batch, size) in sizes.iter().enumerate() {
        match windows.last_mut() {
            Some(window) if window.len() < LONGEST && taken + size <= budget => {
                window.end = batch + 1;
                taken += size;
            }
            _ => {
                windows.push(batch..batch + 1);
                taken = *size;
            }
        }
    }
    windows
}

/// Where one call has its operands and its answers in the memory of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Positions of keys, and of values.
    pub operands: Range<usize>,
    /// Positions of words of answers, which no other call shares.
    pub answers: Range<usize>,
}

/// Where the calls of one batch have theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub reads: Span,
    pub writes: Span,
}

/// Lays out batches of so many reads and writes one behind the other; a call of `len` operations
/// has `answer_words(len)` words of answers.
pub fn lay_out(
    batches: impl Iterator<Item = (usize, usize)>,
    answer_words: impl Fn(usize) -> usize,
) -> Vec<Place> {
    let (mut operands, mut answers) = (0, 0);
    let mut span = |len: usize| {
        let span = Span {
            operands: operands..operands + len,
            answers: answers..answers + answer_words(len),
        };
        (operands, answers) = (span.operands.end, span.answers.end);
        span
    };
    batches
        .map(|(reads, writes)| Place {
            reads: span(reads),
            writes: span(writes),
        })
        .collect()
}
