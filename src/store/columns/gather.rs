//! Values that threads read for parts of a batch become one column.

use std::ops::Range;

use super::values::ValueColumns;
use super::{Columns, Offsets};
use crate::pool::parallel;

/// Values that one thread reads at a time: a multiple of 8, so that no two share a byte of the validity.
pub const PART_VALUES: usize = 512;

const _: () = assert!(PART_VALUES.is_multiple_of(8));

/// The values of consecutive positions, one behind the other as they were found.
pub struct ValuesPart {
    spans: Vec<Span>,
    bytes: Vec<u8>,
}

/// Where a value is in the part's bytes.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    len: u32,
}

/// There is no value. The length of one has 31 bits.
const NULL: Span = Span {
    start: 0,
    len: u32::MAX,
};

impl Span {
    fn bytes(self) -> Option<Range<usize>> {
        (self.len != NULL.len).then(|| self.start..self.start + self.len as usize)
    }
}

impl ValuesPart {
    /// So many positions without values.
    pub fn nulls(len: usize) -> Self {
        Self {
            spans: vec![NULL; len],
            bytes: Vec::new(),
        }
    }

    /// Gives a position the value that it does not have yet.
    pub fn set(&mut self, nth: usize, value: &[u8]) {
        self.spans[nth] = Span {
            start: self.bytes.len(),
            len: u32::try_from(value.len()).expect("values have at most 1 GiB"),
        };
        self.bytes.extend_from_slice(value);
    }

    fn values(&self) -> impl Iterator<Item = Range<usize>> {
        self.spans.iter().filter_map(|span| span.bytes())
    }

    /// Takes the bytes, if the values are in the order of their positions.
    fn take_sorted(&mut self) -> Option<Vec<u8>> {
        let is_sorted = self.values().is_sorted_by_key(|value| value.start);
        is_sorted.then(|| std::mem::take(&mut self.bytes))
    }

    /// Copies the values in the order of their positions to `bytes`, which have just the room for them.
    fn copy_to(&self, mut bytes: &mut [u8]) {
        let mut copy = |values: Range<usize>| {
            let target = bytes.split_off_mut(..values.len());
            let target = target.expect("as long as all of them");
            target.copy_from_slice(&self.bytes[values]);
        };
        // Mostly all of them lie in order, and are copied at once.
        let mut run = 0..0;
        for value in self.values() {
            match run.end == value.start {
                true => run.end = value.end,
                false => copy(std::mem::replace(&mut run, value)),
            }
        }
        copy(run);
    }
}

/// The values of parts as one column. If there are several, all but the last one have [`PART_VALUES`].
pub fn concat(mut parts: Vec<ValuesPart>) -> ValueColumns {
    let len = parts.iter().map(|part| part.spans.len()).sum();
    let total = parts.iter().map(|part| part.bytes.len()).sum();
    let mut validity = vec![0; usize::div_ceil(len, 8)];
    let taken = match &mut parts[..] {
        [part] => part.take_sorted(),
        _ => None,
    };
    let mut bytes = taken.unwrap_or_else(|| vec![0; total]);
    // What was taken is in no part any more, so nothing is copied over it.
    let offsets = match i32::try_from(total) {
        Ok(_) => {
            let mut offsets = vec![0i32; len + 1];
            fill(&parts, &mut bytes, &mut offsets[1..], &mut validity);
            Offsets::I32(offsets)
        }
        Err(_) => {
            let mut offsets = vec![0i64; len + 1];
            fill(&parts, &mut bytes, &mut offsets[1..], &mut validity);
            Offsets::I64(offsets)
        }
    };
    ValueColumns::of(Columns::of(offsets, bytes), validity)
}

/// Fills the buffers of a column with the values of parts, on several threads if they are many.
fn fill<O: TryFrom<usize, Error: std::fmt::Debug> + Send>(
    parts: &[ValuesPart],
    mut bytes: &mut [u8],
    ends: &mut [O],
    validity: &mut [u8],
) {
    let mut base = 0;
    // A single part may be longer.
    let of_each = parts
        .first()
        .map_or(0, |part| part.spans.len())
        .max(PART_VALUES);
    let ends = ends.chunks_mut(of_each);
    let validity = validity.chunks_mut(of_each.div_ceil(8));
    let slices = parts.iter().zip(ends.zip(validity));
    let of_part = |(part, (ends, validity))| {
        let part: &ValuesPart = part;
        let target = bytes.split_off_mut(..part.bytes.len());
        let begin = base;
        base += part.bytes.len();
        (part, begin, target.expect("as long as all"), ends, validity)
    };
    parallel::map(
        slices.map(of_part),
        |(part, begin, bytes, ends, validity)| {
            if !bytes.is_empty() {
                part.copy_to(bytes);
            }
            let mut end = begin;
            for (nth, span) in part.spans.iter().enumerate() {
                if let Some(value) = span.bytes() {
                    end += value.len();
                    validity[nth / 8] |= 1 << (nth % 8);
                }
                ends[nth] = O::try_from(end).expect("the width is chosen for all of them");
            }
        },
    );
}
