//! Columns without a store.

use super::requests::{ColumnBatch, RequestKind};
use super::*;
use crate::binary_column::NULL_END;
use crate::binary_column::{Lent, PartCopy, concat};

/// What is said of offsets that are refused.
fn refused(offsets: impl Into<Offsets>, bytes: &[u8]) -> String {
    let error = Columns::new(offsets, bytes).unwrap_err();
    assert!(matches!(error, Error::InvalidColumns { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn columns_refuse_offsets_that_go_backwards_or_outside() {
    let abc = b"abc";
    for (offsets, said) in [
        (vec![], "offset 0 is none; expected one more than strings"),
        (vec![-1, 2], "offset 0 is -1; expected at least 0"),
        (
            vec![0, 2, 1, 3],
            "offset 2 is 1; expected at least 2, the one before",
        ),
        (
            vec![0, -2],
            "offset 1 is -2; expected at least 0, the one before",
        ),
        (vec![0, 4], "offset 1 is 4; expected at most 3, the bytes"),
        (vec![4], "offset 0 is 4; expected at most 3, the bytes"),
        (
            vec![0, i32::MAX, 3],
            "offset 2 is 3; expected at least 2147483647, the one before",
        ),
    ] {
        let said = format!("invalid columns: {said}");
        let wide: Vec<i64> = offsets.iter().copied().map(i64::from).collect();
        assert_eq!(refused(offsets, abc), said);
        assert_eq!(refused(wide, abc), said);
    }
    for last in [1 << 32, i64::MAX, (1 << 32) + 3] {
        let said = format!("invalid columns: offset 1 is {last}; expected at most 3, the bytes");
        assert_eq!(refused(vec![0, last], abc), said);
    }
    refused(vec![i64::MIN, 0], abc);
}

#[test]
fn columns_are_slices_of_their_bytes() {
    let narrow = Columns::new(vec![1i32, 1, 3, 6], *b"-abcde--").unwrap();
    let wide = Columns::new(vec![1i64, 1, 3, 6], *b"-abcde--").unwrap();
    for columns in [&narrow, &wide] {
        assert!(columns.iter().eq([&b""[..], b"ab", b"cde"]));
        assert_eq!((columns.get(2), columns.get(3)), (Some(&b"cde"[..]), None));
        assert_eq!(*columns, ["", "ab", "cde"].into_iter().collect());
        assert_ne!(*columns, ["", "a", "bcde"].into_iter().collect());
    }
    assert!(Columns::new(vec![3i32], *b"abc").unwrap().is_empty());
    assert_eq!(Columns::default(), std::iter::empty::<&str>().collect());
}

#[test]
fn columns_give_their_buffers_back() {
    let bytes = b"abc".to_vec();
    let addr = bytes.as_ptr();
    let columns = Columns::new(vec![0i32, 3], bytes).unwrap();
    let shared = columns.clone();
    // The one that is left has them.
    assert_ne!(columns.into_parts().1.as_ptr(), addr);
    let (offsets, bytes) = shared.into_parts();
    assert_eq!((offsets, bytes.as_ptr()), (Offsets::I32(vec![0, 3]), addr));
}

#[test]
fn batches_refuse_columns_of_other_lengths() {
    let two: Columns = ["a", "b"].into_iter().collect();
    let three: Columns = ["a", "b", "c"].into_iter().collect();
    let other = |error| matches!(error, Error::LengthMismatch { keys: 2, values: 3 });
    assert!(other(ColumnBatch::puts(&two, &three).unwrap_err()));
    let kinds = [RequestKind::Put; 2];
    assert!(other(
        ColumnBatch::mixed(&kinds, &two, &three, ValueColumns::default()).unwrap_err()
    ));
    let error = ColumnBatch::mixed(&kinds, &three, &three, ValueColumns::default()).unwrap_err();
    let said = "invalid columns: the number of kinds is 2; expected 3, one for each key";
    assert_eq!(error.to_string(), said);
}

#[test]
fn kinds_are_the_bytes_that_are_documented() {
    for byte in 0..4 {
        assert_eq!(RequestKind::try_from(byte).unwrap() as u8, byte);
    }
    let error = RequestKind::try_from(9).unwrap_err();
    assert!(error.to_string().contains("the kind of a request is 9"));
}

#[test]
fn parts_are_joined_in_the_order_of_positions() {
    let joined = |parts| ValueColumns::from(concat(parts));
    // Found out of order, as what is below the table is; with nulls and empty values.
    let mut first = ValuesPart::nulls(PART_VALUES);
    for nth in (0..PART_VALUES).rev().filter(|nth| nth % 3 != 0) {
        first.set(nth, &b"abcd"[..nth % 5]);
    }
    let mut last = ValuesPart::nulls(11);
    last.set(2, b"two");
    last.set(10, b"ten");
    last.set(5, b"five");
    let expected = |nth: usize| match nth.checked_sub(PART_VALUES) {
        None if nth.is_multiple_of(3) => None,
        None => Some(&b"abcd"[..nth % 5]),
        Some(2) => Some(&b"two"[..]),
        Some(5) => Some(&b"five"[..]),
        Some(10) => Some(&b"ten"[..]),
        Some(_) => None,
    };
    let values = joined(vec![first, last]);
    assert!(values.iter().eq((0..PART_VALUES + 11).map(expected)));
    let nulls = (0..PART_VALUES + 11).filter(|&nth| expected(nth).is_none());
    assert_eq!(values.null_count(), nulls.count());
    let mut alone = ValuesPart::nulls(3);
    alone.set(2, b"two");
    alone.set(0, b"zero");
    assert!(
        joined(vec![alone])
            .iter()
            .eq([Some(&b"zero"[..]), None, Some(b"two")])
    );
    // One part may be longer, and its bytes are moved if they lie in order.
    let len = 3 * PART_VALUES + 1;
    let mut long = ValuesPart::nulls(len);
    (0..len).step_by(2).for_each(|nth| long.set(nth, b"x"));
    let values = joined(vec![long]);
    assert!(
        values
            .iter()
            .enumerate()
            .all(|(nth, value)| value.is_some() == nth.is_multiple_of(2))
    );
    assert_eq!(values.values().bytes(), vec![b'x'; len.div_ceil(2)]);
    assert!(joined(Vec::new()).is_empty());
    assert!(joined(vec![ValuesPart::nulls(0)]).is_empty());
}

/// Values of some positions, a few parts at a time, in the buffers of others.
fn build(values: &[Option<Vec<u8>>], wave: usize, buffers: ValueColumns) -> ValueColumns {
    let part = |values: &[Option<Vec<u8>>]| {
        let mut part = ValuesPart::default();
        part.clear(values.len());
        let there = values.iter().enumerate().rev();
        for (nth, value) in there.filter_map(|(nth, value)| Some((nth, value.as_ref()?))) {
            part.set(nth, value);
        }
        part
    };
    let parts: Vec<ValuesPart> = values.chunks(PART_VALUES).map(part).collect();
    let mut builder = ColumnBuilder::new(values.len(), buffers.into_buffers());
    for wave in parts.chunks(wave) {
        // In any order.
        builder
            .add(wave, Lent::default())
            .into_iter()
            .rev()
            .for_each(PartCopy::run);
    }
    builder.finish().into()
}

#[test]
fn columns_are_built_in_the_buffers_of_others() {
    let values = |len: usize, longest: usize| -> Vec<Option<Vec<u8>>> {
        let value = |nth: usize| {
            let bytes = vec![(nth * 7).to_le_bytes()[0]; nth * nth % (longest + 1)];
            (nth % 5 != 3).then_some(bytes)
        };
        (0..len).map(value).collect()
    };
    let cases = [
        // More, fewer, none; longer and shorter; no multiple of 8; and values that become longer only at the end.
        values(3 * PART_VALUES + 5, 9),
        values(PART_VALUES, 40),
        values(0, 0),
        values(7, 3),
        values(5 * PART_VALUES - 1, 0),
        [values(2 * PART_VALUES, 0), values(PART_VALUES + 1, 300)].concat(),
        [values(PART_VALUES, 2), values(PART_VALUES + 1, 300)].concat(),
        values(3 * PART_VALUES + 5, 9),
    ];
    for wave in [1, 2, 100] {
        let mut buffers = ValueColumns::default();
        for expected in &cases {
            let fresh = build(expected, wave, ValueColumns::default());
            let shared = buffers.clone();
            let before = shared
                .iter()
                .map(|value| value.map(<[u8]>::to_vec))
                .collect::<Vec<_>>();
            // Buffers that somebody shares stay as they are.
            assert_eq!(build(expected, wave, buffers), fresh);
            assert!(shared.iter().eq(before.iter().map(Option::as_deref)));
            buffers = build(expected, wave, shared);
            assert_eq!(buffers, fresh);
            assert!(buffers.iter().eq(expected.iter().map(Option::as_deref)));
            let nulls = expected.iter().filter(|value| value.is_none()).count();
            assert_eq!(buffers.null_count(), nulls);
            let bytes: usize = expected.iter().flatten().map(Vec::len).sum();
            assert_eq!(buffers.values().bytes().len(), bytes);
        }
    }
}

#[test]
fn parts_are_lent_runs_of_values() {
    let len = 3 * PART_VALUES + 13;
    let value = |nth: usize| (nth % 11 != 5).then(|| vec![nth.to_le_bytes()[0]; nth % 7]);
    let mut ends = vec![0u32; len];
    // The last ones lie first.
    let mut values = b"others".to_vec();
    let mut run = |first: usize, end: usize| {
        let start = values.len();
        for (nth, value_end) in (first..end).zip(&mut ends[first..end]) {
            let value = value(nth);
            let null = if value.is_none() { NULL_END } else { 0 };
            values.extend(value.unwrap_or_default());
            *value_end = u32::try_from(values.len()).unwrap() | null;
        }
        ((first, end - first), (start, values.len() - start))
    };
    let last = run(3 * PART_VALUES, len);
    let second = run(PART_VALUES, 2 * PART_VALUES);
    let first = run(0, PART_VALUES);
    let mut parts = [
        ValuesPart::default(),
        ValuesPart::nulls(PART_VALUES),
        ValuesPart::default(),
    ];
    parts[0].extend_lent(first.0, first.1);
    parts[0].extend_lent(second.0, second.1);
    parts[1].set(3, b"own");
    parts[2].extend_lent(last.0, last.1);
    let lent = Lent {
        values: &values,
        ends: &ends,
    };
    let mut builder = ColumnBuilder::new(len, BinaryColumn::default());
    builder
        .add(&parts, lent)
        .into_iter()
        .for_each(PartCopy::run);
    let column = ValueColumns::from(builder.finish());
    let expected = (0..len).map(|nth| match nth / PART_VALUES {
        2 => (nth == 2 * PART_VALUES + 3).then(|| b"own".to_vec()),
        _ => value(nth),
    });
    let nulls = expected.clone().filter(Option::is_none).count();
    assert!(
        column
            .iter()
            .map(|value| value.map(<[u8]>::to_vec))
            .eq(expected)
    );
    assert_eq!(column.null_count(), nulls);
}

#[test]
fn buffers_are_used_again_where_they_are() {
    let of_bytes = |bytes: usize| vec![Some(vec![1; bytes]); 2 * PART_VALUES];
    let long = build(&of_bytes(100), 1, ValueColumns::default());
    let addr = long.values().bytes().as_ptr();
    let short = build(&of_bytes(99), 1, long);
    assert_eq!(short.values().bytes().as_ptr(), addr);
    // As long as before, after a shorter one.
    let long = build(&of_bytes(100), 1, short);
    assert_eq!(long.values().bytes().as_ptr(), addr);
    // Much less does not keep all of it.
    let little = build(&of_bytes(1), 1, long);
    let (_, bytes, _) = little.into_parts();
    assert!(bytes.capacity() < 100 * PART_VALUES, "{}", bytes.capacity());
}
