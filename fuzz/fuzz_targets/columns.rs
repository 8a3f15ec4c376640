//! Arbitrary columns of keys and values against a `BTreeMap`: what is accepted is executed as if one request came
//! after the other, and what is refused changes nothing.

#![no_main]

mod folder;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use arbitrary::Arbitrary;
use gphash::store::{
    Columns, Durability, MergeOperator, Offsets, RequestKind, Store, StoreOptions, ValueColumns,
};
use gphash::{Error, Result};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const LONGEST_KEY: usize = 64 << 10;
const LONGEST_VALUE: usize = 1 << 30;

/// Bytes of a column.
const ROOM: usize = 1 << 20;

#[derive(Arbitrary, Debug)]
enum Text {
    /// One of few, so that keys come again.
    Short(u8),
    /// Its position in the column, so that there are many.
    Position,
    Bytes(Vec<u8>),
    /// About as long as the longest key.
    Long(u8),
    /// Longer than the longest value.
    TooLong,
}

impl Text {
    fn len(&self) -> usize {
        match self {
            Self::Short(_) => 1,
            Self::Position => 8,
            Self::Bytes(bytes) => bytes.len(),
            Self::Long(more) => LONGEST_KEY - 1 + usize::from(more % 3),
            Self::TooLong => LONGEST_VALUE + 1,
        }
    }

    /// Writes it over zeros, at this position of the column.
    fn put(&self, nth: usize, bytes: &mut [u8]) {
        match self {
            Self::Short(number) => bytes[0] = number % 16,
            Self::Position => bytes.copy_from_slice(&(nth as u64).to_le_bytes()),
            Self::Bytes(own) => bytes.copy_from_slice(own),
            Self::Long(number) => bytes[0] = *number,
            // It takes no memory as long as nobody touches it.
            Self::TooLong => {}
        }
    }
}

/// What is done to the offsets or the bytes of a column.
#[derive(Arbitrary, Debug)]
enum Spoiled {
    Offset { nth: u16, value: i64 },
    Moved { nth: u16, by: i8 },
    Offsets(Vec<i64>),
    FewerOffsets(u8),
    FewerBytes(u8),
}

#[derive(Arbitrary, Debug)]
struct Column {
    strings: Vec<Text>,
    /// The strings over and over again, so many that threads share them.
    run: Option<u16>,
    wide: bool,
    /// Bytes before the first offset and behind the last one.
    around: (u8, u8),
    spoiled: Option<Spoiled>,
}

/// A column that was accepted, and where its strings are.
struct Accepted {
    columns: Columns,
    spans: Vec<Range<usize>>,
}

/// The strings between offsets, if they are such.
fn spans(offsets: &[i64], bytes: usize) -> Option<Vec<Range<usize>>> {
    let offset = |&offset: &i64| usize::try_from(offset).ok().filter(|&at| at <= bytes);
    let offsets: Vec<usize> = offsets.iter().map(offset).collect::<Option<_>>()?;
    let is_sound = !offsets.is_empty() && offsets.is_sorted();
    is_sound.then(|| offsets.windows(2).map(|pair| pair[0]..pair[1]).collect())
}

impl Column {
    /// Offsets and bytes, of `len` strings if that is given.
    fn buffers(&self, len: Option<usize>) -> (Vec<i64>, Vec<u8>) {
        let len = len.unwrap_or(match self.run {
            Some(run) => usize::from(run) % 9000,
            None => self.strings.len(),
        });
        let mut room = ROOM;
        // One of them is enough, and none if offsets that move may make it short.
        let mut may_be_too_long = self.spoiled.is_none();
        let empty = Text::Bytes(Vec::new());
        let mut fits = |text: &Text| match text {
            Text::TooLong => std::mem::take(&mut may_be_too_long),
            text => {
                let left = room.checked_sub(text.len());
                room = left.unwrap_or(room);
                left.is_some()
            }
        };
        let texts: Vec<&Text> = match self.strings.is_empty() {
            true => vec![&empty; len],
            false => {
                let texts = self.strings.iter().cycle().take(len);
                texts
                    .map(|text| if fits(text) { text } else { &empty })
                    .collect()
            }
        };
        let (before, behind) = (usize::from(self.around.0), usize::from(self.around.1));
        let mut end = before;
        let mut ends = vec![end];
        for text in &texts {
            end += text.len();
            ends.push(end);
        }
        let mut bytes = vec![0; end + behind];
        for (nth, (text, pair)) in texts.iter().zip(ends.windows(2)).enumerate() {
            text.put(nth, &mut bytes[pair[0]..pair[1]]);
        }
        let mut offsets: Vec<i64> = ends
            .iter()
            .map(|&end| i64::try_from(end).unwrap())
            .collect();
        match &self.spoiled {
            None => {}
            Some(Spoiled::Offset { nth, value }) => {
                let nth = usize::from(*nth) % offsets.len();
                offsets[nth] = *value;
            }
            Some(Spoiled::Moved { nth, by }) => {
                let nth = usize::from(*nth) % offsets.len();
                offsets[nth] += i64::from(*by);
            }
            Some(Spoiled::Offsets(others)) => offsets.clone_from(others),
            Some(Spoiled::FewerOffsets(fewer)) => {
                offsets.truncate(offsets.len().saturating_sub(usize::from(*fewer)));
            }
            Some(Spoiled::FewerBytes(fewer)) => {
                bytes.truncate(bytes.len().saturating_sub(usize::from(*fewer)));
            }
        }
        (offsets, bytes)
    }

