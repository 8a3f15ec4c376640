//! Values that threads read for parts of a batch become one column.

use std::ops::Range;

use gphash_pool::parallel;

use super::builder::split_off;
use super::bytes::Bytes;
use super::{BinaryColumn, Offsets, to_usize};

/// Values that one thread reads at a time: a multiple of 8, so that no two share a byte of the validity.
pub const PART_VALUES: usize = 512;

const _: () = assert!(PART_VALUES.is_multiple_of(8));

/// The values of consecutive positions, one behind the other as they were found.
#[derive(Debug, Default)]
pub struct ValuesPart {
    spans: Vec<Span>,
    /// Or runs of a block that is not its own: then it has nothing else.
    lent: Vec<LentRun>,
    bytes: Vec<u8>,
    /// How many more bytes of values are in a block that is not its own.
    lent_len: usize,
}

/// Values that lie one behind the other in a block that is lent: their ends are those from `first` on.
#[derive(Debug, Clone, Copy)]
struct LentRun {
    first: usize,
    len: usize,
    start: usize,
    bytes: usize,
}

/// A block of values that parts do not own, and where they end.
#[derive(Clone, Copy, Default)]
pub struct Lent<'l> {
    /// Values.
    pub values: &'l [u8],
    /// Where they end, in runs of them without gaps, with [`NULL_END`] for positions that have none.
    pub ends: &'l [u32],
}

/// Beside where a value ends that is lent: there is none.
pub const NULL_END: u32 = 1 << 30;

/// Where a value is in the bytes of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    start: usize,
    len: u32,
    /// In the block that is not the part's own.
    is_lent: bool,
}

/// There is no value. The length of one has 31 bits.
const NULL: Span = Span {
    start: 0,
    len: u32::MAX,
    is_lent: false,
};

impl Span {
    fn bytes(self) -> Option<Range<usize>> {
        (self.len != NULL.len).then(|| self.start..self.start + self.len as usize)
    }
}

#[expect(
    clippy::len_without_is_empty,
    reason = "nobody makes a part without positions"
)]
impl ValuesPart {
    /// So many positions without values.
    pub fn nulls(len: usize) -> Self {
        Self {
            spans: vec![NULL; len],
            ..Self::default()
        }
    }

    /// The same in place of what is there.
    pub fn clear(&mut self, len: usize) {
        self.spans.clear();
        self.spans.resize(len, NULL);
        self.lent.clear();
        self.bytes.clear();
        self.lent_len = 0;
    }

    /// How many positions it has.
    pub fn len(&self) -> usize {
        let lent: usize = self.lent.iter().map(|run| run.len).sum();
        self.spans.len() + lent
    }

    /// How many bytes its values have.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len() + self.lent_len
    }

    /// Gives a position the value that it does not have yet.
    pub fn set(&mut self, nth: usize, value: &[u8]) {
        self.spans[nth] = Span {
            start: self.bytes.len(),
            len: u32::try_from(value.len()).expect("values have at most 1 GiB"),
            is_lent: false,
        };
        self.bytes.extend_from_slice(value);
    }

    /// Gives a position the value that it does not have yet, which is there in a block that is lent until the values are
    /// copied.
    pub fn set_lent(&mut self, nth: usize, value: Range<usize>) {
        self.spans[nth] = Span {
            start: value.start,
            len: u32::try_from(value.len()).expect("values have at most 1 GiB"),
            is_lent: true,
        };
        self.lent_len += value.len();
    }

    /// Gives positions other values in place of those that they have, if they have some; `None` for none. The part has no
    /// [runs](Self::extend_lent).
    pub fn replace(&mut self, values: &[(usize, Option<Vec<u8>>)]) {
        let mut left_bytes = self.bytes.len();
        for (nth, _) in values {
            let span = std::mem::replace(&mut self.spans[*nth], NULL);
            match (span.bytes(), span.is_lent) {
                (Some(value), true) => self.lent_len -= value.len(),
                (Some(value), false) => left_bytes -= value.len(),
                (None, _) => {}
            }
        }
        if left_bytes < self.bytes.len() {
            let bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(left_bytes));
            for span in self.spans.iter_mut().filter(|span| !span.is_lent) {
                if let Some(value) = span.bytes() {
                    span.start = self.bytes.len();
                    self.bytes.extend_from_slice(&bytes[value]);
                }
            }
        }
        let new = values.iter();
        let new = new.filter_map(|(nth, value)| Some((*nth, value.as_ref()?)));
        new.for_each(|(nth, value)| self.set(nth, value));
    }

    /// Gives `len` more positions their values: `bytes` of the block that is lent, from `start` on. Their ends are those
    /// that are lent from `first` on. The part has no positions of another kind, and before this call a multiple of 8.
    pub fn extend_lent(&mut self, (first, len): (usize, usize), (start, bytes): (usize, usize)) {
        self.lent.push(LentRun {
            first,
            len,
            start,
            bytes,
        });
        self.lent_len += bytes;
    }

    /// Takes the bytes, if the values are in the order of their positions.
    fn take_sorted(&mut self) -> Option<Vec<u8>> {
        let values = self.spans.iter().filter_map(|span| span.bytes());
        let is_sorted = values.is_sorted_by_key(|value| value.start);
        (is_sorted && self.lent_len == 0).then(|| std::mem::take(&mut self.bytes))
    }
}

