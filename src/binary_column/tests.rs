use std::sync::Arc;

use super::gather::End;
use super::*;

#[test]
fn longest_string_is_measured_in_either_width() {
    let lens = [3usize, 0, 40_000, 7, 39_999, 1];
    for strings in 0..=lens.len() {
        let (mut narrow, mut wide) = (Offsets::I32(vec![9]), Offsets::I64(vec![9]));
        let mut end = 9;
        for len in &lens[..strings] {
            end += len;
            narrow.push(end);
            wide.push(end);
        }
        let longest = lens[..strings].iter().copied().max().unwrap_or(0);
        assert_eq!((narrow.longest(), wide.longest()), (longest, longest));
    }
}

#[test]
fn offsets_become_wide_when_they_must() {
    let mut offsets = Offsets::I32(vec![0]);
    offsets.push(i32::MAX as usize);
    assert_eq!(offsets, vec![0, i32::MAX].into());
    let last = i64::from(i32::MAX) + 1;
    offsets.push(usize::try_from(last).unwrap());
    assert_eq!(offsets, vec![0, i64::from(i32::MAX), last].into());
}

/// Values of a part, some of which are lent, as a column has them.
fn column_of(part: &ValuesPart, lent: &[u8]) -> BinaryColumn {
    let mut builder = ColumnBuilder::new(part.len(), BinaryColumn::default());
    let lent = Lent {
        values: lent,
        ends: &[],
    };
    let copies = builder.add(std::slice::from_ref(part), lent);
    copies.into_iter().for_each(PartCopy::run);
    builder.finish()
}

#[test]
fn values_of_a_part_are_replaced() {
    let lent = b"0123456789";
    let mut part = ValuesPart::nulls(6);
    part.set(0, b"first");
    part.set_lent(1, 2..5);
    part.set(3, b"third");
    part.set_lent(4, 5..9);
    part.set(2, b"second");
    part.replace(&[]);
    let column = column_of(&part, lent);
    assert_eq!(&column.bytes[..], b"first234secondthird5678");
    part.replace(&[
        (0, Some(b"zero".to_vec())),
        (2, None),
        (4, Some(b"".to_vec())),
        (5, Some(b"fifth".to_vec())),
    ]);
    let column = column_of(&part, lent);
    assert_eq!(&column.bytes[..], b"zero234thirdfifth");
    assert_eq!(column.offsets, vec![0, 4, 7, 7, 12, 12, 17].into());
    assert_eq!(column.validity, [0b11_1011]);
    assert_eq!(part.bytes_len(), column.bytes.len());
}

/// Memory that notes when it is given back.
#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    _owner: Arc<()>,
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// 16 values, of which the first eight are in the memory already.
fn extended(memory: Memory, rest: &[u8]) -> BinaryColumn {
    let mut builder = ColumnBuilder::new(16, BinaryColumn::default());
    let copies = builder.extend(&[1, 3, 3, 4, 6, 6, 6, 8], 8);
    copies.into_iter().for_each(EndsCopy::run);
    assert_eq!(builder.filled(), 8);
    builder.set_bytes(Bytes::lent(memory));
    let mut part = ValuesPart::nulls(8);
    part.set(3, rest);
    let parts = [part];
    builder
        .add(&parts, Lent::default())
        .into_iter()
        .for_each(PartCopy::run);
    builder.finish()
}

#[test]
fn values_go_on_behind_those_in_lent_memory() {
    let given_back = Arc::new(());
    let memory = |len: usize| {
        let mut bytes = b"abcdefgh".to_vec();
        bytes.resize(len, b'-');
        Memory {
            bytes,
            _owner: given_back.clone(),
        }
    };
    for (len, is_lent) in [(20, true), (11, true), (10, false), (8, false)] {
        let column = extended(memory(len), b"xyz");
        assert_eq!(&column.bytes[..], b"abcdefghxyz");
        assert_eq!(column.bytes.are_lent(), is_lent);
        let ends = [1, 3, 3, 4, 6, 6, 6, 8, 8, 8, 8, 11, 11, 11, 11, 11];
        let offsets = [&[0][..], &ends].concat();
        assert_eq!(column.offsets, Offsets::I32(offsets));
        assert_eq!(column.validity, [0xff, 0b1000]);
        // All of the memory is there for the next column.
        let builder = ColumnBuilder::new(1, column);
        assert_eq!(builder.has_room(20), len == 20);
    }
    let column = extended(memory(20), b"");
    assert!(!column.bytes.clone().are_lent());
    assert_eq!(Arc::strong_count(&given_back), 2);
    assert_eq!(column.bytes.into_vec(), b"abcdefgh");
    assert_eq!(Arc::strong_count(&given_back), 1);
    let lent = BinaryColumn {
        bytes: Bytes::lent(memory(20)),
        ..BinaryColumn::default()
    };
    let mut builder = ColumnBuilder::new(1, lent);
    builder.return_bytes();
    assert_eq!(Arc::strong_count(&given_back), 1);
}

#[test]
fn ends_are_counted_from_before_a_column() {
    let mut narrow = [0i32; 3];
    i32::put_ends(&mut narrow, 5usize.wrapping_sub(100), &[100, 101, 200]);
    assert_eq!(narrow, [5, 6, 105]);
    let mut wide = [0i64; 3];
    i64::put_ends(&mut wide, 5usize.wrapping_sub(100), &[100, 101, 200]);
    assert_eq!(wide, [5, 6, 105]);
    // Of a position that has no value, too.
    i64::put_ends(&mut wide, 1 << 40, &[0, 1 | NULL_END, NULL_END - 1]);
    assert_eq!(wide, [1 << 40, (1 << 40) + 1, (1 << 40) + 0x3fff_ffff]);
}