    /// The column, unless it is refused, as it must be then.
    fn accepted(&self, len: Option<usize>) -> Option<Accepted> {
        let (mut offsets, bytes) = self.buffers(len);
        let narrow = |&offset: &i64| {
            i32::try_from(offset).unwrap_or(if offset < 0 { i32::MIN } else { i32::MAX })
        };
        let taken: Offsets = match self.wide {
            true => offsets.clone().into(),
            false => {
                let narrow: Vec<i32> = offsets.iter().map(narrow).collect();
                offsets = narrow.iter().copied().map(i64::from).collect();
                narrow.into()
            }
        };
        let spans = spans(&offsets, bytes.len());
        let (columns, spans) = match (Columns::new(taken, bytes), spans) {
            (Ok(columns), Some(spans)) => (columns, spans),
            (Err(Error::InvalidColumns { .. }), None) => return None,
            (made, spans) => panic!("{made:?}, {spans:?}"),
        };
        assert_eq!(columns.len(), spans.len());
        let accepted = Accepted { columns, spans };
        for nth in 0..accepted.spans.len() {
            let found = accepted.columns.get(nth).unwrap();
            assert_eq!(found.as_ptr_range(), accepted.get(nth).as_ptr_range());
        }
        assert_eq!(accepted.columns.get(accepted.spans.len()), None);
        Some(accepted)
    }
}

impl Accepted {
    fn len(&self) -> usize {
        self.spans.len()
    }

    fn get(&self, nth: usize) -> &[u8] {
        &self.columns.bytes()[self.spans[nth].clone()]
    }

    /// Takes the buffers back, which no verb has copied or kept.
    fn take_back(self) {
        let bytes = self.columns.bytes().as_ptr();
        assert_eq!(self.columns.into_parts().1.as_ptr(), bytes);
    }
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Get(Column),
    Put(Pairs),
    Delete(Column),
    Execute(Vec<u8>, Pairs),
    /// The values of some keys become those of others.
    Copy(Column, Column),
    Checkpoint,
}

/// Keys and values.
#[derive(Arbitrary, Debug)]
struct Pairs {
    keys: Column,
    values: Column,
    /// There are as many values as keys, and as many kinds.
    fits: bool,
}

#[derive(Arbitrary, Debug)]
struct Input {
    is_partitioned: bool,
    can_merge: bool,
    operations: Vec<Operation>,
}

/// Appends the operand, and keeps what is last. Fails for some operands.
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        merged(value, operand).ok_or_else(|| "an operand that begins with 255".into())
    }
}

fn merged(value: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
    let bytes = [value.unwrap_or_default(), operand].concat();
    let from = bytes.len().saturating_sub(64);
    (operand.first() != Some(&255)).then(|| bytes[from..].to_vec())
}

/// A store, which serves one input after the other, and what it must hold.
struct Subject<'s> {
    store: &'s Store,
    can_merge: bool,
    model: Model,
}