/// The values of parts as one column. If there are several, all but the last one have [`PART_VALUES`].
pub fn concat(mut parts: Vec<ValuesPart>) -> BinaryColumn {
    let total = parts.iter().map(|part| part.bytes.len()).sum();
    let taken = match &mut parts[..] {
        [part] => part.take_sorted(),
        _ => None,
    };
    let bytes = taken.unwrap_or_else(|| vec![0; total]);
    // What was taken is in no part any more, so nothing is copied over it.
    let runs = parts.iter().map(|part| Run::of(part, Lent::default()));
    column(&runs.collect::<Vec<_>>(), bytes, total)
}

/// Values of consecutive positions, and where they are.
pub struct Run<'p> {
    spans: &'p [Span],
    /// In place of spans.
    runs: &'p [LentRun],
    bytes: &'p [u8],
    lent: Lent<'p>,
    /// Bytes that are to be copied.
    len: usize,
}

impl<'p> Run<'p> {
    /// The values of a part, with the block that was lent to it.
    pub fn of(part: &'p ValuesPart, lent: Lent<'p>) -> Self {
        Self {
            spans: &part.spans,
            runs: &part.lent,
            len: part.bytes_len(),
            bytes: &part.bytes,
            lent,
        }
    }

    /// Copies the values to `bytes`, which are at `begin` of a column, unless they are there already and `bytes` is
    /// empty. Says where they end, and which ones there are.
    pub fn fill<O: End>(
        &self,
        begin: usize,
        mut bytes: &mut [u8],
        mut ends: &mut [O],
        mut validity: &mut [u8],
    ) {
        let mut end = begin;
        for run in self.runs {
            let values = &self.lent.values[run.start..][..run.bytes];
            split_off(&mut bytes, run.bytes).copy_from_slice(values);
            let lent_ends = &self.lent.ends[run.first..][..run.len];
            let from = end.wrapping_sub(run.start);
            O::put_ends(split_off(&mut ends, run.len), from, lent_ends);
            set_valid(split_off(&mut validity, run.len.div_ceil(8)), lent_ends);
            end += run.bytes;
        }
        if !self.runs.is_empty() {
            return;
        }
        if !bytes.is_empty() {
            self.copy_to(bytes);
        }
        validity.fill(0);
        for (nth, span) in self.spans.iter().enumerate() {
            if let Some(value) = span.bytes() {
                end += value.len();
                validity[nth / 8] |= 1 << (nth % 8);
            }
            ends[nth] = O::of(end);
        }
    }

