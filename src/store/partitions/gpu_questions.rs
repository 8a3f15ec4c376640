//! What a GPU is asked of a column, and what it is told of keys that are known already.

use std::ops::Range;

use parking_lot::Mutex;

use super::Partitions;
use super::column_reads::KnownOf;
use crate::gpu::locator::{ABSENT, ASKED, NO_VALUE, Questions, VALUE_MAX};
use crate::store::columns::{ColumnBuilder, Columns, split_off};
use crate::width::u32_of;

/// Keys that a thread asks for at least.
const ASKED_MIN: usize = 4096;

/// What is asked for.
pub struct Asked<'k, 'v> {
    pub(super) keys: &'k Columns,
    /// What is known of them already.
    pub(super) known: Option<&'k KnownOf<'k, 'v>>,
    /// The values that are known, by positions, which the GPU leaves room for.
    given: Mutex<Vec<(usize, &'v [u8])>>,
}

impl<'k, 'v> Asked<'k, 'v> {
    /// The keys of a column, some of which may be `known`.
    pub fn new(keys: &'k Columns, known: Option<&'k KnownOf<'k, 'v>>) -> Self {
        Self {
            keys,
            known,
            given: Mutex::default(),
        }
    }

    /// Puts the values that are known where the GPU has left room for them.
    pub fn complete(self, builder: &mut ColumnBuilder) {
        for (position, value) in self.given.into_inner() {
            builder.overwrite(position, value);
        }
    }
}

/// What a thread asks.
pub(super) struct QuestionsPart<'q> {
    positions: Range<usize>,
    questions: Questions<'q>,
    /// Bytes of the keys before.
    before: usize,
}

/// The shares of threads in the questions of the keys at some positions.
pub(super) fn parts_of<'q>(
    questions: Questions<'q>,
    keys: &Columns,
    positions: &Range<usize>,
) -> Vec<QuestionsPart<'q>> {
    let Questions {
        mut ends,
        keys: mut bytes,
        mut given,
        mut partitions,
    } = questions;
    let (has_given, has_partitions) = (!given.is_empty(), !partitions.is_empty());
    let mut before = 0;
    let firsts = positions.clone().step_by(ASKED_MIN);
    let part = |first| {
        let positions = first..positions.end.min(first + ASKED_MIN);
        let len = keys.bytes_of(&positions).len();
        let if_any = |is_any: bool| if is_any { positions.len() } else { 0 };
        let part = QuestionsPart {
            questions: Questions {
                ends: split_off(&mut ends, positions.len()),
                keys: split_off(&mut bytes, len),
                given: split_off(&mut given, if_any(has_given)),
                partitions: split_off(&mut partitions, if_any(has_partitions)),
            },
            positions,
            before,
        };
        before += len;
        part
    };
    firsts.map(part).collect()
}

impl QuestionsPart<'_> {
    /// Asks for what is not known; gives how many are.
    pub(super) fn fill(self, partitions: &Partitions, asked: &Asked) -> usize {
        let Questions {
            ends,
            keys: bytes,
            given,
            partitions: numbers,
        } = self.questions;
        let keys = asked.keys;
        let known = asked.known.map(|known| known(&self.positions));
        let known = known.unwrap_or_default();
        given.fill(ASKED);
        let mut values = Vec::new();
        for &(position, known) in &known {
            given[position - self.positions.start] = match known {
                None => ABSENT,
                Some(value) if value.len() as u64 <= VALUE_MAX => {
                    values.push((position, value));
                    u32_of(value.len() as u64)
                }
                Some(_) => NO_VALUE,
            };
        }
        if !values.is_empty() {
            asked.given.lock().append(&mut values);
        }
        let mut end = self.before;
        for (nth, key_end) in self.positions.clone().zip(ends) {
            end += keys.at(nth).len();
            *key_end = u32_of(end as u64);
        }
        bytes.copy_from_slice(keys.bytes_of(&self.positions));
        let all = partitions.all();
        for (nth, number) in self.positions.zip(numbers) {
            *number = all[partitions.number_of(keys.at(nth))].state.number();
        }
        known.len()
    }
}