impl Subject<'_> {
    fn check_contents(&self) {
        let held: Model = self.store.range(..).map(Result::unwrap).collect();
        assert!(held == self.model);
    }

    /// Whether all of these requests are possible; if not, the store must have refused them.
    fn can_execute<T>(
        &self,
        kinds: &[RequestKind],
        (keys, values): (&Accepted, Option<&Accepted>),
        answer: &Result<T>,
    ) -> bool {
        let refused = |is_right: fn(&Error) -> bool| {
            assert!(answer.as_ref().is_err_and(is_right));
            self.check_contents();
            false
        };
        if values.is_some_and(|values| values.len() != keys.len()) {
            return refused(|error| matches!(error, Error::LengthMismatch { .. }));
        }
        if kinds.len() != keys.len() {
            return refused(|error| matches!(error, Error::InvalidColumns { .. }));
        }
        let takes_value = |kind| matches!(kind, RequestKind::Put | RequestKind::Merge);
        let is_too_long = |(nth, &kind): (usize, &RequestKind)| {
            let value_len = values.map_or(0, |values| values.spans[nth].len());
            keys.spans[nth].len() > LONGEST_KEY || takes_value(kind) && value_len > LONGEST_VALUE
        };
        if kinds.iter().enumerate().any(is_too_long) {
            return refused(|error| matches!(error, Error::TooLong { .. }));
        }
        if kinds.contains(&RequestKind::Merge) && !self.can_merge {
            return refused(|error| matches!(error, Error::InvalidOption { .. }));
        }
        true
    }

    /// What gets are answered, and which merges fail.
    fn execute(
        &mut self,
        kinds: &[RequestKind],
        keys: &Accepted,
        values: Option<&Accepted>,
    ) -> (Vec<Option<Vec<u8>>>, Vec<usize>) {
        let (mut found, mut failed) = (vec![None; keys.len()], Vec::new());
        for (nth, kind) in kinds.iter().enumerate() {
            let key = keys.get(nth);
            let value = || values.map_or(&[][..], |values| values.get(nth));
            match kind {
                RequestKind::Get => found[nth] = self.model.get(key).cloned(),
                RequestKind::Put => drop(self.model.insert(key.to_vec(), value().to_vec())),
                RequestKind::Delete => drop(self.model.remove(key)),
                RequestKind::Merge => {
                    let before = self.model.get(key).map(Vec::as_slice);
                    match merged(before, value()) {
                        Some(merged) => drop(self.model.insert(key.to_vec(), merged)),
                        None => failed.push(nth),
                    }
                }
                _ => unreachable!("none of the kinds there are"),
            }
        }
        (found, failed)
    }

    fn get(&mut self, keys: &Accepted) -> Option<ValueColumns> {
        let kinds = vec![RequestKind::Get; keys.len()];
        let answer = self.store.get_columns(&keys.columns);
        if !self.can_execute(&kinds, (keys, None), &answer) {
            return None;
        }
        let values = answer.unwrap();
        let (found, _) = self.execute(&kinds, keys, None);
        check_values(&values, &found);
        Some(values)
    }

    fn put(&mut self, keys: &Accepted, values: &Accepted) {
        let kinds = vec![RequestKind::Put; keys.len()];
        let answer = self.store.put_columns(&keys.columns, &values.columns);
        if self.can_execute(&kinds, (keys, Some(values)), &answer) {
            answer.unwrap();
            self.execute(&kinds, keys, Some(values));
        }
    }

    fn delete(&mut self, keys: &Accepted) {
        let kinds = vec![RequestKind::Delete; keys.len()];
        let answer = self.store.delete_columns(&keys.columns);
        if self.can_execute(&kinds, (keys, None), &answer) {
            answer.unwrap();
            self.execute(&kinds, keys, None);
        }
    }

    fn execute_mixed(&mut self, kinds: &[RequestKind], keys: &Accepted, values: &Accepted) {
        let store = self.store;
        let answer = store.execute_columns(kinds, &keys.columns, &values.columns);
        if !self.can_execute(kinds, (keys, Some(values)), &answer) {
            return;
        }
        let answers = answer.unwrap();
        let (found, failed) = self.execute(kinds, keys, Some(values));
        check_values(&answers.values, &found);
        let is_merge = |error: &Error| matches!(error, Error::Merge { .. });
        assert!(answers.failures.iter().all(|(_, error)| is_merge(error)));
        assert!(answers.failures.iter().map(|(nth, _)| *nth).eq(failed));
    }

    fn run(&mut self, operation: &Operation) -> Option<()> {
        match operation {
            Operation::Get(keys) => {
                let keys = keys.accepted(None)?;
                self.get(&keys);
                keys.take_back();
            }
            Operation::Put(pairs) => {
                let (keys, values) = pairs.accepted()?;
                self.put(&keys, &values);
                keys.take_back();
                values.take_back();
            }
            Operation::Delete(keys) => {
                let keys = keys.accepted(None)?;
                self.delete(&keys);
                keys.take_back();
            }
            Operation::Execute(kinds, pairs) => {
                let (keys, values) = pairs.accepted()?;
                let len = match pairs.fits && !kinds.is_empty() {
                    true => keys.len(),
                    false => kinds.len(),
                };
                let kinds = kinds.iter().cycle().take(len).map(|&byte| kind(byte));
                let kinds: Vec<RequestKind> = kinds.collect();
                self.execute_mixed(&kinds, &keys, &values);
                keys.take_back();
                values.take_back();
            }
            Operation::Copy(from, to) => {
                let values = self.get(&from.accepted(None)?)?;
                let spans = (0..values.len()).map(|nth| {
                    let bytes = values.values().bytes().as_ptr().addr();
                    let value = values.values().get(nth).unwrap();
                    let start = value.as_ptr().addr() - bytes;
                    start..start + value.len()
                });
                let values = Accepted {
                    spans: spans.collect(),
                    columns: values.values().clone(),
                };
                self.put(&to.accepted(Some(values.len()))?, &values);
            }
            Operation::Checkpoint => self.store.checkpoint().unwrap(),
        }
        Some(())
    }

    /// Leaves nothing to the next input.
    fn clear(&mut self) {
        let keys: Columns = self.model.keys().collect();
        self.store.delete_columns(&keys).unwrap();
        self.model.clear();
        self.check_contents();
    }
}