    /// Copies the values in the order of their positions to `bytes`, which have just the room for them.
    fn copy_to(&self, mut bytes: &mut [u8]) {
        let mut copy = |is_lent: bool, values: Range<usize>| {
            let target = bytes.split_off_mut(..values.len());
            let target = target.expect("as long as all of them");
            let source = match is_lent {
                true => self.lent.values,
                false => self.bytes,
            };
            target.copy_from_slice(&source[values]);
        };
        // Mostly many of them lie in order, and are copied at once.
        let (mut is_lent, mut values) = (false, 0..0);
        for span in self.spans {
            let Some(value) = span.bytes() else { continue };
            if (span.is_lent, value.start) == (is_lent, values.end) {
                values.end = value.end;
            } else {
                copy(is_lent, std::mem::replace(&mut values, value));
                is_lent = span.is_lent;
            }
        }
        copy(is_lent, values);
    }
}

/// Where a value ends in a column, in one of two widths, which is chosen for all of them.
pub trait End: Copy {
    fn of(end: usize) -> Self;

    /// Puts ends that are counted `from` somewhere, which may be before the column, and that may have [`NULL_END`].
    fn put_ends(to: &mut [Self], from: usize, ends: &[u32]);
}

impl End for i32 {
    fn of(end: usize) -> Self {
        Self::try_from(end).expect("the width is chosen for all of them")
    }

    fn put_ends(to: &mut [Self], from: usize, ends: &[u32]) {
        // A check of each would keep the compiler from adding several at a time.
        let from = u32::try_from(from & to_usize(u32::MAX.into())).expect("half of the bits");
        for (to, end) in to.iter_mut().zip(ends) {
            *to = from.wrapping_add(*end & !NULL_END).cast_signed();
        }
    }
}

impl End for i64 {
    fn of(end: usize) -> Self {
        Self::try_from(end).expect("no buffer is so long")
    }

    fn put_ends(to: &mut [Self], from: usize, ends: &[u32]) {
        let from = from as u64;
        for (to, end) in to.iter_mut().zip(ends) {
            *to = from.wrapping_add(u64::from(*end & !NULL_END)).cast_signed();
        }
    }
}

/// Notes which positions have values, by where these end.
pub fn set_valid(validity: &mut [u8], ends: &[u32]) {
    for (byte, ends) in validity.iter_mut().zip(ends.chunks(8)) {
        let bit = |(nth, end): (usize, &u32)| u8::from(end & NULL_END == 0) << nth;
        *byte = ends
            .iter()
            .enumerate()
            .map(bit)
            .fold(0, |all, bit| all | bit);
    }
}

/// A column of `runs`, whose values have `total` bytes, in the buffer `bytes`. If there are several, all but the last one
/// have as many positions, a multiple of [`PART_VALUES`].
fn column(runs: &[Run], bytes: Vec<u8>, total: usize) -> BinaryColumn {
    let len = runs.iter().map(|run| run.spans.len()).sum();
    let mut validity = vec![0; usize::div_ceil(len, 8)];
    let mut bytes = Bytes::from(bytes);
    let offsets = match i32::try_from(total) {
        Ok(_) => {
            let mut offsets = vec![0i32; len + 1];
            fill(runs, bytes.as_mut(), &mut offsets[1..], &mut validity);
            Offsets::I32(offsets)
        }
        Err(_) => {
            let mut offsets = vec![0i64; len + 1];
            fill(runs, bytes.as_mut(), &mut offsets[1..], &mut validity);
            Offsets::I64(offsets)
        }
    };
    BinaryColumn {
        offsets,
        bytes,
        validity,
    }
}

/// Fills the buffers of a column with the values of runs, on several threads if they are many.
fn fill<O: End + Send>(runs: &[Run], mut bytes: &mut [u8], ends: &mut [O], validity: &mut [u8]) {
    let mut base = 0;
    // A single one may be longer.
    let of_each = runs
        .first()
        .map_or(0, |run| run.spans.len())
        .max(PART_VALUES);
    let ends = ends.chunks_mut(of_each);
    let validity = validity.chunks_mut(of_each.div_ceil(8));
    let slices = runs.iter().zip(ends.zip(validity));
    let of_run = |(run, (ends, validity))| {
        let run: &Run = run;
        let target = bytes.split_off_mut(..run.len);
        let begin = base;
        base += run.len;
        (run, begin, target.expect("as long as all"), ends, validity)
    };
    parallel::map_if_shared(slices.map(of_run), |(run, begin, bytes, ends, validity)| {
        run.fill(begin, bytes, ends, validity);
    });
}