impl Pairs {
    fn accepted(&self) -> Option<(Accepted, Accepted)> {
        let keys = self.keys.accepted(None)?;
        let values = self.values.accepted(self.fits.then_some(keys.len()))?;
        Some((keys, values))
    }
}

fn kind(byte: u8) -> RequestKind {
    assert_eq!(RequestKind::try_from(byte).is_ok(), byte < 4);
    RequestKind::try_from(byte % 4).unwrap()
}

/// Checks values, and their buffers against what Arrow wants.
fn check_values(values: &ValueColumns, expected: &[Option<Vec<u8>>]) {
    assert!(values.iter().eq(expected.iter().map(Option::as_deref)));
    let nulls = expected.iter().filter(|value| value.is_none()).count();
    assert_eq!((values.len(), values.null_count()), (expected.len(), nulls));
    let (offsets, bytes, validity) = values.clone().into_parts();
    let Offsets::I32(offsets) = offsets else {
        panic!("so few bytes have offsets of 32 bits");
    };
    let mut ends = vec![0];
    for value in expected {
        let len = i32::try_from(value.as_ref().map_or(0, Vec::len)).unwrap();
        ends.push(ends[ends.len() - 1] + len);
    }
    assert_eq!(offsets, ends);
    assert_eq!(i32::try_from(bytes.len()).unwrap(), ends[ends.len() - 1]);
    let mut bits = vec![0; expected.len().div_ceil(8)];
    for (nth, value) in expected.iter().enumerate() {
        bits[nth / 8] |= u8::from(value.is_some()) << (nth % 8);
    }
    assert_eq!(validity, bits);
}

/// A store that ends with the process, and its folder, which that removes.
type Lasting = (ManuallyDrop<Store>, TempDir);

fn open(partitions: u32, can_merge: bool) -> Lasting {
    let folder = folder::new();
    let mut options = StoreOptions::new()
        .capacity(4)
        .partitions(partitions)
        .durability(Durability::None)
        .segment_bytes(64 << 10)
        .checkpoint_bytes(4 << 20)
        .threads(2);
    if can_merge {
        options = options.merge_operator(Arc::new(Append));
    }
    let store = Store::open(folder.path().join("store"), &options).unwrap();
    (ManuallyDrop::new(store), folder)
}

thread_local! {
    /// Those of one partition, and those of three: without an operator and with one.
    static STORES: [[OnceCell<Lasting>; 2]; 2] = const {
        [const { [const { OnceCell::new() }; 2] }; 2]
    };
}

fuzz_target!(|input: Input| {
    let (is_partitioned, can_merge) = (input.is_partitioned, input.can_merge);
    STORES.with(|stores| {
        let cell = &stores[usize::from(is_partitioned)][usize::from(can_merge)];
        let partitions = if is_partitioned { 3 } else { 1 };
        let (store, _) = cell.get_or_init(|| open(partitions, can_merge));
        let mut subject = Subject {
            store,
            can_merge,
            model: Model::new(),
        };
        for operation in input.operations.iter().take(16) {
            subject.run(operation);
        }
        subject.check_contents();
        subject.clear();
    });
});
